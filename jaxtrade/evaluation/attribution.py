"""Which parts of its observation a policy uses: gradients, permutations and ablations, by group of features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import DAY, local_seconds
from jaxtrade.data.market import Market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.backtest import Lane, run_lanes
from jaxtrade.evaluation.baselines import Agent, Decision, PolicyAct
from jaxtrade.evaluation.evaluate import lanes_of
from jaxtrade.evaluation.loaded_policy import GivenEnv, GivenObservation
from jaxtrade.evaluation.record import DecisionBars, EvaluationSteps
from jaxtrade.formatting import format_number, money
from jaxtrade.networks.distributions import ILLEGAL
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.networks.torso import forget
from jaxtrade.rl.advice import make_fusion
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.text import align, several
from jaxtrade.types import Array, Learner, PyTree, SessionSet


def _cell(value: float | None, unit: str) -> str:
    if value is None or unit == "share":
        return format_number(value, "share", 2)
    return f"{value:+,.2f}"


@dataclass(frozen=True)
class SlotMethod:
    """One method.

    unit: of its values, `share` or `dollars`.
    about: what it measures, a sentence.
    values: one for each group; None where it cannot be given, and why.
    """

    name: str
    unit: str
    about: str
    values: tuple[float | None, ...]
    why: str | None = None


@dataclass(frozen=True)
class SlotAttribution:
    """How much a policy depends on each group of slots.

    groups: names, and how many slots each has.
    """

    groups: tuple[tuple[str, int], ...]
    methods: tuple[SlotMethod, ...]
    notes: tuple[str, ...] = ()
    title: str = "attribution"

    def table(self) -> str:
        """Format the attribution as text.

        A row for each group, in the order of the observation, and a column for each method.
        """
        cells = [
            [
                "part of the observation",
                "slots",
                *(
                    f"{each.name}{' ($)' if each.unit == 'dollars' else ''}"
                    for each in self.methods
                ),
            ]
        ]
        for number, (name, size) in enumerate(self.groups):
            cells.append(
                [
                    f"  {name}",
                    f"{size}",
                    *(_cell(each.values[number], each.unit) for each in self.methods),
                ]
            )
        notes = [
            f"{each.name}: n/a: {each.why}" if each.why else f"{each.name}: {each.about}"
            for each in self.methods
        ]
        return "\n".join([*align(cells), *(f"NOTE: {note}" for note in [*notes, *self.notes])])

    def to_json(self) -> dict[str, Any]:
        """Return the attribution as JSON values.

        Each method has its parts, with `why` where there is no value.
        """
        methods = [
            {
                "name": each.name,
                "unit": each.unit,
                "about": each.about,
                "parts": [
                    {
                        "name": name,
                        "value": {"value": value} | ({"why": each.why} if value is None else {}),
                    }
                    for (name, _), value in zip(self.groups, each.values, strict=True)
                ],
            }
            for each in self.methods
        ]
        return {"methods": methods, "notes": list(self.notes), "slots": dict(self.groups)}


class SlotGroup(NamedTuple):
    """Slots with one name before their bracket, such as `close[t-30]` .. `close[t-1]`.

    slots: int64[n] their places.
    """

    name: str
    slots: np.ndarray


def slot_groups(names: Sequence[str]) -> list[SlotGroup]:
    """Group the slots of an observation, in the order of the groups' first slots.

    names: of all slots (`ObservationSpec.names`).
    """
    heads = [name.partition("[")[0] for name in names]
    return [
        SlotGroup(head, np.flatnonzero([each == head for each in heads]))
        for head in dict.fromkeys(heads)
    ]


# (logits float32[A], mask bool[A]) of one decision: observation float32[D], and what else it is
# made on.
Logits = Callable[[Array, PyTree], tuple[Array, Array]]
Choose = Callable[[np.ndarray], np.ndarray]  # observations float32[B, D] -> actions int[B]


def margin(logits: Array, mask: Array) -> Array:
    """Return the largest legal logit less the second largest (float32[]).

    It is 0 where a single action is legal.
    """
    two, _ = jax.lax.top_k(jnp.where(mask, logits, ILLEGAL), 2)
    return jnp.where(mask.sum() >= 2, two[0] - two[1], 0.0)


def gradient_sizes(
    logits: Logits, observations: Array, others: PyTree, deviation: np.ndarray
) -> np.ndarray:
    """Return the mean over decisions of |d margin / d slot| times the slot's deviation.

    It is the change of the margin, to first order, when the slot moves by its standard deviation.

    Args:
        observations: float32[B, D], raw.
        others: [B, ...], what else each decision is made on.
        deviation: float64[D], standard deviations in the units of the slots.

    Returns:
        float64[D].
    """
    slopes = jax.jit(
        jax.vmap(jax.grad(lambda observation, other: margin(*logits(observation, other))))
    )
    return np.abs(np.asarray(slopes(observations, others), np.float64)).mean(axis=0) * deviation


def gradient_shares(sizes: np.ndarray, groups: Sequence[SlotGroup]) -> list[float] | None:
    """Return the share of each group in the sum of `sizes` over all slots; None if all are 0."""
    total = sizes.sum()
    return [float(sizes[group.slots].sum() / total) for group in groups] if total > 0.0 else None


def permuted_within(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a random order of rows that keeps every row in its stratum (int64[B]).

    strata: int[B].
    """
    rows = np.argsort(strata, kind="stable")
    order = np.empty_like(rows)
    order[rows] = np.lexsort((rng.random(len(strata)), strata))
    return order


