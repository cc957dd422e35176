"""The advisor of a run, composed from its configuration: what followed, who is asked, through which service, and what a
journal says of it. Questions, snapshots and asking itself are `jaxtrade.advisor`'s and are handed on from here."""

from __future__ import annotations

import hashlib
import json
import platform
import secrets
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxtrade import __version__
from jaxtrade.advisor.asking import Asked, ask_all, ask_each, ask_service
from jaxtrade.advisor.host.recorded import RecordedBackend
from jaxtrade.advisor.host.registry import MOCKS, make_backend, takes
from jaxtrade.advisor.host.schema import SCHEMA_HASH
from jaxtrade.advisor.host.service import AdviceService
from jaxtrade.advisor.host.types import Backend
from jaxtrade.advisor.outcomes import what_followed
from jaxtrade.advisor.questions import QuestionBook, in_sessions, make_book
from jaxtrade.advisor.snapshot import Snapshot, load_table, market_entries, read_snapshot, save_table
from jaxtrade.advisor.table import AdviceTable, empty_table
from jaxtrade.config import AdvisorConfig, RunConfig
from jaxtrade.config.service import ServiceOptions
from jaxtrade.data.conversion import ACCOUNT
from jaxtrade.data.market import Market
from jaxtrade.errors import ConfigError
from jaxtrade.types import SessionSet

__all__ = [
    "CACHE",
    "JOURNAL",
    "LEDGER",
    "Asked",
    "QuestionBook",
    "Snapshot",
    "ask_all",
    "ask_each",
    "ask_service",
    "backend_of",
    "config_digest",
    "followed_of",
    "identity_of",
    "in_sessions",
    "is_slow",
    "is_told",
    "journal_header",
    "load_table",
    "make_book",
    "market_entries",
    "only",
    "read_snapshot",
    "round_turn",
    "save_table",
    "service_of",
    "service_options",
    "table_of",
    "was_told",
]

CACHE, LEDGER, JOURNAL = "advice_cache.sqlite", "advice_ledger.sqlite", "advice.jsonl"  # in a run's folder
_NOBODY = ("none", "off")
_WRITTEN = ("table", "replay")  # advice that was asked for before
_SERVED = ("http", "https")  # answers take time and are worth keeping
_Tell = Callable[[str], None]


# --- what followed ---------------------------------------------------------------------------------------------------


