"""`jaxtrade advise precompute`: ask about all bars of a split in advance, and write a snapshot.

The command first prints a plan with its cost. It keeps a server's answers in a cache beside the
snapshot and has no other state. If it is run again, it asks only about bars that are missing from
the cache.
"""

from __future__ import annotations

import platform
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from jaxtrade import interrupt
from jaxtrade.advisor.compose import (
    AskPlan,
    AskProgress,
    arrays_of,
    ask_each,
    ask_service,
    backend_of,
    cost_text,
    make_plan,
    service_of,
    service_options,
)
from jaxtrade.advisor.host.ledger import MICRO, Spend
from jaxtrade.advisor.host.openai import with_model
from jaxtrade.advisor.host.policy import ServiceUse
from jaxtrade.advisor.host.registry import PANEL, is_slow
from jaxtrade.advisor.host.replies import reasons_text, unusable_lines
from jaxtrade.advisor.host.types import Backend
from jaxtrade.advisor.questions import QuestionBook, followed_of, in_sessions, make_book
from jaxtrade.advisor.table import market_entries, save_table
from jaxtrade.cli.shared import say
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import show
from jaxtrade.version import __version__

_REPORT_S = 5.0


class _Result(NamedTuple):
    """The answers.

    unsettled: number of bars without a final answer or failure.
    why: what stopped the asking.
    """

    bars: np.ndarray
    rows: np.ndarray
    failures: Mapping[str, int]
    unsettled: int
    why: str


def precompute(config: RunConfig, args: Namespace) -> int:
    """Handle the command. Return 0, or 1 if it stopped before every bar had an answer or a failure.

    Raises ConfigError (flags, or a cost without --yes), DataError (no advice at all).
    """
    if config.advisor.kind == PANEL:
        raise ConfigError(
            "advisor.kind = panel: a snapshot holds one advisor; precompute each member by itself "
            "(--advisor KIND --set 'advisor.panel=[]'), and put table:FILE into advisor.panel"
        )
    config = with_model(config, say)
    market = load_market(config)
    book = make_book(market, config)
    bars = chosen_bars(market, book, config, args)
    # Cache and ledger lie beside the snapshot, if the configuration names none.
    files = (args.out.with_suffix(".cache.sqlite"), args.out.with_suffix(".ledger.sqlite"))
    config = config.replace(advisor={"service": service_options(config.advisor, *files)})
    backend = backend_of(config, market, book, followed_of(market, config), say)
    try:
        options, slow = config.advisor.service, is_slow(config.advisor.kind)
        plan = (
            make_plan(backend, book, bars, options, say)
            if slow
            else AskPlan(len(bars), 0, 0, Spend())
        )
        show("\n".join(plan_lines(plan, config, slow)))
        if args.plan:
            return 0
        if plan.most.cost and not args.yes:
            raise ConfigError(
                f"--yes: missing, and this may cost up to {plan.most.cost / MICRO:.2f} (see above). Give "
                "--yes to spend it, or --plan to only see it; advisor.service.max_cost caps it"
            )
        found = (
            _through_service(config, backend, book, bars)
            if slow
            else _directly(backend, book, bars)
        )
    finally:
        backend.close()
    return _write_snapshot(found, config, args, market, book, backend, len(bars))


def chosen_bars(
    market: Market, book: QuestionBook, config: RunConfig, args: Namespace
) -> np.ndarray:
    """Choose every N-th askable bar of the split's sessions (int64[n]).

    Raises ConfigError if there is none.
    """
    inside = in_sessions(market, split_sessions(market, config.split)[args.split])
    bars = np.flatnonzero(inside & book.askable)[:: args.every]
    if not len(bars):
        raise ConfigError(
            f"--split {args.split}: holds no bar that may be asked about; choose another split, or "
            "hold sessions out (split.test_sessions, split.validation_sessions)"
        )
    return bars


# --- the plan --------------------------------------------------------------------------------------------------------


def plan_lines(plan: AskPlan, config: RunConfig, slow: bool) -> list[str]:
    """Format the plan as text."""
    kind, options = config.advisor.kind, config.advisor.service
    if not slow:
        return [f"plan: {plan.bars} bars, answered here by {kind}: no calls, no cost"]
    known = (
        f"{plan.hits} of them answered in {options.cache}"
        if plan.hits
        else "none of them answered yet"
    )
    lines = [
        f"plan: {plan.bars} bars, {known}"
        + (f", {plan.hopeless} known to fail" if plan.hopeless else "")
    ]
    lines.append(
        f"      {plan.most.calls} calls, {plan.most.tokens:,} tokens at most, "
        f"{cost_text(plan.most, options)}; retries add "
        f"{options.retry_share:.0%} at most"
    )
    for name, cap, most in (
        ("max_calls", options.max_calls, plan.most.calls),
        ("max_tokens", options.max_tokens, plan.most.tokens),
        ("max_cost", options.max_cost, plan.most.cost / MICRO),
    ):
        if cap is not None:
            enough = "enough" if most <= cap else "it may stop before the end"
            lines.append(f"      advisor.service.{name} = {cap:g}: {enough}")
    return lines


