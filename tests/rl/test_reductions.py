"""Figures over environments in two halves, one for each place on a mapped axis, are those of all
environments.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.networks.normalize import init_stats, merge
from jaxtrade.networks.reductions import LOCAL, Reduce
from jaxtrade.rl.epochs import minibatch_rows
from jaxtrade.rl.losses import explained_variance, standardised
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.rollout import env_keys, reset_all
from tests.rl.probes import Probe, probe_params

HALVES = Reduce("envs")
ENV = Probe((lambda ref, action: ref.cue * action + 0.1 * ref.time,))
PARAMS = probe_params(length=5)
KEY = jax.random.key(3)
WHOLE = Learning(
    num_envs=16,
    num_steps=12,
    num_minibatches=2,
    num_epochs=2,
    num_shards=2,
    hidden=(8,),
    learning_rate=1e-2,
)
HALF = WHOLE.model_copy(update={"num_envs": 8, "num_shards": 1})
in_halves = partial(jax.vmap, axis_size=2, axis_name="envs")


def test_one_place_changes_nothing():
    x = jnp.arange(6.0)
    assert LOCAL.sum_of_parts(x) is LOCAL.mean_of_parts(x) is LOCAL.max_of_parts(x) is x
    assert (LOCAL.offset(8), LOCAL.count(8)) == (0, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "of",
    [
        standardised,
        lambda x, reduce: explained_variance(x, 2 * x + jnp.square(x), reduce),
        lambda x, reduce: (reduce.sum(x), reduce.mean(x), reduce.variance(x), reduce.moments(x)),
        lambda x, reduce: reduce.max_of_parts(x.max()),
        lambda x, reduce: merge(
            merge(init_stats(3), x.reshape(-1, 3), reduce=reduce),
            5 * x.reshape(-1, 3),
            reduce=reduce,
        ),
        # Both rows of group 1 are in the second half; group 3 has none.
        lambda x, reduce: merge(
            init_stats(1, 4),
            x[:, None],
            jnp.where(jnp.abs(x - 4.5) > 4.5, 1, 2 * (x > 5.0)),
            reduce,
        ),
    ],
    ids=[
        "standardised",
        "explained variance",
        "moments",
        "largest",
        "normaliser",
        "groups of the normaliser",
    ],
)
def test_moments_of_two_halves(of):
    x = jnp.asarray(np.random.default_rng(0).normal(5.0, 3.0, 24), jnp.float32)
    whole = jax.jit(lambda x: of(x, LOCAL))(x)
    parts = jax.jit(in_halves(lambda x: of(x, HALVES)))(x.reshape(2, -1))
    for one, both in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        # What is reduced is the same in both halves; what is not is theirs side by side.
        for each in both.reshape(1, *one.shape) if both.size == one.size else both:
            np.testing.assert_allclose(
                each, one, rtol=1e-5, atol=5e-7
            )  # x - mean cancels: an ulp of x is left


def test_a_slot_that_never_varies_keeps_its_mean_to_the_bit():
    x = jnp.full((2, 5, 1), 0.1, jnp.float32)
    stats = jax.jit(in_halves(lambda x: merge(init_stats(1), x, reduce=HALVES)))(x)
    np.testing.assert_array_equal(stats.mean, np.full((2, 1, 1), np.float32(0.1)))
    np.testing.assert_array_equal(stats.variance, np.zeros((2, 1, 1)))


@pytest.mark.slow
def test_environments_draw_by_their_global_number():
    data = jax.random.key_data
    np.testing.assert_array_equal(data(env_keys(KEY, 3, 5)), data(env_keys(KEY, 8))[5:])
    whole, _ = jax.jit(lambda key: reset_all(ENV, key, PARAMS, 8))(KEY)
    later, _ = jax.jit(lambda key: reset_all(ENV, key, PARAMS, 3, first_env=5))(KEY)
    np.testing.assert_array_equal(later.cue, whole.cue[5:])


@pytest.mark.slow
def test_groups_draw_by_their_global_number():
    """A minibatch of four groups holds the rows of one of the first two groups, then those of one
    of the last two.
    """
    whole = np.asarray(jax.jit(lambda key: minibatch_rows(key, 3, 8, 4, 2))(KEY))
    last = np.asarray(jax.jit(lambda key: minibatch_rows(key, 3, 4, 2, 2, first_group=2))(KEY))
    times, envs = whole // 8, whole % 8
    here = envs >= 4
    np.testing.assert_array_equal(
        times[here].reshape(2, -1) * 4 + envs[here].reshape(2, -1) - 4, last
    )


@pytest.mark.slow
def test_one_update_in_two_halves_is_the_update():
    """Two places with 8 environments each, every figure over both: the parameters, statistics and
    metrics of 16.
    """
    whole = make_ppo(WHOLE.run, ENV, 4)
    half = make_ppo(HALF.run, ENV, 4, reduce=HALVES)
    state = jax.jit(whole.init)(KEY, PARAMS)
    states = jax.jit(in_halves(half.init, in_axes=None))(KEY, PARAMS)
    np.testing.assert_array_equal(states.env_state.cue.reshape(-1), state.env_state.cue)
    after, metrics = jax.jit(whole.update)(state, PARAMS)
    afters, of_halves = jax.jit(in_halves(half.update, in_axes=(0, None)))(states, PARAMS)
    np.testing.assert_array_equal(afters.env_state.cue.reshape(-1), after.env_state.cue)
    for name in ("params", "normaliser", "opt_state"):
        expected, found = (
            jax.tree.leaves(getattr(after, name)),
            jax.tree.leaves(getattr(afters, name)),
        )
        for one, both in zip(expected, found, strict=True):
            np.testing.assert_allclose(both[0], one, rtol=1e-4, atol=1e-6, err_msg=name)
            np.testing.assert_array_equal(both[0], both[1], err_msg=name)
    for name, value in metrics.items():
        np.testing.assert_allclose(of_halves[name][0], value, rtol=1e-3, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(of_halves[name][0], of_halves[name][1], err_msg=name)
