"""The flags of `jaxtrade evaluate` that ask what stands behind its figures (`runs.studies`)."""

from __future__ import annotations

import argparse

from jaxtrade.cli.usage import add_flags
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.account_draws import ACCOUNTS, DRAWS, HORIZON, AccountDraws, check_draws

USUAL = {"horizon": HORIZON, "draws": DRAWS, "accounts": ACCOUNTS}
OTHER_TABLES = ("intrabar_grid", "cost_grid", "latency_grid", "attribution", "nulls")


def add_studies(evaluate: argparse.ArgumentParser) -> None:
    """Add the flags to the parser of `evaluate`."""
    add_flags(
        evaluate,
        f"""
        --pass-probability  print the probability to pass the run's account, with its errors,
            instead of the table
        --horizon SESSIONS  with --pass-probability: sessions after which an account is out of
            time (default: {HORIZON})
        --draws N  with --pass-probability: how often the sessions themselves are drawn anew
            (default: {DRAWS})
        --accounts N  with --pass-probability: simulated accounts for each of these draws
            (default: {ACCOUNTS})
        --breakdown  print the profit by half hour, weekday, volatility and exit reason, instead
            of the table
        """,
        horizon=int,
        draws=int,
        accounts=int,
    )


def studies_wanted(args: argparse.Namespace) -> bool:
    """Whether a study is asked for. Raises ConfigError (flags that do not go together, a number
    that is too small).
    """
    given = [f"--{name}" for name in _numbers(args)]
    if given and not args.pass_probability:
        raise ConfigError(
            f"{', '.join(given)}: belongs to --pass-probability; add it, or leave this out"
        )
    if not (args.pass_probability or args.breakdown):
        return False
    if (asked := draws(args)) is not None:
        check_draws(asked)
    grids = [f"--{name.replace('_', '-')}" for name in OTHER_TABLES if getattr(args, name)]
    if grids:
        asked = "--pass-probability" if args.pass_probability else "--breakdown"
        raise ConfigError(
            f"{asked} with {', '.join(grids)}: these are different tables; ask for them one by one"
        )
    return True


def draws(args: argparse.Namespace) -> AccountDraws | None:
    """What `--pass-probability` simulates; None without it."""
    return AccountDraws(**USUAL | _numbers(args)) if args.pass_probability else None


def _numbers(args: argparse.Namespace) -> dict[str, int]:
    return {name: value for name in USUAL if (value := getattr(args, name)) is not None}
