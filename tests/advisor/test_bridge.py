"""The bridge: what is visible at an update is decided once, recorded first, and the same ever
after.
"""

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.host import journal as journals
from jaxtrade.advisor.host.journal import Journal, JournalDelta, LoadedJournal, read_journal
from jaxtrade.advisor.host.service import AdviceSource
from jaxtrade.errors import JournalError
from tests.advisor.asking import SOON
from tests.advisor.bridge_parts import (
    FullDisk,
    HandSource,
    M,
    T,
    journal,
    plain,
    replaying,
    row,
    seen,
)
from tests.children import run_python
from tests.messages import missing

ROOT = Path(__file__).parents[2]


def test_rows_come_padded_with_versions_that_rise_by_one():
    source = HandSource([row(7, 0.5)])
    bridge = Bridge(source, T, M)
    assert plain(bridge.delta(0)) == (1, {7: [*row(7, 0.5).values]})
    assert plain(bridge.delta(1)) == (0, {})
    source.rows.extend(row(bar) for bar in range(6))
    assert [(version, sorted(rows)) for version, rows in seen(bridge, [2, 3, 4])] == [
        (2, [0, 1, 2, 3]),
        (3, [4, 5]),
        (0, []),
    ]
    assert bridge.version == 3


def test_what_was_handed_out_is_never_touched_again():
    """A device that changes what it reads in place is not the bridge's business: it keeps its
    own.
    """
    bridge = Bridge(HandSource([row(1), row(2)]), T, M)
    first = bridge.delta(0)
    kept = first.rows.copy()
    first.rows[:] = -1.0
    again = bridge.delta(0)
    assert np.array_equal(again.rows, kept)
    assert not np.shares_memory(again.rows, bridge.delta(0).rows)


def test_a_row_is_in_the_journal_before_it_is_visible(tmp_path, monkeypatch):
    bridge = Bridge(HandSource([row(3)]), T, M, journal(tmp_path))
    padded, order = Bridge._pad, []

    def looks(self, found):
        order.append(len(read_journal(tmp_path / "journal.jsonl").deltas))
        return padded(self, found)  # type: ignore[arg-type]

    monkeypatch.setattr(Bridge, "_pad", looks)
    bridge.delta(0)
    assert order == [1]
    recorded = read_journal(tmp_path / "journal.jsonl").deltas[0]
    assert recorded == JournalDelta(0, 1, (3,), (row(3).values,))


def test_without_a_record_no_more_advice_is_given(tmp_path):
    reported = []
    source, written = HandSource([row(1)]), journal(tmp_path)
    bridge = Bridge(source, T, M, written, log=reported.append)
    first = plain(bridge.delta(0))
    written._file = FullDisk(written._file)  # type: ignore[assignment]
    source.rows.extend([row(2), row(3)])
    assert seen(bridge, [1, 2, 3]) == [(0, {})] * 3
    [line] = reported
    assert not missing(line, "journal", "No space left")
    counts = bridge.statistics()
    assert (counts["rows_handed_out"], counts["rows_lost"], bool(counts["silent"])) == (1, 2, True)
    bridge.recall({**bridge.memory(), "deltas": 0, "sha256": bridge._visible._digests[0]})
    assert seen(bridge, [0, 1]) == [first, (0, {})]  # what the journal has comes again
    bridge.stop()
    assert len(read_journal(tmp_path / "journal.jsonl").deltas) == 1


def test_a_journal_that_cannot_be_synced_ends_the_advice(tmp_path, monkeypatch):
    def broken(fd):
        raise OSError(5, "Input/output error")

    reported = []
    bridge = Bridge(HandSource([row(1)]), T, M, journal(tmp_path), log=reported.append)
    monkeypatch.setattr(journals.os, "fsync", broken)
    assert bridge.memory()["deltas"] == 0
    assert plain(bridge.delta(0)) == (0, {})
    [line] = reported
    assert "Input/output error" in line


