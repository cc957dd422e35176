"""The market of one symbol: host bars become arrays, sessions, a float view, a fingerprint."""

from __future__ import annotations

import ctypes
import hashlib
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import INT32, PRICES, Bars, splice_dates
from jaxtrade.data.calendar.schedule import Schedule
from jaxtrade.data.calendar.sessions import (
    bars_to_flat,
    feature_windows,
    session_rows,
    window_ages,
)
from jaxtrade.data.contracts import CONTRACTS, Contract
from jaxtrade.data.device import (
    float_table,
    host_view,
    price_base,
    to_device,
    words_of,
)
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import (
    NO_VOLUME,
    TRUE_RANGES,
    VOLUME_BARS,
    absent_features,
    context_features,
    longest_warm_up,
    table_columns,
)
from jaxtrade.data.findings import check_bars
from jaxtrade.data.intrabar import market_path, side_passages
from jaxtrade.data.members import member_configs, set_name
from jaxtrade.data.sources import bars_of, describe_conversion, load_rates, seconds_of, tick_values
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.text import several, short_repr
from jaxtrade.types import IntrabarPath, MarketData, Quotes, SessionTable, TickValue


class Markets:
    """The market of a run.

    It is one symbol, a set of them (`markets.MarketSet`), or several held jointly
    (`markets.Portfolio`). Callers need not know which one they have.

    members: the market of each symbol.
    data: the device pytree, whose `sessions` has N rows.
    trade_dates: datetime64[D][N].
    fingerprint: sha256 (hex).
    notes: what was assumed or found while reading.
    extent: sessions and bars in words.
    facts: what a policy's bundle says.
    """

    members: tuple[Market, ...]
    data: Any
    trade_dates: np.ndarray
    fingerprint: str
    notes: tuple[str, ...]
    extent: str
    facts: dict[str, Any]

    def __repr__(self) -> str:
        dates = (
            [f"{self.trade_dates.min()} .. {self.trade_dates.max()}"] if self.num_sessions else []
        )
        return short_repr(
            type(self).__name__,
            self.name,
            self.extent,
            *dates,
            "synthetic" if self.synthetic else "real",
            several(len(self.notes), "note"),
            f"sha256 {self.fingerprint[:12]}",
        )

    @property
    def parts(self) -> tuple[Any, ...]:
        """What is traded, scored and evaluated apart; each part is `Markets` of one part."""
        return (self,)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols in their order."""
        return tuple(member.contract.symbol for member in self.members)

    @property
    def name(self) -> str:
        """A short name for folders and titles (`members.set_name`)."""
        return set_name(self.symbols)

    @property
    def num_bars(self) -> int:
        """T, the number of bars."""
        return sum(len(member.bars) for member in self.members)

    @property
    def num_sessions(self) -> int:
        """N, the number of rows in the session table."""
        return len(self.trade_dates)

    @property
    def session_parts(self) -> np.ndarray:
        """int64[N]: the part of each row of the session table, as its place in `parts`."""
        sessions = [part.num_sessions for part in self.parts]
        return np.repeat(np.arange(len(sessions)), sessions)

    @property
    def synthetic(self) -> bool:
        """Whether any bars are generated."""
        return any(member.bars.synthetic for member in self.members)

    @property
    def has_volume(self) -> bool:
        """Whether any bar has volume."""
        return any(bool(member.bars.volume.any()) for member in self.members)


@dataclass(frozen=True, repr=False)
class Market(Markets):
    """One market on the device, with the host arrays it was made from. T bars, N sessions.

    data: the device pytree.
    contract: the market's fixed numbers.
    bars: the host bars; row i is row i of `data`.
    trade_dates: `datetime64[D][N]`, one per session.
    table: float32[T, C], the features and clocks that `data.view` was made from, with its close
        relative to `data.view.base`.
    columns: names of its C columns.
    fingerprint: sha256 (hex) of the table, the other device arrays and the contract's numbers.
    notes: what was assumed or found while reading.
    """

    data: MarketData
    contract: Contract
    bars: Bars
    trade_dates: np.ndarray
    table: np.ndarray
    columns: tuple[str, ...]
    fingerprint: str
    notes: tuple[str, ...]

    @property
    def members(self) -> tuple[Market, ...]:
        """The market itself, as the only member of a set."""
        return (self,)

    @property
    def extent(self) -> str:
        """Sessions and bars in words."""
        return f"{several(self.num_sessions, 'session')}, {several(self.num_bars, 'bar')}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a policy's bundle says of it."""
        return {
            "market": {
                "symbol": self.name,
                "tick_size": str(self.contract.tick_size),
                "bar_seconds": self.bars.bar_seconds,
                "synthetic": self.synthetic,
            }
        }


