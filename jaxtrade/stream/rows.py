"""The rows of a market that grows by one bar at a time, each as the market of all bars has it.

A new row is computed by the functions that compute a whole market, over as many bars as each
feature needs (`reach`). So it has the same bytes as that row of a market built from all bars.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import PRICES, Bars
from jaxtrade.data.calendar.schedule import Schedule, file_schedule, table_schedule
from jaxtrade.data.calendar.sessions import (
    bars_to_flat,
    feature_windows,
    schedule_of,
    window_ages,
    window_openings,
)
from jaxtrade.data.device import EXACT, fixed_columns, host_view, price_base, to_float32
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import (
    RANK_BARS,
    RANK_LEAST,
    TRUE_RANGES,
    VOLUME_BARS,
    context_features,
    feature_spec,
    shape_of,
)
from jaxtrade.data.market import Market, feature_input, history_needed
from jaxtrade.data.sources import needs_rates, tick_values
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso
from jaxtrade.types import MarketData, Quotes

# How each built-in feature is streamed. By its warm-up: the value depends on that many bars and no
# others. By its date: on the bars of its trade date. `vol_percentile` ranks among stored true
# ranges, and macd, ema_N, rsi_N and atr_N go on from their means (`columns.Recursion`). Any other
# feature, such as a user's own, is computed over its whole window so far.
_BY_WARM_UP = """
    open high low close volume rsi momentum atr volatility bb_width stoch_k stoch_d williams_r cci
    adx roc mfi vol_regime plus_di minus_di trend_strength spread efficiency_ratio session_morning
    session_midday session_afternoon session_closed rsi_15min rsi_60min volume_ratio_5min
    volume_ratio_20min support_20 resistance_20 price_change_60min sma_50_slope sma_200_slope
    adx_slope volume_regime price_vs_support price_momentum_20 price_momentum_60 session_trend
    higher_high lower_low higher_low lower_high double_top double_bottom return_1 return_5 return_15
    bollinger_position time_of_day breakout_signal breakdown_signal
    """
BY_WARM_UP = frozenset(_BY_WARM_UP.split())
BY_DATE = frozenset(("vwap", "price_to_vwap"))
RANKED = "vol_percentile"
WHOLE = 1 << 40  # more bars than any window has


def reach(name: str) -> int | None:
    """Return how many bars of its window a value of a feature depends on.

    None: those of its trade date. `WHOLE`: all bars of the window.
    """
    spec = feature_spec(name)
    if name in BY_DATE:
        return None
    if name == RANKED:
        return RANK_BARS
    if features.recursion_of(name):
        return 2  # and on its means
    return spec.warm_up if name in BY_WARM_UP or name == f"sma_{spec.period}" else WHOLE


class Mean:
    """An exponential mean that goes on where `columns.Recursion` ended."""

    def __init__(self, values: np.ndarray, n: int, alpha: float) -> None:
        self.n, self.alpha, self.count = n, alpha, len(values)
        self.total, self.value = int(values[:n].sum()), np.nan
        if self.count >= n:
            self.value = float(features.smooth_from_mean(values, n, alpha)[-1])

    def add(self, value: int) -> None:
        self.count += 1
        if self.count > self.n:
            self.value += self.alpha * (value - self.value)
            return
        self.total += value
        if self.count == self.n:
            self.value = self.total / self.n


class StreamRow(NamedTuple):
    """One bar as the market has it.

    bar: the bar itself, of length 1.
    table: float32[1, C], the row of `Market.table`.
    data: the row of `MarketData`, leaves [1, ...] of NumPy, without sessions and fingerprint.
    session: whether its trade date has a session.
    ready: whether a decision at its close has the history that it needs.
    decides: whether a decision is taken at its close, as the schedule has it.
    flat: whether it is the flat bar of its session, as the schedule has it.
    """

    bar: Bars
    table: np.ndarray
    data: MarketData
    session: bool
    ready: bool
    decides: bool
    flat: bool


class WindowTail:
    """The last bars of the feature window, in arrays that grow to twice what is needed."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns, self.size = columns, len(columns["date"])

    def append(self, row: dict[str, float], needed: int) -> None:
        """Add a bar. Bars before the last `needed` ones may be dropped."""
        if self.size == len(self.columns["date"]):
            kept = min(needed, self.size)
            room = max(2 * kept, 4096)
            for name, old in self.columns.items():
                self.columns[name] = np.empty(room, old.dtype)
                self.columns[name][:kept] = old[self.size - kept : self.size]
            self.size = kept
        for name, value in row.items():
            self.columns[name][self.size] = value
        self.size += 1

    def last(self, name: str, count: int) -> np.ndarray:
        """Return the last values of a column, at most `count`."""
        return self.columns[name][max(self.size - count, 0) : self.size]

    def window(self, count: int, tick_size: float) -> features.Window:
        """Return the last bars, at most `count`."""
        names = (*PRICES, "volume", "date", "minute")
        return features.Window(
            **{name: self.last(name, count) for name in names}, tick_size=tick_size
        )