def round_turn(market: Market, config: RunConfig) -> int:
    """Ticks that getting in and out costs one contract: commissions, rounded up, and slippage, twice each.

    Where profits are converted, a tick is worth what it is in the first bar: nothing later is known everywhere.
    """
    contract = market.contract.under(config)
    times, over = contract.tick_mills, 1
    if contract.currency != ACCOUNT and market.data.tick_value is not None:
        times, over = (int(np.asarray(part)[0]) for part in (market.data.tick_value.times, market.data.tick_value.over))
    return -(-2 * contract.commission_mills * over // times) + 2 * contract.slippage_ticks


def followed_of(market: Market, config: RunConfig) -> np.ndarray:
    """int8[T]: what came of each decision bar within `advisor.horizon`: +1 where a buy at the next open had earned more
    than a round turn's cost, -1 where a sale had, else 0. Buys pay the ask and sales get the bid where there are both.

    It reads each bar's future, in every session: pass it through `only` before anything learns from it.
    """
    sessions, (bid, ask) = market.data.sessions, market.bars.sides
    first, last, cost = np.asarray(sessions.first), np.asarray(sessions.last), round_turn(market, config)
    rose = what_followed(ask.open, bid.close, first, last, config.advisor.horizon, cost) > 0
    fell = what_followed(bid.open, ask.close, first, last, config.advisor.horizon, cost) < 0
    return rose.astype(np.int8) - fell.astype(np.int8)


def only(followed: np.ndarray, market: Market, sessions: SessionSet) -> np.ndarray:
    """int8[T]: `followed` in the decision bars of some sessions, 0 elsewhere."""
    return np.where(in_sessions(market, sessions), followed, 0).astype(followed.dtype)


# --- who is asked ----------------------------------------------------------------------------------------------------


def is_told(kind: str) -> bool:
    """Whether answers of this kind are made from the future."""
    return any("future" in MOCKS[name].takes for part in _chain(kind) if (name := part.partition(":")[0]) in MOCKS)


def was_told(manifest: Mapping[str, Any]) -> bool:
    """Whether a snapshot's or a journal's answers were made from the future, by what it says of its advisor."""
    return is_told(str(manifest.get("advisor", ""))) or any(
        name.rpartition(".")[2] == "future" for name in manifest.get("identity", {}))


def is_slow(kind: str) -> bool:
    """Whether answers of this kind take time, so that they are asked for through a service."""
    return _innermost(kind) in _SERVED or any(part.startswith("slow") for part in _chain(kind)[:-1])


def backend_of(config: RunConfig, market: Market, book: QuestionBook, followed: np.ndarray,
               tell: _Tell | None = None) -> Backend:
    """Who `advisor.kind` names, with `advisor.options` over what the run itself knows.

    Args:
        followed: what the mocks of known skill are told, int8[T]. tell: gets a line where only some of the askable
            bars are recorded.
    Raises ConfigError: a kind that asks nobody, an unknown kind or option, or one that lacks something.
    """
    kind = config.advisor.kind
    if (head := kind.partition(":")[0]) in (*_NOBODY, *_WRITTEN):
        raise ConfigError(f"advisor.kind = {kind}: asks nobody; choose rules, mock:KIND, recorded:FILE or the "
                          f"URL of a server{'' if head in _NOBODY else ' to ask'}")
    if _innermost(kind) == "rules" and not market.has_volume:
        raise ConfigError(f"advisor.kind = {kind}: the rules look at the distance from VWAP, and the bars of "
                          f"{market.contract.symbol} have no volume; choose a mock, or a model with "
                          "advisor.template=no_volume")
    backend = _made(kind, dict(config.advisor.options), config, book, followed)
    if isinstance(backend, RecordedBackend) and tell is not None:
        askable = np.flatnonzero(book.askable)
        tell(f"advisor {kind}: {np.isin(askable, backend.bars).sum()} of {len(askable)} askable bars are recorded")
    return backend


def _made(kind: str, options: dict[str, Any], config: RunConfig, book: QuestionBook, followed: np.ndarray) -> Backend:
    """A backend and those it is made of. Options that are not a wrapper's own go to the other one, `seed` to both."""
    own, other = _split(kind)
    names = takes(own)
    known = {name: value for name, value in _defaults(own, kind, config, book, followed).items() if name in names}
    if "inner" in options:
        raise ConfigError(f"advisor.options.inner = {options['inner']}: write it into advisor.kind, as "
                          f"{own}/{options['inner']}")
    if "then" in options and "then" in names:
        options["then"] = _turned(str(options["then"]), config, book, followed)
    if not other:
        return make_backend(own, {**known, **_agreed(options, own, config)})
    mine = {name: value for name, value in options.items() if name in names}
    rest = {name: value for name, value in options.items() if name not in names or name == "seed"}
    return make_backend(own, {**known, **mine, "inner": _made(other, rest, config, book, followed)})


def _turned(kind: str, config: RunConfig, book: QuestionBook, followed: np.ndarray) -> Backend:
    """Who advises after a turn, which is no server: whether a kind takes time is known by its name alone."""
    if is_slow(kind):
        raise ConfigError(f"advisor.options.then = {kind}: takes time; expected a mock or rules, as mock:skilled:0.4")
    return _made(kind, {}, config, book, followed)


def _defaults(own: str, kind: str, config: RunConfig, book: QuestionBook, followed: np.ndarray) -> dict[str, Any]:
    """What a run tells a backend, by option; a URL's own `seed` is its sampling's and stays the user's."""
    told: dict[str, Any] = {"future": followed.tolist(), "horizon": config.advisor.horizon}
    if own.startswith("mock:"):
        told["seed"] = config.seed
        if own.startswith("mock:permuted"):
            told["bars"] = np.flatnonzero(book.askable).tolist()
        if not _innermost(kind).startswith("mock"):  # mocks look at the bar's number alone
            told["question_of"] = book.question_or_none
    if _innermost(own) in _SERVED:
        told |= {"max_tokens": config.advisor.service.completion_tokens, "answer": book.template.answer}
    return told | {"answer_format": book.template.answer}


def _agreed(options: dict[str, Any], own: str, config: RunConfig) -> dict[str, Any]:
    """The options, if what is booked for an answer is the most it can have."""
    most = config.advisor.service.completion_tokens
    if "max_tokens" in takes(own) and options.get("max_tokens", most) != most:
        raise ConfigError(f"advisor.options.max_tokens = {options['max_tokens']}: the caps count on "
                          f"advisor.service.completion_tokens = {most}; set that one, it is used for both")
    return options


def _split(kind: str) -> tuple[str, str]:
    """`mock:KIND/OTHER` as (mock:KIND, OTHER); anything else as (kind, "")."""
    own, _, other = kind.partition("/") if kind.startswith("mock:") else (kind, "", "")
    return own, other


def _chain(kind: str) -> list[str]:
    """Names of what a kind is made of, outermost first: mocks by their own, others by what stands before the colon."""
    own, other = _split(kind)
    name = own.removeprefix("mock:")
    return [name, *_chain(other)] if other else [name if own.startswith("mock:") else own.partition(":")[0]]


def _innermost(kind: str) -> str:
    own, other = _split(kind)
    return _innermost(other) if other else own.partition(":")[0]


def identity_of(config: RunConfig, backend: Backend | None) -> dict[str, str]:
    """Who is asked, for journals and snapshots; holds no secret."""
    return {"kind": config.advisor.kind} if backend is None else dict(backend.identity())


# --- through which service -------------------------------------------------------------------------------------------


def service_options(config: AdvisorConfig, cache: Path | None = None, ledger: Path | None = None) -> ServiceOptions:
    """`advisor.service` with files where it names none: the cache for kinds whose answers are worth keeping, the ledger
    where something is capped."""
    options, given = config.service, {}
    if options.cache is None and cache is not None and _innermost(config.kind) in _SERVED:
        given["cache"] = str(cache)
    capped = any(cap is not None for cap in (options.max_calls, options.max_tokens, options.max_cost))
    if options.ledger is None and ledger is not None and capped:
        given["ledger"] = str(ledger)
    return options.model_copy(update=given)


def service_of(config: RunConfig, backend: Backend, run_path: Path | None = None,
               tell: _Tell | None = None) -> AdviceService:
    """The service of a run, its files in the run's folder; without a folder they are kept in memory. Raises
    StorageError where the ledger cannot be read."""
    files = (None, None) if run_path is None else (run_path / CACHE, run_path / LEDGER)
    return AdviceService(backend, service_options(config.advisor, *files), tell=tell)


# --- what is written -------------------------------------------------------------------------------------------------


def config_digest(config: RunConfig) -> str:
    """sha256 (hex) of a configuration without what a recording and its replay may differ in: who is asked and how, and
    what is written beside the run. The transport is part of it."""
    values = config.model_dump(mode="json")
    for name in ("kind", "options", "service"):
        del values["advisor"][name]
    del values["train"]["tensorboard"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def journal_header(config: RunConfig, book: QuestionBook, backend: Backend | None,
                   run: str | None = None) -> dict[str, Any]:
    """The header of a journal, `journal.HEADER`'s entries and the market's. run: its id, by default a new one."""
    return {"run": run or secrets.token_hex(8), "config": config_digest(config), "schema": SCHEMA_HASH,
            "prompt_version": book.template.version, "identity": identity_of(config, backend),
            "versions": {"jaxtrade": __version__, "python": platform.python_version(),
                         **{name: metadata.version(name) for name in ("jax", "jaxlib", "numpy")}}}


def table_of(bars: np.ndarray, rows: np.ndarray, size: int) -> AdviceTable:
    """The device table of a snapshot over T = `size` bars: every row is of version 1."""
    table = empty_table(size)
    version = jnp.int32(1 if len(bars) else 0)
    return AdviceTable(table.rows.at[bars].set(rows), table.version.at[bars].set(version), version)
