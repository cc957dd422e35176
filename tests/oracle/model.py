"""What the oracle is given, what it remembers and what it reports, as plain data. Money in mills,
prices in ticks.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxtrade.env.state import EndReason, ExitReason, StopKind
from tests.paths import Inside

HOLD, BUY, SELL, MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, DISABLE_TRAIL, CLOSE = range(7)


def sign(number):
    return (number > 0) - (number < 0)


def better(side, one, other):
    """The price that a position of `side` would rather have."""
    return max(one, other) if side > 0 else min(one, other)


@dataclass(frozen=True)
class Session:
    """Rows: feature bars [start, end), decision bars first..last, flat bar last+1 (last bar of data
    if incomplete).
    """

    start: int
    end: int
    first: int
    last: int
    complete: bool = True


@dataclass(frozen=True)
class Ask:
    """The ask side of two-sided bars, in ticks; the bars' own prices are then the bid."""

    open: Sequence[int]
    high: Sequence[int]
    low: Sequence[int]
    close: Sequence[int]
    paths: Sequence[Inside] = ()


@dataclass(frozen=True)
class Bars:
    """A market as the oracle sees it: ticks, UTC seconds of bar opens, and the calendar's facts per
    bar.
    """

    open: Sequence[int]
    high: Sequence[int]
    low: Sequence[int]
    close: Sequence[int]
    volume: Sequence[float]
    stamps: Sequence[int]
    bar_seconds: int
    window_open: Sequence[int]  # UTC second at which the decision window of the bar's session opens
    flat_time: Sequence[int]  # UTC second at which the bar's session must be flat
    window_minutes: int  # of an ordinary day, opening to 16:59
    trade_date: Sequence[int]  # days since 1970-01-01
    sessions: Sequence[Session]
    restarts: Sequence[int] = ()
    has_volume: bool = True
    paths: Sequence[Inside] = ()  # the seconds inside each bar, where they are known
    rates: Sequence[tuple[int, int]] = ()  # per bar: mills of a tick as numerator and denominator
    ask: Ask | None = None

    @functools.cached_property
    def mid(self):
        """What features and observations see: the middle of bid and ask, rounded down."""
        ask = self.ask
        if ask is None:
            return self
        prices = {
            name: [
                (a + b) // 2 for a, b in zip(getattr(self, name), getattr(ask, name), strict=True)
            ]
            for name in ("open", "high", "low", "close")
        }
        return replace(self, ask=None, **prices)


@dataclass(frozen=True)
class Settings:
    """Everything an environment is given. Money in mills, None where a rule is off; multiples in
    thousandths.
    """

    task: str = "manage"
    advice: bool = False
    actions: str = "full"
    fill: str = "next_open"
    mark: str = "extreme"
    intrabar: str = "stop_first"
    tick_size: float = 0.25
    tick_mills: int = 12_500
    converted: bool = False  # money of a tick by the bars' rates instead of tick_mills
    commission: int = 2_080
    slippage: int = 1
    min_stop: int = 8
    be_ticks: int = 1
    stop_atr: int = 1_500
    target_multiple: int = 3
    trail_atr: int = 1_000
    quantity: int = 1
    drawdown: int | None = 2_500_000
    daily_loss: int | None = None
    target: int | None = 3_000_000
    floor_cap: int | None = None
    min_days: int = 0
    stop_at_target: bool = True
    fail_on_daily_loss: bool = False
    trailing: str = "intraday"
    risk_unit: float = 2_500_000.0
    start_balance: float = 50_000_000.0
    reward: Mapping[str, float] = field(
        default_factory=lambda: {"equity_change": 1.0}
    )  # term -> weight
    episode_sessions: int = 1
    max_steps: int = 0
    window: int = 20
    features: tuple[str, ...] = (
        "close",
        "volume",
        "sma_5",
        "sma_20",
        "rsi",
        "macd",
        "momentum",
        "atr",
    )
    session_slots: tuple[
        int, ...
    ] = ()  # the split: rows of the session list; all of them where empty

    @property
    def num_actions(self):
        return 3 if self.task == "entry" else (6 if self.actions == "seed6" else 7)


@dataclass(frozen=True)
class Order:
    """What is wanted from the next open on; None leaves the stop (or the trail) as it is."""

    quantity: int
    stop_ticks: int = 0
    target_ticks: int = 0
    move_stop: int | None = None
    trail: bool | None = None


@dataclass
class Position:
    quantity: int = 0
    entry: int = 0
    stop: int | None = None
    target: int | None = None
    stop_kind: StopKind = StopKind.INITIAL
    trailing: bool = False
    opened: int = 0

    @property
    def side(self):
        return sign(self.quantity)


@dataclass
class Account:
    balance: int = 0
    equity: int = 0
    high_water: int = 0
    session_equity: int = 0
    locked: bool = False
    days: int = 0
    traded: bool = False


@dataclass
class Stats:
    """Episode figures, sums of what happened."""

    reward: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)
    length: int = 0
    trades: int = 0
    wins: int = 0
    sides: int = 0
    commission: int = 0
    illegal: int = 0
    breaches: int = 0
    peak: int = 0
    max_drawdown: int = 0


@dataclass
class Event:
    """One bar's fills. `kinds` are labels for counting, not part of the comparison.

    closed: (net profit in mills after both commissions, whether its trail was on) of each round
        turn closed.
    """

    order_exit_quantity: int = 0
    order_exit_price: int = 0
    entry_quantity: int = 0
    entry_price: int = 0
    exit_quantity: int = 0
    exit_price: int = 0
    exit_reason: ExitReason = ExitReason.NONE
    commission: int = 0
    favourable: int = 0
    adverse: int = 0
    floor: int | None = None
    breach: bool = False
    closed: list[tuple[int, bool]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Result:
    reward: float
    terms: dict[str, float]
    terminated: bool
    truncated: bool
    end: EndReason
    event: Event
