"""Builds the advisor of a run from its configuration, and asks it about many bars outside training.

The parts, in this order: the backend, the service, and what journals and snapshots record.
"""

from __future__ import annotations

import math
import platform
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from jaxtrade.advisor.host.backends import RecordedBackend, calls_of
from jaxtrade.advisor.host.ledger import MICRO, AdviceCache, Spend, at_most
from jaxtrade.advisor.host.policy import TRAINING, ServiceUse
from jaxtrade.advisor.host.prompts import digest_values
from jaxtrade.advisor.host.registry import (
    NOBODY,
    WRITTEN,
    make_backend,
    reads_future,
    snapshots_of,
    takes,
)
from jaxtrade.advisor.host.replies import check_answer
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import LOGGED, SCHEMA_HASH, Advice, Backend, Failure
from jaxtrade.advisor.questions import QuestionBook
from jaxtrade.advisor.table import (
    WIDTH,
    AdviceTable,
    Delta,
    empty_table,
    read_snapshot,
    write_delta,
)
from jaxtrade.config import PLACES, AdvisorConfig, RunConfig, digest_of
from jaxtrade.config.run import with_control, with_split
from jaxtrade.config.service import ServiceOptions, is_server, parts_of
from jaxtrade.data.market import Market
from jaxtrade.errors import ConfigError
from jaxtrade.text import Log, discard_line
from jaxtrade.types import SessionTable
from jaxtrade.version import __version__

CACHE, LEDGER, JOURNAL = (
    "advice_cache.sqlite",
    "advice_ledger.sqlite",
    "advice.jsonl",
)  # in a run's folder
# What a run must share with its recording, so that journals of earlier versions stay valid.
_SHARED: dict[str, Any] = yaml.safe_load("""
# Keys of `advisor` that the digests of the first journals cover. A later key counts only where it is not its default.
first: [fusion, transport, horizon, latency, latency_seed, max_age, bins, memory, prior, abstain, cap, weight,
  gate_cost, veto, drop_episode, drop_bar, demand, rows, template, evaluation_wait_s]
# Later keys whose default is not what earlier versions did: what they did.
before: {evidence: answers}
# These may differ between a recording and its replay: `demand_per` decides only what is asked. Files of the context
# enter by their content.
free: [kind, options, service, demand_per, context]
# Sections, and keys of sections, that earlier versions did not have. With its default a run is as theirs was, and their
# recordings belong to it.
sections: [sampler, dqn, pqn, allocate, parallel, shared, actor, evolve, sweep, walk]
keys:
  data: [markets, folder, per_market, spreads]
  network: [normalise_per_symbol]
  control: [wall_clock]
  compute: [eager]
""")


# --- the backend -----------------------------------------------------------------------------------------------------


def table_reads_future(manifest: Mapping[str, Any]) -> bool:
    """Return whether the advisor that a manifest names read the future.

    The manifest is that of a snapshot or a journal.
    """
    return reads_future(str(manifest.get("advisor", ""))) or any(
        name.rpartition(".")[2] == "future" for name in manifest.get("identity", {})
    )


def backend_of(
    config: RunConfig,
    market: Market,
    book: QuestionBook,
    followed: np.ndarray,
    log: Log = discard_line,
) -> Backend:
    """Build the backend that `advisor.kind` names.

    `advisor.options` override the defaults that the run supplies.

    Args:
        followed: int8[T], the labels that mocks of known skill read.
        log: receives one line that counts the askable bars with a recorded answer, for a
            `recorded` backend.

    Raises:
        ConfigError: the kind has no backend (none, off, table, replay), the kind or an option is
            unknown, or a required option is missing.
    """
    kind, options = config.advisor.kind, config.advisor.options
    if (head := kind.partition(":")[0]) in (*NOBODY, *WRITTEN):
        raise ConfigError(
            f"advisor.kind = {kind} (--advisor) answers no question; choose rules, mock:KIND, "
            f"recorded:FILE, ollama:NAME or the "
            f"URL of a server{'' if head in NOBODY else ' to ask'}"
        )
    innermost = parts_of(kind)[-1]
    if innermost == "rules" and not market.has_volume:
        raise ConfigError(
            f"advisor.kind = {kind}: the rules look at the distance from VWAP, and the bars of "
            f"{market.contract.symbol} have no volume; choose a mock, or a model with "
            "advisor.template=no_volume"
        )
    # The caps reserve `completion_tokens` per request. A larger `max_tokens` could spend more than
    # was reserved.
    most = config.advisor.service.completion_tokens
    if "max_tokens" in takes(kind) and options.get("max_tokens", most) != most:
        raise ConfigError(
            f"advisor.options.max_tokens = {options['max_tokens']}: the caps count on "
            f"advisor.service.completion_tokens = {most}; set that one, it is used for both"
        )
    backend = make_backend(
        kind, options, partial(_supply_options, config, market, book, followed, innermost)
    )
    if isinstance(backend, RecordedBackend):
        askable = np.flatnonzero(book.askable)
        log(
            f"advisor {kind}: {np.isin(askable, backend.bars).sum()} of {len(askable)} askable bars are recorded"
        )
    return backend


