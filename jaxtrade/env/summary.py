"""Trading figures of a rollout, which the learner logs together with its own metrics."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtrade.env.state import EndReason, StepInfo
from jaxtrade.types import Array, Summary, Transition


def collect(seen: Transition) -> dict[str, Any]:
    """Sums over one step of N environments: counts int32[], and sums float32[] over the episodes that ended in it."""
    info: StepInfo = seen.info
    ended = info.end != EndReason.NONE

    def total(values: Array) -> Array:
        return jnp.where(ended, values, 0).astype(jnp.float32).sum()

    return {
        "steps": jnp.int32(ended.size), "breaches": info.event.breach.sum(dtype=jnp.int32),
        "illegal": info.illegal.sum(dtype=jnp.int32),
        "ends": (info.end[:, None] == jnp.arange(len(EndReason))).sum(axis=0, dtype=jnp.int32),
        "equity": total(info.equity), "trades": total(info.stats.trades), "wins": total(info.stats.wins),
        "terms": {name: total(sums) for name, sums in info.stats.terms.items()},
        **({} if info.forced is None else {"forced": info.forced.sum(dtype=jnp.int32)}),
    }


def figures(steps: dict[str, Any]) -> dict[str, Array]:
    """Figures of a rollout, float32[] unless stated otherwise. steps: results of `collect` for T steps, [T, ...].

    About the episodes that ended in the rollout; NaN if none ended (win_rate: if none of them traded):
    episode_profit: mean profit in dollars. episode_trades: mean number of round turns. win_rate: share of round turns
    with a net profit. end_share: float32[7], share of episodes by `EndReason`. reward_NAME: mean sum of each weighted
    reward term, if there are several (a single one equals the episode's reward). forced_share: share of new episodes
    with a forced entry, if these are on (`EnvParams.forced_start`).

    About all steps: breaches: floors reached per 1000 steps. illegal_executed: int32[], number of actions that were
    illegal by the environment's own mask.
    """
    ends = steps["ends"].sum(axis=0).astype(jnp.float32).at[EndReason.NONE].set(0.0)
    count, trades = ends.sum(), steps["trades"].sum()
    terms = steps["terms"] if len(steps["terms"]) > 1 else {}
    forced = {"forced_share": steps["forced"].sum() / count} if "forced" in steps else {}
    return {
        **{f"reward_{name}": sums.sum() / count for name, sums in terms.items()},
        **forced,
        "episode_profit": steps["equity"].sum() / count / 1000.0,
        "episode_trades": trades / count,
        "win_rate": steps["wins"].sum() / trades,
        "illegal_executed": steps["illegal"].sum(),
        "breaches": steps["breaches"].sum().astype(jnp.float32) / steps["steps"].sum().astype(jnp.float32) * 1000.0,
        "end_share": ends / count,
    }


summarise = Summary(collect, figures)
