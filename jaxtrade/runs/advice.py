"""The advisor of one run: during training, and in the run's closing metrics and journal.

Files in the run folder:

- `advice.jsonl`: the journal. It records which advice became visible at which update.
- `advice/<split>.npz`: the advice on the decision bars of one evaluated split (`runs.advice_evaluation`).
- `advice.json`: metrics about the advisor.
- a cache and a ledger, for advisors whose answers take time or cost money.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.advisor import compose as advising
from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.host.journal import (
    HEADER,
    ROWS_EACH,
    Journal,
    JournalPosition,
    LoadedJournal,
    check_position,
    is_ended,
    read_journal,
)
from jaxtrade.advisor.host.ledger import Spend
from jaxtrade.advisor.host.registry import (
    PANEL,
    identity_of_members,
    is_slow,
    members_of,
    snapshots_of,
)
from jaxtrade.advisor.host.replies import unusable_lines
from jaxtrade.advisor.host.service import AdviceSource, Live, PanelSource
from jaxtrade.advisor.host.types import Advice, Backend
from jaxtrade.advisor.questions import (
    QuestionBook,
    followed_of,
    in_sessions,
    make_book,
    mask_to_sessions,
)
from jaxtrade.advisor.table import (
    AdviceTable,
    AdviceView,
    Delta,
    empty_table,
    load_table,
    make_view,
    market_entries,
    session_starts,
)
from jaxtrade.config import AdvisorConfig, RunConfig
from jaxtrade.data.market import Market
from jaxtrade.errors import ConfigError, JournalError
from jaxtrade.formatting import share
from jaxtrade.rl.advice import AdviceExchange, AdviceState, start_advice, with_answers
from jaxtrade.runs import rundir
from jaxtrade.runs.rundir import SUMMARY, program, quote_command
from jaxtrade.storage import digests
from jaxtrade.storage.checkpoint import list_checkpoints
from jaxtrade.text import Log
from jaxtrade.types import SessionSet, SessionTable

# Python switches threads every 5 ms by default. The training thread would wait that long for the
# interpreter while the advisor's threads run, so they take turns every 0.2 ms instead.
_SWITCH_S = 2e-4
_MOST_BARS = 4000  # bars whose prompts an offer measures; the rest of a larger market is like them
SNAPSHOT = (
    2**30
)  # versions of rows of a panel's snapshots begin here, above all that live rows may reach


def view_of(
    config: AdvisorConfig, sessions: SessionTable, table: AdviceTable, training: bool
) -> AdviceView:
    """Make the view through which a run sees an advice table over a market with `sessions`.

    Advice is dropped at random only in training, and only where it is part of the observation
    (`fusion: slots`).
    """
    kept_back = training and config.fusion == "slots"
    starts = session_starts(
        sessions.first, sessions.last, table.version.shape[0] // config.advisors
    )
    return make_view(
        table,
        starts,
        config.latency,
        config.latency_seed,
        config.max_age,
        config.drop_episode if kept_back else 0.0,
        config.drop_bar if kept_back else 0.0,
    )


def first_advice(
    config: RunConfig, market: Market, train: SessionSet, askable: np.ndarray
) -> AdviceState:
    """Make the advice in a run's first state: empty, or that of snapshots (`table:FILE`).

    Args:
        train: the training sessions; advice is scored in these only.
        askable: bool[T], the bars that the advisor may be asked about.

    Raises:
        DataError: the snapshot is damaged or belongs to other bars.
    """
    chosen, size = config.advisor, len(market.bars)
    followed = mask_to_sessions(followed_of(market, config), market, train)
    view = view_of(chosen, market.data.sessions, empty_table(size * chosen.advisors), True)
    start = start_advice(view, followed, askable, chosen)
    for number, file in snapshots_of(config).items():
        if len((snapshot := load_table(file, market)).bars):
            # In a panel, live rows count their versions from 1. Rows of one version have come
            # together.
            version = np.array(1 if chosen.advisors == 1 else SNAPSHOT + number, np.int32)
            start = with_answers(
                start, Delta(snapshot.bars + number * size, snapshot.rows, version)
            )
    return start


def check_advisor(config: RunConfig, market: Market) -> None:
    """Check an advisor's kind, options, API key and horizon before the run folder is written.

    Raises ConfigError, DataError, JournalError.
    """
    chosen = config.advisor
    kind = chosen.kind.partition(":")[0]
    if kind in ("off", "none"):
        return
    sessions = market.data.sessions
    longest = int((np.asarray(sessions.last) - np.asarray(sessions.first)).max()) + 1
    if chosen.horizon > longest:
        raise ConfigError(
            f"advisor.horizon = {chosen.horizon}: the longest session has {longest} bars after its first "
            f"decision, so no advice could ever be scored; set advisor.horizon={max(1, longest // 2)} or "
            "less"
        )
    if kind == "replay":
        _load_journal(config, market)
        return
    # Each process would get other answers, and the processes' parameters would diverge.
    if kind != "table" and (processes := jax.process_count()) > 1:
        raise ConfigError(
            f"advisor.kind = {chosen.kind}: an advisor serves a run of one process, this is process "
            f"{jax.process_index()} of {processes}; start it without jax.distributed, or train with "
            "--advisor off"
        )
    for member in members_of(config):
        kind, _, file = member.advisor.kind.partition(":")
        if kind == "table":
            load_table(Path(file), market)
        else:
            book = make_book(market, member)
            advising.backend_of(member, market, book, followed_of(market, member)).close()


def _load_journal(config: RunConfig, market: Market) -> LoadedJournal:
    """Load the journal that `replay:FILE` names.

    Raises JournalError: the journal is damaged or cut, or belongs to another configuration or to
    other bars.
    """
    path = _journal_of(config)
    recorded = read_journal(
        path,
        {"config": advising.config_digest(config), "bars": market_entries(market)["bars_sha256"]},
    )
    check_whole(path, recorded)
    return recorded


def _journal_of(config: RunConfig) -> Path:
    return Path(config.advisor.kind.partition(":")[2])


class TrainingAdvisor:
    """The advisor while a run trains.

    Pass `exchange` to the training loop, and always call `close`, also after an exception. A live
    advisor works in threads of this process, so the process's switch interval is shorter until
    `close` (`sys.setswitchinterval`).

    Raises ConfigError, DataError, JournalError or StorageError before any question is asked.
    """

    def __init__(
        self, config: RunConfig, market: Market, train: SessionSet, path: Path, log: Log
    ) -> None:
        self._config, self._path = config, path
        chosen, size = config.advisor, len(market.bars)
        kind = chosen.kind.partition(":")[0]
        asked = _asked_of(config, market, log) if kind not in ("none", "replay") else ()
        book = next(
            (each.book for each in asked), make_book(market, config) if kind == "replay" else None
        )
        askable = book.askable & in_sessions(market, train) if book else np.zeros(size, bool)
        source = AdviceSource()
        journal = history = None
        if kind == "replay":
            history = _load_journal(config, market)
            for note in history.notes:
                log(note)
        elif asked:
            identity = identity_of_members([each.backend.identity() for each in asked])
            header = advising.journal_header(config, asked[0].book, identity, path.name) | {
                "bars": market_entries(market)["bars_sha256"]
            }
            if chosen.advisors > 1:
                header[ROWS_EACH] = size
            journal, history = self._journal(header, log)
            if not history:
                self._offer(asked, askable, log)
            source = self._live(asked, size, history, log)
        start = first_advice(config, market, train, askable)
        self.bridge = Bridge(source, size * chosen.advisors, chosen.rows, journal, history, log)
        self.exchange = AdviceExchange(chosen, start, self.bridge, config.train.chunk_updates)
        self._history = history
        self._switch_s = sys.getswitchinterval()
        if asked:
            sys.setswitchinterval(min(self._switch_s, _SWITCH_S))

    def _live(
        self, asked: Sequence[_Asked], size: int, history: LoadedJournal | None, log: Log
    ) -> AdviceSource:
        """Make the source of rows of live advisors over `size` bars."""
        sources: list[AdviceSource] = [AdviceSource() for _ in range(self._config.advisor.advisors)]
        for each in asked:
            _remember(each, history, size)
            service = advising.service_of(each.config, each.backend, self._path, log)
            sources[each.number] = Live(
                service, each.book.question, log, heard=each.book.note_answer
            )
        recorded = [row for delta in (history.deltas if history else ()) for row in delta.bars]
        names = [member.kind for member in self._config.advisor.panel]
        return PanelSource(sources, names, size, recorded) if len(sources) > 1 else sources[0]

    def _offer(self, asked: Sequence[_Asked], askable: np.ndarray, log: Log) -> None:
        """Offer to ask a server about all bars beforehand: log its largest cost and the commands.

        Does nothing if the cache of its answers exists already, or for a panel, whose members are
        asked beforehand one by one.

        askable: bool[T], the bars that training may ask about.
        """
        if self._config.advisor.kind == PANEL:
            return
        chosen, file = self._config.advisor, str(self._path / "config.yaml")
        options = advising.service_options(chosen, self._path / advising.CACHE)
        if not is_slow(chosen.kind) or options.cache is None or Path(options.cache).exists():
            return
        book, table = asked[0].book, str(self._path / "advice_table.npz")
        ask = [*program(), "advise", "precompute", file, "--out", table]
        ask += ["--yes"] if options.has_price else []
        train = [*program(), "train", file, "--advisor", f"table:{table}"]
        bars = np.flatnonzero(book.askable)
        step = -(-len(bars) // _MOST_BARS)
        plan = advising.make_plan(asked[0].backend, book, bars[::step], options, log)
        scale = len(bars) / plan.bars
        most = Spend(*(round(scale * part) for part in plan.most))
        about = "about " if step > 1 else ""
        log(
            f"note: this advisor answers while the run trains, so the first updates lack its advice. The training "
            f"split has {int(askable.sum()):,} bars to ask about, all splits have {len(bars):,}. To ask about all of "
            f"these beforehand takes at most {about}{most.calls:,} calls and {most.tokens:,} tokens, "
            f"{advising.cost_text(most, options)}:"
        )
        log(f"      {quote_command(ask)}")
        log(f"      {quote_command(train)}")

    def _journal(self, header: Mapping[str, Any], log: Log) -> tuple[Journal, LoadedJournal | None]:
        """Create a journal, or open the one that an earlier process of this run began.

        Return it with what it recorded.
        """
        file = self._path / advising.JOURNAL
        if not file.exists():
            return Journal.create(file, header), None
        fixed = {name: header[name] for name in HEADER if name not in ("run", "versions")} | {
            "bars": header["bars"]
        }
        journal, recorded = Journal.resume(file, expected=fixed)
        for note in recorded.notes:
            log(note)
        return journal, recorded

    def recall(self, memory: Mapping[str, Any] | None) -> None:
        """Restore the advisor's state at the update where the run continues.

        memory: from a checkpoint; None at the start of the run.

        Raises JournalError.
        """
        if memory:
            self.bridge.recall(memory)
        elif self._history:
            self.bridge.recall(
                {"deltas": 0, "sha256": self._history.digests[0], "until": -1, "in_flight": []}
            )

    def close(self) -> dict[str, Any]:
        """Stop asking and end the journal, within seconds.

        Write the metrics to `advice.json` and return them.

        Those of a replay hold the recorded run's as `recorded`.
        """
        self.bridge.wait_for_answers()
        self.bridge.stop()
        sys.setswitchinterval(self._switch_s)
        chosen, journal = self._config.advisor, self._path / advising.JOURNAL
        figures = self.bridge.statistics() | {
            "kind": chosen.kind,
            "fusion": chosen.fusion,
            "transport": chosen.transport,
        }
        if journal.is_file():
            figures["journal_ended"] = is_ended(journal)
        if chosen.kind.startswith("replay:") and self._history:
            figures["recorded_deltas"] = len(self._history.deltas)
            if recorded := recorded_metrics(_journal_of(self._config)):
                figures["recorded"] = recorded
        rundir.write_json(self._path / FIGURES, figures)
        return figures


class _Asked(NamedTuple):
    """An advisor that is asked while the run trains.

    number: its place in the panel.
    config: of a run with it alone.
    """

    number: int
    config: RunConfig
    book: QuestionBook
    backend: Backend


def _asked_of(config: RunConfig, market: Market, log: Log) -> tuple[_Asked, ...]:
    """List the advisors that are asked: all but those whose answers are in a snapshot already.

    Raises ConfigError.
    """
    found = []
    for number, member in enumerate(members_of(config)):
        if not member.advisor.kind.startswith("table:"):
            book = make_book(market, member)
            backend = advising.backend_of(member, market, book, followed_of(market, member), log)
            found.append(_Asked(number, member, book, backend))
    return tuple(found)


def _remember(asked: _Asked, history: LoadedJournal | None, size: int) -> None:
    """Put the answers that an earlier process of the run recorded into the advisor's own record."""
    for delta in history.deltas if history else ():
        for row_of_table, row in zip(delta.bars, delta.rows, strict=True):
            number, bar = divmod(row_of_table, size)
            if number == asked.number:
                asked.book.note_answer(bar, Advice._make((*row[:-1], int(row[-1]))))


