"""A loss that is not finite, planted: the run goes back to its last checkpoint, and again when it
is resumed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.errors import DivergedError
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import RepeatedPrograms
from jaxtrade.storage.sinks import JsonlSink, read_rows
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from tests.messages import missing
from tests.rl.test_control import KilledError, controller, kept, killer
from tests.rl.test_train import KEY, PARAMS, PPO, TRAIN, Recorder, assert_same, like, timeless

INIT = jax.jit(PPO.init)
PROGRAMS = RepeatedPrograms()  # all runs of this file are the same program


def update(state, params, inputs=None):
    """The reward is NaN in update `at` (counted from 0) of a run that has rolled back less than
    `times` times. params: (parameters, at, times)."""
    inner, at, times = params
    bad = (state.update == at) & (state.rollbacks < times)
    return PPO.update(state, inner.replace(scale=jnp.where(bad, jnp.nan, inner.scale)), inputs)


BROKEN = PPO._replace(init=lambda key, params: PPO.init(key, params[0]), update=update)


def fault(at, times):
    return PARAMS, jnp.int32(at), jnp.int32(times)


def run(directory, params, start=None, **keywords):
    begun = {"key": KEY} if start is None else {"state": start}
    keywords = {"max_rollbacks": 2} | begun | keywords
    keywords |= {"config": TRAIN, "checkpoint_dir": directory, "programs": PROGRAMS}
    return train(BROKEN, params, **keywords)


@pytest.mark.slow
def test_a_run_goes_back_and_on(tmp_path):
    """Checkpoints are after updates 4 and 8; the fault is in the seventh."""
    sink, jsonl = Recorder(), JsonlSink(tmp_path / "metrics.jsonl")
    result = run(tmp_path / "checkpoints", fault(6, 1), sinks=[sink, jsonl])
    state = result.state
    saved = checkpoint.restore(tmp_path / "checkpoints" / "update-00000004", like()).state
    assert (result.updates, int(state.rollbacks), int(saved.rollbacks)) == (8, 1, 0)
    assert_same(state.key, jax.random.fold_in(saved.key, 1))
    rates = state.hparams.learning_rate, state.hparams.learning_rate_end
    np.testing.assert_allclose(rates, [5e-3, 1.5e-5], rtol=1e-6)
    [line] = [text for text in sink.messages if "rolled back" in text]
    assert line.startswith("update 7: ")
    assert not missing(line, "learning rate 0.00", "update 4", "rollback 1 of at most 2")
    for rows in (result.history, read_rows(tmp_path / "metrics.jsonl")):
        assert [row["update"] for row in rows] == list(range(1, 9))
    assert all(row["finite"] for row in result.history)
    # a sink that cannot rewind saw 5 and 6 twice
    assert [rows[0]["update"] for rows in sink.rows] == [1, 3, 5, 5, 7]
    assert result.health["recompiles"] == (True, 0)
    np.testing.assert_allclose(
        result.history[4]["learning_rate"], sink.rows[2][0]["learning_rate"] / 2, rtol=1e-6
    )
    assert result.steps_per_second == pytest.approx(
        12 * 64 / result.history[-1]["seconds"]
    )  # what was undone too


@pytest.mark.slow
def test_killed_after_a_rollback_it_rolls_back_again_to_the_same_bits(tmp_path):
    whole = run(tmp_path / "whole", fault(6, 2))  # two faults from one checkpoint
    assert int(whole.state.rollbacks) == 2
    np.testing.assert_allclose(whole.state.hparams.learning_rate, 1e-2 / 4, rtol=1e-6)

    sixth = []

    def second_time(state, update):
        sixth.append(update == 6)
        return killer(6)(state, update) if sum(sixth) == 2 else Change()

    with pytest.raises(KilledError):
        run(tmp_path / "cut", fault(6, 2), hooks=[second_time])
    restored = checkpoint.restore_latest(tmp_path / "cut", like())
    assert (restored.step, int(restored.state.rollbacks)) == (4, 0)
    resumed = run(tmp_path / "cut", fault(6, 2), restored.state)
    assert_same(resumed.state, whole.state)
    assert timeless(resumed.history) == timeless(whole.history[4:])


@pytest.mark.slow
def test_before_the_first_checkpoint_it_goes_back_to_its_start():
    result = run(None, fault(1, 1))
    assert (result.updates, int(result.state.rollbacks)) == (8, 1)
    assert_same(result.state.key, jax.random.fold_in(INIT(KEY, PARAMS).key, 1))
    assert [row["update"] for row in result.history] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allowed", "often"),
    [
        (0, "learning rate 0.00"),
        (1, "after 1 rollback;"),
        (2, "after 2 rollbacks;"),
    ],
)
def test_too_many_faults_end_the_run(tmp_path, allowed, often):
    sink = Recorder()
    with pytest.raises(DivergedError, match=r"update 7: .*not finite") as raised:
        run(tmp_path, fault(6, 9), max_rollbacks=allowed, sinks=[sink])
    assert often in str(raised.value)
    assert "update-00000004" in str(raised.value)
    assert raised.value.exit_code == 76
    assert sum("rolled back" in text for text in sink.messages) == allowed
    assert kept(tmp_path) == [4]


def test_rollbacks_are_counted_over_the_whole_run(tmp_path):
    """The first is before update 4, the second one after it is one too many."""
    run(tmp_path, fault(1, 1), hooks=[lambda state, update: Change(stop=update == 4)])
    restored = checkpoint.restore_latest(tmp_path, like())
    assert int(restored.state.rollbacks) == 1
    with pytest.raises(DivergedError, match="after 1 rollback;"):
        run(tmp_path, fault(6, 9), restored.state, max_rollbacks=1)


def test_the_memory_of_hooks_goes_back_too(tmp_path):
    """The best score was on the updates that are undone."""
    table = {(2, 0): 1.0, (4, 0): 0.0, (6, 0): 5.0, (6, 1): 0.5, (8, 1): 0.25}
    made = controller(tmp_path / "best", {})
    made.score = lambda state: table[int(state.update), int(state.rollbacks)]
    run(tmp_path / "checkpoints", fault(6, 1), hooks=[made])
    assert made.state.scores == ((2, 1.0), (4, 0.0), (6, 0.5), (8, 0.25))
    assert (made.state.best_update, made.state.since_best) == (2, 3)
    assert kept(tmp_path / "best") == [2]


def test_a_run_may_go_on_whatever_happens():
    """Every agent keeps the parameters of its last finite step."""
    result = run(None, fault(6, 9), max_rollbacks=None)
    assert (result.updates, int(result.state.rollbacks)) == (8, 0)
    assert [row["finite"] for row in result.history] == [True] * 6 + [False, True]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state.params))
