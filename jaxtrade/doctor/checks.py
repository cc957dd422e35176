"""Checks of the machine's properties. Each is a pure function of `Machine`; none loads a native
library.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable

from jaxtrade.doctor.finding import Finding, fail, ok, warn
from jaxtrade.doctor.host import Machine

MIB, GIB = 1 << 20, 1 << 30
# Distribution -> (lowest version, first unsupported version). A test compares this with
# pyproject.toml.
REQUIRED = {
    "jax": ("0.10.2", "0.12"),
    "jaxlib": ("0.10.2", "0.12"),
    "flax": ("0.12.8", "0.13"),
    "optax": ("0.2.8", "0.3"),
    "chex": ("0.1.92", "0.2"),
    "gymnax": ("1.0.1", "1.1"),
    "gymnasium": ("1.3", "1.4"),
    "six": ("1.16", "1.18"),
    "numpy": ("2.4", "2.6"),
    "scipy": ("1.17", "1.19"),
    "pandas": ("3.1", "3.2"),
    "pyarrow": ("20", "27"),
    "pydantic": ("2.13", "2.15"),
    "pyyaml": ("6.0.2", "6.1"),
    "matplotlib": ("3.10", "3.12"),
    "python-dateutil": ("2.9", "4.1"),
    "rich": ("14", "16"),
    "tzdata": ("2026.1", ""),
}
THREAD_KEYS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NPROC",
)
ZONES = ("America/New_York", "America/Chicago", "Europe/London")


def version_key(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, which suffice to compare releases: 0.12.0.1 > 0.12."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def gib(size: float) -> str:
    """A size in bytes as text."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def effective_cpus(host: Machine) -> float:
    """The CPUs that the process may use, by its affinity and its cgroup."""
    return min(float(host.cpus), host.limits.cpus or float(host.cpus))


def check_python(host: Machine) -> Finding:
    """Check Python's version."""
    text = ".".join(map(str, host.python))
    if not (3, 11) <= host.python[:2] < (3, 14):
        return fail(
            "python",
            text,
            "install Python 3.11, 3.12 or 3.13 and make the environment anew with it",
        )
    return ok("python", text)


def check_platform(host: Machine) -> Finding:
    """Check that JAX has wheels for this system."""
    text = f"{host.system} {host.release} {host.machine}"
    if host.system == "Darwin" and host.machine == "x86_64":
        return fail(
            "platform",
            text,
            "JAX has no current wheels for Intel Macs: use an Apple-silicon Mac, Linux or "
            "the container",
        )
    if host.system not in ("Linux", "Darwin", "Windows"):
        return warn(
            "platform",
            text,
            "supported are Linux, WSL2, macOS and Windows (CPU); use the container",
        )
    return ok("platform", text)


def check_wsl(host: Machine) -> Finding:
    """Detect WSL1, which translates system calls. WSL2 has a real kernel, released as
    'microsoft-standard-WSL2'.
    """
    if host.system != "Linux" or "microsoft" not in host.release.lower():
        return ok("wsl", "not WSL")
    if "wsl2" not in host.release.lower() and version_key(host.release) < (4, 19):
        return fail(
            "wsl",
            f"WSL1 ({host.release})",
            "convert it: wsl --set-version <distribution> 2 (in PowerShell)",
        )
    if str(host.run_folder.absolute()).startswith("/mnt/"):
        return warn(
            "wsl",
            f"WSL2, run folder on a Windows drive ({host.run_folder.absolute()})",
            "keep runs in the Linux file system, e.g. under ~: locks and fsync are slow and weak on /mnt",
        )
    return ok("wsl", f"WSL2 ({host.release})")


def check_cpu(host: Machine) -> Finding:
    """Compare the usable CPUs with what training needs."""
    usable = effective_cpus(host)
    limit = f", cgroup limit {host.limits.cpus:g}" if host.limits.cpus is not None else ""
    text = f"{host.cpus} usable{limit}"
    if usable < 2:
        return warn(
            "cpu",
            text,
            "give the process at least 2 CPUs (docker run --cpus, taskset, the batch system's "
            "request), or lower rollout.num_envs",
        )
    if host.limits.cpus is not None and host.limits.cpus < host.cpus and "NPROC" not in host.env:
        return warn(
            "cpu",
            text,
            f"XLA starts a thread per visible CPU and is throttled: set NPROC={int(usable)}",
        )
    return ok("cpu", text)


