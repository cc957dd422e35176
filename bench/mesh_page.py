"""The table of compiled programs on the page of devices, from the result of `mesh`. Imports no
JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import pages

NAMES = {"cpu": "CPU devices", "h200": "H200", "v5e": "TPU v5e", "v5p": "TPU v5p"}
COLUMNS = (
    "device",
    "devices",
    "collectives of a minibatch",
    "their bytes",
    "launches of an update",
    "temporaries of a device, MB",
    "the same times D, against one",
    "arguments of a device, MB",
)


def lines(result: Mapping[str, Any]) -> list[str]:
    """A Markdown table: one agent divided over D devices, a row for each target and D."""
    cells = [
        [NAMES[target], count, *shown(found["divided"], count)]
        for target, found in result["targets"].items()
        for count in found["divided"]
        if count != "memory_times_devices"
    ]
    return [
        *pages.rows(COLUMNS, cells),
        "",
        "An update of PPO with 4,096 environments x 128 steps, 16 minibatches, 4 epochs, network 256-256-128. "
        f"Nothing ran on these devices. Commit {result['stamp']['commit']}.",
    ]


def shown(found: Mapping[str, Any], count: str) -> list[str]:
    """The figures of one row."""
    own = found[count]
    collectives, memory = own["collectives"], own["memory"]
    return [
        str(collectives["minibatch"]),
        f"{collectives['bytes_of_minibatch']:,}",
        f"{own['launches']:,}",
        f"{memory['temporaries'] / 1e6:.1f}",
        f"{found['memory_times_devices'][count]:.2f}x",
        f"{memory['arguments'] / 1e6:.1f}",
    ]
