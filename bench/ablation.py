"""What each optimisation is worth: the environment's loop and one PPO update as shipped, and with
one thing taken back.

Every side runs in a process of its own, so that a compiler option may differ. `env`: 1,024
environments, random legal actions, observations written to memory and read by a matrix product.
`ppo`: one update of 16 environments x 1,024 steps, 64x64 network, 4 epochs, minibatches of 256.
References against stored observations are in `rollout`, the cache in `compile`, many seeds in
`population`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.env.execution import select
from jaxtrade.env.state import EndReason
from jaxtrade.storage.programs import FUSION, OFF

from . import harness, programs, setting, stepping
from .catalogue import Options
from .worker import Worker

PPO = {
    "num_envs": 16,
    "num_steps": 1_024,
    "num_minibatches": 64,
    "hidden": (64, 64),
    "num_epochs": 4,
}
SHIPPED, UNFUSED = "as shipped", "without multi-output fusion"
# kind -> variant -> what it takes back
VARIANTS = {
    "env": {
        SHIPPED: "nothing",
        UNFUSED: "XLA's CPU compiler computes what leads to a leaf of the state again for every leaf",
        "observed twice": "the observation before an auto-reset is built too, in every step, as gymnax does",
        "reset from keys": "every environment is reset from a new key in every step, and the result is used where an "
        "episode ended, as gymnax does",
    },
    "ppo": {
        SHIPPED: "nothing",
        UNFUSED: "as above",
        "normalised observations": "nothing is taken back: what the observation normaliser costs",
    },
}


def env(variant: str, sessions: int, num_envs: int, num_steps: int) -> Callable[[], float]:
    """For `Worker`: `num_steps` steps per call."""
    world = setting.world(sessions)
    trading, params = world.env, world.params
    observe = jax.vmap(trading.observe, (0, None))
    choose = jax.vmap(stepping.choose)

    def step(carry: stepping.Carry, _: None) -> tuple[stepping.Carry, jax.Array]:
        states, refs, key = carry
        seen = stepping.look(trading, refs, params, stepping.WRITTEN)
        key, key_act, key_reset = jax.random.split(key, 3)
        actions = choose(refs.mask, jax.random.uniform(key_act, (num_envs,)))
        if variant == "reset from keys":
            going_on, outcome = jax.vmap(trading.advance, (0, 0, None))(states, actions, params)
            fresh, _ = jax.vmap(trading.reset, (0, None))(
                jax.random.split(key_reset, num_envs), params
            )
            states = jax.vmap(select)(outcome.info.end != EndReason.NONE, fresh, going_on)
            refs = jax.vmap(trading.ref, (0, None))(states, params)
        else:
            states, refs, outcome = jax.vmap(trading.step, (None, 0, 0, None))(
                key_reset, states, actions, params
            )
        if variant == "observed twice":
            seen += jnp.sum(jax.lax.optimization_barrier(observe(outcome.final_ref, params)))
        return (states, refs, key), seen + jnp.sum(outcome.reward)

    def run(carry: stepping.Carry) -> tuple[stepping.Carry, jax.Array]:
        carry, sums = jax.lax.scan(step, carry, length=num_steps)
        return carry, jnp.sum(sums)

    carry = jax.jit(stepping.started, static_argnums=(0, 2))(trading, params, num_envs)
    program = programs.compiled(run, carry).program
    return lambda: program(carry)[1].item()


def ppo(variant: str, sessions: int, settings: dict[str, Any]) -> Callable[[], float]:
    """For `Worker`: one update per call, always from the same state."""
    normalised = variant == "normalised observations"
    world = setting.world(sessions, ppo=settings | {"normalise_observations": normalised})
    algorithm = programs.learner(world, 100)
    state = jax.jit(algorithm.init)(jax.random.key(0), world.params)
    program = programs.compiled(
        lambda s, params: algorithm.update(s, params, None), state, world.params
    ).program

    def work() -> float:
        new, metrics = jax.block_until_ready(program(state, world.params))
        del new
        return metrics["approx_kl"].item()

    return work


def unfused() -> dict[str, str]:
    """Variables of a process that compiles by XLA's own defaults; other flags of the user stay."""
    return {OFF: "1", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(FUSION, "").strip()}


def run(options: Options) -> dict[str, Any]:
    sessions = 4 if options.quick else setting.SESSIONS
    num_envs, num_steps = (256, 32) if options.quick else (1_024, 512)
    settings = PPO | ({"num_steps": 64, "num_minibatches": 4} if options.quick else {})
    arguments = {
        "env": ({"num_envs": num_envs, "num_steps": num_steps}, num_envs * num_steps),
        "ppo": ({"settings": settings}, settings["num_envs"] * settings["num_steps"]),
    }
    results: dict[str, dict[str, Any]] = {}
    for kind, variants in VARIANTS.items():
        own, steps = arguments[kind]
        with ExitStack() as stack:
            sides = {}
            for variant in variants:
                worker = stack.enter_context(
                    Worker(
                        "ablation",
                        kind,
                        own | {"variant": variant, "sessions": sessions},
                        variables=unfused() if variant == UNFUSED else {},
                    )
                )
                sides[f"{kind}: {variant}"] = harness.Side(
                    lambda worker=worker: worker.run().sample, steps
                )
            results |= harness.compare(sides, options.repeats)
    return {
        "config": {
            "sessions": sessions,
            "env": arguments["env"][0],
            "ppo": settings,
            "repeats": options.repeats,
            "threads": harness.cores(),
            "variants": VARIANTS,
        },
        "sides": results,
        "ratios": {
            f"{kind}: {SHIPPED} / {variant}": harness.ratio(
                results, f"{kind}: {SHIPPED}", f"{kind}: {variant}"
            )
            for kind, variants in VARIANTS.items()
            for variant in variants
            if variant != SHIPPED
        },
    }
