"""The questions about a market, and which bars may be asked about.

A question has raw values of every bar by name, its time stamp, and blocks of text about what came
before.

The values are computed from the bars by the code of the market's features, over the same feature
windows, and converted to raw units. The normalised table is not read. A value depends only on its
own bar and earlier ones, so a question does too. With a record (`desk`), it depends also on the
answers about earlier bars that existed when it was first built.

The record is the advisor's own: what it said about earlier bars, and what followed, as known at a
bar's close. At bar b it holds answers about bars t with t + horizon <= b, in the same split, that
existed when the text about b was first asked for. A text is then kept, so the question about b
stays the same for as long as the record lives. Which answers exist depends on the order of asking,
so a question with a record does too, and so does its cache key.

What came before a bar, as the texts of blocks: the last bars, completed longer bars, the
session's levels.

Prices are raw, in the quote unit. Two-sided bars enter by their mid price, as in the market's
features. Nothing is read beyond a bar's own close, and nothing from before its feature window:
there prices may be of another contract.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxtrade.advisor.host.blocks import (
    LEVELS,
    RECORD,
    WINDOW,
    AccountRules,
    PriceBar,
    ScoredAnswer,
    account_block,
    events_block,
    higher_block,
    levels_block,
    news_block,
    record_block,
    window_block,
)
from jaxtrade.advisor.host.prompts import (
    CONTEXT_NAMES,
    RAW_SLOTS,
    RULE_SLOTS,
    TEMPLATES,
    Chosen,
    Template,
    checked_value,
    choose,
    known_slot,
    make_question,
)
from jaxtrade.advisor.host.types import Advice, Question
from jaxtrade.advisor.outcomes import what_followed
from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import resolve_account
from jaxtrade.config.service import ContextConfig
from jaxtrade.data.bars import Bars
from jaxtrade.data.calendar.schedule import run_starts, spread, trade_dates
from jaxtrade.data.calendar.sessions import feature_windows, schedule_of, window_openings
from jaxtrade.data.features.columns import compute_features
from jaxtrade.data.features.schema import absent_features
from jaxtrade.data.market import Market, feature_input
from jaxtrade.data.sources import ACCOUNT
from jaxtrade.data.splits import split_sessions
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import local, stamp
from jaxtrade.types import SessionSet

Levels = dict[str, float]


@dataclass(frozen=True)
class MarketHistory:
    """The T bars of a market, and the texts about what came before each.

    bars: one-sided.
    volume: float64[T], or None where the bars have none.
    closes: int64[T], UTC seconds.
    starts: int64[T], first row of each bar's feature window.

    day: int64[T], the number of each bar's trade date, of D.
    first, end: int64[D], the rows from the decision window's opening to the date's last bar,
        `end` excluded.
    opening: int64[D], UTC seconds.
    close, flat: int64[D], UTC seconds of the scheduled close and of the time when positions must be
        closed; -1 where no session is scheduled.
    """

    bars: Bars
    volume: np.ndarray | None
    closes: np.ndarray
    starts: np.ndarray
    chosen: ContextConfig
    day: np.ndarray
    first: np.ndarray
    end: np.ndarray
    opening: np.ndarray
    close: np.ndarray
    flat: np.ndarray

    def window(self, bar: int) -> str:
        """Format the block `window`: the bar and those before it, at most `bars`."""
        rows = range(max(int(self.starts[bar]), bar - self.chosen.bars + 1), bar + 1)
        return window_block(
            [self._row(row, row + 1) for row in rows], self.bars.bar_seconds, self._decimals
        )

    def higher(self, bar: int) -> str:
        """Format the block `higher`: for each length, the last bars complete at the bar's close."""
        seconds = self.bars.bar_seconds
        tables = {
            minutes: [self._row(*ends) for ends in self.find_completed(bar, 60 * minutes)]
            for minutes in self.chosen.higher
            if 60 * minutes > seconds and 60 * minutes % seconds == 0
        }
        return higher_block(tables, self._decimals)

    def find_completed(self, bar: int, period: int) -> list[tuple[int, int]]:
        """Find rows [begin, end) of the last `higher_bars` periods, oldest first.

        The periods hold bars and had ended at the bar's close.

        Args:
            period: seconds; periods are counted from whole hours UTC.
        """
        found, end = list[tuple[int, int]](), bar + 1
        while len(found) < self.chosen.higher_bars and end > self.starts[bar]:
            number = int(self.bars.time[end - 1]) // period
            begin = int(np.searchsorted(self.bars.time[:end], number * period))
            if begin >= self.starts[bar] and (number + 1) * period <= self.closes[bar]:
                found.append((begin, end))
            end = begin
        return found[::-1]

    def levels(self, bar: int) -> str:
        """Format the block `levels`."""
        day = self.day[bar]
        first, opening = int(self.first[day]), int(self.opening[day])
        session = None if bar < first else self._levels(first, bar + 1, "open", "high", "low")
        return levels_block(
            session,
            local(opening, self.bars.contract.zone, LEVELS["since"]),
            self._opening_range(bar),
            self.chosen.opening_minutes,
            self._prior(bar),
            self.count_minutes_left(bar, self.close),
            self._decimals,
        )

    def count_minutes_left(self, bar: int, until: np.ndarray) -> int | None:
        """Count the whole minutes from the bar's close to `until` of its trade date.

        The result is None where none is scheduled or it has passed.

        Args:
            until: int64[D].
        """
        seconds = int(until[self.day[bar]]) - int(self.closes[bar])
        return None if seconds < 0 else seconds // 60

    def _opening_range(self, bar: int) -> Levels | None:
        day = self.day[bar]
        first, until = (
            int(self.first[day]),
            int(self.opening[day]) + 60 * self.chosen.opening_minutes,
        )
        if self.closes[bar] < until:
            return None
        end = first + int(np.searchsorted(self.closes[first : bar + 1], until, side="right"))
        return self._levels(first, end, "high", "low") if end > first else None

    def _prior(self, bar: int) -> Levels | None:
        day = self.day[bar] - 1
        first, end = int(self.first[day]), int(self.end[day])
        if day < 0 or first < self.starts[bar] or first >= end:
            return None
        return self._levels(first, end, "high", "low", "close")

    def _levels(self, begin: int, end: int, *names: str) -> Levels:
        row = self._row(begin, end)
        return {name: getattr(row, name) for name in names}

    def _row(self, begin: int, end: int) -> PriceBar:
        """Merge the bars of rows [begin, end) into one bar."""
        bars, tick = self.bars, float(self.bars.contract.tick_size)
        layout = WINDOW["stamp" if bars.bar_seconds % 60 == 0 else "fine_stamp"]
        volume = None if self.volume is None else float(self.volume[begin:end].sum())
        return PriceBar(
            local(int(self.closes[end - 1]), bars.contract.zone, layout),
            float(bars.open[begin] * tick),
            float(bars.high[begin:end].max() * tick),
            float(bars.low[begin:end].min() * tick),
            float(bars.close[end - 1] * tick),
            volume,
        )

    @property
    def _decimals(self) -> int:
        return self.bars.contract.decimals


