"""Trading figures of a rollout, which the learner logs together with its own metrics."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtrade.env.state import EndReason, EnvParams, StepInfo
from jaxtrade.types import Array, Summary, Transition


def first_sums(params: EnvParams) -> dict[str, Any]:
    """Zeros of the sums of one environment."""
    none, zero = jnp.int32(0), jnp.float32(0)
    return {
        "breaches": none,
        "illegal": none,
        "ends": jnp.zeros(len(EndReason), jnp.int32),
        "equity": zero,
        "trades": none,
        "wins": none,
        "terms": dict.fromkeys(params.reward_weights, zero),
        **({} if params.forced_start is None else {"forced": none}),
    }


def collect(seen: Transition) -> dict[str, Any]:
    """The numbers of one step [N]: counts int32, and the figures of the episodes that ended in
    it.
    """
    info: StepInfo = seen.info
    ended = info.end != EndReason.NONE

    def at_end(values: Array) -> Array:
        return jnp.where(ended, values, jnp.zeros_like(values))

    return {
        "breaches": info.event.breach.astype(jnp.int32),
        "illegal": info.illegal.astype(jnp.int32),
        "ends": (info.end[:, None] == jnp.arange(len(EndReason))).astype(jnp.int32),
        "equity": at_end(info.equity).astype(jnp.float32),
        "trades": at_end(info.stats.trades),
        "wins": at_end(info.stats.wins),
        "terms": {name: at_end(sums) for name, sums in info.stats.terms.items()},
        **({} if info.forced is None else {"forced": info.forced.astype(jnp.int32)}),
    }


def figures(sums: dict[str, Any], steps: int) -> dict[str, Array]:
    """Figures of a rollout, float32[] unless stated otherwise. sums: of `collect` over all steps
    and environments.

    About the episodes that ended in the rollout; NaN if none ended (win_rate: if none of them
    traded):
    episode_profit: mean profit in dollars. episode_trades: mean number of round turns. win_rate:
        share of round turns
    with a net profit. end_share: float32[7], share of episodes by `EndReason`. reward_NAME: mean
    sum of each weighted reward term, if there are several (a single one equals the episode's
    reward). forced_share: share of new episodes with a forced entry, if these are on
    (`EnvParams.forced_start`).

    About all steps: breaches: floors reached per 1000 steps. illegal_executed: int32[], number of
    actions that were illegal by the environment's own mask.
    """
    ends = sums["ends"].astype(jnp.float32).at[EndReason.NONE].set(0.0)
    count, trades = ends.sum(), sums["trades"].astype(jnp.float32)
    terms = sums["terms"] if len(sums["terms"]) > 1 else {}
    forced = {"forced_share": sums["forced"] / count} if "forced" in sums else {}
    return {
        **{f"reward_{name}": total / count for name, total in terms.items()},
        **forced,
        "episode_profit": sums["equity"] / count / 1000.0,
        "episode_trades": trades / count,
        "win_rate": sums["wins"] / trades,
        "illegal_executed": sums["illegal"],
        "breaches": sums["breaches"].astype(jnp.float32) / steps * 1000.0,
        "end_share": ends / count,
    }


summarise = Summary(first_sums, collect, figures)
