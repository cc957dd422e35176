"""Independent learners in a shared market: a run and its resumption."""

import pytest

from jaxtrade.config import load_config
from jaxtrade.runs.train import resume, run
from jaxtrade.training.population import Stack
from tests.resuming import cut
from tests.rl.test_train import assert_same

AGENTS = 3
SMALL = (
    "shared.on=true",
    f"train.num_seeds={AGENTS}",
    "shared.kappa=900",
    "shared.eta=800",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "train.total_timesteps=1024",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)


CONFIG = load_config("quickstart", (*SMALL, "ppo.num_minibatches=2", "ppo.num_epochs=2"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(CONFIG, tmp_path_factory.mktemp("runs") / "shared")


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_same_bits(whole, tmp_path):
    stopped = cut(whole.path, tmp_path / "stopped", 3)
    assert_same(whole.training.state, resume(stopped).training.state)


def test_agents_meet_only_if_they_share_a_market():
    assert Stack.of_run(load_config("quickstart", ["train.num_seeds=3"])) == Stack((3,))
    assert Stack.of_run(CONFIG) != Stack((3,))