class StreamRows:
    """The state of a market after its last bar.

    market: the history, with NumPy leaves (`build_market(..., on_device=False)`).
    kept: the last rows of `MarketData`, as many as `keep` says, the current one last.
    base: ticks that `kept.view` is relative to.
    """

    def __init__(self, market: Market, config: RunConfig, keep: int) -> None:
        bars, view = market.bars, market.data.view
        self.config, self.contract, self.bar = config, market.contract, bars.rows(slice(-1, None))
        self.needed = history_needed(config)
        self.names = (*config.env.features, *context_features(config.env.task))
        self.reach = {name: reach(name) for name in self.names}
        self.base = 0 if view.base is None else int(view.base)
        self._read = None
        if config.data.calendar == "infer":
            raise ConfigError(
                "data.calendar=infer reads a day's hours off all of its bars, and a stream has not seen "
                "them yet; set data.calendar=table, or give a calendar file"
            )
        if config.data.calendar != "table":
            self._read = file_schedule(config.data.calendar, market.contract)
        self.schedule = schedule_of(bars, config.data.calendar)
        ids = feature_windows(bars, self.schedule, config)
        self.age = int(window_ages(ids)[-1])
        own = features.take(feature_input(bars), slice(len(bars) - self.age - 1, None))
        self.on_date = int((own.date == own.date[-1]).sum())
        columns = {name: column for name, column in vars(own).items() if name != "tick_size"}
        columns["tr_sum"] = market.data.tr_sum[-self.age - 1 :]
        columns["total"] = np.cumsum(np.asarray(own.volume, np.float64))
        self.tail = WindowTail(columns)  # type: ignore[arg-type]  # NumPy leaves
        self.means = self._means(own)
        data = market.data.replace(
            sessions=None, fingerprint=None, path=None, view=view.replace(base=None)
        )
        rows = np.maximum(np.arange(len(bars) - keep, len(bars)), 0)
        self.kept: MarketData = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data)

    def _means(self, window: features.Window) -> dict[str, list[Mean]]:
        found = {}
        for name in self.names:
            if each := features.recursion_of(name):
                pairs = zip(each.inputs(window), each.alphas, strict=True)
                found[name] = [Mean(values, each.n, alpha) for values, alpha in pairs]
        return found

    def push(self, bar: Bars) -> StreamRow:
        """Add one bar, and return its row.

        bar: of length 1, of the same contract and length as the history; with the `legs` of all
            contracts so far.
        Raises DataError, and changes nothing, if the bar does not follow the last one, lies outside
        the calendar, or its price is too far from the others for float32.
        """
        last, step = int(self.bar.time[0]), bar.bar_seconds
        ahead = int(bar.time[0]) - last
        if ahead <= 0 or ahead % step:
            raise DataError(
                f"{bar.source}: a bar of {iso(bar.time[0])} after one of {iso(last)}: "
                + (
                    f"expected a later one, by a multiple of {step} s"
                    if ahead > 0
                    else "it is not newer; an old bar is never changed"
                )
            )
        if (bar.ask is None) != (self.kept.ask is None):
            raise DataError(
                f"{bar.source}: the history has {'one side' if self.kept.ask is None else 'bid and ask'}, "
                "and this bar has not; give bars of the same kind"
            )
        schedule, restart = self._next_date(bar)
        base = self._base(bar)
        self.schedule, self.bar = schedule, bar
        if restart:
            self.age, self.tail.size = -1, 0
        self.age += 1
        host = feature_input(bar)
        self._append(host)
        if restart:
            self.means = self._means(host)
        table = self._table(bar, host, base)
        row = self._row(bar, table, base)
        self._keep(row.data, base)
        return row

    def _next_date(self, bar: Bars) -> tuple[Schedule, bool]:
        """Return the schedule of the bar's date, and whether a feature window begins with it."""
        both = replace(bar, time=np.concatenate([self.bar.time, bar.time]))
        before, now = both.trade_dates
        if before == now:
            return self.schedule, False
        schedule = self._read or table_schedule(self.contract, before, now, bar.source)
        return schedule, bool(np.diff(feature_windows(both, schedule, self.config))[0])

    def _base(self, bar: Bars) -> int:
        """Return the base of prices; another one if the bar is too far from the present one."""
        bid, ask = bar.sides
        low, high = int(bid.low[0]), int(ask.high[0])
        if max(high - self.base, self.base - low) < EXACT:
            return self.base
        kept = self.kept.ask or self.kept
        low, high = min(low, int(self.kept.low.min())), max(high, int(kept.high.max()))
        return price_base(low, high, bar.source)

    def _append(self, host: features.Window) -> None:
        total = float(self.tail.last("total", 1)[0]) if self.age else 0.0
        row = {name: column[0] for name, column in vars(host).items() if name not in ("tick_size",)}
        same = self.age > 0 and self.tail.last("date", 1)[0] == host.date[0]
        self.on_date = 1 + same * self.on_date
        needed = max(
            self.on_date,
            VOLUME_BARS + 1,
            *(self.on_date if n is None else n for n in self.reach.values()),
        )
        self.tail.append({**row, "total": total + row["volume"], "tr_sum": -1}, needed)
        window = self.tail.window(TRUE_RANGES + 1, host.tick_size)
        self.tail.last("tr_sum", 1)[0] = features.true_range_sum(window)[-1]
        pair = self.tail.window(2, host.tick_size)
        for name, means in self.means.items():
            each = features.recursion_of(name)
            assert each
            for mean, values in zip(means, each.inputs(pair), strict=True):
                if len(values):
                    mean.add(int(values[-1]))

    def _table(self, bar: Bars, host: features.Window, base: int) -> np.ndarray:
        def volume_mean() -> np.ndarray:
            totals = self.tail.last("total", VOLUME_BARS + 1)
            count = min(self.age + 1, VOLUME_BARS)
            return (totals[-1:] - totals[0] if self.age >= VOLUME_BARS else totals[-1:]) / count

        columns = fixed_columns(
            bar,
            host.close - base,
            self.tail.last("tr_sum", 1),
            volume_mean,
            self.schedule,
            self.config,
        )
        windows: dict[int, features.Window] = {}
        values = [make() for make in columns]
        values += [self._feature(name, host.tick_size, windows) for name in self.names]
        return to_float32(np.concatenate(values))[None]

    def _feature(
        self, name: str, tick_size: float, windows: dict[int, features.Window]
    ) -> np.ndarray:
        """Compute the newest value of a feature, in the form of the table (float64[1])."""
        spec, count = feature_spec(name), self.reach[name]
        if name not in self.means and name != RANKED:
            count = self.on_date if count is None else count
            if count not in windows:
                windows[count] = self.tail.window(count, tick_size)
            window = windows[count]
            values = features.compute_feature(window, name)
            return features.encode_feature(values, spec, window.close)[-1:]
        if each := features.recursion_of(name):
            found = each.figure(*(np.array([mean.value]) for mean in self.means[name]))
        else:
            known = self.tail.last("tr_sum", min(RANK_BARS, max(self.age + 1 - TRUE_RANGES, 0)))
            found = np.array([features.rank_of_last(known, RANK_LEAST)])
        if self.age + 1 < spec.warm_up:
            found = np.array([np.nan])
        return features.encode_feature(found, spec, self.tail.last("close", 1))

    def _row(self, bar: Bars, table: np.ndarray, base: int) -> StreamRow:
        config, env = self.config, self.config.env
        tick = float(self.contract.tick_size)
        view = host_view(
            table, env.features, env.scaling, tick, context_features(env.task), base
        ).replace(base=None)
        like = self.kept.view.level
        if like is None or view.level is None:  # `host_view` leaves out a level of zeros
            level = None if like is None else np.zeros((1, like.shape[1]), np.float32)
            view = view.replace(level=level)
        value = self.kept.tick_value
        if value is not None and not needs_rates(self.contract):
            value = tick_values(bar, None)
        left = bars_to_flat(bar, self.schedule)
        at = int(self.schedule.find(bar.trade_dates)[0])
        opening = int(window_openings(bar.trade_dates, self.contract, config.session.overnight)[0])
        closes = int(bar.time[0]) + bar.bar_seconds
        ready = self.age + 1 >= self.needed
        prices, ask = (side and side._asdict() for side in (bar.quotes[0], bar.ask))
        data = MarketData(
            **prices,  # type: ignore[arg-type]
            tr_sum=self.tail.last("tr_sum", 1).astype(np.int32),  # type: ignore[arg-type]
            bars_to_flat=left,  # type: ignore[arg-type]
            sessions=None,  # type: ignore[arg-type]
            view=view,
            fingerprint=None,  # type: ignore[arg-type]
            ask=ask and Quotes(**ask),
            tick_value=None if value is None else jax.tree.map(lambda leaf: leaf[-1:], value),
        )
        inside = at >= 0 and int(bar.time[0]) >= opening
        return StreamRow(
            bar,
            table,
            data,
            session=at >= 0,
            ready=ready,
            decides=inside and ready and int(left[0]) >= 1,
            flat=at >= 0 and int(left[0]) == 0 and closes <= int(self.schedule.flat[at]),
        )

    def _levels(self) -> np.ndarray:
        """Return which columns of the view are prices (float32[F + 3])."""
        env = self.config.env
        shapes = [shape_of(feature_spec(name).unit, env.scaling).level for name in env.features]
        return np.array([*shapes, 0, 0, 0], np.float32)

    def _keep(self, row: MarketData, base: int) -> None:
        kept = self.kept
        if base != self.base:  # whole numbers in float32 before and after
            shift, view = float(self.base - base), kept.view

            def rebase(column: Any, which: np.ndarray) -> np.ndarray:
                return (np.float64(column) + shift * which).astype(np.float32)

            now = rebase(view.now, np.array([1, 0, 0, 0]))
            level = None if view.level is None else rebase(view.level, self._levels())
            kept = kept.replace(view=view.replace(now=now, level=level))
            self.base = base
        self.kept = jax.tree.map(
            lambda old, new: np.concatenate([old[1:], np.asarray(new, old.dtype)]), kept, row
        )
