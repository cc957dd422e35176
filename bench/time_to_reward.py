"""Environment steps and seconds until a target reward, against Stable-Baselines3's MaskablePPO.

Task, target, budget and hyper-parameters are `time_to_reward_settings`, committed before the first
timed run. Both learners train on the same market with the same mathematics (`sb3.arguments`) and
are read by one rule: after every update the mean reward per step of the last few updates,
exploration included, as the environment gave it. Each side runs in a child; one child works at a
time, seeds take turns. Seconds are those of a whole run, network and environments started, without
compilation; what compiling takes in a process that has compiled nothing is beside them.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig, make_config
from jaxtrade.interop.world import load_world
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.types import Summary

from . import harness, sb3, setting
from . import time_to_reward_settings as chosen
from .catalogue import Options
from .learning import learning_of, sections_of
from .tape import make_tape, save
from .time_to_reward_settings import Goal
from .worker import Reply, Worker

OWN_ENVS = 64  # ours alone: the same mathematics over more environments
LEVEL, DRAWS = 0.9, 10_000
BAND = (0.8, 1.25)
QUICK = Goal(updates=16)
Update = Callable[[], float]  # one update -> its mean reward per step


class Run(NamedTuple):
    """One seed of one side. steps: environment steps until the target, or the whole budget where
    `reached` is False.
    last: mean reward per step of the last window.
    """

    reached: bool
    steps: int
    wall: float
    cpu: float
    last: float


def config_of(num_envs: int) -> RunConfig:
    """The committed settings with `num_envs` environments; the steps and minibatches of an update
    stay the same.
    """
    ppo = {**chosen.PPO, "num_envs": num_envs, "num_steps": chosen.ROLLOUT // num_envs}
    sections = {**chosen.SECTIONS, **sections_of(ppo)}
    return setting.config(chosen.SESSIONS, **sections)


def window_mean(rewards: Sequence[float], goal: Goal) -> float:
    """Mean reward per step of the last `window` updates; minus infinity before there are as
    many.
    """
    return (
        statistics.fmean(rewards[-goal.window :]) if len(rewards) >= goal.window else float("-inf")
    )


def train_until(update: Update, goal: Goal) -> list[float]:
    """The mean reward per step of each update, until the target is met or the budget spent."""
    rewards: list[float] = []
    while len(rewards) < goal.updates and window_mean(rewards, goal) < goal.target:
        rewards.append(update())
    return rewards


class Seeds:
    """Work of a child. The first call prepares; every later one trains the next seed and returns
    its rewards.
    """

    def __init__(
        self, prepare: Callable[[], tuple[Callable[[int], Update], dict[str, Any]]], goal: Goal
    ) -> None:
        self._prepare, self._goal, self._seeds = prepare, goal, iter(chosen.SEEDS)
        self._begin: Callable[[int], Update] | None = None

    def __call__(self) -> Any:
        if self._begin is None:
            self._begin, reported = self._prepare()
            return reported
        return train_until(self._begin(next(self._seeds)), self._goal)


def ours(config: Mapping[str, Any], goal: Sequence[Any]) -> Seeds:
    """For `Worker`: our PPO. Preparing is tracing and compiling, from no cache."""
    jax.config.update("jax_enable_compilation_cache", False)
    run, budget = make_config(config), Goal(*goal)
    env, params = load_world(run)
    algorithm = make_ppo(run, env, budget.updates, summarise=REWARD)

    def prepare() -> tuple[Callable[[int], Update], dict[str, Any]]:
        init = jax.jit(algorithm.init).lower(jax.random.key(0), params).compile()
        like = jax.eval_shape(algorithm.init, jax.random.key(0), params)
        step = jax.jit(
            lambda state, params: algorithm.update(state, params, None), donate_argnums=0
        )
        program = step.lower(like, params).compile()

        def begin(seed: int) -> Update:
            state = init(jax.random.key(seed), params)

            def update() -> float:
                nonlocal state
                state, metrics = program(state, params)
                return float(metrics["reward"])

            return update

        return begin, {}

    return Seeds(prepare, budget)


REWARD = Summary(
    start=lambda params: jnp.float32(0),
    collect=lambda seen: seen.reward,
    figures=lambda sums, steps: {"reward": sums / steps},
)


def stable_baselines(
    config: Mapping[str, Any], goal: Sequence[Any], path: str, threads: Sequence[int]
) -> Seeds:
    """For `Worker`: MaskablePPO under DummyVecEnv. Preparing is choosing the number of torch
    threads.
    """
    ppo = learning_of(make_config(config))
    envs = sb3.vector_env(path, "dummy", ppo.num_envs)

    def prepare() -> tuple[Callable[[int], Update], dict[str, Any]]:
        count, trial = sb3.choose_threads(envs, sb3.arguments(ppo), threads)
        return lambda seed: sb3.Learner(ppo, envs, seed), {"threads": count, "trial_seconds": trial}

    return Seeds(prepare, Goal(*goal))


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians over the seeds and, in the seeds' order, every seed's figures."""
    columns = {
        "seconds": [run.wall for run in runs],
        "cpu_seconds": [run.cpu for run in runs],
        "env_steps": [run.steps for run in runs],
    }
    result: dict[str, Any] = {"repeats": len(runs), "reached": sum(run.reached for run in runs)}
    for name, values in columns.items():
        result[name] = harness.rounded(statistics.median(values))
        result[f"{name}_range"] = [harness.rounded(min(values)), harness.rounded(max(values))]
        result[f"{name}_each"] = [harness.rounded(value) for value in values]
    return result | {"last_reward_each": [harness.rounded(run.last) for run in runs]}