def check_cpu_flags(host: Machine) -> Finding:
    """Check for the vector instructions that jaxlib needs."""
    if host.machine.lower() not in ("x86_64", "amd64") or host.cpu_flags is None:
        return ok(
            "cpu-flags",
            f"not listed by this platform ({host.machine}); the jax-cpu check runs the code instead",
        )
    missing = {"avx", "avx2", "fma"} - host.cpu_flags
    if "avx" in missing:
        return fail(
            "cpu-flags",
            "no AVX",
            "jaxlib needs AVX: enable it in the virtual machine (CPU type 'host')",
        )
    if missing:
        return warn(
            "cpu-flags",
            f"no {', '.join(sorted(missing))}",
            "training is slow here: use CPU type 'host' in the virtual machine, or a newer CPU",
        )
    return ok("cpu-flags", "avx, avx2, fma")


def check_memory(host: Machine) -> Finding:
    """Compare the memory, or its cgroup limit, with what the shipped configurations need."""
    sizes = [size for size in (host.memory, host.limits.memory) if size is not None]
    if not sizes:
        return warn(
            "memory",
            "unknown",
            "look it up in the system's monitor; 4 GiB are enough for the shipped configurations",
        )
    size, limited = min(sizes), host.limits.memory is not None and host.limits.memory == min(sizes)
    text = gib(size) + (" (cgroup limit)" if limited else "")
    fix = (
        "raise the memory limit (docker run --memory, the batch system's request)"
        if limited
        else "close other programs or use a machine with more memory"
    ) + ", or lower rollout.num_envs"
    if size < GIB:
        return fail("memory", text, fix)
    return warn("memory", text, fix) if size < 4 * GIB else ok("memory", text)


def check_threads(host: Machine) -> Finding:
    """Compare the thread variables of the environment with the usable CPUs."""
    stated = {key: host.env[key] for key in THREAD_KEYS if host.env.get(key)}
    text = ", ".join(f"{key}={value}" for key, value in stated.items()) or "no thread variable set"
    for key, value in stated.items():
        if not value.isdigit() or int(value) < 1:
            return fail(
                "threads",
                text,
                f"{key} must be a whole number >= 1: unset it, or set {key}={host.cpus}",
            )
    low = [key for key, value in stated.items() if int(value) < int(effective_cpus(host))]
    high = [key for key, value in stated.items() if int(value) > max(1, 2 * effective_cpus(host))]
    if low:
        return warn(
            "threads",
            text,
            f"unset {', '.join(low)} to use all {effective_cpus(host):g} CPUs (NPROC also "
            "changes the bits of a CPU run: keep it where a run has to be repeated exactly)",
        )
    if high:
        return warn(
            "threads",
            text,
            f"lower {', '.join(high)} to {int(max(1, effective_cpus(host)))}: more threads "
            "than CPUs slow everything down",
        )
    return ok("threads", text)


def check_pids(host: Machine) -> Finding:
    """Compare the limits on processes with the threads needed. Every XLA and BLAS worker is a
    thread and counts.
    """
    need = 64 + 8 * host.cpus
    found = {"ulimit -u": host.max_processes, "cgroup pids": host.limits.pids}
    stated = {name: limit for name, limit in found.items() if limit is not None}
    if not stated:
        return ok("pids", "no limit")
    name = min(stated, key=lambda key: stated[key])
    text = f"{name} {stated[name]}, needs about {need}"
    fix = (
        f"raise it: ulimit -u {4 * need}"
        if name == "ulimit -u"
        else f"raise it: docker run --pids-limit {4 * need}, or TasksMax of the systemd unit"
    )
    return fail("pids", text, fix) if stated[name] < need else ok("pids", text)


def check_files(host: Machine) -> Finding:
    """Check the limit on open files."""
    if host.max_files is None:
        return ok("open-files", "no limit")
    if host.max_files < 256:
        return warn("open-files", str(host.max_files), "raise it: ulimit -n 1024")
    return ok("open-files", str(host.max_files))


