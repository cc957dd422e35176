"""The environment: `transition` advances one bar, `step` adds decoding, ends and auto-reset."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import chex
import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.env import observation, rules
from jaxtrade.env.actions import bracket
from jaxtrade.env.episode import (
    count_change,
    count_close,
    count_fills,
    count_step,
    end_reason,
    forced_side,
    is_truncation,
    start,
    start_drawn,
)
from jaxtrade.env.execution import (
    LegBar,
    StopLevel,
    fill_leg,
    quote_at,
    select,
    settle,
    trail_distance,
)
from jaxtrade.env.observation import ActionSpec, ObservationSpec
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.state import (
    EndReason,
    EnvParams,
    EnvState,
    Event,
    ExitReason,
    ObservationRef,
    Order,
    StepInfo,
)
from jaxtrade.env.tasks.base import HOLD, Task
from jaxtrade.env.tasks.guards import task_of
from jaxtrade.text import short_repr
from jaxtrade.types import Array, Outcome

StateT = TypeVar("StateT")


def transition(
    config: EnvConfig, state: EnvState, order: Order, params: EnvParams, impact: Array | None = None
) -> tuple[EnvState, Event]:
    """Advance one bar, without session jump or reset.

    It goes from the close of `state.row`, which must be a decision bar, to the close
    of the next row.

    First the leg is filled (`execution.fill_leg`), then the account is
    settled (`execution.settle`).

    Args:
        impact: as in `LegBar`.
    """
    row = state.row + 1
    params = params.replace(contract=rules.contract_at(params, row))
    stop_level = StopLevel(state.account, params.account)
    bar = leg_bar(config, state, params, impact)
    leg = fill_leg(config, state.position, order, bar, params.contract, stop_level)
    position, event = leg.position, leg.event
    filled = (
        (event.order_exit_quantity != 0) | (event.entry_quantity != 0) | (event.exit_quantity != 0)
    )
    account, breach = settle(state.account, leg.cash, leg.marks, filled, params.account)
    event = event.replace(floor=rules.drawdown_floor(account, params.account), breach=breach)
    stats = count_fills(state.stats, event, state.position.entry, params.contract)
    after = state.replace(
        row=row, time=state.time + 1, position=position, account=account, stats=stats
    )
    keeper = task_of(config).record
    record = keeper.add_bar(state.record, state, after, event, params.contract)
    return after.replace(record=record), event


def leg_bar(
    config: EnvConfig, state: EnvState, params: EnvParams, impact: Array | None = None
) -> LegBar:
    """Return the data of the bar after `state.row` for the leg.

    Args:
        params: with the contract of that bar alone.
    """
    market, row = params.market, state.row + 1
    session = params.sessions.ids[state.slot]
    reason = jnp.where(market.sessions.complete[session], ExitReason.FLAT, ExitReason.END_OF_DATA)
    at_flat_bar = row > market.sessions.last[session]
    return LegBar(
        row=row,
        quote=quote_at(market, row),
        decided=quote_at(market, state.row) if config.fill == "close" else None,
        may_open=rules.may_open(state, params),
        largest=params.account.max_contracts
        if params.contract.cap is None
        else params.contract.cap,
        forced=jnp.where(at_flat_bar, reason, ExitReason.NONE).astype(jnp.int32),
        trail=trail_distance(market.tr_sum[row], params),
        path=market.path,
        impact=impact,
    )


def next_session(state: Any, params: Any) -> Any:
    """Return the state at the first decision bar of the next session of the split.

    The account is carried over.

    Args:
        state, params: of any environment.
    """
    slot = jnp.minimum(state.slot + 1, params.sessions.count - 1)
    return state.replace(
        row=params.market.sessions.first[params.sessions.ids[slot]],
        slot=slot,
        sessions_left=state.sessions_left - 1,
        account=rules.open_session(state.account, params.account),
    )


def forced_entry(
    config: EnvConfig, state: EnvState, probability: Array, params: EnvParams
) -> EnvState:
    """Start a new episode with a forced entry.

    This happens with the given probability and if an entry is legal (`forced_side`).

    The entry is that of BUY or SELL: a market order for `quantity` contracts at the next open, with
    the normal bracket, slippage and commission. The episode then starts one bar later than `state`.
    Its first observation is in position, or flat again if the bar has closed the position. Costs
    and profit of this bar are in the account and in `stats`, but in no reward. No policy chose the
    entry, so it is not a step: `time` and `stats.length` stay 0. If the bar would end the episode,
    the episode starts at `state` instead, without an entry.
    """
    side = forced_side(state, probability, params)
    moved, _ = transition(config, state, bracket(state, side * config.quantity, params), params)
    moved = moved.replace(time=state.time, stats=count_close(moved.stats, moved.account.equity))
    entered = (side != 0) & (end_reason(moved, params) == EndReason.NONE)
    return select(entered, moved, state)


class MarketEnv(Generic[StateT]):
    """What the environments of one symbol and of several have in common, besides `types.Env`.

    config, actions (names by id), observation_spec. has_brackets: whether positions have a stop and
        a target.
    ref(state, params) -> the stored form of the observation, which `observe` makes float32[D].
    mask(state, params) -> bool[A].
    advance(state, action, params) -> (state, outcome): a step without auto-reset.
    reset_at(params, slot, row, seed, episode) -> the state at a chosen decision bar.
    _begin(seed, number of the episode, params) -> its first state.
    """

    config: EnvConfig
    actions: tuple[str, ...]
    observation_spec: ObservationSpec
    has_brackets: ClassVar[bool]
    ref: Callable[..., ObservationRef]
    observe: Callable[..., Array]
    mask: Callable[..., Array]
    advance: Callable[..., tuple[StateT, Outcome[ObservationRef]]]
    reset_at: Callable[..., StateT]
    _begin: Callable[..., StateT]

    @property
    def title(self) -> str:
        """The task in words."""
        return self.config.task

    @property
    def sections(self) -> dict[str, Any]:
        """The sections of the configuration that it is made of, besides `env`."""
        return {}

    @property
    def spec(self) -> ObservationSpec:
        """`observation_spec`."""
        return self.observation_spec

    @property
    def action_spec(self) -> ActionSpec:
        """The ids of the actions and their names."""
        return ActionSpec(self.actions)

    @property
    def num_actions(self) -> int:
        """The number A of actions."""
        return len(self.actions)

    @property
    def observation_size(self) -> int:
        """The number D of slots."""
        return self.observation_spec.size

    def reset(self, key: Array, params: Any) -> tuple[StateT, ObservationRef]:
        """Start the first episode and return (state, ref).

        The starts of all later episodes depend on `key` alone.
        """
        state = self._begin(jax.random.bits(key), jnp.int32(0), params)
        return state, self.ref(state, params)

    def action_mask(self, ref: ObservationRef) -> Array:
        """Return the stored mask of the observation at which the action is chosen (bool[A])."""
        return ref.mask

    def next_episode(self, state: Any, params: Any) -> Any:
        """Return the first state of the next episode."""
        return self._begin(state.seed, state.episode + 1, params)

    def step(
        self, key: Array, state: StateT, action: Array, params: Any
    ) -> tuple[StateT, ObservationRef, Outcome[ObservationRef]]:
        """Run `advance` with auto-reset and return (state, ref, outcome).

        `key` is not used, because episode starts follow from the state. The Env protocol requires
        the argument.
        """
        del key
        going_on, outcome = self.advance(state, action, params)
        done = outcome.info.end != EndReason.NONE
        fresh = self.next_episode(state, params)
        if params.forced_start is not None:
            forced = done & (
                fresh.stats.sides != 0
            )  # only a forced entry can fill anything before the first step
            outcome = outcome.replace(info=outcome.info.replace(forced=forced))
        state = select(done, fresh, going_on)
        return state, self.ref(state, params), outcome


@dataclass(frozen=True)
class TradingEnv(MarketEnv[EnvState]):
    """The trading environment: bars of one symbol, and an account with rules.

    In a set of symbols each episode is of one of them. It is static and hashable; `params` holds
    all data.

    Observation: float32[D], in this order (`observation_spec` has every slot with its bounds).
    W is `env.window`; prices are relative to the last close, unless `env.scaling=seed`.

        slot               range   meaning
        FEATURE[t-i]               each of env.features, i bars before the decision, i = W .. 1
        hour[t-i]                  with minutes_from_open and minutes_to_close: time of that bar
        position           -1..1   side: 1 long, -1 short, 0 flat
        entry                      open profit in ATRs; scaling=seed: entry / close, 1 when flat
        stop_distance      0..     from the close to the stop in ATRs, 0 without
        target_distance    0..     from the close to the target in ATRs, 0 without
        bars_in_position   0..     bars since the entry / 390
      tasks manage and advised:
        can_enter          0..1    1 if an entry is legal
        can_manage         0..1    1 if a position may be managed
        has_position       0..1    1 if a position is held
      task advised:
        FEATURE[t]                 the features of the decision bar (`Task.context`)
        unrealised_profit          open profit
        balance_drawdown   0..     realised profit below its peak
        losses_in_a_row    0..     closed trades since the last win
        recent_win_rate    0..1    wins among the last ten trades, 0.5 before any
        excursion_ratio    0..     worst against best move of the position
      env.advice:
        advice_hold                logit of hold, 0 without advice
        advice_buy                 logit of buy, 0 without advice
        advice_sell                logit of sell, 0 without advice
        advice_confidence  0..1    how sure the advisor is
        advice_risk        0..1    how risky it finds the bar
        advice_valid       0..1    1 if there is advice
        advice_age         0..     log(1 + age in bars)

    Action: int32[], an id in 0 .. A - 1 (`action_spec`), executed at the next open. HOLD, BUY and
    SELL; of manage and advised also MOVE_STOP_TO_BREAKEVEN, ENABLE_TRAIL, DISABLE_TRAIL and CLOSE.
    `action_mask` says which are legal; an illegal one is executed as HOLD and counted.

    Reward: float32[], by default the change of equity in risk units of the account
    (docs/features.md). `terminated`: bust, daily loss (if it fails the account), target, or the end
    of the episode's last session. `truncated`: step limit or end of data.

        >>> import jax
        >>> import jaxtrade
        >>> config = jaxtrade.load_config("quickstart", ["env.task=entry"])
        >>> market = jaxtrade.load_markets(config)
        >>> sessions = jaxtrade.split_sessions(market, config.split)["train"]
        >>> env, params = jaxtrade.make_env(config), jaxtrade.make_params(market, sessions, config)
        >>> state, ref = env.reset(jax.random.key(0), params)
        >>> env.observe(ref, params).shape == env.observation_spec.shape
        True
        >>> dict(zip(env.actions, env.action_mask(ref).tolist()))
        {'HOLD': True, 'BUY': True, 'SELL': True}
        >>> buy = jax.numpy.int32(env.actions.index("BUY"))
        >>> state, ref, outcome = jax.jit(env.step)(jax.random.key(1), state, buy, params)
        >>> int(state.position.quantity), bool(outcome.terminated)
        (1, False)
    """

    config: EnvConfig
    sampler: str = "uniform"
    has_brackets: ClassVar[bool] = True

    def __repr__(self) -> str:
        return short_repr(
            "TradingEnv",
            f"task={self.config.task}",
            f"{self.observation_size} observations",
            f"actions: {', '.join(self.actions)}",
            f"fill={self.config.fill}",
            f"intrabar={self.config.intrabar}",
            f"window={self.config.window}",
        )

    @property
    def task(self) -> Task:
        """The configured task: it defines the actions, their meaning and the observation."""
        return task_of(self.config)

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the A actions, in the order of their ids."""
        return self.task.actions(self.config)

    @property
    def observation_spec(self) -> ObservationSpec:
        """The slots of the observation."""
        return observation.make_spec(self.config)

    def reset_at(
        self,
        params: EnvParams,
        slot: Array | int,
        row: Array | int,
        seed: int = 0,
        episode: int = 0,
    ) -> EnvState:
        """Open a new account at the close of market row `row`.

        The row lies in session `slot` of the split.
        """
        state = start(params, jnp.int32(slot), jnp.int32(row), jnp.uint32(seed), jnp.int32(episode))
        return state.replace(record=self.task.record.new())

    def mask(self, state: EnvState, params: EnvParams) -> Array:
        """Return the legal actions at `state` (bool[A])."""
        mask = self.task.mask(self.config, state, rules.of_symbol(params, state.row))
        chex.assert_shape(
            mask,
            (self.num_actions,),
            custom_message=f"task '{self.config.task}': `mask` is not one bool for each of `actions`",
        )
        return mask

    def decode(self, action: Array, state: EnvState, params: EnvParams) -> Order:
        """Convert a legal action (int32[]) at `state` to its order."""
        return self.task.decode(self.config, action, state, rules.of_symbol(params, state.row))

    def transition(
        self, state: EnvState, order: Order, params: EnvParams
    ) -> tuple[EnvState, Event]:
        """Advance one bar; see `dynamics.transition`."""
        return transition(self.config, state, order, params)

    def ref(self, state: EnvState, params: EnvParams) -> ObservationRef:
        """Return the stored form of the observation at `state`.

        It takes 25 bytes, 51 for `advised`, and 28 more with an advisor.
        """
        return observation.make_ref(self.task, state, self.mask(state, params), params)

    def observe(self, ref: ObservationRef, params: EnvParams) -> Array:
        """Return the observation of a reference (float32[D]).

        It is bit-identical for acting and learning.
        """
        return observation.observe(self.config, ref, rules.of_symbol(params, ref.row[0]))

    def groups(self, params: EnvParams) -> int:
        """Return the number of symbols of the market.

        Learners keep observation statistics for each (`rl.acting.Grouped`).
        """
        if params.market.symbol is None:
            return 1
        offsets, commission = params.sessions.offsets, params.contract.commission
        return commission.shape[0] if offsets is None else offsets.shape[0] - 1

    def group(self, ref: ObservationRef, params: EnvParams) -> Array:
        """Return the symbol of a reference as its place in the set (int32[]).

        It is 0 on a market of one symbol.
        """
        symbol = params.market.symbol
        return jnp.int32(0) if symbol is None else symbol[ref.row[0]].astype(jnp.int32)

    def advance(
        self, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[EnvState, Outcome[ObservationRef]]:
        """Decode an action and advance one bar, without auto-reset.

        At the end of a session it jumps to the next one.

        Args:
            action: int32[], an id of `actions`.
        """
        chex.assert_rank(action, 0)
        chex.assert_type(action, int)
        params = rules.of_symbol(params, state.row)
        # Comparisons instead of a look-up, which would be a program of its own on a device.
        mask = self.mask(state, params)
        legal = functools.reduce(
            jnp.logical_or, [mask[i] & (action == i) for i in range(self.num_actions)]
        )
        order = self.decode(jnp.where(legal, action, HOLD), state, params)
        moved, event = self.transition(state, order, params)
        end = end_reason(moved, params)
        terms = weighted_terms(state, moved, StepEvent(action, ~legal, event, self.actions), params)
        stats = count_step(moved.stats, moved.account.equity, terms, ~legal)
        moved = moved.replace(
            stats=count_change(stats, moved.account.equity - state.account.equity)
        )

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

    def _begin(self, seed: Array, episode: Array, params: EnvParams) -> EnvState:
        state = start_drawn(params, seed, episode, self.config.random_start, self.sampler)
        state = state.replace(record=self.task.record.new())
        if params.forced_start is None:
            return state
        return forced_entry(
            self.config, state, params.forced_start, rules.of_symbol(params, state.row)
        )