def changed_shares(
    choose: Choose,
    observations: np.ndarray,
    groups: Sequence[SlotGroup],
    strata: np.ndarray,
    seed: int,
    repeats: int,
) -> list[float]:
    """Return the share of decisions whose action changes when a group's values are permuted.

    The values come from another decision of the same stratum. The slots of a group are moved
    together, all others stay. Breiman (2001), "Random forests", permutes over all rows; here only
    within a stratum, because the time of day alone says much about a bar.

    Args:
        observations: float32[B, D], raw.
        strata: int[B].
        repeats: permutations over which the share is the mean. They are the same for every group.
    """
    before = choose(observations)
    orders = [
        permuted_within(strata, np.random.default_rng([seed, repeat])) for repeat in range(repeats)
    ]

    def share(group: SlotGroup) -> float:
        changed = []
        for order in orders:
            moved = observations.copy()
            moved[:, group.slots] = observations[order][:, group.slots]
            changed.append(np.mean(choose(moved) != before))
        return float(np.mean(changed))

    return [share(group) for group in groups]


TOGETHER = 8  # evaluations per program; a record of years takes tens of MB for each


def decide_on(ref: Any, observation: Array) -> GivenObservation:
    """Decide as a reference would on another observation. Both may have leading axes."""
    return GivenObservation(observation, ref.mask, ref.legs, ref.aux)


