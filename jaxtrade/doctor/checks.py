"""Checks of the machine's properties and of its disk. Each is a function of `Machine` that returns
what it measured, and where that is not fine how bad it is and how to fix it. None loads a native
library.
"""

from __future__ import annotations

import enum
import errno
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from jaxtrade.runs.limits import MachineLimits, cgroup_limits, read_text, total_memory
from jaxtrade.storage.programs import VARIABLE, cache_folder

MIB, GIB = 1 << 20, 1 << 30
THREADS = "OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS VECLIB_MAXIMUM_THREADS NPROC"


class Status(enum.StrEnum):
    """How bad a finding is."""

    OK = "OK"
    WARN = "WARN"  # a run works, but slower, or without all of the machine's resources
    FAIL = "FAIL"  # a run would not start, would crash, or would be insecure


OK, WARN, FAIL = Status
Found = str | tuple[Status, str, str]  # what was measured; how bad that is, and how to fix it


@dataclass(frozen=True)
class Finding:
    """The result of one check. Raises ValueError if the verdict is not OK and `fix` is empty."""

    name: str
    verdict: Status
    measured: str
    fix: str = ""

    def __post_init__(self) -> None:
        if self.verdict is not OK and not self.fix.strip():
            raise ValueError(f"finding {self.name!r} is {self.verdict} and has no fix")


