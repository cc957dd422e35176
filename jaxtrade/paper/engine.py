"""The account pass of an evaluation on bars that arrive one at a time.

An evaluation knows which bar is the last of its session, and this does not. So at the arrival of
bar t the order of the bar before is filled in it. If t is the flat bar of the schedule, the position
is closed at its close. If the session turns out to have ended with t, because the next bar is of
another one or the flat time has passed, the step into t is made again from the state before it, now
with the forced exit, and the decision at t's close is void. Decisions are thus made in time, and
the account is that of the evaluation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.advisor.host.types import canonical, sha256_of
from jaxtrade.data.bars import Bars
from jaxtrade.env import rules
from jaxtrade.env.episode import end_reason
from jaxtrade.env.state import Account, EndReason, EnvParams, EnvState, Event, Order
from jaxtrade.evaluation.backtest import counts_money_per_session
from jaxtrade.evaluation.side_by_side import RULE_ENDS, WIDTH
from jaxtrade.formatting import iso, money
from jaxtrade.paper.broker import (
    BrokerFill,
    HaltError,
    Intent,
    SimulatedBroker,
    Sink,
    TradedBar,
    changes,
)
from jaxtrade.paper.feed import to_message
from jaxtrade.paper.journal import PaperJournal
from jaxtrade.paper.rails import Facts, PaperConfig, limit
from jaxtrade.stream.live import Stream
from jaxtrade.stream.rows import StreamRow
from jaxtrade.types import Array, PyTree

MINUTE = 60
Say = Callable[[str], object]


class TradeCounts(NamedTuple):
    """What the rails and the summary count.

    trades: closed. today: entries of this trade date. flat_balance: mills when last flat.
    """

    trades: int = 0
    today: int = 0
    decisions: int = 0
    since_trade: int | None = None
    since_loss: int | None = None
    flat_balance: int = 0


class Standing(NamedTuple):
    """The account at the close of a bar.

    order: what is filled in the next bar; None between sessions. begun: whether any has begun.
    over: whether the account has ended. number: of accounts before it. base: mills of its earlier
    sessions, where the environment counts money per session.
    memory: of the policy.
    """

    state: EnvState
    order: Order | None = None
    begun: bool = False
    over: bool = False
    number: int = 0
    base: int = 0
    memory: PyTree = None
    tally: TradeCounts = TradeCounts()

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
    broker: the simulated one, whose account this is. sinks: others, which get the same orders.
    say: takes lines for people.
    fail: called at each named place, where a test ends the process.
    """

    def __init__(
        self,
        stream: Stream,
        journal: PaperJournal,
        config: PaperConfig,
        key: str = "",
        sinks: Sequence[Sink] = (),
        say: Say = lambda line: None,
        fail: Callable[[str], object] = lambda place: None,
    ) -> None:
        self.stream, self.journal, self.config, self.key = stream, journal, config, key
        # Nothing is said twice: not while what is recorded is run again.
        self.say = lambda line: None if journal.recorded else say(line)
        self.fail = fail
        self.broker, self.sinks = SimulatedBroker(stream), sinks
        self.faults, self.acted = Counter[str](), Counter[str]()
        self.now = self.before = Standing(stream.see().state)
        self.date: Any = None  # trade date of the newest session
        self.sessions, self.killed, self.quiet = 0, False, False
        self.last: Intent | None = None
        self._orders: list[int] = []  # times of the last intents
        self._fills = 0  # of the newest bar
        self._bar = stream.rows.bar  # the newest that has been traded

    @property
    def open(self) -> bool:
        """Whether a session is open."""
        return self.now.order is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is held or ordered."""
        return not self.open or (self.now.held == 0 and not int(self.now.order.quantity))  # type: ignore[union-attr]

    # --- what comes in ---------------------------------------------------------------------------

    def fault(self, kind: str, why: str) -> None:
        """Record a fault of the feed."""
        self.journal.add("fault", fault=kind, why=why)
        self.faults[kind] += 1

    def kill(self, why: str) -> None:
        """Hold no position from the open of the next bar on."""
        known = bool(self.journal.recorded)
        self.journal.add("kill", why=why)
        self.killed, order = True, self.now.order
        if order is not None and int(order.quantity):
            flat = order.replace(quantity=np.int32(0))
            self.now = self.now._replace(order=flat)
            time = int(self.stream.rows.bar.time[0])
            self._send(Intent(self._name(1), time, 0, flat, 0), None, known)

    def begin(self, rails: Mapping[str, Any], now: int | None) -> None:
        """Take rails, and lift a kill."""
        self.journal.add("start", rails=rails, now=now)
        self.config, self.killed = PaperConfig.model_validate(rails), False

    def on_bar(self, bar: Bars, now: int | None) -> None:
        """Take the next bar, and decide at its close. Raises DataError if it cannot follow."""
        until = self.stream.params
        row = self.stream.push(bar)
        self.fail("pushed")
        self.journal.add("bar", bar=to_message(bar), now=now)
        self.fail("bar")
        self.quiet = False
        date = bar.trade_dates[0]
        if self.open and (date != self.date or not (row.decides or row.flat)):
            self._end(until, True)
        if self.open:
            self._step(row.flat)
        elif row.decides and date != self.date:
            self._begin_session(date)
        elif row.decides:
            self.fault("late", f"the session of {date} has been closed")
            return
        if row.decides:
            self._decide(row, now)

    def on_time(self, now: int) -> None:
        """Close a session whose flat time has passed, and note a feed that is quiet too long."""
        if not self.open:
            return
        bar, schedule, most = (
            self.stream.rows.bar,
            self.stream.rows.schedule,
            self.config.stale_bars,
        )
        flat = int(schedule.flat[schedule.find(bar.trade_dates)][0])
        closed = int(bar.time[0]) + bar.bar_seconds
        if now >= flat + self.config.flat_seconds:
            self.end(True)
        elif most and not self.quiet and now - closed > most * bar.bar_seconds:
            self.quiet = True
            self.fault("stale", f"no bar since {iso(closed)}")

    def end(self, complete: bool) -> None:
        """End the open session with the newest bar.

        complete: its flat time has passed; else its data end.
        """
        self.journal.add("end", complete=complete)
        self._end(self.stream.params, complete)

    # --- the account pass ------------------------------------------------------------------------

    def _begin_session(self, date: Any) -> None:
        self.before, now, params = self.now, self.now, self.stream.params
        first = not now.begun
        state = now.state
        if not first:
            # As `side_by_side.step_bar` after the last bar of a session, and `dynamics.next_session`.
            renew, left = counts_money_per_session(params), int(state.sessions_left) - 1
            account = Account.new() if now.over or renew else state.account
            first = now.over or left < 0
            state = state.replace(
                account=rules.open_session(account, params.account),
                sessions_left=params.episode_sessions - 1 if first else jnp.int32(left),
                record=self.stream.env.task.record.new() if first else state.record,
            )
            base = 0 if now.over or not renew else now.base + int(now.state.account.equity)
            now = now._replace(base=base, number=now.number + now.over, over=False)
        policy = self.stream.policy
        if first and policy:
            now = now._replace(memory=policy.first_carry(WIDTH))
        tally = now.tally._replace(today=0, flat_balance=int(state.account.balance))
        self.now, self.date = (
            now._replace(state=jax.device_get(state), begun=True, tally=tally),
            date,
        )
        self.fail("opened")

    def _step(self, flat: bool) -> None:
        self.before, self._fills, self._bar = self.now, 0, self.stream.rows.bar
        self.now = self._move(self.before, self.stream.params)
        self.fail("stepped")
        self._book()
        if flat:
            self._close_session()

    def _move(self, at: Standing, params: EnvParams) -> Standing:
        """Fill the order of a standing in the newest bar of `params`."""
        assert at.order is not None
        state, event = self.broker.step(at.state, at.order, params)
        reason = int(_reason(state, params))
        over = at.over or reason in RULE_ENDS
        if over:
            locked = state.account.replace(locked=jnp.bool_(True))
            state = state.replace(account=locked)
        if reason in RULE_ENDS and not at.over:
            self.say(f"account {at.number + 1} ended: {EndReason(reason).name.lower()}")
        return at._replace(state=state, over=over, order=None, tally=_count(at.tally, state, event))

    def _book(self) -> None:
        """Record the fills of the newest bar, and the account after it."""
        now, contract = self.now, self.stream.contract
        fills = list(self.broker.poll())
        self._follow(self.before, fills)
        self.journal.add("step", fills=list(map(list, fills)), equity=now.equity, held=now.held)
        self.fail("step")
        if new := fills[self._fills :]:  # of a step that is made again, those before are known
            said = ", ".join(
                f"{fill.why} {fill.quantity:+d} at {fill.price * contract.tick_size}"
                for fill in new
            )
            self.say(f"{iso(self.stream.rows.bar.time[0])} {said}; equity {money(self.dollars)}")
        self._fills = len(fills)

    @property
    def dollars(self) -> float:
        """The equity, start balance included."""
        return (float(self.stream.params.account.start_balance) + self.now.equity) / 1000

    def _follow(self, before: Standing, fills: list[BrokerFill]) -> None:
        """Show the sinks the newest bar that was traded."""
        at = before.order, before.state.position, self.now.state.position
        for sink in self.sinks:
            sink.follow(TradedBar(self._bar, *at, fills))  # type: ignore[arg-type]

    def _end(self, params: EnvParams, complete: bool) -> None:
        """Make the step into the newest bar of `params` again, now as the last of its session."""
        if self.before.order is None:  # its first decision is void, and so is the session
            self._bar = self.stream.rows.bar
            self._follow(self.now, [])  # an order on its way is taken back
            self.now = self.before
            self.journal.add("void")
            return
        sessions = params.market.sessions
        last = sessions.replace(last=sessions.last - 1, complete=np.array([complete]))
        forced = params.replace(market=params.market.replace(sessions=last))
        self.now = self._move(self.before, forced)
        self.fail("ended")
        self._book()
        self._close_session()

    def _close_session(self) -> None:
        self.sessions += 1
        self.journal.add("session", date=str(self.date), account=self.now.number)
        self.say(
            f"{self.date} closed: entries {self.now.tally.today}, equity {money(self.dollars)}, account "
            f"{self.now.number + 1}"
        )

    # --- a decision ------------------------------------------------------------------------------

    def _decide(self, row: StreamRow, now: int | None) -> None:
        at, stream = self.now, self.stream
        stream.carry = at.memory
        decision = stream.decide_at(stream.see_state(at.state))
        wanted, order = int(decision.order.quantity), decision.order
        quantity, acted = limit(self.config, wanted, at.held, self._facts(row, now))
        self.acted.update(acted)
        if quantity != wanted:
            order = order.replace(quantity=np.int32(quantity))
        time = int(row.bar.time[0])
        name = self._name(0) if changes(order, at.held) else None
        known = bool(self.journal.recorded)
        self.fail("decided")
        self.journal.add(
            "decision",
            time=time,
            action=decision.action,
            wanted=wanted,
            quantity=quantity,
            rails=list(acted),
            id=name,
        )
        tally = at.tally._replace(decisions=at.tally.decisions + 1)
        self.now = at._replace(order=order, memory=stream.carry, tally=tally)
        if name:
            self._send(Intent(name, time, quantity, order, int(row.bar.close[0])), now, known)

    def _name(self, number: int) -> str:
        """Name an order of the newest bar, the same whenever it is made again."""
        parts = [self.key, self.now.number, int(self.stream.rows.bar.time[0]), number]
        return sha256_of(canonical(parts))[:24]

    def _send(self, intent: Intent, now: int | None, known: bool) -> None:
        self.fail("intent")
        self.journal.sync()
        self.fail("synced")
        bar = self.stream.rows.bar
        moment = int(bar.time[0]) + bar.bar_seconds if now is None else now
        self._orders = [*self._orders[-MINUTE:], moment]
        self.last = intent
        for broker in (self.broker, *(() if known else self.sinks)):
            broker.submit([intent])
        self.fail("submitted")

    def reconcile(self) -> None:
        """After a restart, send the newest order to the sinks that lack it. Raises HaltError.

        A sink holds what the account holds, or already what the newest order wants.
        """
        for sink in self.sinks:
            found = sink.snapshot()
            newest = int(self.stream.rows.bar.time[0])
            last = self.last if self.last and self.last.time == newest else None
            explained = {self.now.held, *([last.quantity] if last else [])}
            if found.quantity not in explained:
                raise HaltError(
                    f"the broker holds {found.quantity} contracts, and the journal explains "
                    f"{' or '.join(map(str, sorted(explained)))}; close the position by hand, or find out who "
                    "opened it"
                )
            if last and last.id not in found.orders:
                sink.submit([last])

    def _facts(self, row: StreamRow, now: int | None) -> Facts:
        at, kept, bar = self.now, self.stream.rows.kept, row.bar
        closed = int(bar.time[0]) + bar.bar_seconds
        moment, account = closed if now is None else now, at.state.account
        jump = abs(int(kept.open[-1]) - int(kept.close[-2]))
        return {
            "kill": 1 if self.killed else None,
            "daily_loss": (int(account.session_equity) - int(account.equity)) / 1000,
            "total_loss": -at.equity / 1000,
            "orders_per_minute": sum(moment - each < MINUTE for each in self._orders),
            "trades_per_day": at.tally.today,
            "bars_between_trades": at.tally.since_trade,
            "bars_after_loss": at.tally.since_loss,
            "price_jump_ticks": jump,
            "price_jump_atr": 14 * jump / max(int(kept.tr_sum[-1]), 1),
            "stale_bars": None if now is None else (now - closed) / bar.bar_seconds,
        }


def _count(tally: TradeCounts, state: EnvState, event: Event) -> TradeCounts:
    """Count a step."""

    def later(bars: int | None) -> int | None:
        return None if bars is None else bars + 1

    closed = bool(event.order_exit_quantity) + bool(event.exit_quantity)
    balance = int(state.account.balance)
    lost = bool(closed) and balance < tally.flat_balance
    return tally._replace(
        trades=tally.trades + closed,
        today=tally.today + bool(event.entry_quantity),
        since_trade=0 if closed else later(tally.since_trade),
        since_loss=0 if lost else later(tally.since_loss),
        flat_balance=tally.flat_balance if int(state.position.quantity) else balance,
    )


@jax.jit
def _reason(state: EnvState, params: EnvParams) -> Array:
    return end_reason(state, params.replace(max_steps=jnp.int32(0)))
