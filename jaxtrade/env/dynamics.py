"""The environment: `transition` advances one bar, `step` adds decoding, ends and a fused auto-reset."""

from __future__ import annotations

from dataclasses import dataclass

import chex
import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env import observation, rules
from jaxtrade.env.episode import (
    count_close,
    count_fills,
    count_step,
    end_reason,
    forced_side,
    is_truncation,
    start,
    start_drawn,
)
from jaxtrade.env.execution import fill_leg, trail_distance
from jaxtrade.env.leg import LegBar, quote_at, select
from jaxtrade.env.observation import ObservationRef, ObservationSpec
from jaxtrade.env.orders import bracket
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.settle import StopLevel, settle
from jaxtrade.env.state import EndReason, EnvParams, EnvState, Event, ExitReason, Order, StepInfo
from jaxtrade.env.tasks.base import HOLD, Task, task_of
from jaxtrade.types import Array, Outcome, PyTree


def transition(config: EnvConfig, state: EnvState, order: Order, params: EnvParams) -> tuple[EnvState, Event]:
    """One bar: from the close of `state.row` to the close of the next row. No session jump, no reset.

    The leg fills (`execution.fill_leg`), then the account settles (`settle.settle`). `state.row` must be a decision
    bar.
    """
    row = state.row + 1
    params = params.replace(contract=rules.contract_at(params, row))
    stop_level = StopLevel(state.account, params.account)
    leg = fill_leg(config, state.position, order, _leg_bar(config, state, params), params.contract, stop_level)
    position, event = leg.position, leg.event
    filled = (event.order_exit_quantity != 0) | (event.entry_quantity != 0) | (event.exit_quantity != 0)
    account, breach = settle(state.account, leg.cash, leg.marks, filled, params.account)
    event = event.replace(floor=rules.drawdown_floor(account, params.account), breach=breach)
    stats = count_fills(state.stats, event, state.position.entry, params.contract)
    after = state.replace(row=row, time=state.time + 1, position=position, account=account, stats=stats)
    keeper = task_of(config).record
    if keeper is not None:
        after = after.replace(record=keeper.add_bar(state.record, state, after, event, params.contract))
    return after, event


def _leg_bar(config: EnvConfig, state: EnvState, params: EnvParams) -> LegBar:
    """The bar after `state.row` as the position of `state` meets it."""
    market, row = params.market, state.row + 1
    session = params.sessions.ids[state.slot]
    reason = jnp.where(market.sessions.complete[session], ExitReason.FLAT, ExitReason.END_OF_DATA)
    at_flat_bar = row > market.sessions.last[session]
    return LegBar(
        row=row,
        quote=quote_at(market, row),
        decided=quote_at(market, state.row) if config.fill == "close" else None,
        may_open=rules.may_open(state, params),
        largest=params.account.max_contracts,
        forced=jnp.where(at_flat_bar, reason, ExitReason.NONE).astype(jnp.int32),
        trail=trail_distance(market.tr_sum[row], params),
        path=market.path,
    )


def next_session(state: EnvState, params: EnvParams) -> EnvState:
    """At the first decision bar of the split's next session, flat, the account carried over."""
    slot = jnp.minimum(state.slot + 1, params.sessions.count - 1)
    return state.replace(
        row=params.market.sessions.first[params.sessions.ids[slot]],
        slot=slot,
        sessions_left=state.sessions_left - 1,
        account=rules.open_session(state.account, params.account),
    )


def forced_entry(config: EnvConfig, state: EnvState, probability: Array, params: EnvParams) -> EnvState:
    """A new episode at `state`; with `probability`, where `forced_side` finds it legal, it starts one bar later, in a
    position.

    The entry is that of BUY or SELL: a market order for `quantity` contracts at the next open, with the normal bracket,
    slippage and commission. The first observation is at that bar's close: in position, or flat again where the bar
    closed it. Costs and profit of the bar are in the account and in `stats`, and in no reward. No policy chose it, so
    it is no step: `time` and `stats.length` are 0. An episode that the bar would end starts at `state` instead.
    """
    side = forced_side(state, probability, params)
    moved, _ = transition(config, state, bracket(state, side * config.quantity, params), params)
    moved = moved.replace(time=state.time, stats=count_close(moved.stats, moved.account.equity))
    entered = (side != 0) & (end_reason(moved, params) == EndReason.NONE)
    return select(entered, moved, state)


