"""Reward: a weighted sum of pure terms `(prev, next, params) -> float32[]`."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from jaxtrade.env.state import EnvParams, EnvState
from jaxtrade.types import Array

Term = Callable[[EnvState, EnvState, EnvParams], Array]


def equity_change(prev: EnvState, next: EnvState, params: EnvParams) -> Array:
    """(equity at this close - equity at the last one) / risk_unit. Its sum is the episode's profit in risk units."""
    # The reciprocal written out: left to itself, a compiler divides alone and multiplies in a batch.
    return (next.account.equity - prev.account.equity).astype(jnp.float32) * (1.0 / params.account.risk_unit)


TERMS: dict[str, Term] = {"equity_change": equity_change}


def weighted_terms(prev: EnvState, next: EnvState, params: EnvParams) -> Array:
    """float32[K] each term times its weight, in the order of TERMS; the reward is their sum."""
    return params.reward_weights * jnp.stack([term(prev, next, params) for term in TERMS.values()])