def metric_lines(
    figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]], steps: int
) -> list[str]:
    """Format the lines about the advisor that a run prints at its end.

    history: rows of metrics, one per update.
    steps: environment steps of this process, over all environments.

    What was asked and answered is that of the recorded run if this one is its replay.
    """
    last, own = history[-1] if history else {}, figures
    figures = own.get("recorded", own)
    kind = f"{figures['kind']} (recorded)" if "recorded" in own else figures["kind"]
    lines = [
        f"advisor {kind}, fusion {figures['fusion']}, transport {figures['transport']}: "
        f"{figures['rows_handed_out']:,} answers became visible in {figures['deltas']:,} exchanges"
    ]
    if "asked" in figures:
        latency, failed = figures["latency"], sum(figures["failures"].values())
        lines.append(
            f"advisor: {figures['asked']:,} requests, {1000 * figures['asked'] / max(steps, 1):.3g} per 1,000 steps, "
            f"and {figures['cache_hit']:,} answers from the cache; {failed:,} requests failed; latency median "
            f"{_metric(latency['p50_s'], '.3g', ' s')}, 99 % {_metric(latency['p99_s'], '.3g', ' s')}"
        )
    lines += unusable_lines(figures)
    lines.append(
        f"advisor, in the last update: {_select_metrics(last, '')}, override {share(last.get('override'))}"
    )
    for number, member in enumerate(figures.get("members", ())):
        lines.append(f"  member {number}, {member['kind']}: {_select_metrics(last, f'/{number}')}")
    stall = own["stall_ms"]["delta"], own["stall_ms"]["wanted"]
    calls = sum(part["calls"] for part in stall)
    lines.append(
        f"advisor: the loop spent {sum(part['total'] for part in stall):.3g} ms on it in {calls:,} calls, 99 "
        f"% of them below {max(part['p99'] or 0.0 for part in stall):.2g} ms; it never waits for an answer"
    )
    if figures["silent"]:
        lines.append(f"advisor: silent since {figures['silent']}")
    return [*lines, closing_line(closing_metrics(figures, history))]


