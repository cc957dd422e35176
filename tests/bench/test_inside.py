"""The bench of our own compilation, quick: it runs, and what it says fits together. No figure is
asserted.
"""

import json

import pytest

from bench import catalogue


@pytest.mark.slow
def test_a_quick_result():
    quick = catalogue.Options(quick=True, repeats=1)
    result = catalogue.run("compile", quick, ["test"], None)
    json.dumps(result, allow_nan=False)
    assert {"bench", "stamp", "config"} <= result.keys()
    assert (result["health"]["recompiles"], result["health"]["host_transfers"]) == (0, 0)