def _supply_options(
    config: RunConfig,
    market: Market,
    book: QuestionBook,
    followed: np.ndarray,
    innermost: str,
    own: str,
) -> dict[str, Any]:
    """Return options that a run supplies to the backend `own`, by name.

    A server gets no `seed` here: its option of that name controls the server's sampling and is the
    user's choice.

    Args:
        innermost: the backend that it wraps in the end, or itself.
    """
    form, horizon = book.template.answer, config.advisor.horizon
    if is_server(own):
        return {"max_tokens": config.advisor.service.completion_tokens, "answer": form}
    found: dict[str, Any] = {"future": followed.tolist(), "horizon": horizon, "answer_format": form}
    if own.startswith("mock:"):
        found["seed"] = config.seed
        if own.startswith("mock:permuted"):
            found["bars"] = np.flatnonzero(book.askable).tolist()
        if own.startswith("mock:shifted"):
            found["sessions"] = session_places(book, market.data.sessions)
            found["least"] = horizon
        # Mocks read only the bar's number, so they need no question.
        if not innermost.startswith("mock"):
            found["question_of"] = book.question_or_none
    return found


# --- the service -----------------------------------------------------------------------------------------------------


def service_options(
    config: AdvisorConfig, cache: Path | str = "", ledger: Path | str = ""
) -> ServiceOptions:
    """Return `advisor.service` with default files filled in where it names none.

    `cache` is used for servers only. `ledger` is used only where calls, tokens or cost are capped.
    """
    options, given = config.service, {}
    if cache and options.cache is None and is_server(parts_of(config.kind)[-1]):
        given["cache"] = str(cache)
    if ledger and options.ledger is None and options.has_cap:
        given["ledger"] = str(ledger)
    return options.model_copy(update=given)


def service_of(
    config: RunConfig,
    backend: Backend,
    run_path: Path | None = None,
    log: Log = LOGGED,
    use: ServiceUse = TRAINING,
) -> AdviceService:
    """Build the service of a run.

    Its cache and ledger are files in the run's folder, or in memory without a folder.

    Args:
        use: what the answers are for.

    Raises:
        StorageError: the ledger cannot be read.
    """
    files = (run_path / CACHE, run_path / LEDGER) if run_path else ()
    return AdviceService(backend, service_options(config.advisor, *files), log=log, use=use)


# --- journals and snapshots ------------------------------------------------------------------------------------------


def _as_before(values: dict[str, Any]) -> dict[str, Any]:
    """Drop later keys and sections that have their defaults from a configuration's values."""
    usual = RunConfig().model_dump(mode="json")
    kept = {
        section: part
        for section, part in values.items()
        if section not in _SHARED["sections"] or part != usual[section]
    }
    for section, names in _SHARED["keys"].items():
        kept[section] = {
            name: value
            for name, value in kept[section].items()
            if name not in names or value != usual[section][name]
        }
    return kept


def config_digest(config: RunConfig) -> str:
    """Hash the configuration fields in which a recording and its replay must agree (sha256 hex).

    The kinds, options and service of advisors, the TensorBoard switch, the monitor and the places
    of files may differ, so they are left out: a journal names the bars by their content. The
    transport is included: it decides at which updates advice becomes visible. Of a panel, the
    number of members and the content of snapshots are included.

    Raises DataError where a snapshot of a panel cannot be read.
    """
    settled = with_control(
        with_split(config, 0), 0, 0
    )  # earlier versions had numbers where None stands today
    values = _as_before(
        settled.model_dump(mode="json", exclude={"data": set(PLACES), "monitor": True})
    )
    if values["control"]["keep"] == "last":
        del values["control"]["keep"]
    before = AdvisorConfig().model_dump(mode="json") | _SHARED["before"]
    values["advisor"] = {
        name: value
        for name, value in values["advisor"].items()
        if name not in _SHARED["free"] and (name in _SHARED["first"] or value != before[name])
    } | digest_values(config.advisor)
    if config.advisor.panel:
        snapshots = snapshots_of(config)
        values["advisor"]["panel"] = [
            read_snapshot(snapshots[i]).manifest["sha256"] if i in snapshots else "live"
            for i in range(config.advisor.advisors)
        ]
    for name in ("tensorboard", "tracker", "tracker_online"):
        del values["train"][name]
    return digest_of(values)


