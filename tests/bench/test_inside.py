"""The benches of our own side, quick: they run, and what they say fits together. No figure is
asserted.
"""

from __future__ import annotations

import json

import pytest

from bench import catalogue

QUICK = catalogue.Options(quick=True, repeats=1)


@pytest.fixture(
    params=[
        "compile",
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
