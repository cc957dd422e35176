"""What a rollout of the trading environment says about trading: the learner logs it beside its own figures."""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.env.state import EndReason, StepInfo
from jaxtrade.types import Array, Transition


def summarise(seen: Transition) -> dict[str, Array]:
    """Figures of the episodes that ended in a rollout [T, N], and of its bars; float32.

    episode_profit: mean dollars per ended episode; episode_trades: mean round turns; win_rate: share of them with net
    profit; end_share: float32[7] share of ended episodes by `EndReason`. NaN where no episode ended (or none traded).
    breaches: floors reached per 1000 steps. illegal_executed: int32[] actions that the environment found illegal.
    reward_NAME: mean sum of each weighted reward term per ended episode, where there is more than one (a single term's
    is the episode's reward).
    """
    info: StepInfo = seen.info
    ended = info.end != EndReason.NONE
    count = ended.sum().astype(jnp.float32)

    def mean(values: Array) -> Array:
        return jnp.where(ended, values, 0).astype(jnp.float32).sum() / count

    trades = jnp.where(ended, info.stats.trades, 0).sum().astype(jnp.float32)
    wins = jnp.where(ended, info.stats.wins, 0).sum().astype(jnp.float32)
    reasons = jnp.arange(len(EndReason))
    terms = info.stats.terms if len(info.stats.terms) > 1 else {}
    return {
        **{f"reward_{name}": mean(sums) for name, sums in terms.items()},
        "episode_profit": mean(info.equity) / 1000.0,
        "episode_trades": mean(info.stats.trades),
        "win_rate": wins / trades,
        "illegal_executed": info.illegal.sum(dtype=jnp.int32),
        "breaches": info.event.breach.astype(jnp.float32).mean() * 1000.0,
        "end_share": (info.end[..., None] == reasons).astype(jnp.float32).sum((0, 1)).at[0].set(0.0) / count,
    }
