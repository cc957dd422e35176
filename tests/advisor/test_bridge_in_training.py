"""A bridge in the real training loop, by callback: rolled back, killed, resumed, and replayed to
the same bits.
"""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxtrade.advisor.bridge import Bridge, exchange
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.table import AdviceTable, demand, empty_table, write_delta
from jaxtrade.config import TrainConfig
from jaxtrade.training.loop import train
from jaxtrade.types import Learner, LearnerInfo
from tests.advisor.bridge_parts import HandSource, M, T, journal, replaying, row

UPDATES, CHUNK = 24, 2
CONFIG = TrainConfig(
    total_timesteps=UPDATES,
    chunk_updates=CHUNK,
    checkpoint_every=2,
    keep_checkpoints=100,
    tensorboard=False,
)


class State(struct.PyTreeNode):
    """The least that the loop needs, a table, and a number that depends on all that was seen, and
    when.
    """

    update: jax.Array
    total_updates: jax.Array
    rollbacks: jax.Array
    key: jax.Array
    table: AdviceTable
    learned: jax.Array
    hparams: None = None


def learner(bridge, faults):
    """Learns from the table; its loss is not finite at (update, rollbacks so far) in `faults`."""
    ask, bad = exchange(bridge), jnp.array(faults).reshape(-1, 2)

    def init(key, params):
        return State(
            jnp.int32(0),
            jnp.int32(UPDATES),
            jnp.int32(0),
            key,
            empty_table(T),
            jnp.float32(0),
        )

    def update(state, params, inputs):
        key, draw = jax.random.split(state.key)
        want = jax.random.uniform(draw, (T,))
        bars, weights = demand(want, jnp.ones(T, bool), state.table.version, 8)
        table = write_delta(state.table, ask(state.update, bars, weights))
        seen = (table.rows.sum(axis=1) * table.version * want).sum()
        fails = ((bad[:, 0] == state.update) & (bad[:, 1] == state.rollbacks)).any()
        learned = jnp.sin(state.learned + seen)
        return (
            state.replace(update=state.update + 1, key=key, table=table, learned=learned),
            {"finite": ~fails, "learned": learned},
        )

    return Learner(init, update, None, None, LearnerInfo(1))


class Whimsical(HandSource):
    """Answers some of what was wanted, some time later, by a seed of its own: no two runs are
    alike.
    """

    def __init__(self, seed):
        super().__init__()
        self.rng = random.Random(seed)

    def want(self, wants):
        super().want(wants)
        for bar, _ in wants:
            if self.rng.random() < 0.2 and all(known.bar != bar for known in self.rows):
                self.rows.append(row(bar, self.rng.random()))

    def take(self, deltas, most):
        return super().take(deltas, self.rng.choice([0, 1, most]))


def run(folder, bridge, faults=((8, 0), (15, 1), (14, 2))):
    result = train(
        learner(bridge, faults),
        (),
        config=CONFIG,
        checkpoint_dir=folder / "checkpoints",
        hooks=[bridge],
        max_rollbacks=3,
        key=jax.random.key(0),
    )
    assert bridge.statistics()["contained"] == {}
    bridge.stop()
    return result, bridge


def bits(result):
    state = result.state.replace(key=jax.random.key_data(result.state.key))
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.slow
def test_a_run_with_rollbacks_replays_to_the_same_bits(tmp_path):
    live, bridge = run(tmp_path / "a", Bridge(Whimsical(1), T, M, journal(tmp_path)))
    assert int(live.state.rollbacks) == 3
    assert live.state.table.newest == bridge.version > 5
    again, replay = run(tmp_path / "b", replaying(read_journal(tmp_path / "journal.jsonl")))
    assert bits(again) == bits(live)
    other, _ = run(tmp_path / "c", Bridge(Whimsical(2), T, M))
    assert bits(other) != bits(live)  # what came when makes a difference
    assert replay.version == bridge.version
    replay(None, 0)
