"""The environment of a shared market: one agent's account in a world where all agents trade.

The agents are those of a population.

The agents meet through the mapped axis `AGENTS`: environment i of every agent is world i. So the
functions below that step or reset must run under `jax.vmap(..., axis_name=AGENTS)`, as
`training.population` maps a learner. Everything of a world follows from integer sums over the
agents, so that the order of the agents changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.config import EnvConfig, RunConfig, SharedConfig
from jaxtrade.config.allocate import PARTS, most_contracts, temporary
from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv, leg_bar, next_session, transition
from jaxtrade.env.episode import calendar_end, start
from jaxtrade.env.execution import LegInBar, empty_event, enter, exit_by_order, quote_at, select
from jaxtrade.env.rules import money_of
from jaxtrade.env.state import (
    KEEP_STOP,
    NO_LEVEL,
    EndReason,
    EnvParams,
    EnvState,
    Event,
    ObservationRef,
    Order,
    Position,
)
from jaxtrade.errors import ConfigError
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import AGENTS, Array, Metrics, Outcome, PyTree, Summary, Transition

# The pytrees of a shared market, and price impact in integers.
#
# Prices are int32 ticks, quantities signed contracts, as in `env.state`.


class ImpactParams(struct.PyTreeNode):
    """Traced parameters of price impact; int32.

    kappa: [] thousandths of a tick per net contract.
    decay: [] thousandths of the offset that are left after a bar.
    temporary: [M + 1] thousandths of a tick by the net number of contracts ordered at
        an open, 0 to M.
    """

    kappa: Array
    decay: Array
    temporary: Array


class World(struct.PyTreeNode):
    """What the agents have done to the market, int32[].

    It is the same in the states of all agents of a world.

    offset: thousandths of a tick by which prices lay above the historical ones in the last bar.
    flow: net contracts that all agents bought in the last bar.
    inventory: contracts that the market maker holds.
    """

    offset: Array
    flow: Array
    inventory: Array

    @classmethod
    def new(cls) -> World:
        """Return the world at the start of a session: historical prices, and no position."""
        zero = jnp.int32(0)
        return cls(zero, zero, zero)


class SharedState(EnvState):
    """The state of one agent in a world.

    Its position is relative to the offset: a level of 100 ticks under an offset of 3 is the price
    103.
    """

    world: Any = None  # a `World`; `EnvState` ends with a default, so this needs one


class SharedEvent(Event):
    """An `Event` of a shared market, whose prices are relative to the offset; int32[] besides.

    offset: ticks of the offset in this bar.
    impact: ticks by which orders at the open filled higher.
    profit: mills, this agent's change of equity, from fills and marks alone.
    maker: mills, the market maker's change of equity.
    """

    offset: Array
    impact: Array
    profit: Array
    maker: Array


# --- Price impact in integers: the offset of all later prices, the price of orders at an open,
# positions under an offset.
#
# The offset follows I <- decay I + kappa q with the net contracts q of a bar, in thousandths of a
# tick. The decayed part is rounded towards zero, so that an offset without new orders always
# returns to zero.
#
# Orders at an open fill at the offset after them: I + kappa q + eta sqrt(q), rounded once. If they
# filled without kappa q, agents that buy together would raise the mark of what they have just
# bought: a gain from impact alone, which linear permanent impact must not allow (G. Huberman and W.
# Stanzl, "Price manipulation and quasi-arbitrage", Econometrica 72(4), 2004). The temporary part
# grows with the square root (B. Toth et al., "Anomalous price impact and the critical nature of
# liquidity in financial markets", Physical Review X 1, 2011). Its table is made on the host from
# integer square roots, because a float square root may differ from one device to another.


def table_of(eta: int, most: int) -> np.ndarray:
    """Tabulate `config.allocate.temporary` for 0 to `most` contracts.

    The result is int32[most + 1] thousandths.
    """
    return np.array([temporary(eta, contracts) for contracts in range(most + 1)], np.int32)


def impact_params(config: RunConfig) -> ImpactParams:
    """Return the impact parameters of a configuration with `shared.on`."""
    shared = config.shared
    return ImpactParams(
        jnp.int32(shared.kappa),
        jnp.int32(round(shared.decay * PARTS)),
        jnp.asarray(table_of(shared.eta, most_contracts(config))),
    )


def with_impact(params: EnvParams, config: RunConfig) -> EnvParams:
    """Return the parameters for an `env.shared.SharedEnv`; unchanged without `shared.on`.

    Raises ConfigError for a market whose profits are converted: each account's money is rounded
    alone there, so fills would not add up with the market maker's.
    """
    if not config.shared.on:
        return params
    if params.market.tick_value is not None:
        raise ConfigError(
            f"shared.on=true: profits on {config.data.market} are converted to dollars and rounded for "
            "each agent, so money would not add up; choose a market in dollars, such as ES or EURUSD"
        )
    return params.replace(impact=impact_params(config))


def in_ticks(offset: Array) -> Array:
    """Round thousandths to the nearest tick, a half away from zero (int32[] ticks)."""
    return jnp.sign(offset) * ((jnp.abs(offset) + PARTS // 2) // PARTS)


def next_offset(world: World, impact: ImpactParams) -> Array:
    """Return the offset of the next bar (int32[] thousandths)."""
    left = jnp.sign(world.offset) * (jnp.abs(world.offset) * impact.decay // PARTS)
    return left + impact.kappa * world.flow


def opening_ticks(offset: Array, net: Array, impact: ImpactParams) -> Array:
    """Return how far above the offset orders fill at an open if they buy `net` contracts.

    The result is int32[] ticks, the offset thousandths.
    """
    after = offset + impact.kappa * net + jnp.sign(net) * impact.temporary[jnp.abs(net)]
    return in_ticks(after) - in_ticks(offset)


def shift_position(position: Position, shift: Array) -> Position:
    """Return the same position, relative to an offset that is `shift` ticks higher."""

    def add_impact(level: Array) -> Array:
        exists = (position.quantity != 0) & (jnp.abs(level) < NO_LEVEL)
        return jnp.where(exists, level - shift, level)

    return position.replace(
        entry=add_impact(position.entry),
        stop=add_impact(position.stop),
        target=add_impact(position.target),
    )


def ordered_under(order: Order, shift: Array) -> Order:
    """Return the same order, relative to an offset that is `shift` ticks higher."""
    return order.replace(
        move_stop=jnp.where(order.move_stop == KEEP_STOP, order.move_stop, order.move_stop - shift)
    )


def describe(shared: SharedConfig) -> Iterator[str]:
    """Describe the market that the agents share, if they do, in one line."""
    if shared.on:
        yield (
            f"shared market: the agents trade in the same worlds. A net contract moves prices by "
            f"{shared.kappa / PARTS:g} ticks, of which {shared.decay:g} is left after each bar; n net contracts "
            f"ordered at an open fill {shared.eta / PARTS:g} sqrt(n) ticks worse besides. Evaluation is each policy "
            "alone on the historical market"
        )


def over_agents(numbers: PyTree) -> PyTree:
    """Sum each number over all agents of a world.

    Raises NameError outside of a map over `AGENTS`.
    """
    return jax.lax.psum(numbers, AGENTS)


def compute_order(config: EnvConfig, state: EnvState, order: Order, params: EnvParams) -> Array:
    """Return the contracts that an order buys at the next open (int32[]; negative: sells).

    It depends on no price.

    The rules of `fill_leg` decide it, here at a price of 0.

    Args:
        params: with the contract of the next bar.
    """
    bar, price = leg_bar(config, state, params), jnp.int32(0)
    leg = LegInBar(state.position, jnp.int32(0), None, empty_event(price), params.contract)
    leg = exit_by_order(leg, order, price)
    leg = enter(leg, order, bar, price)
    return leg.event.entry_quantity - leg.event.order_exit_quantity


def count_bought(event: Event) -> Array:
    """Return the contracts that an agent bought in a bar, less those it sold (int32[])."""
    return event.entry_quantity - event.order_exit_quantity - event.exit_quantity


def equity_change(
    before: EnvState, after: EnvState, event: Event, shift: Array, params: EnvParams
) -> Array:
    """Return an agent's change of equity in a bar without commissions (int32[] mills).

    It follows from the agent's fills and marks alone.

    It reads neither the account nor the price of entry. All prices are taken from the bar's last
    one, so that no product exceeds int32.

    Args:
        before: the state at the last close, under an offset that was `shift` ticks lower.
    """
    held, holds = before.position.quantity, after.position.quantity
    quote = quote_at(params.market, after.row)
    origin = quote.bid.close
    was = quote_at(params.market, before.row).leaving(jnp.sign(held)).close - shift - origin
    now = quote.leaving(jnp.sign(holds)).close - origin
    paid = (
        event.entry_quantity * (event.entry_price - origin)
        - event.order_exit_quantity * (event.order_exit_price - origin)
        - event.exit_quantity * (event.exit_price - origin)
    )
    return money_of(holds * now - held * was - paid, rules.contract_at(params, after.row))


@dataclass(frozen=True)
class SharedEnv(TradingEnv):
    """`TradingEnv` in a world that all agents share.

    The configuration's tasks, rules and observations are the same.

    A world draws its sessions from a seed of its own. An account that its rules end inside a
    session is followed by a new one, flat, at the same bar of the same session; the world goes on
    to another session when this one is over.
    """

    def reset(self, key: Array, params: EnvParams) -> tuple[EnvState, ObservationRef]:
        """Start the first episode and return (state, ref).

        The seed of the world is the sum of the agents' own words modulo 2^32: every agent has the
        same part in it.

        Args:
            key: this agent's.
        """
        state = self._begin(over_agents(jax.random.bits(key)), jnp.int32(0), params)
        return state, self.ref(state, params)

    def reset_at(
        self,
        params: EnvParams,
        slot: Array | int,
        row: Array | int,
        seed: int = 0,
        episode: int = 0,
    ) -> EnvState:
        return _in_world(super().reset_at(params, slot, row, seed, episode), World.new())

    def _begin(self, seed: Array, episode: Array, params: EnvParams) -> EnvState:
        return _in_world(super()._begin(seed, episode, params), World.new())

    def transition(
        self, state: EnvState, order: Order, params: EnvParams
    ) -> tuple[EnvState, Event]:
        """Advance one bar.

        First comes the offset of the bar, then the orders of all agents at one open, then each
        agent's own fills.

        Raises ConfigError for parameters without impact.
        """
        if params.impact is None:
            raise ConfigError(
                "a shared market needs parameters from env.shared.with_impact, and these have no "
                "impact"
            )
        world = _world_of(state)
        offset = next_offset(world, params.impact)
        shift = in_ticks(offset) - in_ticks(world.offset)
        shifted, order = (
            state.replace(position=shift_position(state.position, shift)),
            ordered_under(order, shift),
        )
        own = params.replace(contract=rules.contract_at(params, state.row + 1))
        net = over_agents(compute_order(self.config, shifted, order, own))
        impact = opening_ticks(offset, net, params.impact)
        moved, event = transition(self.config, shifted, order, params, impact)

        profit = equity_change(state, moved, event, shift, params)
        flow, maker = over_agents((count_bought(event), profit))
        found = SharedEvent(
            **vars(event),
            offset=in_ticks(offset),
            impact=impact,
            profit=profit - event.commission,
            maker=-maker,
        )
        return moved.replace(world=World(offset, flow, world.inventory - flow)), found

    def step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[EnvState, ObservationRef, Outcome[ObservationRef]]:
        """Run `advance` with auto-reset and return (state, ref, outcome).

        `key` is not used, as in `TradingEnv.step`.
        """
        del key
        going_on, outcome = self.advance(state, action, params)
        done = outcome.info.end != EndReason.NONE
        calendar = calendar_end(state.replace(row=state.row + 1), params)
        place = select(
            calendar.session & done, next_session(going_on, params), going_on
        )  # `advance` left it behind
        world = select(calendar.session, World.new(), _world_of(place))
        following = select(done, self._new_account(place, params), going_on).replace(world=world)
        following = select(
            calendar.last | calendar.incomplete, self.next_episode(state, params), following
        )
        return following, self.ref(following, params), outcome

    def _new_account(self, place: EnvState, params: EnvParams) -> EnvState:
        """Open a new account in the world of `place`, at its bar."""
        opened = start(params, place.slot, place.row, place.seed, place.episode)
        opened = opened.replace(sessions_left=place.sessions_left, record=self.task.record.new())
        return _in_world(opened, _world_of(place))


def _world_of(state: EnvState) -> World:
    assert isinstance(state, SharedState), "a state of SharedEnv"
    return state.world


def _in_world(state: EnvState, world: World) -> EnvState:
    return SharedState(**{**vars(state), "world": world})


def trained_env(config: RunConfig, env: TradingEnv) -> TradingEnv:
    """Return the environment in which a run's agents train.

    With `shared.on` it is a `SharedEnv`, else `env` itself.

    Evaluation always uses `env`: a policy alone on the historical market.
    """
    return SharedEnv(env.config, env.sampler) if config.shared.on else env


# Crowding in a shared market: how much its agents do the same, and what their orders do to the
# price.
#
# Every agent reports its own share of these figures, and those about all agents are the same for
# each. They are sums over the mapped axis `AGENTS`, like the market itself.

OWN = "shared"  # the sums of this module, beside those of the summary that it extends


def no_sums(params: EnvParams) -> dict[str, Any]:
    """Return zeros of the sums of one environment.

    They are profit, maker float32 mills; ordered, paid int32.
    """
    del params
    return {
        "profit": jnp.float32(0),
        "maker": jnp.float32(0),
        "ordered": jnp.int32(0),
        "paid": jnp.int32(0),
    }


def collect(seen: Transition) -> dict[str, Any]:
    """Return the numbers of one step [N].

    Returns:
        ordered: contracts that this agent's orders filled at the open.
        paid: ticks times contracts that impact cost them; negative where they were on
            the smaller side.
    """
    event: SharedEvent = seen.info.event
    bought = event.entry_quantity - event.order_exit_quantity
    return {
        "profit": event.profit.astype(jnp.float32),
        "maker": event.maker.astype(jnp.float32),
        "ordered": jnp.abs(event.order_exit_quantity) + jnp.abs(event.entry_quantity),
        "paid": bought * event.impact,
    }


def metrics(sums: Mapping[str, Any], steps: int) -> Metrics:
    """Compute float32[] metrics of a rollout, from the sums over all its steps and environments.

    Returns:
        crowding_profit, maker_profit: dollars per 1,000 steps of this agent, and of the market
            maker, with open positions at their marks.
        crowding_return_spread: standard deviation of `crowding_profit` over agents.
        impact_paid: ticks per contract that impact at the opens cost this agent's orders; NaN if it
            ordered nothing.
    """
    profit = sums["profit"] / steps  # mills per step are dollars per 1,000 steps
    mean = jax.lax.pmean(profit, AGENTS)
    spread = jnp.sqrt(jax.lax.pmean(jnp.square(profit - mean), AGENTS))
    ordered = sums["ordered"].astype(jnp.float32)
    return {
        "crowding_profit": profit,
        "crowding_return_spread": spread,
        "maker_profit": sums["maker"] / steps,
        "impact_paid": sums["paid"].astype(jnp.float32) / jnp.where(ordered > 0, ordered, jnp.nan),
    }


def position_correlation(quantity: Array) -> Array:
    """Return the mean over pairs of agents of the correlation of their positions (float32[]).

    The agents of a shared market train on one device (`runs.setup`), which holds all their worlds.
    With z the standardised positions of n agents, the sum over all ordered pairs, an agent with
    itself included, is the mean of (sum of z)^2. An agent whose position never changes has no
    correlation and does not count; NaN if fewer than two are left.

    Args:
        quantity: int32[T, N].
    """
    held = quantity.astype(jnp.float32)
    deviation = held.std()
    moves = deviation > 0
    z = jnp.where(moves, (held - held.mean()) / jnp.where(moves, deviation, 1.0), 0.0)
    together, count = over_agents((z, moves.astype(jnp.float32)))
    pairs = count * (count - 1.0)
    return (jnp.square(together).mean() - count) / jnp.where(pairs > 0, pairs, jnp.nan)


def crowding(summary: Summary) -> Summary:
    """Add the metrics of a shared market to `summary`.

    Besides those of `metrics`: crowding_position_correlation (`position_correlation`, over the
    positions at all decisions of a rollout), and offset_low, offset_high (float32[] ticks), the
    range of the offset.
    """

    def all_metrics(sums: dict[str, Any], steps: int) -> Metrics:
        return {**summary.figures(sums["rest"], steps), **metrics(sums[OWN], steps)}

    def keep(seen: Transition) -> tuple[Any, Array]:
        return summary.keep and summary.keep(seen), seen.info.event.offset

    def close(seen: Transition, params: EnvParams, reduce: Reduce = LOCAL) -> Metrics:
        rest, offset = seen.info
        found = (
            {}
            if summary.close is None
            else dict(summary.close(seen._replace(info=rest), params, reduce))
        )
        high, negative = reduce.max_of_parts((offset.max(), -offset.min()))
        return found | {
            "crowding_position_correlation": position_correlation(seen.ref.legs[..., 0, 0]),
            "offset_low": -negative.astype(jnp.float32),
            "offset_high": high.astype(jnp.float32),
        }

    return Summary(
        lambda params: {"rest": summary.start(params), OWN: no_sums(params)},
        lambda seen: {"rest": summary.collect(seen), OWN: collect(seen)},
        all_metrics,
        keep,
        close,
    )
