"""Strict sums: a run has one hash on any number of devices and processes, also when it goes on in
another layout.
"""

import signal

import pytest

from tests.scale.started import STRICT, ended, free_port, joined, saved, started, trained, until


@pytest.mark.slow
def test_a_stopped_run_goes_on_in_another_layout_to_the_same_hash(cache, alone, tmp_path):
    """Two processes, one of which is killed, then one with four devices."""
    run, port = tmp_path / "run", free_port()
    train = [*STRICT, "--run-dir", str(run)]
    commands = [[*train, "--heartbeat-seconds", "5", *joined(port, i)] for i in range(2)]
    with started(commands, cache) as processes:
        until(lambda: saved(run), processes[0])
        processes[1].send_signal(signal.SIGKILL)
        code, _, err = ended(processes[0])
    assert code == 69, err
    assert not (run / "summary.json").exists()
    assert trained([*train, "--devices", "4"], cache, run) == alone
