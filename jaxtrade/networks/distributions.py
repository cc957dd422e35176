"""Masked categorical distribution: the only sampler of actions, in training, evaluation and export.

Logits are `float32[..., A]`, masks `bool[..., A]` with at least one True. An illegal action has
probability exactly 0 and is never returned, whatever the logits hold. Log-probabilities of illegal
actions are `ILLEGAL`, large, negative and finite, so that no `0 * inf` can appear in a sum or in a
gradient.
"""

from __future__ import annotations

import itertools

import chex
import jax
import jax.numpy as jnp

from jaxtrade.types import Array

ILLEGAL = float(jnp.finfo(jnp.float32).min)


def check(logits: Array, mask: Array) -> None:
    """Check that logits are float, masks bool, and both have the same shape [..., A].

    Raises AssertionError at trace time.
    """
    chex.assert_equal_shape([logits, mask])
    chex.assert_type([logits, mask], [float, bool])


def log_probs(logits: Array, mask: Array) -> Array:
    """Compute the log-probability of every action, float32[..., A].

    This is the log-softmax over the legal actions, `ILLEGAL` elsewhere.
    """
    check(logits, mask)
    # The bounds keep the difference of two legal logits finite.
    legal = jnp.where(mask, jnp.clip(logits, ILLEGAL / 4, -ILLEGAL / 4), ILLEGAL)
    # Subtract the largest legal logit, so that `exp` cannot overflow. `where` comes before `exp`,
    # so that illegal entries have no gradient.
    shifted = jnp.where(mask, legal - jax.lax.stop_gradient(legal.max(axis=-1, keepdims=True)), 0.0)
    total = jnp.sum(jnp.where(mask, jnp.exp(shifted), 0.0), axis=-1, keepdims=True)
    return jnp.where(mask, shifted - jnp.log(total), ILLEGAL)


def probs(logits: Array, mask: Array) -> Array:
    """Compute the probability of every action, float32[..., A]; exactly 0 where illegal."""
    return jnp.where(mask, jnp.exp(log_probs(logits, mask)), 0.0)


def log_prob(logits: Array, mask: Array, action: Array) -> Array:
    """Compute the log-probability (float32[...]) of `action` int32[...]."""
    chex.assert_type(action, int)
    chex.assert_shape(action, jnp.shape(logits)[:-1])
    return jnp.take_along_axis(log_probs(logits, mask), action[..., None], axis=-1)[..., 0]


def entropy(logits: Array, mask: Array) -> Array:
    """Compute the entropy in nats over the legal actions, float32[...]; 0 if only one is legal."""
    logp = jnp.where(mask, log_probs(logits, mask), 0.0)
    return -jnp.sum(jnp.where(mask, jnp.exp(logp), 0.0) * logp, axis=-1)


def log_prob_and_entropy(logits: Array, mask: Array, action: Array) -> tuple[Array, Array]:
    """Compute `log_prob` of `action` and `entropy`, float32[...] each."""
    return log_prob(logits, mask, action), entropy(logits, mask)


def mode(logits: Array, mask: Array) -> Array:
    """Find the most probable legal action, int32[...]; of equally probable ones the lowest id."""
    check(logits, mask)
    # A legal logit of -inf must still beat every illegal action.
    legal = jnp.where(mask, jnp.maximum(logits, ILLEGAL), -jnp.inf)
    return jnp.argmax(legal, axis=-1).astype(jnp.int32)


def sample_by_inverse_cdf(chance: Array, logits: Array, mask: Array) -> Array:
    """Sample an action by the inverse of the cumulative distribution, int32[...].

    It is the first action whose cumulative probability exceeds `chance` float32[...] in [0, 1), and
    never an action of probability 0.
    """
    chex.assert_type(chance, float)
    chex.assert_shape(chance, logits.shape[:-1])
    p = probs(logits, mask)
    # There are few actions, so a loop over columns is one fused operation; `cumsum` and `argmax`
    # would be five slow ones.
    columns = range(p.shape[-1])
    cumulative = list(itertools.accumulate(p[..., i] for i in columns))
    threshold = chance * cumulative[-1]
    # The product may round up to the total. The result is then the last action with non-zero
    # probability.
    picked = jnp.zeros(jnp.shape(threshold), jnp.int32)
    for i in columns:
        picked = jnp.where(p[..., i] != 0.0, i, picked)
    for i in reversed(columns):
        picked = jnp.where((p[..., i] != 0.0) & (cumulative[i] > threshold), i, picked)
    return picked
