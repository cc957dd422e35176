"""A second `allocate` environment, in plain Python integers, to hold the JAX one against.

It was written from docs/semantics.md ("Several symbols in one account") and shares no code with
`jaxtrade.env`. Nothing can wrap: money is Python's int. Numbers in comments are those of that
section's points.
"""

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt

from tests.oracle.model import sign


def half_even(numerator, denominator):
    """Python's own rounding of a fraction."""
    return round(Fraction(numerator, denominator))


@dataclass(frozen=True)
class Side:
    """Prices of one side of one symbol's bars, in ticks."""

    open: Sequence[int]
    high: Sequence[int]
    low: Sequence[int]
    close: Sequence[int]


@dataclass(frozen=True)
class Symbol:
    """One symbol's own bars. stamps: of opens. rates: mills of one tick as (numerator,
    denominator), per bar.

    sessions: date -> (first decision row, row of the flat bar). warm: whether 14 true ranges exist,
        per bar.
    """

    stamps: Sequence[int]
    bid: Side
    ask: Side
    rates: Sequence[tuple[int, int]]
    to_flat: Sequence[int]
    warm: Sequence[bool]
    sessions: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Shared:
    """The shared bars: one Symbol per symbol, all with the same stamps, and rows of their sessions
    (first, flat).
    """

    symbols: Sequence[Symbol]
    sessions: Sequence[tuple[int, int]]
    rows: Sequence[Sequence[int]]  # [symbol][shared bar]: the symbol's own row


def join(symbols):
    """Points 1 to 4."""
    dates = sorted(set.intersection(*(set(s.sessions) for s in symbols)))
    columns = [collections.defaultdict(list) for _ in symbols]
    sessions, count = [], 0
    for date in dates:
        ranges = [s.sessions[date] for s in symbols]
        known = [
            {s.stamps[row]: row for row in range(first, flat + 1)}
            for s, (first, flat) in zip(symbols, ranges, strict=True)
        ]
        stamps = sorted(set.intersection(*(set(each) for each in known)))
        if len(stamps) < 2:
            continue
        sessions.append((count, count + len(stamps) - 1))
        count += len(stamps)
        for s, rows_of, out in zip(symbols, known, columns, strict=True):
            before = rows_of[stamps[0]] - 1
            for stamp in stamps:
                row = rows_of[stamp]
                inside = range(before + 1, row + 1)
                for name in ("bid", "ask"):
                    side = getattr(s, name)
                    out[f"{name}.open"].append(side.open[inside[0]])
                    out[f"{name}.high"].append(max(side.high[i] for i in inside))
                    out[f"{name}.low"].append(min(side.low[i] for i in inside))
                    out[f"{name}.close"].append(side.close[row])
                out["stamps"].append(stamp)
                out["rates"].append(s.rates[inside[0]])
                out["to_flat"].append(s.to_flat[row])
                out["warm"].append(s.warm[row])
                out["rows"].append(row)
                before = row
    joined = [
        Symbol(
            out["stamps"],
            *(
                Side(*(out[f"{side}.{price}"] for price in ("open", "high", "low", "close")))
                for side in ("bid", "ask")
            ),
            out["rates"],
            out["to_flat"],
            out["warm"],
            {},
        )
        for out in columns
    ]
    return Shared(joined, sessions, [out["rows"] for out in columns])


@dataclass(frozen=True)
class Settings:
    """What the environment is given: money in mills, None where a rule is off."""

    actions: str = "product"
    size: Sequence[int] = (1,)
    max_units: int = 1
    max_total: int | None = None
    max_contracts: int = 100
    cooldown: int = 0
    trades_per_day: int | None = None
    gate: int = 1
    commission: Sequence[int] = (0,)
    slippage: Sequence[int] = (0,)
    cost_hundredths: int = 0  # hundredths of a basis point
    impact_tenths: int = 0  # tenths of a basis point
    impact_base: int = 100_000_000
    fee: int = 0
    drawdown: int | None = None
    daily_loss: int | None = None
    target: int | None = None
    floor_cap: int | None = None
    fail_on_daily_loss: bool = False
    trailing: str = "intraday"
    min_days: int = 0
    episode_sessions: int = 1
    max_steps: int = 0
    risk_unit: float = 1_000_000.0


