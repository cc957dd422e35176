"""The rows of a market that grows by one bar at a time, each as the market of all bars has it.

A new row is computed by the functions that compute a whole market, over as many bars as each
feature needs (`StreamRows._reach`). So it has the same bytes as that row of a market built from all bars.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.bars import Bars, Side
from jaxtrade.data.calendar.schedule import table_schedule
from jaxtrade.data.calendar.sessions import bars_to_flat, feature_windows, schedule_of, window_ages
from jaxtrade.data.device import fixed_columns, to_float32
from jaxtrade.data.features import columns as features
from jaxtrade.data.features.schema import (
    FIXED_COLUMNS,
    RANK_BARS,
    RANK_LEAST,
    TRUE_RANGES,
    VOLUME_BARS,
    context_features,
    feature_spec,
)
from jaxtrade.data.market import Market, base_of, feature_input, history_needed, host_data
from jaxtrade.data.sources import needs_rates, tick_values
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso
from jaxtrade.parts import FEATURES
from jaxtrade.types import SessionTable, TickValue

BY_DATE = ("vwap", "price_to_vwap")
RANKED = "vol_percentile"


class StreamRow(NamedTuple):
    """One bar as the market has it.

    bar: the bar itself, of length 1.
    table: float32[1, C], the row of `Market.table`.
    ready: whether a decision at its close has the history that it needs.
    decides: whether a decision is taken at its close, as the schedule has it.
    flat: whether it is the flat bar of its session, as the schedule has it.
    """

    bar: Bars
    table: np.ndarray
    ready: bool
    decides: bool
    flat: bool


class StreamRows:
    """The state of a market after its last bar.

    market: the history, with NumPy leaves (`build_market(..., on_device=False)`).
    bars: the last ones, as many as `keep` says.
    kept: their `MarketData`, as one session.
    window: the bars of the feature window that later rows need.
    totals: float64[n], the volume of that window before and after each of its last 20 bars.
    means: feature -> its newest means, float64[1] each.
    """

    def __init__(self, market: Market, config: RunConfig, keep: int) -> None:
        if config.data.calendar == "infer":
            raise ConfigError(
                "data.calendar=infer reads a day's hours off all of its bars, and a stream has not seen "
                "them yet; set data.calendar=table, or give a calendar file"
            )
        bars, last = market.bars, slice(-keep, None)
        self.config, self.bars, self.table = config, bars.rows(last), market.table[last].copy()
        self.schedule = schedule_of(bars, config.data.calendar)
        self.needed = history_needed(config)
        self.names = (*config.env.features, *context_features(config.env.task))
        age = int(window_ages(feature_windows(bars, self.schedule, config))[-1])
        self.window = features.take(feature_input(bars), slice(-age - 1, None))
        self.totals = np.cumsum(np.append(0.0, self.window.volume))[-VOLUME_BARS - 1 :]
        self.means: dict[str, list[np.ndarray]] = {}
        for name in filter(features.recursion_of, self.names):
            self._feature(name, self.window)
        data = market.data
        value = jax.tree.map(lambda leaf: leaf[last], data.tick_value)
        self._keep(base_of(self.bars), data.tr_sum[last], value, flat=False)

    @property
    def bar(self) -> Bars:
        """The newest bar, of length 1."""
        return self.bars.rows(slice(-1, None))

    def push(self, bar: Bars) -> StreamRow:
        """Add one bar, and return its row.

        bar: of length 1, of the same contract, length and sides as the history; with the `legs` of all
            contracts so far.
        Raises DataError, and changes nothing, if the bar is of another kind, does not follow the last
        one, lies outside the calendar, or its price is too far from the others for float32.
        """
        kind, expected = _describe(bar), _describe(self.bars)
        if kind != expected:
            raise DataError(f"{bar.source}: found {kind}; expected {expected} as in the history")
        config, schedule, last = self.config, self.schedule, int(self.bars.time[-1])
        ahead = int(bar.time[0]) - last
        if ahead <= 0 or ahead % bar.bar_seconds:
            raise DataError(
                f"{bar.source}: a bar of {iso(bar.time[0])} after one of {iso(last)}: expected a newer one, "
                f"by a multiple of {bar.bar_seconds} s; an old bar is never changed"
            )
        bars = _append(self.bars.rows(slice(1, None)), bar)
        dates = bars.trade_dates
        if dates[-1] != dates[-2] and config.data.calendar == "table":
            schedule = table_schedule(bar.contract, dates[0], dates[-1], bar.source)
        base = base_of(bars)
        value = (  # no rate is known after those of the history
            jax.tree.map(lambda leaf: np.append(leaf[1:], leaf[-1]), self.kept.tick_value)
            if needs_rates(bar.contract)
            else tick_values(bars, None)
        )
        # Nothing is refused from here on.
        self.bars, self.schedule = bars, schedule
        if np.diff(feature_windows(bars, schedule, config))[-1]:
            self.window, self.totals = features.take(self.window, slice(0)), np.zeros(1)
            self.means = {}
        host, before = feature_input(bar), vars(self.window)
        columns = {
            name: np.append(before[name], column)
            for name, column in vars(host).items()
            if name != "tick_size"
        }
        reaches = {name: self._reach(name, columns["date"]) for name in self.names}
        windows = {
            count: features.take(replace(host, **columns), slice(-count, None))
            for count in {self.needed, *reaches.values()}
        }
        self.window = windows[max(windows)]
        self.totals = np.append(self.totals, self.totals[-1] + host.volume)[-VOLUME_BARS - 1 :]
        tr_sum = features.true_range_sum(windows[self.needed])[-1:]

        def volume_mean() -> np.ndarray:
            return (self.totals[-1:] - self.totals[0]) / (len(self.totals) - 1)

        fixed = fixed_columns(bar, host.close - base, tr_sum, volume_mean, schedule, config)
        found = {name: self._feature(name, windows[count]) for name, count in reaches.items()}
        values = *(make() for make in fixed), *(found[name] for name in self.names)
        row = to_float32(np.concatenate(values))
        clock, left = dict(zip(FIXED_COLUMNS, row, strict=False)), bars_to_flat(bar, schedule)[0]
        ready = len(self.window.close) >= self.needed
        session = schedule.find(dates[-1:])[0] >= 0
        flat = bool(session and left == 0 and clock["to_flat"] >= 0)
        self.table = np.concatenate([self.table[1:], row[None]])
        sums = np.append(self.kept.tr_sum[1:], tr_sum.astype(np.int32))
        self._keep(base, sums, value, flat)
        decides = bool(ready and left >= 1 and clock["from_open"] >= 0)
        return StreamRow(bar, row[None], ready, decides, flat)

    def _reach(self, name: str, dates: np.ndarray) -> int:
        """Return how many of the newest bars of its window a feature is computed over.

        dates: int64[n], of all its bars.
        """
        if name in FEATURES:  # a user's own may see all of them
            return len(dates)
        if name in BY_DATE:
            return int((dates == dates[-1]).sum())
        return RANK_BARS + TRUE_RANGES if name == RANKED else self.needed

    def _feature(self, name: str, window: features.Window) -> np.ndarray:
        """Compute the newest value of a feature, in the form of the table (float64[1])."""
        spec, count = feature_spec(name), len(window.close)
        if recursion := features.recursion_of(name):
            each, before = zip(recursion.inputs(window), recursion.alphas, strict=True), self.means
            if name in before and count > recursion.n + 1:
                means = [
                    features.smooth(values[-1:], alpha, mean[0])
                    for (values, alpha), mean in zip(each, before[name], strict=True)
                ]
            else:  # the window is whole
                means = [features.smooth_from_mean(x, recursion.n, alpha)[-1:] for x, alpha in each]
            self.means[name] = means
            found = recursion.figure(*means) if count >= spec.warm_up else np.array([np.nan])
        elif name == RANKED:
            ranges = features.true_range_sum(window)[TRUE_RANGES:]
            found = np.array([features.rank_of_last(ranges, RANK_LEAST)])
        else:
            found = features.compute_feature(window, name)
        return features.encode_feature(found, spec, window.close[-len(found) :])[-1:]

    def _keep(self, base: int, tr_sum: Any, value: TickValue | None, flat: bool) -> None:
        self.table[:, 0] = self.bars.mid.close - base
        count = len(self.bars)
        # One session of all these bars; after its row `last` comes the flat bar.
        spans = (0, count, 0, count - 2 if flat else count - 1, 0)
        table = [np.array([x], np.int32) for x in spans]
        sessions = SessionTable(*table, complete=np.array([True]))  # type: ignore[arg-type]
        made = self.bars, self.config, self.schedule, sessions, self.table, tr_sum, value, base
        self.kept = host_data(*made)


def _describe(bars: Bars) -> str:
    sides = "bid and ask" if bars.ask else "one side"
    return f"{bars.contract.symbol} bars of {bars.bar_seconds} s with {sides}"


def _append(bars: Bars, bar: Bars) -> Bars:
    quotes = zip(bars.quotes, bar.quotes, strict=True)
    return bar.with_quotes(
        *(Side(*map(np.append, *both)) for both in quotes),
        time=np.append(bars.time, bar.time),
        volume=np.append(bars.volume, bar.volume),
    )