def load_market(config: RunConfig) -> Market:
    """Load the market of a run onto the device.

    Raises ConfigError (also for a set of symbols, see `data.markets`) or DataError.
    """
    configs = member_configs(config)
    if len(configs) != 1:
        raise ConfigError(
            f"data.markets names {len(configs)} symbols ({', '.join(config.data.markets)}), and only one "
            "is read here; name one of them (data.markets=[], data.market=SYMBOL; in Python, "
            "load_markets reads them all)"
        )
    return load_member(configs[0])


def load_member(config: RunConfig, on_device: bool = True) -> Market:
    """Load the market of one symbol, of a configuration of `members.member_configs`."""
    require_seconds(config, config.data.seconds is not None)
    bars = bars_of(config)
    seconds, rates = seconds_of(config, bars), load_rates(config.data, bars.contract)
    return build_market(bars, config, seconds, rates, on_device=on_device)


def require_seconds(config: RunConfig, known: bool) -> None:
    """Raise ConfigError if the intrabar order is `path` but there are no second bars.

    known: whether there are.
    """
    if config.env.intrabar == "path" and not known:
        raise ConfigError(
            "env.intrabar = path needs second bars, and none are given; set data.seconds "
            "(--seconds FILE), or set env.intrabar to stop_first or nearer_extreme"
        )


def build_market(
    bars: Bars,
    config: RunConfig,
    seconds: Bars | None = None,
    rates: Bars | None = None,
    path: IntrabarPath | None = None,
    on_device: bool = True,
) -> Market:
    """Compute features, session table and device arrays from validated bars.

    Args:
        seconds: finer bars of the same instrument and sides. They become the market's
            intrabar paths.
        rates: bars of the exchange rate to the dollar. Needed if profits arise in another currency,
            unless the market's own price is that rate.
        path: intrabar paths of the bars, with NumPy leaves, where they are known without
            seconds (`data.nulls`).
        on_device: if False, the leaves of `data` stay NumPy arrays, and the view has no tables
            of windows.

    Raises:
        DataError: too few bars for one decision, dates outside the calendar, stamps that look
            shifted against it, seconds that do not rebuild the bars, rates that do not cover them,
            or a likely share split that is not stated (`data.splits`, `data.allow_jumps`).
        ConfigError: an unknown feature, numbers that could overflow int32, `env.intrabar=path`
            without seconds, or missing rates, or rates that are not needed.
    """
    require_seconds(config, seconds is not None or path is not None)
    release_memory(bars)  # what reading the files left
    passages = (
        () if seconds is None else side_passages(bars, seconds, config.data.seconds_tolerance)
    )
    path = market_path(passages) if passages else path
    contract, value = bars.contract, tick_values(bars, rates)
    names, context = config.env.features, context_features(config.env.task)
    columns = table_columns(names, context)  # raises for an unknown feature, before any is computed
    schedule, warnings, differences = check_bars(bars, config)
    ids = feature_windows(bars, schedule, config)
    host = feature_input(bars)
    tr_sum = np.concatenate(
        [
            features.true_range_sum(features.take(host, rows)).astype(np.int32)
            for rows in features.window_slices(ids)
        ]
    )
    _check_ranges(tr_sum, config, contract.under(config))
    rows = decision_sessions(bars, schedule, config)
    if not len(rows.date):
        raise DataError(_too_few(bars, schedule, config))
    release_memory(bars)
    base = base_of(bars)
    table = float_table(host, bars, ids, tr_sum, schedule, config, base)
    del host
    rule = describe_conversion(contract)
    no_volume = not bars.volume.any() and absent_features((*names, *context))
    sessions = np.asarray(rows.date).astype("datetime64[D]")
    notes = (
        *warnings,
        *bars.notes,
        *([rule] if rule else []),
        *(note for found in passages for note in found.notes),
        *schedule.notes,
        *differences,
        *_session_notes(sessions[~rows.complete], ids, bars, config),
        *([NO_VOLUME] if no_volume else []),
    )
    release_memory(bars)
    data = host_data(bars, config, schedule, rows, table, tr_sum, value, base).replace(path=path)
    digest = fingerprint(_arrays(data, table), contract)
    data = data.replace(fingerprint=words_of(digest))
    return Market(
        data=to_device(data, config) if on_device else data,
        contract=contract,
        bars=replace(bars, places=None),
        trade_dates=sessions,
        table=table,
        columns=columns,
        fingerprint=digest,
        notes=notes,
    )