def journal_header(
    config: RunConfig, book: QuestionBook, identity: Mapping[str, str], run: str = ""
) -> dict[str, Any]:
    """Return the header of a journal.

    It holds run id, configuration digest, schema, prompt version, identity and library versions.

    Args:
        run: the run's id; a new random one by default.
    """
    return {
        "run": run or secrets.token_hex(8),
        "config": config_digest(config),
        "schema": SCHEMA_HASH,
        "prompt_version": book.template.version,
        "identity": dict(identity),
        "versions": {
            "jaxtrade": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")},
        },
    }


def table_of(bars: np.ndarray, rows: np.ndarray, size: int) -> AdviceTable:
    """Build the device table of a snapshot over T = `size` bars. Every row has version 1."""
    version = np.array(1 if len(bars) else 0, np.int32)
    return write_delta(empty_table(size), Delta(bars, rows, version))


def session_places(book: QuestionBook, sessions: SessionTable) -> list[list[tuple[int, int]]]:
    """List the askable bars of each session, in time order.

    Each is (bar, seconds since the session's first decision bar).

    Places are times and not counts of bars, so a bar that is missing does not move the later ones.
    A session without an askable bar gives an empty list.
    """
    found = []
    for first, last in zip(np.asarray(sessions.first), np.asarray(sessions.last), strict=True):
        bars = first + np.flatnonzero(book.askable[first : last + 1])
        found.append([(int(bar), int(book.closes[bar] - book.closes[first])) for bar in bars])
    return found


# Asks about many bars outside training, and says before what that costs at most.
#
# Backends that answer at once run in this thread; the others use the service.

_POLL_S = 0.05
# How long to wait while the breaker stays open. Longer than the breaker's default longest pause and
# than a model takes to load.
_PATIENCE_S = 900.0
_MOST_WAITING = 512  # questions in the service's queue
_AT_ONCE_S = 30.0  # deadline for backends that answer at once
_REPORT_EVERY = 512  # bars between two progress reports
_UNSETTLED = (
    "queued",
    "in_flight",
    "dropped",
    "expired",
)  # counts of questions without a final result


class AskProgress(NamedTuple):
    """Progress.

    settled: bars answered or failed, out of `total`.
    advised: bars with advice.
    statistics: the service's, or empty without a service.
    """

    total: int
    settled: int
    advised: int
    statistics: Mapping[str, Any]


Progress = Callable[[AskProgress], None]


def _make_silent_progress(asked: AskProgress) -> None:
    """Show nothing, as a `Progress`."""


def ask_all(
    backend: Backend,
    book: QuestionBook,
    bars: Iterable[int],
    log: Log = discard_line,
) -> tuple[np.ndarray, np.ndarray]:
    """Ask about bars one by one in this thread.

    This is for backends that answer at once (mocks, rules, recorded answers).

    Returns:
        bars int32[n] ascending and rows float32[n, 6] by `table.COLUMNS`, for the bars with advice.
        Bars whose answer is a failure are left out. `log` receives one line that counts the
        failures by kind.
    """
    advice, failures = ask_each(backend, book, bars)
    if failures:
        log(
            f"advisor {backend.name}: no advice about {sum(failures.values())} bars "
            f"({', '.join(f'{count} {kind}' for kind, count in sorted(failures.items()))})"
        )
    return arrays_of(advice)


def ask_each(
    backend: Backend,
    book: QuestionBook,
    bars: Iterable[int],
    progress: Progress = _make_silent_progress,
) -> tuple[dict[int, Advice], Counter[str]]:
    """Ask like `ask_all`, but return the advice by bar and the number of failures by kind."""
    advice, failures, wanted = dict[int, Advice](), Counter[str](), [int(bar) for bar in bars]
    for done, bar in enumerate(wanted, 1):
        answer = check_answer(backend.answer(book.question(bar), time.monotonic() + _AT_ONCE_S))
        if answer.advice:
            advice[bar] = answer.advice
            book.note_answer(bar, answer.advice)
        elif answer.failure:
            failures[answer.failure.value] += 1
        if done % _REPORT_EVERY == 0 or done == len(wanted):
            progress(AskProgress(len(wanted), done, len(advice), {}))
    return advice, failures


