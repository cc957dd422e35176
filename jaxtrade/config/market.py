"""Sections about trading: bars, sessions, account, costs, the environment and its reward."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import date
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from jaxtrade.config.base import (
    Atrs,
    Count,
    FromZero,
    Names,
    NotNegative,
    Positive,
    Section,
    declare_bounds,
    name_in,
)
from jaxtrade.parts import TASKS
from jaxtrade.text import did_you_mean

# What the keys of a symbol set (`data.markets`, `data.folder`, `data.per_market`) may say
# together.

MOST = 127  # symbols are numbered in int8
# Keys that name the files or the contract of one symbol. With several symbols they stand in
# `data.per_market`.
OF_ONE = ("contract", "file", "seconds", "quotes", "conversion")
EXAMPLE = "data.per_market: {USDJPY: {price_scale: 0.001}}"
OF_THE_SET = ("market", "markets", "folder", "per_market")


def check_per_market(given: Any) -> Any:
    """Return `data.per_market` as given.

    Raises ValueError, which pydantic expects, if its first keys are no symbols.
    """
    if not isinstance(given, Mapping):
        return given
    for name, values in given.items():
        if str(name).lower() in OF_THE_SET:
            raise ValueError(
                f"'{name}' is no symbol; the symbols stand in data.per_market directly, without "
                f"'{name}' around them, e.g. {EXAMPLE}"
            )
        if not isinstance(values, Mapping):
            raise ValueError(
                f"'{name}' stands where a symbol is expected, and its value is no section of keys; write "
                f"symbol, key and value, e.g. {EXAMPLE}"
            )
    return given


def check_set(data: Any) -> None:
    """Check the keys of a symbol set in a `DataConfig`, which imports this module.

    Raises ValueError, which pydantic expects, if they contradict each other or other keys.
    """
    if not data.markets:
        for key in ("folder", "per_market"):
            if getattr(data, key):
                raise ValueError(
                    f"data.{key} is given and data.markets is empty; name the symbols in data.markets, "
                    f"or drop data.{key}"
                )
        return
    if data.market != type(data)().market and data.market not in data.markets:
        raise ValueError(
            f"data.market = {data.market} has no effect beside data.markets ({', '.join(data.markets)}): "
            "drop it, or add it to data.markets"
        )
    twice = sorted({symbol for symbol in data.markets if data.markets.count(symbol) > 1})
    if twice:
        raise ValueError(
            f"data.markets names {', '.join(twice)} more than once; name each symbol once"
        )
    if len(data.markets) > MOST:
        raise ValueError(
            f"data.markets names {len(data.markets)} symbols; a set has at most {MOST}"
        )
    for key in OF_ONE:
        if getattr(data, key) is not None:
            raise ValueError(
                f"data.{key} belongs to one symbol, and data.markets names {len(data.markets)}: give it "
                f"in data.per_market, e.g. {{{data.markets[0]}: {{{key}: ...}}}}"
                f"{', or all files in data.folder' if key == 'file' else ''}"
            )
    if data.folder is not None and data.source != "file":
        raise ValueError(
            f"data.folder = '{data.folder}' is given but data.source = {data.source}; set "
            "data.source=file, or drop data.folder"
        )
    _check_keys(data, {name for name in type(data).model_fields if name not in OF_THE_SET})


def _check_keys(data: Any, known: Collection[str]) -> None:
    for symbol, keys in data.per_market.items():
        if symbol not in data.markets:
            raise ValueError(
                f"data.per_market.{symbol}: {symbol} is not in data.markets ({', '.join(data.markets)})"
                f"{did_you_mean(symbol, data.markets)}"
            )
        for key in keys:
            if key in OF_THE_SET:
                raise ValueError(
                    f"data.per_market.{symbol}.{key}: {key} is a key of the whole set; drop it here"
                )
            if key not in known:
                raise ValueError(
                    f"data.per_market.{symbol}.{key}: the section data has no such key"
                    f"{did_you_mean(key, known)}"
                )


# --- Share splits that a configuration states (`data.splits`)


MOST_SHARES = (
    1000  # on either side of a ratio: keeps the arithmetic of `adjust_for_splits` inside int64
)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SHAPE = "expected the new shares for one old share (4, or 1.5), or NEW:OLD as text (3:2; a reverse split 1:10)"


def check_date(text: str) -> str:
    """Return the text. Raises ValueError, which pydantic expects, unless it is an ISO date."""
    why = ""
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError as error:
        why = f" ({error})"
    raise ValueError(f"'{text}' is not a date{why}; write YYYY-MM-DD, e.g. 2013-10-07")


def _ratio(value: object) -> str:
    """Return a ratio in lowest terms as NEW:OLD.

    Raises ValueError unless it is a positive ratio of small numbers, not 1.
    """
    text = str(value).replace(" ", "") if type(value) in (int, float, str) else ""
    if not re.fullmatch(rf"{_NUMBER}(?::{_NUMBER})?", text):
        raise ValueError(f"'{value}' is not a ratio; {_SHAPE}")
    new, _, old = text.partition(":")
    if not Fraction(new) or (old and not Fraction(old)):
        raise ValueError(f"'{value}' has no shares on one side; {_SHAPE}")
    ratio = Fraction(new) / Fraction(old or 1)
    if ratio == 1:
        raise ValueError(f"'{value}' changes nothing; {_SHAPE}")
    if max(ratio.numerator, ratio.denominator) > MOST_SHARES:
        raise ValueError(
            f"'{value}' is {ratio.numerator}:{ratio.denominator} in whole shares, more than "
            f"{MOST_SHARES}; {_SHAPE}"
        )
    return f"{ratio.numerator}:{ratio.denominator}"


class ShareSplit(Section, frozen=True):
    """One split. Prices of trade dates before `date` are divided by the ratio."""

    date: Annotated[str, AfterValidator(check_date)] = Field()
    """the first trade date at the new price"""
    ratio: Annotated[str, PlainValidator(_ratio)] = Field()
    """new shares for old ones: 4, or 3:2"""

    @property
    def fraction(self) -> Fraction:
        """New shares for one old share."""
        new, old = self.ratio.split(":")
        return Fraction(int(new), int(old))


def _in_order(splits: tuple[ShareSplit, ...]) -> tuple[ShareSplit, ...]:
    """Raise ValueError unless the dates increase."""
    for before, after in pairwise(splits):
        if after.date <= before.date:
            raise ValueError(f"dates must increase: {after.date} follows {before.date}")
    return splits


Splits = Annotated[tuple[ShareSplit, ...], Field(strict=False), AfterValidator(_in_order)]


def _roll(value: object) -> str | dict[str, str]:
    """Validate `data.roll`.

    It is `off`, `volume`, or a mapping expiry -> first trade date (`start` for the first).
    """
    if value in ("off", "volume"):
        return str(value)
    shape = (
        "expected off, volume, or {201312: start, 201403: 2013-12-18} (expiry: first trade date)"
    )
    if not isinstance(value, Mapping) or not all(
        type(x) in (str, int) for x in (*value, *value.values())
    ):
        raise ValueError(shape)
    firsts = {str(code): str(first) for code, first in value.items()}
    if len(firsts) < 2:
        raise ValueError("one contract is no roll: name at least two, or use data.expiry")
    opening, *dates = firsts.values()
    if opening != "start":
        raise ValueError(
            f"the first contract ({next(iter(firsts))}) must have 'start', found '{opening}' "
            "(cut the data with data.start)"
        )
    for text in dates:
        check_date(text)
    for before, after in pairwise(dates):
        if after <= before:
            raise ValueError(f"first trade dates must increase: {after} follows {before}")
    return firsts


Day = Annotated[str, AfterValidator(check_date)]
# YAML reads an expiry such as 201312 as an int.
Code = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
Roll = Literal["off", "volume"] | dict[str, str]


# Keys of `DataConfig` that only say where a file is: its content is in the market's fingerprint, or
# in the contract.
PLACES = frozenset(("contract", "file", "folder", "seconds", "conversion", "quotes"))


class DataConfig(Section, frozen=True):
    """Where the bars come from.

    Zone, stamp side and price scale are given or known, never guessed.
    """

    market: str = "ES"
    """contract symbol, e.g. ES, NQ, EURUSD"""
    markets: Annotated[Names, AfterValidator(lambda symbols: tuple(map(str.upper, symbols)))] = ()
    """several symbols, one per environment (or all of them at once, env.task=allocate), e.g.
    [EURUSD,USDJPY]; empty: data.market alone
    """
    folder: str | None = None
    """source: file: the folder that holds one file of bars per symbol of data.markets, named after
    it (EURUSD*.csv.gz)
    """
    per_market: Annotated[
        dict[str, dict[str, str | int | float | bool | dict[str, str]]],
        BeforeValidator(check_per_market),
        AfterValidator(lambda given: {symbol.upper(): keys for symbol, keys in given.items()}),
    ] = Field(default_factory=dict)
    """symbol -> keys of this section for its bars alone, e.g. {USDJPY: {price_scale: 0.001}}"""
    contract: str | None = None
    """your own contract: a YAML file, or a shipped one such as SPY; its symbol is the market,
    whatever data.market says
    """
    source: Literal["bundled", "synthetic", "file"] = "bundled"
    """bundled: the real bars that the package has; synthetic: generated bars; file: yours
    (data.file)
    """
    file: str | None = None
    """CSV, CSV.gz or Parquet of bars (source: file)"""
    seconds: str | None = None
    """second bars of the same instrument, read with the same keys; they tell the order of prices
    inside a bar (env.intrabar: path)
    """
    conversion: str | None = None
    """bars of the rate to the dollar, for markets whose profits arise in another currency; read
    with data.time_zone and data.stamp
    """
    quotes: str | None = None
    """bid and ask bars of the same instrument, read with the same keys; they give the prices,
    data.file gives the volume
    """
    columns: dict[str, str] = Field(default_factory=dict)
    """field -> column name: time, open, high, low, close, volume, expiry, symbol; bid_open ..
    ask_close of two-sided bars
    """
    time_zone: str | None = None
    """IANA zone of stamps that carry no offset, with a fixed shift where needed
    (America/New_York+7h)
    """
    stamp: Literal["open", "close"] | None = None
    """the side of a bar that its stamp names"""
    date_order: Literal["mdy", "dmy"] | None = None
    """of dates such as 10/07/2013: month or day first; None: a day above 12 in the file must show
    it
    """
    price_scale: Positive = 1.0
    """points per unit of the file (0.0001 for x10000)"""
    expiry: Code | None = None
    """the one contract to use of a file with expiries"""
    roll: Annotated[Roll, PlainValidator(_roll)] = "off"
    """splice the expiries of a file: off, volume (the one that traded more on the trade date
    before), or {201312: start, 201403: 2013-12-18} (expiry: first trade date)
    """
    spreads: Literal["refuse", "drop"] = "refuse"
    """rows of calendar spreads (ESZ3-ESH4), whose prices are differences: an error, or left out and
    counted, as a Databento file of ES.FUT needs
    """
    splice: Literal["restart"] = "restart"
    """what feature windows do at a splice; prices are never adjusted"""
    splits: Splits = ()
    """share splits that the file's prices do not allow for yet: [{date: 2020-08-31, ratio: 4}]
    divides the prices before that trade date by 4, and multiplies the volumes
    """
    allow_jumps: bool = False
    """accept overnight jumps that look like a share split"""
    seconds_tolerance: float = Field(default=0.001, ge=0, lt=1)
    """largest share of bars that their seconds may fail to rebuild; these bars are resolved
    stop_first, and counted
    """
    quotes_tolerance: float = Field(default=0.01, ge=0, lt=1)
    """largest share of bars that may lack a bid or an ask; these bars are left out, and counted"""
    start: Day | None = None
    """first trade date, YYYY-MM-DD"""
    end: Day | None = None
    """last trade date, YYYY-MM-DD"""
    calendar: str = "table"
    """'table', 'infer', or a calendar file"""
    windows: Literal["auto", "slices", "table"] = "auto"
    """how observations find their windows of bars: slices of the features, or rows of a table, the
    same values in far more memory (about 1 KB a bar); auto: a table on a TPU, slices elsewhere
    """
    window_reset: Literal["hole", "session"] = "hole"
    """feature windows restart after a hole longer than one session, or with every trade date"""
    synthetic: Literal[
        "nq_like", "trend", "mean_reversion", "planted", "martingale", "phase_randomised"
    ] = "nq_like"
    """the kind of synthetic market (source: synthetic)"""
    synthetic_sessions: Count = declare_bounds(40, 2, 5000)
    """sessions; phase_randomised: fewer where the copied bars have fewer"""
    synthetic_seed: FromZero = 0
    """seed of the synthetic bars"""
    synthetic_drift: float | None = None
    """trend: expected ticks per bar; None: 0.05"""
    synthetic_pull: float | None = None
    """mean_reversion: strength, in (0, 1]; None: 0.4"""

    @property
    def files(self) -> dict[str, str]:
        """Key -> the file that it names, for all files that a market's bars are made from."""
        calendar = None if self.calendar in ("table", "infer") else self.calendar
        known = {
            "file": self.file,
            "quotes": self.quotes,
            "seconds": self.seconds,
            "conversion": self.conversion,
            "calendar": calendar,
        }
        return {key: path for key, path in known.items() if path is not None}

    @model_validator(mode="after")
    def _possible(self) -> DataConfig:
        check_set(self)
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError(
                f"data.start = {self.start} is after data.end = {self.end}; no bar can lie between them"
            )
        if self.roll != "off" and self.expiry is not None:
            raise ValueError(
                f"data.expiry = {self.expiry} reads one contract and data.roll splices several; "
                "give one of the two"
            )
        if self.roll != "off" and self.splits:
            raise ValueError(
                "data.splits adjusts the prices of one share, and data.roll splices several contracts; "
                "give one of the two"
            )
        return self


