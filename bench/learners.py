"""PQN, DQN, PPO and Stable-Baselines3's DQN side by side: time and environment steps to the same
reward, and how well each of ours ends.

The race: each side trains in a child of its own, seed by seed, the sides take turns. A run ends
once the mean of what its environments gave lately, exploration included, has met the target
(`learners_settings.Goal`). Seconds are those of a whole run without compilation; what compiling
takes in a process that has compiled nothing is beside them. The ends: five seeds of each learner
are trained as one program, for their whole budget, and play greedily.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from jaxtrade.config import RunConfig, load_config
from jaxtrade.interop.gymnax_adapter import from_gymnax
from jaxtrade.interop.world import load_world
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.training.loop import train
from jaxtrade.training.plan import plan_run
from jaxtrade.types import Algorithm, Array, PyTree, Summary

from . import harness, sb3_dqn
from . import learners_settings as chosen
from .catalogue import Options
from .learners_settings import Goal
from .recent import Recent
from .sb3 import MISSING
from .tape import make_tape, save
from .time_to_reward import bootstrap
from .worker import Reply, Worker

REWARD = Summary(
    start=lambda params: jnp.float32(0),
    collect=lambda seen: seen.reward,
    figures=lambda sums, steps: {"reward": sums / steps},
)
QUICK_STEPS = 8_192


def config_of(task: str, learner: str, steps: int | None = None) -> RunConfig:
    """The committed settings of a learner on a task. steps: another budget."""
    rows = (
        *(chosen.CHAIN if task == "chain" else ()),
        f"algorithm={learner}",
        *chosen.ROWS[task, learner],
    )
    more = () if steps is None else (f"train.total_timesteps={steps}",)
    return load_config(None, [*rows, *more])


def world_of(task: str, config: RunConfig) -> tuple[Any, PyTree]:
    """(environment, its parameters) of a task."""
    return load_world(config) if task == "chain" else from_gymnax(chosen.GYMNAX[task])


def algorithm_of(task: str, config: RunConfig) -> tuple[Algorithm, PyTree]:
    """(the learner on its environment, the environment's parameters)."""
    env, params = world_of(task, config)
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    return make_algorithm(config, env, plan.total_updates, summarise=REWARD), params


# --- the race --------------------------------------------------------------------------------------------------------


def racer(
    task: str, learner: str, goal: Sequence[Any], seeds: Sequence[int], steps: int | None
) -> Callable[[], Any]:
    """For `Worker`. The first call traces and compiles, from no cache; each later one trains the
    next seed until the target or the budget and returns `Recent.result`."""
    jax.config.update("jax_enable_compilation_cache", False)
    config, order = config_of(task, learner, steps), iter(seeds)
    algorithm, params = algorithm_of(task, config)
    budget = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps).total_steps
    programs: tuple[Any, Any] | None = None

    def work() -> dict[str, Any]:
        nonlocal programs
        if programs is None:
            programs = _compiled(algorithm, params)
            return {}
        init, step = programs
        state, recent = init(jax.random.key(next(order)), params), Recent(Goal(*goal))
        while recent.steps < budget and not recent.reached:
            state, metrics = step(state, params)
            seen = jax.device_get(
                {name: metrics[name] for name in ("reward", "episodes", "episode_reward")}
            )
            count = int(seen["episodes"])
            recent.add(
                algorithm.steps_per_update,
                float(seen["reward"]) * algorithm.steps_per_update,
                count,
                float(seen["episode_reward"]) * count if count else 0.0,
            )
        return recent.result(budget)

    return work


def _compiled(algorithm: Algorithm, params: PyTree) -> tuple[Any, Any]:
    key = jax.random.key(0)
    init = jax.jit(algorithm.init).lower(key, params).compile()
    update = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    return init, update.lower(jax.eval_shape(algorithm.init, key, params), params).compile()


def summary(replies: Sequence[Reply]) -> dict[str, Any]:
    """Medians over the seeds and, in the seeds' order, every seed's figures."""
    columns = {
        "seconds": [reply.sample.wall for reply in replies],
        "cpu_seconds": [reply.sample.cpu for reply in replies],
        "env_steps": [reply.answer["steps"] for reply in replies],
    }
    result: dict[str, Any] = {
        "repeats": len(replies),
        "reached": sum(reply.answer["reached"] for reply in replies),
    }
    for name, values in columns.items():
        result[name] = harness.rounded(float(np.median(values)))
        result[f"{name}_each"] = [harness.rounded(value) for value in values]
    return result | {"last_each": [reply.answer["last"] for reply in replies]}


