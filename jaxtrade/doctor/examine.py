"""Run programs in child processes and all checks in a time budget, and report what was found.

Native libraries are loaded in child processes only, so a crash becomes a finding and does not end
the doctor. This process imports neither JAX, NumPy nor pandas.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from jaxtrade import interrupt
from jaxtrade.doctor.checks import (
    CHECKS,
    FAIL,
    OK,
    ON_DISK,
    Finding,
    Machine,
    Status,
    finding,
    here,
)
from jaxtrade.text import several
from jaxtrade.version import __version__

if TYPE_CHECKING:
    from jaxtrade.runs.processes import Layout

BUDGET = 18.0  # seconds for all checks, below the documented 20 seconds
SLACK_S = 60.0  # for loading JAX in several processes, and for the sum over all devices
# Windows has no signals. It reports a crash as an NTSTATUS in the exit code.
NTSTATUS = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC00000FD: "stack overflow",
    0xC0000135: "DLL not found",
    0xC0000409: "stack buffer overrun",
}
NUMPY = """
import json, numpy as np
a = np.arange(65536.0).reshape(256, 256) % 7
assert float((a @ a)[3, 5]) == float(sum(a[3, k] * a[k, 5] for k in range(256))), "matrix product is wrong"
np.linalg.solve(a + 300 * np.eye(256), a)
blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
print(json.dumps({"numpy": np.__version__, "blas": f"{blas['name']} {blas['version']}"}))
"""
# This program ends without teardown. pyarrow 26 aborts some processes that exit right after their
# first Parquet file, while its threads are still starting ("terminate called without an active
# exception"). A real run lives longer, so this is not a fault of the machine. The program has
# printed its result by then.
PANDAS = """
import io, json, os, pandas as pd, pyarrow
frame = pd.read_csv(io.StringIO("time,close\\n2013-10-07T13:30:00Z,1676.75\\n2013-10-07T13:31:00Z,1677.25\\n"))
times = pd.to_datetime(frame["time"], utc=True).dt.tz_convert("America/New_York")
assert times.dt.hour.tolist() == [9, 9], times
file = io.BytesIO()
frame.to_parquet(file)
assert pd.read_parquet(io.BytesIO(file.getvalue())).equals(frame), "Parquet round trip differs"
print(json.dumps({"pandas": pd.__version__, "pyarrow": pyarrow.__version__}), flush=True)
os._exit(0)
"""
JAX = """
import json, jax, jax.numpy as jnp
device = jax.devices(PLATFORM)[0]
with jax.default_device(device):
    x = jnp.arange(4096, dtype=jnp.int32)
    assert int(jax.jit(lambda x: (x * x % 97).sum())(x)) == sum(i * i % 97 for i in range(4096)), "integers are wrong"
    w = jnp.ones((64, 8)) / 64
    loss, slope = jax.jit(jax.value_and_grad(lambda w: (jnp.ones((4, 64)) @ w).sum()))(w)
    assert abs(float(loss) - 32) < 1e-2 and abs(float(slope[0, 0]) - 4) < 1e-2, "gradient is wrong"
    at = (x * 37) % 4096
    assert (jax.jit(lambda x, at: jnp.zeros_like(x).at[at].set(x))(x, at)[at] == x).all(), "scatter is wrong"
print(json.dumps({"jax": jax.__version__, "device": device.device_kind, "devices": len(jax.devices(PLATFORM))}))
"""
NETWORK = """
import json, jax, jax.numpy as jnp, flax, flax.linen as nn, optax
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.tanh(nn.Dense(64)(x)))
net, optimiser = Net(), optax.adam(1e-3)
params = net.init(jax.random.key(0), jnp.zeros((1, 225)))
@jax.jit
def step(params, state):
    slope = jax.grad(lambda p: (net.apply(p, jnp.ones((8, 225))) ** 2).mean())(params)
    change, state = optimiser.update(slope, state)
    return optax.apply_updates(params, change), state
params, _ = step(params, optimiser.init(params))
assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params)), "parameters are not finite"
print(json.dumps({"flax": flax.__version__, "optax": optax.__version__}))
"""
# The sum is over 1, 2, ..., n for the n devices of all processes, so a missing one shows.
TOGETHER = """
import json, sys
from jaxtrade.errors import JaxtradeError
from jaxtrade.runs.joining import join
from jaxtrade.runs.processes import Layout
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
FLAGS = "unset XLA_FLAGS, JAX_* variables and LD_PRELOAD, then reinstall: "
PIP = "python -m pip install --force-reinstall"


class Layer(NamedTuple):
    """A child program, what to do if it fails, its further variables, and whether it needs a CUDA
    plugin.
    """

    name: str
    program: str
    fix: str
    env: Mapping[str, str] = {}
    gpu: bool = False


