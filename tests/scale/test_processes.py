"""Two real processes of one run: together to the end, with one killed, with one asked to stop, and
under fake SLURM.
"""

import json
import signal

import pytest

from tests.messages import missing
from tests.scale.started import (
    TRAIN,
    ended,
    free_port,
    joined,
    saved,
    started,
    trained,
    until,
)

pytestmark = pytest.mark.slow


def test_a_signal_to_one_process_stops_both_at_one_border(cache, tmp_path, uninterrupted):
    run, port = tmp_path / "run", free_port()
    with started(
        [[*TRAIN, "--run-dir", str(run), *joined(port, i)] for i in range(2)], cache
    ) as processes:
        until(lambda: saved(run), processes[0])
        processes[1].send_signal(signal.SIGTERM)
        ends = [ended(process, 60.0) for process in processes]
    assert [code for code, _, _ in ends] == [75, 75]
    stops = [err.splitlines()[-1] for _, _, err in ends]
    assert stops[0] == stops[1]
    assert stops[0].startswith("error: SIGTERM: ")
    command = ["launch", "local", "-n", "2", "--", *TRAIN, "--run-dir", str(run)]
    assert trained(command, cache, run) == uninterrupted
    assert "resumed after update" in (run / "run.log").read_text()


@pytest.mark.parametrize(("devices", "verdict"), [((2, 2), "OK"), ((3, 1), "FAIL")])
def test_the_doctor_joins_both_processes_and_counts_their_devices(devices, verdict, cache):
    port = free_port()
    doctor = ("doctor", "--distributed", "--json", "--join-seconds", "60")
    env = [{"JAX_NUM_CPU_DEVICES": str(count)} for count in devices]
    with started([[*doctor, *joined(port, i)] for i in range(2)], cache, env) as processes:
        ends = [ended(process) for process in processes]
    for i, (code, out, err) in enumerate(ends):
        layout, joining = json.loads(out)["findings"]
        assert layout["measured"] == f"process {i} of 2, coordinator 127.0.0.1:{port} (flags)"
        assert (code, joining["verdict"]) == (verdict == "FAIL", verdict), out + err
        assert str(list(devices)) in joining["measured"]


def test_processes_that_do_not_meet_say_so(cache, tmp_path):
    port = free_port()
    commands = [
        [*TRAIN, "--run-dir", str(tmp_path / "run"), *joined(port, 1), "--join-seconds", "1"],
        ["doctor", "--distributed", *joined(port, 1), "--join-seconds", "1"],
    ]
    with started(commands, cache) as processes:
        (train, _, err), (doctor, out, _) = (ended(process) for process in processes)
    assert train == 69
    assert not missing(
        err.splitlines()[-1],
        "error: process 1 of 2, ",
        f"127.0.0.1:{port} (flags)",
        "within 1 s",
    )
    assert not (tmp_path / "run").exists()
    assert doctor == 1
    assert not missing(out, f"127.0.0.1:{port} (flags)", "within 1 s")