class SessionConfig(Section, frozen=True):
    """The daily window of decisions, in exchange time (New York)."""

    overnight: bool = False
    """futures: decide 18:00-16:59 instead of 09:30-16:59"""


class SplitConfig(Section, frozen=True):
    """Sessions held out, counted from the data's end, in time order: train, validation, test.

    None: if all three are None they follow from the number of sessions (`config.run`), else
        they are 0, 1 and 0.
    """

    validation_sessions: FromZero | None = None
    """sessions that score the policy during training (control.evaluate_every) and at gates; null:
    as the default protocol chooses, or 0 where another key of this section is given
    """
    test_sessions: FromZero | None = None
    """sessions for the evaluation at the end of a run; null: as the default protocol chooses, or 1
    where another key of this section is given
    """
    embargo_sessions: FromZero | None = None
    """sessions dropped before each held-out block; null: as the default protocol chooses, or 0
    where another key of this section is given
    """

    @property
    def automatic(self) -> bool:
        """Whether the default protocol chooses the split."""
        return all(value is None for _, value in self)

    @property
    def without_validation(self) -> str | None:
        """Why validation sessions are not certain before the data are read; None if they are."""
        if self.validation_sessions:
            return None
        if self.validation_sessions == 0:
            return "split.validation_sessions is 0"
        return "split.validation_sessions is not given" + (
            ", and the default split has none of fewer than 100 sessions"
            if self.automatic
            else ", which means 0 where another key of split is given"
        )


