"""The account pass of an evaluation on bars that arrive one at a time.

An evaluation knows which bar is the last of its session, and this does not. So at the arrival of
bar t the order of the bar before is filled in it. If t is the flat bar of the schedule, the position
is closed at its close. If the session turns out to have ended with t, because the next bar is of
another one or the flat time has passed, the step into t is made again from the state before it, now
with the forced exit, and the decision at t's close is void. Decisions are thus made in time, and
the account is that of the evaluation.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxtrade.data.bars import Bars
from jaxtrade.env import rules
from jaxtrade.env.actions import hold
from jaxtrade.env.dynamics import next_session
from jaxtrade.env.episode import closes, end_reason
from jaxtrade.env.state import (
    KEEP_STOP,
    Account,
    EndReason,
    EnvParams,
    EnvState,
    Event,
    Order,
)
from jaxtrade.evaluation.backtest import counts_money_per_session
from jaxtrade.evaluation.side_by_side import RULE_ENDS, WIDTH
from jaxtrade.formatting import iso, money
from jaxtrade.paper.broker import BrokerFill, HaltError, Intent, Sink, TradedBar, fills_of
from jaxtrade.paper.feed import to_message
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.rails import Facts, PaperConfig, limit
from jaxtrade.runs.distributed import say as warn
from jaxtrade.stream.live import Stream
from jaxtrade.text import printable
from jaxtrade.types import PyTree

MINUTE = 60
Say = Callable[[str], object]


class Standing(NamedTuple):
    """The account at the close of a bar.

    order: what is filled in the next bar; None between sessions. fills: of this bar.
    over: whether the account has ended, and the next session begins another. number: of accounts
    before it. base: mills of its earlier sessions, where the environment counts money per session.
    memory: of the policy.
    trades: closed. entries: of this trade date. since_trade, since_loss: bars since a trade (a losing
    one) was closed.
    """

    state: EnvState
    order: Order | None = None
    fills: Sequence[BrokerFill] = ()
    over: bool = True
    number: int = -1
    base: int = 0
    memory: PyTree = None
    decisions: int = 0
    trades: int = 0
    entries: int = 0
    since_trade: float = inf
    since_loss: float = inf

    @property
    def held(self) -> int:
        """Signed contracts."""
        return int(self.state.position.quantity)

    @property
    def equity(self) -> int:
        """Mills from the start balance."""
        return self.base + int(self.state.account.equity)


class Engine:
    """A policy that trades on paper: bars in, decisions out, every one of both in the journal.

    config: the rails. key: of the run, for the names of orders.
    sinks: what gets the same orders.
    say: takes lines for people.
    """

    def __init__(
        self,
        stream: Stream,
        journal: PaperJournal,
        config: PaperConfig,
        key: str = "",
        sinks: Sequence[Sink] = (),
        say: Say = lambda line: None,
    ) -> None:
        self.stream, self.journal, self.config, self.key = stream, journal, config, key
        # Nothing is said twice: not while what is recorded is run again.
        self.say = lambda line: None if journal.recorded else say(line)
        self.sinks = sinks
        self.faults, self.acted = Counter[str](), Counter[str]()
        self.now = self.before = Standing(stream.see().state)
        self.sessions, self.kills, self.killed, self.quiet = 0, 0, False, False
        self.date: Any = None  # trade date of the newest session
        self.last: Intent | None = None  # of the newest bar, while its session is open
        self.connected = False  # whether the sinks are, and know what happened before
        self._sent = deque[int](maxlen=MINUTE)  # times of the last intents
        self._traded = stream.rows.bar, stream.params  # the newest bar that was not refused
        self._moment = 0  # when it came
        self._moved: TradedBar | None = None  # the newest that the sinks were shown

    @property
    def open(self) -> bool:
        """Whether a session is open."""
        return self.now.order is not None

    @property
    def dollars(self) -> float:
        """The equity, start balance included."""
        return (float(self.stream.params.account.start_balance) + self.now.equity) / 1000

    # --- what comes in ---------------------------------------------------------------------------

    def fault(self, fault: str, why: str) -> None:
        """Record a fault of the feed, and tell the first of its kind."""
        self.journal.add("fault", fault=fault, why=printable(why)[:200])
        if not self.faults[fault]:
            self.say(f"{fault}: {printable(why)}")
        self.faults[fault] += 1

    def kill(self, why: str) -> None:
        """Hold no position from the open of the next bar on, here and at the sinks."""
        self.journal.add("kill", why=why)
        self.say(f"{why}: no position is held from the next bar on")
        self.killed, self.kills = True, self.kills + 1
        flat = (self.now.order or hold(self.now.state)).replace(quantity=np.int32(0))
        if self.open:
            self.now = self.now._replace(order=flat)
        self._send(self._intend(flat, self.kills))

    def begin(self, rails: Mapping[str, Any], now: int | None) -> None:
        """Take rails, and lift a kill."""
        self.journal.add("start", rails=rails, now=now)
        self.config, self.killed = PaperConfig.model_validate(rails), False

    def on_bar(self, bar: Bars, now: int | None) -> None:
        """Take the next bar, and decide at its close. Raises DataError if it cannot follow."""
        row, date = self.stream.push(bar), bar.trade_dates[0]
        self.journal.add("bar", bar=to_message(bar), now=now)
        if self.open and (date != self.date or not (row.decides or row.flat)):
            self._end(True)
        self._traded, self.last, self.quiet = (bar, self.stream.params), None, False
        self._moment = _closes(bar) if now is None else now
        if self.open:
            self.before = self.now
            self._step(self.stream.params)
            if row.flat:
                self._close_session()
        elif row.decides and date == self.date:
            self.fault("late", f"the session of {date} has been closed")
            return
        elif row.decides:
            self._begin_session(date)
        if row.decides:
            self._decide(bar)

    def on_time(self, now: int) -> None:
        """Close a session whose flat time has passed, and note a feed that is quiet too long."""
        if not self.open:
            return
        rows, config = self.stream.rows, self.config
        length, closed = rows.bar.bar_seconds, _closes(rows.bar)
        flat = closed + int(rows.kept.bars_to_flat[-1]) * length
        if now >= flat + config.flat_seconds:
            self.end(True)
        elif config.stale_bars and not self.quiet and now - closed > config.stale_bars * length:
            self.quiet = True
            self.fault("stale", f"no bar since {iso(closed)}")

    def end(self, complete: bool) -> None:
        """End the open session with the newest bar.

        complete: its flat time has passed; else its data end.
        """
        self.journal.add("end", complete=complete)
        self._end(complete)

    # --- the account pass ------------------------------------------------------------------------

    def _begin_session(self, date: Any) -> None:
        """Begin as `side_by_side.step_bar` after the last bar of a session."""
        self.before, self.date = self.now, date
        now, stream, params = self.now, self.stream, self.stream.params
        renew = counts_money_per_session(params)
        account = Account.new() if now.over or renew else now.state.account
        state = next_session(now.state.replace(account=account), params)
        first = now.over or int(state.sessions_left) < 0
        if first:
            record, left = stream.env.task.record.new(), params.episode_sessions - 1
            state = state.replace(record=record, sessions_left=left)
        self.now = now._replace(
            state=jax.device_get(state.replace(row=now.state.row)),
            fills=(),
            over=False,
            number=now.number + now.over,
            base=now.equity if renew and not now.over else 0,
            memory=stream.policy.first_carry(WIDTH) if first else now.memory,  # type: ignore[union-attr]
            entries=0,
        )

    def _step(self, params: EnvParams) -> None:
        """Fill the order of `before` in the newest bar of `params`, the first time or again."""
        at, stream = self.before, self.stream
        known = () if self.now is at else self.now.fills
        assert at.order is not None
        newest, stream.params = stream.params, params
        state, event = stream.step(at.state, at.order)
        stream.params = newest
        state, event, end, trades = jax.device_get(_judge(at.state, state, event, params))
        reason = EndReason(int(end))
        ended = reason in RULE_ENDS
        if ended and not at.over:
            self.say(f"account {at.number + 1} ended: {reason.name.lower()}")
        if ended or at.over:
            state = state.replace(account=state.account.replace(locked=np.bool_(True)))
        won = [trade.won for trade in trades if trade.closed]
        self.now = now = at._replace(
            state=state,
            order=None,
            fills=fills_of(event),
            over=ended or at.over,
            trades=at.trades + len(won),
            entries=at.entries + bool(event.entry_quantity),
            since_trade=0 if won else at.since_trade + 1,
            since_loss=at.since_loss + 1 if all(won) else 0,
        )
        self._follow(at)
        self.journal.add("step", fills=now.fills, equity=now.equity, held=now.held)
        said = [
            f"{fill.why} {fill.quantity:+d} at {fill.price * stream.contract.tick_size}"
            for fill in now.fills[len(known) :]
        ]
        if said:
            time = iso(self._traded[0].time[0])
            self.say(f"{time} {', '.join(said)}; equity {money(self.dollars)}")

    def _follow(self, at: Standing) -> None:
        """Show the sinks the order of a standing in the newest bar that was traded."""
        if self.connected:
            self.journal.sync()
        positions = at.state.position, self.now.state.position
        self._moved = TradedBar(self._traded[0], at.order, *positions, self.now.fills)  # type: ignore[arg-type]
        for sink in self.sinks:
            sink.follow(self._moved)

    def _end(self, complete: bool) -> None:
        """Make the step into the newest bar again, now as the last of its session."""
        self.last = None  # decided at that bar, so it is void
        if self.before.order is None:  # its first decision is void, and so is the session
            self._follow(self.now)  # an order on its way is taken back
            self.now = self.before
            self.journal.add("void")
            return
        market = self._traded[1].market
        last = market.sessions.last - 1
        sessions = market.sessions.replace(last=last, complete=np.array([complete]))
        forced = self._traded[1].replace(market=market.replace(sessions=sessions))
        self._step(forced)
        self._close_session()

    def _close_session(self) -> None:
        now = self.now
        self.sessions += 1
        self.journal.add("session", date=str(self.date), account=now.number)
        self.say(
            f"{self.date} closed: entries {now.entries}, equity {money(self.dollars)}, account "
            f"{now.number + 1}"
        )

    # --- a decision ------------------------------------------------------------------------------

    def _decide(self, bar: Bars) -> None:
        at, stream = self.now, self.stream
        stream.carry = at.memory
        decision = stream.decide_at(stream.see_state(at.state))
        order, wanted = decision.order, int(decision.order.quantity)
        quantity, acted = limit(self.config, wanted, at.held, self._facts(bar))
        self.acted.update(acted)
        if quantity != wanted:
            order = order.replace(quantity=np.int32(quantity))
        moves = int(order.move_stop) != KEEP_STOP or int(order.trail) >= 0
        asks = quantity != at.held or (at.held != 0 and moves)
        intent = self._intend(order, 0) if asks else None
        self.journal.add(
            "decision",
            time=int(bar.time[0]),
            action=decision.action,
            wanted=wanted,
            quantity=quantity,
            rails=acted,
            id=intent and intent.id,
        )
        self.now = at._replace(order=order, memory=stream.carry, decisions=at.decisions + 1)
        if intent:
            self._send(intent)

    def _intend(self, order: Order, number: int) -> Intent:
        """Name an order of the newest bar, the same whenever it is made again."""
        bar, quantity = self.stream.rows.bar, int(order.quantity)
        time, close = int(bar.time[0]), int(bar.close[0])
        name = f"{self.key[:12]}{time}n{number}"
        return Intent(name, time, quantity, order, close, self.now.held)

    def _send(self, intent: Intent) -> None:
        """Send an intent; `reconcile` does where the sinks are not connected yet."""
        self.journal.sync()
        self._sent.append(self._moment)
        self.last = intent
        if self.connected:
            for sink in self.sinks:
                sink.submit([intent])

    def reconcile(self, now: int | None) -> None:
        """Bring the sinks, which are connected now, to where the account is. Raises HaltError.

        A sink holds what the account holds, already what the newest order wants, or an entry that
        it is told to leave now. It may hold nothing as well: its stop may have filled first.
        """
        self.journal.sync()
        explained = [self.now.held, *([self.last.quantity] if self.last else [])]
        for sink in self.sinks:
            found = sink.snapshot()
            if found.quantity not in (*explained, found.entry, 0):
                raise HaltError(
                    f"the broker holds {found.quantity} contracts, and the journal explains "
                    f"{' or '.join(map(str, explained))}; close the position by hand, or find out who "
                    "opened it"
                )
            if not found.quantity and 0 not in explained:
                warn(
                    f"warning: the broker reports no position, and the account holds {self.now.held:+d} "
                    "contracts; it goes on until its own exit, and at the broker nothing is risked if "
                    "the report is right"
                )
            # A sink that has the newest order has followed the newest bar.
            if self._moved and not (self.last and self.last.id in found.orders):
                sink.follow(self._moved)
        self.connected = True
        if now is not None:
            self.on_time(now)
        if self.quiet and self.last and self.last.quantity * self.now.held <= 0:
            known = [self.last.id in sink.snapshot().orders for sink in self.sinks]
            if known and not any(known):  # nobody has it, and it is too old to open a position
                self.kill("stale")
        for sink in self.sinks:
            if self.last and self.last.id not in sink.snapshot().orders:
                sink.submit([self.last])

    def _facts(self, bar: Bars) -> Facts:
        at, kept, account = self.now, self.stream.rows.kept, self.now.state.account
        jump = abs(kept.open[-1] - kept.close[-2])
        return {
            "kill": self.killed,
            "daily_loss": (account.session_equity - account.equity) / 1000,
            "total_loss": -at.equity / 1000,
            "orders_per_minute": sum(self._moment - each < MINUTE for each in self._sent),
            "trades_per_day": at.entries,
            "bars_between_trades": at.since_trade,
            "bars_after_loss": at.since_loss,
            "price_jump_ticks": jump,
            "price_jump_atr": 14 * jump / max(kept.tr_sum[-1], 1),
            "stale_bars": (self._moment - _closes(bar)) / bar.bar_seconds,
        }


def _closes(bar: Bars) -> int:
    """Return when a bar closes, in UTC seconds."""
    return int(bar.time[0]) + bar.bar_seconds


@jax.jit
def _judge(before: EnvState, state: EnvState, event: Event, params: EnvParams) -> Any:
    """Return a step, why it ends the account, if it does, and the trades that it closed."""
    trades = closes(event, before.position.entry, rules.contract_at(params, state.row))
    return state, event, end_reason(state, params), trades
