"""The Stable-Baselines3 interface, and MaskablePPO through every interface it can use."""

import warnings

import gymnasium
import numpy as np
import pytest

import jaxtrade
from jaxtrade.errors import ConfigError
from jaxtrade.interop.gymnasium_env import to_gymnasium
from jaxtrade.interop.registration import register_envs, to_sb3
from jaxtrade.interop.world import ENV_ID, load_world
from tests.extras import needed
from tests.interop.interfaces import ENV, NUM_ENVS, PARAMS


def test_without_stable_baselines_the_fix_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install .*sb3"):
        jaxtrade.to_sb3(ENV, PARAMS, 2)


@pytest.fixture(scope="module")
def sb3():
    return needed("stable_baselines3")


@pytest.fixture(scope="module")
def contrib(sb3):
    return needed("sb3_contrib")


def test_sb3s_check_finds_nothing(sb3):
    from stable_baselines3.common.env_checker import check_env

    register_envs()
    made = gymnasium.make(ENV_ID, overrides=("env.window=5",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(made.unwrapped)


def test_equals_dummy_vec_env(sb3):
    """Observations, rewards, dones, infos and masks equal those of SB3's own DummyVecEnv over our
    gymnasium Env.
    """
    from stable_baselines3.common.vec_env import DummyVecEnv

    ours, theirs = (
        to_sb3(ENV, PARAMS, NUM_ENVS),
        DummyVecEnv([lambda: to_gymnasium(ENV, PARAMS)] * NUM_ENVS),
    )
    ours.seed(3)
    theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng, ends, limits = np.random.default_rng(0), 0, 0
    for _ in range(150):
        masks = np.stack(ours.env_method("action_masks"))
        np.testing.assert_array_equal(masks, np.stack(theirs.env_method("action_masks")))
        actions = np.array(
            [rng.choice(np.flatnonzero(mask)) * (rng.random() < 0.1) for mask in masks]
        )
        a, b = ours.step(actions), theirs.step(actions)
        for x, y in zip(a[:3], b[:3], strict=True):
            np.testing.assert_array_equal(x, y)
        for mine, other in zip(a[3], b[3], strict=True):
            assert mine.keys() == other.keys()
            for key, value in other.items():
                np.testing.assert_array_equal(mine[key], value, err_msg=key)
        for mine, other in zip(ours.reset_infos, theirs.reset_infos, strict=True):
            assert mine["row"] == other["row"]
        ends += a[2].sum()
        limits += sum(info["TimeLimit.truncated"] for info in a[3])
    assert ends > limits > 0
    ours.set_options({"session": 2})
    ours.reset()
    assert [info["row"] for info in ours.reset_infos] == [240] * NUM_ENVS


def test_what_rows_of_arrays_have_not_is_refused(sb3):
    env = to_sb3(ENV, PARAMS, NUM_ENVS)
    with pytest.raises(RuntimeError, match="before reset"):
        env.env_method("action_masks")
    assert env.has_attr("action_masks")
    assert not env.has_attr("spec")
    with pytest.raises(AttributeError, match="no attribute 'spec'"):
        env.get_attr("spec")
    with pytest.raises(AttributeError, match="to set"):
        env.set_attr("window", 3)
    with pytest.raises(AttributeError, match="no method 'render'"):
        env.env_method("render")
    env.set_options([{"session": 0}] + [{"session": 1}] * (NUM_ENVS - 1))
    with pytest.raises(ConfigError, match="one dictionary for all"):
        env.reset()


@pytest.mark.slow
@pytest.mark.parametrize("interface", ["gymnasium", "vec_env"])
def test_maskable_ppo_trains(contrib, interface):
    """10,000 steps on the bundled bars: parameters move, and no step ever executed a masked
    action.
    """
    from stable_baselines3.common.callbacks import BaseCallback

    class Illegal(BaseCallback):
        steps = illegal = 0

        def _on_step(self):
            self.steps += len(self.locals["infos"])
            self.illegal += sum(info["illegal"] for info in self.locals["infos"])
            return True

    register_envs()
    env = gymnasium.make(ENV_ID) if interface == "gymnasium" else to_sb3(*load_world(), 20)
    model = contrib.MaskablePPO(
        "MlpPolicy",
        env,
        seed=0,
        device="cpu",
        batch_size=250,
        n_steps=1000 if interface == "gymnasium" else 50,
    )
    before = {name: value.detach().clone() for name, value in model.policy.named_parameters()}
    count = Illegal()
    model.learn(10_000, callback=count)
    assert (count.steps, model.num_timesteps, count.illegal) == (10_000, 10_000, 0)
    moved = [
        float((value - before[name]).abs().max()) for name, value in model.policy.named_parameters()
    ]
    assert max(moved) > 1e-3
    assert all(np.isfinite(moved))
