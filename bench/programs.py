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
from jaxtrade.rl.packing import Packed, packing_of
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.ppo.rollout import StepExtras
from jaxtrade.rl.rollout import unroll
from jaxtrade.training.chunk import chunk_program
from jaxtrade.types import Algorithm, PyTree

from .harness import Sample, rounded
from .setting import World

HOST_OPERATIONS = ("infeed", "outfeed", "send", "send-done", "recv", "recv-done")


class Compiled(NamedTuple):
    """A program, and the seconds that making it took: Python tracing and lowering to XLA's input,
    then XLA itself (or the persistent cache)."""

    program: Any
    lower_seconds: float
    compile_seconds: float


def compiled(function: Callable[..., Any], *args: Any, donate: Sequence[int] = ()) -> Compiled:
    """`function` (jitted already or not) compiled for arguments of these shapes."""
    jitted = (
        function if hasattr(function, "lower") else jax.jit(function, donate_argnums=tuple(donate))
    )
    start = time.perf_counter()
    lowered = jitted.lower(*args)  # pyright: ignore[reportFunctionMemberAccess]
    middle = time.perf_counter()
    program = lowered.compile()
    return Compiled(program, middle - start, time.perf_counter() - middle)


def learner(world: World, total_updates: int, platform: str | None = None) -> Algorithm:
    """PPO as `jaxtrade train` makes it, with the trading figures in its metrics. platform: where it
    will run.
    """
    return make_ppo(world.config, world.env, total_updates, summarise=summarise, platform=platform)


def train_chunk(algorithm: Algorithm, state: PyTree, params: PyTree, updates: int) -> Compiled:
    """The program that `training.loop.train` runs, not a copy of it: `updates` updates, the state
    donated.
    """
    return compiled(chunk_program(algorithm, updates), state, params)


def acting(algorithm: Algorithm, num_steps: int) -> Callable[[PyTree, PyTree, jax.Array], Any]:
    """(train state, params, key) -> what `rl.rollout.unroll` gives with the learner's own `act`,
    without `info`.
    """

    def run(state: PyTree, params: PyTree, key: jax.Array) -> Any:
        policy = algorithm.policy(state)

        def act(carry: PyTree, ref: PyTree, key: jax.Array) -> tuple[Any, ...]:
            carry, action, extras = algorithm.act(policy, carry, ref, params, key, True)
            return carry, action, StepExtras(extras.log_prob, extras.value, None)

        return unroll(
            algorithm.env,
            act,
            state.env_state,
            state.ref,
            state.first,
            state.carry,
            params,
            key,
            num_steps,
            add=lambda tally, seen: tally,
        )

    return run


def stepping(env: TradingEnv, num_envs: int, num_steps: int) -> Callable[[PyTree, jax.Array], Any]:
    """(params, key) -> (sum of all that was seen, sum of final equities): `num_steps` fused steps
    of `num_envs` environments under random legal actions; every slot of every observation enters
    the sum."""

    def run(params: PyTree, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        states, refs = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)

        packing = packing_of((states, refs))

        def body(carry: PyTree, key: jax.Array) -> tuple[PyTree, jax.Array]:
            states, refs = packing.unpack(carry)
            seen = jnp.sum(jax.vmap(env.observe, (0, None))(refs, params), axis=1)
            chances = jax.random.uniform(key, (num_envs, env.num_actions))
            actions = jnp.argmax(jnp.where(refs.mask, chances, -1.0), axis=1).astype(jnp.int32)
            states, refs, outcome = jax.vmap(env.step, (None, 0, 0, None))(
                key, states, actions, params
            )
            words, rest = jax.lax.optimization_barrier(packing.split((states, refs)))
            return Packed(jnp.stack(words), rest), jnp.sum(seen + outcome.reward)

        last, sums = jax.lax.scan(
            body, packing.pack((states, refs)), jax.random.split(key, num_steps)
        )
        states, _ = packing.unpack(last)
        return jnp.sum(sums), jnp.sum(states.account.equity)

    return run


def host_transfers(program: Any) -> dict[str, int]:
    """Operation -> how often the optimised module of a compiled program has it, of those that reach
    the host: Python callbacks (print, io_callback, pure_callback), infeed, outfeed, send, recv.
    Empty where there is none."""
    text = program.as_text()
    found = re.findall(rf"\s({'|'.join(HOST_OPERATIONS)})\(", text)
    found += [
        f"callback {name}"
        for name in re.findall(r'custom_call_target="([^"]*callback[^"]*)"', text)
    ]
    return dict(collections.Counter(found))


def temporaries(program: Any) -> int:
    """Bytes that a compiled program needs beside its arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def xla_flops(program: Any) -> float:
    """Floating-point operations of a compiled program, as XLA's cost analysis counts them (the body
    of a loop once).
    """
    return float(program.cost_analysis()["flops"])


def tree_bytes(tree: PyTree) -> int:
    """Bytes of a pytree's arrays, or of their shapes."""
    return sum(_bytes(leaf) for leaf in jax.tree.leaves(tree))


def matmul_flops(function: Callable[..., Any], *args: Any) -> int:
    """Floating-point operations of all matrix products that `function` traces to, two per
    multiplication and addition. Loops count by their length, a loop whose length is not known when
    tracing once.
    """
    return _matmul_flops(jax.make_jaxpr(function)(*args).jaxpr)


def _matmul_flops(jaxpr: Any) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        inner_programs = [
            getattr(leaf, "jaxpr", leaf) for leaf in jax.tree.leaves(list(equation.params.values()))
        ]
        within = sum(_matmul_flops(each) for each in inner_programs if hasattr(each, "eqns"))
        total += within * equation.params.get("length", 1)
    return total


def stored(algorithm: Algorithm, state: PyTree, params: PyTree, num_steps: int) -> dict[str, int]:
    """What the rollout's loop of an update writes -> bytes per environment step: `words`, the
    packed transitions, and
    `memory`, that of a recurrent policy. Only arrays count that the update still reads once dead code is removed. XLA
    may pad, or keep copies in another layout; see `temporaries`. num_steps: of the rollout."""
    jaxpr = jax.make_jaxpr(lambda s, p: algorithm.update(s, p, ()))(state, params).jaxpr
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    num_envs = algorithm.steps_per_update // num_steps
    for equation in live.eqns:
        arrays = [v.aval for v in _stacked(equation)]
        words = [
            x
            for x in arrays
            if x.dtype == jnp.uint32 and x.shape[:1] + x.shape[2:] == (num_steps, num_envs)
        ]
        if len(words) == 1:
            found = {
                "words" if x is words[0] else "memory": _bytes(x) // algorithm.steps_per_update
                for x in arrays
            }
            return found
    raise ValueError(
        "no loop of the update stores packed transitions, uint32[steps, words, environments]; the rollout "
        "has changed and this count with it"
    )


def _stacked(equation: Any) -> list[Any]:
    """What a scan stacks over its steps: results with an axis more than the body's own. Nothing of
    other equations.
    """
    if equation.primitive.name != "scan":
        return []
    own = equation.params["jaxpr"].jaxpr.outvars
    return [
        out for out, one in zip(equation.outvars, own, strict=True) if out.aval.ndim > one.aval.ndim
    ]


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
