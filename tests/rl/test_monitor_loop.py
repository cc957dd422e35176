"""The training loop and the rows of ended episodes: what is rolled back is not written, and rows
are no metrics.
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import TrainConfig
from jaxtrade.errors import DivergedError
from jaxtrade.evaluation.frames import read_episodes
from jaxtrade.storage.monitor import COLUMNS, ROWS, MonitorSink
from jaxtrade.training.loop import train
from jaxtrade.types import Learner, LearnerInfo

FAULT = 5  # the update that is not finite, until the run has gone back once


class Counting(struct.PyTreeNode):
    key: jax.Array
    update: jax.Array
    total_updates: jax.Array
    rollbacks: jax.Array
    hparams: None = None


def make(cured):
    """A learner without an environment. In each update two episodes end; their reward tells the
    update and whether the run has gone back, their length the place of the row."""

    def init(key, params):
        del params
        return Counting(key, jnp.int32(0), jnp.int32(8), jnp.int32(0))

    def update(state, params, inputs=None):
        del params, inputs
        number = state.update + 1
        rows = (
            jnp.zeros((3, len(COLUMNS) + 1))
            .at[:2, 0]
            .set(number + 100 * state.rollbacks)
            .at[:2, 1]
            .set(jnp.array([1.0, 2.0]))
        )
        finite = (number != FAULT) | (cured & (state.rollbacks > 0))
        return state.replace(update=number), {"finite": finite, ROWS: rows}

    return Learner(init, update, lambda *_: None, lambda state: state, LearnerInfo(10))  # type: ignore[arg-type]


CONFIG = TrainConfig(total_timesteps=80, chunk_updates=2, checkpoint_every=1)


def trained(folder, cured, config=CONFIG, **keywords):
    """(the run, or what ended it, and its monitor file)"""
    sink, key = MonitorSink(folder / "monitor.csv", "none", ("ES",)), jax.random.key(0)
    try:
        result = train(make(cured), None, config=config, key=key, sinks=[sink], **keywords)
    except DivergedError as error:
        result = error
    sink.close()
    return result, read_episodes(folder / "monitor.csv")


def twice(updates):
    return [update for update in updates for _ in range(2)]


def test_a_rollback_leaves_the_rows_of_the_run_that_went_on(tmp_path):
    """Chunks of two updates, a fault in update 5: updates 5 to 8 are of the second try, and no row
    is there twice.
    """
    folder = tmp_path / "checkpoints"
    result, frame = trained(tmp_path, True, checkpoint_dir=folder, max_rollbacks=1)
    assert frame["update"].tolist() == twice(range(1, 9))
    assert frame["r"].tolist() == twice([1, 2, 3, 4, 105, 106, 107, 108])
    assert frame["l"].tolist() == [1, 2] * 8
    assert all(ROWS not in row for row in result.history)


def test_a_run_that_diverges_writes_its_last_chunk_once(tmp_path):
    error, frame = trained(tmp_path, False, max_rollbacks=0)
    assert isinstance(error, DivergedError)
    assert frame["update"].tolist() == twice(range(1, 7))


def test_two_agents_are_told_apart(tmp_path):
    short = CONFIG.model_copy(update={"total_timesteps": 40})
    _, frame = trained(tmp_path, False, short, num_seeds=2, max_rollbacks=None)
    assert frame["agent"].tolist() == [0, 0, 1, 1] * 8


def test_without_a_sink_that_takes_them_nothing_happens():
    trained = train(make(cured=True), None, config=CONFIG, key=jax.random.key(0), max_rollbacks=1)
    assert [row["update"] for row in trained.history] == list(range(1, 9))
