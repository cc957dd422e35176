"""Run programs in child processes and all checks in a time budget, and report what was found.

Native libraries are loaded in child processes only, so a crash becomes a finding and does not end
the doctor. This process imports neither JAX, NumPy nor pandas.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrade import interrupt
from jaxtrade.doctor.checks import CHECKS, FAIL, OK, Finding, Machine, Status, check
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
from jaxtrade.runs.processes import Layout, join
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
FLAGS = "unset XLA_FLAGS, JAX_* variables and LD_PRELOAD, then reinstall: "
PIP = "python -m pip install --force-reinstall"
KERNEL = "set OPENBLAS_CORETYPE=Haswell (the kernel chosen for this CPU is at fault)"
# The order matters: a failure of a lower layer explains failures of the layers above it.
LAYERS = (
    Layer("numpy-blas", NUMPY, f"{PIP} numpy; if it still fails {KERNEL}"),
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
    """How a child ended: with `values`, a JSON object on the last line of its output, or else why
    it failed. hangs: it was killed after `seconds`.
    """

    seconds: float
    values: Mapping[str, Any] = {}
    cause: str = ""
    stderr: str = ""
    hangs: bool = False


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


def crashed_in(stderr: str) -> str:
    """The innermost frame that faulthandler printed, as ' in file:line in name', if there is one."""
    found = re.search(r'^ *File "(?!<string>)(.*?)", line (.*)', stderr, re.MULTILINE)
    return f" in {os.path.basename(found[1])}:{found[2]}" if found else ""


def last_line(text: str) -> str:
    """The last line of a child's output that is not blank, cut to 300 characters."""
    return text.strip().rpartition("\n")[2].strip()[:300]


def run_child(program: str, timeout: float, env: Mapping[str, str] = {}) -> Ended:
    """Run `program` under this interpreter, with faulthandler on, this process's `sys.path` and
    further variables. Ctrl-C, which reaches the main thread only, ends the child too.
    """
    start, path = time.monotonic(), os.pathsep.join(filter(None, sys.path))
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-X", "faulthandler", "-c", program],
            env={**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1", **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:  # process limit reached, or out of memory
        return Ended(0.0, cause=f"could not start a process: {error}")
    with process, interrupt.child(process):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            interrupt.kill(process)
            text = f"hangs: no answer in {timeout:.0f} s"
            return Ended(timeout, {}, text, process.communicate()[1], hangs=True)
    seconds, code = time.monotonic() - start, process.returncode
    if cause := crash_name(code):
        return Ended(seconds, {}, f"died by {cause}{crashed_in(err)}", err)
    if code:
        return Ended(seconds, {}, last_line(err) or f"exit code {code}", err)
    try:
        return Ended(seconds, dict(json.loads(last_line(out))), "", err)
    except (ValueError, TypeError):
        return Ended(seconds, {}, "ended without a result", err)


def finding_of(layer: Layer, ended: Ended) -> Finding:
    """Turn a child's end into a finding."""
    if ended.values:
        values = ", ".join(f"{key} {value}" for key, value in ended.values.items())
        return Finding(layer.name, OK, f"{values} ({ended.seconds:.1f} s)")
    busy = "if the machine is busy, repeat when it is idle; otherwise " if ended.hangs else ""
    return Finding(layer.name, FAIL, ended.cause, busy + layer.fix)


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
            late = f"hangs: not reached within {budget:.0f} s"
            return finding_of(layer, Ended(0.0, cause=late, hangs=True))
        return finding_of(layer, run(layer.program, left, layer.env))

    gpu = any(name.startswith("jax-cuda") and name.endswith("-plugin") for name in host.versions)
    with ThreadPoolExecutor(max_workers=2) as pool:
        natives = [pool.submit(examine, layer) for layer in layers if gpu or not layer.gpu]
        return [*(check(name, host) for name in CHECKS), *(native.result() for native in natives)]


def report(findings: Sequence[Finding], as_json: bool) -> int:
    """Print the findings as lines or as JSON. Returns 1 if a check failed (a warning does not), else
    0.
    """
    verdicts = [each.verdict for each in findings]
    code = int(FAIL in verdicts)
    if as_json:
        head = {"format": 1, "jaxtrade": __version__, "exit_code": code}
        print(json.dumps({**head, "findings": [vars(each) for each in findings]}, indent=2))
        return code
    for each in findings:
        print(f"{each.verdict:<4}  {each.name:<14} {each.measured}")
        if each.fix:
            print(f"      {'':<14} fix: {each.fix}")
    print(", ".join(f"{verdicts.count(each)} {each}" for each in Status))
    return code


def examine(run_folder: str, as_json: bool) -> int:
    """Examine this machine and print the findings. Returns 0, or 1 if a check failed."""
    return report(diagnose(Machine(Path(os.path.expanduser(run_folder)))), as_json)


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
    found = ended.values
    if not found:
        said = re.findall(r"^error: (.*)", ended.stderr, re.MULTILINE)
        fix = "start all processes with the same number and coordinator, and look at the output"
        fix = f"{fix} of the others (docs/distributed.md)"
        return [Finding("joining", FAIL, said[-1] if said else ended.cause, fix)]
    devices, total = found["devices"], sum(found["devices"])
    counts = "by process " + ", ".join(f"{i}: {count}" for i, count in enumerate(devices))
    named = Finding("devices", OK, f"{total} ({found['kind']}), {counts}")
    if len(set(devices)) > 1:
        named = Finding("devices", FAIL, counts, "give every process equally many devices")
    number, expected = found["processes"], total * (total + 1) // 2
    processes = "1 process" if number == 1 else f"{number} processes"
    text = f"{found['sum']} over {several(total, 'device')} of {processes} ({ended.seconds:.1f} s)"
    if found["sum"] == expected:
        return [named, Finding("sum", OK, text)]
    fix = "update JAX and the driver; a collective is wrong"
    return [named, Finding("sum", FAIL, f"{found['sum']}, expected {expected}", fix)]


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
