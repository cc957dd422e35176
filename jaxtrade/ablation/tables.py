"""The answers of every kind of a matrix about every bar. All are asked once, before training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxtrade.ablation.kinds import NONE, placebo_file, reads_future, turn_skill
from jaxtrade.advisor.compose import ask_all, backend_of, table_reads_future
from jaxtrade.advisor.host.mocks import Permuted, Shifted
from jaxtrade.advisor.host.registry import takes
from jaxtrade.advisor.host.types import Question
from jaxtrade.advisor.questions import QuestionBook, followed_of, make_book
from jaxtrade.advisor.table import COLUMNS, directions, load_table
from jaxtrade.config import RunConfig
from jaxtrade.config.service import parts_of
from jaxtrade.data.market import Market
from jaxtrade.text import Log, discard_line


class KindTable(NamedTuple):
    """The answers of one kind.

    bars: int32[n] ascending.
    rows: float32[n, 6] by `table.COLUMNS`.
    then: bars and rows that become visible from the middle of the run on, or None.
    uses_future: whether the kind reads the future.
    """

    kind: str
    bars: np.ndarray
    rows: np.ndarray
    then: tuple[np.ndarray, np.ndarray] | None = None
    uses_future: bool = False

    @property
    def latest(self) -> tuple[np.ndarray, np.ndarray]:
        """Bars and rows at the end of the run."""
        return self.then or (self.bars, self.rows)


class Answers(NamedTuple):
    """The answers of all kinds over a market's bars.

    tables: one per kind.
    followed: int8[T], what followed each bar, in every session (`questions.followed_of`).
    askable: bool[T], the bars that are asked about.
    """

    tables: list[KindTable]
    followed: np.ndarray
    askable: np.ndarray


def make_tables(
    kinds: Sequence[str], config: RunConfig, market: Market, log: Log = discard_line
) -> Answers:
    """Make the answers of `kinds`.

    Raises ConfigError for a kind that lacks an option, DataError for a snapshot of other bars.
    """
    book, followed = make_book(market, config), followed_of(market, config)
    asked: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def of(kind: str) -> tuple[np.ndarray, np.ndarray]:
        if kind not in asked:
            asked[kind] = _ask(kind, config, market, book, followed, log)
        return asked[kind]

    tables = []
    for kind in kinds:
        head, _, rest = kind.partition(":")
        if head == "turn":
            skill = turn_skill(kind)
            table = KindTable(kind, *of(f"mock:skilled:{skill}"), of(f"mock:adversarial:{skill}"))
        elif head == "table":
            snapshot = load_table(Path(rest), market)
            table = KindTable(
                kind,
                snapshot.bars,
                snapshot.rows,
                uses_future=table_reads_future(snapshot.manifest),
            )
        elif (file := placebo_file(kind)) is not None:
            table = KindTable(kind, *_shift_rows(kind, file, config, market, book, followed))
        else:
            table = KindTable(kind, *of(kind))
        tables.append(table._replace(uses_future=table.uses_future or reads_future(kind)))
    return Answers(tables, followed, book.askable)


def _ask(
    kind: str,
    config: RunConfig,
    market: Market,
    book: QuestionBook,
    followed: np.ndarray,
    log: Log,
) -> tuple[np.ndarray, np.ndarray]:
    if kind == NONE:
        return np.zeros(0, np.int32), np.zeros((0, len(COLUMNS)), np.float32)
    book = book.fresh()
    known = takes(
        kind
    )  # advisor.options belong to the configured kind; other kinds get only those that they take
    options = {name: value for name, value in config.advisor.options.items() if name in known}
    config = config.replace(advisor={"kind": kind, "options": options})
    backend = backend_of(config, market, book, followed, log)
    asked = _Numbers(*book) if parts_of(kind)[-1].startswith("mock:") else book
    try:
        return ask_all(backend, asked, np.flatnonzero(book.askable), log)
    finally:
        backend.close()


def _shift_rows(
    kind: str,
    file: str,
    config: RunConfig,
    market: Market,
    book: QuestionBook,
    followed: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return a snapshot's rows on the bars to which its placebo moves them.

    The placebo is `mock:shifted/table:FILE`.
    """
    moves = (
        kind.removesuffix(f"table:{file}") + "mock:constant"
    )  # the same moves, of an advisor that needs no file
    moved = config.replace(advisor={"kind": moves, "options": {}})
    wrapper = backend_of(moved, market, book, followed)
    assert isinstance(wrapper, Shifted | Permuted)  # what `placebo_file` names
    kept = load_table(Path(file), market)
    asked = np.flatnonzero(book.askable).astype(np.int32)
    others = np.array([wrapper.other(int(bar)) for bar in asked], np.int32)
    known = np.isin(others, kept.bars)
    return asked[known], kept.rows[np.searchsorted(kept.bars, others[known])]


class _Numbers(QuestionBook):
    """Questions without prompts, for mocks.

    Mocks read the bar's number only, and building prompts takes time.
    """

    def question(self, bar: int) -> Question:
        return Question(int(bar), self.symbol, "", {}, "", "")


class AdviceSkill(NamedTuple):
    """The skill of advice on some bars.

    advised: share of the bars with advice.
    scored: number of bars where the advice has a direction and a direction followed.
    hit_rate, brier: over the scored bars, the latter the mean squared error of the confidence;
        None where there are none.
    """

    advised: float
    hit_rate: float | None
    brier: float | None
    scored: int


def skill(bars: np.ndarray, rows: np.ndarray, followed: np.ndarray, of: np.ndarray) -> AdviceSkill:
    """Measure how often advice is right.

    followed: int8[T].
    of: int[L], the bars that count. Advice counts at its own bar, even if agents read it later.
    """
    inside = np.isin(bars, of)
    advised, came = directions(rows[inside]), followed[bars[inside]]
    counts = (advised != 0) & (came != 0)
    share = float(inside.sum()) / len(of) if len(of) else 0.0
    if not counts.any():
        return AdviceSkill(share, None, None, 0)
    hit = (advised == came)[counts]
    error = rows[inside][counts, COLUMNS.index("confidence")].astype(np.float64) - hit
    return AdviceSkill(share, float(hit.mean()), float((error**2).mean()), int(counts.sum()))
