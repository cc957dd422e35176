"""Masked categorical distribution: the only sampler of actions, in training, evaluation and export.

Logits are `float32[..., A]`, masks `bool[..., A]` with at least one True. An illegal action has probability exactly 0
and is never returned, whatever the logits hold. Log-probabilities of illegal actions are `ILLEGAL`, large, negative
and finite, so that no `0 * inf` can appear in a sum or in a gradient.
"""

from __future__ import annotations

import itertools

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array

ILLEGAL = float(jnp.finfo(jnp.float32).min)


def _check(logits: Array, mask: Array) -> None:
    """Raises AssertionError, when traced, where they are not float and bool of one shape [..., A]."""
    chex.assert_equal_shape([logits, mask])
    chex.assert_type([logits, mask], [float, bool])


def log_probs(logits: Array, mask: Array) -> Array:
    """Log-probability of every action, float32[..., A]: log-softmax over the legal actions, `ILLEGAL` elsewhere."""
    _check(logits, mask)
    # Bounded, so that the difference of two legal logits is finite.
    legal = jnp.where(mask, jnp.clip(logits, ILLEGAL / 4, -ILLEGAL / 4), ILLEGAL)
    # Shifted by the largest legal logit; `where` before `exp`, so that illegal entries send no gradient either.
    shifted = jnp.where(mask, legal - jax.lax.stop_gradient(legal.max(axis=-1, keepdims=True)), 0.0)
    total = jnp.sum(jnp.where(mask, jnp.exp(shifted), 0.0), axis=-1, keepdims=True)
    return jnp.where(mask, shifted - jnp.log(total), ILLEGAL)


def probs(logits: Array, mask: Array) -> Array:
    """Probability of every action, float32[..., A]; exactly 0 where illegal."""
    return jnp.where(mask, jnp.exp(log_probs(logits, mask)), 0.0)


def log_prob(logits: Array, mask: Array, action: Array) -> Array:
    """Log-probability of `action` int32[...], float32[...]."""
    chex.assert_type(action, int)
    chex.assert_shape(action, jnp.shape(logits)[:-1])
    return jnp.take_along_axis(log_probs(logits, mask), action[..., None], axis=-1)[..., 0]


def entropy(logits: Array, mask: Array) -> Array:
    """Entropy in nats over the legal actions, float32[...]; 0 where one action is legal."""
    logp = jnp.where(mask, log_probs(logits, mask), 0.0)
    return -jnp.sum(jnp.where(mask, jnp.exp(logp), 0.0) * logp, axis=-1)


def mode(logits: Array, mask: Array) -> Array:
    """Most probable legal action, int32[...]; the lowest id among equals."""
    _check(logits, mask)
    # A legal logit of -inf must still beat every illegal action.
    legal = jnp.where(mask, jnp.maximum(logits, ILLEGAL), -jnp.inf)
    return jnp.argmax(legal, axis=-1).astype(jnp.int32)


def pick(chance: Array, logits: Array, mask: Array) -> Array:
    """The action at which the cumulative distribution passes `chance` float32[...] in [0, 1), int32[...]."""
    p = probs(logits, mask)
    # Column by column, for actions are few: one fused operation, where `cumsum` and `argmax` are five slow ones.
    columns = range(p.shape[-1])
    cumulative = list(itertools.accumulate(p[..., i] for i in columns))
    threshold = chance * cumulative[-1]
    # The product may round up to the total: then it is the last action of non-zero probability.
    picked = jnp.zeros(jnp.shape(threshold), jnp.int32)
    for i in columns:
        picked = jnp.where(p[..., i] != 0.0, i, picked)
    for i in reversed(columns):
        picked = jnp.where((p[..., i] != 0.0) & (cumulative[i] > threshold), i, picked)
    return picked
