"""The host side runs in threads beside XLA: it must not touch JAX, nor any library that does."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import jaxtrade.advisor.host


def test_no_module_of_the_host_side_loads_jax() -> None:
    names = [
        name
        for _, name, _ in pkgutil.walk_packages(
            jaxtrade.advisor.host.__path__, "jaxtrade.advisor.host."
        )
    ]
    assert {"jaxtrade.advisor.host.service", "jaxtrade.advisor.host.types"} <= set(names)
    code = f"import sys, {', '.join(names)}\nprint(' '.join(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    heads = {name.partition(".")[0] for name in done.stdout.split()}
    assert "jaxtrade" in heads
    assert not heads & {"jax", "jaxlib", "flax", "optax", "torch", "pandas", "numpy"}
