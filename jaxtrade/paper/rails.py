"""Rails: limits that only shrink what the policy wants, or flatten it; and the file that sets them.

They stand beside the account's rules, which the environment keeps, and no configuration of a run
holds them. Loads no JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from jaxtrade.config.base import Section
from jaxtrade.config.load import read_values, validate
from jaxtrade.errors import ConfigError

SIMULATED, NINJATRADER = "simulated", "ninjatrader"
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class PaperConfig(Section, frozen=True):
    """The file of `--rails`. null switches a rail off.

    Rails that forbid entries: `BLOCK`. stale_bars goes by the clock, so it is not for files.

    max_position: contracts.
    daily_loss, total_loss: dollars of the session and of the account, from which on it is flat.
    early_seconds: how long before its close a bar may arrive, by this machine's clock.
    flat_seconds: how long after the flat time its bar is waited for.
    broker: where orders go. Any but `simulated` needs accounts, their names written in full, and
        simulation: true.
    instrument: its name at the broker.
    """

    max_position: Count | None = None
    orders_per_minute: Count | None = None
    trades_per_day: Count | None = None
    bars_between_trades: Count | None = None
    bars_after_loss: Count | None = None
    daily_loss: Positive | None = None
    total_loss: Positive | None = None
    price_jump_atr: Positive | None = None
    price_jump_ticks: Count | None = None
    stale_bars: Positive | None = 2.0
    early_seconds: Annotated[float, Field(ge=0)] = 2.0
    flat_seconds: Annotated[float, Field(ge=0)] = 30.0
    broker: Literal["simulated", "ninjatrader"] = SIMULATED
    accounts: tuple[str, ...] = Field(default=(), strict=False)
    simulation: bool = False
    instrument: str = ""


def read_paper(path: Path | str | None) -> PaperConfig:
    """Read a file of rails; None: the defaults.

    Raises ConfigError, also for a broker that could reach an account that is not named, or is not
    said to be a simulation.
    """
    if path is None:
        return PaperConfig()
    config = validate(PaperConfig, read_values(Path(path)), str(path))
    named = config.accounts and all(each.strip() and "*" not in each for each in config.accounts)
    if config.broker != SIMULATED and not (named and config.simulation):
        raise ConfigError(
            f"{path}: broker = {config.broker}: orders would leave this process; name each account in "
            "full (accounts: [NAME]) and say simulation: true, or drop broker"
        )
    return config


# Rail -> what it is compared with, at the close of a bar: orders of the last minute, entries of the
# trade date, bars since a trade (a losing one) was closed, ATRs and ticks from the last close to the
# open, bar lengths since the close, dollars. `kill` is no limit.
BLOCK = (
    "orders_per_minute",
    "trades_per_day",
    "bars_between_trades",
    "bars_after_loss",
    "price_jump_atr",
    "price_jump_ticks",
    "stale_bars",
)
FLATTEN = ("kill", "daily_loss", "total_loss")
Facts = Mapping[str, Any]


def limit(rails: PaperConfig, wanted: int, held: int, facts: Facts) -> tuple[int, tuple[str, ...]]:
    """Return the position that the rails leave of a wanted one, and which of them acted.

    It is the wanted one, one of fewer contracts on the same side, or none.

    wanted, held: signed contracts.
    """

    def acts(name: str) -> bool:
        most, found = getattr(rails, name, 1), facts[name]
        return most is not None and (found < most if name.startswith("bars_") else found >= most)

    opens = wanted * held <= 0
    if wanted and (acted := tuple(filter(acts, FLATTEN + BLOCK * opens))):
        return 0, acted
    most = rails.max_position
    if most is None or abs(wanted) <= most:
        return wanted, ()
    # A position is held or closed as a whole, so one that is too large is closed.
    return (max(-most, min(wanted, most)) if opens else 0), ("max_position",)
