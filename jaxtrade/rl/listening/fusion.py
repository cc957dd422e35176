"""How advice meets the policy: inside the masked distribution, before sampling, so that PPO's log-probability is right.

With d the advised direction (+1 buy, -1 sell, 0 hold or none), e(a) the side that is held after action a (BUY 1, SELL
-1, CLOSE 0, all others the side held now) and t the trust, the log-odds of the advisor's measured hit rate in that
range of confidence (`outcomes.log_odds`: 0 while it is no reason to listen, negative for an advisor that is mostly
wrong):

    trust   logit(a) + t d e(a) / 2: the odds of being long against short are multiplied by exp(t d)
    gate    the same times a learned share in (0, 1), whose mean opening costs `gate_cost`
    rules   the old system's rules as the mixture of what they make of each action (below)
    slots   nothing here: the observation shows the advice (`env.advice`)
    none    nothing at all; outcomes are counted as always

Where the advised risk reaches `veto`, actions that open a position are illegal. Advice never makes an action legal.

The old rules chose between the sampled action, with its probability p as confidence, and the advised one, with the
stated confidence c: the same action is taken; p > 0.9 and c <= 0.6 takes the sampled, c > 0.9 and p <= 0.6 the advised;
both below 0.5 is HOLD; else the larger of p (1 - w) and c w decides. Each action of the policy is so mapped to one, and
the probabilities of those that are mapped to the same are added. One part in 100 stays with the policy, so that no
legal action has probability 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.advisor.outcomes import Outcomes, bin_of, hit_rate, log_odds
from jaxtrade.advisor.table import AdviceSeen, AdviceView
from jaxtrade.config import AdvisorConfig, EnvConfig
from jaxtrade.env.observation import ObservationRef
from jaxtrade.env.tasks.base import HOLD, task_of
from jaxtrade.networks import distributions
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.types import Array, PyTree, Transition

GATE = "gate"  # among a policy's parameters
GATE_SLOTS = ("gate confidence", "gate risk", "gate age", "gate trust")  # what the gate reads beside the observation
_GATE_WIDTH = 16
_OWN = 0.01  # share of the mixture that stays with the policy


class Trust(struct.PyTreeNode):
    """`Policy.fusion`: log_odds float32[B] by range of confidence, as measured in training."""

    log_odds: Array


class AdviceTerms(NamedTuple):
    """What of the advice beside a reference acts on the policy. Nothing that learning changes is in it, so it is
    computed once for a rollout and not in every minibatch.

    refused: bool[], opening a position is vetoed. advice: for `trust` its tilt float32[]; for `rules` and `gate` a
    tuple. Each is None where nothing of the kind can be (static).
    """

    refused: Array | None = None
    advice: Any = None


class Fused(NamedTuple):
    """float32[A], bool[A], and the loss that the fusion adds, float32[]; None without a fusion."""

    logits: Array
    mask: Array
    cost: Array | None


class Gate(nn.Module):
    """float32[..., D + 4] -> float32[...] in (0, 1): what share of the trust is listened to. Begins near one half."""

    precision: Any = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.tanh(nn.Dense(_GATE_WIDTH, precision=self.precision)(x))
        x = nn.Dense(1, kernel_init=nn.initializers.orthogonal(0.01), precision=self.precision)(x)
        return jax.nn.sigmoid(x[..., 0])


def exposure(env: EnvConfig, side: Array) -> Array:
    """float32[A]: the side held after each action; side: int32[] held now."""
    sides = task_of(env).sides(env)
    side_of = np.array([after or 0 for after in sides], np.float32)
    keeps = np.array([after is None for after in sides], np.float32)
    # Of constants, one operation: a stack of choices would be one for each action.
    return jnp.asarray(side_of) + keeps * side.astype(jnp.float32)


def side_after(env: EnvConfig, action: Array, side: Array) -> Array:
    """int32[...]: the side held after `action` int32[...]; as `exposure`."""
    for i, after in enumerate(task_of(env).sides(env)):
        side = side if after is None else jnp.where(action == i, after, side)
    return side


def advised_action(env: EnvConfig, direction: Array, side: Array) -> Array:
    """int32[]: what the old rules would do about advice: open when flat, close (where the task can) an opposite
    position, else HOLD. Of several actions that do so the first."""
    sides = task_of(env).sides(env)
    buy, sell, close = (sides.index(side) if side in sides else HOLD for side in (1, -1, 0))
    opens = jnp.where(direction > 0, buy, sell)
    chosen = jnp.where(side == 0, opens, jnp.where(side == -direction, close, HOLD))
    return jnp.where(direction == 0, HOLD, chosen)


def rule_mixture(logits: Array, mask: Array, advised: Array, confidence: Array, weight: float) -> Array:
    """float32[A] log-probabilities of the old rules' choice; `advised` int32[] is legal."""
    p = distributions.probs(logits, mask)
    w, actions = weight, jnp.arange(p.shape[-1])
    takes_own = (p > 0.9) & (confidence <= 0.6)
    takes_advice = (confidence > 0.9) & (p <= 0.6)
    holds = (p < 0.5) & (confidence < 0.5)
    compared = jnp.where(confidence * w > p * (1.0 - w), advised, actions)
    chosen = jnp.where(holds, HOLD, compared)
    chosen = jnp.where(takes_advice, advised, chosen)
    chosen = jnp.where(takes_own | (actions == advised), actions, chosen)
    mixture = jnp.zeros_like(p).at[chosen].add(p)
    return jnp.where(mask, jnp.log(jnp.maximum(_OWN * p + (1.0 - _OWN) * mixture, 1e-30)), distributions.ILLEGAL)