def bootstrap(
    ours: Sequence[float], theirs: Sequence[float], level: float = LEVEL, draws: int = DRAWS
) -> tuple[float, float]:
    """Percentile interval of median(ours) / median(theirs), each side's seeds drawn with
    replacement.
    """
    generator = np.random.default_rng(0)

    def medians(values: Sequence[float]) -> np.ndarray:
        return np.median(generator.choice(np.asarray(values, float), (draws, len(values))), axis=1)

    low, high = np.quantile(medians(ours) / medians(theirs), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def compare(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], compiling: harness.Sample
) -> dict[str, Any]:
    """How many times sooner we are there (medians), and our environment steps over theirs with
    their interval.
    """
    interval = bootstrap(ours["env_steps_each"], theirs["env_steps_each"])

    def sooner(extra: harness.Sample) -> dict[str, float]:
        return {
            "wall": harness.rounded(theirs["seconds"] / (ours["seconds"] + extra.wall)),
            "cpu": harness.rounded(theirs["cpu_seconds"] / (ours["cpu_seconds"] + extra.cpu)),
        }

    return sooner(harness.Sample(0.0, 0.0)) | {
        "with_compile": sooner(compiling),
        "env_steps": harness.rounded(ours["env_steps"] / theirs["env_steps"]),
        "env_steps_interval": [harness.rounded(bound) for bound in interval],
        "overlaps_band": interval[0] <= BAND[1] and interval[1] >= BAND[0],
    }


def run(options: Options) -> dict[str, Any]:
    """`sides`: "ours/N" and "sb3/N" with N environments. `ratios`: by N, over SB3 with as many.
    `at_fastest`: the one of these with SB3's least median seconds, the bench's answer.
    `more_environments`: ours with `OWN_ENVS` over that side of SB3, to be read apart.
    """
    goal, counts = (
        (QUICK, chosen.NUM_ENVS[-1:]) if options.quick else (chosen.GOAL, chosen.NUM_ENVS)
    )
    seeds = len(chosen.SEEDS[:2] if options.quick else chosen.SEEDS)
    left_out: dict[str, str] = {}
    threads = [1] if options.quick else sorted({1, harness.cores()})
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tape.npz"
        env, params = load_world(config_of(counts[0]))
        save(make_tape(env.config, params), path)
        workers: dict[str, Worker] = {}
        prepared: dict[str, Reply] = {}

        def add(name: str, function: str, count: int, most: int | None = None, **more: Any) -> None:
            given = {"config": config_of(count).model_dump(mode="json"), "goal": list(goal), **more}
            variables = {} if most is None else {"NPROC": str(most)}
            workers[name] = stack.enter_context(
                Worker("time_to_reward", function, given, most, variables)
            )
            prepared[name] = workers[
                name
            ].run()  # before the next child starts: compiling and trials are timed

        for count in (*counts, OWN_ENVS):
            add(
                f"ours/{count}", "ours", count, 1 if count in counts else None
            )  # batches of 256: see `ppo_train`
        for count in counts:
            if importlib.util.find_spec("sb3_contrib") is None:
                left_out[f"sb3/{count}"] = sb3.MISSING
            else:
                add(
                    f"sb3/{count}",
                    "stable_baselines",
                    count,
                    threads[-1],
                    path=str(path),
                    threads=threads,
                )
        runs = interleave(workers, goal, seeds)
    sides = {name: summary(each) for name, each in runs.items()}
    compiling = {name: prepared[name].sample for name in sides if name.startswith("ours/")}
    for name, side in sides.items():
        side.update(prepared[name].answer)
        if name.startswith("ours/"):
            side["threads"] = 1 if int(name.removeprefix("ours/")) in counts else harness.cores()
        if name in compiling:
            side.update(
                compile_seconds=harness.rounded(compiling[name].wall),
                compile_cpu_seconds=harness.rounded(compiling[name].cpu),
            )
    ratios = {
        str(count): compare(
            sides[f"ours/{count}"], sides[f"sb3/{count}"], compiling[f"ours/{count}"]
        )
        for count in counts
        if f"sb3/{count}" in sides
    }
    result = {
        "config": _told(goal, seeds),
        "sides": sides,
        "ratios": ratios,
        "left_out": left_out,
        "differences": {"sb3": list(sb3.DIFFERENCES)},
    }
    if ratios:
        fastest = min(ratios, key=lambda count: sides[f"sb3/{count}"]["seconds"])
        more = f"ours/{OWN_ENVS}"
        result |= {
            "at_fastest": {"num_envs": int(fastest), **ratios[fastest]},
            "more_environments": {
                "num_envs": OWN_ENVS,
                **compare(sides[more], sides[f"sb3/{fastest}"], compiling[more]),
            },
        }
    return result


def interleave(workers: Mapping[str, Worker], goal: Goal, seeds: int) -> dict[str, list[Run]]:
    """Side -> runs, seed by seed; the order of turns alternates."""

    def run_of(reply: Reply) -> Run:
        last = window_mean(reply.answer, goal)
        return Run(last >= goal.target, len(reply.answer) * chosen.ROLLOUT, *reply.sample, last)

    replies = harness.take_turns({name: worker.run for name, worker in workers.items()}, seeds)
    return {name: [run_of(reply) for reply in each] for name, each in replies.items()}


def _told(goal: Goal, seeds: int) -> dict[str, Any]:
    return {
        "goal": goal._asdict(),
        "optimum": chosen.OPTIMUM,
        "seeds": seeds,
        "rollout": chosen.ROLLOUT,
        "sessions": chosen.SESSIONS,
        **chosen.SECTIONS,
        "ppo": chosen.PPO,
        "rule": "mean reward per step of the last `window` updates, raw, while exploring; a seed that misses the "
        "target counts as the whole budget",
        "interval": f"{LEVEL:.0%} bootstrap over seeds, {DRAWS} draws; band {BAND}",
    }