@dataclass(frozen=True)
class AblatedAct:
    """A greedy `Act` on an observation with fixed slots.

    Carry: (policy, its memory, bool[D] slots, float32[D] values).

    algorithm_act: `Learner.act` on `GivenObservation` references.
    """

    env: TradingEnv
    algorithm_act: Any

    def __call__(
        self, carry: PyTree, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        del key
        policy, memory, fixed, values = carry
        seen = decide_on(ref, jnp.where(fixed, values, self.env.observe(ref, params)))
        memory, action, _ = self.algorithm_act(policy, memory, seen, None, None, False)
        order = self.env.decode(jnp.where(ref.mask[action], action, HOLD), state, params)
        return (policy, memory, fixed, values), order, action


def _forget(carry: PyTree, first: Array) -> PyTree:
    policy, memory, *rest = carry
    return policy, forget(memory, first), *rest


def ablated_profits(
    env: TradingEnv,
    algorithm: Learner,
    policy: PyTree,
    params: EnvParams,
    decisions: DecisionBars,
    groups: Sequence[SlotGroup],
    values: np.ndarray,
) -> np.ndarray:
    """Return the net profit of the strategy pass with every slot, then without each group.

    float64[1 + groups], dollars.

    Args:
        algorithm: acts on `GivenObservation` references.
        values: float32[D], what the slots of a missing group hold.
    """
    fixed = np.zeros((1 + len(groups), len(values)), bool)
    for row, group in zip(fixed[1:], groups, strict=True):
        row[group.slots] = True
    kept = jnp.asarray(values, jnp.float32)

    def lane(row: np.ndarray) -> Lane:
        carry = (policy, algorithm.carry, jnp.asarray(row), kept)
        agent = Agent(
            "ablated",
            AblatedAct(env, algorithm.act),
            carry,
            "greedy, without a group of slots",
            _forget,
        )
        return Lane(agent, params, decisions, jax.random.key(0))

    profits = []
    for first in range(0, len(fixed), TOGETHER):
        block = fixed[first : first + TOGETHER]
        padded = np.pad(block, ((0, TOGETHER - len(block)), (0, 0)))  # one shape, one program
        records = run_lanes(env, [lane(row) for row in padded], "strategy")
        profits += [int(record.equity[-1]) / 1000 for record in records[: len(block)]]
    return np.asarray(profits)


MOST = 20_000  # decisions that gradient and permutation look at
REPEATS = 5  # permutations
HALF_HOUR = 1_800  # seconds
ONE_ACTION = "no decision had two legal actions"
ABOUT = {
    "gradient": "share of |d margin / d slot| x standard deviation of the slot, summed over the slots of the part; the "
    "margin is the best legal logit less the second",
    "permutation": "share of decisions whose action changes when the part comes from another decision in the same half "
    "hour of the day",
    "ablation": "net profit without the part (fixed at its mean) less net profit with it",
}


class _Decisions(NamedTuple):
    """B decisions with at least two legal actions.

    observations: float32[B, D] raw.
    others: `GivenObservation` [B] without the observation.
    strata: int64[B] half hour of the day.
    """

    observations: np.ndarray
    others: PyTree
    strata: np.ndarray


def attribute(
    env: TradingEnv,
    params: EnvParams,
    agents: Sequence[Agent],
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    steps: EvaluationSteps | None = None,
) -> SlotAttribution:
    """Attribute the greedy policy among `agents` on the decision bars of `sessions`.

    Arguments as `evaluate`. Deterministic: what is drawn depends on `config.seed` alone. Raises
    ConfigError if no agent is a greedy policy, and as `evaluate`.
    """
    found = [each for each in agents if isinstance(each.act, PolicyAct) and not each.act.explore]
    if not found:
        names = ", ".join(each.name for each in agents) or "none"
        raise ConfigError(f"attribution: needs a greedy policy; found {names}")
    agent = found[0]
    policy, _ = agent.carry
    given_env: Any = GivenEnv(
        env.num_actions, env.observation_size
    )  # the part of an `Env` that acting needs
    algorithm = make_algorithm(config, given_env, 1, fusion=make_fusion(config.advisor, config.env))
    [lane] = lanes_of([agent], params, market, sessions, config, steps)
    params, decisions, groups = lane.params, lane.decisions, slot_groups(env.observation_spec.names)
    [record] = run_lanes(env, [lane], "strategy")
    chosen, notes = _choices(env, params, record, market, config.seed)
    mean, deviation, about = _moments(policy, config, chosen.observations)
    by_slope, by_order = _at_decisions(algorithm, policy, chosen, groups, deviation, config.seed)
    profits = ablated_profits(env, algorithm, policy, params, decisions, groups, mean)
    own = int(record.equity[-1]) / 1000
    rounding = (
        []
        if profits[0] == own
        else [
            f"ablation: evaluated side by side, the policy makes {money(profits[0])} with "
            f"every slot; alone it makes "
            f"{money(own)}, because sums are rounded otherwise"
        ]
    )
    by_absence = SlotMethod(
        "ablation",
        "dollars",
        ABOUT["ablation"],
        tuple(round(float(profit - profits[0]), 3) for profit in profits[1:]),
    )
    return SlotAttribution(
        tuple((group.name, len(group.slots)) for group in groups),
        (by_slope, by_order, by_absence),
        (*notes, about, *rounding),
    )


def _choices(
    env: TradingEnv, params: EnvParams, record: Any, market: Market, seed: int
) -> tuple[_Decisions, list[str]]:
    """Choose at most MOST decisions of a record with two legal actions or more, and say which."""
    found = np.flatnonzero(np.asarray(record.mask).sum(axis=-1) >= 2)
    used = (
        found
        if len(found) <= MOST
        else np.sort(np.random.default_rng(seed).choice(found, MOST, replace=False))
    )
    choices = f"{several(len(found), 'decision')} with at least two legal actions"
    if len(used) < len(found):
        choices = f"{len(used):,} of {choices}, drawn by the run's seed"
    refs = jax.tree.map(lambda x: x[used], record.ref)
    shape = (0, env.observation_size)
    observations = (
        np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(refs, params))
        if len(used)
        else np.zeros(shape, np.float32)
    )
    seconds = local_seconds(np.asarray(market.bars.time)[record.row[used]], market.contract.zone)
    return (
        _Decisions(observations, decide_on(refs, None), seconds % DAY // HALF_HOUR),  # type: ignore[arg-type]
        [f"gradient, permutation: {choices}"],
    )


def _moments(
    policy: PyTree, config: RunConfig, observations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the mean (float32[D]) and deviation (float64[D]) of the slots, and whose they are."""
    stats = getattr(policy, "normaliser", None)
    if config.network.normalise_observations and isinstance(stats, RunningStats):
        return (
            np.asarray(stats.mean[0]),
            np.sqrt(np.asarray(stats.variance[0], np.float64)),
            "mean and standard deviation of a slot are those of training, by which the policy normalises it",
        )
    if not len(observations):
        raise ConfigError(
            f"attribution: {ONE_ACTION}, and the policy has no observation statistics of its own; "
            "evaluate other sessions (--split)"
        )
    return (
        observations.mean(axis=0),
        observations.std(axis=0, dtype=np.float64),
        "mean and standard deviation of a slot are those of these decisions, because the policy does not normalise",
    )


def _at_decisions(
    algorithm: Learner,
    policy: PyTree,
    chosen: _Decisions,
    groups: Sequence[SlotGroup],
    deviation: np.ndarray,
    seed: int,
) -> tuple[SlotMethod, SlotMethod]:
    """Attribute the chosen decisions by gradient and by permutation."""
    why = no_slope = _refusal(algorithm, policy, chosen)
    slopes = shares = [None] * len(groups)
    if not why:

        def logits(observation: Array, other: PyTree) -> tuple[Array, Array]:
            extras: Any = _decision(algorithm, policy, observation, other)[2]
            return extras.logits, extras.mask

        observations = jnp.asarray(chosen.observations)
        sizes = gradient_sizes(logits, observations, chosen.others, deviation)
        slopes = gradient_shares(sizes, groups) or slopes
        if slopes[0] is None:
            no_slope = "the margin depends on no slot at these decisions"
        act = jax.jit(
            jax.vmap(lambda policy, *of: _decision(algorithm, policy, *of)[1], (None, 0, 0))
        )
        shares = changed_shares(
            lambda observations: np.asarray(act(policy, observations, chosen.others)),
            chosen.observations,
            groups,
            chosen.strata,
            seed,
            REPEATS,
        )
    return (
        SlotMethod("gradient", "share", ABOUT["gradient"], tuple(slopes), no_slope),
        SlotMethod("permutation", "share", ABOUT["permutation"], tuple(shares), why),
    )


def _decision(algorithm: Learner, policy: PyTree, observation: Any, other: PyTree) -> Any:
    """Make one greedy decision on another observation. Returns (carry, action, extras)."""
    seen = other._replace(observation=observation)
    return algorithm.act(policy, algorithm.carry, seen, None, None, False)


def _refusal(algorithm: Learner, policy: PyTree, chosen: _Decisions) -> str | None:
    """Say why gradient and permutation cannot be given; None if they can."""
    if jax.tree.leaves(algorithm.carry):
        return "the policy has a memory, so its action depends on earlier bars too"
    if not len(chosen.observations):
        return ONE_ACTION
    first = jax.tree.map(lambda x: x[0], (chosen.observations, chosen.others))
    extras = jax.eval_shape(lambda policy: _decision(algorithm, policy, *first)[2], policy)
    if hasattr(extras, "logits") and hasattr(extras, "mask"):
        return None
    return "the learner does not tell its logits (its act returns extras without logits and mask)"
