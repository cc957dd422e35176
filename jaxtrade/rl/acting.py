"""What every learner's policy does at a reference: read it, combine it with advice, and tell what
it decided.

All functions but `ready` take a policy that `ready` has made.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxtrade.networks.normalize import normalise
from jaxtrade.rl.context import Context
from jaxtrade.rl.listening.fusion import AdviceTerms, Fused
from jaxtrade.rl.observing import group_of, ready_statistics
from jaxtrade.rl.state import Policy
from jaxtrade.types import Array, Env, PyTree


class ActExtras(NamedTuple):
    """Further results of `Algorithm.act`.

    log_prob: float32[], of the action. value: float32[]. logits: float32[A]; of a Q-learner its Q
        values. mask:
    bool[A]. overridden: bool[], True if the same random number would have drawn another action
    without advice; None without a fusion or without exploration. probs: float32[A], the
    distribution that exploration draws from; None if it is the softmax of `logits` over `mask`.
    """

    log_prob: Array
    value: Array
    logits: Array
    mask: Array
    overridden: Array | None = None
    probs: Array | None = None


def ready(ctx: Context, policy: Policy) -> Policy:
    """The policy in the form that acting uses: packed parameters, and a `Scaler` instead of the
    statistics. Computed once, not in every step."""
    return policy.replace(
        parameters=ctx.packed(policy.parameters),
        normaliser=ready_statistics(ctx.settings, policy.normaliser),
    )


def network_input(ctx: Context, policy: Policy, ref: PyTree, params: PyTree) -> Array:
    """float32[D]: the observation, normalised by the group of `ref` if the configuration says
    so.
    """
    observation, normaliser = ctx.env.observe(ref, params), policy.normaliser
    if not ctx.settings.normalise_observations:
        return observation
    assert normaliser is not None
    groups = normaliser.mean.shape[0] if normaliser.mean.ndim == 2 else 1
    return normalise(normaliser, observation, group_of(ctx.env, groups, ref, params))


def advice_terms(ctx: Context, policy: Policy, ref: PyTree) -> AdviceTerms | None:
    """The advice terms of `ref`, which `fused` needs. None without a fusion."""
    return None if ctx.fusion is None else ctx.fusion.terms(policy.fusion, ref)


def fused(
    ctx: Context,
    policy: Policy,
    observation: Array,
    ref: PyTree,
    terms: AdviceTerms | None,
    logits: Array,
    mask: Array,
) -> Fused:
    """Logits and mask after the fusion with advice. observation: float32[D] as from
    `network_input`.
    """
    if ctx.fusion is None or terms is None:
        return Fused(logits, mask, None)
    return ctx.fusion.fuse(terms, policy.parameters, observation, ref, logits, mask)


def chance_of(env: Env, ref: PyTree, key: Array | None, explore: bool) -> Array | None:
    """The random number of `Algorithm.act`: float32[...] in [0, 1), or None if it does not explore.

    Raises ValueError if `explore` is True and `key` is None.
    """
    if not explore:
        return None
    if key is None:
        raise ValueError(
            "act explores by a key, and none is given; give one, or set explore to False"
        )
    return jax.random.uniform(key, env.action_mask(ref).shape[:-1])