def ask_service(
    service: AdviceService,
    book: QuestionBook,
    bars: Iterable[int],
    wait_s: float = math.inf,
    progress: Progress = _make_silent_progress,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Ask about bars through a service and wait for the results.

    Nothing else may submit to this service.

    It ends when one of these is true:
    - every question is answered, has failed or has expired;
    - `wait_s` seconds have passed;
    - the circuit breaker, or the pause after unusable answers, has stayed open for 15 minutes;
    - the cache has been searched and no requests are sent any more.

    The reason for the last may be a cap, an endpoint that refuses, or an endpoint that never gave a
    usable answer. An endpoint that timed out may still be loading its model, so it
    counts as present.

    Questions are submitted as the queue has room, so that none waits long enough to expire.
    KeyboardInterrupt passes through; the answers so far are then in the cache only.

    Returns:
        bars and rows as `ask_all`, and the service's statistics.
    """
    wanted = [int(bar) for bar in bars]
    asked, left, advice = set(wanted), deque(wanted), dict[int, Advice]()
    room = min(service.options.queue_size, _MOST_WAITING)
    began = moved = time.monotonic()
    while True:
        # The counts come first: all answers that they count are there to be taken.
        known, now = service.statistics(), time.monotonic()
        answered = service.take(service.options.ready_rows)
        advice |= {bar: found for bar, found in answered if bar in asked}
        for bar, found in answered:
            book.note_answer(bar, found)
        # Where requests pause, there are none apart from probes.
        pauses = known["breaker"] != "closed" or known["unusable_state"] != "closed"
        moved = now if answered or not pauses else moved
        settled = len(wanted) - len(left) - sum(known[place] for place in _UNSETTLED)
        progress(AskProgress(len(wanted), max(0, settled), len(advice), known))
        # When no requests are sent any more, the queue does not empty. Questions that the cache has
        # already seen then make room for the rest.
        asks, quiet = _asks(known), now - moved > _PATIENCE_S
        waiting = known["queued"] if asks else known["unseen"]
        over = not known["in_flight"] and (quiet or not (left or waiting))
        if over or now - began >= wait_s:
            break
        if left and waiting <= room // 2:
            batch = [left.popleft() for _ in range(min(len(left), room - waiting))]
            priority = 0.0 if asks else float(len(wanted) - len(left))
            service.submit((book.question(bar), priority) for bar in batch)
        else:
            time.sleep(_POLL_S)
    return *arrays_of(advice), dict(known)


def _asks(statistics: Mapping[str, Any]) -> bool:
    """Return whether the service still sends requests.

    The endpoint must give, or may give, usable answers.
    """
    absent = (
        statistics["breaker"] != "closed" and Failure.TIMEOUT.value not in statistics["failures"]
    )
    useless = statistics["unusable_state"] != "closed"
    away = (absent or useless) and not statistics["done"]
    return str(statistics["mode"]).startswith("asking") and not away


def arrays_of(advice: Mapping[int, Advice]) -> tuple[np.ndarray, np.ndarray]:
    """Convert advice by bar to (bars int32[n] ascending, rows float32[n, 6])."""
    bars = np.array(sorted(advice), np.int32)
    rows = np.array([tuple(advice[int(bar)]) for bar in bars], np.float32).reshape(-1, WIDTH)
    return bars, rows


class AskPlan(NamedTuple):
    """What the command will ask.

    bars: number of bars to ask about.
    hits: those whose answer is in the cache.
    hopeless: those that the cache knows to fail.
    most: the largest cost of the others, if each is asked once.
    """

    bars: int
    hits: int
    hopeless: int
    most: Spend


def make_plan(
    backend: Backend, book: QuestionBook, bars: np.ndarray, options: ServiceOptions, log: Log
) -> AskPlan:
    """Compute the largest cost of asking about the bars, given the cache.

    Creates no cache file.

    Args:
        bars: int[n].
        log: receives one line about a cache that cannot be read.
    """
    made = options.cache and Path(options.cache).exists()
    identity, calls = backend.identity(), calls_of(backend)
    hits = hopeless = 0
    most = [0, 0, 0]
    with closing(AdviceCache(options.cache if made else None, log)) as cache:
        cache.open()
        for bar in bars:
            question = book.preview(bar)
            known = cache.get(cache.key(identity, question))
            if known and known.advice:
                hits += 1
            elif known and known.attempts >= options.poison_after:
                hopeless += 1
            else:
                spend = at_most(question.prompt, options)
                most = [total + calls * more for total, more in zip(most, spend, strict=True)]
    return AskPlan(len(bars), hits, hopeless, Spend(*most))


def cost_text(most: Spend, options: ServiceOptions) -> str:
    """Format the cost of a plan in words."""
    return (
        f"cost at most {most.cost / MICRO:.2f}"
        if options.has_price
        else "cost unknown (no prices set)"
    )
