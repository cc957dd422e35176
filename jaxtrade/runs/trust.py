"""Which modules of a run's folder may be imported: they are code, and whoever wrote the folder
chose them.

A module is imported without asking if it is the file with the digest that it had when this user
made the run (a list in the user's state folder says so), if the user imported it himself
(`--import`, or before in this process), or if he trusts the run (`--trust-imports`,
`jaxtrade.open_run(..., trust_imports=True)`).
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.errors import ConfigError
from jaxtrade.storage.programs import user_folder

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


def _file() -> Path:
    """Where it is noted which modules a user's runs import, which outlives a cache. Raises
    RuntimeError if the user has no home folder.
    """
    places = "XDG_STATE_HOME", ".local/state", "Library/Application Support"
    return user_folder(*places) / "imports.json"


def remember(names: Iterable[str]) -> str | None:
    """Note that this user made a run with these modules, which are imported. Returns what failed,
    in a sentence: later commands will then ask."""
    roots = [
        root
        for name in names
        if (root := _roots(getattr(sys.modules.get(_top(name)), "__spec__", None)))
    ]
    if not roots:
        return None
    try:
        path = _file()
        known = {**_known(path), **{_entry(root): None for root in roots}}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(list(known)[-MOST:], indent=0) + "\n", encoding="utf-8")
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        return (
            f"the list of modules that you made runs with cannot be written ({error}); reading this run will need "
            "--trust-imports"
        )
    return None


def require_trusted(names: Iterable[str], where: Path) -> None:
    """Check that a run's modules may be imported. where: the run's folder.

    Raises ConfigError, naming the module's file, for one that nobody trusted.
    """
    for name in names:
        if _top(name) not in sys.modules:
            require_file(name, _found(name), where)


def require_file(name: str, roots: Sequence[Path], where: Path) -> None:
    """Check that the module `name` may be imported from `roots`: its file, or the folders of a
    package. Raises ConfigError, as `require_trusted`."""
    if _all or name in _allowed:
        return
    try:
        if roots and _entry(roots) in _known(_file()):
            return
    except RuntimeError:  # no home folder, so no list
        pass
    which = (
        f"{roots[0]} is not what you have made a run with, or it has changed since"
        if roots
        else "no file of this name is found"
    )
    raise ConfigError(
        f"{where}: its configuration imports the module '{name}', which is code ({which}). Look at it; "
        "then trust this run's modules with trust_imports=True (--trust-imports)"
    )


def roots_of(file: Path) -> tuple[Path, ...]:
    """What is imported with a module's file: of a package the whole folder."""
    return ((file.parent if file.name == "__init__.py" else file).resolve(),)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _roots(spec: importlib.machinery.ModuleSpec | None) -> tuple[Path, ...]:
    """The file of a top-level module; the folders of a package, also of one without `__init__.py`.
    Empty for a module that has no file, such as a built-in one."""
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(
            dict.fromkeys(Path(each).resolve() for each in spec.submodule_search_locations)
        )
    return (Path(spec.origin).resolve(),) if spec.origin is not None and spec.has_location else ()


def _found(name: str) -> tuple[Path, ...]:
    """`_roots` of a top-level module, as `registry.import_parts` will find it. Nothing is
    imported.
    """
    top = _top(name)
    return _roots(
        importlib.machinery.PathFinder.find_spec(top, [os.getcwd(), *sys.path])
        or importlib.util.find_spec(top)
    )


def _entry(roots: Sequence[Path]) -> str:
    """The resolved places of a module, and the sha256 of all Python files there."""
    digest = hashlib.sha256()
    for root in roots:
        for part in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(f"{part.relative_to(root.parent).as_posix()}\0".encode())
            digest.update(hashlib.sha256(part.read_bytes()).digest())
    return " ".join([*map(str, roots), digest.hexdigest()])


def _known(path: Path) -> dict[str, None]:
    """The entries of the list, in their order; none if it is absent or damaged: then the user is
    asked.
    """
    try:
        entries: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return (
        {entry: None for entry in entries if isinstance(entry, str)}
        if isinstance(entries, list)
        else {}
    )