def usable_cpus() -> int:
    """CPUs of the affinity mask if the system has one (Linux), else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_flags() -> frozenset[str] | None:
    """The instruction sets of the CPU, as Linux names them."""
    found = re.search(r"^flags.*?:(.*)", read_text("/proc/cpuinfo") or "", re.MULTILINE)
    return frozenset(found[1].split()) if found else None


def rlimit(name: str) -> int | None:
    """A soft limit, such as "RLIMIT_NPROC"; None without one, and on Windows."""
    try:
        import resource

        soft = resource.getrlimit(getattr(resource, name))[0]
    except (ImportError, AttributeError):
        return None
    return None if soft in (resource.RLIM_INFINITY, -1) else soft


def versions() -> dict[str, str]:
    """Lower-case distribution name -> version. The first one of a name is the one imported."""
    found = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
    return {name.lower().replace("_", "-"): version for name, version in found[::-1] if name}


def sees_gpu() -> bool:
    """Whether there is an NVIDIA GPU: a tool of its driver, or a device (the second is WSL2's)."""
    devices = ("/dev/nvidiactl", "/dev/dxg")
    return bool(shutil.which("nvidia-smi")) or any(map(os.path.exists, devices))


@dataclass(frozen=True)
class Machine:
    """What the checks look at: by default this machine; tests replace fields. Sizes are in bytes;
    None stands for no limit, or for what the platform does not tell.
    """

    run_folder: Path
    system: str = field(default_factory=platform.system)
    release: str = field(default_factory=platform.release)
    machine: str = field(default_factory=platform.machine)
    python: tuple[int, ...] = tuple(sys.version_info[:3])
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cpus: int = field(default_factory=usable_cpus)  # that this process may use
    cpu_flags: frozenset[str] | None = field(default_factory=cpu_flags)
    memory: int | None = field(default_factory=lambda: total_memory(platform.system()))
    limits: MachineLimits = field(default_factory=cgroup_limits)
    max_processes: int | None = field(default_factory=lambda: rlimit("RLIMIT_NPROC"))
    max_files: int | None = field(default_factory=lambda: rlimit("RLIMIT_NOFILE"))
    versions: Mapping[str, str] = field(default_factory=versions)
    gpu_seen: bool = field(default_factory=sees_gpu)

    @property
    def usable(self) -> float:
        """The CPUs that the process may use, by its affinity and its cgroup."""
        return min(float(self.cpus), self.limits.cpus or float(self.cpus))


def version_key(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, which suffice to compare releases: 0.12.0.1 > 0.12."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match.group().split("."))) if match else ()


def gib(size: float) -> str:
    """A size in bytes as text."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _python(host: Machine) -> Found:
    text = ".".join(map(str, host.python))
    fix = "install Python 3.11, 3.12 or 3.13 and make the environment anew with it"
    return text if (3, 11) <= host.python[:2] < (3, 14) else (FAIL, text, fix)


def _platform(host: Machine) -> Found:
    """JAX has wheels for this system."""
    text = f"{host.system} {host.release} {host.machine}"
    if (host.system, host.machine) == ("Darwin", "x86_64"):
        fix = "use an Apple-silicon Mac, Linux or the container"
        return FAIL, text, f"JAX has no current wheels for Intel Macs: {fix}"
    if host.system not in ("Linux", "Darwin", "Windows"):
        return WARN, text, "supported are Linux, WSL2, macOS and Windows (CPU); use the container"
    return text


def _wsl(host: Machine) -> Found:
    """WSL1 translates system calls. WSL2 has a kernel, 'microsoft-standard-WSL2'."""
    release, folder = host.release.lower(), host.run_folder.absolute()
    if host.system != "Linux" or "microsoft" not in release:
        return "not WSL"
    if "wsl2" not in release and version_key(release) < (4, 19):
        fix = "convert it: wsl --set-version <distribution> 2 (in PowerShell)"
        return FAIL, f"WSL1 ({host.release})", fix
    if str(folder).startswith("/mnt/"):
        fix = "keep runs in the Linux file system, e.g. under ~: locks and fsync are slow and weak on /mnt"
        return WARN, f"WSL2, run folder on a Windows drive ({folder})", fix
    return f"WSL2 ({host.release})"


def _cpu(host: Machine) -> Found:
    quota = host.limits.cpus
    text = f"{host.cpus} usable" + ("" if quota is None else f", cgroup limit {quota:g}")
    if host.usable < 2:
        where = "(docker run --cpus, taskset, the batch system's request)"
        return WARN, text, f"give the process at least 2 CPUs {where}, or lower rollout.num_envs"
    if quota is not None and quota < host.cpus and "NPROC" not in host.env:
        fix = f"XLA starts a thread per visible CPU and is throttled: set NPROC={int(host.usable)}"
        return WARN, text, fix
    return text


def _cpu_flags(host: Machine) -> Found:
    """The vector instructions that jaxlib needs."""
    if host.machine.lower() not in ("x86_64", "amd64") or host.cpu_flags is None:
        instead = "the jax-cpu check runs the code instead"
        return f"not listed by this platform ({host.machine}); {instead}"
    missing = {"avx", "avx2", "fma"} - host.cpu_flags
    if "avx" in missing:
        fix = "jaxlib needs AVX: enable it in the virtual machine (CPU type 'host')"
        return FAIL, "no AVX", fix
    fix = "training is slow here: use CPU type 'host' in the virtual machine, or a newer CPU"
    return (WARN, f"no {', '.join(sorted(missing))}", fix) if missing else "avx, avx2, fma"


def _memory(host: Machine) -> Found:
    """What the shipped configurations need."""
    sizes = [size for size in (host.memory, host.limits.memory) if size is not None]
    if not sizes:
        fix = "look it up in the system's monitor; 4 GiB are enough for the shipped configurations"
        return WARN, "unknown", fix
    size, fix = min(sizes), "close other programs or use a machine with more memory"
    text = gib(size)
    if host.limits.memory == size:
        text += " (cgroup limit)"
        fix = "raise the memory limit (docker run --memory, the batch system's request)"
    verdict = FAIL if size < GIB else WARN
    return text if size >= 4 * GIB else (verdict, text, f"{fix}, or lower rollout.num_envs")


def _threads(host: Machine) -> Found:
    stated = {key: host.env[key] for key in THREADS.split() if host.env.get(key)}
    text = ", ".join(f"{key}={value}" for key, value in stated.items()) or "no thread variable set"
    for key, value in stated.items():
        if not value.isdigit() or int(value) < 1:
            fix = f"{key} must be a whole number >= 1: unset it, or set {key}={host.cpus}"
            return FAIL, text, fix
    low = ", ".join(key for key, value in stated.items() if int(value) < int(host.usable))
    high = ", ".join(key for key, value in stated.items() if int(value) > max(1, 2 * host.usable))
    if low:
        keep = "NPROC also changes the bits of a CPU run: keep it where a run has to be repeated exactly"
        return WARN, text, f"unset {low} to use all {host.usable:g} CPUs ({keep})"
    most = int(max(1, host.usable))
    fix = f"lower {high} to {most}: more threads than CPUs slow everything down"
    return (WARN, text, fix) if high else text


def _pids(host: Machine) -> Found:
    """The threads of XLA and BLAS count as processes."""
    need = 64 + 8 * host.cpus
    limits = {"ulimit -u": host.max_processes, "cgroup pids": host.limits.pids}
    stated = [(limit, name) for name, limit in limits.items() if limit is not None]
    if not stated:
        return "no limit"
    limit, name = min(stated)
    text = f"{name} {limit}, needs about {need}"
    other = f"docker run --pids-limit {4 * need}, or TasksMax of the systemd unit"
    fix = f"ulimit -u {4 * need}" if name == "ulimit -u" else other
    return (FAIL, text, f"raise it: {fix}") if limit < need else text


def _open_files(host: Machine) -> Found:
    if host.max_files is not None and host.max_files < 256:
        return WARN, str(host.max_files), "raise it: ulimit -n 1024"
    return "no limit" if host.max_files is None else str(host.max_files)


def requirements() -> dict[str, tuple[str, str]]:
    """Distribution -> its lowest version, and the first one that is not supported, as this package
    states them; nothing where it is not installed. jaxlib goes with jax.
    """
    try:
        lines = [each for each in metadata.requires("jaxtrade") or () if "extra ==" not in each]
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for text in lines:
        least, below = re.search(r">=([\w.]+)", text), re.search(r"<([\w.]+)", text)
        name = re.split(r"[^\w.-]", text)[0].lower()
        found[name] = (least[1] if least else "", below[1] if below else "")
    return {**found, "jaxlib": found["jax"]}


def stated(name: str, least: str = "", below: str = "") -> str:
    """A distribution and its bounds, quoted for a shell."""
    bounds = [sign + version for sign, version in ((">=", least), ("<", below)) if version]
    return f'"{name}{",".join(bounds)}"'


def _packages(host: Machine) -> Found:
    wrong, wanted, needed = [], [], requirements()
    if not needed:
        text = "jaxtrade is not installed: what it needs is unknown"
        return WARN, text, "python -m pip install -e ."
    for name, (least, below) in needed.items():
        found = host.versions.get(name, "missing")
        late = bool(below) and version_key(found) >= version_key(below)
        if found == "missing" or late or version_key(found) < version_key(least):
            wrong.append(f"{name} {found}")
            wanted.append(stated(name, least, below))
    if wrong:
        return FAIL, "; ".join(wrong), f"python -m pip install {' '.join(wanted)}"
    named = ("jax", "jaxlib", "numpy", "pandas")
    return ", ".join(f"{name} {host.versions[name]}" for name in named)


def _time_zones(_: Machine) -> Found:
    """The markets' time zones."""
    zones = ("America/New_York", "America/Chicago", "Europe/London")
    try:
        return ", ".join(zoneinfo.ZoneInfo(name).key for name in zones)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        return FAIL, f"{error}", "python -m pip install --force-reinstall tzdata"


def _gpu_plugin(host: Machine) -> Found:
    """Without the plugin, JAX ignores the GPU silently. With one of another release, it fails or
    crashes.
    """
    plugins, pjrt = (
        {name: v for name, v in host.versions.items() if re.fullmatch(rf"jax-cuda\d+-{kind}", name)}
        for kind in ("plugin", "pjrt")
    )
    wanted = stated("jax[cuda13]", *requirements().get("jax", ()))
    if not plugins and not host.gpu_seen:
        return "no NVIDIA GPU seen; runs use the CPU"
    if not plugins and host.system == "Windows":
        fix = "use WSL2 for the GPU; CPU training works as it is"
        return WARN, "NVIDIA GPU, but JAX on Windows runs on the CPU", fix
    if not plugins:
        text = "NVIDIA GPU seen, no CUDA plugin: runs use the CPU"
        return WARN, text, f"python -m pip install {wanted}"
    text = ", ".join(f"{name} {version}" for name, version in plugins.items())
    if len(plugins) > 1:
        fix = f"keep one: python -m pip uninstall {' '.join(sorted(plugins)[:-1])}"
        return FAIL, f"{len(plugins)} plugins: {text}", fix
    release = version_key(next(iter(plugins.values())))[:3]
    others = {"jaxlib": [host.versions.get("jaxlib", "missing")], "pjrt": [*pjrt.values()]}
    for name, found in others.items():
        odd = [version for version in found if version_key(version)[:3] != release]
        if odd or not found:
            fix = f"plugin and {name} must be of one release: python -m pip install --upgrade {wanted}"
            return FAIL, f"{text}, {name} {', '.join(odd) or 'missing'}", fix
    return text


def _gpu_visible(host: Machine) -> Found:
    if not host.gpu_seen:
        return "no NVIDIA GPU seen"
    if host.env.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return WARN, "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES"
    platforms = host.env.get("JAX_PLATFORMS", "")
    if platforms and not set(platforms.split(",")) & {"cuda", "gpu"}:
        return WARN, f"JAX_PLATFORMS={platforms} leaves the GPU out", "unset JAX_PLATFORMS"
    return "nothing hides a GPU"


def try_folder(folder: Path) -> float:
    """Do what a checkpoint does in a folder: lock, write, fsync, rename, remove -> seconds. Raises
    OSError if a step fails.
    """
    from jaxtrade.runs.rundir import locked

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".jaxtrade-doctor-", dir=folder) as name:
        with locked(Path(name)), (Path(name) / "part").open("wb") as file:
            file.write(bytes(MIB))
            file.flush()
            os.fsync(file.fileno())
        (Path(name) / "part").replace(Path(name) / "whole")
    return time.monotonic() - start


def _run_folder(host: Machine) -> Found:
    """Runs can be written, locked and synced, and there is space."""
    wanted = host.run_folder.absolute()
    folder = next(each for each in (wanted, *wanted.parents) if each.exists())
    if not folder.is_dir():
        fix = "move it away, or train with --run-dir in another folder"
        return FAIL, f"{folder} is a file", fix
    free = shutil.disk_usage(folder).free
    try:
        seconds = try_folder(folder)
    except ImportError as error:  # the lock is code of this package, which may lack what it needs
        fix = "install what 'packages' names, then run the doctor again"
        return FAIL, f"not examined: {error}", fix
    except OSError as error:
        text = f"{folder}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = f"free some space under {folder}, or train with --run-dir on another disk"
            return FAIL, f"{text}, {gib(free)} free", fix
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            fix = "writable for this user, or train with --run-dir in a folder that is"
            return FAIL, text, f"make {folder} {fix}"
        return FAIL, f"{folder}: {error}", "train with --run-dir on a local disk"
    text = f"{folder}: {gib(free)} free, lock + 1 MiB + fsync + rename in {seconds * 1000:.0f} ms"
    if free < GIB:
        fix = "free some space (1 GiB is ample), or train with --run-dir on another disk"
        return WARN, text, fix
    slow = "checkpoints will be slow here: use a local disk for runs"
    return (WARN, text, slow) if seconds > 2 else text


def _compile_cache(host: Machine) -> Found:
    """The cache's programs are run unchecked, so who can write there can run code as this user."""
    own = f"set {VARIABLE} to a folder of your own"
    if "://" in (name := host.env.get(VARIABLE, "")):
        return WARN, f"{name} is remote", "use a local folder that only you can write"
    try:
        folder = cache_folder(host.env, host.system)
    except RuntimeError as error:
        return WARN, f"no folder ({error}): every run compiles again", own
    if not folder.exists():
        return f"{folder}: not made yet"
    if not folder.is_dir():
        return FAIL, f"{folder} is not a folder", f"point {VARIABLE} to a folder"
    if host.system == "Windows":  # without mode bits; only the user can open the user's profile
        return f"{folder} (keep it inside your user profile)"
    status = folder.stat()
    text = f"{folder}: mode {stat.S_IMODE(status.st_mode):04o}"
    if status.st_mode & 0o022:
        fix = f"chmod 700 {folder}; and empty it, if others had access"
        return FAIL, f"{text}, others can write it", fix
    if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
        return FAIL, f"{folder} belongs to user {status.st_uid}", own
    return text


CHECKS: dict[str, Callable[[Machine], Found]] = {
    function.__name__[1:].replace("_", "-"): function
    for function in (
        *(_python, _platform, _wsl, _cpu, _cpu_flags, _memory, _threads, _pids, _open_files),
        *(_packages, _time_zones, _gpu_plugin, _gpu_visible, _run_folder, _compile_cache),
    )
}


def check(name: str, host: Machine) -> Finding:
    """What a check finds."""
    found = CHECKS[name](host)
    return Finding(name, OK, found) if isinstance(found, str) else Finding(name, *found)
