"""What this process would join for a run of several processes, and whether that works: `doctor
--distributed`.

The processes meet in child processes, so a failure of JAX, which ends a process, becomes a finding.
"""

from __future__ import annotations

import socket
import time

from jaxtrade.doctor.child import ChildResult, run_child
from jaxtrade.doctor.finding import Finding, fail, ok
from jaxtrade.doctor.report import exit_code, to_json, to_text
from jaxtrade.runs.processes import Layout
from jaxtrade.text import several

SLACK_S = 60.0  # for loading JAX, and for the sum over all devices
# The sum is over 1, 2, ..., n for the n devices of all processes, so a missing one shows.
PROGRAM = """
import json, sys
from jaxtrade.errors import JaxtradeError
from jaxtrade.runs.joining import join
from jaxtrade.runs.processes import Layout
from jaxtrade.text import several
try:
    join(LAYOUT, timeout=SECONDS)
except JaxtradeError as error:
    sys.exit(f"error: {error}")
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
count = jax.device_count()
mesh = jax.make_mesh((count,), ("all",), axis_types=(AxisType.Auto,))
spread = NamedSharding(mesh, PartitionSpec("all"))
numbers = jax.make_array_from_callback((count,), spread, lambda at: np.arange(1, count + 1, dtype=np.int32)[at])
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(numbers)
found = {"processes": jax.process_count(), "sum": int(total), "kind": jax.local_devices()[0].device_kind,
         "devices": [sum(d.process_index == i for d in jax.devices()) for i in range(jax.process_count())]}
jax.distributed.shutdown()
print(json.dumps(found))
"""


def diagnose(layout: Layout, seconds: int) -> list[Finding]:
    """The findings about a layout: where it comes from, whether process 0 answers, the devices, and
    a sum over them.

    seconds: how long processes wait for each other.
    """
    findings = [ok("layout", str(layout))]
    program = PROGRAM.replace("LAYOUT", repr(layout)).replace("SECONDS", str(seconds))
    if not layout.alone and layout.coordinator is not None and layout.process_id > 0:
        findings.append(_answers(layout.coordinator, seconds))
        if findings[-1].fix:
            return findings
    return [*findings, *_together(run_child(program, seconds + SLACK_S))]


def _together(result: ChildResult) -> list[Finding]:
    """The findings about the processes once they have met, or about why they did not."""
    if result.end != "ok":
        said = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        cause = said[-1].removeprefix("error: ") if said else result.cause
        return [
            fail(
                "joining",
                cause,
                "start all processes with the same number and coordinator, and look at the "
                "output of the others (docs/distributed.md)",
            )
        ]
    found = result.values
    devices, total = found["devices"], sum(found["devices"])
    counts = ", ".join(f"{i}: {count}" for i, count in enumerate(devices))
    expected = total * (total + 1) // 2
    named = ok("devices", f"{total} ({found['kind']}), by process {counts}")
    if len(set(devices)) > 1:
        named = fail("devices", f"by process {counts}", "give every process equally many devices")
    processes = "1 process" if found["processes"] == 1 else f"{found['processes']} processes"
    summed = ok(
        "sum",
        f"{found['sum']} over {several(total, 'device')} of {processes} ({result.seconds:.1f} s)",
    )
    if found["sum"] != expected:
        summed = fail(
            "sum",
            f"{found['sum']}, expected {expected}",
            "update JAX and the driver; a collective is wrong",
        )
    return [named, summed]


def _answers(address: str, seconds: float) -> Finding:
    """Whether something answers at `host:port` within some seconds: process 0 may start a little
    later.
    """
    host, _, port = address.rpartition(":")
    begun, said = time.monotonic(), ""
    while time.monotonic() - begun < seconds:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=3.0):
                return ok("coordinator", f"{address} answers")
        except OSError as error:
            said = str(error)
        time.sleep(0.2)
    return fail(
        "coordinator",
        f"nothing answers at {address} within {seconds:.0f} s ({said})",
        "start process 0, and check its address, its port and the firewall",
    )


def report(layout: Layout, seconds: int, as_json: bool) -> int:
    """Print the findings. Returns 0, or 1 if a check failed."""
    findings = diagnose(layout, seconds)
    print(to_json(findings) if as_json else to_text(findings))
    return exit_code(findings)