CPU = {"JAX_PLATFORMS": "cpu"}
# The order matters: a failure of a lower layer explains failures of the layers above it.
LAYERS = (
    Layer(
        "numpy-blas",
        NUMPY,
        f"{PIP} numpy; if it still fails set OPENBLAS_CORETYPE=Haswell (the kernel chosen for this "
        "CPU is at fault)",
    ),
    Layer("pandas", PANDAS, f"{PIP} pandas pyarrow"),
    Layer(
        "jax-cpu",
        JAX.replace("PLATFORM", '"cpu"'),
        f"{FLAGS}{PIP} jax jaxlib; under WSL also: wsl --update",
        CPU,
    ),
    Layer("network-cpu", NETWORK, f"{FLAGS}{PIP} flax optax", CPU),
    Layer(
        "jax-gpu",
        JAX.replace("PLATFORM", '"gpu"'),
        "look at nvidia-smi (driver, free memory, other jobs); update the driver; train on the CPU "
        "meanwhile with JAX_PLATFORMS=cpu",
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": ""},
        True,
    ),
)


class Ended(NamedTuple):
    """How a child ended. how: "ok" (exit code 0, and a JSON object on the last line of output),
    "crash" (died from `cause`), "hang" (killed after `seconds`) or "error" (another exit code).
    """

    how: Literal["ok", "crash", "hang", "error"]
    seconds: float
    values: Mapping[str, Any] = {}
    cause: str = ""
    stderr: str = ""


Runner = Callable[[str, float, Mapping[str, str]], Ended]


def crash_name(code: int) -> str | None:
    """The signal or Windows status that ended a process; None for an ordinary exit. A shell or
    container between the two processes reports signal n as exit code 128 + n.
    """
    if status := NTSTATUS.get(code & 0xFFFFFFFF):
        return status
    number = -code if code < 0 else code - 128
    if not 0 < number < 65:
        return None
    known = number in set(signal.Signals)
    return signal.Signals(number).name if known else f"signal {number}"


def last_line(text: str) -> str:
    """The last line of a child's output that is not blank, cut to 300 characters."""
    return text.strip().rpartition("\n")[2].strip()[:300]


def run_child(program: str, timeout: float, env: Mapping[str, str] = {}) -> Ended:
    """Run `program` under this interpreter, with faulthandler on, this process's `sys.path` and
    further variables. Ctrl-C, which reaches the main thread only, ends the child too.
    """
    start, path = time.monotonic(), os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-P", "-X", "faulthandler", "-c", program]
    try:
        process = subprocess.Popen(
            words,
            env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:  # process limit reached, or out of memory
        return Ended("error", time.monotonic() - start, cause=f"could not start a process: {error}")
    with process, interrupt.child(process):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            interrupt.kill(process)
            err = process.communicate()[1]
            return Ended("hang", time.monotonic() - start, {}, f"no answer in {timeout:.0f} s", err)
    seconds, code = time.monotonic() - start, process.returncode
    if (cause := crash_name(code)) is not None:
        return Ended("crash", seconds, {}, cause, err)
    if code:
        return Ended("error", seconds, {}, last_line(err) or f"exit code {code}", err)
    try:
        values = json.loads(last_line(out))
    except ValueError:
        values = None
    if not isinstance(values, dict):
        return Ended("error", seconds, {}, "ended without a result", err)
    return Ended("ok", seconds, values, "", err)


def crashed_in(stderr: str) -> str:
    """The innermost frame that faulthandler printed, as ' in file:line in name', if there is one."""
    for line in stderr.splitlines():
        if line.lstrip().startswith('File "') and "<string>" not in line:
            parts = line.strip().split('"')
            return f" in {os.path.basename(parts[1])}{parts[2].replace(', line ', ':')}"
    return ""


def finding_of(layer: Layer, ended: Ended) -> Finding:
    """Turn a child's end into a finding."""
    if ended.how == "ok":
        values = ", ".join(f"{key} {value}" for key, value in ended.values.items())
        return Finding(layer.name, OK, f"{values} ({ended.seconds:.1f} s)")
    if ended.how == "crash":
        text = f"died by {ended.cause}{crashed_in(ended.stderr)}"
        return Finding(layer.name, FAIL, text, layer.fix)
    if ended.how == "hang":
        fix = f"if the machine is busy, repeat when it is idle; otherwise {layer.fix}"
        return Finding(layer.name, FAIL, f"hangs: {ended.cause}", fix)
    return Finding(layer.name, FAIL, ended.cause, layer.fix)


def diagnose(
    host: Machine, layers: Sequence[Layer] = LAYERS, run: Runner = run_child, budget: float = BUDGET
) -> list[Finding]:
    """Run all checks. The findings have a fixed order: facts, storage, native layers.

    The children share `budget` seconds. Two run at a time, and each may use the seconds that are
    left, so a child that hangs does not block the others.
    """
    deadline = time.monotonic() + budget

    def examine(layer: Layer) -> Finding:
        left = deadline - time.monotonic()
        if left < 0.5:
            late = Ended("hang", 0.0, cause=f"not reached within {budget:.0f} s")
            return finding_of(layer, late)
        return finding_of(layer, run(layer.program, left, layer.env))

    gpu = any(name.startswith("jax-cuda") and name.endswith("-plugin") for name in host.versions)
    with ThreadPoolExecutor(max_workers=2) as pool:
        natives = [pool.submit(examine, layer) for layer in layers if gpu or not layer.gpu]
        facts = [finding(name, check(host)) for name, check in {**CHECKS, **ON_DISK}.items()]
        return facts + [native.result() for native in natives]


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if any check failed, else 0. Warnings are not failures."""
    return int(any(each.verdict is FAIL for each in findings))


def to_json(findings: Sequence[Finding]) -> str:
    """All findings as a JSON document."""
    listed = [{**vars(each), "verdict": str(each.verdict)} for each in findings]
    head = {"format": 1, "jaxtrade": __version__, "exit_code": exit_code(findings)}
    return json.dumps({**head, "findings": listed}, indent=2)


def to_text(findings: Sequence[Finding]) -> str:
    """All findings as lines for the console, and their counts."""
    lines = []
    for each in findings:
        lines.append(f"{each.verdict:<4}  {each.name:<14} {each.measured}")
        if each.fix:
            lines.append(f"      {'':<14} fix: {each.fix}")
    verdicts = [each.verdict for each in findings]
    return "\n".join([*lines, ", ".join(f"{verdicts.count(each)} {each}" for each in Status)])


def report(findings: Sequence[Finding], as_json: bool) -> int:
    """Print the findings. Returns 0, or 1 if a check failed."""
    print(to_json(findings) if as_json else to_text(findings))
    return exit_code(findings)


def main(argv: Sequence[str]) -> int:
    """Entry point of `python -m jaxtrade.doctor`. Returns 0, or 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="jaxtrade doctor", description="Examine this machine; every problem comes with a fix"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--run-dir", metavar="DIR", default="runs", help="folder of runs to examine (default: runs)"
    )
    args = parser.parse_args(argv)
    return report(diagnose(here(Path(os.path.expanduser(args.run_dir)))), args.json)