def race(task: str, quick: bool) -> dict[str, Any]:
    """`sides`: ours by name, and `sb3_dqn`. `ratios`: how many times sooner than
    Stable-Baselines3's DQN each of ours has the reward (medians), and its environment steps over
    theirs with a bootstrap interval."""
    goal, seeds = chosen.GOALS[task], chosen.SEEDS[:1] if quick else chosen.SEEDS
    left_out = {} if importlib.util.find_spec("stable_baselines3") else {"sb3_dqn": MISSING}
    prepared: dict[str, Reply] = {}
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tape.npz"
        workers: dict[str, Worker] = {}

        def add(name: str, module: str, **given: Any) -> None:
            given |= {"task": task, "goal": list(goal), "seeds": list(seeds)}
            workers[name] = stack.enter_context(Worker(module, "racer", given, 1, {"NPROC": "1"}))
            prepared[name] = workers[name].run()  # before the next child starts: compiling is timed

        for learner in chosen.LEARNERS:
            add(learner, "learners", learner=learner, steps=QUICK_STEPS if quick else None)
        if not left_out and not quick:
            if task == "chain":
                env, params = load_world(config_of(task, "ppo"))
                save(make_tape(env.config, params), path)
            add("sb3_dqn", "sb3_dqn", path=str(path), threads=1)
        turns = harness.take_turns(
            {name: worker.run for name, worker in workers.items()}, len(seeds)
        )
    sides = {name: summary(replies) for name, replies in turns.items()}
    for name in set(sides) - {"sb3_dqn"}:
        sides[name] |= {"compile_seconds": harness.rounded(prepared[name].sample.wall)}
    return {"goal": goal._asdict(), "sides": sides, "ratios": _ratios(sides), "left_out": left_out}


def _ratios(sides: Mapping[str, Any]) -> dict[str, Any]:
    if "sb3_dqn" not in sides:
        return {}
    theirs = sides["sb3_dqn"]

    def against(ours: Mapping[str, Any]) -> dict[str, Any]:
        low, high = bootstrap(ours["env_steps_each"], theirs["env_steps_each"])
        whole = ours["seconds"] + ours["compile_seconds"]
        return {
            "wall": harness.rounded(theirs["seconds"] / ours["seconds"]),
            "cpu": harness.rounded(theirs["cpu_seconds"] / ours["cpu_seconds"]),
            "with_compile": harness.rounded(theirs["seconds"] / whole),
            "env_steps": harness.rounded(ours["env_steps"] / theirs["env_steps"]),
            "env_steps_interval": [harness.rounded(low), harness.rounded(high)],
        }

    return {name: against(side) for name, side in sides.items() if name != "sb3_dqn"}


# --- how well each ends ----------------------------------------------------------------------------------------------


def episode_returns(
    algorithm: Algorithm,
    policy: PyTree,
    params: PyTree,
    key: Array,
    episodes: int,
    longest: int = 500,
) -> Array:
    """float32[episodes]: undiscounted returns of greedy episodes, the first of each of `episodes`
    environments.
    """
    env = algorithm.env
    keys, step_key = jax.random.split(key)
    state, ref = jax.vmap(env.reset, (0, None))(jax.random.split(keys, episodes), params)
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (episodes, *x.shape)), algorithm.carry)

    def step(now: Any, key: Array) -> tuple[Any, None]:
        state, ref, carry, total, alive = now
        carry, action, _ = jax.vmap(
            lambda carry, ref: algorithm.act(policy, carry, ref, params, None, False)
        )(carry, ref)
        state, ref, outcome = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(key, episodes), state, action, params
        )
        total = total + jnp.where(alive, outcome.reward, 0.0)
        return (state, ref, carry, total, alive & ~(outcome.terminated | outcome.truncated)), None

    start = (state, ref, carry, jnp.zeros(episodes), jnp.ones(episodes, bool))
    return jax.lax.scan(step, start, jax.random.split(step_key, longest))[0][3]


