"""One small world behind every interface: random walks whose episodes end in every way."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.reward_presets import of_one_symbol
from jaxtrade.env.state import EndReason
from tests.env import worlds

ENV = TradingEnv(EnvConfig(window=4))
NUM_ENVS, STEPS, SEED = 8, 500, 11
ENDS = (EndReason.BUST, EndReason.SESSION_END, EndReason.STEP_LIMIT, EndReason.END_OF_DATA)


def make_params():
    """Eight sessions of 110 bars, the fourth cut short; a drawdown of $300, a limit of 60 steps,
    every reward term.
    """
    bars = worlds.random_bars(3, 8 * 110)
    sessions = worlds.even_sessions(8, 110, warm=20)
    sessions[3] = sessions[3]._replace(complete=False)
    market, account = worlds.make_market(bars, sessions), worlds.rules(drawdown=300_000)
    params = worlds.make_params(market, account=account, max_steps=60)
    return params.replace(
        reward_weights={name: jnp.float32(0.1 * i) for i, name in enumerate(of_one_symbol(), 1)}
    )


PARAMS = make_params()


class Trajectory(NamedTuple):
    """[STEPS, NUM_ENVS, ...] NumPy: what an action was chosen on, the action, and what came of
    it.
    """

    observation: Any
    mask: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    end: Any
    equity: Any
    illegal: Any
    final_observation: Any


@jax.jit
def _native(params):
    state, ref = jax.vmap(lambda seed: ENV.reset(jax.random.key(seed), params))(
        SEED + jnp.arange(NUM_ENVS)
    )
    uniform = jax.random.uniform(jax.random.key(5), (STEPS, NUM_ENVS))

    def one(state, ref, u):
        # Now and then an action that the mask forbids: every interface counts it.
        action = jnp.where(u > 0.97, jnp.int32(u * 1e4) % ENV.num_actions, worlds.pick(ref.mask, u))
        next_state, next_ref, outcome = ENV.step(jax.random.key(0), state, action, params)
        info = outcome.info
        return (next_state, next_ref), Trajectory(
            ENV.observe(ref, params),
            ref.mask,
            action,
            outcome.reward,
            outcome.terminated,
            outcome.truncated,
            info.end,
            info.equity,
            info.illegal,
            ENV.observe(outcome.final_ref, params),
        )

    return jax.lax.scan(lambda carry, u: jax.vmap(one)(*carry, u), (state, ref), uniform)[1]


def native():
    """The trajectory of `TradingEnv.step` itself."""
    return jax.tree.map(np.asarray, _native(PARAMS))


def assert_equal_bits(ours, theirs, name):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, name
    assert ours.astype(theirs.dtype).tobytes() == theirs.tobytes(), f"{name} differs"
