"""The advisor of one run: during training, during evaluation and in the run's closing figures.

Files in the run folder:

- `advice.jsonl`: the journal. It records which advice became visible at which update.
- `advice/<split>.npz`: the advice on the decision bars of one evaluated split.
- `advice.json`: figures about the advisor.
- a cache and a ledger, for advisors whose answers take time or cost money.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.advisor import compose as advising
from jaxtrade.advisor.asking import ask_all, ask_service
from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.callback import settle
from jaxtrade.advisor.compose import JOURNAL
from jaxtrade.advisor.host.journal import HEADER, Journal, Recorded, read_journal
from jaxtrade.advisor.host.sources import AdviceSource, Live, NoSource, Replayed
from jaxtrade.advisor.host.types import Advice
from jaxtrade.advisor.questions import QuestionBook, in_sessions, make_book
from jaxtrade.advisor.snapshot import load_table, market_entries, save_table
from jaxtrade.advisor.table import COLUMNS, AdviceTable, AdviceView, Delta, empty_table, make_view, session_starts
from jaxtrade.config import AdvisorConfig, RunConfig
from jaxtrade.data.market import Market
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.backtest import decision_bars
from jaxtrade.rl.listening.exchange import AdviceExchange
from jaxtrade.rl.listening.state import AdviceState, start_advice, with_answers
from jaxtrade.runs import rundir
from jaxtrade.text import Tell
from jaxtrade.types import SessionSet, SessionTable

FOLDER, FIGURES = "advice", "advice.json"
# Python switches threads every 5 ms by default. The training thread would wait that long for the interpreter while the
# advisor's threads run, so they take turns every 0.2 ms instead.
_SWITCH_S = 2e-4


def view_of(config: AdvisorConfig, sessions: SessionTable, table: AdviceTable, training: bool) -> AdviceView:
    """The view through which a run sees an advice table over a market with `sessions`.

    Advice is dropped at random only in training, and only where it is part of the observation (`fusion: slots`).
    """
    kept_back = training and config.fusion == "slots"
    starts = session_starts(sessions.first, sessions.last, table.version.shape[0])
    return make_view(table, starts, config.latency, config.latency_seed, config.max_age,
                     config.drop_episode if kept_back else 0.0, config.drop_bar if kept_back else 0.0)


def first_advice(config: RunConfig, market: Market, train: SessionSet, askable: np.ndarray) -> AdviceState:
    """The advice in a run's first state: empty, or that of a snapshot (`table:FILE`).

    Args:
        train: the training sessions; advice is scored in these only.
        askable: bool[T], the bars that the advisor may be asked about.
    Raises:
        DataError: the snapshot is damaged or belongs to other bars.
    """
    chosen, size = config.advisor, len(market.bars)
    followed = advising.only(advising.followed_of(market, config), market, train)
    view = view_of(chosen, market.data.sessions, empty_table(size), True)
    start = start_advice(view, followed, askable, chosen.bins, chosen.memory)
    kind, _, file = chosen.kind.partition(":")
    if kind != "table":
        return start
    snapshot = load_table(Path(file), market)
    if not len(snapshot.bars):
        return start
    return with_answers(start, Delta(snapshot.bars, snapshot.rows, np.array(1, np.int32)))


class Shown(NamedTuple):
    """The advice that an evaluation shows to the policy.

    view: the advice. advised: how many of the decision bars have advice. bars: how many decision bars there are.
    kind: the advisor's `advisor.kind`. reads_future: whether that advisor was given future prices.
    """

    view: AdviceView
    advised: int
    bars: int
    kind: str
    reads_future: bool

    @property
    def note(self) -> str:
        """One line about the advice, for reports."""
        future = " (it reads future prices: a test of the machinery, not of an advisor)" if self.reads_future else ""
        return f"advice of {self.kind}{future} on {self.advised:,} of {self.bars:,} decision bars"


def shown(config: RunConfig, market: Market, split: str, sessions: SessionSet, path: Path | None,
          tell: Tell | None = None) -> Shown:
    """The advice on a split's decision bars.

    It comes from the run folder if an earlier evaluation saved it there. Otherwise the advisor is asked now. If its
    answers take time, this waits for at most `advisor.evaluation_wait_s`; later answers count as absent.

    The answers are saved in the run folder if all of them arrived. Answers about the validation split are always
    saved: early stopping depends on them, so a resumed run must see the same ones.

    Args:
        path: the run folder; None saves nothing.
        tell: prints one line about the run.
    Raises:
        ConfigError, DataError.
    """
    chosen = config.advisor
    kind, _, rest = chosen.kind.partition(":")
    own = None if path is None else path / FOLDER / f"{split}.npz"
    rows = decision_bars(market.data, sessions).rows
    file = {"table": Path(rest), "replay": Path(rest).parent / FOLDER / f"{split}.npz"}.get(kind, own)
    manifest: Mapping[str, Any] = {"advisor": chosen.kind}
    bars, values = np.zeros(0, np.int32), np.zeros((0, len(COLUMNS)), np.float32)
    if kind != "none":
        if file is not None and (file.is_file() or kind == "table"):
            bars, values, manifest = load_table(file, market)
        elif kind != "replay":
            bars, values, whole = _asked(config, market, rows, path, tell)
            if own is not None and (whole or split == "validation"):
                own.parent.mkdir(exist_ok=True)
                save_table(own, bars, values, market_entries(market) | manifest)
    inside = np.isin(bars, rows)
    table = advising.table_of(bars[inside], values[inside], len(market.bars))
    future = advising.reads_future(chosen.kind) or advising.table_reads_future(manifest)
    return Shown(view_of(chosen, market.data.sessions, table, False), int(inside.sum()), len(rows), chosen.kind, future)


def _asked(config: RunConfig, market: Market, rows: np.ndarray, path: Path | None,
           tell: Tell | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Ask the advisor about the askable bars among `rows`.

    Returns (bars, one row of advice per bar, whether every answer arrived before the wait was over).
    """
    book = make_book(market, config)
    bars = rows[book.askable[rows]]
    backend = advising.backend_of(config, market, book, advising.followed_of(market, config))
    if not advising.is_slow(config.advisor.kind):
        return *ask_all(backend, book, bars, tell), True
    with advising.service_of(config, backend, path, tell) as service:
        known, values, _ = ask_service(service, book, bars, config.advisor.evaluation_wait_s)
    if tell is not None and len(known) < len(bars):
        tell(f"advisor {config.advisor.kind}: {len(known):,} of {len(bars):,} answers for the evaluation came within "
             f"{config.advisor.evaluation_wait_s:g} s (advisor.evaluation_wait_s); the others are absent")
    return known, values, len(known) == len(bars)


