"""Find what on this machine would stop, slow down or change a run. Each finding comes with a fix.

Native libraries are loaded in child processes only, so a crash is a finding and does not end the
doctor. `python -m jaxtrade.doctor` works even if the `jaxtrade` command cannot start.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from jaxtrade import interrupt
from jaxtrade.limits import cgroup_limits, usable_cpus
from jaxtrade.version import __version__

OK, WARN, FAIL = "OK", "WARN", "FAIL"  # WARN: runs work, but slower, or without all resources
GIB = 1 << 30
THREADS = "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS VECLIB_MAXIMUM_THREADS NPROC"
PIP = "python -m pip install"
HIDES = {"CUDA_VISIBLE_DEVICES": "(-1)?", "JAX_PLATFORMS": "(?!.*(cuda|gpu)).+"}
Found = str | tuple[str, str, str]  # what was measured; or how bad it is, that, and how to fix it


class Finding(NamedTuple):
    """The result of one check. `fix` is empty if the verdict is OK."""

    name: str
    verdict: str
    measured: str
    fix: str = ""


def _versions() -> dict[str, str]:
    """Return the version of each distribution by its lower-case name.

    The first one of a name is the one imported.
    """
    found = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
    return {
        name.lower().replace("_", "-"): version for name, version in found[::-1] if name and version
    }


def _sees_gpu() -> bool:
    """Return whether there is an NVIDIA GPU: a tool of its driver, or a device (that for WSL2)."""
    return any([shutil.which("nvidia-smi"), *map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))])


@dataclass(frozen=True)
class Machine:
    """What the checks look at: by default this machine; tests replace fields."""

    run_folder: Path
    system: str = field(default_factory=platform.system)
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cpus: int = field(default_factory=usable_cpus)
    quota: float | None = field(default_factory=lambda: cgroup_limits().cpus)
    versions: Mapping[str, str] = field(default_factory=_versions)
    gpu_seen: bool = field(default_factory=_sees_gpu)


def _cpu(host: Machine) -> Found:
    """Check the CPUs that the process may use, and the variables that set a number of threads."""
    usable = min(float(host.cpus), host.quota or float(host.cpus))
    text = f"{host.cpus} usable, cgroup limit {'none' if host.quota is None else f'{host.quota:g}'}"
    for name in THREADS.split():
        if value := host.env.get(name):
            given = f"{text}, {name}={value}"
            if not value.isdigit() or int(value) < 1:
                return FAIL, given, f"{name} must be a whole number >= 1: unset it"
            if not int(usable) <= int(value) <= max(1, 2 * usable):
                keep = "NPROC also changes the bits of a CPU run: keep it to repeat a run exactly"
                most = max(1, int(usable))
                return WARN, given, f"unset {name}, or set it to {most}, the CPUs ({keep})"
    if usable < 2:
        return WARN, text, "give the process at least 2 CPUs (docker run --cpus, taskset)"
    if usable < host.cpus and "NPROC" not in host.env:
        fix = f"XLA starts a thread per visible CPU and is throttled: set NPROC={int(usable)}"
        return WARN, text, fix
    return text


def requirements() -> dict[str, Requirement]:
    """Return what the installed package states that it needs, by name. jaxlib goes with jax."""
    try:
        stated = [Requirement(each) for each in metadata.requires("jaxtrade") or ()]
    except metadata.PackageNotFoundError:
        return {}
    found = {each.name.lower(): each for each in stated if each.marker is None}
    return {**found, "jaxlib": Requirement(f"jaxlib{found['jax'].specifier}")}


def _packages(host: Machine) -> Found:
    needed, had = requirements(), host.versions
    if not needed:
        return WARN, "jaxtrade is not installed: what it needs is unknown", f"{PIP} -e ."
    fits = {k: v.specifier.contains(had.get(k, "0"), prereleases=True) for k, v in needed.items()}
    wrong = [name for name, fine in fits.items() if not fine]
    text = ", ".join(f"{name} {had.get(name, 'missing')}" for name in wrong or ("jax", "jaxlib"))
    fix = shlex.join([*PIP.split(), *(str(needed[name]) for name in wrong)])
    return (FAIL, text, fix) if wrong else text


def _gpu(host: Machine) -> Found:
    """Check the GPU and the CUDA plugin.

    Without a plugin, JAX ignores the GPU silently. With one of another release, it crashes.
    """
    parts = {k: v for k, v in host.versions.items() if re.match(r"jax-cuda\d+-p", k)}
    wanted = f"'jax[cuda13]{getattr(requirements().get('jax'), 'specifier', '')}'"
    text = ", ".join(f"{name} {version}" for name, version in sorted(parts.items()))
    if not parts:
        use = "use WSL2 for the GPU" if host.system == "Windows" else f"{PIP} {wanted}"
        unused = "NVIDIA GPU seen, no CUDA plugin: runs use the CPU"
        return (WARN, unused, use) if host.gpu_seen else "no NVIDIA GPU seen; runs use the CPU"
    found = [*parts.values(), host.versions.get("jaxlib", "0")]
    if len(parts) != 2 or len({Version(each).release[:3] for each in found}) > 1:
        fix = f"keep one plugin and pjrt, of jaxlib's release: {PIP} --upgrade {wanted}"
        return FAIL, f"{text}, jaxlib {found[-1]}", fix
    for name, hidden in HIDES.items():
        if host.gpu_seen and re.fullmatch(hidden, host.env.get(name, "cuda").strip()):
            return WARN, f"{name}={host.env[name]} hides the GPU", f"unset {name}"
    return text


def try_folder(folder: Path) -> float:
    """Lock, write, fsync, rename and remove as a checkpoint does in a folder. Return the seconds.

    Raises OSError if a step fails, ImportError if the lock's module lacks a package.
    """
    from jaxtrade.runs.rundir import lock_run

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".jaxtrade-doctor-", dir=folder) as name:
        with lock_run(Path(name)), (Path(name) / "part").open("wb") as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        (Path(name) / "part").replace(Path(name) / "whole")
    return time.monotonic() - start


def _run_folder(host: Machine) -> Found:
    """Check that runs can be written, locked and synced, and that there is space."""
    wanted = host.run_folder.absolute()
    folder = next(each for each in (wanted, *wanted.parents) if each.exists())
    fix = f"free 1 GiB, make {folder} writable for this user, or train with --run-dir elsewhere"
    text = f"{folder}: {shutil.disk_usage(folder).free / GIB:.1f} GiB free"
    try:
        seconds = try_folder(folder)
    except ImportError as error:
        return FAIL, f"not examined: {error}", "install what 'packages' names, then run it again"
    except OSError as error:
        return FAIL, f"{text}, {error.strerror or error}", fix
    if shutil.disk_usage(folder).free < GIB:
        return WARN, text, fix
    text = f"{text}, lock + 1 MiB + fsync + rename in {seconds * 1000:.0f} ms"
    slow = "checkpoints will be slow here: use a local disk for runs; under WSL one outside /mnt"
    return (WARN, text, slow) if seconds > 2 else text


CHECKS: dict[str, Callable[[Machine], Found]] = {
    each.__name__[1:].replace("_", "-"): each for each in (_cpu, _packages, _gpu, _run_folder)
}


def run_check(name: str, host: Machine) -> Finding:
    """Run the check of this name."""
    found = CHECKS[name](host)
    return Finding(name, OK, found) if isinstance(found, str) else Finding(name, *found)


NUMPY = """
import json, numpy as np
a = np.arange(65536.0).reshape(256, 256) % 7
assert float((a @ a)[3, 5]) == float(sum(a[3, k] * a[k, 5] for k in range(256))), "matrix product is wrong"
np.linalg.solve(a + 300 * np.eye(256), a)
print(json.dumps({"numpy": np.__version__}))
"""
# pyarrow 26 aborts some processes that end right after their first Parquet file, while its threads
# are still starting. A real run lives longer, so this program ends without teardown.
PANDAS = """
import io, json, os, pandas as pd, pyarrow
frame = pd.read_csv(io.StringIO("time,close\\n2013-10-07T13:30:00Z,1676.75\\n"))
time = pd.to_datetime(frame["time"], utc=True).dt.tz_convert("America/New_York")
assert time[0].hour == 9, time
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
    x = jnp.arange(4096)
    assert int(jax.jit(lambda x: (x * x % 97).sum())(x)) == sum(i * i % 97 for i in range(4096)), "integers are wrong"
    slope = jax.jit(jax.grad(lambda w: (jnp.ones((4, 64)) @ w).sum()))(jnp.ones((64, 8)))
    assert abs(float(slope[0, 0]) - 4) < 1e-2, "gradient is wrong"
