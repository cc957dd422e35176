"""Sections about trading: bars, sessions, account, costs, the environment and its reward."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from jaxtrade.config.base import Atrs, Count, Names, Section
from jaxtrade.config.symbols import Splits, capital_keys, capitals, check_set, of_symbols
from jaxtrade.errors import ConfigError
from jaxtrade.parts import TASKS


def _roll(value: object) -> str | dict[str, str]:
    """Validate `data.roll`: `off`, `volume`, or a mapping expiry -> first trade date (`start` for
    the first).
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
        try:
            fits = date.fromisoformat(text).isoformat() == text
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"'{text}' is not a date; write YYYY-MM-DD")
    for before, after in pairwise(dates):
        if after <= before:
            raise ValueError(f"first trade dates must increase: {after} follows {before}")
    return firsts


def _task(name: str) -> str:
    """Raises ValueError, which pydantic expects, if there is no task with this name."""
    try:
        return TASKS.check(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _day(text: str) -> str:
    """A trade date as it is written. Raises ValueError if it is none."""
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
        raise ValueError("other forms are not read")
    except ValueError as error:
        raise ValueError(f"not a date ({error}); write YYYY-MM-DD, e.g. 2013-10-07") from None


Day = Annotated[str, AfterValidator(_day)]
# YAML reads an expiry such as 201312 as an int.
Code = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
Roll = Literal["off", "volume"] | dict[str, str]


# Keys of `DataConfig` that only say where a file is: its content is in the market's fingerprint, or
# in the contract.
PLACES = frozenset(("contract", "file", "folder", "seconds", "conversion", "quotes"))


class DataConfig(Section, frozen=True):
    """Where the bars come from. Zone, stamp side and price scale are given or known, never
    guessed.
    """

    market: str = Field(default="ES", description="contract symbol, e.g. ES, NQ, EURUSD")
    markets: Annotated[Names, AfterValidator(capitals)] = Field(
        default=(),
        description="several symbols, one per environment (or all of them at once, env.task=allocate), "
        "e.g. [EURUSD,USDJPY]; empty: data.market alone",
    )
    folder: str | None = Field(
        default=None,
        description="source: file: the folder that holds one file of bars per "
        "symbol of data.markets, named after it (EURUSD*.csv.gz)",
    )
    per_market: Annotated[
        dict[str, dict[str, str | int | float | bool | dict[str, str]]],
        BeforeValidator(of_symbols),
        AfterValidator(capital_keys),
    ] = Field(
        default_factory=dict,
        description="symbol -> keys of this section for its bars alone, e.g. {USDJPY: "
        "{price_scale: 0.001}}",
    )
    contract: str | None = Field(
        default=None,
        description="your own contract: a YAML file, or a shipped one such as "
        "SPY; its symbol is the market, whatever data.market says",
        examples=["SPY"],
    )
    source: Literal["bundled", "synthetic", "file"] = Field(
        default="bundled",
        description="bundled: the real bars that the package has; synthetic: generated bars; file: "
        "yours (data.file)",
    )
    file: str | None = Field(
        default=None,
        description="CSV, CSV.gz or Parquet of bars (source: file)",
        examples=["bars.csv", "data.source=file"],
    )
    seconds: str | None = Field(
        default=None,
        description="second bars of the same instrument, read with the same "
        "keys; they tell the order of prices inside a bar (env.intrabar: path)",
        examples=["seconds.csv"],
    )
    conversion: str | None = Field(
        default=None,
        description="bars of the rate to the dollar, for markets whose "
        "profits arise in another currency; read with data.time_zone and data.stamp",
        examples=["usdjpy.csv"],
    )
    quotes: str | None = Field(
        default=None,
        description="bid and ask bars of the same instrument, read with the same "
        "keys; they give the prices, data.file gives the volume",
        examples=["quotes.csv"],
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="field -> column name: time, open, high, low, "
        "close, volume, expiry, symbol; bid_open .. ask_close of two-sided bars",
        examples=["{time: Timestamp, close: Last}"],
    )
    time_zone: str | None = Field(
        default=None,
        description="IANA zone of stamps that carry no offset, with a "
        "fixed shift where needed (America/New_York+7h)",
        examples=["America/New_York"],
    )
    stamp: Literal["open", "close"] | None = Field(
        default=None, description="the side of a bar that its stamp names"
    )
    date_order: Literal["mdy", "dmy"] | None = Field(
        default=None,
        description="of dates such as 10/07/2013: month or "
        "day first; None: a day above 12 in the file must show it",
        examples=["dmy"],
    )
    price_scale: float = Field(
        default=1.0, gt=0, description="points per unit of the file (0.0001 for x10000)"
    )
    expiry: Code | None = Field(
        default=None,
        description="the one contract to use of a file with expiries",
        examples=["201312"],
    )
    roll: Annotated[Roll, PlainValidator(_roll)] = Field(
        default="off",
        description="splice the expiries of a file: off, volume (the one that traded more on the trade "
        "date before), or {201312: start, 201403: 2013-12-18} (expiry: first trade date)",
        examples=["volume"],
    )
    splice: Literal["restart", "back_adjust"] = Field(
        default="restart",
        description="what feature windows do at a splice; back_adjust is refused: it is not built",
        examples=["restart"],
    )
    splits: Splits = Field(
        default=(),
        description="share splits that the file's prices do not allow for yet: "
        "[{date: 2020-08-31, ratio: 4}] divides the prices before that trade date by 4, and "
        "multiplies the volumes",
    )
    allow_jumps: bool = Field(
        default=False, description="accept overnight jumps that look like a share split"
    )
    seconds_tolerance: float = Field(
        default=0.001,
        ge=0,
        lt=1,
        description="largest share of bars that their seconds "
        "may fail to rebuild; these bars are resolved stop_first, and counted",
    )
    quotes_tolerance: float = Field(
        default=0.01,
        ge=0,
        lt=1,
        description="largest share of bars that may lack a bid "
        "or an ask; these bars are left out, and counted",
    )
    start: Day | None = Field(
        default=None, description="first trade date, YYYY-MM-DD", examples=["2013-10-07"]
    )
    end: Day | None = Field(
        default=None, description="last trade date, YYYY-MM-DD", examples=["2013-10-11"]
    )
    calendar: str = Field(default="table", description="'table', 'infer', or a calendar file")
    windows: Literal["auto", "slices", "table"] = Field(
        default="auto",
        description="how observations find their windows of bars: slices of the features, or rows of a "
        "table, the same values in far more memory (about 1 KB a bar); auto: a table on a TPU, slices elsewhere",
    )
    window_reset: Literal["hole", "session"] = Field(
        default="hole",
        description="feature windows restart after a hole "
        "longer than one session, or with every trade date",
    )
    synthetic: Literal["nq_like", "trend", "mean_reversion", "martingale", "phase_randomised"] = (
        Field(default="nq_like", description="the kind of synthetic market (source: synthetic)")
    )
    synthetic_sessions: Count = Field(
        default=40,
        ge=2,
        le=5000,
        description="sessions; phase_randomised: fewer where the copied bars have fewer",
    )
    synthetic_seed: int = Field(default=0, ge=0, description="seed of the synthetic bars")
    synthetic_drift: float | None = Field(
        default=None, description="trend: expected ticks per bar; None: 0.05", examples=["0.1"]
    )
    synthetic_pull: float | None = Field(
        default=None, description="mean_reversion: strength, in (0, 1]; None: 0.4", examples=["0.4"]
    )

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
    def _set_of_symbols(self) -> DataConfig:
        check_set(self)
        return self

    @model_validator(mode="after")
    def _in_order(self) -> DataConfig:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ValueError(
                f"data.start = {self.start} is after data.end = {self.end}; no bar can lie between them"
            )
        return self

    @model_validator(mode="after")
    def _one_series(self) -> DataConfig:
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
        if self.splice == "back_adjust":
            raise ValueError(
                "data.splice=back_adjust is not built: feature windows restart at a splice "
                "(data.splice=restart); prices are never adjusted"
            )
        return self


class SessionConfig(Section, frozen=True):
    """The daily window of decisions, in exchange time (New York)."""

    overnight: bool = Field(
        default=False, description="futures: decide 18:00-16:59 instead of 09:30-16:59"
    )


class SplitConfig(Section, frozen=True):
    """Sessions held out, counted from the end of the data, in time order: train, then validation,
    then test.

    None: if all three are None they follow from the number of sessions (`config.protocol`), else
        they are 0, 1 and 0.
    """

    validation_sessions: int | None = Field(
        default=None,
        ge=0,
        description="sessions that score the policy during "
        "training (control.evaluate_every) and at gates; null: as the default "
        "protocol chooses, or 0 where another key of this section is given",
    )
    test_sessions: int | None = Field(
        default=None,
        ge=0,
        description="sessions for the evaluation at the end of a "
        "run; null: as the default protocol chooses, or 1 where another key of this "
        "section is given",
    )
    embargo_sessions: int | None = Field(
        default=None,
        ge=0,
        description="sessions dropped before each held-out "
        "block; null: as the default protocol chooses, or 0 where another key of "
        "this section is given",
    )

    @property
    def automatic(self) -> bool:
        """Whether the default protocol chooses the split."""
        return (
            self.validation_sessions is None
            and self.test_sessions is None
            and self.embargo_sessions is None
        )

    @property
    def without_validation(self) -> str | None:
        """Why validation sessions are not certain before the data are read, in words; None if they
        are.
        """
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
    """An account preset, and the user's changes to it. Money is in dollars; `off` switches a rule
    off.
    """

    preset: str = Field(
        default="apex_like_50k_2025",
        description="the account's rules, by name; the keys below change "
        "them, and null keeps the preset's own",
    )
    drawdown: float | Literal["off"] | None = Field(
        default=None,
        description="dollars that the floor stays below the high-water mark",
        examples=["2000"],
    )
    trailing: Literal["intraday", "end_of_day", "static"] | None = Field(
        default=None,
        description="when the high-water mark, which the drawdown floor follows, may rise: "
        "intraday with live equity, end_of_day at a session's end, static never",
    )
    daily_loss: float | Literal["off"] | None = Field(
        default=None, description="dollars that a trade date may lose", examples=["1000"]
    )
    profit_target: float | Literal["off"] | None = Field(
        default=None, description="dollars of profit that pass the account", examples=["3000"]
    )
    freeze: Literal["never", "at_start_plus_100", "at_target"] | None = Field(
        default=None,
        description="where the drawdown floor stops rising: never, at the start balance + $100, or at "
        "the start balance + profit target - drawdown",
    )
    on_target: Literal["terminate", "continue"] | None = Field(
        default=None, description="whether the episode ends when the profit target is reached"
    )
    on_daily_loss: Literal["lock_until_next_session", "fail"] | None = Field(
        default=None,
        description="what follows the daily loss: no entries until the next session, or the end of the "
        "account",
    )
    min_days: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="trade dates with a trade before the profit target passes the account",
        examples=["5"],
    )
    max_contracts: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="contracts that may be held at once; ten micros count as one",
        examples=["2"],
    )