def make_history(market: Market, config: RunConfig) -> MarketHistory:
    """Build the texts about a market's bars under `advisor.context`."""
    bars, contract = market.bars.mid, market.contract
    dates = trade_dates(bars.time, contract)
    schedule = schedule_of(bars, config.data.calendar)
    begins = run_starts(feature_windows(market.bars, schedule, config))
    begin = run_starts(dates)
    at = schedule.find(dates[begin])
    opening = window_openings(dates[begin], contract, config.session.overnight)
    end = np.append(begin[1:], len(bars))
    first = np.clip(np.searchsorted(bars.time, opening), begin, end)
    return MarketHistory(
        bars,
        bars.volume if market.has_volume else None,
        bars.time + bars.bar_seconds,
        spread(begins, begins, len(bars)),
        config.advisor.context,
        spread(np.arange(len(begin)), begin, len(bars)),
        first,
        end,
        opening,
        np.where(at >= 0, schedule.close[at], -1),
        np.where(at >= 0, schedule.flat[at], -1),
    )


def account_rules(market: Market, config: RunConfig) -> AccountRules:
    """Return the account's rules (dollars) and the costs of a round turn with one contract.

    Raises ConfigError for an unknown account preset or a commission that is not a whole
    number of mills.
    """
    preset, contract = resolve_account(config.account), market.contract.under(config)
    return AccountRules(
        balance=preset.start_balance,
        drawdown=preset.drawdown,
        trailing=preset.trailing,
        daily=preset.daily_loss,
        target=preset.profit_target,
        commission=2 * contract.commission_mills / 1000,
        slippage=2 * contract.slippage_ticks,
        total=round_turn(market, config),
        size=str(contract.tick_size),
        value=contract.tick_mills / 1000,
        currency=contract.currency,
        two_sided=bool(market.bars.ask),
    )


