"""The programs of a GPU or a TPU, compiled without one: launches, loops over rows, memory, and an
estimate of speed.

XLA compiles for a described device (`described`) on any machine. The compilers of NVIDIA and of
Google's TPUs come in packages of their own, which an ordinary run must not see: on a machine
without a GPU, JAX complains of an installed plugin. `jaxtrade bench accelerator --install` puts
them into a folder of their own, and each program compiles in a process that sees this folder.
Targets whose compiler is not installed are left out, by name.

Everything here is read from compiled programs; nothing runs on a device. `estimate` is a roofline:
the sum of the times for starting the launches, for the matrix products at PRODUCT_SHARE of the
peak, and for moving the bytes at BANDWIDTH_SHARE. On a TPU, whose compiler estimates cycles itself,
it is these. A device may be slower or faster.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from jaxtrade.errors import ConfigError
from jaxtrade.storage.programs import DETERMINISTIC, cache_folder

from .catalogue import Options
from .described import COMPILED_SHAPES, DEVICES, Device

FOLDER = (
    "JAXTRADE_COMPILERS"  # the folder of the compilers, if it is not beside the compiled programs
)
PRODUCT_SHARE, BANDWIDTH_SHARE = 0.4, 0.6
# Products by cuBLAS: for those by Triton, the XLA of JAX 0.11 finds no configuration without a
# device.
CUDA_FLAGS = f"{DETERMINISTIC} --xla_gpu_enable_triton_gemm=false"


class CompilationError(RuntimeError):
    """A program does not compile for a device, or the compiler's result cannot be read."""


def compilers() -> Path:
    """The folder of the compilers' packages."""
    given = os.environ.get(FOLDER)
    return Path(given) if given else cache_folder().parent / "compilers"


def packages(platform: str) -> list[str]:
    """What pip installs for the compiler of a platform, of the version that the installed JAX asks
    for.

    A newer libtpu fails at some programs, and writes others that JAX cannot read.
    """
    jax = importlib.metadata.version("jax")
    if platform == "tpu":
        asked = importlib.metadata.requires("jax") or ()
        return [line.partition(";")[0] for line in asked if line.startswith("libtpu")]
    return [
        f"jax-cuda13-pjrt=={jax}",
        f"jax-cuda13-plugin=={jax}",
        "nvidia-cuda-nvcc",
        "nvidia-nvvm",
    ]


def installed(platform: str) -> bool:
    """Whether the compiler of a platform is in the folder."""
    return (compilers() / ("libtpu" if platform == "tpu" else "jax_plugins")).is_dir()


def install(targets: tuple[str, ...]) -> None:
    """Put the compilers of these targets into their folder. Raises ConfigError if pip fails."""
    for platform in dict.fromkeys(DEVICES[name].platform for name in targets):
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--target",
            str(compilers()),
            *packages(platform),
        ]
        if subprocess.run(command).returncode:
            raise ConfigError(
                f"the compiler for {platform} could not be installed: {' '.join(command)}"
            )


def environment(device: Device, code: Path | None) -> dict[str, str]:
    """Variables of a process that compiles for a device. code: a checkout whose package is
    compiled.
    """
    path = [
        str(compilers()),
        *([str(code)] if code else []),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    platforms = "cpu,cuda" if device.platform == "cuda" else "cpu"
    # libtpu locks the machine's TPU for one process, also where there is none; compiling needs no
    # TPU.
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "JAX_PLATFORMS": platforms,
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        "XLA_FLAGS": CUDA_FLAGS if device.platform == "cuda" else "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def measure(
    target: str, shape: str, quick: bool = False, code: Path | None = None
) -> dict[str, Any]:
    """Figures of one program (`accelerator_child.report`), with the estimate. Raises
    CompilationError.
    """
    device = DEVICES[target]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("accelerator_child.py")),
            target,
            shape,
            str(out),
            *(["quick"] if quick else []),
            *(["code"] if code else []),
        ]
        done = subprocess.run(
            command, env=environment(device, code), capture_output=True, text=True
        )
        if done.returncode:
            reason = next(
                (line for line in reversed(done.stderr.splitlines()) if "Error" in line),
                "no reason given",
            )
            print(done.stderr[-4000:], file=sys.stderr)
            raise CompilationError(f"{target}, {shape}: the compilation failed: {reason}")
        return with_estimate(json.loads(out.read_text(encoding="utf-8")), device)


def with_estimate(found: dict[str, Any], device: Device) -> dict[str, Any]:
    """The figures and `estimate`: environment steps per second of a roofline (module docstring).
    Without the latter if the program's text could not be read."""
    if "unread" in found:
        return found
    if device.clock:
        seconds = {"cycles": found["cycles"] / device.clock}
    else:
        peak = device.peak[found.get("precision", "float32")]
        seconds = {
            "launches": found["launches"] * device.launch,
            "products": found["product_flops"] / (peak * PRODUCT_SHARE),
            "memory": found["bytes"] / (device.bandwidth * BANDWIDTH_SHARE),
        }
    total = sum(seconds.values())
    return found | {
        "estimate": {
            "steps_per_second": round(found["steps"] / total),
            "seconds": {name: round(part, 6) for name, part in seconds.items()},
        }
    }


def run(options: Options) -> dict[str, Any]:
    """Compile the chosen shapes for the chosen targets."""
    targets, shapes = options.targets or tuple(DEVICES), options.shapes or COMPILED_SHAPES
    if options.install:
        install(targets)
    found: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for target in targets:
        if not installed(DEVICES[target].platform):
            left_out[target] = (
                "its compiler is not installed; add --install (about "
                f"{1.1 if DEVICES[target].platform == 'cuda' else 0.3:.1f} GB in {FOLDER} or the cache "
                "folder)"
            )
            continue
        found[target] = {}
        for shape in shapes:
            try:
                found[target][shape] = measure(target, shape, options.quick, options.code)
            except CompilationError as error:
                left_out[f"{target} {shape}"] = str(error)
        print(f"compiled for {target}", file=sys.stderr, flush=True)
    assumptions = {
        "launch_seconds": {name: DEVICES[name].launch for name in found},
        "product_share_of_peak": PRODUCT_SHARE,
        "share_of_bandwidth": BANDWIDTH_SHARE,
        "peak_flops": {name: DEVICES[name].peak for name in found},
    }
    return {
        "compiled_only": "nothing ran on a device; `estimate` is a roofline, no measurement",
        "targets": found,
        "assumptions": assumptions,
        "left_out": left_out,
    }
