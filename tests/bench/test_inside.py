"""The benches of our own side, quick: they run, and what they say fits together. No figure is
asserted.
"""

from __future__ import annotations

import json

import pytest

from bench import catalogue
from bench.advisor import paired
from bench.harness import Sample

QUICK = catalogue.Options(quick=True, repeats=1)


@pytest.fixture(
    params=[
        "compile",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("population", "advisor", "memory")
        ),
    ]
)
def result(request):
    return catalogue.run(request.param, QUICK, ["test"], None)


@pytest.mark.slow
def test_a_quick_result(result):
    json.dumps(result, allow_nan=False)
    assert {"bench", "stamp", "config"} <= result.keys()
    for side in result.get("sides", {}).values():
        assert side["steps_per_second"] > 0
        assert side["repeats"] >= 1
    if result["bench"] == "compile":
        assert (result["health"]["recompiles"], result["health"]["host_transfers"]) == (0, 0)
    if result["bench"] == "memory":
        assert result["bytes"]["stored_bytes_per_step"] == 72
    if result["bench"] == "population":
        assert any("cold, all included" in name for name in result["ratios"])


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
