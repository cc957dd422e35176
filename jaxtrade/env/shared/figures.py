"""Crowding in a shared market: how much its agents do the same, and what their orders do to the
price.

Every agent reports its own share of these figures, and those about all agents are the same for
each. They are sums over the mapped axis `AGENTS`, like the market itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.env.shared.dynamics import SharedEvent, over_agents
from jaxtrade.env.state import EnvParams
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import AGENTS, Array, Summary, Transition

OWN = "shared"  # the sums of this module, beside those of the summary that it extends


def no_sums(params: EnvParams) -> dict[str, Any]:
    """Zeros of the sums of one environment: profit, maker float32 mills; ordered, paid int32."""
    del params
    return {
        "profit": jnp.float32(0),
        "maker": jnp.float32(0),
        "ordered": jnp.int32(0),
        "paid": jnp.int32(0),
    }


def collect(seen: Transition) -> dict[str, Any]:
    """The numbers of one step [N]. ordered: contracts that this agent's orders filled at the open.
    paid: ticks times contracts that impact cost them; negative where they were on the smaller
    side."""
    event: SharedEvent = seen.info.event
    bought = event.entry_quantity - event.order_exit_quantity
    return {
        "profit": event.profit.astype(jnp.float32),
        "maker": event.maker.astype(jnp.float32),
        "ordered": jnp.abs(event.order_exit_quantity) + jnp.abs(event.entry_quantity),
        "paid": bought * event.impact,
    }


def figures(sums: Mapping[str, Any], steps: int) -> dict[str, Array]:
    """float32[] figures of a rollout, from the sums over all its steps and environments.

    crowding_profit, maker_profit: dollars per 1,000 steps of this agent, and of the market maker,
        with open positions
    at their marks. crowding_return_spread: standard deviation of `crowding_profit` over agents.
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


def position_correlation(quantity: Array, reduce: Reduce = LOCAL) -> Array:
    """float32[]: the mean over pairs of agents of the correlation of their positions. quantity:
    int32[T, N].

    With z the standardised positions of n agents, the sum over all ordered pairs, an agent with
    itself included, is the mean of (sum of z)^2. An agent whose position never changes has no
    correlation and does not count; NaN if fewer than two are left.
    """
    held = quantity.astype(jnp.float32)
    deviation = reduce.deviation(held)
    moves = deviation > 0
    z = jnp.where(moves, (held - reduce.mean(held)) / jnp.where(moves, deviation, 1.0), 0.0)
    together, count = over_agents((z, moves.astype(jnp.float32)))
    pairs = count * (count - 1.0)
    return (reduce.mean(jnp.square(together)) - count) / jnp.where(pairs > 0, pairs, jnp.nan)


def crowding(summary: Summary) -> Summary:
    """`summary` with the figures of a shared market.

    Besides those of `figures`: crowding_position_correlation (`position_correlation`, over the
    positions at all decisions of a rollout), and offset_low, offset_high (float32[] ticks), the
    range of the offset.
    """

    def all_figures(sums: dict[str, Any], steps: int) -> dict[str, Array]:
        return {**summary.figures(sums["rest"], steps), **figures(sums[OWN], steps)}

    def keep(seen: Transition) -> tuple[Any, Array]:
        return summary.keep and summary.keep(seen), seen.info.event.offset

    def close(seen: Transition, params: EnvParams, reduce: Reduce = LOCAL) -> dict[str, Array]:
        rest, offset = seen.info
        found = (
            {}
            if summary.close is None
            else dict(summary.close(seen._replace(info=rest), params, reduce))
        )
        high, negative = reduce.max_of_parts((offset.max(), -offset.min()))
        return found | {
            "crowding_position_correlation": position_correlation(seen.ref.legs[..., 0, 0], reduce),
            "offset_low": -negative.astype(jnp.float32),
            "offset_high": high.astype(jnp.float32),
        }

    return Summary(
        lambda params: {"rest": summary.start(params), OWN: no_sums(params)},
        lambda seen: {"rest": summary.collect(seen), OWN: collect(seen)},
        all_figures,
        keep,
        close,
    )
