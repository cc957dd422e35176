"""The flags of `jaxtrade evaluate` that ask what stands behind its figures (`runs.studies`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxtrade.cli.usage import add_flags
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.account_draws import ACCOUNTS, DRAWS, HORIZON, AccountDraws, check_draws
from jaxtrade.progress.screen import Screen

OTHER_TABLES = ("intrabar_grid", "cost_grid", "latency_grid", "attribution", "nulls")


def add_options(evaluate: argparse.ArgumentParser) -> None:
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


def wanted(args: argparse.Namespace) -> bool:
    """Whether a study is asked for. Raises ConfigError (flags that do not go together, a number
    that is too small).
    """
    given = [
        f"--{name}" for name in ("horizon", "draws", "accounts") if getattr(args, name) is not None
    ]
    if given and not args.pass_probability:
        raise ConfigError(
            f"{', '.join(given)}: belongs to --pass-probability; add it, or leave this out"
        )
    if not (args.pass_probability or args.breakdown):
        return False
    check_draws(_draws(args))
    grids = [f"--{name.replace('_', '-')}" for name in OTHER_TABLES if getattr(args, name)]
    if grids:
        asked = "--pass-probability" if args.pass_probability else "--breakdown"
        raise ConfigError(
            f"{asked} with {', '.join(grids)}: these are different tables; ask for them one by one"
        )
    return True


def run(args: argparse.Namespace, screen: Screen) -> str:
    """The studies as text or JSON. Raises as `runs.studies.study_run`."""
    from jaxtrade.runs.studies import study_run

    return study_run(
        Path(args.run),
        args.split,
        _draws(args) if args.pass_probability else None,
        args.breakdown,
        args.json,
        args.seed,
        args.advisor,
        args.overrides,
        args.data,
        screen,
        args.agent,
    )


def _draws(args: argparse.Namespace) -> AccountDraws:
    return AccountDraws(
        *(
            default if value is None else value
            for value, default in (
                (args.horizon, HORIZON),
                (args.draws, DRAWS),
                (args.accounts, ACCOUNTS),
            )
        )
    )
