"""The files that a run's configuration names: recorded when it is created, found again from
wherever it is read.

A manifest's `files` holds for each key (`data.file`, `data.contract`, `imports.NAME`, ...):
`given`, the value in
`config.yaml`; `absolute` and `relative`, its path then, the latter seen from the run folder; `bytes` and `sha256`. Runs
of earlier versions have no such entry. Their paths are read as they were typed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.prompts import files_of
from jaxtrade.config import RunConfig, find_file
from jaxtrade.data.members import member_configs
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs import trust

FILES = "files"  # in a manifest
_ADVISORS = ("table", "recorded", "replay")  # kinds whose name ends with a path
_FLAGS = {"data.file": "--data"}


def named(config: RunConfig) -> dict[str, str]:
    """Key -> path of every file that a configuration names, as it names it."""
    found = {}
    for member in member_configs(config):
        prefix = f"data.per_market.{member.data.market}." if config.data.markets else "data."
        found |= {f"{prefix}{key}": path for key, path in member.data.files.items()}
        if member.data.contract is not None:
            found[f"{prefix}contract"] = member.data.contract
    head, _, rest = config.advisor.kind.partition(":")
    if head in _ADVISORS:
        found["advisor.kind"] = rest
    for number, member in enumerate(config.advisor.panel):
        head, _, rest = member.kind.partition(":")
        if head in _ADVISORS:
            found[f"advisor.panel.{number}"] = rest
    return found | files_of(config.advisor)


def values(config: RunConfig) -> dict[str, Any]:
    """Key -> value of every key that names a file. A panel with files is one value: its list of
    members.
    """
    found: dict[str, Any] = {
        key: path for key, path in named(config).items() if not key.startswith("advisor.panel.")
    }
    if "advisor.kind" in found:
        found["advisor.kind"] = config.advisor.kind
    if len(found) < len(named(config)):
        found["advisor.panel"] = [member.model_dump(mode="json") for member in config.advisor.panel]
    return found


def record(config: RunConfig, folder: Path) -> dict[str, dict[str, Any]]:
    """The entry `files` of the manifest of a new run in `folder`."""
    found = {}
    for key, given in named(config).items():
        path = _contract(given) if _is_contract(key) else Path(given)
        if path.is_file():  # a file that is named but not read may be absent
            found[key] = (
                {"given": given}
                | ({"shipped": True} if _is_shipped(given, key) else places(path, folder))
                | _content(path)
            )
    for name in config.imports:
        module = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
        if module is not None and Path(module).is_file():
            found[f"imports.{name}"] = (
                {"given": name} | places(Path(module), folder) | _content(Path(module))
            )
    return found


def _contract(given: str) -> Path:
    return find_file(given, "contracts", "contract")


def _is_contract(key: str) -> bool:
    return key.startswith("data.") and key.endswith(".contract")


def _is_shipped(given: str, key: str) -> bool:
    return _is_contract(key) and not Path(given).is_file()


def places(path: Path, folder: Path) -> dict[str, str]:
    """`absolute`, and `relative` as seen from `folder`."""
    path = path.resolve()
    found = {"absolute": str(path)}
    try:
        return found | {"relative": Path(os.path.relpath(path, folder.resolve())).as_posix()}
    except ValueError:  # on another drive of Windows
        return found


def _content(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def find_imports(manifest: Mapping[str, Any], folder: Path, names: Collection[str]) -> None:
    """Make the modules that a run imports importable, wherever it is read from. Nothing is imported
    here.

    A module that Python finds is left to Python. Otherwise the recorded file must be the one of the
    run, and one that the user trusts: its folder is searched from here on. names: the modules in
    the run's configuration. Raises ConfigError for a file that nobody trusted.
    """
    for key, entry in manifest.get(FILES, {}).items():
        head, _, name = key.partition(".")
        if head != "imports" or name not in names or _is_found(name.partition(".")[0]):
            continue
        for path in _candidates(entry, folder):
            if path.is_file() and _content(path)["sha256"] == entry["sha256"]:
                trust.require_file(name, trust.roots_of(path), folder)
                package = path.name == "__init__.py"
                sys.path.append(str(path.parents[1] if package else path.parent))
                break


def _is_found(module: str) -> bool:
    """Whether Python finds a top-level module, or will when the current folder is searched too."""
    here = Path.cwd() / module
    return (
        module in sys.modules
        or here.is_dir()
        or here.with_suffix(".py").is_file()
        or importlib.util.find_spec(module) is not None
    )


def locate(
    config: RunConfig,
    manifest: Mapping[str, Any],
    folder: Path,
    instead: Mapping[str, str] | None = None,
) -> RunConfig:
    """The configuration of the run in `folder`, with the paths at which its files are now.

    A file is looked for relative to the run folder, then at its former absolute path, then as it
    was typed. Of several that exist, the one with the recorded sha256 is taken. A file that is
    nowhere keeps its former absolute path.

    instead: key -> path of files that the user names now.
    """
    values: dict[str, str] = dict(instead or {})
    for key, entry in manifest.get(FILES, {}).items():
        if key in values or key.startswith("imports.") or entry.get("shipped"):
            continue
        places = [path for path in _candidates(entry, folder) if path.is_file()]
        if len({path.resolve() for path in places}) > 1:
            places = [
                path for path in places if _content(path)["sha256"] == entry["sha256"]
            ] or places
        place = places[0] if places else Path(entry["absolute"])
        if not Path(entry["given"]).is_file() or Path(entry["given"]).resolve() != place.resolve():
            values[key] = str(place)  # a path that is still right stays as it was typed
    return _with_paths(config, values)


def _candidates(entry: Mapping[str, Any], folder: Path) -> list[Path]:
    relative = (
        [Path(os.path.normpath(folder.resolve() / entry["relative"]))]
        if "relative" in entry
        else []
    )
    return [*relative, Path(entry["absolute"]), Path(entry["given"])]


def _with_paths(config: RunConfig, values: Mapping[str, str]) -> RunConfig:
    data: dict[str, Any] = {}
    per_market = {symbol: dict(keys) for symbol, keys in config.data.per_market.items()}
    for key, path in values.items():
        match key.split("."):
            case ["data", "per_market", *symbol, own]:  # a symbol may hold a dot
                per_market.setdefault(".".join(symbol), {})[own] = path
            case ["data", own]:
                data[own] = path
    if per_market != config.data.per_market:
        data["per_market"] = per_market
    advisor = {
        key.partition(".")[2]: path
        for key, path in values.items()
        if key in ("advisor.kind", "advisor.template")
    }
    if "kind" in advisor:
        advisor["kind"] = f"{config.advisor.kind.partition(':')[0]}:{advisor['kind']}"
    context = {
        key.rpartition(".")[2]: path
        for key, path in values.items()
        if key.startswith("advisor.context.")
    }
    panel = [
        member
        if (place := values.get(f"advisor.panel.{number}")) is None
        else member.model_copy(update={"kind": f"{member.kind.partition(':')[0]}:{place}"})
        for number, member in enumerate(config.advisor.panel)
    ]
    moved: dict[str, Any] = {
        **advisor,
        "panel": tuple(panel),
        "context": config.advisor.context.model_copy(update=context),
    }
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "advisor": config.advisor.model_copy(update=moved),
        }
    )


def require(
    config: RunConfig, manifest: Mapping[str, Any], folder: Path, advisor: bool = True
) -> None:
    """Check a located configuration: every file exists, and the advisor's is the one of the run.

    advisor: False where another advisor takes the place of the run's own. The other files' contents
        are judged by what
    becomes of them, the market (`explain`): the same bars may be in another file.

    Raises DataError or ConfigError, which name the places and the fix.
    """
    for key, entry in manifest.get(FILES, {}).items():
        if (
            key.startswith("imports.")
            or entry.get("shipped")
            or (key.startswith("advisor.") and not advisor)
        ):
            continue
        path = Path(named(config)[key])
        if not path.is_file():
            tried = " or ".join(dict.fromkeys(str(place) for place in _candidates(entry, folder)))
            fix = (
                f"bring it back, or name it with {_FLAGS[key]} FILE"
                if key in _FLAGS
                else "bring it back"
            )
            raise DataError(f"{folder}: its file {key} = {entry['given']} is not at {tried}; {fix}")
        if key.startswith("advisor.") and (found := _content(path)["sha256"]) != entry["sha256"]:
            what = (
                "file of advice" if key.startswith(("advisor.kind", "advisor.panel.")) else "file"
            )
            raise ConfigError(
                f"{path}: this {what} ({key}) has changed since {folder} was trained "
                f"(sha256 {found[:16]}..., then {entry['sha256'][:16]}...); bring back the old file, or "
                "train a new run"
            )


def explain(config: RunConfig, manifest: Mapping[str, Any], folder: Path) -> str:
    """Why the market of a located configuration is not the one that the run was trained on, and
    what to do.
    """
    again = "bring back the old file, or train a new run"
    changed = []
    for key, entry in manifest.get(FILES, {}).items():
        if key.startswith("data."):
            path = _contract(entry["given"]) if entry.get("shipped") else Path(named(config)[key])
            if (found := _content(path)["sha256"]) != entry["sha256"]:
                what = "the contract file" if _is_contract(key) else f"the file of {key}"
                changed.append(
                    f"{what} {path} has changed (sha256 {found[:16]}..., then {entry['sha256'][:16]}...)"
                )
    if changed:
        return f"{folder}: since this run was trained, {' and '.join(changed)}; {again}"
    if FILES in manifest:
        return (
            f"{folder}: none of its files has changed, but this version of jaxtrade makes another market of its "
            "bars; use the version in the run's manifest.json, or train a new run"
        )
    contract = " or its contract file" if any(_is_contract(key) for key in named(config)) else ""
    return f"{folder}: its data{contract} have changed since it was trained; {again}"
