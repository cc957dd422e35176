"""The advice that an evaluation shows, and the plot of the advice in training.

It is asked now, or as an earlier evaluation showed it (`advice/<split>.npz`).

Each evaluation saves exactly what it showed, whether all answers arrived or not, so that it can be
repeated bit by bit and a replay of the run shows the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.advisor import compose as advising
from jaxtrade.advisor.compose import JOURNAL, table_reads_future
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.host.openai import server_of
from jaxtrade.advisor.host.policy import PAUSED, ServiceUse
from jaxtrade.advisor.host.registry import (
    is_slow,
    members_of,
    name_of,
    reads_future,
    snapshots_of,
)
from jaxtrade.advisor.host.types import LOGGED
from jaxtrade.advisor.questions import followed_of, make_book, mask_to_sessions
from jaxtrade.advisor.table import (
    WIDTH,
    AdviceView,
    Snapshot,
    directions,
    journal_rows,
    load_table,
    market_entries,
    save_table,
    stack_members,
    unstack_members,
)
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.errors import DataError, JournalError
from jaxtrade.evaluation.plots import style, training
from jaxtrade.evaluation.plots.training import Advisor
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.runs.advice import FIGURES, view_of
from jaxtrade.storage import digests
from jaxtrade.text import Log, discard_line
from jaxtrade.types import SessionSet

FOLDER = "advice"  # in a run's folder
MISSING = "missing"  # in a snapshot's manifest: how many of the bars that were asked about had no answer in time
_NOTHING = Snapshot(np.zeros(0, np.int32), np.zeros((0, WIDTH), np.float32), {})


class ShownAdvice(NamedTuple):
    """The advice that an evaluation shows to the policy.

    view: the advice.
    advised: how many of the decision bars have advice.
    bars: how many decision bars there are.
    kind: the advisor's `advisor.kind`; for a replay, that of the recorded run.
    reads_future: whether that advisor was given future prices.
    """

    view: AdviceView
    advised: int
    bars: int
    kind: str
    reads_future: bool

    @property
    def note(self) -> str:
        """One line about the advice, for reports."""
        future = (
            " (it reads future prices: a test of the machinery, not of an advisor)"
            if self.reads_future
            else ""
        )
        return f"advice of {self.kind}{future} on {self.advised:,} of {self.bars:,} decision bars"


def load_split_advice(
    config: RunConfig,
    market: Market,
    split: str,
    sessions: SessionSet,
    path: Path | None,
    log: Log | None = None,
    again: bool = False,
) -> ShownAdvice:
    """Load the advice on a split's decision bars.

    It comes from the run folder if an earlier evaluation saved it there, or from that of the
    recorded run for a replay. Otherwise the advisor is asked now. If its answers take time, this
    waits for at most `advisor.evaluation_wait_s`; later answers count as absent. What is shown is
    saved in the run folder.

    Args:
        path: the run folder; None saves nothing.
        log: prints one line about the run.
        again: ask about the bars whose answers an earlier evaluation missed. It has no effect on
            the validation split: early stopping depends on its advice, so a resumed or replayed run
            must see the same.

    Raises:
        ConfigError, DataError.
    """
    chosen, size = config.advisor, len(market.bars)
    rows = decision_bars(market.data, sessions).rows
    again = again and split != "validation"
    bars, values, manifest = _find_advice(
        config, market, split, rows, path, log or discard_line, again
    )
    inside = np.isin(bars % size, rows)
    table = advising.table_of(bars[inside], values[inside], size * chosen.advisors)
    future = table_reads_future(manifest) or any(
        reads_future(member.advisor.kind) for member in members_of(config)
    )
    kind = (
        str(manifest.get("advisor", chosen.kind))
        if chosen.kind.startswith("replay:")
        else name_of(config)
    )
    advised = len(np.unique(bars[inside] % size))
    return ShownAdvice(
        view_of(chosen, market.data.sessions, table, False), advised, len(rows), kind, future
    )


def _find_advice(
    config: RunConfig,
    market: Market,
    split: str,
    rows: np.ndarray,
    path: Path | None,
    log: Log,
    again: bool,
) -> Snapshot:
    """Find the advice about the decision bars `rows`, saved or asked for now."""
    kind, _, rest = config.advisor.kind.partition(":")
    if kind == "none":
        return _NOTHING
    if kind == "table":
        return load_table(Path(rest), market)
    if kind == "replay":
        recorded = Path(rest).parent / FOLDER / f"{split}.npz"
        if recorded.is_file():
            return load_table(recorded, market)
        log(
            f"advisor replay: {recorded} is missing, so no advice is shown about the {split} sessions, and "
            "figures may differ from those of the recorded run"
        )
        return _NOTHING
    own = path / FOLDER / f"{split}.npz" if path else None
    saved = load_table(own, market) if own and own.is_file() else None
    if saved and not (again and saved.manifest.get(MISSING)):
        return saved
    found = _of_members(config, market, rows, saved or _NOTHING, path, log)
    if own:
        own.parent.mkdir(exist_ok=True)
        save_table(own, found.bars, found.rows, market_entries(market) | found.manifest)
    return found


def _of_members(
    config: RunConfig,
    market: Market,
    rows: np.ndarray,
    saved: Snapshot,
    path: Path | None,
    log: Log,
) -> Snapshot:
    """Join the advice of every advisor into one table, asked for now as far as `saved` lacks it."""
    members, size = members_of(config), len(market.bars)
    found = []
    parts = unstack_members(saved.bars, saved.rows, size, len(members))
    for number, (member, (bars, values)) in enumerate(zip(members, parts, strict=True)):
        kind, _, file = member.advisor.kind.partition(":")
        doubted = bool(path) and _got_nothing_usable(path / FIGURES, number)
        found.append(
            load_table(Path(file), market)
            if kind == "table"
            else _ask(member, market, rows, Snapshot(bars, values, {}), path, log, doubted)
        )
    bars, values = stack_members([(each.bars, each.rows) for each in found], size)
    future = any(
        reads_future(member.advisor.kind) or table_reads_future(each.manifest)
        for member, each in zip(members, found, strict=True)
    )
    manifest = {
        "advisor": name_of(config),
        MISSING: sum(each.manifest.get(MISSING, 0) for each in found),
        **(
            {"advisors": len(members), "identity": {"future": "a member"} if future else {}}
            if len(members) > 1
            else {}
        ),
    }
    return Snapshot(bars, values, manifest)


def _ask(
    config: RunConfig,
    market: Market,
    rows: np.ndarray,
    saved: Snapshot,
    path: Path | None,
    log: Log,
    doubted: bool,
) -> Snapshot:
    """Ask one advisor about the askable bars among `rows` that `saved` lacks.

    Return these answers and those saved.

    doubted: the run's training asked it and got nothing usable.
    """
    book = make_book(market, config)
    wanted = rows[book.askable[rows]]
    bars = wanted[~np.isin(wanted, saved.bars)]
    backend = advising.backend_of(config, market, book, followed_of(market, config))
    missing = 0
    if not is_slow(config.advisor.kind):
        known, values = advising.ask_all(backend, book, bars, log)
    else:
        wait, began = config.advisor.evaluation_wait_s, time.monotonic()
        problems = LOGGED if log is discard_line else log
        with advising.service_of(
            config, backend, path, problems, ServiceUse(goes_on=False, doubted=doubted)
        ) as service:
            known, values, found = advising.ask_service(service, book, bars, wait)
            waited = time.monotonic() - began >= wait
        missing = len(bars) - len(known)
        if missing:
            _, pauses, cause = str(found["mode"]).partition(
                PAUSED
            )  # any other cause has had its own line
            why = (
                f" within {wait:g} s (advisor.evaluation_wait_s)"
                if waited
                else f" ({cause})"
                if pauses
                else ""
            )
            log(
                f"advisor {config.advisor.kind}: {len(known):,} of {len(bars):,} answers for the evaluation came"
                f"{why}; bars without an answer have no advice"
            )
    manifest = {"advisor": config.advisor.kind, MISSING: missing}
    return Snapshot(
        np.concatenate([saved.bars, known]), np.concatenate([saved.rows, values]), manifest
    )


def _got_nothing_usable(figures: Path, number: int) -> bool:
    """Return whether a run's training ended without a usable answer of an advisor that it asked.

    number: of the advisor.
    """
    if not figures.is_file():
        return False
    found = digests.read_json(figures)
    own = found["members"][number] if "members" in found else found
    return own.get("unusable_state", "closed") != "closed" and not own.get("done")


# What a run's advisors said in training and what followed it, for `advice.png`.

PICTURE = "advice.png"  # in the run folder


def draw(
    config: RunConfig,
    market: Market,
    train: SessionSet,
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    log: Log,
) -> bool:
    """Write `advice.png` to the folder of a finished training.

    Returns False for a run without advice.

    Args:
        train: the training sessions, the only ones whose outcomes are read.
        rows: of `metrics.jsonl`.
        log: receives one line if the journal or the snapshot cannot be read any more. The training
            is then still whole, so this ends nothing.
    Raises OSError (disk).
    """
    if not config.advisor.on:
        return False
    try:
        visible = visible_rows(config, market, path)
    except (DataError, JournalError) as error:
        log(f"warning: {PICTURE} is not drawn: {error}")
        return False
    if visible is None:
        return False
    followed = mask_to_sessions(followed_of(market, config), market, train)
    suffixes = [f"/{i}" for i in range(len(visible))] if len(visible) > 1 else [""]
    advisors = [
        advisor_of(name, *rows_of_one, followed, suffix)
        for name, rows_of_one, suffix in zip(_names(config), visible, suffixes, strict=True)
    ]
    title = f"Advice on {market.contract.symbol}, fusion {config.advisor.fusion}"
    figure = training.plot_advice(
        advisors, rows, config.advisor.bins, config.advisor.horizon, title
    )
    return style.write(figure, path / PICTURE)


def _names(config: RunConfig) -> list[str]:
    """Name the advisors as the plot does."""
    panel = config.advisor.panel
    if not panel:
        return [_name(config.advisor.kind, config.advisor.options)]
    return [_name(member.kind, {**config.advisor.options, **member.options}) for member in panel]


def _name(kind: str, options: Mapping[str, Any]) -> str:
    """Name an advisor by its kind and the model of a server, with a note if it reads the future."""
    model = options.get("model") if server_of(kind) else None
    named = kind if model is None else f"{model} at {kind}"
    return f"{named} (reads future prices)" if reads_future(kind) else named


def visible_rows(
    config: RunConfig, market: Market, path: Path
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return the bars int[n] and rows float32[n, 6] of all advice that became visible in training.

    There is a pair for each advisor.

    They are in the run's journal, in the journal that it replays, or in the snapshot that it was
    given. None for a run without advice.

    Raises DataError or JournalError where that file cannot be read.
    """
    chosen = config.advisor
    head, _, rest = chosen.kind.partition(":")
    journal = Path(rest) if head == "replay" else path / JOURNAL
    written = journal_rows(journal, read_journal(journal)) if journal.is_file() else _NOTHING[:2]
    found = unstack_members(*written, len(market.bars), chosen.advisors)
    snapshots = snapshots_of(config)
    for number, file in snapshots.items():
        snapshot = load_table(file, market)
        found[number] = (snapshot.bars, snapshot.rows)
    return found if snapshots or journal.is_file() else None


def advisor_of(
    name: str, bars: np.ndarray, rows: np.ndarray, followed: np.ndarray, suffix: str = ""
) -> Advisor:
    """Collect an advisor's scored answers.

    They have a direction, and are about bars where one direction would have paid.

    Args:
        bars, rows: as `visible_rows`.
        followed: int8[T], 0 outside the training sessions.
        suffix: of its metrics.
    """
    side, came = directions(rows), followed[bars]
    scored = (side != 0) & (came != 0)
    confidence, hits = rows[scored, 3].astype(np.float64), side[scored] == came[scored]
    return Advisor(name, bars[scored], confidence, hits, len(bars), suffix)
