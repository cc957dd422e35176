"""The list of seeded faults, `mutations.yaml`, as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutations.yaml")


@dataclass(frozen=True)
class Fault:
    """Replace `old` by `new` in the file at `path` (from the repository's root). caught_by: test files or node ids."""

    id: str
    package: str
    path: str
    old: str
    new: str
    caught_by: tuple[str, ...]

    def applied(self, root: Path) -> str:
        """The text of the file with the fault in it. Raises ValueError where `old` does not stand there once."""
        text = (root / self.path).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: '{self.old}' occurs {count} times in {self.path}, expected once")
        return text.replace(self.old, self.new)


def read_faults(path: Path = LIST) -> tuple[Fault, ...]:
    """Every fault of the list, in its order."""
    files: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple(
        Fault(fault["id"], file["package"], file["path"], fault["old"], fault["new"], tuple(fault["caught_by"]))
        for file in files for fault in file["faults"])