def test_a_replay_equals_the_recording_through_rollbacks(tmp_path):
    """Updates as a run makes them. A rollback to the last memory shows the same rows again; the
    same calls of the replay see the same.
    """
    rng, source, calls = random.Random(3), HandSource(), []
    live = Bridge(source, T, M, journal(tmp_path))
    shown, memories, at = [], [], 0
    for update in range(200):
        if update % 10 == 0:
            memories.append(json.loads(json.dumps(live.memory())))
            calls.append(("memory", 0))
            at = update
        bars = rng.sample(range(T), rng.choice([0, 0, 1, 3]))
        source.rows.extend(row(bar, rng.random()) for bar in bars)
        calls.append(("delta", update))
        shown.append(plain(live.delta(update)))
        if rng.random() < 0.03:
            live.recall(memories[-1])
            calls.append(("recall", 0))
            calls += [("delta", again) for again in range(at, update + 1)]
            repeated = seen(live, range(at, update + 1))
            assert repeated == shown[-len(repeated) :]
            shown += repeated
    assert calls.count(("recall", 0)) > 2
    live.stop()
    replay = replaying(read_journal(tmp_path / "journal.jsonl"))
    shown_again = []
    for kind, update in calls:
        if kind == "memory":
            memories.append(replay.memory())
        elif kind == "recall":
            replay.recall(memories[-1])
        else:
            shown_again.append(plain(replay.delta(update)))
    assert shown_again == shown
    assert replay.version > 50
    replay(None, 0)
    replay.stop()


def resumed(folder, source, memory):
    again, recorded = Journal.resume(folder / "journal.jsonl")
    bridge = Bridge(source, T, M, again, recorded)
    bridge.recall(memory)
    return bridge