def step_reward(
    algorithm: Algorithm, policy: PyTree, params: PyTree, key: Array, num_envs: int, steps: int
) -> Array:
    """float32[]: mean reward per step of the greedy policy over `num_envs` x `steps` steps from
    random starts.
    """
    env = algorithm.env
    state, ref = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)
    carry = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), algorithm.carry)

    def step(now: Any, key: Array) -> tuple[Any, Array]:
        state, ref, carry, first = now
        carry = jax.tree.map(
            lambda x: jnp.where(first.reshape(-1, *[1] * (x.ndim - 1)), 0, x), carry
        )
        carry, action, _ = jax.vmap(
            lambda carry, ref: algorithm.act(policy, carry, ref, params, None, False)
        )(carry, ref)
        state, ref, outcome = jax.vmap(env.step, (None, 0, 0, None))(key, state, action, params)
        return (state, ref, carry, outcome.terminated | outcome.truncated), outcome.reward.mean()

    start = (state, ref, carry, jnp.ones(num_envs, bool))
    return jax.lax.scan(step, start, jax.random.split(key, steps))[1].mean()


def end(task: str, learner: str, quick: bool) -> dict[str, Any]:
    """Scores of the greedy policies of all seeds, their mean with a 95 % interval (Student's t),
    and what was wanted.

    On the chain a score is a share of the exact optimum, on bars that no training has seen.
    """
    config = config_of(task, learner, QUICK_STEPS if quick else None)
    algorithm, params = algorithm_of(task, config)
    seeds = jax.vmap(jax.random.key)(jnp.asarray(chosen.SEEDS, jnp.uint32))
    trained = train(algorithm, params, config=config.train, key=seeds, num_seeds=len(chosen.SEEDS))
    policies = jax.vmap(algorithm.policy)(trained.state)
    key = jax.random.key(99)
    if task == "chain":
        fresh = load_config(None, [*chosen.CHAIN, *chosen.FRESH])
        _, unseen = load_world(fresh)
        steps = 64 if quick else chosen.STEPS
        scores = (
            jax.jit(
                jax.vmap(
                    lambda policy: step_reward(
                        algorithm, policy, unseen, key, chosen.EPISODES, steps
                    )
                )
            )(policies)
            / chosen.OPTIMUM_FRESH
        )
    else:
        scores = jax.jit(
            jax.vmap(
                lambda policy: episode_returns(algorithm, policy, params, key, chosen.EPISODES)
            )
        )(policies).mean(axis=1)
    return figures(np.asarray(scores, float)) | {
        "wanted": chosen.WANTED[task],
        "env_steps": trained.steps,
        "healthy": all(ok for ok, _ in trained.health.values()),
    }


def figures(scores: np.ndarray) -> dict[str, Any]:
    """Every score, their mean, the least, and the 95 % interval of the mean by Student's t."""
    half = float(stats.t.ppf(0.975, len(scores) - 1) * scores.std(ddof=1) / np.sqrt(len(scores)))
    mean = float(scores.mean())
    return {
        "scores": [harness.rounded(float(score)) for score in scores],
        "mean": harness.rounded(mean),
        "least": harness.rounded(float(scores.min())),
        "interval": [harness.rounded(mean - half), harness.rounded(mean + half)],
    }


def run(options: Options) -> dict[str, Any]:
    """`race`: by task. `ends`: by task and learner."""
    races = {task: race(task, options.quick) for task in chosen.GOALS}
    ends = {
        task: {learner: end(task, learner, options.quick) for learner in chosen.LEARNERS}
        for task in chosen.TASKS
    }
    return {
        "config": _told(),
        "race": races,
        "ends": ends,
        "differences": {"sb3_dqn": list(sb3_dqn.DIFFERENCES)},
    }


def _told() -> dict[str, Any]:
    return {
        "seeds": list(chosen.SEEDS),
        "optimum": chosen.OPTIMUM,
        "optimum_fresh": chosen.OPTIMUM_FRESH,
        "greedy_episodes": chosen.EPISODES,
        "greedy_steps": chosen.STEPS,
        "rows": {f"{task}/{learner}": list(keys) for (task, learner), keys in chosen.ROWS.items()},
        "sb3": {
            task: {
                "keywords": {name: str(value) for name, value in keywords.items()},
                "budget": budget,
            }
            for task, (keywords, budget) in chosen.SB3.items()
        },
    }
