"""The benches of our own side, quick: they run, and what they say fits together. No figure is
asserted.
"""

from __future__ import annotations

import json

import pytest

from bench import catalogue, population
from bench.advisor import paired
from bench.harness import Sample
from bench.scaling import points

QUICK = catalogue.Options(quick=True, repeats=1)


LONG = (
    "population",
    "scaling",
    "intrabar",
    "converted",
    "ablation",
    "advisor",
    "monitor",
    "memory",
    "ppo_update",
    "auto_envs",
)


@pytest.fixture(
    params=[
        "rollout",
        "compile",
        "evaluation",
        *(pytest.param(name, marks=pytest.mark.long) for name in LONG),
    ]
)
def result(request):
    return catalogue.run(request.param, QUICK, ["test"], None)


@pytest.mark.slow
def test_a_quick_result(result):
    json.dumps(result, allow_nan=False)
    assert {"bench", "stamp", "config", "sides", "ratios"} <= result.keys()
    for side in result["sides"].values():
        assert side["steps_per_second"] > 0
        assert side["repeats"] >= 1
    if result["bench"] == "compile":
        assert (result["health"]["recompiles"], result["health"]["host_transfers"]) == (0, 0)
    if result["bench"] == "memory":
        assert (
            sum(result["stored_leaves"].values())
            == result["targets"]["stored_bytes_per_step"]["measured"]
        )
    if result["bench"] == "scaling":
        assert "symbols" in result["left_out"]
    if result["bench"] == "auto_envs":
        speeds = {name: side["steps_per_second"] for name, side in result["sides"].items()}
        for name, learner in result["learners"].items():
            fastest = max(speed for side, speed in speeds.items() if side.startswith(f"{name}/"))
            assert learner["share"] == pytest.approx(
                speeds[f"{name}/{learner['chosen']}"] / fastest, rel=1e-3
            )
    if result["bench"] == "ppo_update":
        parts = result["settings"]["small_256"]["parts"]
        assert {"rollout", "learn", "normaliser", "shuffle", "rest"} == parts.keys()


def test_pairs_of_launches_that_differ_have_an_interval_that_says_so():
    def launch(walls):
        return {
            "ours": [Sample(wall, 1.0) for wall in walls],
            "theirs": [Sample(1.0, 1.0)] * len(walls),
        }

    assert paired([launch([0.5, 0.5]), launch([0.5, 0.5])], "ours", "theirs") == {
        "median": 2,
        "pairs": 4,
        "interval": [2, 2],
    }
    found = paired([launch([1.0, 1.0, 1.0]), launch([0.5, 0.5, 0.5])], "ours", "theirs")
    assert (found["median"], found["interval"]) == (1.5, [1, 2])  # six pairs, but two launches


def test_scaling_varies_one_size_at_a_time():
    for name, point in points(quick=False).items():
        key, _, value = name.partition("=")
        assert point[key] == int(value)


def test_runs_in_turn_are_scaled_and_say_so():
    found = population.scaled([Sample(2.0, 3.0), Sample(4.0, 5.0), Sample(3.0, 4.0)], 64)
    assert found == {"measured_runs": 3, "scaled_to": 64, "seconds": 192.0, "cpu_seconds": 256.0}
