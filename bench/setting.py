"""The market, task and learner that every bench shares, so that their figures can be read together;
and what compiled programs of them say of themselves.

Synthetic NQ minute bars (seed 0), task `manage` in relative scaling (228 slots, 7 actions), default
account, costs, brackets and reward, episodes of one session that start anywhere in it.
"""

from __future__ import annotations

import collections
import functools
import math
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.env.summary import summarise
from jaxtrade.rl.packing import Packed, packing_of
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.training.chunk import chunk_program
from jaxtrade.types import Algorithm, PyTree, SessionSet

from .harness import rounded
from .learning import fixed_sections, sections_of

HOST_OPERATIONS = ("infeed", "outfeed", "send", "send-done", "recv", "recv-done")
SESSIONS = 78  # 107,000 bars, as many as three months have


class World(NamedTuple):
    """A market on device and what an environment needs of it; every session is a training
    session.
    """

    config: RunConfig
    env: TradingEnv
    params: EnvParams
    market: Market
    sessions: SessionSet


def config(sessions=SESSIONS, algorithm="ppo", **sections) -> RunConfig:
    """The shared configuration with some keys changed, e.g. `config(ppo={"num_envs": 1024})`; `ppo`
    holds all keys of the learner (`learning.sections_of`). Of another algorithm, what no section
    names has the package's defaults."""
    own = fixed_sections() | {
        "algorithm": algorithm,
        "data": {"market": "NQ", "source": "synthetic", "synthetic_sessions": sessions},
        "split": {"test_sessions": 0},
    }
    if algorithm != "ppo":
        del own["ppo"]
    learner = sections_of(sections.pop("ppo", {}))
    for name, values in (sections | learner).items():
        own[name] = own.get(name, {}) | values
    return make_config(own)


@functools.lru_cache(maxsize=4)
def _market(sessions):
    return load_market(config(sessions))


def world(sessions=SESSIONS, algorithm="ppo", **sections) -> World:
    """Environment and parameters of `config(...)` over all sessions of the shared market."""
    chosen, market = config(sessions, algorithm, **sections), _market(sessions)
    every = split_sessions(market, chosen.split)["train"]
    return World(chosen, TradingEnv(chosen.env), make_params(market, every, chosen), market, every)


class Compiled(NamedTuple):
    """A program, and the seconds that making it took: Python tracing and lowering to XLA's input,
    then XLA itself (or the persistent cache)."""

    program: Any
    lower_seconds: float
    compile_seconds: float


def compiled(function, *args) -> Compiled:
    """`function` (jitted already or not) compiled for arguments of these shapes."""
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    start = time.perf_counter()
    lowered = jitted.lower(*args)
    middle = time.perf_counter()
    program = lowered.compile()
    return Compiled(program, middle - start, time.perf_counter() - middle)


def learner(world: World, total_updates, platform=None) -> Algorithm:
    """PPO as `jaxtrade train` makes it, with the trading figures in its metrics. platform: where it
    will run.
    """
    return make_ppo(world.config, world.env, total_updates, summarise=summarise, platform=platform)


def update_of(algorithm: Algorithm):
    """One update, jitted; it takes the state over as the training loop's does."""
    return jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)


def train_chunk(algorithm: Algorithm, state, params, updates) -> Compiled:
    """The program that `training.loop.train` runs, not a copy of it: `updates` updates, the state
    donated.
    """
    return compiled(chunk_program(algorithm, updates), state, params)


def stepping(env: TradingEnv, num_envs, num_steps) -> Callable[[PyTree, jax.Array], Any]:
    """(params, key) -> (sum of all that was seen, sum of final equities): `num_steps` fused steps
    of `num_envs` environments under random legal actions; every slot of every observation enters
    the sum."""

    def run(params, key):
        states, refs = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)

        packing = packing_of((states, refs))

        def body(carry, key):
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


def host_transfers(program):
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


def temporary_bytes(program, steps):
    """Temporaries of a program of training, in all and for each of its environment steps."""
    bytes_ = program.memory_analysis().temp_size_in_bytes
    return {"temporary_bytes": bytes_, "temporary_bytes_per_step": rounded(bytes_ / steps)}


def tree_bytes(tree):
    """Bytes of a pytree's arrays, or of their shapes."""
    return sum(_bytes(leaf) for leaf in jax.tree.leaves(tree))


def stored(algorithm: Algorithm, state, params, num_steps):
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


def _stacked(equation):
    """What a scan stacks over its steps: results with an axis more than the body's own. Nothing of
    other equations.
    """
    if equation.primitive.name != "scan":
        return []
    own = equation.params["jaxpr"].jaxpr.outvars
    return [
        out for out, one in zip(equation.outvars, own, strict=True) if out.aval.ndim > one.aval.ndim
    ]


def _bytes(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        return math.prod(leaf.shape) * jax.random.key_data(jax.random.key(0)).nbytes
    return math.prod(leaf.shape) * leaf.dtype.itemsize
