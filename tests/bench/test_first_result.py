"""From clone to table: the phases of a run as they are read from its lines. CI runs the bench
itself.
"""

import itertools

import pytest

from bench import first_result
from jaxtrade.errors import DataError
from tests.messages import refused

LINES = (
    "loading: JAX\n",
    "bars: bundled ES bars\n",
    "compiling: the training program\n",
    "compiling: 10.0 s\n",
    "training: 1,024,000 steps\n",
    "update 1/2\n",
    "evaluating: 6 agents\n",
    "  net profit ($) 0.00\n",
)


def test_phases_last_from_their_first_line_to_the_next():
    """The clock is read at the start, at the first line of each phase, and at the end."""
    times = iter([0.0, 1.5, 4.0, 14.0, 24.0, 25.0])
    found = first_result.phases(LINES, lambda: next(times))
    assert found == {
        "starting": 1.5,
        "loading": 2.5,
        "compiling": 10.0,
        "training": 10.0,
        "evaluating": 1.0,
    }


@pytest.mark.parametrize("name", first_result.PHASES)
def test_a_phase_that_is_not_announced_is_an_error(name):
    lines = [line for line in LINES if not line.startswith(f"{name}:")]
    with refused(f"begins with '{name}:'", kind=DataError):
        first_result.phases(lines, itertools.count().__next__)


def test_it_measures_the_readme_s_first_command():
    text = " ".join((first_result.ROOT / "README.md").read_text().replace("\\\n", "").split())
    runs = " && ".join(f".venv/bin/{first_result.TRAIN} {run}" for run in first_result.RUNS)
    assert f"{first_result.VENV} .venv && .venv/bin/{first_result.INSTALL} && {runs}" in text
