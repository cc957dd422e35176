"""One update divided over many devices, compiled for them: collective operations, bytes, memory of
one device.

The compilers are those of `accelerator` (the same folder); nothing runs on a device. The work is
the same for any number of devices. `divided`: one agent, whose environments are divided.
`population`: agents divided over the devices, which need no communication. `cpu` are devices of
this machine's own CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import accelerator
from .catalogue import Options
from .described import DEVICES

PLATFORMS = {"cpu": "cpu", "h200": "cuda", "v5e": "tpu", "v5p": "tpu"}
COUNTS = {"cpu": (1, 2, 4, 8), "h200": (1, 8, 256), "v5e": (1, 8, 256), "v5p": (1, 8, 64)}
QUICK = {"cpu": (1, 2)}
KINDS = ("divided", "population")


def environment(target: str, count: int) -> dict[str, str]:
    """Variables of a process that compiles for a target."""
    if PLATFORMS[target] == "cpu":
        return os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(count),
            "NPROC": "1",
        }
    found = accelerator.environment(DEVICES["h200" if target == "h200" else "v5e"], None)
    return found | {"TPU_WORKER_HOSTNAMES": "localhost"}


def measure(target: str, count: int, kind: str, quick: bool) -> dict[str, Any]:
    """Figures of one program (`mesh_child.report`). Raises CompilationError."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("mesh_child.py")),
            target,
            str(count),
            str(out),
            *(["quick"] if quick else []),
            *(["population"] if kind == "population" else []),
        ]
        root = str(Path(__file__).resolve().parent.parent)
        env = environment(target, count)
        if __package__ == "bench":
            env["PYTHONPATH"] = os.pathsep.join([*filter(None, [env.get("PYTHONPATH")]), root])
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr[-4000:], file=sys.stderr)
            raise accelerator.CompilationError(
                f"{target}, {count} devices, {kind}: the compilation failed"
            )
        return json.loads(out.read_text(encoding="utf-8"))


def shares(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Memory of one of D devices as a share of that of a single one: temporaries, times D. 1 is a
    fall as 1 / D.
    """
    one = found["1"]["memory"]["temporaries"]
    return {
        count: round(each["memory"]["temporaries"] * each["devices"] / one, 3)
        for count, each in found.items()
    }


def kinds_of(target: str, counts: Sequence[int], quick: bool) -> dict[str, dict[str, Any]]:
    """Figures of both kinds of programs on so many devices."""
    found: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        found[kind] = {str(count): measure(target, count, kind, quick) for count in counts}
        found[kind]["memory_times_devices"] = shares(found[kind])
    return found


def run(options: Options) -> dict[str, Any]:
    """Compile for every target whose compiler is installed."""
    found: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for target, counts in (QUICK if options.quick else COUNTS).items():
        platform = PLATFORMS[target]
        if platform != "cpu" and not accelerator.installed(platform):
            left_out[target] = (
                "its compiler is not installed; run `jaxtrade bench accelerator --install`"
            )
            continue
        try:
            found[target] = kinds_of(target, counts, options.quick)
        except accelerator.CompilationError as error:
            left_out[target] = str(error)
            continue
        print(f"compiled for {target}", file=sys.stderr, flush=True)
    return {
        "compiled_only": "nothing ran on these devices",
        "most": most(found),
        "targets": found,
        "left_out": left_out,
    }


def most(found: dict[str, Any]) -> dict[str, float]:
    """The greatest figures of one agent on more than one device, over all targets: collective
    operations of a minibatch; temporaries as in `shares`; launches of an update, less its
    collective operations, over those of one device. The first alone counts on CPU devices, which
    share one memory and start nothing."""
    agent = {target: kinds["divided"] for target, kinds in found.items()}
    rows = [
        (target, each, by["1"], by["memory_times_devices"][count])
        for target, by in agent.items()
        for count, each in by.items()
        if count not in ("1", "memory_times_devices")
    ]
    if not rows:
        return {}
    whole = [row for row in rows if row[0] != "cpu"]
    result = {
        "collectives of a minibatch": max(
            each["collectives"]["minibatch"] for _, each, _, _ in rows
        )
    }
    if whole:
        result |= {
            "memory times devices": max(share for *_, share in whole),
            "launches without collectives": round(
                max(
                    (each["launches"] - each["collectives"]["update"]) / one["launches"]
                    for _, each, one, _ in whole
                ),
                4,
            ),
        }
    return result