class AccountConfig(Section, frozen=True):
    """An account preset, and the user's changes to it, in dollars; `off` switches a rule off."""

    preset: str = "apex_like_50k_2025"
    """the account's rules, by name; the keys below change them, and null keeps the preset's own"""
    drawdown: float | Literal["off"] | None = None
    """dollars that the floor stays below the high-water mark"""
    trailing: Literal["intraday", "end_of_day", "static"] | None = None
    """when the high-water mark, which the drawdown floor follows, may rise: intraday with live
    equity, end_of_day at a session's end, static never
    """
    daily_loss: float | Literal["off"] | None = None
    """dollars that a trade date may lose"""
    profit_target: float | Literal["off"] | None = None
    """dollars of profit that pass the account"""
    freeze: Literal["never", "at_start_plus_100", "at_target"] | None = None
    """where the drawdown floor stops rising: never, at the start balance + $100, or at the start
    balance + profit target - drawdown
    """
    on_target: Literal["terminate", "continue"] | None = None
    """whether the episode ends when the profit target is reached"""
    on_daily_loss: Literal["lock_until_next_session", "fail"] | None = None
    """what follows the daily loss: no entries until the next session, or the end of the account"""
    min_days: int | None = declare_bounds(None, 0, 100_000)
    """trade dates with a trade before the profit target passes the account"""
    max_contracts: int | None = declare_bounds(None, 1, 100_000)
    """contracts that may be held at once; ten micros count as one"""


