"""Population-based training through a run: the lineage file, resumption, the winner; and its hook
by itself.
"""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.rl.evolve import replay
from jaxtrade.runs.hooks import LINEAGE, Evolving, LineageSink
from jaxtrade.runs.train import resume, run
from jaxtrade.storage.sinks import read_rows
from tests.reading import read_json
from tests.resuming import cut
from tests.rl.test_train import assert_same

AGENTS = 4
TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "ppo.num_epochs=1",
    "network.hidden=[8]",
    "train.total_timesteps=1536",
    "train.chunk_updates=1",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
    "train.tensorboard=false",
    "monitor.on=false",
    "split.validation_sessions=1",
    f"train.num_seeds={AGENTS}",
    "evolve.keys={ppo.learning_rate: [1e-4, 1e-1], ppo.ent_coef: [1e-3, 1e-1]}",
    "evolve.every=2",
    "env.task=entry",
)


def config():
    return load_config("quickstart", TINY)


# --- the hook ---------------------------------------------------------------------------------------------------------


class Recorded(Evolving):
    """A hook with an event every two chunks of three updates, in a run of 18 updates."""

    def __init__(self, rows, source):
        self._job = SimpleNamespace(
            config=load_config("quickstart", ["train.chunk_updates=3"]),
            setup=SimpleNamespace(plan=SimpleNamespace(total_updates=18)),
            log=str,
        )
        self.every, self.rows, self.source = 2, rows, source

    def scores(self, state):
        return np.array([1.0, 2.0])

    def event(self, state, scores, update):
        return f"{state}+", {"update": update, "event": "exploit", "source": self.source}

    def record(self, row):
        self.rows.append(row)


def test_events_fall_between_chunks_and_not_after_the_last():
    rows = []
    hook = Recorded(rows, [1, 1])
    changes = {update: hook("state", update) for update in (3, 6, 9, 12, 15, 18)}
    assert {
        update: (change.state, change.save) for update, change in changes.items() if change.state
    } == {6: ("state+", True), 12: ("state+", True)}
    assert not any(change.save for change in changes.values() if change.state is None)
    assert [row["update"] for row in rows] == [6, 12]
    assert hook.memory() == {"events": 2, "copies": 2}


def test_an_event_that_replaces_nobody_changes_nothing():
    rows = []
    assert Recorded(rows, [0, 1])("state", 6).state is None
    assert len(rows) == 1


def test_the_file_forgets_what_was_undone_and_repeats_nothing(tmp_path):
    sink = LineageSink(tmp_path)
    for update in (2, 4, 6):
        sink.record({"update": update, "event": "exploit", "scores": [1.0, float("nan")]})
    sink.write([{"update": 7}])  # metrics
    sink.rewind(5, 0)
    sink.record({"update": 4, "event": "exploit", "scores": []})
    sink.close()
    rows = read_rows(tmp_path / LINEAGE)
    assert [(row["update"], row["scores"]) for row in rows] == [(2, [1.0, None]), (4, [1.0, None])]
    LineageSink(tmp_path, resume_update=3).close()
    assert [row["update"] for row in read_rows(tmp_path / LINEAGE)] == [2]


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "evolved"
    return SimpleNamespace(path=path, state=run(config(), path).training.state)


@pytest.mark.slow
def test_every_decision_follows_from_the_file(evolved):
    """And the file's winner is that of the summary, whose policy is saved."""
    rows = read_rows(evolved.path / LINEAGE)
    assert [(row["update"], row["event"]) for row in rows] == [
        (2, "exploit"),
        (4, "exploit"),
        (6, "final"),
    ]
    summary = read_json(evolved.path / "summary.json")["evolution"]
    winner = replay(rows, load_config(str(evolved.path / "config.yaml")))
    assert winner == summary["winner"] == int(np.argmax(summary["scores"]))
    assert (summary["events"], summary["copies"]) == (
        2,
        sum(source != i for row in rows[:2] for i, source in enumerate(row["source"])),
    )
    own = load_policy(evolved.path / f"policy/seed_{winner}").policy.parameters
    assert_same(load_policy(evolved.path / "policy_winner").policy.parameters, own)
    np.testing.assert_array_equal(
        evolved.state.hparams.ent_coef, np.float32(rows[1]["after"]["ent_coef"])
    )
    assert rows[1]["before"] == rows[0]["after"]
    assert len(set(rows[0]["before"]["ent_coef"])) == AGENTS
    rate = float(evolved.state.hparams.learning_rate[winner])
    assert summary["winner_settings"]["learning_rate"] == pytest.approx(rate)


@pytest.mark.slow
def test_it_resumes_to_the_same_bits(evolved, tmp_path):
    """Stopped after update 3: the later rows of the file, which the copy has, are written again."""
    path = cut(evolved.path, tmp_path / "cut", 3)
    again = resume(path)
    assert_same(
        jax.tree.map(np.asarray, again.training.state.params),
        jax.tree.map(np.asarray, evolved.state.params),
    )
    assert_same(again.training.state.hparams, evolved.state.hparams)
    assert (path / LINEAGE).read_bytes() == (evolved.path / LINEAGE).read_bytes()