@dataclass(frozen=True)
class Fusion:
    """The fusion of a configuration; pure functions, hashable. precision: of the gate's matrix products."""

    config: AdvisorConfig
    env: EnvConfig
    precision: str | None = None

    def init(self, key: Array, observation_size: int) -> dict[str, PyTree]:
        """Parameters that PPO learns beside the network's, by name; none but for `gate`."""
        if self.config.fusion != "gate":
            return {}
        return {GATE: Gate(self.precision).init(key, jnp.zeros(observation_size + len(GATE_SLOTS)))["params"]}

    def trust(self, outcomes: Outcomes) -> Trust:
        """What a policy acts with until the next update."""
        chosen = self.config
        return Trust(log_odds(outcomes, chosen.prior, chosen.abstain, chosen.cap))

    def terms(self, trust: Trust | None, ref: ObservationRef) -> AdviceTerms:
        """What `fuse` needs of the advice beside `ref`.

        Args:
            trust: `Policy.fusion`; None of a policy that was trained without, which listens to nobody.
            ref: holds advice and nothing later.
        """
        seen, kind = ref.aux, self.config.fusion
        if not isinstance(seen, AdviceSeen):
            return AdviceTerms()
        # A veto above 1 never acts: risk is at most 1.
        refused = seen.valid & (seen.risk >= self.config.veto) if self.config.veto <= 1.0 else None
        if kind == "rules":
            return AdviceTerms(refused, (seen.direction, seen.confidence, seen.valid))
        if kind in ("none", "slots") or trust is None:
            return AdviceTerms(refused)
        odds = trust.log_odds[bin_of(seen.confidence, trust.log_odds.shape[-1])]
        tilt = 0.5 * odds * seen.direction.astype(jnp.float32)  # a direction of 0 where there is none
        if kind == "trust":
            return AdviceTerms(refused, tilt)
        own = jnp.stack([seen.confidence, seen.risk, jnp.log1p(seen.age), jnp.where(seen.valid, odds, 0.0)])
        return AdviceTerms(refused, (tilt, own, seen.valid))

    def fuse(self, terms: AdviceTerms, parameters: PyTree, observation: Array, ref: ObservationRef, logits: Array,
             mask: Array) -> Fused:
        """The policy's distribution with the advice in it.

        Args:
            observation: float32[D] as the network reads it. ref: holds the position.
            logits: float32[A]; mask: bool[A].
        """
        nothing, side = jnp.float32(0), jnp.sign(ref.legs[0, 0])
        if terms.refused is not None:
            opens = np.array([side in (1, -1) for side in task_of(self.env).sides(self.env)])
            mask = mask & ~(opens & terms.refused)
        if terms.advice is None:
            return Fused(logits, mask, nothing)
        advice: Any = terms.advice
        if self.config.fusion == "rules":
            direction, confidence, valid = advice
            advised = advised_action(self.env, direction, side)
            mixed = rule_mixture(logits, mask, advised, confidence, self.config.weight)
            return Fused(jnp.where(valid & mask[advised], mixed, logits), mask, nothing)
        if self.config.fusion == "trust":
            return Fused(logits + advice * exposure(self.env, side), mask, nothing)
        tilt, own, valid = advice
        share: Any = Gate(self.precision).apply({"params": parameters[GATE]}, jnp.concatenate([observation, own]))
        return Fused(logits + share * tilt * exposure(self.env, side), mask,
                     self.config.gate_cost * jnp.where(valid, share, 0.0))


def make_fusion(config: AdvisorConfig, env: EnvConfig, precision: str | None = None) -> Fusion | None:
    """The fusion of a configuration; None where advice is off."""
    return Fusion(config, env, precision) if config.on else None


# --- what a rollout says ---------------------------------------------------------------------------------------------


def visits(refs: ObservationRef, need: Array, view: AdviceView, reduce: Reduce = LOCAL) -> Array:
    """float32[T bars]: how much advice about each bar was missed or used in a rollout, the sum of `need` over the steps
    that read that bar's row.

    Args:
        refs: references of the rollout, [T, N, ...].
        need: float32[T, N]. PPO's is -log_prob of the action taken, whose expectation is the policy's entropy.
    """
    bar = view.source[refs.row[..., 0]].astype(jnp.uint32)  # nowhere is beyond every table, and dropped
    return reduce.sum_of_parts(jnp.zeros(view.source.shape[0], jnp.float32).at[bar].add(need, mode="drop"))


def figures(env: EnvConfig, seen: Transition, overridden: Array, trust: Trust, outcomes: Outcomes,
            reduce: Reduce = LOCAL) -> dict[str, Array]:
    """float32[] each, of a rollout [T, N]; NaN where nothing of the kind was there.

    overridden: bool[T, N], another action would have been drawn without advice, by the same random number.

    advice_share: steps that were shown advice. agreement: of those with a direction, actions that end up on its side.
    override: steps that were overridden. hit_rate: of all
    scored advice that is remembered, trust: the mean of its log-odds, brier: its mean squared error of confidence.
    advice_scored: how many were scored so far.
    """
    advice, side = seen.ref.aux, jnp.sign(seen.ref.legs[..., 0, 0])
    directed = advice.direction != 0
    agreed = directed & (side_after(env, seen.action, side) == advice.direction)
    count = outcomes.count.sum()
    return {
        "advice_share": reduce.mean(advice.valid.astype(jnp.float32)),
        "agreement": reduce.sum(agreed, dtype=jnp.float32) / reduce.sum(directed, dtype=jnp.float32),
        "override": reduce.mean(overridden.astype(jnp.float32)),
        "hit_rate": hit_rate(outcomes),
        "trust": (trust.log_odds * outcomes.count).sum() / count,
        "brier": outcomes.brier.sum() / count,
        "advice_scored": outcomes.seen.astype(jnp.float32),
    }
