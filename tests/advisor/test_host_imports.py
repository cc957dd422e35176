"""The host side runs in threads beside a compiled program: it brings in no JAX, and HTTP only where
it is used.
"""

import json
import pkgutil
from pathlib import Path

import pytest

import jaxtrade.advisor.host
from tests.children import run_python

ROOT = Path(__file__).parents[2]
NAMES = [
    module.name
    for module in pkgutil.walk_packages(jaxtrade.advisor.host.__path__, "jaxtrade.advisor.host.")
]


def loaded(*names):
    """Top-level modules that a fresh interpreter holds after importing `names`."""
    code = (
        f"import {', '.join(names)}\nimport json, sys\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = run_python("-c", code, cwd=ROOT, timeout=120, check=True)
    return set(json.loads(done.stdout))


def test_no_module_of_the_host_side_loads_jax():
    names = [name for name in NAMES if not name.endswith(".http")]
    assert {"jaxtrade.advisor.host.openai", "jaxtrade.advisor.host.prompts"} <= set(names)
    found = loaded(*names)
    assert not found & {"jax", "jaxlib", "flax", "optax", "torch", "pandas", "numpy", "httpx"}
    assert "jaxtrade" in found


def test_nor_does_http():
    pytest.importorskip("httpx")
    assert "httpx" in (found := loaded("jaxtrade.advisor.host.http"))
    assert "jax" not in found