print(json.dumps({"jax": jax.__version__, "device": device.device_kind, "devices": len(jax.devices(PLATFORM))}))
"""
TOGETHER = """
import jax, json, numpy as np
from jax.experimental.multihost_utils import process_allgather
from jaxtrade.runs.distributed import ProcessGroup, join
join(LAYOUT, timeout=SECONDS)
each = [sum(d.process_index == i for d in jax.devices()) for i in range(jax.process_count())]
assert len(set(each)) == 1, f"devices by process: {each}; give every process equally many"
told = process_allgather(np.int32(jax.local_device_count())).ravel().tolist()
assert told == each, f"devices by process: {each}, but they told each other {told}; update JAX"
kind = jax.local_devices()[0].device_kind
jax.distributed.shutdown()
print(json.dumps({"devices": f"{sum(each)} ({kind})", "by process": each}))
"""


class Layer(NamedTuple):
    """A child program, what to do if it fails, and its further variables."""

    name: str
    program: str
    fix: str
    env: Mapping[str, str] = {}


# The order matters: a failure of a lower layer explains failures of the layers above it.
LAYERS = (
    Layer("numpy-blas", NUMPY, f"{PIP} --force-reinstall numpy; or set OPENBLAS_CORETYPE=Haswell"),
    Layer("pandas", PANDAS, f"{PIP} --force-reinstall pandas pyarrow tzdata"),
    Layer(
        "jax-cpu",
        JAX.replace("PLATFORM", '"cpu"'),
        f"unset XLA_FLAGS, JAX_* and LD_PRELOAD, then {PIP} --force-reinstall jax jaxlib; after "
        "SIGILL: a CPU with AVX (a virtual machine's CPU type 'host'); after SIGABRT: more "
        "processes (ulimit -u, docker run --pids-limit); under WSL: version 2, and wsl --update",
        {"JAX_PLATFORMS": "cpu"},
    ),
    Layer(
        "jax-gpu",
        JAX.replace("PLATFORM", '"gpu"'),
        "look at nvidia-smi and update the driver; JAX_PLATFORMS=cpu trains on the CPU meanwhile",
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_PLATFORMS": ""},
    ),
)


def crash_name(code: int) -> str | None:
    """Name the signal or Windows status that ended a process, if one did.

    A shell reports 128 + signal.
    """
    if code >= 0xC0000000:
        return f"Windows status {code:#x}"
    number = -code if code < 0 else code - 128
    known = number in set(signal.Signals)
    return signal.Signals(number).name if known else f"signal {number}" if code < 0 else None


def run_layer(layer: Layer, timeout: float) -> Finding:
    """Run a layer's program under this interpreter with faulthandler and this process's `sys.path`.

    Ctrl-C, which reaches the main thread only, ends the child too.
    """
    start, path = time.monotonic(), os.pathsep.join(filter(None, sys.path))
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-P", "-X", "faulthandler", "-X", "utf8", "-c", layer.program]
    env = {**os.environ, "PYTHONPATH": path, **layer.env}
    failed = partial(Finding, layer.name, FAIL, fix=layer.fix)
    try:
        process = subprocess.Popen(
            command, env=env, encoding="utf-8", errors="replace", start_new_session=True, **pipes
        )
    except OSError as error:  # process limit reached, or out of memory
        return failed(f"could not start a process: {error}")
    with process, interrupt.child(process):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            interrupt.kill(process)
            busy = f"if the machine is busy, repeat when it is idle; otherwise {layer.fix}"
            return failed(f"hangs: no answer in {timeout:.0f} s", fix=busy)
    if cause := crash_name(process.returncode):
        frame = re.search(r'^ *File "(?!<string>)(.*?)", line (.*)', err, re.MULTILINE)
        where = f" in {os.path.basename(frame[1])}:{frame[2]}" if frame else ""
        return failed(f"died by {cause}{where}")
    said = re.findall(r"^[\w.]*[Ee]rror: (.*)", err, re.MULTILINE) or err.strip().splitlines()[-1:]
    if process.returncode or not (last := re.search(r"^{.*}$", out, re.MULTILINE)):
        return failed(said[-1][:300] if said else f"no result, exit code {process.returncode}")
    text = ", ".join(f"{key} {value}" for key, value in json.loads(last[0]).items())
    return Finding(layer.name, OK, f"{text} ({time.monotonic() - start:.1f} s)")


def diagnose(host: Machine, layers: Sequence[Layer] = LAYERS, limit: float = 18) -> list[Finding]:
    """Run all checks. The children share `limit` seconds.

    Two run at a time, and each may use the seconds that are left, so a child that hangs does not
    block the others.
    """
    end = time.monotonic() + limit
    gpu = any(re.match(r"jax-cuda\d+-plugin", name) for name in host.versions)
    wanted = [each for each in layers if gpu or each.name != "jax-gpu"]
    with ThreadPoolExecutor(max_workers=2) as pool:
        children = pool.map(lambda each: run_layer(each, max(0.5, end - time.monotonic())), wanted)
        return [*(run_check(name, host) for name in CHECKS), *children]


def check_process_group(layout: object, seconds: int) -> list[Finding]:
    """Join the processes of a `runs.distributed.ProcessGroup`, and let them exchange their devices.

    They wait `seconds` for each other; loading JAX and the exchange may take a minute more.
    """
    program = TOGETHER.replace("LAYOUT", repr(layout)).replace("SECONDS", str(seconds))
    fix = "start all processes with the same number and coordinator (docs/scale.md)"
    joined = run_layer(Layer("joining", program, fix), seconds + 60.0)
    return [Finding("layout", OK, str(layout)), joined]


def report(findings: Sequence[Finding], as_json: bool) -> int:
    """Print findings as lines or as JSON. Return 1 if a check failed, else 0."""
    verdicts = [each.verdict for each in findings]
    code = int(FAIL in verdicts)
    if as_json:
        head = {"format": 1, "jaxtrade": __version__, "exit_code": code}
        print(json.dumps({**head, "findings": [each._asdict() for each in findings]}, indent=2))
        return code
    for each in findings:
        fix = f"\n      {'':<14} fix: {each.fix}" if each.fix else ""
        print(f"{each.verdict:<4}  {each.name:<14} {each.measured}{fix}")
    print(", ".join(f"{verdicts.count(each)} {each}" for each in (OK, WARN, FAIL)))
    return code


def examine(run_folder: str, as_json: bool) -> int:
    """Examine this machine and print the findings. Return 1 if a check failed, else 0."""
    return report(diagnose(Machine(Path(run_folder).expanduser())), as_json)


if __name__ == "__main__":  # the same without `--distributed`
    parser = argparse.ArgumentParser("jaxtrade doctor", description="Examine this machine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--run-dir", default="runs", help="folder of runs (default: runs)")
    given = parser.parse_args()
    sys.exit(examine(given.run_dir, given.json))