def _select_metrics(last: Mapping[str, Any], suffix: str) -> str:
    """Format what the metrics of an update say about an advisor.

    suffix: of its metrics, as `/0`; "" for all advisors.
    """
    found = {
        name: last.get(f"{name}{suffix}")
        for name in (
            "hit_rate",
            "advice_scored",
            "advice_independent",
            "trust",
            "advice_share",
            "agreement",
        )
    }
    return (
        f"{_skill(found)}, advice on {share(found['advice_share'])} of steps, agreement "
        f"{share(found['agreement'])}"
    )


def _skill(found: Mapping[str, Any]) -> str:
    """Format what was scored, and the trust that follows."""
    independent = found.get("advice_independent")
    worth = f", worth {independent:,.0f} independent" if independent else ""
    return (
        f"hit rate {share(found['hit_rate'])} over {int(found['advice_scored'] or 0):,} scored{worth}, "
        f"trust {_metric(found['trust'], '.3g', ' (log-odds)')}"
    )


def _metric(value: float | None, form: str, unit: str) -> str:
    return "n/a" if value is None else f"{value:{form}}{unit}"


# The closing figures about an advisor: RL-Trainer's `LLM query rate` line, with what stands beside
# it.
#
# The rate is the share of training decisions at which the policy was shown advice. A decision is
# one step of one environment; all updates of a training have equally many, so the mean of
# `advice_share` over all updates is that share.