@dataclass(frozen=True)
class TradingEnv:
    """Minute bars, one symbol, an account with rules. Static and hashable; all data come in `params`.

    Actions: `actions`, those of the task. Observation: `spec`, float32[D]. Reward: change of equity in account risk
    units by default. `terminated`: bust, daily loss (where it fails the account), target, end of the episode's last
    session. `truncated`: step limit, end of data. An illegal action is executed as action 0, HOLD, and counted.
    """

    config: EnvConfig

    @property
    def task(self) -> Task:
        """What an agent may do, what its actions mean, what it sees."""
        return task_of(self.config)

    @property
    def actions(self) -> tuple[str, ...]:
        """The A action names in id order."""
        return self.task.actions(self.config)

    @property
    def spec(self) -> ObservationSpec:
        """Every observation slot by name."""
        return observation.make_spec(self.config)

    @property
    def num_actions(self) -> int:
        """A."""
        return len(self.actions)

    @property
    def observation_size(self) -> int:
        """D, derived from `spec`."""
        return self.spec.size

    def reset(self, key: Array, params: EnvParams) -> tuple[EnvState, ObservationRef]:
        """First episode of an environment whose further starts follow from `key` alone."""
        state = self._begin(jax.random.bits(key), jnp.int32(0), params)
        return state, self.ref(state, params)

    def new_record(self) -> PyTree:
        """The task's record as an episode begins; None where it keeps none."""
        keeper = self.task.record
        return None if keeper is None else keeper.new()

    def reset_at(
        self, params: EnvParams, slot: Array | int, row: Array | int, seed: int = 0, episode: int = 0
    ) -> EnvState:
        """A new account at the close of market row `row`, which lies in session `slot` of the split."""
        state = start(params, jnp.int32(slot), jnp.int32(row), jnp.uint32(seed), jnp.int32(episode))
        return state.replace(record=self.new_record())

    def mask(self, state: EnvState, params: EnvParams) -> Array:
        """bool[A]."""
        mask = self.task.mask(self.config, state, params)
        chex.assert_shape(mask, (self.num_actions,),
                          custom_message=f"task '{self.config.task}': `mask` is not one bool for each of `actions`")
        return mask

    def decode(self, action: Array, state: EnvState, params: EnvParams) -> Order:
        """The order that a legal action (int32[]) means at `state`."""
        return self.task.decode(self.config, action, state, params)

    def transition(self, state: EnvState, order: Order, params: EnvParams) -> tuple[EnvState, Event]:
        """One bar; see `dynamics.transition`."""
        return transition(self.config, state, order, params)

    def ref(self, state: EnvState, params: EnvParams) -> ObservationRef:
        """The stored form of the observation at `state` (25 bytes; 51 of `advised`; 28 more with an advisor)."""
        return observation.make_ref(self.config, state, self.mask(state, params), params)

    def observe(self, ref: ObservationRef, params: EnvParams) -> Array:
        """float32[D] from a reference, the same bits wherever it is called."""
        return observation.observe(self.config, ref, params)

    def action_mask(self, ref: ObservationRef) -> Array:
        """bool[A], the mask of the observation that the action is chosen on."""
        return ref.mask

    def advance(
        self, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[EnvState, Outcome[ObservationRef]]:
        """Decode and advance one bar, into the next session where this one ended; an ended episode is left as it is.

        Args:
            action: int32[], an id of `actions`.
        """
        chex.assert_rank(action, 0)
        chex.assert_type(action, int)
        legal = self.mask(state, params)[action]
        order = self.decode(jnp.where(legal, action, HOLD), state, params)
        moved, event = self.transition(state, order, params)
        end = end_reason(moved, params)
        terms = weighted_terms(state, moved, StepEvent(action, ~legal, event, self.actions), params)
        moved = moved.replace(stats=count_step(moved.stats, moved.account.equity, terms, ~legal))

        done = end != EndReason.NONE
        session_over = moved.row > params.market.sessions.last[params.sessions.ids[moved.slot]]
        going_on = select(session_over & ~done, next_session(moved, params), moved)
        truncated = is_truncation(end)
        return going_on, Outcome(
            final_ref=self.ref(going_on, params),
            reward=total(terms),
            terminated=done & ~truncated,
            truncated=truncated,
            info=StepInfo(event, moved.stats, moved.account.equity, end, terms, ~legal),
        )

    def next_episode(self, state: EnvState, params: EnvParams) -> EnvState:
        """The first state of the episode after that of `state`."""
        return self._begin(state.seed, state.episode + 1, params)

    def _begin(self, seed: Array, episode: Array, params: EnvParams) -> EnvState:
        state = start_drawn(params, seed, episode, self.config.random_start).replace(record=self.new_record())
        if params.forced_start is None:
            return state
        return forced_entry(self.config, state, params.forced_start, params)

    def step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[EnvState, ObservationRef, Outcome[ObservationRef]]:
        """`advance`, and start the next episode where this one ended.

        `key` is not used (episode starts follow from the state); it is there for the Env protocol.
        """
        del key
        going_on, outcome = self.advance(state, action, params)
        done = outcome.info.end != EndReason.NONE
        fresh = self.next_episode(state, params)
        if params.forced_start is not None:
            forced = done & (fresh.stats.sides != 0)  # nothing else is filled before the first step
            outcome = outcome.replace(info=outcome.info.replace(forced=forced))
        state = select(done, fresh, going_on)
        return state, self.ref(state, params), outcome
