"""The folder of a sweep that needs several programs, or of a search. Imports no heavy library."""

from __future__ import annotations

from pathlib import Path

from jaxtrade.config import RunConfig, make_config, read_values
from jaxtrade.config.load import module_names
from jaxtrade.errors import ConfigError
from jaxtrade.runs import trust
from jaxtrade.storage import digests

SWEEP = "sweep.json"  # marks the folder of such a sweep
FORMAT = 1
BEST = "best"  # the folder of a search's best setting, trained as an ordinary run


def folder_of(path: Path, number: int) -> Path:
    """The folder of program `number` in that of its sweep."""
    return path / f"group_{number}"


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep of several programs, or of a search."""
    return (path / SWEEP).is_file()


def runs_of(path: Path) -> list[Path]:
    """The folders of the runs that a sweep or a search trains at the end, whether they exist yet or
    not.
    """
    found = digests.read_json(path / SWEEP, "restore it, or start the sweep anew")
    return (
        [path / group["folder"] for group in found["groups"]]
        if "groups" in found
        else [path / BEST]
    )


def read_sweep(path: Path) -> RunConfig:
    """The configuration of a sweep of several programs. Raises ConfigError if its folder is
    damaged.
    """
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: a sweep whose config.yaml is missing; start it anew")
    values = read_values(path / "config.yaml", exact=True)
    trust.require(module_names(values), path)
    return make_config(values, str(path / "config.yaml"), stored=True)
