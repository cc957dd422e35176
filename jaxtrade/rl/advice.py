"""Fusion of advice with the policy.

Advice changes the masked distribution before an action is sampled. PPO's log-probability therefore
includes it. Let

    d      be the advised direction: +1 buy, -1 sell, 0 hold or no advice
    e(a)   be the side that is held after action a: BUY 1, SELL -1, CLOSE 0, all others the side
           held now
    t      be the trust: the log-odds of the advisor's measured hit rate in this range of
           confidence. It is 0 as long as the data give no reason to follow, and negative for an
           advisor that is mostly wrong (`outcomes.log_odds`).

The fusions are:

    trust   logit(a) + t d e(a) / 2: this multiplies the odds of long against short by exp(t d)
    gate    as `trust`, but t is multiplied by a learned share in (0, 1); the mean share costs
            `gate_cost` in the loss
    rules   a mixture by fixed rules (below)
    slots   no change of the distribution: the observation shows the advice (`env.observation`)
    none    no influence at all; outcomes are still counted

Of a panel of advisors, t d is their log-odds together (`advisor.panel`), clipped to [-cap, cap];
everything else is about their consensus (`table.consensus`).

Where the advised risk reaches `veto`, actions that open a position are illegal. Advice never makes
an action legal.

The fixed rules choose between the sampled action and the advised one. p is the policy's probability
of the sampled action, c the stated confidence of the advice and w the configured weight. The first
matching rule applies:

    1. the two actions are the same    that action
    2. p > 0.9 and c <= 0.6            the sampled action
    3. c > 0.9 and p <= 0.6            the advised action
    4. p < 0.5 and c < 0.5             HOLD
    5. otherwise                       the advised action if c w > p (1 - w), else the sampled one

The rules map each action of the policy to one action; the probabilities of actions with the same
result are added. One percent of the mixture is the policy's own distribution, so no legal action
has probability 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.advisor.bridge import Bridge, exchange
from jaxtrade.advisor.outcomes import (
    Outcomes,
    PanelOutcomes,
    bin_of,
    correlation,
    first_outcomes,
    hit_rate,
    independent,
    log_odds,
    panel_scored,
    score_delta,
    together,
)
from jaxtrade.advisor.table import AdviceSeen, AdviceView, Delta, demand, write_delta
from jaxtrade.config import AdvisorConfig, EnvConfig
from jaxtrade.env.state import ObservationRef
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.env.tasks.guards import task_of
from jaxtrade.networks import distributions
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.networks.torso import FLOAT32, DotGeneral
from jaxtrade.types import Array, Learner, PyTree, Transition

GATE = "gate"  # key of the gate's parameters in the policy's parameters
GATE_SLOTS = (
    "gate confidence",
    "gate risk",
    "gate age",
    "gate trust",
)  # gate inputs besides the observation
_GATE_WIDTH = 16
_OWN = 0.01  # share of the policy's own distribution in the mixture of `rules`


class Trust(struct.PyTreeNode):
    """`Policy.fusion`, as measured in training: log_odds float32[B].

    There is one for each of B ranges of confidence.

    Of a panel of A advisors, log_odds is float32[A, B], and correlation float32[A, A] that of their
    errors; None (static) for one advisor.
    """

    log_odds: Array
    correlation: Array | None = None


class AdviceTerms(NamedTuple):
    """The terms of the advice at one reference that act on the policy.

    They do not depend on learned parameters. The update computes them once per rollout, not in
    every minibatch.

    refused: bool[], True if the advice vetoes opening a position.
    advice: for `trust` the tilt t d / 2, float32[]; for `rules` (direction, confidence, valid); for
        `gate` (tilt, the gate's own inputs float32[4], valid). Each is None (static) if the
        configuration rules it out.
    """

    refused: Array | None = None
    advice: Any = None


class FusedPolicy(NamedTuple):
    """The fused policy: logits float32[A], mask bool[A], and cost float32[].

    The cost is the loss that the fusion adds.

    cost is None without a fusion.
    """

    logits: Array
    mask: Array
    cost: Array | None


class Gate(nn.Module):
    """float32[..., D + 4] -> float32[...] in (0, 1): the share of the trust that is used.

    Initially near one half.
    """

    dot_general: DotGeneral = FLOAT32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.tanh(nn.Dense(_GATE_WIDTH, dot_general=self.dot_general)(x))
        x = nn.Dense(1, kernel_init=nn.initializers.orthogonal(0.01), dot_general=self.dot_general)(
            x
        )
        return jax.nn.sigmoid(x[..., 0])


def exposure(env: EnvConfig, side: Array) -> Array:
    """Return the side held after each action (float32[A]).

    Args:
        side: int32[], the side held now.
    """
    sides = task_of(env).sides(env)
    side_of = np.array([after or 0 for after in sides], np.float32)
    keeps = np.array([after is None for after in sides], np.float32)
    # Constant arrays need one operation for all actions. A stack of scalars would need one per
    # action.
    return jnp.asarray(side_of) + keeps * side.astype(jnp.float32)


def side_after(env: EnvConfig, action: Array, side: Array) -> Array:
    """Return the side held after `action` int32[...] (int32[...]).

    Args:
        side: int32[...], the side held now.
    """
    for i, after in enumerate(task_of(env).sides(env)):
        side = side if after is None else jnp.where(action == i, after, side)
    return side


def advised_action(env: EnvConfig, direction: Array, side: Array) -> Array:
    """Return the action that follows the advice (int32[]), for the fusion `rules`.

    Flat: open in the advised direction. Opposite position: close it, if the task has such an
    action. Otherwise HOLD. If several actions do the same, it is the first of them.
    """
    sides = task_of(env).sides(env)
    buy, sell, close = (sides.index(side) if side in sides else HOLD for side in (1, -1, 0))
    opens = jnp.where(direction > 0, buy, sell)
    chosen = jnp.where(side == 0, opens, jnp.where(side == -direction, close, HOLD))
    return jnp.where(direction == 0, HOLD, chosen)


def rule_mixture(
    logits: Array, mask: Array, advised: Array, confidence: Array, weight: float
) -> Array:
    """Return log-probabilities of the mixture by the fixed rules (float32[A]; module docstring).

    Args:
        logits: float32[A].
        mask: bool[A].
        advised: int32[], must be legal.
        confidence: float32[] in [0, 1].
        weight: w.
    """
    p = distributions.probs(logits, mask)
    w, actions = weight, jnp.arange(p.shape[-1])
    takes_own = (p > 0.9) & (confidence <= 0.6)
    takes_advice = (confidence > 0.9) & (p <= 0.6)
    holds = (p < 0.5) & (confidence < 0.5)
    compared = jnp.where(confidence * w > p * (1.0 - w), advised, actions)
    # Rules 4 to 1, each overriding the one before.
    chosen = jnp.where(holds, HOLD, compared)
    chosen = jnp.where(takes_advice, advised, chosen)
    chosen = jnp.where(takes_own | (actions == advised), actions, chosen)
    mixture = jnp.zeros_like(p).at[chosen].add(p)
    return jnp.where(
        mask, jnp.log(jnp.maximum(_OWN * p + (1.0 - _OWN) * mixture, 1e-30)), distributions.ILLEGAL
    )


@dataclass(frozen=True)
class Fusion:
    """The fusion of a configuration: pure functions.

    dot_general: computes the gate's products.
    """

    config: AdvisorConfig
    env: EnvConfig
    dot_general: DotGeneral = FLOAT32

    def init(self, key: Array, observation_size: int) -> dict[str, PyTree]:
        """Initialise additional parameters for the learner, by name. Only `gate` has any."""
        if self.config.fusion != "gate":
            return {}
        return {
            GATE: Gate(self.dot_general).init(key, jnp.zeros(observation_size + len(GATE_SLOTS)))[
                "params"
            ]
        }

    def trust(self, outcomes: Outcomes | PanelOutcomes) -> Trust:
        """Compute the trust that the policy uses until the next update."""
        chosen = self.config
        one = partial(log_odds, prior=chosen.prior, abstain=chosen.abstain, cap=chosen.cap)
        if isinstance(outcomes, PanelOutcomes):
            return Trust(jax.vmap(one)(outcomes.each), correlation(outcomes.pairs, chosen.prior))
        return Trust(one(outcomes))

    def no_trust(self) -> Trust:
        """Return the trust before any advice was scored: the structure of `Policy.fusion`."""
        return self.trust(first_outcomes(self.config, 1))

    def terms(self, trust: Trust | None, ref: ObservationRef) -> AdviceTerms:
        """Compute the advice terms of `ref`, which `fuse` needs.

        Args:
            trust: `Policy.fusion`. None for a policy that was trained without an advisor; it
                ignores advice.
            ref: its `aux` holds the advice that was visible at this decision.
        """
        seen, kind = ref.aux, self.config.fusion
        if seen is None:
            return AdviceTerms()
        # Risk is at most 1, so a veto above 1 never applies.
        refused = seen.valid & (seen.risk >= self.config.veto) if self.config.veto <= 1.0 else None
        if kind == "rules":
            return AdviceTerms(refused, (seen.direction, seen.confidence, seen.valid))
        if kind in ("none", "slots") or trust is None:
            return AdviceTerms(refused)
        tilt, odds = self._tilt(trust, seen)
        if kind == "trust":
            return AdviceTerms(refused, tilt)
        own = jnp.stack(
            [seen.confidence, seen.risk, jnp.log1p(seen.age), jnp.where(seen.valid, odds, 0.0)]
        )
        return AdviceTerms(refused, (tilt, own, seen.valid))

    def _tilt(self, trust: Trust, seen: AdviceSeen) -> tuple[Array, Array]:
        """Return t d / 2 and t (float32[] each); for a panel, its joint log-odds and their size."""
        bins = trust.log_odds.shape[-1]
        if seen.each is None:
            odds = trust.log_odds[bin_of(seen.confidence, bins)]
            return 0.5 * odds * seen.direction.astype(
                jnp.float32
            ), odds  # the direction is 0 without advice
        assert trust.correlation is not None
        odds = trust.log_odds[
            jnp.arange(trust.log_odds.shape[0]), bin_of(seen.each.confidence, bins)
        ]
        total = together(odds * seen.each.direction.astype(jnp.float32), trust.correlation)
        total = jnp.clip(total, -self.config.cap, self.config.cap)
        return 0.5 * total, jnp.abs(total)

    def fuse(
        self,
        terms: AdviceTerms,
        parameters: PyTree,
        observation: Array,
        ref: ObservationRef,
        logits: Array,
        mask: Array,
    ) -> FusedPolicy:
        """Compute the policy's distribution after the fusion.

        Args:
            terms: from `terms`.
            parameters: the policy's; `gate` reads its own part.
            observation: float32[D] as the network reads it.
            ref: holds the position.
            logits: float32[A].
            mask: bool[A].
        """
        nothing, side = jnp.float32(0), jnp.sign(ref.legs[0, 0])
        if terms.refused is not None:
            opens = np.array([side in (1, -1) for side in task_of(self.env).sides(self.env)])
            mask = mask & ~(opens & terms.refused)
        if terms.advice is None:
            return FusedPolicy(logits, mask, nothing)
        advice: Any = terms.advice
        if self.config.fusion == "rules":
            direction, confidence, valid = advice
            advised = advised_action(self.env, direction, side)
            mixed = rule_mixture(logits, mask, advised, confidence, self.config.weight)
            return FusedPolicy(jnp.where(valid & mask[advised], mixed, logits), mask, nothing)
        if self.config.fusion == "trust":
            return FusedPolicy(logits + advice * exposure(self.env, side), mask, nothing)
        tilt, own, valid = advice
        share: Any = Gate(self.dot_general).apply(
            {"params": parameters[GATE]}, jnp.concatenate([observation, own])
        )
        return FusedPolicy(
            logits + share * tilt * exposure(self.env, side),
            mask,
            self.config.gate_cost * jnp.where(valid, share, 0.0),
        )


def make_fusion(config: AdvisorConfig, env: EnvConfig) -> Fusion | None:
    """Build the fusion of a configuration; None if advice is off."""
    return Fusion(config, env) if config.on else None


# --- What a rollout says about advice: the need for it by bar, and the metrics of a run


def visits(refs: ObservationRef, need: Array, view: AdviceView, reduce: Reduce = LOCAL) -> Array:
    """Return the need for advice about each bar in a rollout (float32[T bars]).

    It is the sum of `need` over the steps that read this bar's row of the table.

    Args:
        refs: references of the rollout, [T, N, ...].
        need: float32[T, N]. PPO uses -log_prob of the action taken. Its expectation is the policy's
            entropy, so bars at which the policy is undecided count most.
    """

    # A source of -1 (no row) becomes the largest uint32. It lies outside the table, so
    # `mode="drop"` drops it.
    def add(row: Array, need: Array) -> Array:
        bar = view.source[row].astype(jnp.uint32)
        return jnp.zeros(view.source.shape[0], jnp.float32).at[bar].add(need, mode="drop")

    return reduce.sum_of_parts(reduce.alone(add)(refs.row[..., 0], need))


def advice_metrics(
    env: EnvConfig,
    seen: Transition,
    overridden: Array,
    trust: Trust,
    outcomes: Outcomes | PanelOutcomes,
    reduce: Reduce = LOCAL,
) -> dict[str, Array]:
    """Return the metrics about advice in a rollout [T, N], each float32[]; NaN without data.

    Args:
        overridden: bool[T, N], True if the same random number would have drawn another action
            without advice.

    Returns:
        advice_share: share of steps with advice.
        agreement: share of steps with a direction in which the action leads to the advised side.
        override: share of overridden steps.
        hit_rate, trust, brier: over all scored advice, with older advice discounted: share of hits,
            mean log-odds, and Brier score (mean squared error of the confidence).
        advice_scored: number of pieces of advice scored so far.
        advice_independent: how many independent outcomes they are worth.
        For a panel, `agreement` and `advice_share` are of its consensus, the others are over all
        advisors, and each but `override` is also given for every advisor, as `trust/0`.
    """
    advice, side = seen.ref.aux, side_after(env, seen.action, jnp.sign(seen.ref.legs[..., 0, 0]))
    found = followed_metrics(advice, side, reduce) | {
        "override": reduce.mean(overridden.astype(jnp.float32))
    }
    if not isinstance(outcomes, PanelOutcomes):
        return found | score_metrics(trust.log_odds, outcomes)
    found |= score_metrics(trust.log_odds, outcomes.each)
    for i in range(trust.log_odds.shape[0]):
        own = AdviceSeen(advice.each.values[..., i, :], advice.each.version[..., i])
        each = score_metrics(trust.log_odds[i], jax.tree.map(lambda x, i=i: x[i], outcomes.each))
        found |= {
            f"{name}/{i}": value
            for name, value in (each | followed_metrics(own, side, reduce)).items()
        }
    return found


def followed_metrics(advice: AdviceSeen, side: Array, reduce: Reduce) -> dict[str, Array]:
    """Compute `advice_share` and `agreement` of `advice_metrics`.

    Args:
        advice: [T, N].
        side: int32[T, N], held after the action.
    """
    directed = advice.direction != 0
    return {
        "advice_share": reduce.mean(advice.valid.astype(jnp.float32)),
        "agreement": (
            reduce.sum(directed & (side == advice.direction), dtype=jnp.float32)
            / reduce.sum(directed, dtype=jnp.float32)
        ),
    }


def score_metrics(log_odds: Array, outcomes: Outcomes) -> dict[str, Array]:
    """Compute the metrics of `advice_metrics` about scored advice, over all advisors.

    Args:
        log_odds: float32[B], or [A, B] of a panel.
    """
    count = outcomes.count.sum()
    worth = independent(outcomes) if log_odds.ndim == 1 else jax.vmap(independent)(outcomes).sum()
    return {
        "hit_rate": hit_rate(outcomes),
        "trust": (log_odds * outcomes.count).sum() / count,
        "brier": outcomes.brier.sum() / count,
        "advice_scored": outcomes.seen.sum().astype(jnp.float32),
        "advice_independent": worth,
    }


# An algorithm with an advisor. The training state holds the advice, and new answers enter it before
# each update.
#
# All agents of a population share one advice state. It is taken out of the training state before
# the vmapped update and put back after it, so that it is not copied for each agent.


class AdviceState(struct.PyTreeNode):
    """Everything about advice that influences training.

    view: the advice table, and the rows of it that each bar may read.
    followed: int8[T], sign of the price move after each bar, 0 outside the training
        sessions (`outcomes.what_followed`).
    askable: bool[T], bars that may be asked about.
    want: float32[T], need for advice about each bar since it was last requested (sums of `visits`).
    outcomes: statistics of the scored advice, of one advisor or of a panel.
    memory: float32[], as in `outcomes.score_delta`.
    """

    view: AdviceView
    followed: Array
    askable: Array
    want: Array
    outcomes: Outcomes | PanelOutcomes
    memory: Array


def start_advice(
    view: AdviceView,
    followed: np.ndarray | Array,
    askable: np.ndarray | Array,
    config: AdvisorConfig,
) -> AdviceState:
    """Return the state before the first update.

    Advice that is already in the table is not scored.
    """
    askable = jnp.asarray(askable)
    bars = askable.shape[0]
    return AdviceState(
        view,
        jnp.asarray(followed, jnp.int8),
        askable,
        jnp.zeros(bars, jnp.float32),
        first_outcomes(config, bars),
        jnp.float32(config.memory),
    )


def with_answers(advice: AdviceState, delta: Delta) -> AdviceState:
    """Add the rows of a delta to the table and score them."""
    table, outcomes = write_delta(advice.view.table, delta), advice.outcomes
    if isinstance(outcomes, PanelOutcomes):
        outcomes = panel_scored(outcomes, delta, table, advice.followed, advice.memory)
    else:
        outcomes = score_delta(outcomes, delta, advice.followed, advice.memory)
    return advice.replace(view=advice.view.replace(table=table), outcomes=outcomes)


def select_wanted(advice: AdviceState, most: int) -> tuple[AdviceState, tuple[Array, Array]]:
    """Select the bars with the highest want.

    Returns:
        (state in which their want is 0, (bars, weights) as `table.demand`).
    """
    bars, weight = demand(advice.want, advice.askable, advice.view.table.version, most)
    return advice.replace(want=advice.want.at[bars].set(0.0)), (bars, weight)


def add_visits(advice: AdviceState, visits: Array) -> AdviceState:
    """Add visits to the want.

    Args:
        visits: float32[..., T], of one agent or of several.
    """
    return advice.replace(want=advice.want + visits.reshape(-1, advice.want.shape[0]).sum(axis=0))


# (update int32[], bars int32[K], weights float32[K]) -> Delta; a host callback inside the compiled
# program
HostCall = Callable[[Array, Array, Array], Delta]


def with_advice(
    algorithm: Learner, start: AdviceState, most: int = 0, ask: HostCall | None = None
) -> Learner:
    """Wrap `algorithm` (one agent or a population), so that its state holds `start` at first.

    Without `ask`, `inputs` of its update is a `Delta`. With `ask`, `inputs` is None, and each
    update calls `ask` once with the `most` bars that have the highest want.
    """

    def init(key: Array, params: PyTree) -> Any:
        return algorithm.init(key, params).replace(advice=start)

    def update(state: Any, params: PyTree, inputs: PyTree = None) -> tuple[Any, dict[str, Array]]:
        advice = state.advice
        if ask is not None:
            advice, (bars, weight) = select_wanted(advice, most)
            inputs = ask(jnp.reshape(state.update, -1)[0], bars, weight)
        advice = with_answers(advice, inputs)
        state, metrics = algorithm.update(state.replace(advice=None), params, advice)
        return state.replace(advice=add_visits(advice, metrics.pop("visits"))), metrics

    return algorithm._replace(init=init, update=update)


# The two transports of advice into the compiled program. Both use the same bridge to the host.
#
# `exchange`: between chunks. New answers are the inputs of a chunk's updates, each with at most
#     `advisor.rows`, and the
# bars with the highest want are an output of its end. `callback`: one unordered host callback per
# update does both.


@dataclass(frozen=True, eq=False)
class AdviceExchange:
    """A `training.hooks.Exchange`.

    start: advice state of a new run, over T bars.
    updates: number of updates in a chunk (`train.chunk_updates`).
    """

    config: AdvisorConfig
    start: AdviceState
    bridge: Bridge
    updates: int = 1

    @property
    def inside(self) -> bool:
        """True if the compiled program itself calls the host (transport `callback`)."""
        return self.config.transport == "callback"

    @property
    def most(self) -> int:
        """Number of bars per request (static).

        Between chunks: `demand` for each of the chunk's updates, but at most what the service's
        queue holds, which would drop the rest.
        """
        chosen, bars = self.config, self.start.want.shape[0]
        if self.inside or chosen.demand_per == "chunk":
            return min(chosen.demand, bars)
        return min(chosen.demand * self.updates, bars, chosen.service.queue_size)

    def wrap(self, algorithm: Learner) -> Learner:
        ask = exchange(self.bridge) if self.inside else None
        return with_advice(algorithm, self.start, self.most, ask)

    def close_chunk(self, state: Any) -> tuple[Any, PyTree]:
        if self.inside:
            return state, None
        advice, news = select_wanted(state.advice, self.most)
        return state.replace(advice=advice), news

    def inputs(self, update: int, updates: int) -> PyTree:
        if self.inside:
            return None
        deltas = [self.bridge.delta(update + i) for i in range(updates)]
        return jax.tree.map(lambda *parts: np.stack(parts), *deltas)

    def receive(self, update: int, news: PyTree) -> None:
        del update
        if not self.inside:
            self.bridge.request(*news)
