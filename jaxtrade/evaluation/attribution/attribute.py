"""Attribute the decisions of a run's greedy policy to the groups of its observation, by all methods
that apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.clock import DAY, local_seconds
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.agents import Agent, PolicyAct
from jaxtrade.evaluation.attribution.ablation import ablated_profits, given
from jaxtrade.evaluation.attribution.groups import SlotGroup, slot_groups
from jaxtrade.evaluation.attribution.methods import changed_shares, gradient_shares, gradient_sizes
from jaxtrade.evaluation.attribution.result import SlotAttribution, SlotMethod, counted
from jaxtrade.evaluation.backtest import Steps, backtest, decision_bars
from jaxtrade.evaluation.evaluate import agent_key
from jaxtrade.evaluation.loaded import GivenEnv
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.listening.fusion import make_fusion
from jaxtrade.text import in_dollars
from jaxtrade.types import Algorithm, Array, PyTree, SessionSet

if TYPE_CHECKING:
    from jaxtrade.data.market import Market

MOST = 20_000  # decisions that gradient and permutation look at
REPEATS = 5  # permutations
HALF_HOUR = 1_800  # seconds
MEMORY = "the policy has a memory, so its action depends on earlier bars too"
SILENT = "the learner does not tell its logits (its act returns extras without logits and mask)"
ONE_ACTION = "no decision had two legal actions"
ABOUT = {
    "gradient": "share of |d margin / d slot| x standard deviation of the slot, summed over the slots of the part; the "
    "margin is the best legal logit less the second",
    "permutation": "share of decisions whose action changes when the part comes from another decision in the same half "
    "hour of the day",
    "ablation": "net profit without the part (fixed at its mean) less net profit with it",
}


class _Decisions(NamedTuple):
    """B decisions with at least two legal actions. observations: float32[B, D] raw. others: `Given`
    [B] without the observation. strata: int64[B] half hour of the day."""

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
    steps: Steps | None = None,
) -> SlotAttribution:
    """Attribute the greedy policy among `agents` on the decision bars of `sessions`. Arguments as
    `evaluate`.

    Deterministic: what is drawn depends on `config.seed` alone. Raises ConfigError if no agent is a
        greedy policy, and
    as `evaluate`.
    """
    agent = _greedy_of(agents)
    policy, _ = agent.carry
    given_env: Any = GivenEnv(
        env.num_actions, env.observation_size
    )  # the part of an `Env` that acting needs
    algorithm = make_algorithm(config, given_env, 1, fusion=make_fusion(config.advisor, config.env))
    decisions, groups = decision_bars(market.data, sessions, steps), slot_groups(env.spec.names)
    params = params.replace(sessions=sessions)
    record = backtest(
        env,
        agent,
        params,
        decisions,
        "strategy",
        agent_key(jax.random.key(config.seed), agent.name),
    )
    chosen, notes = _choices(env, params, record, market, config.seed)
    mean, deviation, about = _moments(policy, config, chosen.observations)
    by_slope, by_order = _at_decisions(algorithm, policy, chosen, groups, deviation, config.seed)
    profits = ablated_profits(env, algorithm, policy, params, decisions, groups, mean)
    own = int(record.equity[-1]) / 1000
    rounding = (
        []
        if profits[0] == own
        else [
            f"ablation: evaluated side by side, the policy makes {in_dollars(profits[0])} with "
            f"every slot; alone it makes "
            f"{in_dollars(own)}, because sums are rounded otherwise"
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


def _greedy_of(agents: Sequence[Agent]) -> Agent:
    for agent in agents:
        if isinstance(agent.act, PolicyAct) and not agent.act.explore:
            return agent
    names = ", ".join(agent.name for agent in agents) or "none"
    raise ConfigError(f"attribution: needs a greedy policy; found {names}")


def _choices(
    env: TradingEnv, params: EnvParams, record: Any, market: Market, seed: int
) -> tuple[_Decisions, list[str]]:
    """The decisions of a record with at least two legal actions, at most MOST of them, and which
    they are.
    """
    found = np.flatnonzero(np.asarray(record.mask).sum(axis=-1) >= 2)
    used = (
        found
        if len(found) <= MOST
        else np.sort(np.random.default_rng(seed).choice(found, MOST, replace=False))
    )
    refs = jax.tree.map(lambda x: x[used], record.ref)
    shape = (0, env.observation_size)
    observations = (
        np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(refs, params))
        if len(used)
        else np.zeros(shape, np.float32)
    )
    seconds = local_seconds(np.asarray(market.bars.time)[record.row[used]], market.contract.zone)
    return (
        _Decisions(observations, given(refs, None), seconds % DAY // HALF_HOUR),  # type: ignore[arg-type]
        [f"gradient, permutation: {counted(len(found), len(used))}"],
    )


def _moments(
    policy: PyTree, config: RunConfig, observations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, str]:
    """(mean float32[D], standard deviation float64[D], whose they are) of the slots."""
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
    algorithm: Algorithm,
    policy: PyTree,
    chosen: _Decisions,
    groups: Sequence[SlotGroup],
    deviation: np.ndarray,
    seed: int,
) -> tuple[SlotMethod, SlotMethod]:
    """Gradient and permutation."""
    why = _refusal(algorithm, policy, chosen)
    slopes: list[float] | None = None
    shares: list[float] | None = None
    no_slope = why
    if why is None:
        sizes = _sizes(algorithm, policy, chosen.observations, chosen.others, deviation)
        slopes = gradient_shares(sizes, groups)
        no_slope = (
            None if slopes is not None else "the margin depends on no slot at these decisions"
        )
        act = jax.jit(partial(_actions, algorithm))
        shares = changed_shares(
            lambda observations: np.asarray(act(policy, observations, chosen.others)),
            chosen.observations,
            groups,
            chosen.strata,
            seed,
            REPEATS,
        )
    nothing = (None,) * len(groups)
    return (
        SlotMethod(
            "gradient",
            "share",
            ABOUT["gradient"],
            nothing if slopes is None else tuple(slopes),
            no_slope,
        ),
        SlotMethod(
            "permutation",
            "share",
            ABOUT["permutation"],
            nothing if shares is None else tuple(shares),
            why,
        ),
    )


def _refusal(algorithm: Algorithm, policy: PyTree, chosen: _Decisions) -> str | None:
    """Why gradient and permutation cannot be given; None if they can."""
    if jax.tree.leaves(algorithm.carry):
        return MEMORY
    if not len(chosen.observations):
        return ONE_ACTION
    one = jax.tree.map(lambda x: x[0], chosen.others._replace(observation=chosen.observations))
    extras = jax.eval_shape(
        lambda policy: algorithm.act(policy, algorithm.carry, one, None, None, False)[2], policy
    )
    return None if hasattr(extras, "logits") and hasattr(extras, "mask") else SILENT


def _sizes(
    algorithm: Algorithm,
    policy: PyTree,
    observations: np.ndarray,
    others: PyTree,
    deviation: np.ndarray,
) -> np.ndarray:
    def logits(observation: Array, other: PyTree) -> tuple[Array, Array]:
        seen = other._replace(observation=observation)
        extras: Any = algorithm.act(policy, algorithm.carry, seen, None, None, False)[2]
        return extras.logits, extras.mask

    return gradient_sizes(logits, jnp.asarray(observations), others, deviation)


def _actions(algorithm: Algorithm, policy: PyTree, observations: Array, others: PyTree) -> Array:
    """int32[B]: the greedy actions."""

    def one(observation: Array, other: PyTree) -> Array:
        return algorithm.act(
            policy, algorithm.carry, other._replace(observation=observation), None, None, False
        )[1]

    return jax.vmap(one)(observations, others)
