"""The environment of a shared market: one agent's account in a world in which all agents of a
population trade.

The agents meet through the mapped axis `AGENTS`: environment i of every agent is world i. So the
functions below that step or reset must run under `jax.vmap(..., axis_name=AGENTS)`, as
`training.population` maps a learner. Everything of a world follows from integer sums over the
agents, so that the order of the agents changes no bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig, RunConfig
from jaxtrade.env import rules
from jaxtrade.env.dynamics import TradingEnv, leg_bar, next_session, transition
from jaxtrade.env.episode import calendar_end, start
from jaxtrade.env.execution import LegInBar, empty_event, enter, exit_by_order, quote_at, select
from jaxtrade.env.money import money_of
from jaxtrade.env.shared.impact import (
    SharedEvent,
    SharedState,
    World,
    in_ticks,
    next_offset,
    opening_ticks,
    ordered_under,
    under,
)
from jaxtrade.env.state import EndReason, EnvParams, EnvState, Event, ObservationRef, Order
from jaxtrade.errors import ConfigError
from jaxtrade.types import AGENTS, Array, Outcome, PyTree


def over_agents(numbers: PyTree) -> PyTree:
    """The sum of each number over all agents of a world.

    Raises NameError outside of a map over `AGENTS`.
    """
    return jax.lax.psum(numbers, AGENTS)


def ordered(config: EnvConfig, state: EnvState, order: Order, params: EnvParams) -> Array:
    """int32[]: contracts that an order buys at the next open (negative: sells). It depends on no
    price.

    The rules of `fill_leg` decide it, here at a price of 0. params: with the contract of the next
    bar.
    """
    bar, price = leg_bar(config, state, params), jnp.int32(0)
    leg = LegInBar(state.position, jnp.int32(0), None, empty_event(price))
    leg = exit_by_order(leg, order, price, params.contract)
    leg = enter(leg, order, bar, price, params.contract)
    return leg.event.entry_quantity - leg.event.order_exit_quantity


def bought(event: Event) -> Array:
    """int32[]: contracts that an agent bought in a bar, less those it sold."""
    return event.entry_quantity - event.order_exit_quantity - event.exit_quantity


def gain(before: EnvState, after: EnvState, event: Event, shift: Array, params: EnvParams) -> Array:
    """int32[] mills: an agent's change of equity in a bar without commissions, from its fills and
    marks alone.

    It reads neither the account nor the price of entry. All prices are taken from the bar's last
    one, so that no product exceeds int32. before: the state at the last close, under an offset that
    was `shift` ticks lower.
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
    """`TradingEnv` in a world that all agents share; the configuration's tasks, rules and
    observations are the same.

    A world draws its sessions from a seed of its own. An account that its rules end inside a
    session is followed by a new one, flat, at the same bar of the same session; the world goes on
    to another session when this one is over.
    """

    def reset(self, key: Array, params: EnvParams) -> tuple[EnvState, ObservationRef]:
        """Start the first episode -> (state, ref). key: this agent's.

        The seed of the world is the sum of the agents' own words modulo 2^32: every agent has the
        same part in it.
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
        """One bar: the offset of the bar, the orders of all agents at one open, then each agent's
        own fills.

        Raises ConfigError for parameters without impact.
        """
        if params.impact is None:
            raise ConfigError(
                "a shared market needs parameters from env.shared.impact.with_impact, and these have no "
                "impact"
            )
        world = _world_of(state)
        offset = next_offset(world, params.impact)
        shift = in_ticks(offset) - in_ticks(world.offset)
        shifted, order = (
            state.replace(position=under(state.position, shift)),
            ordered_under(order, shift),
        )
        own = params.replace(contract=rules.contract_at(params, state.row + 1))
        net = over_agents(ordered(self.config, shifted, order, own))
        impact = opening_ticks(offset, net, params.impact)
        moved, event = transition(self.config, shifted, order, params, impact)

        profit = gain(state, moved, event, shift, params)
        flow, maker = over_agents((bought(event), profit))
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
        """`advance` with auto-reset -> (state, ref, outcome). `key` is not used, as in
        `TradingEnv.step`.
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
        """A new account in the world of `place`, at its bar."""
        opened = start(params, place.slot, place.row, place.seed, place.episode)
        opened = opened.replace(sessions_left=place.sessions_left, record=self.new_record())
        return _in_world(opened, _world_of(place))


def _world_of(state: EnvState) -> World:
    assert isinstance(state, SharedState), "a state of SharedEnv"
    return state.world


def _in_world(state: EnvState, world: World) -> EnvState:
    return SharedState(**{**vars(state), "world": world})


def trained_env(config: RunConfig, env: TradingEnv) -> TradingEnv:
    """The environment in which a run's agents train: with `shared.on` a `SharedEnv`, else `env`
    itself.

    Evaluation always uses `env`: a policy alone on the historical market.
    """
    return SharedEnv(env.config, env.sampler) if config.shared.on else env