def base_of(bars: Bars) -> int:
    """Return the base of the prices of all sides (`price_base`). Raises DataError without one."""
    bid, ask = bars.sides
    return price_base(int(bid.low.min()), int(ask.high.max()), bars.source)


def host_data(
    bars: Bars,
    config: RunConfig,
    schedule: Schedule,
    sessions: SessionTable,
    table: np.ndarray,
    tr_sum: np.ndarray,
    value: TickValue | None,
    base: int,
) -> MarketData:
    """Return the arrays of a market as a pytree with NumPy leaves; its fingerprint is 0.

    The arguments belong to the bars: their calendar and sessions, `Market.table`, `MarketData.tr_sum`,
    `tick_values`, and what the close in the table is relative to.
    """
    env, tick = config.env, float(bars.contract.tick_size)
    return MarketData(
        **{name: getattr(bars, name) for name in PRICES},
        tr_sum=tr_sum,  # type: ignore[arg-type]  # host leaves
        bars_to_flat=bars_to_flat(bars, schedule),  # type: ignore[arg-type]
        sessions=sessions,
        view=host_view(table, env.features, env.scaling, tick, context_features(env.task), base),
        fingerprint=np.zeros(8, np.uint32),  # type: ignore[arg-type]
        ask=None if bars.ask is None else Quotes(**bars.ask._asdict()),
        tick_value=value,
    )


def _arrays(data: MarketData, table: np.ndarray) -> dict[str, Any]:
    """Return the arrays of the fingerprint by name, in its order.

    data: with NumPy leaves.
    """
    sessions = data.sessions
    arrays = {
        **{name: getattr(data, name) for name in (*PRICES, "tr_sum", "bars_to_flat")},
        **{name: getattr(sessions, name) for name in ("start", "end", "first", "last")},
        # No code reads this column, but its bytes are part of the fingerprints that earlier runs
        # recorded.
        "symbol": np.zeros(len(sessions.date), np.int32),
        "date": sessions.date,
        "complete": sessions.complete,
        "table": table,
    }
    for part in ("ask", "path", "tick_value"):
        if (leaves := getattr(data, part)) is not None:
            arrays |= {f"{part}.{name}": array for name, array in vars(leaves).items()}
    return arrays


def feature_input(bars: Bars) -> features.Window:
    """Return the bars as features read them.

    Mid prices are in int64 ticks, trade dates in days, and minutes are those of the exchange day.
    """
    dates, bars = bars.trade_dates, bars.mid
    return features.Window(
        **{name: getattr(bars, name).astype(np.int64) for name in PRICES},
        volume=bars.volume,
        date=dates.astype(np.int64),
        minute=bars.minutes,
        tick_size=float(bars.contract.tick_size),
    )


def fingerprint(arrays: dict[str, np.ndarray], contract: Contract) -> str:
    """Compute the sha256 (hex) of the arrays and of the contract's numbers.

    The name, dtype, shape and bytes of each array enter.
    """
    digest = hashlib.sha256()
    for name, value in arrays.items():
        value = np.ascontiguousarray(value)
        digest.update(f"{name}:{value.dtype.str}:{value.shape};".encode())
        digest.update(value.reshape(-1).view(np.uint8).data)
    # Costs of a known contract are configuration, not data, so they stay out of the fingerprint. A
    # user's contract file may change after a run, so all of its figures are included.
    figures = (contract.symbol, contract.tick_size, contract.tick_mills, contract.currency)
    if CONTRACTS.get(contract.symbol) != contract:
        figures += (
            contract.kind,
            contract.calendar,
            contract.commission_mills,
            contract.slippage_ticks,
            contract.min_stop_ticks,
            contract.micro,
        )
    digest.update("|".join(map(str, figures)).encode())
    return digest.hexdigest()