def round_turn(market: Market, config: RunConfig) -> int:
    """Return the cost in ticks of one round turn with one contract.

    It is two commissions, rounded up to whole ticks, and two slippages.

    Where profits are converted, the tick value of the first bar is used. Every later tick value
    would be from the future for some bars.
    """
    contract = market.contract.under(config)
    times, over = contract.tick_mills, 1
    if contract.currency != ACCOUNT and market.data.tick_value:
        times, over = (
            int(np.asarray(part)[0])
            for part in (market.data.tick_value.times, market.data.tick_value.over)
        )
    return -(-2 * contract.commission_mills * over // times) + 2 * contract.slippage_ticks


def followed_of(market: Market, config: RunConfig) -> np.ndarray:
    """Label the decision bars by the trade that would have paid (int8[T]).

    The label is +1 for a buy, -1 for a sale, else 0.

    A trade pays if it is opened at the next bar's open, held for `advisor.horizon` bars and earns
    more than the cost of a round turn. On two-sided bars buys pay the ask and sales get the bid.

    The labels read each bar's future, in every session. Pass them through `mask_to_sessions` before anything
    learns from them.
    """
    sessions, (bid, ask) = market.data.sessions, market.bars.sides
    first, last = np.asarray(sessions.first), np.asarray(sessions.last)
    horizon, cost = config.advisor.horizon, round_turn(market, config)
    rose = what_followed(ask.open, bid.close, first, last, horizon, cost) > 0
    fell = what_followed(bid.open, ask.close, first, last, horizon, cost) < 0
    return rose.astype(np.int8) - fell.astype(np.int8)


def mask_to_sessions(followed: np.ndarray, market: Market, sessions: SessionSet) -> np.ndarray:
    """Keep `followed` at the decision bars of `sessions`, with 0 elsewhere (int8[T])."""
    return np.where(in_sessions(market, sessions), followed, 0).astype(followed.dtype)


_WIDEST = 10**6 - 1  # answers per range in the longest text


@dataclass(eq=False)
class AnswerRecord:
    """The record over T bars.

    Threads may feed and read it at once. It keeps one text, of about 1 KB, per bar asked.

    Args:
        followed: int8[T], what followed each bar (`followed_of`). Entry t is read only once
            t + horizon has closed.
        parts: int8[T], the split of each bar; answers count in their own split only.
        closes: int64[T], UTC seconds.
        bins: ranges of confidence.
        shown: last answers that a text lists.
        zone: of the times.
    """

    followed: np.ndarray
    parts: np.ndarray
    closes: np.ndarray
    horizon: int
    bins: int
    shown: int
    zone: str

    def __post_init__(self) -> None:
        bars = len(self.closes)
        self._known, self._said = np.zeros(bars, bool), np.zeros(bars, np.int8)
        self._confidence = np.zeros(bars, np.float32)  # as journals and tables hold it
        self._texts: dict[int, str] = {}
        self._lock = threading.Lock()

    def note_answer(self, bar: int, advice: Advice) -> None:
        """Note the first answer about a bar. Later ones about the same bar change nothing."""
        with self._lock:
            if not self._known[bar]:
                self._said[bar] = advice.direction
                self._confidence[bar] = advice.confidence
                self._known[bar] = True

    def text(self, bar: int) -> str:
        """Return the block `record` at a bar's close.

        It is the same text whenever it is asked for again.
        """
        with self._lock:
            if bar not in self._texts:
                self._texts[bar] = self._make_text(self.scorable(bar))
            return self._texts[bar]

    def scorable(self, bar: int) -> np.ndarray:
        """Return the answered bars of the bar's split that can be scored (int64[n], ascending).

        Their horizon had ended at the bar's close.
        """
        end = max(0, bar + 1 - self.horizon)
        return np.flatnonzero(self._known[:end] & (self.parts[:end] == self.parts[bar]))

    def longest(self) -> str:
        """Return a text at least as long as any that `text` may return.

        It is for plans of costs, before there are answers.
        """
        last = [ScoredAnswer("00-00 00:00", -1, 1.0, 0)] * self.shown
        return record_block([(_WIDEST, _WIDEST)] * self.bins, last, self.horizon)

    def _make_text(self, bars: np.ndarray) -> str:
        said, followed = self._said[bars], self.followed[bars]
        scored, hits = (said != 0) & (followed != 0), (said != 0) & (said == followed)
        places = np.minimum((self._confidence[bars] * self.bins).astype(np.int64), self.bins - 1)
        rates = [np.bincount(places[kind], minlength=self.bins).tolist() for kind in (hits, scored)]
        last = bars[max(0, len(bars) - self.shown) :]
        shown = [
            ScoredAnswer(
                local(int(self.closes[bar]), self.zone, RECORD["stamp"]),
                int(self._said[bar]),
                float(self._confidence[bar]),
                int(self.followed[bar]),
            )
            for bar in last
        ]
        return record_block(list(zip(*rates, strict=True)), shown, self.horizon)


PRICES = ("close", "vwap", "atr")  # features hold them in ticks, slots in the quote unit
NEEDS_VOLUME = frozenset(absent_features(tuple(RAW_SLOTS)))


class QuestionBook(NamedTuple):
    """The questions about a market's T bars.

    columns: float64[T] by slot name, in raw units; NaN in the warm-up.
    closes: int64[T], UTC seconds of each bar's close.
    zone: the exchange's time zone, used for time stamps.
    askable: bool[T], decision bars of any session at which every value is known.
    blocks: by name, what makes a block's text about a bar.
    record: of the advisor's answers; None where the template shows none.
    """

    symbol: str
    template: Template
    columns: dict[str, np.ndarray]
    closes: np.ndarray
    zone: str
    askable: np.ndarray
    blocks: Mapping[str, Callable[[int], str]] = MappingProxyType({})
    record: AnswerRecord | None = None

    def question(self, bar: int) -> Question:
        """Build the question about a bar. Raises DataError where one of its values is unknown."""
        bar = int(bar)
        return make_question(
            bar,
            self.symbol,
            stamp(int(self.closes[bar]), self.zone),
            {name: float(values[bar]) for name, values in self.columns.items()},
            self.template,
            {name: self.blocks[name](bar) for name in self.template.blocks},
        )

    def preview(self, bar: int) -> Question:
        """Build the question about a bar without asking it.

        In place of the record it has the longest text that the record may have.
        """
        if not self.record:
            return self.question(bar)
        longest = self.record.longest()
        return self._replace(blocks={**self.blocks, "record": lambda _: longest}).question(bar)

    def note_answer(self, bar: int, advice: Advice) -> None:
        """Note an answer in the record, if there is one."""
        if self.record:
            self.record.note_answer(int(bar), advice)

    def fresh(self) -> QuestionBook:
        """Return the same questions with an empty record, for another advisor."""
        if not self.record:
            return self
        record = replace(self.record)  # over the same bars, without answers
        return self._replace(record=record, blocks={**self.blocks, "record": record.text})

    def question_or_none(self, bar: int) -> Question | None:
        """Build the question about a bar.

        The result is None where the bar does not exist or one of its values is unknown.
        """
        if not 0 <= bar < len(self.closes) or not all(
            np.isfinite(values[bar]) for values in self.columns.values()
        ):
            return None
        return self.question(bar)


def make_book(market: Market, config: RunConfig) -> QuestionBook:
    """Build the questions about a market.

    They use the template `advisor.template` and the context `advisor.context`.

    Raises:
        ConfigError: the template is unknown, shows values that need volume and the bars have none,
            or does not show a feed that is given.
        DataError: values outside their possible range, a symbol that prompts do not allow, no bar
            with all values, or a feed that cannot be read.
    """
    chosen = choose(config.advisor, market.has_volume)
    template = chosen.template
    if not market.has_volume and (absent := NEEDS_VOLUME & {*template.slots}):
        others = [name for name, other in TEMPLATES.items() if not NEEDS_VOLUME & {*other.slots}]
        raise ConfigError(
            f"advisor.template = {config.advisor.template}: shows {', '.join(sorted(absent))}, and the "
            f"bars of {market.contract.symbol} have no volume; set advisor.template="
            f"{' or '.join((*others, *CONTEXT_NAMES))}"
        )
    ruled = [name for name in RULE_SLOTS if market.has_volume or name not in NEEDS_VOLUME]
    columns = raw_columns(market, config, tuple(dict.fromkeys((*template.slots, *ruled))))
    check_columns(columns)
    askable = in_sessions(market) & np.logical_and.reduce(
        [np.isfinite(values) for values in columns.values()]
    )
    if not askable.any():
        raise DataError(
            f"{market.bars.source}: no decision bar has all of {', '.join(columns)}; give more bars"
        )
    closes = market.bars.time + market.bars.bar_seconds
    record = None
    if "record" in template.blocks:
        parts, splits = np.full(len(closes), -1, np.int8), split_sessions(market, config.split)
        for number, name in enumerate(name for name in splits if name != "all"):
            parts[in_sessions(market, splits[name])] = number
        record = AnswerRecord(
            followed_of(market, config),
            parts,
            closes,
            config.advisor.horizon,
            config.advisor.bins,
            config.advisor.context.record,
            market.contract.zone,
        )
    book = QuestionBook(
        market.contract.symbol,
        template,
        columns,
        closes,
        market.contract.zone,
        askable,
        _blocks(market, config, chosen, record),
        record,
    )
    book.preview(
        int(askable.argmax())
    )  # raises now, before anything runs, where the symbol is not allowed
    return book


def _blocks(
    market: Market, config: RunConfig, chosen: Chosen, record: AnswerRecord | None
) -> Mapping[str, Callable[[int], str]]:
    """Map each block of the template, by name, to the function that makes it."""
    if not chosen.template.blocks:
        return {}
    earlier, context = make_history(market, config), config.advisor.context
    rules, feeds = account_rules(market, config), chosen.feeds
    symbol, zone = market.contract.symbol, market.contract.zone
    found: dict[str, Callable[[int], str]] = {
        "window": earlier.window,
        "higher": earlier.higher,
        "levels": earlier.levels,
        "account": lambda bar: account_block(rules, earlier.count_minutes_left(bar, earlier.flat)),
        "news": lambda bar: news_block(
            feeds["news"], symbol, int(earlier.closes[bar]), zone, context
        ),
        "calendar": lambda bar: events_block(
            feeds["calendar"], int(earlier.closes[bar]), zone, context
        ),
    }
    return found | ({"record": record.text} if record else {})


def check_columns(columns: Mapping[str, npt.ArrayLike]) -> None:
    """Check that each column holds values in its slot's raw unit.

    NaN (warm-up) is allowed, because such bars are not asked about. A normalised ADX or RSI column
    of a few bars may pass, but not one of a whole session: z-scores fall below 0, and raw
    percentages exceed 1 somewhere.

    Raises DataError where a column is not in its raw unit, ConfigError for an unknown name.
    """
    for name, values in columns.items():
        slot = known_slot(name)
        found = np.asarray(values, np.float64)
        found = found[~np.isnan(found)]
        if not len(found):
            continue
        for value in (found.min(), found.max()):
            checked_value("column", name, value)
        if slot.high == 100.0 and len(found) >= 30 and 0.0 < found.max() <= 1.0:
            raise DataError(
                f"raw slot {name!r}: no value above {found.max():g} in {len(found)} bars; expected 0 to "
                "100, not a share: pass raw values"
            )


def raw_columns(market: Market, config: RunConfig, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return each named slot in its raw unit (float64[T]; `prompts.RAW_SLOTS`).

    Prices are in the quote unit; the warm-up is NaN.

    Two-sided bars enter by their mid price, as in the market's features. Raises ConfigError for an
    unknown name.
    """
    for name in names:
        known_slot(name)
    bars = market.bars
    schedule = schedule_of(bars, config.data.calendar)
    table = compute_features(feature_input(bars), names, feature_windows(bars, schedule, config))
    tick = float(bars.contract.tick_size)
    found = {}
    for name, values in zip(names, table.T, strict=True):
        values, high = values * tick if name in PRICES else values, RAW_SLOTS[name].high
        # Rounding alone may exceed the bound: a mean of 14 values of 100, in its last bits. Larger
        # excesses stay for `check_columns`.
        found[name] = np.where((values > high) & (values < high * (1 + 1e-9)), high, values)
    return found


def in_sessions(market: Market, sessions: SessionSet | None = None) -> np.ndarray:
    """Mark the decision bars of `sessions` (bool[T]); by default of all the market's sessions."""
    table, found = market.data.sessions, np.zeros(len(market.bars), bool)
    chosen = np.asarray(sessions.ids)[: int(sessions.count)] if sessions else slice(None)
    for first, last in zip(
        np.asarray(table.first)[chosen], np.asarray(table.last)[chosen], strict=True
    ):
        found[first : last + 1] = True
    return found
