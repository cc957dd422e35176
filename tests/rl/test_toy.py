"""The learner contract, by a learner that has no KL, no learning rate and no tunable floats
(`toy.py`).
"""

import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade import load_policy, run
from jaxtrade.config import TrainConfig, load_config
from jaxtrade.errors import DivergedError
from jaxtrade.progress.screen import Plain
from jaxtrade.rl.algorithms import LEARNERS, LearnerKind
from jaxtrade.rl.state import Policy
from jaxtrade.runs.evaluate import Request, evaluate_run
from jaxtrade.storage import checkpoint
from jaxtrade.text import FORECAST
from jaxtrade.training.health import Watch
from jaxtrade.training.loop import plan_run, train
from tests import uncounted
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_same
from tests.rl.toy import make_toy

pytestmark = pytest.mark.slow

ENV = Probe((lambda ref, action: action == 2,), masked=False)
PARAMS = probe_params(length=5)
TRAIN = TrainConfig(
    total_timesteps=32 * 40, chunk_updates=5, checkpoint_every=2, keep_checkpoints=9
)
PLAN = plan_run(TRAIN, 4, 8)
TOY = make_toy(ENV, PLAN.total_updates)
KEY = jax.random.key(0)


def planted(at, times):
    """The toy whose reward is NaN in update `at` (counted from 0) while it has rolled back less
    than `times` times.
    """

    def update(state, params, inputs=None):
        bad = (state.update == at) & (state.rollbacks < times)
        return TOY.update(
            state, params.replace(scale=jnp.where(bad, jnp.nan, params.scale)), inputs
        )

    return TOY._replace(update=update)


@pytest.fixture(scope="module")
def whole():
    text, warned = io.StringIO(), []
    with Plain(text) as screen:
        screen.describe({}, TOY.info.progress)
        sinks = [screen, Watch(warned.append, own=TOY.info.warnings, remedies=TOY.info.remedies)]
        result = train(TOY, PARAMS, config=TRAIN, key=KEY, sinks=sinks)
    return result, text.getvalue(), warned


def test_it_trains_and_learns(whole):
    result, text, warned = whole
    assert (result.updates, result.steps) == (40, 1280)
    assert int(TOY.policy(result.state).parameters.argmax()) == 2
    assert result.health == {"illegal": (True, 0), "recompiles": (True, 0)}
    assert set(result.history[0]) == {
        *("update", "total_updates", "steps", "finite"),
        *("seconds", "steps_per_second", "eta_seconds"),
    }
    assert "update 40/40  steps 1,280" in text
    assert "kl" not in text
    assert warned == []


def test_each_phase_is_named_before_it_works(whole):
    """The loop knows sinks alone; the one that shows phases gets them: nothing happens
    unannounced.
    """
    # the seconds so far are told where compiling takes long
    slowly = re.compile(r"compiling: \d")
    lines = [line for line in whole[1].splitlines() if not slowly.match(line)]
    assert lines[0] == "compiling: the training program"
    assert lines[1].startswith(FORECAST)
    assert lines[2] == "training: 1,280 steps in 40 updates"
    assert lines[3].startswith("update ")


def test_it_rolls_back(tmp_path):
    """Checkpoints are after updates 10, 20, ...; the fault is in the thirteenth."""
    result = train(
        planted(12, 1),
        PARAMS,
        config=TRAIN,
        key=KEY,
        checkpoint_dir=tmp_path,
        max_rollbacks=2,
    )
    saved = checkpoint.restore(tmp_path / "update-00000010", result.state).state
    assert (result.updates, int(result.state.rollbacks), result.state.hparams) == (40, 1, None)
    assert_same(result.state.key, jax.random.fold_in(saved.key, 1))
    assert all(row["finite"] for row in result.history)
    with pytest.raises(DivergedError, match=r"update 13: .*after 1 rollback"):
        train(planted(12, 2), PARAMS, config=TRAIN, key=KEY, max_rollbacks=1)


def toy_policy(config, num_actions, observation_size, key, fusion=None):
    return Policy(jnp.zeros(num_actions))


def toy_of(config, env, total_updates, **options):
    return make_toy(env, total_updates, config.rollout.num_envs, config.rollout.num_steps)


def test_registered_it_is_a_learner_of_the_command_line(tmp_path):
    """`algorithm: toy` trains, is saved, evaluated, loaded and evaluated again."""
    LEARNERS.register("toy", LearnerKind(toy_of, toy_policy))
    config = load_config(
        "quickstart",
        [
            "algorithm=toy",
            "rollout.num_envs=8",
            "rollout.num_steps=16",
            "train.total_timesteps=1024",
            "train.chunk_updates=4",
        ],
    )
    result = run(config, tmp_path / "run")
    assert result.exit_code == 0
    loaded = load_policy(tmp_path / "run")
    np.testing.assert_array_equal(loaded.policy.parameters, result.training.state.logits)
    assert loaded.schema["algorithm"] == "toy"
    assert uncounted.table(evaluate_run(Request(tmp_path / "run"))) == uncounted.table(result.table)
