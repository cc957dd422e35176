"""Many seeds in one program against the same number of runs one after the other.

`steady`: start-up and compilation excluded. N agents as one compiled program, against one agent's
    compiled program; N
runs in turn with it take N times as long as one, so they have the same steps per second. `fresh`:
everything included. A process starts, makes the market, compiles, trains and ends; N runs in turn
are N such processes. Those are measured a few times and multiplied, which the result says
(`measured_runs`, `scaled_to`). The runs in turn may load their programs from a persistent cache
that an earlier one has filled (`cached`, what `jaxtrade train` does) or must compile (`cold`); the
one program always compiles.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from jaxtrade.config import TrainConfig
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack

from . import harness, programs, setting
from .catalogue import Options
from .harness import Sample
from .worker import Worker

SEEDS = (1, 16, 64)
PPO = {"num_envs": 16, "num_steps": 128, "num_minibatches": 8, "num_epochs": 4, "hidden": (64, 64)}
UPDATES = 5  # 10,240 steps of each seed
QUICK_PPO = PPO | {"num_envs": 8, "num_steps": 16, "num_minibatches": 2, "hidden": (16,)}


class Agents(NamedTuple):
    """Some agents as one program. init: (keys, params) -> state; update: (state, params) -> (state,
    metrics), and it is compiled."""

    stack: Stack
    init: Callable[..., Any]
    update: Any
    params: Any


def agents_of(num_seeds: int, ppo: dict[str, Any], sessions: int) -> Agents:
    """`num_seeds` agents whose update is compiled."""
    world = setting.world(sessions, ppo=ppo)
    stack = Stack.of(num_seeds)
    agents = stack.wrap(programs.learner(world, 100))
    init = jax.jit(agents.init)
    like = jax.eval_shape(init, stack.keys(0), world.params)
    program = programs.compiled(
        lambda state, params: agents.update(state, params, None), like, world.params
    ).program
    return Agents(stack, init, program, world.params)


def steady_side(num_seeds: int, ppo: dict[str, Any], sessions: int) -> harness.Side:
    """One update of `num_seeds` agents as one program."""
    agents = agents_of(num_seeds, ppo, sessions)
    state = agents.init(agents.stack.keys(0), agents.params)
    return harness.side(
        lambda: agents.update(state, agents.params), num_seeds * ppo["num_envs"] * ppo["num_steps"]
    )


def steady(
    counts: Sequence[int], ppo: dict[str, Any], sessions: int, repeats: int
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]]]:
    """Sides `together@N` of each number of agents, and their ratios over one agent."""
    found = harness.compare(
        {f"together@{n}": steady_side(n, ppo, sessions) for n in counts}, repeats
    )
    ratios = {
        f"{n} together/in turn, start-up and compilation excluded": harness.ratio(
            found, f"together@{n}", "together@1"
        )
        for n in counts
        if n > 1
    }
    few, many = counts[1], counts[-1]
    return found, ratios | {
        f"agents per second, {many}/{few}": harness.ratio(
            found, f"together@{many}", f"together@{few}"
        )
    }


def trainer(
    num_seeds: int, ppo: dict[str, Any], sessions: int, updates: int, cache: str | None
) -> Callable[[], Any]:
    """In a child: a whole training run of `num_seeds` agents, as `jaxtrade train` does it but for
    its files.
    """
    jax.config.update("jax_enable_compilation_cache", cache is not None)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def work() -> dict[str, float]:
        world = setting.world(sessions, ppo=ppo)
        config = TrainConfig(
            total_timesteps=updates * ppo["num_envs"] * ppo["num_steps"],
            num_seeds=num_seeds,
            chunk_updates=updates,
        )
        result = train(
            programs.learner(world, updates),
            world.params,
            config=config,
            key=Stack.of(num_seeds).keys(0),
        )
        return {
            "compile_seconds": result.compile_seconds,
            "steps_per_second": result.steps_per_second,
        }

    return work


def fresh(
    num_seeds: int, ppo: dict[str, Any], sessions: int, updates: int, cache: str | None
) -> Sample:
    """A process from its start to its end, by this process's clock; CPU seconds of that process."""
    wall, before = time.perf_counter(), os.times()
    arguments = {
        "num_seeds": num_seeds,
        "ppo": ppo,
        "sessions": sessions,
        "updates": updates,
        "cache": cache,
    }
    with Worker("population", "trainer", arguments) as worker:
        worker.run()
    after = os.times()
    return Sample(
        time.perf_counter() - wall,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


def fresh_sides(
    counts: tuple[int, ...], ppo: dict[str, Any], sessions: int, updates: int, cache: str
) -> dict[str, harness.Side]:
    """Whole processes: N seeds in one, and one seed alone with and without the cache."""
    steps = updates * ppo["num_envs"] * ppo["num_steps"]

    def side(num_seeds: int, folder: str | None) -> harness.Side:
        return harness.Side(
            lambda: fresh(num_seeds, ppo, sessions, updates, folder), num_seeds * steps
        )

    return {f"together@{n}": side(n, None) for n in counts if n > 1} | {
        "one cold": side(1, None),
        "one cached": side(1, cache),
    }


def scaled(samples: list[Sample], runs: int) -> dict[str, Any]:
    """`runs` runs in turn, from the median of those measured."""
    one = Sample(*(statistics.median(values) for values in zip(*samples, strict=True)))
    return {
        "measured_runs": len(samples),
        "scaled_to": runs,
        "seconds": harness.rounded(one.wall * runs),
        "cpu_seconds": harness.rounded(one.cpu * runs),
    }


def run(options: Options) -> dict[str, Any]:
    counts, ppo, updates, sessions = (
        ((1, 4), QUICK_PPO, 2, 8) if options.quick else (SEEDS, PPO, UPDATES, setting.SESSIONS)
    )
    found, excluded = steady(counts, ppo, sessions, options.repeats)
    with tempfile.TemporaryDirectory() as cache:
        sides = fresh_sides(counts, ppo, sessions, updates, cache)
        sides[
            "one cached"
        ].run()  # fills the cache; nothing else of a fresh process could be warmed up
        samples = harness.take_turns(
            {name: each.run for name, each in sides.items()}, options.repeats
        )
    steps = updates * ppo["num_envs"] * ppo["num_steps"]
    many = [n for n in counts if n > 1]
    turns = {
        f"in turn {kind}@{n}": scaled(samples[f"one {kind}"], n)
        for n in many
        for kind in ("cold", "cached")
    }
    whole = {name: programs.durations(taken) for name, taken in samples.items()}
    included = {
        f"{n} together/in turn {kind}, all included": {
            clock: harness.rounded(turns[f"in turn {kind}@{n}"][key] / whole[f"together@{n}"][key])
            for clock, key in (("wall", "seconds"), ("cpu", "cpu_seconds"))
        }
        for n in many
        for kind in ("cold", "cached")
    }
    return {
        "config": {
            "seeds": list(counts),
            "ppo": ppo,
            "steps_of_each_seed": steps,
            "sessions": sessions,
            "repeats": options.repeats,
            "threads": harness.cores(),
        },
        "sides": {f"steady {name}": each for name, each in found.items()}
        | {
            f"fresh {name}": harness.summary(taken, sides[name].steps)
            for name, taken in samples.items()
        },
        "ratios": excluded | included,
        "fresh_seconds": whole,
        "in_turn": turns,
    }
