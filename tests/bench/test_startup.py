"""How long a start takes: what is started, and one quick run."""

import subprocess

import pytest

from bench import startup
from bench.catalogue import Options


@pytest.mark.slow
def test_a_quick_run_has_every_side():
    """CPU time of one start may be below the clock's tick, so the wall clock is compared: importing
    takes time.
    """
    found = startup.run(Options(quick=True, repeats=2))
    assert list(found["start"]) == [startup.EMPTY, startup.IMPORT, startup.HELP]
    assert all(0 < side["seconds"] < 60 for side in found["start"].values())
    seconds = {name: side["seconds"] for name, side in found["start"].items()}
    assert found["times_an_empty_python"][startup.HELP] == pytest.approx(
        seconds[startup.HELP] / seconds[startup.EMPTY], rel=1e-3
    )


def test_a_start_that_fails_is_no_measurement():
    with pytest.raises(subprocess.CalledProcessError):
        startup.start(("-c", "import sys; sys.exit(3)"), 1)