# What a run's folder knows about its advice journal besides the journal itself.
#
# A journal alone cannot show that whole lines are missing at its end. The folder can: checkpoints
# hold a place in the journal, `advice.json` the number of its lines, and a finished run has ended
# its journal.

FIGURES = "advice.json"  # in a run's folder


def check_whole(path: Path, recorded: LoadedJournal) -> None:
    """Check a journal against the run folder that it lies in.

    Without such a folder, nothing can be checked.

    Raises JournalError, which names the first missing line: the newest checkpoint or `advice.json`
    knows more deltas, or the run has finished and the journal has no end.
    """
    folder = path.parent
    if path.name != advising.JOURNAL or not (folder / "manifest.json").is_file():
        return
    figures = recorded_metrics(path) or {}
    for where, position in _positions(folder):
        check_position(path, recorded.digests, position, where)
    if (known := int(figures.get("deltas", 0))) > recorded.position.deltas:
        raise _make_cut_error(path, recorded, f"{folder / FIGURES} counts {known:,} deltas")
    # A journal that could not be ended, as on a full disk, is complete without an end.
    if (folder / SUMMARY).is_file() and not recorded.ended and figures.get("journal_ended", True):
        raise _make_cut_error(
            path,
            recorded,
            f"the run has finished ({folder / SUMMARY}), and a finished run ends its journal",
        )


