"""Stable-Baselines3 does the mathematics that the configuration says, and the bench counts what the
market paid.
"""

import gymnasium
import numpy as np
import pytest

from bench import one_update, sb3, setting, twin
from bench.learning import Learning, learning_of
from bench.one_update import UPDATE, Rollout, Seen
from tests.extras import needed
from tests.messages import refused

BASE = {
    "num_envs": 4,
    "num_steps": 64,
    "num_minibatches": 2,
    "num_shards": 1,
    "normalise_observations": False,
    "learning_rate_end": 3e-4,
}
OTHER = {  # another value of every field
    "num_envs": 8,
    "num_steps": 128,
    "num_minibatches": 4,
    "num_epochs": 9,
    "num_shards": 2,
    "kind": "gru",
    "rnn_width": 32,
    "hidden": (8,),
    "activation": "relu",
    "normalise_observations": True,
    "normalise_per_symbol": False,
    "normalise_advantages": False,
    "learning_rate": 1e-3,
    "learning_rate_end": 1e-4,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "clip_eps": 0.1,
    "vf_clip_eps": 0.2,
    "ent_coef": 0.02,
    "ent_coef_end": 0.001,
    "vf_coef": 0.25,
    "max_grad_norm": 1.0,
    "target_kl": 0.03,
    "gradient_rows": 4_096,
    "adapter": 8,
    "adapter_freeze": 0.1,
    "normalise_rewards": True,
}
REFUSED = {
    "adapter",
    "num_shards",
    "kind",
    "normalise_observations",
    "normalise_rewards",
    "learning_rate_end",
    "vf_clip_eps",
    "ent_coef_end",
    "learning_rate",
}  # the last alone: the rate would fall to its other end
# A width and a freeze that this network has not, on either side; blocks, which change no result;
# and one symbol.
WITHOUT_EFFECT = {"rnn_width", "gradient_rows", "adapter_freeze", "normalise_per_symbol"}


@pytest.mark.parametrize("name", list(Learning.model_fields))
def test_every_field_is_mapped_or_refused(name):
    changed = Learning(**{**BASE, name: OTHER[name]})
    if name in REFUSED:
        with refused(name):
            sb3.arguments(changed)
    else:
        same = sb3.arguments(changed) == sb3.arguments(Learning(**BASE))
        assert same == (name in WITHOUT_EFFECT)


def test_a_constant_rate_is_mapped():
    rates = {"learning_rate": 1e-3, "learning_rate_end": 1e-3, "ent_coef_end": 0.01}
    chosen = sb3.arguments(Learning(**{**BASE, **rates}))
    assert (chosen["learning_rate"], chosen["ent_coef"]) == (1e-3, 0.01)


def test_the_faster_thread_count_is_taken():
    seconds = {1: iter([3.0, 2.0]), 2: iter([2.5, 9.0])}
    assert sb3.fastest(lambda count: next(seconds[count]), (1, 2), 2) == (1, {"1": 2.0, "2": 2.5})
    for two, chosen in ((1.7, 1), (1.6, 2)):  # twice the threads for a little is no bargain
        assert (
            sb3.fastest(lambda count, two=two: {1: 2.0, 2: two}[count], (2, 1), 1, sb3.WORTH)[0]
            == chosen
        )


# ---------------------------------------------------------------- with stable-baselines3
@pytest.fixture(scope="module")
def torch():
    needed("sb3_contrib")
    found = needed("torch")
    before = found.get_num_threads()
    found.set_num_threads(1)  # more wait for each other where the machine is shared
    yield found
    found.set_num_threads(before)


class Spaces(gymnasium.Env):
    """Nothing but spaces: no step is made."""

    def __init__(self, size, actions):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions)


def layers(policy):
    """Our parameter path of each layer -> torch's Linear."""
    found = {
        ("policy_head",): policy.action_net,
        ("value_head",): policy.value_net,
    }
    torsos = {
        "policy_torso": policy.mlp_extractor.policy_net,
        "value_torso": policy.mlp_extractor.value_net,
    }
    for torso, net in torsos.items():
        found |= {(torso, f"Dense_{i}"): each for i, each in enumerate(list(net)[::2])}
    return found


