"""Which modules of a run's folder may be imported: they are code, and whoever wrote the folder chose them.

A module is imported without asking if it is the file with the digest that it had when this user made the run (a list in
the user's state folder says so), if the user imported it himself (`--import`, or before in this process), or if he
trusts the run (`--trust-imports`, `jaxtrade.open_run(..., trust_imports=True)`).
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.errors import ConfigError

MOST = 1000  # entries of the list; the oldest leave it first
_allowed: set[str] = set()  # names of modules, in this process
_all = False


def allow(names: Iterable[str]) -> None:
    """Trust modules by name for the rest of the process."""
    _allowed.update(names)


def allow_all(chosen: bool = True) -> None:
    """Trust the modules of every run that this process reads."""
    global _all
    _all = chosen


def state_folder(env: Mapping[str, str] = os.environ, system: str = platform.system()) -> Path:
    """The user's folder for what outlives a cache: `jaxtrade` in `XDG_STATE_HOME` or `~/.local/state` (on macOS
    `~/Library/Application Support`, on Windows `LOCALAPPDATA`). Raises RuntimeError if the user has no home folder."""
    match system:
        case "Darwin":
            base = Path.home() / "Library" / "Application Support"
        case "Windows":
            base = Path(env.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        case _:
            base = Path(env.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "jaxtrade"


def digest_of(file: Path) -> str:
    """sha256 (hex) of a module's file; of a package's `__init__.py`, that of every Python file in the package."""
    parts = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.relative_to(file.parent).as_posix()}\0".encode())
        digest.update(hashlib.sha256(part.read_bytes()).digest())
    return digest.hexdigest()


def remember(names: Iterable[str]) -> str | None:
    """Note that this user made a run with these modules, which are imported. Returns what failed, in a sentence: later
    commands will then ask."""
    files = [Path(file) for name in names
             if (file := getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)) is not None]
    if not files:
        return None
    try:
        path = state_folder() / "imports.json"
        known = {**_known(path), **{_entry(file): None for file in files}}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(list(known)[-MOST:], indent=0) + "\n", encoding="utf-8")
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        return f"the list of modules that you made runs with cannot be written ({error}); reading this run will need " \
               "--trust-imports"
    return None


def require(names: Iterable[str], where: Path) -> None:
    """Check that a run's modules may be imported. where: the run's folder.

    Raises ConfigError, naming the module's file, for one that nobody trusted.
    """
    asked = [name for name in names if name.partition(".")[0] not in sys.modules and name not in _allowed]
    if _all or not asked:
        return
    try:
        known = _known(state_folder() / "imports.json")
    except RuntimeError:
        known = {}
    for name in asked:
        file = _file_of(name)
        if file is not None and _entry(file) in known:
            continue
        which = "no file of this name is found" if file is None else \
            f"{file} is not a file that you have made a run with, or it has changed since"
        raise ConfigError(f"{where}: its configuration imports the module '{name}', which is code ({which}). Look at "
                          "it; then trust this run's modules with trust_imports=True (--trust-imports), or name it "
                          f"yourself with imports=['{name}'] (--import {name})")


def _entry(file: Path) -> str:
    return f"{file.resolve()} {digest_of(file)}"


def _known(path: Path) -> dict[str, None]:
    """The entries of the list, in their order; none if it is absent or damaged: then the user is asked."""
    try:
        entries: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {entry: None for entry in entries if isinstance(entry, str)} if isinstance(entries, list) else {}


def _file_of(name: str) -> Path | None:
    """The file of a top-level module, as `registry.import_parts` will find it. Nothing is imported."""
    spec = importlib.machinery.PathFinder.find_spec(name.partition(".")[0], [os.getcwd(), *sys.path])
    return None if spec is None or spec.origin is None else Path(spec.origin)
