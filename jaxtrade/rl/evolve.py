"""Population-based training (Jaderberg et al. 2017).

The worst agents become copies of the best, with other settings.

Pure functions of stacked states [N, ...]. An event ranks the agents by their scores, ties by index.
Each of the worst `truncation` share, and each agent that is not finite, continues from a random
agent of the best share: it takes over what that agent has learnt, and stays in its own
environments, with its own replay and its own random numbers. Its settings are those of the other
agent, each times or divided by `perturb`, or drawn anew.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.sweep import find_tied_ends, names_of
from jaxtrade.errors import DataError
from jaxtrade.types import Array, Learner, PyTree

DRAWS, EVENTS = (
    0x6472_6177,
    0x6576_656E,
)  # streams of random numbers beside those that training uses
COPIED = (
    "params",
    "opt_state",
    "normaliser",
    "hparams",
    "carry",
    "rewards",
    "actor",
)  # fields of a `TrainState`
EXPLOIT, FINAL = "exploit", "final"  # kinds of rows in lineage.jsonl


class Rules(NamedTuple):
    """The static part of an event.

    ranges: evolved float -> (low, high).
    follows: end of a schedule -> (its start, end / start).
    The others: as in `EvolveConfig`.
    """

    ranges: Mapping[str, tuple[float, float]]
    follows: Mapping[str, tuple[str, float]]
    truncation: float
    perturb: float
    resample: float


class Exploitation(NamedTuple):
    """What follows from an event: who continues from whom, and with which settings.

    source: int32[N], the agent from which each one goes on; itself if it is not replaced.
    floats: the evolved floats after the event, float32[N] by name.
    """

    source: Array
    floats: dict[str, Array]


class Lineage(NamedTuple):
    """What an event did.

    finite: bool[N], agents with a finite score and finite parameters.
    before: the evolved floats before it, float32[N] by name.
    decision: what followed.
    """

    finite: Array
    before: dict[str, Array]
    decision: Exploitation


def rules_of(config: RunConfig) -> Rules:
    """Return the rules of a configuration whose `evolve.keys` are set."""
    evolve = config.evolve
    return Rules(
        names_of(config), find_tied_ends(config), evolve.truncation, evolve.perturb, evolve.resample
    )


def event_key(seed: int, update: int | Array) -> Array:
    """Return the key of the event after `update` updates of a run."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), EVENTS), update)


# --- the first settings -----------------------------------------------------------------------------------------------


def log_uniform(chance: Array, bounds: tuple[float, float]) -> Array:
    """Map `chance` (float32[...] in [0, 1)) to a number of a range, uniform in the logarithm."""
    low, high = bounds
    return jnp.clip(low * jnp.exp(chance * np.log(high / low).astype(np.float32)), low, high)


def with_floats(hparams: Any, floats: Mapping[str, Array], rules: Rules) -> Any:
    """Replace evolved floats of hyper-parameters, and the ends of schedules that follow them."""
    ends = {end: floats[start] * ratio for end, (start, ratio) in rules.follows.items()}
    return hparams.replace(**floats, **ends)


def with_drawn_settings(algorithm: Learner, config: RunConfig) -> Learner:
    """Wrap the learner so that its first state draws the evolved floats by its key.

    The learner is unchanged without `evolve.keys`.
    """
    if not config.evolve.on:
        return algorithm
    rules = rules_of(config)

    def init(key: Array, params: PyTree) -> Any:
        state = algorithm.init(key, params)
        chances = jax.random.uniform(jax.random.fold_in(key, DRAWS), (len(rules.ranges),))
        floats = {
            name: log_uniform(chances[i], bounds)
            for i, (name, bounds) in enumerate(rules.ranges.items())
        }
        return state.replace(hparams=with_floats(state.hparams, floats, rules))

    return algorithm._replace(init=init)


# --- an event ---------------------------------------------------------------------------------------------------------


def decide(
    scores: Array, finite: Array, floats: Mapping[str, Array], key: Array, rules: Rules
) -> Exploitation:
    """Decide which agent continues from which, and with which settings.

    If no agent is finite, no agent is replaced.

    Args:
        scores: float32[N], higher is better.
        finite: bool[N]; a score that is not finite counts as not finite too.
        floats: the evolved floats, float32[N] by name.
        key: of the event (`event_key`).
    """
    chex.assert_rank([scores, finite, key], [1, 1, 0])
    count = len(scores)
    finite = finite & jnp.isfinite(scores)
    order = jnp.argsort(-jnp.where(finite, scores, -jnp.inf), stable=True)
    place = jnp.argsort(order)
    share = max(1, int(count * rules.truncation))
    donors = jnp.clip(finite.sum(), 1, share)
    replaced = ((place >= count - share) | ~finite) & finite.any()
    # A row of uniform numbers for each agent: which donor, then for each float whether up, whether
    # anew, and where.
    chances = jax.random.uniform(key, (count, 1 + 3 * len(rules.ranges)))
    nth = jnp.minimum((chances[:, 0] * donors).astype(jnp.int32), donors - 1)
    source = jnp.where(replaced, order[nth], jnp.arange(count)).astype(jnp.int32)
    after = {}
    for i, (name, bounds) in enumerate(rules.ranges.items()):
        up, anew, where = (chances[:, 1 + 3 * i + j] for j in range(3))
        taken = floats[name][source]
        moved = jnp.clip(jnp.where(up < 0.5, taken * rules.perturb, taken / rules.perturb), *bounds)
        new = jnp.where(anew < rules.resample, log_uniform(where, bounds), moved)
        after[name] = jnp.where(replaced, new, floats[name])
    return Exploitation(source, after)


