"""Intraday-trading reinforcement learning in JAX.

The public API is `__all__`; names load on first use (PEP 562), so `import jaxtrade` costs nothing.
It adds one option to `XLA_FLAGS` (`jaxtrade.storage.programs.use_fusion`): import it before the
process first computes with JAX.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from jaxtrade.storage.programs import use_fusion

use_fusion()

# Lines of the form `from jaxtrade.config import RunConfig as RunConfig`.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_HOME = {
    line.split()[3]: line.split()[1] for line in _STUB.splitlines() if line.startswith("from ")
}
__all__ = sorted(name for name in _HOME if not name.startswith("_"))  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxtrade' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