def check_packages(host: Machine) -> Finding:
    """Compare the installed versions with those that the package requires."""
    wrong = []
    for name, (least, below) in REQUIRED.items():
        found = host.versions.get(name)
        stated = f"{name}>={least}" + (f",<{below}" if below else "")
        if found is None:
            wrong.append((f"{name} missing", stated))
        elif version_key(found) < version_key(least) or (
            below and version_key(found) >= version_key(below)
        ):
            wrong.append((f"{name} {found}", stated))
    if wrong:
        wanted = " ".join(f'"{stated}"' for _, stated in wrong)
        return fail(
            "packages", "; ".join(text for text, _ in wrong), f"python -m pip install {wanted}"
        )
    return ok(
        "packages",
        ", ".join(f"{name} {host.versions[name]}" for name in ("jax", "jaxlib", "numpy", "pandas")),
    )


def check_gpu_plugin(host: Machine) -> Finding:
    """Check the GPU plugin. Without it, JAX ignores the GPU silently. With one of another release,
    JAX fails or crashes."""
    plugins = {
        name: version
        for name, version in host.versions.items()
        if re.fullmatch(r"jax-cuda\d+-plugin", name)
    }
    jaxlib = host.versions.get("jaxlib", "")
    least, below = REQUIRED["jax"]
    install = f'python -m pip install "jax[cuda13]>={least},<{below}"'
    if not plugins:
        if not host.gpu_seen:
            return ok("gpu-plugin", "no NVIDIA GPU seen; runs use the CPU")
        if host.system == "Windows":
            return warn(
                "gpu-plugin",
                "NVIDIA GPU, but JAX on Windows runs on the CPU",
                "use WSL2 for the GPU; CPU training works as it is",
            )
        return warn("gpu-plugin", "NVIDIA GPU seen, no CUDA plugin: runs use the CPU", install)
    text = ", ".join(f"{name} {version}" for name, version in plugins.items())
    if len(plugins) > 1:
        extra = " ".join(sorted(plugins)[:-1])
        return fail(
            "gpu-plugin",
            f"{len(plugins)} plugins: {text}",
            f"keep one: python -m pip uninstall {extra}",
        )
    if version_key(next(iter(plugins.values())))[:3] != version_key(jaxlib)[:3]:
        return fail(
            "gpu-plugin",
            f"{text}, jaxlib {jaxlib or 'missing'}",
            "plugin and jaxlib must be of one release: "
            + install.replace("install", "install --upgrade"),
        )
    pjrt = {
        name: version
        for name, version in host.versions.items()
        if re.fullmatch(r"jax-cuda\d+-pjrt", name)
    }
    odd = {
        name: version
        for name, version in pjrt.items()
        if version_key(version)[:3] != version_key(jaxlib)[:3]
    }
    if odd or not pjrt:
        return fail(
            "gpu-plugin",
            f"{text}, pjrt {', '.join(odd.values()) or 'missing'}",
            "plugin and pjrt must be of one release: "
            + install.replace("install", "install --upgrade"),
        )
    return ok("gpu-plugin", text)


def check_gpu_hidden(host: Machine) -> Finding:
    """Check that no environment variable hides the GPU."""
    if host.gpu_seen and host.env.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return warn(
            "gpu-visible", "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES"
        )
    platforms = host.env.get("JAX_PLATFORMS", "")
    if host.gpu_seen and platforms and not set(platforms.split(",")) & {"cuda", "gpu"}:
        return warn(
            "gpu-visible", f"JAX_PLATFORMS={platforms} leaves the GPU out", "unset JAX_PLATFORMS"
        )
    return ok("gpu-visible", "nothing hides a GPU" if host.gpu_seen else "no NVIDIA GPU seen")


def check_time_zones(_: Machine) -> Finding:
    """Check that the time zones of the markets can be read."""
    try:
        for name in ZONES:
            zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError) as error:
        return fail("time-zones", f"{error}", "python -m pip install --force-reinstall tzdata")
    return ok("time-zones", ", ".join(ZONES))


CHECKS: tuple[Callable[[Machine], Finding], ...] = (
    check_python,
    check_platform,
    check_wsl,
    check_cpu,
    check_cpu_flags,
    check_memory,
    check_threads,
    check_pids,
    check_files,
    check_packages,
    check_time_zones,
    check_gpu_plugin,
    check_gpu_hidden,
)
