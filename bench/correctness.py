"""Is what this device computes right? Four checks, each with its figures and the bound that it has
to meet.

`trajectories`: the environment against its NumPy twin, step by step (`replay`). `update`: one
    update of PPO against
NumPy in float64 (`one_update`), and against Stable-Baselines3 where it is installed. `resumed`: a
run, the same run in another process, and that run from its first checkpoint have the same bits.
`seeds`: many agents as one program, each against itself alone. Every check runs in a process of its
own, with products in float32.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import TrainConfig
from jaxtrade.storage import checkpoint
from jaxtrade.training.loop import TrainResult, train

from . import one_update, population, programs, replay, sb3, setting
from .harness import rounded
from .learning import learning_of
from .tape import make_tape
from .twin import Twin

SESSIONS = 4
# Limits so near that accounts end by them, and episodes of several sessions that a limit of steps
# may cut.
STRICT: dict[str, dict[str, Any]] = {
    "account": {
        "drawdown": 400,
        "daily_loss": 150,
        "profit_target": 250,
        "min_days": 1,
        "on_daily_loss": "fail",
    },
    "episode": {"sessions": 3, "max_steps": 40},
}
WANTED = {  # events that a replay must have had to say anything
    "default": "illegal exit_ORDER exit_STOP exit_FLAT end_SESSION_END",
    "strict": "exit_LIQUIDATION end_DAILY_LOSS end_STEP_LIMIT",
}
UPDATE_BOUND = 1e-4  # |our step - their step| / |our step|; float32 on a CPU: below 1e-5
SB3_BOUND = 1e-4
SEEDS_BOUND = 1e-3  # the same measure, of an agent that took the same actions
OTHER_ACTIONS = (
    1 / 16
)  # share of the agents that may have taken another action: a draw on the edge of two


def trajectories(envs: int, steps: int) -> dict[str, Any]:
    """`envs` environments for `steps` steps of random actions, some illegal, under the default
    account and a strict one; replayed by the twin on the host."""
    program = jax.jit(replay.play, static_argnums=(0, 5))
    found: dict[str, Any] = {}
    for name, sections in (("default", {}), ("strict", STRICT)):
        world = setting.world(SESSIONS, **sections)
        reported = replay.played(world.env, world.params, envs, steps, program)
        differs = replay.compare(Twin(make_tape(world.config.env, world.params)), reported)
        found[name] = {
            "fault": differs.fault,
            "missing": missing(differs.kinds, name),
            "steps": envs * steps,
            "reward_difference": rounded(differs.reward),
            "observation_difference": rounded(differs.observation),
        }
    passed = all(each["fault"] is None and not each["missing"] for each in found.values())
    return {
        "passed": passed,
        "reference": "the NumPy twin: masks, ends, exits and money equal, the rest within the "
        "bound",
        "bound": replay.TOLERANCE,
        "accounts": found,
    }


def missing(kinds: Counter[str], name: str) -> list[str]:
    """Events of `WANTED` that did not come up."""
    return [kind for kind in WANTED[name].split() if not kinds[kind]]


def update() -> dict[str, Any]:
    """One update of three epochs with truncated episodes; the weights' step against that of the
    reference.
    """
    plain = one_update.Rollout(loud=one_update.LOUD, hidden=())
    found: dict[str, Any] = {"numpy": one_update.distance(plain, one_update.reference(plain))}
    left_out: dict[str, str] = {}
    if importlib.util.find_spec("sb3_contrib") is None:
        left_out["sb3"] = sb3.MISSING
    else:
        from . import sb3_update  # imports torch

        rollout = one_update.Rollout(normalise_advantages=False)
        found["sb3"] = one_update.distance(rollout, sb3_update.updated(rollout, {}))
    bounds = {"numpy": UPDATE_BOUND, "sb3": SB3_BOUND}
    return {
        "passed": all(found[name] < bounds[name] for name in found),
        "difference": {name: rounded(value) for name, value in found.items()},
        "bound": {name: bounds[name] for name in found},
        "left_out": left_out,
    }


# -------------------------------------------------------------------------------------------------- the same bits
def _trained(
    ppo: Mapping[str, Any], chunk: int, folder: Path | None, start: Path | None = None
) -> TrainResult:
    """Two chunks from the key, or from the checkpoint `start` to their end."""
    world = setting.world(SESSIONS, ppo=ppo)
    algorithm, learning = programs.learner(world, 2 * chunk), learning_of(world.config)
    config = TrainConfig(
        total_timesteps=2 * chunk * learning.num_envs * learning.num_steps,
        chunk_updates=chunk,
        checkpoint_every=1,
        keep_checkpoints=2,
    )
    if start is None:
        return train(
            algorithm, world.params, config=config, key=jax.random.key(0), checkpoint_dir=folder
        )
    like = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    return train(
        algorithm, world.params, config=config, state=checkpoint.restore(start, like).state
    )


def straight(ppo: dict[str, Any], chunk: int, folder: str) -> dict[str, Any]:
    """A run of two chunks of updates, with a checkpoint after each in `folder`."""
    return {"updates": _trained(ppo, chunk, Path(folder)).updates}


def resumed(ppo: dict[str, Any], chunk: int, folder: str) -> dict[str, Any]:
    """In another process than `straight`: the same run again, and from its first checkpoint,
    against its end.
    """
    again = _trained(ppo, chunk, None).state
    onward = _trained(ppo, chunk, None, Path(folder) / f"update-{chunk:08d}").state
    end = checkpoint.restore(
        Path(folder) / f"update-{2 * chunk:08d}", jax.eval_shape(lambda: again)
    ).state
    found = {"again": bits(again, end), "resumed": bits(onward, end)}
    moved = float(np.abs(_plain(end.params)[0]).max()) > 0
    return {
        "passed": moved and not any(each["arrays_differing"] for each in found.values()),
        "bound": "the same bits",
        "updates": 2 * chunk,
        **found,
    }


def bits(one: Any, other: Any) -> dict[str, Any]:
    """How many arrays of two train states differ in a bit, and the greatest difference of a
    parameter.
    """
    pairs = list(zip(_plain(one), _plain(other), strict=True))
    differing = sum(a.tobytes() != b.tobytes() for a, b in pairs)
    parameters = zip(_plain(one.params), _plain(other.params), strict=True)
    return {
        "arrays": len(pairs),
        "arrays_differing": differing,
        "parameter_difference": rounded(max(float(np.abs(a - b).max()) for a, b in parameters)),
    }


def _plain(tree: Any) -> list[np.ndarray]:
    """All arrays on the host; keys as their numbers."""
    return [
        np.asarray(
            jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        )
        for leaf in jax.tree.leaves(tree)
    ]


# --------------------------------------------------------------------------------------------------------- seeds
def seeds(count: int, ppo: dict[str, Any], sessions: int, updates: int) -> dict[str, Any]:
    """`count` agents as one program for some updates, each against the agent of its key alone. The
    programs are those of the bench `population`."""
    many, one = (population.agents_of(number, ppo, sessions) for number in (count, 1))

    def trained(agents: population.Agents, keys: jax.Array) -> tuple[Any, Any]:
        state = first = agents.init(keys, agents.params)
        for _ in range(updates):
            state, _ = agents.update(state, agents.params)
        return first, state

    keys = many.stack.keys(0)
    _, together = trained(many, keys)
    steps, same = [], 0
    for i in range(count):
        first, state = trained(one, keys[i])
        own = many.stack.agent(together, i)
        if _same_actions(own, state):
            same += 1
            steps.append(_step_difference(first.params, own.params, state.params))
    return seeds_verdict(count, updates, same, steps)


def seeds_verdict(count: int, updates: int, same: int, steps: list[float]) -> dict[str, Any]:
    """same: agents that took the same actions; steps: the difference of each of these."""
    worst = max(steps, default=float("inf"))
    return {
        "passed": worst < SEEDS_BOUND and count - same <= OTHER_ACTIONS * count,
        "seeds": count,
        "updates": updates,
        "difference": rounded(worst) if steps else None,
        "bound": SEEDS_BOUND,
        "with_other_actions": count - same,
        "with_other_actions_at_most": int(OTHER_ACTIONS * count),
    }


def _same_actions(one: Any, other: Any) -> bool:
    """Whether all whole numbers of the environments' states are equal, as they are after the same
    actions.
    """
    return all(
        np.array_equal(a, b)
        for a, b in zip(_plain(one.env_state), _plain(other.env_state), strict=True)
        if not np.issubdtype(a.dtype, np.floating)
    )


def _step_difference(first: Any, one: Any, other: Any) -> float:
    """|one - other| / |other - first| over all parameters."""
    squares = [
        (np.square(a - b).sum(), np.square(b - c).sum())
        for a, b, c in zip(_plain(one), _plain(other), _plain(first), strict=True)
    ]
    apart, moved = (float(sum(column)) for column in zip(*squares, strict=True))
    return (apart / moved) ** 0.5