# --- asking ----------------------------------------------------------------------------------------------------------


def _directly(backend: Backend, book: QuestionBook, bars: np.ndarray) -> _Result:
    with interrupt.hint(lambda: "nothing was written, and nothing was paid for"):
        advice, failures = ask_each(backend, book, bars, _reporter())
    return _Result(*arrays_of(advice), failures, 0, "")


def _through_service(
    config: RunConfig, backend: Backend, book: QuestionBook, bars: np.ndarray
) -> _Result:
    last, report = AskProgress(len(bars), 0, 0, {}), _reporter()

    def progress(asked: AskProgress) -> None:
        nonlocal last
        last = asked
        report(asked)

    cache = config.advisor.service.cache

    def describe_kept() -> str:
        return (
            "nothing was written"
            if cache is None
            else (
                f"at least {last.advised} answers are kept in {cache}; the same command goes on from there"
            )
        )

    with (
        interrupt.hint(describe_kept),
        service_of(config, backend, log=say, use=ServiceUse(goes_on=False)) as service,
    ):
        found, rows, statistics = ask_service(service, book, bars, progress=progress)
    for line in unusable_lines(statistics):
        say(line)
    unsettled = last.total - last.settled
    failures = {kind: count for kind, count in statistics["failures"].items() if count}
    return _Result(found, rows, failures, unsettled, str(statistics["mode"]) if unsettled else "")


def _reporter() -> Callable[[AskProgress], None]:
    """Make a callback that prints a progress line every few seconds."""
    began = reported = time.monotonic()

    def report(asked: AskProgress) -> None:
        nonlocal reported
        now = time.monotonic()
        if now - reported >= _REPORT_S:
            reported = now
            say(progress_line(asked, now - began))

    return report


def progress_line(asked: AskProgress, seconds: float) -> str:
    """Format one line about the progress after `seconds`."""
    parts = [
        f"{asked.settled} of {asked.total} bars ({asked.settled / asked.total:.0%})",
        f"{asked.advised} advised",
    ]
    if asked.settled:
        left = round((asked.total - asked.settled) * seconds / asked.settled)
        parts.append(f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left")
    known = asked.statistics
    if known:
        parts.append(
            f"{known['asked']} calls, {known['prompt_tokens'] + known['completion_tokens']:,} tokens"
        )
        if known["unusable"]:
            parts.append(f"unusable: {reasons_text(known['unusable'])}")
        if known["cost"] is not None:
            parts.append(f"cost {known['cost']:.2f}")
        if not str(known["mode"]).endswith("closed"):
            parts.append(str(known["mode"]))
    return "  ".join(parts)


def _write_snapshot(
    found: _Result,
    config: RunConfig,
    args: Namespace,
    market: Market,
    book: QuestionBook,
    backend: Backend,
    asked: int,
) -> int:
    """Write the snapshot and print what it contains. Return the exit code."""
    failed = (
        ", ".join(f"{count} {kind}" for kind, count in sorted(found.failures.items())) or "none"
    )
    if not len(found.bars):
        raise DataError(
            f"{config.advisor.kind}: no advice about any of {asked} bars (failures: {failed}"
            f"{'; ' + found.why if found.why else ''}); nothing was written"
        )
    save_table(
        args.out,
        found.bars,
        found.rows,
        {
            **market_entries(market),
            "market_sha256": market.fingerprint,
            "prompt_version": book.template.version,
            "identity": dict(backend.identity()),
            "asked": asked,
            "split": args.split,
            "every": args.every,
            "horizon": config.advisor.horizon,
            "versions": {"jaxtrade": __version__, "python": platform.python_version()},
        },
    )
    show(
        f"{args.out}: {len(found.bars)} of {asked} bars have advice ({len(found.bars) / asked:.1%})"
    )
    again = (
        "; run again, it asks about those bars once more"
        if found.failures and is_slow(config.advisor.kind)
        else ""
    )
    show(f"failed attempts by kind: {failed}{again}")
    if found.unsettled:
        show(
            f"{found.unsettled} bars were not asked to the end ({found.why}); run the same command again to go on"
        )
    return 1 if found.unsettled else 0
