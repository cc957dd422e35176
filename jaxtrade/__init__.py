"""Intraday-trading reinforcement learning in JAX.

The public API is `__all__`; names load on first use (PEP 562), so `import jaxtrade` costs nothing.
It adds one option to `XLA_FLAGS` (`jaxtrade.storage.programs.use_fusion`): import it before the
process first computes with JAX.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
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


class _Moved:
    """Finds public names where they were in earlier versions, for one more version.

    It is a finder and a loader of `importlib`, whose classes take a while to load.
    """

    HOMES = frozenset(
        f"jaxtrade.{name}"
        for name in (
            "data.market_set",
            "evaluation.evaluate_set",
            "evaluation.set_report",
            "runs.performance",
            "runs.python",
            "runs.stored",
            "runs.training_job",
            "training.plan",
        )
    )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self.HOMES else None  # pyright: ignore[reportArgumentType]

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        def look_up(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            warnings.warn(
                f"{module.__name__} is gone: from jaxtrade import {name}",
                DeprecationWarning,
                stacklevel=2,
            )
            return __getattr__(name)

        module.__dict__["__getattr__"] = look_up


sys.meta_path.append(_Moved())  # asked last, so only for modules that are not there
