"""Several agents as one program: each is the agent trained alone; saved, resumed and measured
together.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.config import EnvConfig
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.errors import ConfigError
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.storage import checkpoint
from jaxtrade.training.hooks import Change, set_hparams
from jaxtrade.training.loop import population_health, train
from jaxtrade.training.population import (
    SEEDS,
    Axes,
    Stack,
    agent_rows,
    mean_and_each,
    population,
)
from tests.env import worlds
from tests.messages import missing
from tests.rl.test_train import KEY, PARAMS, PPO, TRAIN, assert_close, assert_same, timeless

N = 3
STACK = Stack.of(N)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("population")
    return train(
        PPO,
        PARAMS,
        config=TRAIN,
        key=STACK.keys(5),
        num_seeds=N,
        checkpoint_dir=directory,
    ), directory


def test_keys_are_those_of_consecutive_seeds():
    keys = STACK.keys(5)
    for i in range(N):
        assert_same(keys[i], jax.random.key(5 + i))
    assert_same(Stack.of(1).keys(5), jax.random.key(5))
    assert_same(Stack.of(2).keys(2**31 - 1)[1], jax.random.key(2**31))
    assert_same(Stack((2, N), (Axes(key=None), SEEDS)).keys(5), keys)  # the same for both
    assert_same(Stack((2, N)).keys(5)[1, 2], jax.random.key(10))


def test_one_agent_is_not_stacked():
    one = Stack.of(1)
    assert one.wrap(PPO) is PPO
    assert one.shape == one.keys(5).shape == ()
    assert one.agent(PARAMS, 0) is PARAMS
    assert one.agents(PARAMS) == [PARAMS]
    assert (one.describe(5, 100), one.mean_label, one.provenance(5)) == ([], "", {})
    assert one.folder(Path("policy"), 5) == Path("policy")
    assert Stack((1,)).keys(5).shape == (1,)  # stacked on purpose


def test_a_stack_names_and_counts_its_agents():
    assert STACK.folder(Path("policy"), 5) == Path("policy/seed_5")
    assert not missing(STACK.describe(5, 1000)[0], "3 agents", "5 .. 7", "1,000 steps")
    assert Stack.of(STACK) is STACK
    grid = Stack((2, N))
    numbers = {"x": np.arange(6).reshape(2, N)}
    assert [int(part["x"]) for part in grid.agents(numbers)] == [0, 1, 2, 3, 4, 5]
    row = grid.row({"figure": np.float32(numbers["x"])})
    assert (row["figure"], row["figure/each"]) == (2.5, [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(grid.each([row, row], "figure"), [numbers["x"]] * 2)
    assert grid.like({"x": jnp.zeros((4, 5))})["x"].shape == (2, N, 4, 5)
    with pytest.raises(ValueError, match="one Axes for each"):
        Stack((2, N), (SEEDS,))


@pytest.mark.slow
def test_agent_equals_the_agent_trained_alone_after_one_update():
    """On the trading environment. Floats within 1e-6, everything else exactly."""
    env = TradingEnv(EnvConfig(window=4))
    params = worlds.make_params(worlds.walk_market(sessions=3, length=110), max_steps=20)
    small = Learning(num_envs=8, num_steps=16, num_minibatches=2, num_epochs=2, hidden=(8,))
    ppo = make_ppo(small.run, env, 4)

    def update(algorithm):
        return jax.jit(lambda key: algorithm.update(algorithm.init(key, params), params, None))

    alone = update(ppo)
    together, metrics = update(population(ppo))(STACK.keys(7))
    for i in range(N):
        state, own = alone(jax.random.key(7 + i))
        assert_close(STACK.agent(together, i), state)
        assert_close(STACK.agent(metrics, i), own, rtol=1e-4)
        assert float(own["param_delta"]) > 1e-4


@pytest.mark.slow
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
    row = mean_and_each(
        {
            "reward": np.float32([1.0, np.nan, 3.0]),
            "none": np.float32([np.nan] * 3),
            "finite": np.bool_([True, False, True]),
            "count": np.int32([1, 2, 6]),
        }
    )
    assert (row["reward"], row["finite"], row["count"]) == (2.0, False, 3.0)
    assert np.isnan(row["none"])
    assert row["count/each"] == [1, 2, 6]


@pytest.mark.slow
def test_health_is_that_of_the_worst_agent(whole):
    result, _ = whole
    assert all(passed for passed, _ in result.health.values())
    assert result.health["recompiles"] == (True, 0)
    sick = [
        row | {"param_delta/each": [0.1, 0.0, 0.1], "illegal/each": [0, 2, 0]}
        for row in result.history
    ]
    health = population_health(sick, 0, STACK, PPO.info.health)
    assert health["param_delta"] == (False, 0.0)
    assert health["illegal"] == (False, 2 * len(sick))
    assert health["approx_kl"][0]


def test_an_agent_of_which_nothing_is_left_has_not_learned(whole):
    """Its steps were never finite, so every chunk was taken back."""
    result, _ = whole
    gone = [
        row | {"param_delta/each": [0.1, None, 0.2], "undone/each": [False, True, False]}
        for row in result.history
    ]
    health = population_health(gone, 0, STACK, PPO.info.health)
    assert health["param_delta"] == (False, 0.1)
    assert not any(health[check.name][0] for check in PPO.info.health)
    assert health["illegal"] == (True, 0)
    nobody = population_health(
        [row | {"undone/each": [True] * 3} for row in result.history], 0, STACK, PPO.info.health
    )
    assert nobody["param_delta"][0] is False
    assert np.isnan(nobody["param_delta"][1])
    assert nobody["recompiles"] == (True, 0)


@pytest.mark.slow
def test_stacked_checkpoints_resume_to_the_same_bits(whole):
    result, directory = whole
    like = jax.eval_shape(STACK.wrap(PPO).init, STACK.keys(5), PARAMS)
    assert jax.tree.map(lambda x: x.shape, like) == jax.tree.map(
        lambda x: x.shape, STACK.like(jax.eval_shape(PPO.init, KEY, PARAMS))
    )
    restored = checkpoint.restore(directory / "update-00000004", like)
    resumed = train(PPO, PARAMS, config=TRAIN, state=restored.state, num_seeds=N)
    assert_same(resumed.state, result.state)
    assert timeless(resumed.history) == timeless(result.history[4:])


def test_another_number_of_agents_is_refused(whole):
    result, _ = whole
    with pytest.raises(ConfigError, match=r"num_seeds=1: .*3 agent"):
        train(PPO, PARAMS, config=TRAIN, state=result.state)
    with pytest.raises(ConfigError, match="num_seeds=2: got 3 keys"):
        train(PPO, PARAMS, config=TRAIN, key=STACK.keys(0), num_seeds=2)


@pytest.mark.slow
def test_hooks_see_and_steer_all_agents_and_one_key_is_folded():
    """The number of agents is the configuration's."""

    def hook(state, update):
        assert state.hparams.gamma.shape == (N,)
        return Change(hparams={"gamma": 0.5})

    config = TRAIN.model_copy(update={"num_seeds": N})
    result = train(PPO, PARAMS, config=config, key=KEY, hooks=[hook])
    first = jax.eval_shape(PPO.init, KEY, PARAMS).key
    assert result.state.key.shape == (N, *first.shape)
    for i in range(N):
        own = jax.random.split(jax.random.fold_in(KEY, i), 3)[
            2
        ]  # what `init` keeps of agent i's key
        assert_same(result.state.key[i], own)
    np.testing.assert_array_equal(result.state.hparams.gamma, np.full(N, 0.5, np.float32))
    assert result.health["recompiles"] == (True, 0)


def test_floats_of_the_wrong_shape_are_refused(whole):
    state = whole[0].state
    with pytest.raises(
        ConfigError,
        match=r"'gamma' .*\(2,\).*\(3,\)",
    ):
        set_hparams(state, {"gamma": np.zeros(2)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            lambda state: state.replace(params=jax.tree.map(lambda x: x[:2], state.params)),
            "has other arrays",
        ),
        (lambda state: state.replace(update=state.update + 1), "keep `update`"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, match):
    with pytest.raises(ValueError, match=match):
        train(
            PPO,
            PARAMS,
            config=TRAIN,
            key=STACK.keys(5),
            num_seeds=N,
            hooks=[lambda state, update: Change(state=change(state))],
        )


# --- agents with parameters of their own, and populations of populations
