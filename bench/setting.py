"""The market, task and learner that every bench shares, so that their figures can be read together.

Also what compiled programs of them say of themselves.

Synthetic NQ minute bars (seed 0), task `manage` in relative scaling (228 slots, 7 actions), default
account, costs, brackets and reward, episodes of one session that start anywhere in it.
"""

import functools
import re
from collections import Counter, namedtuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from jaxtrade.config import make_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.monitor import summarise
from jaxtrade.env.params import make_params
from jaxtrade.rl.packing import Packed, packing_of
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.storage.sizes import tree_bytes
from jaxtrade.training.loop import chunk_program

from .learning import fixed_sections, sections_of

HOST_OPERATIONS = ("infeed", "outfeed", "send", "send-done", "recv", "recv-done")
SESSIONS = 78  # 107,000 bars, as many as three months have


# A market on device and what an environment needs of it; every session is a training session.
World = namedtuple("World", "config env params market sessions")


def config(sessions=SESSIONS, algorithm="ppo", **sections):
    """Return the shared configuration with some keys changed.

    E.g. `config(ppo={"num_envs": 1024})`; `ppo` holds all keys of the learner
    (`learning.sections_of`). Of another algorithm, what no section names has the package's
    defaults.
    """
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


def world(sessions=SESSIONS, algorithm="ppo", **sections):
    """Return the world of `config(...)`."""
    return world_of(config(sessions, algorithm, **sections))


def world_of(chosen):
    """Environment and parameters over all sessions of the shared market."""
    market = _market(chosen.data.synthetic_sessions)
    every = split_sessions(market, chosen.split)["train"]
    return World(chosen, TradingEnv(chosen.env), make_params(market, every, chosen), market, every)


def learner(world, total_updates):
    """PPO as `jaxtrade train` makes it, with the trading figures in its metrics."""
    return make_ppo(world.config, world.env, total_updates, summarise=summarise)


def update_of(algorithm):
    """One update, jitted; it takes the state over as the training loop's does."""
    return jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)


class Update:
    """One compiled update, with a state of its own.

    A call goes on from the state that the last one left and returns all that it computes.
    """

    def __init__(self, algorithm, params):
        self.steps, self.params = algorithm.info.steps_per_update, params
        start = jax.jit(algorithm.init)(jax.random.key(0), params)
        self.state = jax.tree.map(jnp.copy, start)  # donated: no two leaves may share an array
        self.program = update_of(algorithm).lower(self.state, params).compile()

    def __call__(self):
        self.state, metrics = self.program(self.state, self.params)
        return self.state, metrics


def train_chunk(algorithm, state, params, updates):
    """Return the program that `training.loop.train` runs, not a copy of it, traced and lowered.

    It is `updates` updates, the state donated.
    """
    return chunk_program(algorithm, updates).lower(state, params)


def choose(mask, chance):
    """Choose a legal action, all equally likely: int32[].

    mask: bool[A]. chance: float32[] in [0, 1); HOLD where it is 1 or more.

    Written out action by action: a prefix sum over seven booleans would cost as much as the step.
    """
    legal = [mask[i].astype(jnp.int32) for i in range(mask.shape[0])]
    wanted = (chance * sum(legal)).astype(jnp.int32)
    action, before = jnp.int32(0), jnp.int32(0)
    for i, is_legal in enumerate(legal):
        action = jnp.where((is_legal == 1) & (before == wanted), i, action)
        before += is_legal
    return action


def stepping(env, num_envs, num_steps):
    """Return (params, key) -> (sum of all that was seen, sum of final equities).

    It takes `num_steps` fused steps of `num_envs` environments under random legal actions; every
    slot of every observation enters the sum.
    """

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
    """Count the operations of a compiled program that reach the host: operation -> how often.

    They are counted in the optimised module: Python callbacks (print, io_callback, pure_callback),
    infeed, outfeed, send, recv. Empty where there is none.
    """
    text = program.as_text()
    found = re.findall(rf"\s({'|'.join(HOST_OPERATIONS)})\(", text)
    called = re.findall(r'custom_call_target="([^"]*callback[^"]*)"', text)
    return dict(Counter([*found, *(f"callback {name}" for name in called)]))


def temporary_bytes(program, steps):
    """Temporaries of a program of training, in all and for each of its environment steps."""
    bytes_ = program.memory_analysis().temp_size_in_bytes
    return {"temporary_bytes": bytes_, "temporary_bytes_per_step": bytes_ / steps}


def stored(algorithm, state, params, num_steps):
    """Return what the rollout's loop of an update writes -> bytes per environment step.

    `words`: the packed transitions. `memory`: that of a recurrent policy. Only arrays count that
    the update still reads once dead code is removed. XLA may pad, or keep copies in another layout;
    see `temporaries`. num_steps: of the rollout.
    """
    jaxpr = jax.make_jaxpr(lambda s, p: algorithm.update(s, p, ()))(state, params).jaxpr
    live, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    steps = algorithm.info.steps_per_update
    loops = [each for each in live.eqns if each.primitive.name == "scan"]
    for loop in loops:
        own = loop.params["jaxpr"].jaxpr.outvars
        # what it stacks over its steps: results with an axis more than the body's own
        stacked = [
            out.aval
            for out, one in zip(loop.outvars, own, strict=True)
            if out.aval.ndim > one.aval.ndim
        ]
        shape = num_steps, steps // num_steps
        words = [x for x in stacked if x.dtype == jnp.uint32 and x.shape[::2] == shape]
        if len(words) == 1:
            return {"words" if x is words[0] else "memory": tree_bytes(x) // steps for x in stacked}
    raise ValueError(
        "no loop of the update stores packed transitions, uint32[steps, words, environments]; the rollout "
        "has changed and this count with it"
    )