class CostConfig(Section, frozen=True):
    """Trading costs. None uses the contract's own value."""

    commission: NotNegative | None = None
    """money per side per contract, all-in"""
    slippage: int | None = declare_bounds(None, 0, 10_000)
    """ticks against us per market or stop fill"""


class BracketConfig(Section, frozen=True):
    """Stops and targets.

    `_atr`: multiples of the average true range of 14 bars, with at most three decimals.
    """

    stop_atr: Atrs = 1.5
    """distance of the stop in ATRs, e.g. 1.5"""
    target_multiple: int = declare_bounds(3, 1, 10_000)
    """target distance over stop distance"""
    trail_atr: Atrs = 1.0
    """distance of a trailing stop in ATRs"""
    min_stop_ticks: int | None = declare_bounds(None, 1, 1_000_000)
    """least distance of a stop in ticks; None: the contract's"""
    be_ticks: int | None = declare_bounds(None, 0, 1_000_000)
    """break-even stop past the entry; None: 1 tick (0.25 points with env.scaling=seed)"""

    @property
    def stop_thousandths(self) -> int:
        """`stop_atr` in thousandths of an ATR. The market computes in whole numbers."""
        return round(1000 * self.stop_atr)

    @property
    def trail_thousandths(self) -> int:
        """`trail_atr` in thousandths of an ATR."""
        return round(1000 * self.trail_atr)