def updated(rollout, changed):
    """Weights after MaskablePPO's own `train` on our rollout from our weights, [in, out] by our
    path. changed: over the arguments of the same mathematics (`sb3.arguments`)."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.logger import Logger  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import DummyVecEnv  # pyright: ignore[reportMissingImports]

    arguments = {**sb3.arguments(learning_of(rollout.world.config)), **changed}
    env, seen, count = rollout.world.env, rollout.seen, learning_of(rollout.world.config).num_envs
    envs = DummyVecEnv([lambda: Spaces(env.observation_size, env.num_actions)] * count)
    model = sb3.make_model(envs, arguments, 0)
    model.set_logger(Logger(None, []))
    with torch.no_grad():
        for path, each in layers(model.policy).items():
            ours = one_update.layer(rollout.before.params, path)
            each.weight.copy_(torch.tensor(np.array(ours["kernel"]).T))
            each.bias.copy_(torch.tensor(np.array(ours["bias"])))

    def values(observation):
        with torch.no_grad():
            return model.policy.predict_values(torch.tensor(observation))

    buffer = model.rollout_buffer
    buffer.reset()
    for t in range(learning_of(rollout.world.config).num_steps):
        now = Seen(*(x[t] for x in seen))
        final = values(np.asarray(now.final)).numpy()[:, 0]
        reward = now.reward + np.where(now.truncated, arguments["gamma"] * final, 0.0)
        buffer.add(
            now.observation,
            now.action[:, None],
            reward,
            now.first,
            torch.tensor(now.value),
            torch.tensor(now.log_prob),
            action_masks=now.mask,
        )
    buffer.compute_returns_and_advantage(
        last_values=values(np.asarray(rollout.last)), dones=seen.terminated[-1] | seen.truncated[-1]
    )
    model.train()
    return {path: each.weight.detach().numpy().T for path, each in layers(model.policy).items()}


def distance(rollout, **changed):
    """|our step - SB3's step| / |our step| over all weights, with some of SB3's arguments
    changed.
    """
    return one_update.distance(rollout, updated(rollout, changed))


@pytest.mark.slow
def test_an_update_is_the_same_update(torch):
    """Masks, advantages with bootstrapped truncations, losses, gradient norm and Adam, over three
    epochs.
    """
    rollout = Rollout(normalise_advantages=False)
    assert int((rollout.seen.truncated & ~rollout.seen.terminated).sum()) > 10
    assert not rollout.seen.mask.all()
    assert distance(rollout) < 1e-4
    for changed in (
        {"ent_coef": 0.0},
        {"vf_coef": 0.45},
        {"gamma": 0.89},
        {"gae_lambda": 0.9},
        {"clip_range": 0.2},
        {"n_epochs": 4},
        {"learning_rate": 3.1e-3},
        {"max_grad_norm": 0.01},
    ):
        assert distance(rollout, **changed) > 0.01, changed


@pytest.mark.slow
def test_normalised_advantages_differ_by_the_kind_of_deviation_alone(torch):
    assert distance(Rollout()) < 0.02


@pytest.fixture(scope="module")
def tape_path(tmp_path_factory):
    """Episodes of ten steps, so that many are truncated."""
    world = setting.world(2, episode={"max_steps": 10})
    path = tmp_path_factory.mktemp("twin") / "tape"
    twin.save(twin.make_tape(world.config.env, world.params), path)
    return str(path)


def test_rewards_are_the_markets_without_the_bootstrap(torch, tape_path):
    from stable_baselines3.common.vec_env import VecEnvWrapper

    ppo, paid = Learning(**UPDATE), []

    class Till(VecEnvWrapper):
        def reset(self):
            return self.venv.reset()

        def step_wait(self):
            result = self.venv.step_wait()
            paid.append(result[1].copy())
            return result

    learner = sb3.Learner(ppo, Till(sb3.vector_env(tape_path, "dummy", ppo.num_envs)), 0)
    reported = learner()
    assert reported == pytest.approx(np.mean(paid), abs=1e-6)
    assert abs(reported - learner._model.rollout_buffer.rewards.mean()) > 1e-4


def test_a_seed_is_a_run(torch, tape_path):
    ppo = Learning(**UPDATE)
    envs = sb3.vector_env(tape_path, "dummy", ppo.num_envs)
    first, again, other = (sb3.Learner(ppo, envs, seed)() for seed in (0, 0, 1))
    assert first == again != other


def test_a_trainer_tells_its_threads_first(torch, tape_path):
    work = sb3.trainer(Learning(**UPDATE).model_dump(mode="json"), tape_path, [1])
    next(work)  # prepares
    assert next(work) == {"threads": 1, "trial_seconds": {}}
    assert next(work) == {}