def all_finite(params: PyTree) -> Array:
    """Return which agents have parameters [N, ...] that are all finite (bool[N])."""
    rows = [jnp.isfinite(x).reshape(x.shape[0], -1).all(axis=1) for x in jax.tree.leaves(params)]
    return jnp.stack(rows).all(axis=0)


def parts_of(state: Any) -> dict[str, Any]:
    """Return the part of a stacked `TrainState` that an event reads and changes.

    Of what a learner keeps for itself (`own`), those are the fields that its class
    lists in `inherited`.
    """
    parts = {name: getattr(state, name) for name in COPIED}
    inherited = () if state.own is None else state.own.inherited
    return parts | {"own": {name: getattr(state.own, name) for name in inherited}}


def exploit_parts(
    parts: dict[str, Any], scores: Array, key: Array, rules: Rules
) -> tuple[dict[str, Any], Lineage]:
    """Run one event and return (the parts of a state after it, what it did).

    Replaced agents get the parameters, optimiser state, statistics of observations, moments of the
    reward scale, delayed policies, target network and settings of their source, the settings then
    changed. They keep their key, environments, running episodes, replay and count of updates; a
    memory begins anew.

    Args:
        parts: of a stacked `TrainState` of N agents (`parts_of`).
        scores: float32[N], higher is better; NaN for an agent that has none.
        key: of the event (`event_key`).
    """
    before = {name: getattr(parts["hparams"], name) for name in rules.ranges}
    finite = all_finite(parts["params"]) & jnp.isfinite(scores)
    decision = decide(scores, finite, before, key, rules)
    source = decision.source
    replaced = source != jnp.arange(len(source))

    def take(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda x: x[source], tree)

    def fresh(x: Array) -> Array:
        return jnp.where(replaced.reshape(-1, *(1,) * (x.ndim - 1)), jnp.zeros_like(x), x)

    rewards, own = parts["rewards"], take(parts["hparams"])
    follows = with_floats(own, decision.floats, rules)
    hparams = jax.tree.map(
        lambda new, old: jnp.where(replaced, new, old), follows, parts["hparams"]
    )
    new = {
        name: take(parts[name]) for name in ("params", "opt_state", "normaliser", "actor", "own")
    }
    # Values are in units of the reward scale, so its moments belong to them. The running returns
    # are the environments'.
    new["rewards"] = None if rewards is None else rewards.replace(stats=take(rewards.stats))
    # A memory that another network wrote means nothing to this one: it begins anew, as at the start
    # of an episode.
    new["carry"] = jax.tree.map(fresh, parts["carry"])
    return new | {"hparams": hparams}, Lineage(finite, before, decision)


def with_parts(state: Any, parts: Mapping[str, Any]) -> Any:
    """Replace the parts of the state by others, as `parts_of` gives them."""
    own = state.own if state.own is None else state.own.replace(**parts["own"])
    return state.replace(**{name: parts[name] for name in COPIED}, own=own)


# --- the file ---------------------------------------------------------------------------------------------------------


def winner_of(scores: Sequence[float | None]) -> int | None:
    """Return the agent with the highest score, or None if no score is finite.

    Of equal scores, the one with the lowest index wins.
    """
    known = [i for i, score in enumerate(scores) if score is not None and np.isfinite(score)]
    return max(known, key=lambda i: (scores[i], -i)) if known else None


def row_of(update: int, scores: np.ndarray, lineage: Lineage) -> dict[str, Any]:
    """Return the row of lineage.jsonl about an event, whose arrays are NumPy's.

    Agents are numbered from 0, in order.
    """
    listed = jax.tree.map(lambda x: np.asarray(x).tolist(), lineage)
    return {
        "update": update,
        "event": EXPLOIT,
        "scores": np.asarray(scores, np.float32).tolist(),
        "finite": listed.finite,
        "source": listed.decision.source,
        "before": listed.before,
        "after": listed.decision.floats,
    }


def replay(rows: Sequence[Mapping[str, Any]], config: RunConfig) -> int | None:
    """Derive every decision of a lineage file again, and return the winner.

    The decisions follow from its scores, its settings and the run's seed. Settings are compared up
    to rounding, sources exactly.

    Raises DataError: a decision is not the one that follows; or there is no last row.

    Args:
        rows: of lineage.jsonl (`storage.sinks.read_rows`), with null for a score
            that is not finite.
    """
    rules = rules_of(config)
    program = jax.jit(functools.partial(decide, rules=rules))
    for row in rows:
        if row["event"] != EXPLOIT:
            continue
        before = {name: np.float32(row["before"][name]) for name in rules.ranges}
        scores = np.array(
            [np.nan if score is None else score for score in row["scores"]], np.float32
        )
        found = jax.device_get(
            program(scores, np.array(row["finite"]), before, event_key(config.seed, row["update"]))
        )
        same = all(
            np.allclose(found.floats[name], row["after"][name], rtol=1e-5, atol=0)
            for name in rules.ranges
        )
        if found.source.tolist() != row["source"] or not same:
            raise DataError(
                f"lineage.jsonl: the row of update {row['update']} says that the agents go on from "
                f"{row['source']}; its scores and the seed give {found.source.tolist()}, or other settings"
            )
    if not rows or rows[-1]["event"] != FINAL:
        raise DataError(
            "lineage.jsonl: no row 'final'; the run has not ended, so there is no winner yet"
        )
    return winner_of(rows[-1]["scores"])