class GuardsConfig(Section, frozen=True):
    """Rules of your own about when a position may be opened. 0 switches a rule off."""

    trades_per_day: int = declare_bounds(0, 0, 100_000)
    """positions that may be opened in a session; 0: no limit"""
    cooldown: int = declare_bounds(0, 0, 100_000)
    """bars that must pass after a trade before the next one is decided"""
    cooldown_after_loss: int = declare_bounds(0, 0, 100_000)
    """the same after a trade that is not won, where it is longer"""
    daily_stop: float = declare_bounds(0.0, 0, 1_000_000)
    """dollars that a session may lose before nothing more is opened in it; 0: no limit"""
    daily_goal: float = declare_bounds(0.0, 0, 1_000_000)
    """dollars that a session earns before nothing more is opened in it; 0: no limit"""

    @property
    def on(self) -> bool:
        """Whether there is any rule."""
        return self != GuardsConfig()


class EnvConfig(Section, frozen=True):
    """The static half of the environment. A change of these keys compiles a new program."""

    task: Annotated[str, name_in(TASKS)] = "manage"
    """entry, manage, advised, allocate (several symbols in one account), or a registered task;
    advised: the actions of manage, plus the bar's context and the account's record in the
    observation
    """
    advice: bool = False
    """add seven slots of advice to the observation, one of which says whether there is any; not
    with entry and manage
    """
    actions: Literal["full", "seed6"] = "full"
    """of manage and advised: full includes CLOSE; seed6 leaves it out, as RL-Trainer does"""
    scaling: Literal["relative", "seed"] = "relative"
    """relative, or seed: the raw values that RL-Trainer's observation shows"""
    fill: Literal["next_open", "close"] = "next_open"
    """price of market orders: the next open, or this close (optimistic; only with env.mark=close)
    """
    mark: Literal["extreme", "close"] = "extreme"
    """prices at which drawdown is marked: the bar's extremes, or its close (optimistic)"""
    intrabar: Literal["stop_first", "nearer_extreme", "path"] = "stop_first"
    """order of prices inside a bar: the stop before the target; the extreme nearer to the open
    first; path: as the second bars say (data.seconds)
    """
    window: int = declare_bounds(20, 1, 512)
    """bars of history in the observation"""
    features: Names = ("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr")
    """feature columns of each window bar"""
    quantity: int = declare_bounds(1, 1, 100_000)
    """contracts per entry"""
    random_start: bool = True
    """start training episodes anywhere in a session"""
    # Left out of files and digests while it is off, so that those of earlier versions are today's.
    guards: GuardsConfig = Field(default=GuardsConfig(), exclude_if=lambda guards: not guards.on)

    @model_validator(mode="after")
    def _possible(self) -> EnvConfig:
        if self.joint and self.guards.on:
            raise ValueError(
                "env.guards are rules for tasks of one symbol; env.task=allocate has allocate.cooldown and "
                "allocate.trades_per_day"
            )
        if self.fill == "close" and self.mark != "close":
            raise ValueError(
                "fill=close exists only together with mark=close (set env.mark=close); "
                "reports label the pair 'optimistic'"
            )
        if self.advice and self.task in ("entry", "manage"):
            raise ValueError(
                f"env.advice=true needs env.task=advised, found {self.task}: entry and manage show no "
                "advice (a task of your own may)"
            )
        return self

    @property
    def optimistic(self) -> bool:
        """Whether fills or marks are better than a real market would give. Every report says so."""
        return self.fill == "close" or self.mark == "close"

    @property
    def joint(self) -> bool:
        """Whether one account holds several symbols at a time, as that of `allocate` does."""
        return self.task == "allocate"


class EpisodeConfig(Section, frozen=True):
    """How long an episode runs."""

    sessions: int = Field(default=1, ge=1, lt=2**31)
    """sessions in a row that an episode lasts at most"""
    max_steps: int = Field(default=0, ge=0, lt=2**31)
    """0: no step limit"""


class RewardConfig(Section, frozen=True):
    """A named composition of reward terms, and weights that override it.

    A term without a weight is not compiled.

    The default has one term: the change of equity in account risk units.
    """

    preset: str = "equity_change"
    """a composition of reward terms, by name"""
    weights: dict[str, float] = Field(default_factory=dict)
    """reward term -> weight, over the preset's"""