class CostConfig(Section, frozen=True):
    """Trading costs. None uses the contract's own value."""

    commission: float | None = Field(
        default=None, ge=0, description="money per side per contract, all-in", examples=["2.50"]
    )
    slippage: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="ticks against us per market or stop fill",
        examples=["1"],
    )


class BracketConfig(Section, frozen=True):
    """Stops and targets. `_atr`: multiples of the average true range of 14 bars, with at most three
    decimals.
    """

    stop_atr: Atrs = Field(default=1.5, description="distance of the stop in ATRs, e.g. 1.5")
    target_multiple: int = Field(
        default=3, ge=1, le=10_000, description="target distance over stop distance"
    )
    trail_atr: Atrs = Field(default=1.0, description="distance of a trailing stop in ATRs")
    min_stop_ticks: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="least distance of a stop in ticks; None: the contract's",
        examples=["8"],
    )
    be_ticks: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="break-even stop past the entry; None: "
        "1 tick (0.25 points with env.scaling=seed)",
        examples=["1"],
    )

    @property
    def stop_thousandths(self) -> int:
        """`stop_atr` in thousandths of an ATR. The market computes in whole numbers."""
        return round(1000 * self.stop_atr)

    @property
    def trail_thousandths(self) -> int:
        """`trail_atr` in thousandths of an ATR."""
        return round(1000 * self.trail_atr)


