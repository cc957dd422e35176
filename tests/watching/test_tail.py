"""Reading a metrics file while a run writes it, and curves of bounded size."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.watching import metrics as reading
from jaxtrade.watching.metrics import Curve, Metrics, Tail


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_rows_are_read_once_and_half_a_line_when_it_is_whole(tmp_path):
    path = tmp_path / "metrics.jsonl"
    found = Tail(path)
    assert found.read() == []
    path.write_text(lines({"update": 1}) + '{"upd')
    assert found.read() == [{"update": 1}]
    assert found.read() == []
    with path.open("a") as file:
        file.write('ate": 2}\n')
    assert found.read() == [{"update": 2}]
    assert found.generation == 0


def test_a_file_that_is_cut_is_read_from_its_start(tmp_path):
    """One that is replaced too (test_a_rollback_takes_its_rows_out_of_the_curves)."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines({"update": 1}, {"update": 2}, {"update": 3}))
    found = Tail(path)
    assert len(found.read()) == 3
    path.write_text(lines({"update": 1}))
    assert [row["update"] for row in found.read()] == [1]
    assert found.generation == 1


def test_a_torn_line_in_the_middle_is_passed_over(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1}\n{"upda{"update": 2}\n[3]\n{"update": 4}\n')
    assert [row["update"] for row in Tail(path).read()] == [1, 4]


def test_pieces_are_small_and_long_lines_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 40)
    path = tmp_path / "metrics.jsonl"
    rows = [{"update": i, "text": "x" * (100 if i == 2 else 1)} for i in range(6)]
    path.write_text(lines(*rows))
    found, seen, calls = Tail(path), [], 0
    while piece := found.read():
        seen, calls = seen + piece, calls + 1
    assert seen == rows
    assert calls > 2


def test_a_file_that_may_not_be_read_is_a_fault_until_it_may(tmp_path, monkeypatch):
    """The rights are played: root, as whom tests may run, can read everything."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(lines({"update": 1, "loss": 0.5}))
    metrics = Metrics(tmp_path)

    def refuse(*args):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as closed:
        closed.setattr(Path, "open", refuse)
        assert not metrics.poll()
        assert metrics.fault == "metrics.jsonl: Permission denied"
    assert metrics.poll()
    assert (metrics.fault, metrics.rows) == (None, 1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(2, 12))
def test_a_thinned_curve_keeps_extremes_means_and_counts(values, points):
    curve = Curve(points)
    curve.add((float(i), value, value, value) for i, value in enumerate(values))
    shown = curve.to_lists()
    assert len(shown["update"]) <= points
    assert shown["width"] >= len(values) / points
    assert shown["update"] == [float(i) for i in range(0, len(values), shown["width"])]
    assert max(shown["high"]) == pytest.approx(max(values), rel=1e-5, abs=1e-9)
    assert min(shown["low"]) == pytest.approx(min(values), rel=1e-5, abs=1e-9)
    for i, mean in enumerate(shown["mean"]):
        part = values[i * shown["width"] : (i + 1) * shown["width"]]
        assert mean == pytest.approx(math.fsum(part) / len(part), rel=1e-5, abs=1e-4)


def test_a_reader_gets_what_it_lacks():
    curve = Curve(4)
    curve.add((float(i), i, i, i) for i in range(3))
    assert curve.to_lists()["update"] == [0, 1, 2]
    assert (curve.to_lists(1, 2)["start"], curve.to_lists(1, 2)["update"]) == (1, [1, 2])
    curve.add((float(i), i, i, i) for i in range(3, 6))  # the width doubles: every entry is new
    again = curve.to_lists(1, 3)
    assert (again["width"], again["start"], again["update"]) == (2, 0, [0, 2, 4])


def test_agents_are_a_band_and_lists_are_curves_by_name(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        lines(
            {
                "update": 1,
                "total_updates": 9,
                "steps": 10,
                "episode_reward": 2.0,
                "episode_reward/each": [1.0, None, 3.0],
                "action_share": {"HOLD": 0.5},
                "action_share/each": [{"HOLD": 0.25}, {"HOLD": 0.75}],
                "finite": True,
                "kl": None,
            },
            {"update": 2, "episode_reward": 4.0},
        )
    )
    metrics = Metrics(tmp_path)
    assert metrics.poll()
    assert not metrics.poll()
    assert set(metrics.curves) == {"episode_reward", "action_share.HOLD"}
    shown = metrics.curves["episode_reward"].to_lists()
    assert (shown["mean"], shown["low"], shown["high"]) == ([2.0, 4.0], [1.0, 4.0], [3.0, 4.0])
    band = metrics.curves["action_share.HOLD"].to_lists()
    assert (band["low"], band["high"]) == ([0.25], [0.75])
    assert metrics.last == {"update": 2, "episode_reward": 4.0}
    assert metrics.share_read == 1.0


def test_a_rollback_takes_its_rows_out_of_the_curves(tmp_path):
    path, new = tmp_path / "metrics.jsonl", tmp_path / "new"
    path.write_text(lines({"update": 1, "loss": 1.0}, {"update": 2, "loss": 99.0}))
    metrics = Metrics(tmp_path)
    metrics.poll()
    before = metrics.version
    new.write_text(lines({"update": 1, "loss": 1.0}))
    new.replace(path)
    metrics.poll()
    assert metrics.version != before
    assert metrics.curves["loss"].to_lists()["high"] == [1.0]
