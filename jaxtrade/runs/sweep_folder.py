"""The folder of a sweep that needs several programs. Imports no heavy library."""

from __future__ import annotations

from pathlib import Path

from jaxtrade.config import RunConfig, make_config, read_values
from jaxtrade.errors import ConfigError

SWEEP = "sweep.json"  # marks the folder of such a sweep
FORMAT = 1


def folder_of(path: Path, number: int) -> Path:
    """The folder of program `number` in that of its sweep."""
    return path / f"group_{number}"


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep of several programs."""
    return (path / SWEEP).is_file()


def read_sweep(path: Path) -> RunConfig:
    """The configuration of a sweep of several programs. Raises ConfigError if its folder is damaged."""
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: a sweep whose config.yaml is missing; start it anew")
    return make_config(read_values(path / "config.yaml", exact=True), str(path / "config.yaml"))