def join(layout: Layout, seconds: int) -> list[Finding]:
    """The findings about a layout of processes (`doctor --distributed`): where it comes from,
    whether process 0 answers, the devices, and a sum over them. seconds: how long processes wait
    for each other.
    """
    findings = [Finding("layout", OK, str(layout))]
    if not layout.alone and layout.coordinator is not None and layout.process_id > 0:
        findings.append(answer(layout.coordinator, seconds))
        if findings[-1].fix:
            return findings
    program = TOGETHER.replace("LAYOUT", repr(layout)).replace("SECONDS", str(seconds))
    return [*findings, *joined(run_child(program, seconds + SLACK_S))]


def joined(ended: Ended) -> list[Finding]:
    """The findings about processes that have met, or about why they did not."""
    if ended.how != "ok":
        said = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        cause = said[-1].removeprefix("error: ") if said else ended.cause
        fix = "start all processes with the same number and coordinator, and look at the output"
        return [Finding("joining", FAIL, cause, f"{fix} of the others (docs/distributed.md)")]
    found = ended.values
    devices, total = found["devices"], sum(found["devices"])
    counts = "by process " + ", ".join(f"{i}: {count}" for i, count in enumerate(devices))
    named = Finding("devices", OK, f"{total} ({found['kind']}), {counts}")
    if len(set(devices)) > 1:
        named = Finding("devices", FAIL, counts, "give every process equally many devices")
    number, expected = found["processes"], total * (total + 1) // 2
    processes = "1 process" if number == 1 else f"{number} processes"
    text = f"{found['sum']} over {several(total, 'device')} of {processes} ({ended.seconds:.1f} s)"
    summed = Finding("sum", OK, text)
    if found["sum"] != expected:
        fix = "update JAX and the driver; a collective is wrong"
        summed = Finding("sum", FAIL, f"{found['sum']}, expected {expected}", fix)
    return [named, summed]


def answer(address: str, seconds: float) -> Finding:
    """Whether something answers at `host:port` within some seconds: process 0 may start later."""
    host, _, port = address.rpartition(":")
    begun, said = time.monotonic(), ""
    while time.monotonic() - begun < seconds:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=3.0):
                return Finding("coordinator", OK, f"{address} answers")
        except OSError as error:
            said = str(error)
        time.sleep(0.2)
    text = f"nothing answers at {address} within {seconds:.0f} s ({said})"
    fix = "start process 0, and check its address, its port and the firewall"
    return Finding("coordinator", FAIL, text, fix)