def _make_cut_error(path: Path, recorded: LoadedJournal, why: str) -> JournalError:
    return JournalError(
        f"{path}: line {recorded.position.deltas + 2} is missing: {why}; the journal was cut. Restore "
        "the file, or record a new one"
    )


def recorded_metrics(path: Path) -> dict[str, Any] | None:
    """Read the metrics about the advisor in the run folder of the journal at `path`.

    None if there are none.

    Raises JournalError where the file is not valid JSON.
    """
    file = path.parent / FIGURES
    if not file.is_file():
        return None
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise JournalError(
            f"{file}: not a JSON object ({error}); restore it, or delete it"
        ) from None


def _positions(folder: Path) -> Iterator[tuple[str, JournalPosition]]:
    """Yield the place in the journal that each checkpoint was written after, the newest first.

    Checkpoints whose manifest cannot be read are left out: another may know.
    """
    for _, checkpoint in reversed(list_checkpoints(folder / "checkpoints")):
        try:
            found: Mapping[str, Any] = json.loads(
                (checkpoint / "manifest.json").read_text(encoding="utf-8")
            )
            memory = found["metadata"]["hooks"]["advice"]
            yield str(checkpoint), JournalPosition(int(memory["deltas"]), str(memory["sha256"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue


LAST = (
    "hit_rate",
    "advice_scored",
    "trust",
    "agreement",
)  # metrics of which the last update's value counts


def closing_metrics(
    figures: Mapping[str, Any], history: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the metrics of `closing_line`, as JSON values.

    One that is undefined or was not kept is None.

    figures: of `TrainingAdvisor.close`, or as many of them as exist; `kind` must.
    history: rows of metrics, one per update of the whole training.

    kind: of the advisor.
    query_rate: share of the decisions with advice.
    requests: sent to the advisor by the last process of the training.
    hit_rate, advice_scored, trust, agreement: metrics of the last update.
    """
    shares = [share for row in history if (share := _number(row.get("advice_share"))) is not None]
    last = history[-1] if history else {}
    return {
        "kind": figures["kind"],
        "query_rate": sum(shares) / len(shares) if shares else None,
        "requests": figures.get("asked"),
        **{name: _number(last.get(name)) for name in LAST},
    }


def closing_line(found: Mapping[str, Any]) -> str:
    """Format one line: `LLM query rate: NN.N %`, then requests, hit rate, trust and agreement.

    found: `closing_metrics`.
    """
    requests = "no requests" if found["requests"] is None else f"{found['requests']:,} requests"
    return (
        f"LLM query rate: {share(found['query_rate'])} of decisions had advice (advisor {found['kind']}: "
        f"{requests}, {_skill(found)}, agreement {share(found['agreement'])})"
    )


def closing_of(
    path: Path, kind: str, history: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return `closing_metrics` of the run in a folder; None if it had no advisor.

    kind: its `advisor.kind`.

    Without `advice.json` (a process was killed after its last update) the values come from the
    metrics alone.
    """
    if kind in ("off", "none"):
        return None
    file = path / "advice.json"
    kept = digests.read_json(file) if file.is_file() else {}
    return closing_metrics(kept | {"kind": kind}, history)


def _number(value: Any) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