@dataclass
class Leg:
    quantity: int = 0
    paid: int = 0
    mark: int = 0


@dataclass
class Bar:
    """What happened in a bar. cash, cost, profit: per symbol, mills. fills: (symbol, signed change,
    price, why).
    """

    cash: list[int]
    cost: list[int]
    profit: list[int]
    fills: list[tuple[int, int, int, str]] = field(default_factory=list)
    turnover: int = 0
    breach: bool = False
    floor: int | None = None


class PortfolioOracle:
    """One environment; `reset` before `step`, no automatic reset."""

    def __init__(self, market, settings):
        self.market, self.settings, self.count = market, settings, len(market.symbols)
        self.reset(0, market.sessions[0][0])

    def reset(self, session, row):
        self.session, self.row, self.time = session, row, 0
        self.left = self.settings.episode_sessions - 1
        self.legs = [Leg() for _ in range(self.count)]
        self.balance = self.equity = self.high_water = self.session_equity = 0
        self.locked = self.traded = False
        self.days = self.orders_today = 0
        self.last_order = None

    # ------------------------------------------------------------------------------------------------------- figures
    def size(self, s):
        return self.of(self.settings.size, s)

    def of(self, values, s):
        return values[s] if len(values) > 1 else values[0]

    def money(self, s, row, ticks):
        times, over = self.market.symbols[s].rates[row]
        return half_even(ticks * times, over)

    def worth(self, s, row, price):
        leg = self.legs[s]
        return self.money(s, row, leg.quantity * price - leg.paid)

    def leaving(self, s, side):
        symbol = self.market.symbols[s]
        return symbol.ask if side < 0 else symbol.bid

    def price(self, s, name):
        """A price of the bar `row` at which the leg is marked."""
        side = sign(self.legs[s].quantity)
        return getattr(self.leaving(s, side), name)[self.row]

    def cost(self, s, row, contracts, price):
        """Points 8 and 9."""
        if contracts == 0:
            return 0
        settings = self.settings
        notional = self.notional(s, row, contracts, price)
        root = isqrt(half_even(notional * 10**8, settings.impact_base))
        rate = 1000 * settings.cost_hundredths + settings.impact_tenths * root
        return (
            contracts * self.of(settings.commission, s)
            + settings.fee
            + half_even(notional * rate, 10**9)
        )

    def notional(self, s, row, contracts, price):
        return abs(self.money(s, row, contracts * price))

    def floor(self):
        loss = self.settings.daily_loss
        daily = None if loss is None else self.session_equity - loss
        floors = [floor for floor in (self.drawdown_floor(), daily) if floor is not None]
        return max(floors, default=None)

    def drawdown_floor(self):
        if self.settings.drawdown is None:
            return None
        mark = self.high_water - self.settings.drawdown
        return mark if self.settings.floor_cap is None else min(mark, self.settings.floor_cap)

    # ------------------------------------------------------------------------------------------------------- actions
    def wanted(self, action):
        """Units of each symbol after an action."""
        settings = self.settings
        now = [leg.quantity // self.size(s) for s, leg in enumerate(self.legs)]
        if settings.actions == "increment":
            if action:
                now[(action - 1) // 2] += 1 if action % 2 else -1
            return now
        side = {0: 0, 1: 1, 2: -1}
        if settings.actions == "table":
            return [side[action] * settings.max_units] * self.count
        digits = []
        for _ in range(self.count):
            digits.append(side[action % 3] * settings.max_units)
            action //= 3
        return digits[::-1]

    @property
    def num_actions(self):
        return {"product": 3**self.count, "increment": 2 * self.count + 1, "table": 3}[
            self.settings.actions
        ]

    def change(self, action):
        """Contracts of each symbol before and after an action, and how many symbols differ."""
        held = [leg.quantity for leg in self.legs]
        want = [u * self.size(s) for s, u in enumerate(self.wanted(action))]
        return held, want, sum(a != b for a, b in zip(want, held, strict=True))

    def mask(self):
        return [self.legal(action) for action in range(self.num_actions)]

    def legal(self, action):
        settings, first = self.settings, self.market.sessions[self.session][0]
        held, want, changed = self.change(action)
        if not changed:
            return True
        if self.last_order is not None and self.row - self.last_order <= settings.cooldown:
            return False
        if (self.row - first) % settings.gate:
            return False
        if (
            settings.trades_per_day is not None
            and self.orders_today + changed > settings.trades_per_day
        ):
            return False
        opens = any(abs(a) > abs(b) or a * b < 0 for a, b in zip(want, held, strict=True))
        if not opens:
            return True
        ready = all(s.to_flat[self.row] >= 2 and s.warm[self.row] for s in self.market.symbols)
        units = [abs(u) for u in self.wanted(action)]
        within = (
            max(units) <= settings.max_units
            and sum(abs(q) for q in want) <= settings.max_contracts
            and (settings.max_total is None or sum(units) <= settings.max_total)
        )
        return ready and not self.locked and within

    # ---------------------------------------------------------------------------------------------------------- fills
    def fill(self, bar, s, change, price, why, cost=None):
        """A fill of `change` signed contracts that only opens or only closes."""
        leg, row = self.legs[s], self.row
        if change == 0:
            return
        if leg.quantity * change < 0:
            closed = min(abs(change), abs(leg.quantity))
            taken = half_even(leg.paid * closed, abs(leg.quantity))
            profit = self.money(s, row, -change * price - taken)
            leg.paid -= taken
        else:
            profit = 0
            leg.paid += change * price
        leg.quantity += change
        paid = self.cost(s, row, abs(change), price) if cost is None else cost
        bar.cash[s] += profit - paid
        bar.cost[s] += paid
        bar.turnover += self.notional(s, row, abs(change), price)
        bar.fills.append((s, change, price, why))

    def trade(self, bar, s, want):
        """Point 6."""
        held, row = self.legs[s].quantity, self.row
        side = sign(held)
        keep = (
            want if want * held > 0 and abs(want) < abs(held) else (held if want * held > 0 else 0)
        )
        slip = self.of(self.settings.slippage, s)
        self.fill(bar, s, keep - held, self.leaving(s, side).open[row] - side * slip, "order")
        side = sign(want)
        self.fill(
            bar,
            s,
            want - self.legs[s].quantity,
            self.leaving(s, -side).open[row] + side * slip,
            "order",
        )

    def leave(self, bar, s, price, why, cost=None):
        held = self.legs[s].quantity
        side = sign(held)
        self.fill(bar, s, -held, price - side * self.of(self.settings.slippage, s), why, cost)

    def net(self, bar, prices, exits):
        return (
            self.balance
            + sum(bar.cash)
            + sum(self.worth(s, self.row, p) for s, p in enumerate(prices))
            - sum(exits)
        )

    def rise(self, equity):
        if self.settings.trailing == "intraday" or self.settings.drawdown is None:
            self.high_water = max(self.high_water, equity)

    def liquidate(self, bar):
        """Points 11 to 14."""
        everyone = range(self.count)
        opens = [self.price(s, "open") for s in everyone]
        exits = [self.cost(s, self.row, abs(self.legs[s].quantity), opens[s]) for s in everyone]
        floor, held = self.floor(), any(leg.quantity for leg in self.legs)
        if held and floor is not None and self.net(bar, opens, exits) <= floor:
            for s in everyone:
                self.leave(bar, s, opens[s], "liquidation", exits[s])
            held = False
        best = [self.price(s, "high" if self.legs[s].quantity > 0 else "low") for s in everyone]
        worst = [self.price(s, "low" if self.legs[s].quantity > 0 else "high") for s in everyone]
        self.rise(
            self.balance + sum(bar.cash) + sum(self.worth(s, self.row, best[s]) for s in everyone)
        )
        floor = self.floor()
        if not held or floor is None or self.net(bar, worst, exits) > floor:
            return
        sides = [sign(leg.quantity) for leg in self.legs]
        far = [abs(o - w) if side else 0 for o, w, side in zip(opens, worst, sides, strict=True)]
        most = max(far)
        for step in range(most + 1):  # one by one: the first step that meets the floor
            at = [
                o - side * (-(-d * step // most) if most else 0)
                for o, d, side in zip(opens, far, sides, strict=True)
            ]
            if self.net(bar, at, exits) <= floor:
                break
        for s in everyone:
            self.leave(bar, s, at[s], "liquidation", exits[s])

    # ----------------------------------------------------------------------------------------------------------- step
    def step(self, action):
        """One decision -> reward, end, terminated, truncated, bar."""
        settings, everyone = self.settings, range(self.count)
        legal = self.legal(action)
        held, want, changed = self.change(action)
        if not legal:
            want, changed = held, 0
        if changed:
            self.last_order, self.orders_today = self.row, self.orders_today + changed
        before, marks = self.equity, [leg.mark for leg in self.legs]
        self.row, self.time = self.row + 1, self.time + 1
        bar = Bar([0] * self.count, [0] * self.count, [0] * self.count)
        self.rise(
            self.balance + sum(self.worth(s, self.row, self.price(s, "open")) for s in everyone)
        )
        for s in everyone:
            self.trade(bar, s, want[s])
        self.liquidate(bar)
        flat = self.row == self.market.sessions[self.session][1]
        if flat:
            for s in everyone:
                self.leave(bar, s, self.price(s, "close"), "flat")
        self._settle(bar, marks)
        end = self._end(flat)
        result = {
            "reward": (self.equity - before) / settings.risk_unit,
            "end": end,
            "bar": bar,
            "illegal": not legal,
            "terminated": end not in ("", "steps"),
            "truncated": end == "steps",
        }
        if flat and not end:
            self._next_session()
        return result

    def _settle(self, bar, marks):
        settings = self.settings
        for s, leg in enumerate(self.legs):
            leg.mark = self.worth(s, self.row, self.price(s, "close"))
            bar.profit[s] = bar.cash[s] + leg.mark - marks[s]
        self.balance += sum(bar.cash)
        self.equity = self.balance + sum(leg.mark for leg in self.legs)
        if bar.fills and not self.traded:
            self.days, self.traded = self.days + 1, True
        bar.floor = self.drawdown_floor()
        self.busted = bar.floor is not None and self.equity <= bar.floor
        self.at_daily = (
            settings.daily_loss is not None
            and self.equity <= self.session_equity - settings.daily_loss
        )
        bar.breach = self.busted or (self.at_daily and not self.locked)
        self.locked |= self.at_daily

    def _end(self, flat):
        settings = self.settings
        still = not any(leg.quantity for leg in self.legs)
        if self.busted:
            return "bust"
        if self.at_daily and settings.fail_on_daily_loss:
            return "daily"
        if (
            settings.target is not None
            and still
            and self.balance >= settings.target
            and self.days >= settings.min_days
        ):
            return "target"
        if flat and (self.left == 0 or self.session + 1 == len(self.market.sessions)):
            return "session"
        return "steps" if settings.max_steps and self.time >= settings.max_steps else ""

    def _next_session(self):
        self.session, self.left = self.session + 1, self.left - 1
        self.row = self.market.sessions[self.session][0]
        if self.settings.trailing == "end_of_day" and self.settings.drawdown is not None:
            self.high_water = max(self.high_water, self.equity)
        self.session_equity, self.locked, self.traded = self.equity, False, False
        self.orders_today, self.last_order = 0, None
