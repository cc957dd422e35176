"""What compiled programs say of themselves, and the pieces of ours that several benches measure."""

from __future__ import annotations

import collections
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.summary import summarise
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo.rollout import StepExtras
from jaxtrade.rl.rollout import unroll
from jaxtrade.training.chunk import chunk_program
from jaxtrade.types import Algorithm, PyTree, Transition

from .harness import Sample, rounded
from .setting import World

HOST_OPERATIONS = ("infeed", "outfeed", "send", "send-done", "recv", "recv-done")


class Compiled(NamedTuple):
    """A program, and the seconds that making it took: Python tracing and lowering to XLA's input, then XLA itself (or
    the persistent cache)."""

    program: Any
    lower_seconds: float
    compile_seconds: float


def compiled(function: Callable[..., Any], *args: Any, donate: Sequence[int] = ()) -> Compiled:
    """`function` (jitted already or not) compiled for arguments of these shapes."""
    jitted = function if hasattr(function, "lower") else jax.jit(function, donate_argnums=tuple(donate))
    start = time.perf_counter()
    lowered = jitted.lower(*args)  # pyright: ignore[reportFunctionMemberAccess]
    middle = time.perf_counter()
    program = lowered.compile()
    return Compiled(program, middle - start, time.perf_counter() - middle)


def learner(world: World, total_updates: int) -> Algorithm:
    """PPO as `jaxtrade train` makes it, with the trading figures in its metrics."""
    return make_ppo(world.config, world.env, total_updates, summarise=summarise)


def train_chunk(algorithm: Algorithm, state: PyTree, params: PyTree, updates: int) -> Compiled:
    """The program that `training.loop.train` runs, not a copy of it: `updates` updates, the state donated."""
    return compiled(chunk_program(algorithm, updates), state, params)


def acting(algorithm: Algorithm, num_steps: int, collect: Callable[[Transition], PyTree] | None = None
           ) -> Callable[[PyTree, PyTree, jax.Array], Any]:
    """(train state, params, key) -> what `rl.rollout.unroll` gives with the learner's own `act`, and `collect`."""

    def run(state: PyTree, params: PyTree, key: jax.Array) -> Any:
        policy = algorithm.policy(state)

        def act(carry: PyTree, ref: PyTree, key: jax.Array) -> tuple[Any, ...]:
            carry, action, extras = algorithm.act(policy, carry, ref, params, key, True)
            return carry, action, StepExtras(extras.log_prob, extras.value, None)

        return unroll(algorithm.env, act, state.env_state, state.ref, state.first, state.carry, params, key, num_steps,
                      collect=collect)

    return run


def stepping(env: TradingEnv, num_envs: int, num_steps: int) -> Callable[[PyTree, jax.Array], Any]:
    """(params, key) -> (sum of all that was seen, sum of final equities): `num_steps` fused steps of `num_envs`
    environments under random legal actions; every slot of every observation enters the sum."""

    def run(params: PyTree, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        states, refs = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)

        def body(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            states, refs = carry
            seen = jnp.sum(jax.vmap(env.observe, (0, None))(refs, params))
            chances = jax.random.uniform(key, (num_envs, env.num_actions))
            actions = jnp.argmax(jnp.where(refs.mask, chances, -1.0), axis=1).astype(jnp.int32)
            states, refs, outcome = jax.vmap(env.step, (None, 0, 0, None))(key, states, actions, params)
            return (states, refs), seen + jnp.sum(outcome.reward)

        (states, _), sums = jax.lax.scan(body, (states, refs), jax.random.split(key, num_steps))
        return jnp.sum(sums), jnp.sum(states.account.equity)

    return run


def host_transfers(program: Any) -> dict[str, int]:
    """Operation -> how often the optimised module of a compiled program has it, of those that reach the host: Python
    callbacks (print, io_callback, pure_callback), infeed, outfeed, send, recv. Empty where there is none."""
    text = program.as_text()
    found = re.findall(rf"\s({'|'.join(HOST_OPERATIONS)})\(", text)
    found += [f"callback {name}" for name in re.findall(r'custom_call_target="([^"]*callback[^"]*)"', text)]
    return dict(collections.Counter(found))


def temporaries(program: Any) -> int:
    """Bytes that a compiled program needs beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def xla_flops(program: Any) -> float:
    """Floating-point operations of a compiled program, as XLA's cost analysis counts them (the body of a loop once)."""
    return float(program.cost_analysis()["flops"])


def tree_bytes(tree: PyTree) -> int:
    """Bytes of a pytree's arrays, or of their shapes."""
    return sum(_bytes(leaf) for leaf in jax.tree.leaves(tree))


def matmul_flops(function: Callable[..., Any], *args: Any) -> int:
    """Floating-point operations of all matrix products that `function` traces to, two per multiplication and addition.
    Loops count by their length, a loop whose length is not known when tracing once.
    """
    return _matmul_flops(jax.make_jaxpr(function)(*args).jaxpr)


def _matmul_flops(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        inner_programs = [getattr(leaf, "jaxpr", leaf) for leaf in jax.tree.leaves(list(equation.params.values()))]
        within = sum(_matmul_flops(each) for each in inner_programs if hasattr(each, "eqns"))
        total += within * equation.params.get("length", 1)
    return total


def stored(algorithm: Algorithm, state: PyTree, params: PyTree, num_steps: int) -> dict[str, int]:
    """Leaf of `Transition` -> bytes per environment step, of those that an update of `learner`'s algorithm still reads
    once dead code is removed: what the rollout's loop has to write. XLA may pad, or keep copies in another layout; see
    `temporaries`. num_steps: of the rollout."""
    _, seen = jax.eval_shape(acting(algorithm, num_steps, summarise.collect), state, params, jax.random.key(0))
    leaves = jax.tree_util.tree_flatten_with_path(seen)[0]
    shapes = [(leaf.shape, leaf.dtype) for _, leaf in leaves]
    jaxpr = jax.make_jaxpr(lambda s, p: algorithm.update(s, p, ()))(state, params).jaxpr
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    for equation in jaxpr.eqns:
        stacked = _stacked(equation)
        if [(v.aval.shape, v.aval.dtype) for v in stacked] == shapes:
            kept = {v for other in live.eqns for v in _stacked(other)}
            steps = algorithm.steps_per_update
            return {jax.tree_util.keystr(path).lstrip(".").removeprefix("extras."): _bytes(leaf) // steps
                    for (path, leaf), variable in zip(leaves, stacked, strict=True) if variable in kept}
    raise ValueError("no loop of the update gives transitions of the shapes that unroll gives; the rollout has changed "
                     "and this count with it")


def _stacked(equation: Any) -> list[Any]:
    """What a scan stacks over its steps; nothing of other equations."""
    return equation.outvars[equation.params["num_carry"]:] if equation.primitive.name == "scan" else []


def _bytes(leaf: Any) -> int:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return math.prod(leaf.shape) * jax.random.key_data(jax.random.key(0)).nbytes
    return math.prod(leaf.shape) * leaf.dtype.itemsize


def durations(samples: Sequence[Sample]) -> dict[str, Any]:
    """Medians by both clocks in seconds, and the least and greatest of the repeats."""
    by_clock = {"seconds": [s.wall for s in samples], "cpu_seconds": [s.cpu for s in samples]}
    result: dict[str, Any] = {"repeats": len(samples)}
    for name, values in by_clock.items():
        result[name] = rounded(statistics.median(values))
        result[f"{name}_range"] = [rounded(min(values)), rounded(max(values))]
    return result