def check_advisor(config: RunConfig, market: Market) -> None:
    """Check an advisor's kind, options, API key and horizon before the run folder is written.

    Raises ConfigError, DataError, JournalError.
    """
    chosen = config.advisor
    kind, _, rest = chosen.kind.partition(":")
    if kind in ("off", "none"):
        return
    sessions = market.data.sessions
    longest = int((np.asarray(sessions.last) - np.asarray(sessions.first)).max()) + 1
    if chosen.horizon > longest:
        raise ConfigError(f"advisor.horizon = {chosen.horizon}: the longest session has {longest} bars after its first "
                          f"decision, so no advice could ever be scored; set advisor.horizon={max(1, longest // 2)} or "
                          "less")
    if kind == "table":
        load_table(Path(rest), market)
    elif kind == "replay":
        _recorded(config, market)
    else:
        # Each process would get other answers, and the processes' parameters would diverge.
        if (processes := jax.process_count()) > 1:
            raise ConfigError(f"advisor.kind = {chosen.kind}: an advisor serves a run of one process, this is process "
                              f"{jax.process_index()} of {processes}; start it without jax.distributed, or train with "
                              "--advisor off")
        book = make_book(market, config)
        advising.backend_of(config, market, book, advising.followed_of(market, config)).close()


def _recorded(config: RunConfig, market: Market) -> Recorded:
    """The journal that `replay:FILE` names.

    Raises JournalError: the journal is damaged, or belongs to another configuration or to other bars.
    """
    return read_journal(Path(config.advisor.kind.partition(":")[2]), {
        "config": advising.config_digest(config), "bars": market_entries(market)["bars_sha256"]})


