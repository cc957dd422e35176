"""A second trading environment, in plain Python, to hold the JAX one against.

It was written from the written semantics alone and shares no code with `jaxtrade.env`: one
environment, one bar at a time, Python integers for ticks and mills (nothing can wrap), float64 for
observations, every indicator recomputed from the bars. Letters such as 5e in the comments name the
order of events within a bar:

5a mark at the open; 5b exit by order; 5c entry; 5d moved stop and trail switch; 5e the opening
print against stop, liquidation level and target; 5f favourable extreme, then floor, adverse
extreme, target; 5g flat bar; 5h mark at the close; 5i floors; 5j profit target; 5k trail ratchet,
live from the next bar.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from jaxtrade.env.state import EndReason, ExitReason, StopKind
from tests.oracle import rewards
from tests.oracle.features import features_of
from tests.oracle.model import (
    BUY,
    CLOSE,
    DISABLE_TRAIL,
    ENABLE_TRAIL,
    HOLD,
    MOVE_STOP_TO_BREAKEVEN,
    SELL,
    Account,
    Event,
    Order,
    Position,
    Result,
    Stats,
    better,
    sign,
)

REASON_OF_KIND = {
    StopKind.INITIAL: ExitReason.STOP,
    StopKind.BREAKEVEN: ExitReason.BREAKEVEN,
    StopKind.TRAIL: ExitReason.TRAIL,
}


def ceil_div(numerator, denominator):
    return -((-numerator) // denominator)


class OracleEnv:
    """One environment over `bars`; the caller resets it, no automatic reset."""

    def __init__(self, bars, settings):
        self.bars, self.settings = bars, settings
        self.slots = list(settings.session_slots) or list(range(len(bars.sessions)))
        self.mid = bars.mid
        self.features = features_of(self.mid, settings)
        self.tr_sum = self.features.tr_sum
        self.position, self.account, self.stats = Position(), Account(), Stats()
        self.row = self.slot = self.time = self.sessions_left = self.bar = 0
        self.done = True
        self.impact = 0  # ticks that orders at the open fill higher (`tests.oracle.shared`)
        self._forget()

    # ------------------------------------------------------------------ state
    @property
    def session(self):
        return self.bars.sessions[self.slots[self.slot]]

    def reset(self, slot, row):
        """A fresh account, flat, deciding at the close of bar `row` of the split's session number
        `slot`.
        """
        self.slot, self.row, self.time = slot, row, 0
        self.sessions_left = self.settings.episode_sessions - 1
        self.position, self.account, self.stats = Position(), Account(), Stats()
        self.done = False
        self._forget()

    def _forget(self):
        """The episode's record: results of its trades in order, highest balance, marks of the open
        position.
        """
        self.results = []
        self.best_balance = 0
        self.marks = []

    def leaving(self, side):
        """The prices at which a position of `side` leaves and is marked: a short buys back at the
        ask.
        """
        return self.bars.ask if side < 0 and self.bars.ask is not None else self.bars

    def bars_to_flat(self, row):
        closes = self.bars.stamps[row] + self.bars.bar_seconds
        return (self.bars.flat_time[row] - closes) // self.bars.bar_seconds

    def drawdown_floor(self):
        settings = self.settings
        if settings.drawdown is None:
            return None
        floor = self.account.high_water - settings.drawdown
        return floor if settings.floor_cap is None else min(floor, settings.floor_cap)

    def daily_floor(self):
        loss = self.settings.daily_loss
        return None if loss is None else self.account.session_equity - loss

    def highest_floor(self):
        floors = [
            floor for floor in (self.drawdown_floor(), self.daily_floor()) if floor is not None
        ]
        return max(floors, default=None)

    # ---------------------------------------------------------------- actions
    def may_enter(self):
        """Calendar, range and lock; says nothing about being flat."""
        return (
            self.bars_to_flat(self.row) >= 2
            and self.tr_sum[self.row] >= 0
            and not self.account.locked
        )

    def breakeven_stop(self):
        return self.position.entry + self.position.side * self.settings.be_ticks

    def mask(self):
        """Legal actions at the close of the present bar."""
        position, side = self.position, self.position.side
        close = self.leaving(side).close[self.row]
        legal = [False] * 7
        legal[HOLD] = True
        if side == 0:
            legal[BUY] = legal[SELL] = self.may_enter()
        else:
            level = self.breakeven_stop()
            tighter = position.stop is None or side * (level - position.stop) > 0
            legal[MOVE_STOP_TO_BREAKEVEN] = tighter and side * (close - level) >= 1
            covered = position.stop is not None and side * (position.stop - position.entry) >= 0
            legal[ENABLE_TRAIL] = (
                not position.trailing and covered and side * (close - position.entry) > 0
            )
            legal[DISABLE_TRAIL] = position.trailing
            legal[CLOSE] = True
        return legal[: self.settings.num_actions]

    def stop_distance(self, row):
        settings = self.settings
        return max(settings.min_stop, ceil_div(settings.stop_atr * self.tr_sum[row], 14_000))

    def trail_distance(self, row):
        return max(1, ceil_div(self.settings.trail_atr * self.tr_sum[row], 14_000))

    def decode(self, action):
        """The order of a legal action."""
        held = self.position.quantity
        if action in (BUY, SELL):
            side, stop = (1 if action == BUY else -1), self.stop_distance(self.row)
            return Order(side * self.settings.quantity, stop, stop * self.settings.target_multiple)
        if action == MOVE_STOP_TO_BREAKEVEN:
            return Order(held, move_stop=self.breakeven_stop())
        if action in (ENABLE_TRAIL, DISABLE_TRAIL):
            return Order(held, trail=action == ENABLE_TRAIL)
        return Order(0 if action == CLOSE else held)

    def step(self, action):
        """Act; an illegal action is counted and executed as HOLD."""
        legal = self.mask()[action]
        self.stats.illegal += not legal
        return self.step_order(self.decode(action if legal else HOLD), action, legal)

    # ------------------------------------------------------------------ fills
    def _pay(self, quantity, event):
        """Commission of one fill, and the day it makes a trading day."""
        cost = self.settings.commission * abs(quantity)
        self.account.balance -= cost
        event.commission += cost
        self.stats.sides += abs(quantity)
        self.stats.commission += cost
        if not self.account.traded:
            self.account.traded = True
            self.account.days += 1

    def _worth(self, ticks):
        """Mills of price change times contracts in the present bar, rounded half to even where they
        are converted.
        """
        if self.settings.converted:
            return round(ticks * Fraction(*self.bars.rates[self.bar]))
        return ticks * self.settings.tick_mills

    def _marked(self, price):
        """Equity with the present position at `price`, no exit costs."""
        position = self.position
        return self.account.balance + self._worth((price - position.entry) * position.quantity)

    def _leave(self, price, event):
        """Close the position at fill `price` -> the signed quantity that left."""
        quantity = self.position.quantity
        gain = self._worth((price - self.position.entry) * quantity)
        net = gain - 2 * self.settings.commission * abs(quantity)
        self.account.balance += gain
        self._pay(quantity, event)
        self.stats.trades += 1
        self.stats.wins += net > 0
        event.closed.append((net, self.position.trailing))
        self.position = Position()
        return quantity

    def _exit(self, price, reason, event):
        event.exit_quantity, event.exit_price, event.exit_reason = (
            self._leave(price, event),
            price,
            reason,
        )
        event.kinds.add(reason.name.lower())

    def _raise_high_water(self, equity):
        """Live equity: only an intraday trail looks at it."""
        if self.settings.trailing == "intraday":
            self.account.high_water = max(self.account.high_water, equity)

    def _second_stop(self):
        """The price at which equity net of exit commission meets the higher floor: a second stop
        (5e, 5f).
        """
        floor = self.highest_floor()
        if floor is None or self.settings.mark == "close":
            return None
        size, side = abs(self.position.quantity), self.position.side
        room = floor + self.settings.commission * size - self.account.balance
        ticks = room // self._worth(size) if self._worth(size) else 0  # near it; then tick by tick
        while self._worth((ticks + 1) * size) <= room:
            ticks += 1
        while self._worth(ticks * size) > room:
            ticks -= 1
        return self.position.entry + side * ticks

    def _nearest_stop(self):
        """The stop or the liquidation level, whichever the market meets first; a tie is a
        liquidation.
        """
        position, level = self.position, self._second_stop()
        if level is not None and (
            position.stop is None or position.side * (level - position.stop) >= 0
        ):
            return level, ExitReason.LIQUIDATION
        return position.stop, REASON_OF_KIND[position.stop_kind]

    # ------------------------------------------------------------------- step
    def step_order(self, order, action=HOLD, legal=True):
        """One bar under `order`, then session jump or end. `action`, as chosen, is for reward terms
        about actions.
        """
        assert not self.done, "reset first"
        settings, account = self.settings, self.account
        before, bar = account.equity, self.row + 1
        self.bar = bar
        open_profit = account.equity - account.balance
        slip, size_before = settings.slippage, self.position.quantity
        carried = self.leaving(self.position.side)
        event = Event()
        extreme = settings.mark == "extreme"
        enter_allowed = self.may_enter()

        if extreme and size_before:  # 5a
            self._raise_high_water(self._marked(carried.open[bar]))
        wanted = sign(order.quantity)
        if size_before and wanted != self.position.side:  # 5b
            self._leave_by_order(carried, event)
        if not self.position.quantity:  # 5c
            if wanted and enter_allowed:
                self._enter(order, event)
        else:  # 5d
            if order.move_stop is not None:
                self.position.stop, self.position.stop_kind = order.move_stop, StopKind.BREAKEVEN
            if order.trail is not None:
                self.position.trailing = order.trail

        held = self.leaving(self.position.side)
        open_, close = held.open[bar], held.close[bar]
        event.favourable = event.adverse = open_
        if self.position.quantity:
            self._opening_print(open_, event)
        if (
            extreme
        ):  # an open may fill orders better than itself (`impact`), which is live equity too
            self._raise_high_water(self._marked(open_))
        if self.position.quantity:
            self._intrabar(bar, held, event)

        at_flat_bar = bar == self.session.last + 1
        data_end = at_flat_bar and not self.session.complete
        if at_flat_bar and self.position.quantity:  # 5g
            reason = ExitReason.END_OF_DATA if data_end else ExitReason.FLAT
            self._exit(close - self.position.side * slip, reason, event)

        account.equity = self._marked(close)  # 5h (a flat position marks at its balance)
        if not extreme:
            self._mark_at_close(close, event)

        end = self._end_of_bar(event)  # 5i, 5j
        if self.position.trailing:  # 5k
            self._ratchet(bar, close)

        self.results += [net > 0 for net, _ in event.closed]
        self.best_balance = max(self.best_balance, account.balance)
        held_before = [] if event.entry_quantity else self.marks
        self.marks = (
            [*held_before, (event.favourable, event.adverse)] if self.position.quantity else []
        )

        self.row, self.time = bar, self.time + 1
        end = self._end_of_step(end, at_flat_bar, data_end)
        if end:
            event.kinds.add(f"end_{end.name.lower()}")
        self.done = end != EndReason.NONE

        facts = rewards.Facts(
            action,
            legal,
            event,
            open_profit,
            account.equity - before,
            account.equity,
            self.position.quantity != 0,
        )
        terms, reward = self._rewarded(facts)
        truncated = end in (EndReason.STEP_LIMIT, EndReason.END_OF_DATA)
        return Result(reward, terms, self.done and not truncated, truncated, end, event)

    def _base(self, bars):
        """The price of an order before slippage and impact."""
        bar = self.bar
        return bars.open[bar] if self.settings.fill == "next_open" else bars.close[bar - 1]

    def _leave_by_order(self, carried, event):
        """Leave the whole position at the fill bar's open, or at the decision bar's close."""
        base = self._base(carried)
        fill = base + self.impact - self.position.side * self.settings.slippage
        event.order_exit_quantity, event.order_exit_price = self._leave(fill, event), fill
        event.kinds.add("order")

    def _enter(self, order, event):
        """Enter what `order` wants, with its stop and target around the price before slippage."""
        wanted = sign(order.quantity)
        entered = self.leaving(-wanted)  # a buyer pays what a short would pay to leave
        base = self._base(entered)
        self.position = Position(
            quantity=order.quantity,
            entry=base + self.impact + wanted * self.settings.slippage,
            opened=self.bar,
            trailing=order.trail is True,
            stop=base - wanted * order.stop_ticks if order.stop_ticks else None,
            target=base + wanted * order.target_ticks if order.target_ticks else None,
        )
        event.entry_quantity, event.entry_price = order.quantity, self.position.entry
        self._pay(order.quantity, event)

    def _end_of_step(self, end, at_flat_bar, data_end):
        """Why the episode ends here, or a jump to the next session."""
        jump = False
        if end == EndReason.NONE and at_flat_bar:
            if data_end:
                end = EndReason.END_OF_DATA
            elif self.sessions_left == 0 or self.slot + 1 == len(self.slots):
                end = EndReason.SESSION_END
            else:
                jump = True
        limit = self.settings.max_steps
        if end == EndReason.NONE and limit and self.time >= limit:
            end, jump = EndReason.STEP_LIMIT, False
        if jump:
            self._next_session()
        return end

    def _rewarded(self, facts):
        """The reward of a step, by term and in all, which the statistics count."""
        terms = {
            name: weight * rewards.TERMS[name](facts, self.settings)
            for name, weight in self.settings.reward.items()
        }
        reward, stats = sum(terms.values()), self.stats
        stats.reward += reward
        stats.terms = {name: stats.terms.get(name, 0.0) + value for name, value in terms.items()}
        stats.length += 1
        stats.peak = max(stats.peak, self.account.equity)
        stats.max_drawdown = max(stats.max_drawdown, stats.peak - self.account.equity)
        return terms, reward

    def _opening_print(self, open_, event):
        """5e: the open against the nearer stop, then against the target."""
        side, target = self.position.side, self.position.target
        level, reason = self._nearest_stop()
        if level is not None and side * (open_ - level) <= 0:
            event.kinds.add(
                "spread_stop" if event.entry_quantity else "gap_through"
            )  # a spread wider than the stop
            self._exit(open_ - side * self.settings.slippage, reason, event)
        elif target is not None and side * (open_ - target) >= 0:
            event.kinds.add("gap_target")
            self._exit(open_, ExitReason.TARGET, event)

    def _intrabar(self, row, bars, event):
        """5f, by the order of prices that is assumed or known."""
        mode = self.settings.intrabar
        open_, high, low, close = bars.open[row], bars.high[row], bars.low[row], bars.close[row]
        if mode == "stop_first":
            self._stop_first(open_, high, low, event)
        elif mode == "nearer_extreme":
            up, down = high - open_, open_ - low
            low_first = self.position.side > 0 if up == down else down < up
            self._in_order(open_, [low, high, close] if low_first else [high, low, close], event)
        elif not bars.paths[row].known:
            event.kinds.add("ambiguous")
            self._stop_first(open_, high, low, event)
        else:
            self._second_by_second(open_, bars.paths[row], event)

    def _second_by_second(self, open_, inside, event):
        """Each second its favourable extreme, then stop or floor against its adverse extreme, then
        the target. A level fills at itself: a bar that opened behind it has left at the opening
        print."""
        side, target = self.position.side, self.position.target
        event.favourable = event.adverse = open_
        for high, low in inside.seconds:
            best, worst = (high, low) if side > 0 else (low, high)
            reached = target is not None and side * (best - target) >= 0
            best = target if reached and target is not None else best
            event.favourable = better(side, event.favourable, best)
            if self.settings.mark == "extreme":
                self._raise_high_water(self._marked(event.favourable))
            level, reason = self._nearest_stop()
            if level is not None and side * (worst - level) <= 0:
                event.kinds |= {"walked_out"} | (
                    {"retrace"} if side * (worst - event.adverse) >= 0 else set()
                )
                event.adverse = level
                self._exit(level - side * self.settings.slippage, reason, event)
                return
            event.adverse = better(-side, event.adverse, worst)
            if reached:
                event.kinds.add("walked_out")
                self._exit(best, ExitReason.TARGET, event)
                return

    def _in_order(self, open_, prices, event):
        """Prices one after the other: a step our way may reach the target, one against us the
        nearer stop.
        """
        out = self._walked(open_, prices, event)
        if out is not None:
            fill, reason = out
            event.kinds.add("walked_out")
            self._exit(fill, reason, event)

    def _walked(self, open_, prices, event):
        """-> (fill, reason) of the first exit; marks the high-water mark on the way."""
        side, target = self.position.side, self.position.target
        before = event.favourable = event.adverse = open_
        for price in prices:
            if side * (price - before) > 0:
                reached = target is not None and side * (price - target) >= 0
                best = target if reached and target is not None else price
                event.favourable = better(side, event.favourable, best)
                if self.settings.mark == "extreme":
                    self._raise_high_water(self._marked(best))
                if reached:
                    return best, ExitReason.TARGET
            elif price != before:
                level, reason = self._nearest_stop()
                if level is not None and side * (price - level) <= 0:
                    event.adverse = better(-side, before, level)
                    return event.adverse - side * self.settings.slippage, reason
                event.adverse = better(-side, event.adverse, price)
            before = price
        return None

    def _stop_first(self, open_, high, low, event):
        """5f: favourable extreme, floor, adverse extreme, target: stop first."""
        side, target, stop = self.position.side, self.position.target, self.position.stop
        best, worst = (high, low) if side > 0 else (low, high)
        touched = target is not None and side * (best - target) >= 0
        favourable = target if touched and target is not None else best
        if self.settings.mark == "extreme":
            self._raise_high_water(self._marked(favourable))
        level, reason = self._nearest_stop()
        event.favourable, event.adverse = favourable, worst
        if touched and stop is not None and side * (worst - stop) <= 0:
            event.kinds.add("both")
        if level is not None and side * (worst - level) <= 0:
            price = event.adverse = better(-side, open_, level)
            self._exit(price - side * self.settings.slippage, reason, event)
        elif touched and target is not None:
            self._exit(target, ExitReason.TARGET, event)

    def _mark_at_close(self, close, event):
        """With mark=close, high-water mark and liquidation know bar closes and realised fills only
        (at 5h).
        """
        self._raise_high_water(self.account.equity)
        floor, size = self.highest_floor(), abs(self.position.quantity)
        if (
            size
            and floor is not None
            and self.account.equity - self.settings.commission * size <= floor
        ):
            self._exit(
                close - self.position.side * self.settings.slippage, ExitReason.LIQUIDATION, event
            )
            self.account.equity = self.account.balance

    def _end_of_bar(self, event):
        """5i and 5j: breach of the drawdown floor, of the daily floor, then the target; what ends
        the account.
        """
        account, settings = self.account, self.settings
        floor, daily = self.drawdown_floor(), self.daily_floor()
        net = account.equity - settings.commission * abs(self.position.quantity)
        bust = floor is not None and net <= floor
        over = daily is not None and account.equity <= daily
        event.floor, event.breach = (
            floor,
            bust or (over and not account.locked),
        )  # a locked day is breached once
        self.stats.breaches += event.breach
        assert not (bust and self.position.quantity), "a position outlived the drawdown floor"
        if over and not account.locked and not settings.fail_on_daily_loss:
            event.kinds.add("daily_lock")
        account.locked = (
            account.locked or over
        )  # where the loss fails the account this shows in its last mask only
        reached = (
            settings.target is not None
            and account.balance >= settings.target
            and self.position.quantity == 0
            and account.days >= settings.min_days
        )
        if bust:
            return EndReason.BUST
        if over and settings.fail_on_daily_loss:
            return EndReason.DAILY_LOSS
        if reached:
            event.kinds.add("target_reached")
        return EndReason.TARGET if reached and settings.stop_at_target else EndReason.NONE

    def _ratchet(self, bar, close):
        position = self.position
        level = close - position.side * self.trail_distance(bar)
        if position.stop is None or position.side * (level - position.stop) > 0:
            position.stop, position.stop_kind = level, StopKind.TRAIL

    def _next_session(self):
        assert self.position.quantity == 0
        self.slot, self.sessions_left = self.slot + 1, self.sessions_left - 1
        self.row = self.session.first
        closing = self.account.equity  # an end-of-day trail looks at it now, and only now
        if self.settings.trailing == "end_of_day":
            self.account.high_water = max(self.account.high_water, closing)
        self.account = replace(self.account, session_equity=closing, locked=False, traded=False)

    # ------------------------------------------------------------ observation
    def observation(self, scaling):
        """float64[D] at the close of the present bar: window, position, flags, and of `advised`
        context and advice.
        """
        position, row, side = self.position, self.row, self.position.side
        close, atr = self.mid.close[row], self.features.atr_at(row)
        held = side != 0
        if scaling == "seed":
            entry = position.entry / close if held else 1.0
        else:
            entry = side * (close - position.entry) / atr if held else 0.0
        stop = abs(position.stop - close) / atr if held and position.stop is not None else 0.0
        target = abs(position.target - close) / atr if held and position.target is not None else 0.0
        bars_held = (row - position.opened + 1) / 390 if held else 0.0
        slots = [side, entry, stop, target, bars_held]
        if self.settings.task != "entry":
            slots += [float(self.mask()[BUY]), float(held), float(held)]
        if self.settings.task == "advised":
            slots += [*self.features.context(row, scaling), *self.risk(scaling)]
        if self.settings.advice:
            slots += [0.0] * 7
        return np.concatenate([self.features.window(row, scaling), np.array(slots, np.float64)])

    def risk(self, scaling):
        """Open profit, fall from the highest balance, losses in a row, share of wins, adverse
        against favourable.
        """
        account, position, settings = self.account, self.position, self.settings
        profit, fall = account.equity - account.balance, self.best_balance - account.balance
        losses = next((i for i, won in enumerate(reversed(self.results)) if won), len(self.results))
        recent = self.results[-10:]
        rate = sum(recent) / len(recent) if recent else 0.5
        adverse = max([0, *(position.side * (position.entry - worst) for _, worst in self.marks)])
        favourable = max([0, *(position.side * (best - position.entry) for best, _ in self.marks)])
        if scaling == "seed":
            return [
                profit / 1000,
                fall / (settings.start_balance + self.best_balance),
                losses,
                rate,
                adverse / favourable if favourable else 1.0,
            ]
        return [
            profit / settings.risk_unit,
            fall / settings.risk_unit,
            min(losses, 10) / 10,
            rate,
            adverse / (adverse + favourable) if adverse + favourable else 0.5,
        ]
