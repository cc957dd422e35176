"""Several agents as one program: each is the agent trained alone; saved, resumed and measured together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade import checkpoint
from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.errors import ConfigError, DivergedError
from jaxtrade.rl import train as loop
from jaxtrade.rl.population import agent, agent_rows, mean_and_each, population, seed_keys
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.train import population_health, train
from tests.env import worlds
from tests.rl.probes import probe_params
from tests.rl.test_train import KEY, PARAMS, PPO, TRAIN, Recorder, assert_same

N = 3
CLOCK = ("seconds", "steps_per_second", "eta_seconds")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory, sink = tmp_path_factory.mktemp("population"), Recorder()
    return train(PPO, PARAMS, config=TRAIN, key=seed_keys(5, N), num_seeds=N, sinks=[sink],
                 checkpoint_dir=directory), directory


def test_keys_are_those_of_consecutive_seeds():
    keys = seed_keys(5, N)
    for i in range(N):
        assert_same(keys[i], jax.random.key(5 + i))
    assert_same(seed_keys(5, 1), jax.random.key(5))
    assert_same(seed_keys(2**31 - 1, 2)[1], jax.random.key(2**31))


def test_one_agent_is_not_stacked():
    assert population(PPO, 1) is PPO
    assert seed_keys(5, 1).shape == ()
    assert agent(PARAMS, 0, 1) is PARAMS


@pytest.fixture(scope="module", params=["probe", "trading"])
def one_update(request):
    """N agents after one update as one program, and each of them alone."""
    ppo, params = PPO, PARAMS
    if request.param == "trading":
        env = TradingEnv(EnvConfig(window=4))
        params = worlds.make_params(worlds.walk_market(sessions=3, length=110), max_steps=20)
        ppo = make_ppo(Learning(num_envs=8, num_steps=16, num_minibatches=2, num_epochs=2, hidden=(8,)).run, env, 4)

    def update(algorithm):
        run = jax.jit(lambda key, params: algorithm.update(algorithm.init(key, params), params, ()))
        return lambda key: run(key, params)

    alone = update(ppo)
    return update(population(ppo, N))(seed_keys(7, N)), [alone(jax.random.key(7 + i)) for i in range(N)]


@pytest.mark.slow
@pytest.mark.parametrize("i", range(N))
def test_agent_equals_the_agent_trained_alone_after_one_update(one_update, i):
    """Floats within 1e-6, everything else exactly."""
    (together, metrics), alone = one_update
    state, own = alone[i]
    for (path, a), b in zip(jax.tree_util.tree_flatten_with_path(agent(together, i, N))[0], jax.tree.leaves(state),
                            strict=True):
        if jnp.issubdtype(b.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=jax.tree_util.keystr(path))
        else:
            assert_same(a, b)
    for name, value in own.items():
        np.testing.assert_allclose(metrics[name][i], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert float(own["param_delta"]) > 1e-4


@pytest.mark.slow
def test_agents_differ(one_update):
    (together, _), _ = one_update
    first, second = (np.concatenate([x[i].ravel() for x in jax.tree.leaves(together.params)]) for i in (0, 1))
    assert np.abs(first - second).max() > 0.01


def test_rows_hold_the_mean_and_each(whole):
    result, _ = whole
    assert [row["update"] for row in result.history] == list(range(1, 9))
    row = result.history[-1]
    assert row["steps"] == 512  # of each agent
    assert len(row["param_delta/each"]) == N
    assert row["param_delta"] == pytest.approx(np.mean(row["param_delta/each"]))
    assert np.shape(row["action_share/each"]) == (N, 4)
    np.testing.assert_allclose(row["action_share"], np.mean(row["action_share/each"], axis=0))
    assert result.steps_per_second == pytest.approx(N * 512 / row["seconds"])
    own = agent_rows(result.history, 1)[-1]
    assert own["param_delta"] == row["param_delta/each"][1]


def test_means_leave_out_what_is_undefined():
    row = mean_and_each({"reward": np.float32([1.0, np.nan, 3.0]), "none": np.float32([np.nan] * 3),
                         "finite": np.bool_([True, False, True]), "count": np.int32([1, 2, 6])})
    assert (row["reward"], row["finite"], row["count"]) == (2.0, False, 3.0)
    assert np.isnan(row["none"])
    assert row["count/each"] == [1, 2, 6]


def test_health_is_that_of_the_worst_agent(whole):
    result, _ = whole
    assert all(passed for passed, _ in result.health.values())
    assert result.health["recompiles"] == (True, 0)
    sick = [row | {"param_delta/each": [0.1, 0.0, 0.1], "illegal/each": [0, 2, 0]} for row in result.history]
    health = population_health(sick, 0, N, PPO.health)
    assert health["param_delta"] == (False, 0.0)
    assert health["illegal"] == (False, 2 * len(sick))
    assert health["approx_kl"][0]


def test_stacked_checkpoints_resume_to_the_same_bits(whole):
    result, directory = whole
    like = jax.eval_shape(population(PPO, N).init, seed_keys(5, N), PARAMS)
    restored = checkpoint.restore(directory / "update-00000004", like)
    resumed = train(PPO, PARAMS, config=TRAIN, state=restored.state, num_seeds=N)
    assert_same(resumed.state, result.state)
    for a, b in zip(resumed.history, result.history[4:], strict=True):
        assert {k: v for k, v in a.items() if k not in CLOCK} == {k: v for k, v in b.items() if k not in CLOCK}


def test_another_number_of_agents_is_refused(whole):
    result, _ = whole
    with pytest.raises(ConfigError, match=r"num_seeds=1: the given state is of 3 agent"):
        train(PPO, PARAMS, config=TRAIN, state=result.state)
    with pytest.raises(ConfigError, match="num_seeds=2: got 3 keys"):
        train(PPO, PARAMS, config=TRAIN, key=seed_keys(0, 3), num_seeds=2)


def test_hooks_see_and_steer_all_agents_and_one_key_is_folded():
    """The number of agents is the configuration's."""
    def hook(state, update):
        assert state.hparams.gamma.shape == (N,)
        return loop.Control.CONTINUE, {"gamma": 0.5}

    config = TRAIN.model_copy(update={"num_seeds": N})
    result = train(PPO, PARAMS, config=config, key=KEY, hooks=[hook])
    first = jax.eval_shape(PPO.init, KEY, PARAMS).key
    assert result.state.key.shape == (N, *first.shape)
    for i in range(N):
        own = jax.random.split(jax.random.fold_in(KEY, i), 3)[2]  # what `init` keeps of agent i's key
        assert_same(result.state.key[i], own)
    np.testing.assert_array_equal(result.state.hparams.gamma, np.full(N, 0.5, np.float32))
    assert result.health["recompiles"] == (True, 0)


def test_one_diverged_agent_is_named():
    with pytest.raises(DivergedError, match="update 1: a loss or gradient of agent 0 is not finite"):
        train(PPO, probe_params(kind=1, length=5), config=TRAIN, key=seed_keys(0, N), num_seeds=N)
