"""A picture of results as a PNG and an SVG. Both files carry the digest of what they show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def files(folder: Path, name: str) -> dict[str, Path]:
    """Format -> where the picture lies."""
    return {kind: folder / f"{name}.{kind}" for kind in ("png", "svg")}


def save(figure: Any, digest: str, paths: Mapping[str, Path]) -> None:
    """Write a matplotlib figure to `paths` (format -> file). digest: of everything that it
    shows.
    """
    for kind, path in sorted(
        paths.items(), reverse=True
    ):  # the SVG first: each drawing moves the layout a little
        path.parent.mkdir(parents=True, exist_ok=True)
        note = {"Description": f"jaxtrade bench; data {digest}"} | (
            {"Date": None} if kind == "svg" else {}
        )
        figure.savefig(path, format=kind, metadata=note, dpi=110)


def shows(paths: Mapping[str, Path], digest: str) -> bool:
    """Whether every file is there and shows what has this digest."""
    return all(path.is_file() and digest.encode() in path.read_bytes() for path in paths.values())
