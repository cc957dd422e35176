"""How much a learner errs on each symbol of a set, and the share of episodes that each symbol gets
for it.

Only for samplers that read weights (`sampler.kind: prioritised`, or one of your own). A learner
holds `first_errors` in its state. Each update sets `params.symbol_weights` to `shares` of them
before the rollout, and calls `follow` after it.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxtrade.config import SamplerConfig
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.context import Context
from jaxtrade.types import Array, PyTree, Transition

UNWEIGHTED = ("uniform", "balanced", "round_robin")  # samplers that read no weights


def first_errors(config: SamplerConfig, params: PyTree) -> Array | None:
    """float32[M] zeros (no error is known yet), or None with one symbol or a sampler that reads no
    weights.
    """
    if config.kind in UNWEIGHTED or params.sessions.offsets is None:
        return None
    return jnp.zeros(params.sessions.offsets.shape[0] - 1)


def follow(
    errors: Array, sizes: Array, symbols: Array, rate: float, reduce: Reduce = LOCAL
) -> Array:
    """The errors after an update: an exponential moving average of the mean size of a learner's
    errors, by symbol.

    Args:
        errors: float32[M], before the update; 0 for a symbol that was never seen.
        sizes: float32 >= 0, of any shape: |advantage| or |TD error| of each step.
        symbols: int8, same shape: the symbol of each step, `market.symbol[ref.row[..., 0]]`.
        rate: weight of this update. The first mean of a symbol is taken as it is.
    Returns:
        float32[M]. A symbol without a step in this update keeps its error. An error that is not
        finite changes nothing.
    """
    own = symbols.reshape(-1, 1) == jnp.arange(errors.shape[0], dtype=symbols.dtype)
    count = reduce.sum(own, 0, jnp.float32)
    mean = reduce.sum(jnp.where(own, sizes.reshape(-1, 1), 0.0), 0) / jnp.maximum(count, 1.0)
    moved = jnp.where(errors == 0.0, mean, errors + rate * (mean - errors))
    return jnp.where((count > 0) & jnp.isfinite(moved), moved, errors)


def shares(errors: Array, even_share: float) -> Array:
    """float32[M], sum 1: the share of episodes of each symbol, in proportion to its error.

    `even_share` of the episodes is spread evenly. A symbol without a known error counts as the mean of the others.
    """
    known = errors > 0.0
    mean = errors.sum() / jnp.maximum(known.sum(), 1)
    filled = jnp.where(known, errors, jnp.where(mean > 0.0, mean, 1.0))
    return even_share / errors.shape[0] + (1.0 - even_share) * filled / filled.sum()


def weighted(params: PyTree, errors: Array | None, config: SamplerConfig) -> PyTree:
    """The environment's parameters with the shares of the symbols; as they are where `errors` is
    None.
    """
    return (
        params
        if errors is None
        else params.replace(symbol_weights=shares(errors, config.even_share))
    )


def followed(
    ctx: Context, errors: Array | None, sizes: Array, seen: Transition, params: PyTree
) -> Array | None:
    """`follow` for the steps of a rollout; None where `errors` is None. sizes: float32[T, N]."""
    if errors is None:
        return None
    return follow(
        errors, sizes, params.market.symbol[seen.ref.row[..., 0]], ctx.sampler.rate, ctx.reduce
    )
