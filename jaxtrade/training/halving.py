"""Successive halving (Jamieson and Talwalkar 2016): at each rung the worse half of the agents
stops.

The survivors are gathered into a smaller program, so what is saved is real: each rung is one
program, compiled for its number of agents, and no agent is carried along masked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import TrainConfig
from jaxtrade.errors import ConfigError
from jaxtrade.text import several
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack
from jaxtrade.types import Algorithm, Array, PyTree


class Rung(NamedTuple):
    """What was decided after `update` updates. agents: the numbers of those that had come so far,
    from 0 at the start.
    scores: float32, theirs. kept: the numbers of those that go on."""

    update: int
    agents: tuple[int, ...]
    scores: tuple[float, ...]
    kept: tuple[int, ...]


class Halved(NamedTuple):
    """state: of the survivors, with a leading axis. agents: their numbers. rungs: in order.
    agent_updates: updates that all agents together took; without halving it would be agents x
    updates. compile_seconds: of all programs."""

    state: PyTree
    agents: tuple[int, ...]
    rungs: tuple[Rung, ...]
    agent_updates: int
    compile_seconds: float


def survivors(scores: Sequence[float]) -> list[int]:
    """Places of the better half, rounded up, in their old order; ties by index. A score that is not
    finite is the worst."""
    known = np.where(np.isfinite(scores), np.asarray(scores, np.float64), -np.inf)
    order = np.argsort(-known, kind="stable")
    return sorted(order[: -(-len(known) // 2)].tolist())


def gathered(state: PyTree, places: Sequence[int]) -> PyTree:
    """The agents at `places` of a stacked state, bit by bit."""
    at = jnp.array(places)
    return jax.tree.map(lambda x: x[at], state)


def successive_halving(
    algorithm: Algorithm,
    params: PyTree,
    *,
    config: TrainConfig,
    key: Array,
    agents: int,
    rungs: Sequence[int],
    score: Callable[[PyTree], np.ndarray],
    tell: Callable[[str], None] = lambda line: None,
) -> Halved:
    """Train `agents` agents, of which the worse half stops at each rung.

    It keeps nothing on disk: a run that is interrupted begins again. The algorithm must have been
    built for the length of `config` (`training.loop.plan_run`).

    Args:
        algorithm, params, config: as of `training.loop.train`. `config.num_seeds` is not read.
        key: from which agent i gets `fold_in(key, i)`, as in `train`.
        rungs: updates after which a half stops, rising; multiples of `config.chunk_updates` before
            the run's last one.
        score: stacked state -> score of each of its agents, higher is better.
    Raises:
        ConfigError: rungs that do not fit the run, or more of them than leave an agent.
    """
    total = config.chunks(algorithm.steps_per_update) * config.chunk_updates
    _check(rungs, total, config.chunk_updates, agents)
    numbers, found, state, done, spent, seconds = tuple(range(agents)), [], None, 0, 0, 0.0
    for until in (*rungs, total):
        stack = Stack((len(numbers),))

        def stop(state: PyTree, update: int, until: int = until) -> Change:
            del state
            return Change(stop=update >= until)

        result = train(
            algorithm,
            params,
            config=config,
            key=stack.split_key(key) if state is None else None,
            state=state,
            num_seeds=stack,
            hooks=[stop],
            max_rollbacks=None,
        )
        spent, seconds = spent + len(numbers) * (until - done), seconds + result.compile_seconds
        state, done = result.state, until
        if until == total:
            break
        scores = np.asarray(score(state), np.float32)
        places = survivors(scores.tolist())
        kept = tuple(numbers[place] for place in places)
        found.append(Rung(until, numbers, tuple(scores.tolist()), kept))
        tell(
            f"halving at update {until}: {several(len(kept), 'agent')} of {len(numbers)} go on: "
            f"{', '.join(map(str, kept))}"
        )
        state, numbers = gathered(state, places), kept
    return Halved(state, numbers, tuple(found), spent, seconds)


def _check(rungs: Sequence[int], total: int, chunk: int, agents: int) -> None:
    """Raises ConfigError as `successive_halving` says."""
    if list(rungs) != sorted(set(rungs)) or any(
        rung % chunk or not 0 < rung < total for rung in rungs
    ):
        raise ConfigError(
            f"rungs {list(rungs)}: expected rising multiples of train.chunk_updates ({chunk}) below the "
            f"run's {total} updates"
        )
    if agents < 2 ** len(rungs):
        raise ConfigError(
            f"rungs {list(rungs)}: {len(rungs)} halvings need at least {2 ** len(rungs)} agents, and "
            f"there are {agents}"
        )
