"""How many evaluation accounts are drawn, and over how many sessions.

Imports no heavy library, so flags come first.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtrade.errors import ConfigError

HORIZON = 60  # sessions
DRAWS = 300  # of the days
ACCOUNTS = 400  # for each of them
POINT = 10  # times as many accounts give the figures themselves


class AccountDraws(NamedTuple):
    """How accounts are drawn.

    horizon: sessions after which an account is out of time.
    draws: of the days.
    accounts: for each of these draws; `POINT` times as many give the metrics.
    seed: of all draws.
    """

    horizon: int = HORIZON
    draws: int = DRAWS
    accounts: int = ACCOUNTS
    seed: int = 0


LEAST = AccountDraws(horizon=1, draws=100, accounts=50)


def check_draws(draws: AccountDraws) -> None:
    """Raise ConfigError for a number below `LEAST`, in which errors could not be estimated."""
    for name, value, least in zip(AccountDraws._fields[:3], draws, LEAST, strict=False):
        if value < least:
            raise ConfigError(f"{name} = {value} (--{name}): expected {least} or more")
