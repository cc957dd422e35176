"""A run of a Q-learner through every door: export, load, evaluate, replay, transfer, resume, and
what is refused.
"""

import jax
import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.config import load_config
from jaxtrade.curriculum.phases import start_check
from jaxtrade.errors import CheckpointError
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.runs.evaluate import Request, evaluate_run, history, replay_run
from jaxtrade.runs.initial_state import adopt, begin_from, load_source
from jaxtrade.runs.plan import check
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import run
from jaxtrade.storage import checkpoint
from tests.messages import missing, refused

TINY = (
    "algorithm=pqn",
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "pqn.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=1536",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "split.validation_sessions=1",
    "pqn.dueling=true",
)


def config(task, *more):
    return load_config("quickstart", (*TINY, f"env.task={task}", *more))


@pytest.fixture(scope="module")
def entry(tmp_path_factory):
    return run(config("entry"), tmp_path_factory.mktemp("runs") / "entry").path


@pytest.mark.slow
def test_the_policy_is_exported_with_its_learner_and_acts_as_in_training(entry):
    policy = load_policy(entry)
    assert policy.schema["algorithm"] == "pqn"
    assert policy.schema["learner"] == {"dueling": True, "layer_norm": True}
    size, mask = (
        policy.schema["observation"]["size"],
        np.array([[True, True, True], [True, False, True]]),
    )
    observation = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    greedy = policy.act(observation, mask)
    probs = policy.probabilities(observation, mask)
    epsilon = config("entry").pqn.epsilon_end
    for row, legal in ((0, 3), (1, 2)):
        assert probs[row, greedy[row]] == pytest.approx(1 - epsilon + epsilon / legal)
    assert probs[1, 1] == 0.0
    drawn = [
        policy.act(observation[1], mask[1], explore=True, key=key)
        for key in jax.random.split(jax.random.key(0))
    ]
    assert set(drawn) <= {0, 2}


@pytest.mark.slow
def test_it_is_evaluated_and_replayed(entry):
    assert "your policy" in evaluate_run(Request(entry))
    assert "2013-10-11" in "\n".join(replay_run(Request(entry), "2013-10-11"))
    assert {"td_loss", "q_change", "epsilon", "q_max"} <= history(entry)[-1].keys()


@pytest.mark.slow
def test_a_wider_task_begins_with_the_same_greedy_policy(entry):
    source = load_source(entry)
    setup = prepare(adopt(config("manage"), source))
    begun = begin_from(setup, source)
    assert begun.coverage.complete
    assert begun.state.opening is None  # epsilon explores the new actions from the first update on
    assert start_check(source, setup, begun)["equal"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("pqn.dueling=false",), ("dueling=False: ", " has True")),
        (("pqn.layer_norm=false",), ("norm=False: ", " has True")),
        (("network.hidden=[9]",), ("network.hidden",)),
        (("algorithm=ppo",), ("algorithm=pqn",)),
    ],
)
def test_a_network_that_does_not_fit_is_refused(entry, more, message):
    with refused(*message):
        adopt(config("manage", *more), load_source(entry))


@pytest.mark.slow
def test_a_bundle_of_an_unknown_learner_says_so(entry, tmp_path):
    policy = load_policy(entry)
    checkpoint.save_policy(
        tmp_path / "other", policy.policy, policy.schema | {"algorithm": "sarsa"}
    )
    with refused("learner 'sarsa'", kind=CheckpointError):
        load_policy(tmp_path / "other")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--algorithm", "pqnn"], ("did you mean 'pqn'",)),
        (
            ["--algorithm", "pqn", "--set", "ppo.gamma=0.9"],
            ("ppo.gamma is a key", "algorithm is pqn"),
        ),
        (["--set", "pqn.q_lambda=0.5"], ("pqn.q_lambda is ", "algorithm is ppo")),
        (
            ["--algorithm", "pqn", "--advisor", "rules"],
            ("advisor.fusion=trust",),
        ),
        (
            ["--algorithm", "dqn", "--timesteps", "2000", "--set", "dqn.learning_starts=40961"],
            ("dqn.learning_starts (40,961)", "40,960 environment steps"),
        ),  # 20 updates of 64 x 32 steps
        (
            ["--algorithm", "dqn", "--timesteps", "2000", "--set", "train.chunk_updates=1"],
            ("set dqn.learning_starts=204 ",),
        ),
        (
            [
                "--algorithm",
                "dqn",
                "--set",
                "dqn.priority_alpha=0.5",
                "--set",
                "dqn.priority_beta_end=0.5",
            ],
            ("dqn.priority_alpha, ", "dqn.priority_beta_end: ", "dqn.replay=uniform"),
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(words, facts, tmp_path, capsys):
    assert cli.main(["train", "quickstart", "--run-dir", str(tmp_path / "x"), *words]) == 2
    said = capsys.readouterr().err
    assert not missing(said, *facts)
    assert not (tmp_path / "x").exists()


def test_what_has_an_effect_is_accepted():
    check(
        load_config(
            None, ["algorithm=dqn", "dqn.learning_starts=40960", "train.total_timesteps=2000"]
        )
    )
    check(
        load_config(
            None,
            [
                "algorithm=dqn",
                "dqn.learning_starts=40960",
                "train.total_timesteps=1",
                "rollout.num_envs=auto",
            ],
        )
    )  # the length is not known yet
    assert load_config(
        None, ["algorithm=dqn", "dqn.replay=prioritised", "dqn.priority_alpha=0.5"]
    ).dqn.replay