class TrainingAdvisor:
    """The advisor while a run trains.

    Pass `exchange` to the training loop, and always call `close`, also after an exception. A live advisor works in
    threads of this process, so the process's switch interval is shorter until `close` (`sys.setswitchinterval`).

    Raises ConfigError, DataError, JournalError or StorageError before any question is asked.
    """

    def __init__(self, config: RunConfig, market: Market, train: SessionSet, path: Path, tell: Tell) -> None:
        self._config, self._path = config, path
        chosen, size = config.advisor, len(market.bars)
        kind = chosen.kind.partition(":")[0]
        book = None if kind in ("none", "table") else make_book(market, config)
        askable = np.zeros(size, bool) if book is None else book.askable & in_sessions(market, train)
        source: AdviceSource = NoSource()
        journal = history = None
        if book is not None and kind == "replay":
            history = _recorded(config, market)
            source = Replayed(history)
        elif book is not None:
            backend = advising.backend_of(config, market, book, advising.followed_of(market, config), tell)
            header = advising.journal_header(config, book, backend, path.name) | {
                "bars": market_entries(market)["bars_sha256"]}
            journal, history = self._journal(header, tell)
            _remember(book, history)
            source = Live(advising.service_of(config, backend, path, tell), book.question, tell, heard=book.heard)
        start = first_advice(config, market, train, askable)
        self.bridge = Bridge(source, size, chosen.rows, journal, history, tell)
        self.exchange = AdviceExchange(chosen, start, self.bridge)
        self._history = history
        self._switch_s = sys.getswitchinterval()
        if isinstance(source, Live):
            sys.setswitchinterval(min(self._switch_s, _SWITCH_S))

    def _journal(self, header: Mapping[str, Any], tell: Tell) -> tuple[Journal, Recorded | None]:
        """A new journal, or the one that an earlier process of this run began, with what it recorded."""
        file = self._path / JOURNAL
        if not file.exists():
            return Journal.create(file, header), None
        fixed = {name: header[name] for name in HEADER if name not in ("run", "versions")} | {"bars": header["bars"]}
        journal, recorded = Journal.resume(file, expected=fixed)
        for note in recorded.notes:
            tell(note)
        return journal, recorded

    def recall(self, memory: Mapping[str, Any] | None) -> None:
        """Put the advisor where the run continues. memory: from a checkpoint; None at the start of the run.

        Raises JournalError.
        """
        if memory is not None:
            self.bridge.recall(memory)
        elif self._history is not None:
            self.bridge.recall({"deltas": 0, "sha256": self._history.digests[0], "until": -1, "in_flight": []})

    def close(self) -> dict[str, Any]:
        """Stop asking and end the journal, within seconds. Write the figures to `advice.json` and return them."""
        settle(self.bridge)
        self.bridge.stop()
        sys.setswitchinterval(self._switch_s)
        figures = self.bridge.statistics() | {"kind": self._config.advisor.kind,
                                              "fusion": self._config.advisor.fusion,
                                              "transport": self._config.advisor.transport}
        rundir.write_json(self._path / FIGURES, figures)
        return figures


def _remember(book: QuestionBook, history: Recorded | None) -> None:
    """Put the answers that an earlier process of the run recorded into the advisor's own record."""
    for delta in () if history is None else history.deltas:
        for bar, row in zip(delta.bars, delta.rows, strict=True):
            book.heard(bar, Advice(*row[:5], int(row[5])))


def figure_lines(figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]], steps: int) -> list[str]:
    """The lines about the advisor that a run prints at its end.

    history: rows of metrics, one per update. steps: environment steps of this process, over all environments.
    """
    last = history[-1] if history else {}
    lines = [f"advisor {figures['kind']}, fusion {figures['fusion']}, transport {figures['transport']}: "
             f"{figures['rows_handed_out']:,} answers became visible in {figures['deltas']:,} exchanges"]
    if "asked" in figures:
        latency, failed = figures["latency"], sum(figures["failures"].values())
        parse = sum(figures["failures"].get(kind, 0) for kind in ("parse", "schema"))
        lines.append(
            f"advisor: query rate {1000 * figures['asked'] / max(steps, 1):.3g} per 1,000 steps ({figures['asked']:,} "
            f"asked, {figures['cache_hit']:,} from the cache), {failed:,} failed of which {parse:,} to be parsed; "
            f"latency median {_seconds(latency['p50_s'])}, 99 % {_seconds(latency['p99_s'])}")
    shown = {name: last.get(name) for name in ("hit_rate", "trust", "advice_share", "agreement", "override")}
    trust = "n/a" if shown["trust"] is None else f"{shown['trust']:.3g} (log-odds)"
    lines.append(f"advisor: hit rate {_percent(shown['hit_rate'])} over {int(last.get('advice_scored', 0)):,} scored, "
                 f"trust {trust}, advice on {_percent(shown['advice_share'])} of steps, "
                 f"agreement {_percent(shown['agreement'])}, override {_percent(shown['override'])}")
    stall = figures["stall_ms"]["delta"], figures["stall_ms"]["wanted"]
    calls = sum(part["calls"] for part in stall)
    lines.append(f"advisor: the loop spent {sum(part['total'] for part in stall):.3g} ms on it in {calls:,} calls, 99 "
                 f"% of them below {max(part['p99'] or 0.0 for part in stall):.2g} ms; it never waits for an answer")
    if figures["silent"]:
        lines.append(f"advisor: silent since {figures['silent']}")
    return lines


def _seconds(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3g} s"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"