def test_a_killed_run_goes_on_as_it_was(tmp_path):
    source = HandSource([row(1)])
    killed = Bridge(source, T, M, journal(tmp_path))
    killed.request(np.array([1, 2]), np.array([1.0, 2.5], np.float32))
    seen(killed, range(3))
    memory = json.loads(json.dumps(killed.memory()))
    source.rows.append(row(5))
    after = seen(killed, [3, 4])
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"bars":[')  # killed while it wrote
    other = HandSource([row(8)])
    bridge = resumed(tmp_path, other, memory)
    assert bridge.version == 1
    assert other.wants == [[(1, 1.0), (2, 2.5)]]  # the bars in flight
    bridge.request(np.array([5, 6]), np.array([1.0, 1.0]))
    assert other.wants[-1] == [(6, 1.0)]  # bar 5 will be seen again: it is not asked again
    assert seen(bridge, [3, 4]) == [
        after[0],
        (2 + 1, {8: [*row(8).values]}),
    ]  # update 4 had not been recorded
    bridge.stop()
    assert [delta.update for delta in read_journal(tmp_path / "journal.jsonl").deltas] == [0, 3, 4]


def test_a_checkpoint_of_another_or_a_longer_journal_is_refused(tmp_path):
    bridge = Bridge(HandSource([row(1)]), T, M, journal(tmp_path))
    seen(bridge, [0])
    memory = bridge.memory()
    bridge.stop()
    with pytest.raises(JournalError, match=r"line 2 \(delta 1\) "):
        resumed(tmp_path, HandSource(), {**memory, "sha256": "0" * 64})
    with pytest.raises(JournalError, match=r"line 3 \(delta 2\) is missing.* knows 2 deltas"):
        resumed(tmp_path, HandSource(), {**memory, "deltas": 2})
    with pytest.raises(ValueError, match=r"1 deltas.* of 0"):
        Bridge(HandSource(), T, M, Journal.resume(tmp_path / "journal.jsonl")[0])


@pytest.mark.parametrize("updates", [[0, 5], [1]])
def test_a_replay_with_other_updates_is_loud(updates):
    """Update 0 and 3 have rows: to leave one out is another run."""
    reported = []
    deltas = [
        JournalDelta(0, 1, (1,), (row(1).values,)),
        JournalDelta(3, 2, (2,), (row(2).values,)),
    ]
    last = journals.JournalPosition(2, "b")
    recorded = LoadedJournal({}, tuple(deltas), last, (), ("", "a", "b"))
    bridge = replaying(recorded, log=reported.append)
    assert seen(bridge, updates)[-1] == (0, {})
    assert len(reported) == 1
    with pytest.raises(JournalError, match=r"delta \d .* update \d"):
        bridge(None, 5)


@pytest.mark.parametrize(
    ("bars", "values", "why"),
    [
        (range(M + 1), row(0).values, "advisor.rows = 4"),
        ([T], row(0).values, f"bars {T} to {T}"),
        ([1], (1.0, 2.0), "rows of 2 numbers"),
    ],
)
def test_a_recording_that_does_not_fit_is_refused(bars, values, why):
    delta = JournalDelta(0, 1, tuple(bars), (values,) * len(bars))
    recorded = LoadedJournal({}, (delta,), journals.JournalPosition(1, "a"), (), ("", "a"))
    with pytest.raises(JournalError, match=why):
        Bridge(AdviceSource(), T, M, history=recorded)


def test_only_wants_that_mean_something_go_on():
    source = HandSource()
    bridge = Bridge(source, T, M)
    bars = np.array([3, 4, 5, 6, -1, T, 7, 8])
    weights = np.array([1.0, 0.0, -2.0, np.nan, 1.0, 1.0, np.inf, 0.5], np.float32)
    bridge.request(bars, weights)
    bars[:] = 0
    bridge.request(bars[:0], weights[:0])
    assert source.wants == [[(3, 1.0), (8, 0.5)], []]  # empty, too: questions expire by calls


class Raising(HandSource):
    """Whose methods raise."""

    def take(self, deltas, most):
        raise RuntimeError("sk-CANARY")

    def want(self, wants):
        raise KeyError("sk-CANARY")


def test_nothing_is_raised_into_the_loop():
    reported = []
    bridge = Bridge(Raising(), T, M, log=reported.append)
    for update in range(3):
        assert plain(bridge.delta(update)) == (0, {})
        bridge.request(np.array([1]), np.array([1.0]))
    bridge.request("no array", None)
    counts = bridge.statistics()["contained"]
    assert (counts["delta RuntimeError"], counts["wanted KeyError"]) == (3, 3)
    assert len(reported) == len(counts)
    assert "CANARY" not in str(reported)


def test_statistics():
    bridge = Bridge(HandSource([row(1), row(2)]), T, M)
    seen(bridge, range(10))
    counts = bridge.statistics()
    assert (counts["exchanges"], counts["rows_handed_out"], counts["deltas"]) == (10, 2, 1)
    stall = counts["stall_ms"]["delta"]
    assert stall["calls"] == 10
    assert 0 < stall["p50"] <= stall["p99"]
    json.dumps(counts)


def test_stopping_twice_ends_the_journal_once(tmp_path):
    source = HandSource([row(1)])
    bridge = Bridge(source, T, M, journal(tmp_path))
    bridge.stop()
    bridge.stop()
    assert (source.stops, plain(bridge.delta(0))) == (1, (0, {}))
    assert read_journal(tmp_path / "journal.jsonl").notes == ()


_NO_JAX = """
import jax, jax.numpy as jnp, numpy as np
from jax.extend.core import Primitive
def bind(*_, **__):
    raise AssertionError("a JAX operation")
Primitive.bind = bind
jax.device_put = bind
from jaxtrade.advisor.bridge import Bridge
from tests.advisor.bridge_parts import HandSource, row
bridge = Bridge(HandSource([row(1), row(2)]), 100, 4)
memory = bridge.memory()
answering = bridge.answer
for update in range(4):
    bars, rows, version = answering(np.int32(update), np.arange(3, dtype=np.int32), np.ones(3, np.float32))
    assert type(bars) is type(rows) is type(version) is np.ndarray
bridge.recall(memory)
assert int(bridge.delta(0).version) == 1
counts = bridge.statistics()
bridge.stop()
assert counts["contained"] == {}, counts
try:
    jnp.arange(3) + jnp.ones(3)
except AssertionError:
    print("sound")
"""


@pytest.mark.slow
def test_no_jax_operation_runs_in_the_loop():
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = run_python("-c", _NO_JAX, cwd=ROOT, timeout=120, env=env)
    assert (done.returncode, done.stdout.strip()) == (0, "sound"), done.stderr


def test_stop_does_not_wait_for_an_exchange_that_hangs(tmp_path):
    reported = []
    bridge = Bridge(HandSource(), T, M, journal(tmp_path), log=reported.append)
    with bridge._handing:
        began = time.monotonic()
        bridge.stop()
        assert time.monotonic() - began < SOON
    assert len(reported) == len(read_journal(tmp_path / "journal.jsonl").notes) == 1
