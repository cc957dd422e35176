"""One whole update of PPO against the same update written in NumPy (`bench.one_update`), on a
probe.

Beside what that module lists, the minibatches of each epoch and both schedules are in the result.
Only the rows of the minibatches and the environment come from the package and the probes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from bench.one_update import Steps, chosen, learned, masked_log_probs, value_of
from jaxtrade.rl.epochs import minibatch_rows
from jaxtrade.rl.ppo import make_ppo
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_close

CONFIG = Learning(
    num_envs=4,
    num_steps=12,
    num_minibatches=4,
    num_epochs=3,
    num_shards=2,
    hidden=(),
    normalise_observations=False,
    learning_rate=0.03,
    learning_rate_end=0.01,
    gamma=0.9,
    gae_lambda=0.8,
    clip_eps=0.05,
    vf_clip_eps=0.1,
    ent_coef=0.4,
    ent_coef_end=0.1,
    vf_coef=0.3,
    max_grad_norm=0.6,
)
UPDATES = 4
ENV = Probe((lambda ref, action: ref.cue * action + 0.3 * ref.time,))


def first_weights():
    """Far from the uniform policy that learning begins with, where an entropy without a mask has
    the same gradient.
    """
    draw = np.random.default_rng(4)
    return {
        "W": draw.normal(0, 1, (2, 4)),
        "b": draw.normal(0, 1, 4),
        "v": draw.normal(0, 1, 2),
        "c": np.array(0.2),
    }


def as_parameters(weights):
    """The same weights as the package holds them."""
    layers = {
        "policy_head": {"kernel": weights["W"], "bias": weights["b"]},
        "value_head": {"kernel": weights["v"][:, None], "bias": weights["c"][None]},
    }
    return jax.tree.map(jnp.float32, layers)


@jax.jit
def stepped(keys, state, action, params):
    return jax.vmap(ENV.step, (0, 0, 0, None))(keys, state, action, params)


def rollout(weights, state, params, key):
    """Environment i draws from `fold_in(key, i)`: half of it for its actions, half for its
    steps.
    """
    keys = [jax.random.split(jax.random.fold_in(key, i)) for i in range(CONFIG.num_envs)]
    chance = np.stack(
        [jax.random.uniform(of_actions, (CONFIG.num_steps,)) for of_actions, _ in keys], 1
    )
    step_keys = jnp.stack([jax.random.split(of_steps, CONFIG.num_steps) for _, of_steps in keys], 1)
    env_state, rows = state.env_state, []

    def seen(ref):
        return (
            np.asarray(jax.vmap(ENV.observe, (0, None))(ref, params), np.float64),
            np.asarray(jax.vmap(ENV.action_mask)(ref)),
        )

    for t in range(CONFIG.num_steps):
        observation, mask = seen(env_state)
        log_probs = masked_log_probs(weights, observation, mask)
        action = (np.cumsum(np.exp(log_probs), -1) > chance[t][:, None]).argmax(-1)
        env_state, _, outcome = stepped(
            step_keys[t], env_state, jnp.asarray(action, jnp.int32), params
        )
        rows.append(
            (
                observation,
                mask,
                action,
                chosen(log_probs, action),
                value_of(weights, observation),
                np.asarray(outcome.reward, np.float64),
                value_of(weights, seen(outcome.final_ref)[0]),
                np.asarray(outcome.terminated),
                np.asarray(outcome.truncated),
            )
        )
    return Steps(*(np.stack(column) for column in zip(*rows, strict=True)))


@pytest.fixture(scope="module")
def compiled():
    """(init, update)"""
    algorithm = make_ppo(CONFIG.run, ENV, UPDATES)
    return jax.jit(algorithm.init), jax.jit(algorithm.update)


@pytest.mark.parametrize(
    ("update", "truncates"), [(1, True), pytest.param(3, False, marks=pytest.mark.slow)]
)
def test_an_update_is_what_numpy_computes(compiled, update, truncates):
    """In the first update, after a third of the schedules, and in the last; episodes of five
    steps.
    """
    params = probe_params(length=5, truncates=truncates)
    weights = first_weights()
    init, learn = compiled
    state = init(jax.random.key(2), params).replace(
        params=as_parameters(weights), update=jnp.int32(update)
    )
    after, metrics = learn(state, params, None)

    of_rollout, of_epochs = jax.random.split(jax.random.fold_in(state.key, update))
    steps = rollout(weights, state, params, of_rollout)
    assert (steps.truncated if truncates else steps.terminated).sum() >= 8
    done = update / (UPDATES - 1)
    learning_rate, ent_coef = 0.03 + done * (0.01 - 0.03), 0.4 + done * (0.1 - 0.4)
    rows = [
        row
        for key in jax.random.split(of_epochs, CONFIG.num_epochs)
        for row in np.asarray(
            minibatch_rows(
                key, CONFIG.num_steps, CONFIG.num_envs, CONFIG.shards, CONFIG.num_minibatches
            )
        )
    ]
    expected, figures = learned(CONFIG, weights, steps, rows, learning_rate, ent_coef)

    np.testing.assert_allclose(
        [metrics["learning_rate"], metrics["ent_coef"]], [learning_rate, ent_coef], rtol=1e-6
    )
    for name, figure in figures.items():
        np.testing.assert_allclose(metrics[name], figure, rtol=2e-4, atol=1e-6, err_msg=name)
    moved = jax.tree.map(lambda new, old: np.asarray(new - old), after.params, state.params)
    wanted = jax.tree.map(
        lambda new, old: np.asarray(new - old), as_parameters(expected), as_parameters(weights)
    )
    assert_close(moved, wanted, rtol=2e-3, atol=1e-5)
