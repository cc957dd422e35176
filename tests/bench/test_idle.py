"""What counts as an idle machine, from counters and load averages of the test's own."""

import math
import os

import pytest

from bench import harness, idle
from bench.idle import Ledger, Ticks


def counter(*seen):
    values = iter(seen)
    return lambda: next(values)


def test_the_kernels_line_is_read(tmp_path):
    stat = tmp_path / "stat"
    assert idle.ticks(stat) is None
    #                 user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text(
        "cpu  100  20     30 9000    700   4       5    6    50         1\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    )
    assert idle.ticks(stat) == Ticks(
        busy=100 + 20 + 30 + 4 + 5, stolen=6
    )  # guests are in user and nice already
    stat.write_text("cpu 1 2 3 4 5 6 7\n")  # a kernel from before steal time
    assert idle.ticks(stat) is None


def test_a_system_that_cannot_say_its_load(monkeypatch):
    def unobtainable():
        raise OSError("Load averages are unobtainable")

    monkeypatch.setattr(os, "getloadavg", unobtainable, raising=False)
    assert idle.load() is None
    monkeypatch.delattr(os, "getloadavg")
    assert idle.load() is None


def test_the_share_is_of_the_time_that_was_wanted():
    assert Ticks(98, 2).share == 0.02
    assert Ticks(3, 1).share == 0.0  # a single tick may be rounding
    assert Ticks(0, 0).share == 0.0


def test_the_worst_side_is_named_and_a_comparison_counts_by_itself():
    #                        a: 100 busy, 1 stolen       b: 97, 3 stolen           a again: 50, 0
    ledger = Ledger(
        counter(
            Ticks(0, 0),
            Ticks(100, 1),
            Ticks(100, 1),
            Ticks(197, 4),
            Ticks(300, 4),
            Ticks(350, 4),
            Ticks(400, 5),
            Ticks(440, 10),
        )
    )
    ledger.begin()
    for side in ("a", "b", "a"):
        with ledger.during(side):
            pass
    ledger.begin()
    with ledger.during(
        "a"
    ):  # 40 busy, 5 stolen: 5 of 45, and 6 of 196 together with the comparison before
        pass
    assert ledger.worst() == {"share": 0.111, "side": "a"}
    assert ledger.worst() == {"unknown": idle.UNTIMED}  # forgotten


def test_a_childs_sides_are_taken_over():
    child, parent = Ledger(counter(Ticks(0, 0), Ticks(60, 40))), Ledger(counter())
    child.begin()
    with child.during("theirs"):
        pass
    parent.merge(**child.hand_over())
    parent.merge(**child.hand_over())  # nothing new
    assert parent.worst() == {"share": 0.4, "side": "theirs"}


def test_a_system_without_steal_time_says_so():
    ledger = Ledger(counter(None, None))
    with ledger.during("a"):
        pass
    assert ledger.worst() == {"unknown": idle.UNKNOWN_STEAL}


def test_sides_that_take_turns_are_watched(monkeypatch):
    # two sides, two repeats, in the order a b b a; b loses 10 of 30 ticks in its second turn
    seen = [
        Ticks(0, 0),
        Ticks(10, 0),
        Ticks(10, 0),
        Ticks(20, 0),
        Ticks(20, 0),
        Ticks(30, 10),
        Ticks(30, 10),
        Ticks(40, 10),
    ]
    monkeypatch.setattr(idle, "LEDGER", Ledger(counter(*seen)))
    calls = []

    def work(name):
        return lambda: calls.append(name) or len(calls)

    assert harness.take_turns({"a": work("a"), "b": work("b")}, 2) == {"a": [1, 4], "b": [2, 3]}
    assert idle.LEDGER.worst() == {"share": 0.333, "side": "b"}


@pytest.mark.parametrize(
    ("load", "steal", "expected"),
    [
        (0.3, None, []),
        (None, {"unknown": "no /proc/stat"}, []),
        (
            1.5,
            {"share": 0.0123, "side": "a"},
            ["load average 1.50 at the start", "steal time 1.23 % during a"],
        ),
    ],
)
def test_reasons(load, steal, expected):
    assert idle.reasons(load, steal) == expected


def test_the_next_bench_waits_for_the_load_of_the_last(capsys):
    loads, naps = iter([1.2, 0.7, 0.2]), []
    idle.settle(lambda: next(loads), naps.append)
    assert naps == [idle.NAP, idle.NAP]
    assert capsys.readouterr().err.count("waiting until the load") == 1
    naps.clear()
    idle.settle(
        lambda: 2.0, naps.append, patience=3 * idle.NAP
    )  # another program's: left to the next check
    assert len(naps) == 3
    naps.clear()
    idle.settle(lambda: None, naps.append)
    assert naps == []


def test_the_interval_of_paired_repeats_by_hand():
    """Ratios e, e and 1: logarithms 1, 1, 0 with mean 2/3, deviation 0.5774, and t of 2 degrees of
    freedom 2.92: 2/3 +- 0.9733.
    """
    ours = [harness.Sample(1.0, 2.0)] * 3
    theirs = [harness.Sample(wall, 2.0) for wall in (math.e, math.e, 1.0)]
    found = harness.paired(ours, theirs)
    assert found["cpu_interval"] == [1.0, 1.0]
    expected = [math.exp(2 / 3 - 0.9733), math.exp(2 / 3 + 0.9733)]
    assert found["wall_interval"] == pytest.approx(expected, rel=1e-3)