def _check_ranges(tr_sum: np.ndarray, config: RunConfig, contract: Contract) -> None:
    """Check that the products of ranges and multiples cannot overflow.

    The device computes them in int32.
    tr_sum: int64[T], sum of the last 14 true ranges in ticks.
    Raises ConfigError naming the key that is too large.
    """
    worst, brackets = int(tr_sum.max(initial=0)), config.brackets
    for key, multiple in (
        ("stop_atr", brackets.stop_thousandths),
        ("trail_atr", brackets.trail_thousandths),
    ):
        if multiple * worst + 14_000 >= INT32:
            raise ConfigError(
                f"brackets.{key} = {multiple / 1000:g} ATRs: times the largest 14-bar range ({worst} "
                "ticks) passes int32; lower it, give shorter bars, or use a coarser tick_size in the "
                "contract file"
            )
    stop = max(contract.min_stop_ticks, -(-brackets.stop_thousandths * worst // 14_000))
    if brackets.target_multiple * stop >= 1 << 24:
        raise ConfigError(
            f"brackets.target_multiple = {brackets.target_multiple}: the largest target would be "
            f"{brackets.target_multiple * stop} ticks (limit {1 << 24}); lower it or brackets.stop_atr"
        )


def history_needed(config: RunConfig) -> int:
    """Count the bars that a feature window must contain up to its first decision bar, included.

    The observation's window ends before the decision bar, and its first bar needs the features'
    warm-up before it. A task's context features are read at the decision bar itself.
    """
    return max(
        config.env.window + longest_warm_up(config.env.features),
        longest_warm_up(context_features(config.env.task)),
        TRUE_RANGES + 1,
        VOLUME_BARS,
    )


def decision_sessions(bars: Bars, schedule: Schedule, config: RunConfig) -> SessionTable:
    """Return the sessions that have decision bars; none if there are too few bars."""
    ready = window_ages(feature_windows(bars, schedule, config)) + 1 >= history_needed(config)
    return session_rows(bars, schedule, ready, config.session.overnight)


def _too_few(bars: Bars, schedule: Schedule, config: RunConfig) -> str:
    sessions = int((schedule.find(bars.trade_dates[bars.date_starts]) >= 0).sum())
    where = (
        "inside each session (data.window_reset=session)"
        if config.data.window_reset == "session"
        else ("before a session's decision window")
    )
    slowest, shorten = (
        "env.window plus the longest feature warm-up",
        "shorten env.window or env.features",
    )
    if longest_warm_up(context_features(config.env.task)) == history_needed(config):
        slowest = f"the warm-up of the context that env.task={config.env.task} shows"
        shorten = "choose another env.task"
    return (
        f"{bars.source}: too few bars for one decision: {history_needed(config)} bars of history are needed "
        f"{where} ({slowest}) and at least 2 bars inside it; the data have {len(bars)} bars over {sessions} "
        f"scheduled sessions. Fix: give more bars, or {shorten}"
    )


def _session_notes(
    cut: np.ndarray, ids: np.ndarray, bars: Bars, config: RunConfig
) -> tuple[str, ...]:
    """Return notes on incomplete sessions and restarts of feature windows.

    cut: trade dates of the sessions that are not complete.
    """
    notes = [f"{day}: the data end before the flat bar; the session is cut short" for day in cut]
    if config.data.window_reset == "session":
        return (*notes, "feature windows restart with every trade date (data.window_reset=session)")
    dates, starts = bars.trade_dates, np.flatnonzero(np.diff(ids)) + 1
    # A feature window also restarts at a roll. `roll_notes` reports those, so they are not repeated
    # here.
    spliced = np.diff(np.searchsorted(splice_dates(bars.legs), dates, side="right")) > 0
    starts = starts[~spliced[starts - 1]]
    if len(starts):
        notes.append(
            f"feature windows restart on {', '.join(str(d) for d in dates[starts][:10])}"
            f"{' ...' if len(starts) > 10 else ''} (more than one session missing before)"
        )
    return tuple(notes)


LARGE = 100_000  # bars whose arrays are worth giving back


def release_memory(bars: Bars) -> None:
    """Give back freed memory that the C library and pyarrow keep for later.

    Does nothing where they offer no way, or for few bars. While a large market is read and built,
    arrays of tens of megabytes come and go. Linux' C library keeps such memory by default, which
    would add a quarter to the largest size of the process. Where a process has compiled much, it
    looks through its heap for a tenth of a second each time.
    """
    if len(bars) < LARGE:
        return
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
