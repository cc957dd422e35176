"""`step` is transition, ends, session jump and reset fused; batching and compiling change nothing;
nothing retraces.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason
from tests.env.worlds import (
    contract,
    i32,
    leaves_differ,
    make_params,
    rules,
    run_random,
    walk_market,
)

ENVS, STEPS = 32, 300
CONFIG = EnvConfig(quantity=2)
KEY = jax.random.key(0)


def make(seed=3, scaling="relative", **kwargs):
    limits = rules(drawdown=1_000_000, daily_loss=700_000, target=1_200_000, floor_cap=100_000)
    market = walk_market(seed, step=8, scaling=scaling)
    cut = market.sessions.complete.at[5].set(False)
    market = market.replace(sessions=market.sessions.replace(complete=cut))
    return make_params(
        market, account=limits, **({"episode_sessions": 3, "max_steps": 130} | kwargs)
    )


@functools.cache
def sample():
    env, params = TradingEnv(CONFIG), make()
    return env, params, run_random(env, params, 4, ENVS, STEPS)


def flat_rows(tree, rows):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[rows], tree)


def end_rows(per_end=12):
    """Steps of every kind of end that the sample holds, and as many without one."""
    end = np.asarray(sample()[2].outcome.info.end).reshape(-1)
    return np.concatenate([np.flatnonzero(end == reason)[:per_end] for reason in EndReason])


@pytest.mark.slow
def test_vmap_equals_single():
    env, params, trace = sample()
    rows = end_rows()
    state, action = flat_rows(trace.state, rows), flat_rows(trace.action, rows)
    compiled = jax.jit(jax.vmap(env.step, (None, 0, 0, None)))(KEY, state, action, params)
    single = jax.jit(env.step)
    one_by_one = [
        single(KEY, flat_rows(trace.state, row), flat_rows(trace.action, row), params)
        for row in rows
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)
    assert leaves_differ(stacked, compiled) == []


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["relative", "seed"])
def test_an_observation_has_the_same_bits_wherever_it_is_made(scaling):
    """In a rollout over environments, again in a minibatch in another order, and one at a time."""
    env, params = TradingEnv(CONFIG.model_copy(update={"scaling": scaling})), make(scaling=scaling)
    rows = np.random.default_rng(0).permutation(ENVS * STEPS)[:96]
    ref = flat_rows(sample()[2].ref, rows)
    many = jax.jit(jax.vmap(env.observe, (0, None)))
    at_once = np.asarray(many(ref, params))
    half = np.asarray(many(flat_rows(sample()[2].ref, rows[48:]), params))
    single = jax.jit(env.observe)
    one = np.stack(
        [np.asarray(single(jax.tree.map(lambda x, k=k: x[k], ref), params)) for k in range(96)]
    )
    assert at_once.shape == (96, 228)
    assert np.isfinite(at_once).all()
    assert at_once[48:].tobytes() == half.tobytes()
    assert one.tobytes() == at_once.tobytes()


def test_one_trace_serves_every_market_account_cost_and_split():
    """Everything a user varies between runs is traced data: after the first call nothing compiles
    again.
    """
    env = TradingEnv(CONFIG)
    traces = []

    def counted(function):
        @functools.partial(jax.jit, static_argnums=0)
        def call(*given):
            traces.append(function.__name__)
            return function(*given)

        return call

    step, reset, observe = map(counted, (TradingEnv.step, TradingEnv.reset, TradingEnv.observe))
    variants = [
        make(),
        make(seed=9),
        make(ids=[2, 4], episode_sessions=1, max_steps=0, brackets=(2_000, 2, 500)),
        make_params(walk_market(1), costs=contract(commission=0, slippage=3)),
    ]
    for n, params in enumerate(variants):
        same = TradingEnv(
            EnvConfig(quantity=2)
        )  # equal and hashable: another instance is the same static argument
        state, ref = reset(same, jax.random.key(n), params)
        for action in (0, 1, 0, 6):
            state, ref, _ = step(same, KEY, state, i32(action), params)
            observe(same, ref, params)
    assert sorted(traces) == ["observe", "reset", "step"]
    assert (TradingEnv(CONFIG), hash(TradingEnv(CONFIG))) == (env, hash(env))


def test_the_program_has_no_silent_promotion_and_no_double():
    """Traced with strict rank promotion; every value inside is 32 bits wide or less."""
    env, params = TradingEnv(CONFIG), make()
    state, _ = env.reset(KEY, params)
    with jax.numpy_rank_promotion("raise"):
        jaxpr = jax.make_jaxpr(lambda s, a, p: env.step(KEY, s, a, p))(state, i32(0), params)
    wide = [
        eqn.primitive.name
        for eqn in jaxpr.eqns
        for var in eqn.outvars
        if getattr(var.aval, "dtype", None) in (np.float64, np.int64, np.uint64)
    ]
    assert wide == []


# ---- references and sessions


@pytest.mark.slow
def test_an_end_is_followed_by_the_environments_next_episode():
    trace = jax.tree.map(np.asarray, sample()[2])
    state, out = trace.state, trace.outcome
    ended = out.info.end != EndReason.NONE
    assert ended.sum() > 50
    assert (state.episode[1:] - state.episode[:-1] == ended[:-1]).all()
    assert (state.seed == state.seed[0]).all()


def test_environments_with_other_keys_start_elsewhere_and_the_same_key_the_same():
    env, params = TradingEnv(CONFIG), make()
    reset = jax.jit(jax.vmap(env.reset, (0, None)))
    keys = jax.random.split(KEY, 256)
    first, again = reset(keys, params), reset(keys, params)
    assert leaves_differ(first, again) == []
    assert np.unique(np.asarray(first[0].row)).size > 150