class EnvConfig(Section, frozen=True):
    """The static half of the environment. A change of these keys compiles a new program."""

    task: Annotated[str, AfterValidator(_task)] = Field(
        default="manage",
        description="entry, manage, advised, allocate (several symbols in one account), or a "
        "registered task; advised: the actions of manage, plus the bar's context and the account's record in the "
        "observation",
    )
    advice: bool = Field(
        default=False,
        description="add seven slots of advice to the observation, one of which says "
        "whether there is any; not with entry and manage",
        examples=["true", "env.task=advised"],
    )
    actions: Literal["full", "seed6"] = Field(
        default="full",
        description="of manage and advised: full includes CLOSE; "
        "seed6 leaves it out, as RL-Trainer does",
    )
    scaling: Literal["relative", "seed"] = Field(
        default="relative",
        description="relative, or seed: the raw values that RL-Trainer's observation shows",
    )
    fill: Literal["next_open", "close"] = Field(
        default="next_open",
        description="price of market orders: the next open, or this close (optimistic; only with "
        "env.mark=close)",
        examples=["close", "env.mark=close"],
    )
    mark: Literal["extreme", "close"] = Field(
        default="extreme",
        description="prices at which drawdown is marked: the bar's extremes, or its close "
        "(optimistic)",
    )
    intrabar: Literal["stop_first", "nearer_extreme", "path"] = Field(
        default="stop_first",
        description="order of prices inside a bar: the stop before the target; the extreme "
        "nearer to the open first; path: as the second bars say (data.seconds)",
    )
    window: int = Field(default=20, ge=1, le=512, description="bars of history in the observation")
    features: Names = Field(
        default=("close", "volume", "sma_5", "sma_20", "rsi", "macd", "momentum", "atr"),
        description="feature columns of each window bar",
    )
    quantity: int = Field(default=1, ge=1, le=100_000, description="contracts per entry")
    random_start: bool = Field(
        default=True, description="start training episodes anywhere in a session"
    )

    @model_validator(mode="after")
    def _optimistic_pairs(self) -> EnvConfig:
        if self.fill == "close" and self.mark != "close":
            raise ValueError(
                "fill=close exists only together with mark=close (set env.mark=close); "
                "reports label the pair 'optimistic'"
            )
        return self

    @model_validator(mode="after")
    def _shows_advice(self) -> EnvConfig:
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


class EpisodeConfig(Section, frozen=True):
    """How long an episode runs."""

    sessions: int = Field(
        default=1, ge=1, lt=2**31, description="sessions in a row that an episode lasts at most"
    )
    max_steps: int = Field(default=0, ge=0, lt=2**31, description="0: no step limit")


class RewardConfig(Section, frozen=True):
    """A named composition of reward terms, and weights that override it. A term without a weight is
    not compiled.

    The default has one term: the change of equity in account risk units.
    """

    preset: str = Field(
        default="equity_change", description="a composition of reward terms, by name"
    )
    weights: dict[str, float] = Field(
        default_factory=dict,
        description="reward term -> weight, over the preset's",
        examples=["{equity_change: 1.0, loss: -0.1}"],
    )
