"""Trading figures of a rollout. The learner logs them beside its own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxtrade.env.state import EndReason, StepInfo
from jaxtrade.types import Array, Summary, Transition


def tell(seen: Transition) -> dict[str, Any]:
    """One step of N environments, summed: counts int32[], and sums float32[] over the episodes that ended in it."""
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
    """Figures of the episodes that ended in a rollout, and of its bars; float32. steps: `tell` of T steps, [T, ...].

    episode_profit: mean dollars per ended episode; episode_trades: mean round turns; win_rate: share of them with net
    profit; end_share: float32[7] share of ended episodes by `EndReason`. NaN where no episode ended (or none traded).
    breaches: floors reached per 1000 steps. illegal_executed: int32[] actions that the environment found illegal.
    reward_NAME: mean sum of each weighted reward term per ended episode, where there is more than one (a single term's
    is the episode's reward). forced_share: share of the episodes begun in the rollout that a forced entry began, where
    episodes may begin so (`EnvParams.forced_start`).
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


summarise = Summary(tell, figures)
