"""Learners on several devices: the same bits in any layout with strict sums, and up to rounding
with plain ones.
"""

import json
import os

import numpy as np
import pytest

from tests.children import run_python
from tests.reading import ROOT

pytestmark = pytest.mark.slow

ENVIRONMENT = {
    "NPROC": "8",
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "8",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of what it does
}


@pytest.fixture(scope="module")
def found():
    """Figures of the cases, of a process with eight devices on this CPU."""
    cases = ("one", "p2", "2xone", "2xp4", "2xs1", "2xs4")
    child = run_python(
        "-m", "tests.scale.layouts", *cases, cwd=ROOT, timeout=900, env=os.environ | ENVIRONMENT
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout)


def close(one, other, rtol=1e-3):
    """The same parameters to 1e-6, and the same metrics."""
    np.testing.assert_allclose(other["parameters"], one["parameters"], rtol=0, atol=1e-6)
    for row, like in zip(other["rows"], one["rows"], strict=True):
        assert row.keys() == like.keys()
        for name, value in like.items():
            np.testing.assert_allclose(
                np.asarray(row[name], float),
                np.asarray(value, float),
                rtol=rtol,
                atol=1e-5,
                err_msg=name,
            )


def test_two_devices_compute_the_update_of_one_and_strict_sums_its_bits(found):
    close(found["one"], found["p2"])
    close(found["2xone"], found["2xs1"])
    assert found["2xs1"] == found["2xs4"]  # state and metrics, to the bit


def test_agents_over_devices(found):
    """Two agents over four devices: each has two."""
    close(found["2xone"], found["2xp4"])
