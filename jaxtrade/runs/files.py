"""The files that a run's configuration names: recorded at its creation, found again later.

They are found from wherever the run is read. Also which of its modules may be imported.

A manifest's `files` holds for each key (`data.file`, `data.contract`, `imports.NAME`, ...):
`given`, the value in `config.yaml`; `absolute` and `relative`, its path then, the latter seen from
the run folder; `bytes` and `sha256`. Runs of earlier versions have no such entry. Their paths are
read as they were typed.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.prompts import files_of
from jaxtrade.config import RunConfig, find_file
from jaxtrade.data.members import member_configs
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.storage.digests import write_whole
from jaxtrade.storage.programs import user_folder

# Which modules of a run's folder may be imported: they are code, and whoever wrote the folder
# chose them.
#
# A module is imported without asking if it is the file with the digest that it had when this user
# made the run (a list in the user's state folder says so), if the user imported it himself
# (`--import`, or before in this process), or if he trusts the run (`--trust-imports`,
# `jaxtrade.open_run(..., trust_imports=True)`).

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
    """Return the file that notes which modules a user's runs import, and outlives a cache.

    Raises RuntimeError if the user has no home folder.
    """
    places = "XDG_STATE_HOME", ".local/state", "Library/Application Support"
    return user_folder(*places) / "imports.json"


def remember(names: Iterable[str]) -> str | None:
    """Note that this user made a run with these modules, which are imported.

    Return what failed, in a sentence: later commands will then ask.
    """
    roots = [
        root
        for name in names
        if (root := _roots(getattr(sys.modules.get(_top(name)), "__spec__", None)))
    ]
    if not roots:
        return None
    try:
        path = _file()
        known = {**_read_known(path), **{_entry(root): None for root in roots}}
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, json.dumps(list(known)[-MOST:], indent=0) + "\n")
    except (OSError, RuntimeError) as error:
        return (
            f"the list of modules that you made runs with cannot be written ({error}); reading this run will need "
            "--trust-imports"
        )
    return None


def require_trusted(names: Iterable[str], where: Path) -> None:
    """Check that a run's modules may be imported.

    where: the run's folder.

    Raises ConfigError, naming the module's file, for one that nobody trusted.
    """
    for name in names:
        if _top(name) not in sys.modules:
            require_file(name, _find_roots(name), where)


def require_file(name: str, roots: Sequence[Path], where: Path) -> None:
    """Check that the module `name` may be imported from `roots`: its file, or a package's folders.

    Raises ConfigError, as `require_trusted`.
    """
    if _all or name in _allowed:
        return
    try:
        if roots and _entry(roots) in _read_known(_file()):
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
    """Return what is imported with a module's file: of a package the whole folder."""
    return ((file.parent if file.name == "__init__.py" else file).resolve(),)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _roots(spec: importlib.machinery.ModuleSpec | None) -> tuple[Path, ...]:
    """Return the file of a top-level module; the folders of a package, also without `__init__.py`.

    Empty for a module that has no file, such as a built-in one.
    """
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(
            dict.fromkeys(Path(each).resolve() for each in spec.submodule_search_locations)
        )
    return (Path(spec.origin).resolve(),) if spec.origin is not None and spec.has_location else ()


def _find_roots(name: str) -> tuple[Path, ...]:
    """Return `_roots` of a top-level module, as `registry.import_parts` will find it.

    Nothing is imported.
    """
    top = _top(name)
    return _roots(
        importlib.machinery.PathFinder.find_spec(top, [os.getcwd(), *sys.path])
        or importlib.util.find_spec(top)
    )


def _entry(roots: Sequence[Path]) -> str:
    """Return the resolved places of a module, and the sha256 of all Python files there."""
    return " ".join([*map(str, roots), digest_code(*roots)])


def digest_code(*roots: Path) -> str:
    """Return the sha256 (hex) of all Python files in folders, and of files."""
    digest = hashlib.sha256()
    for root in roots:
        for part in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            digest.update(f"{part.relative_to(root.parent).as_posix()}\0".encode())
            digest.update(hashlib.sha256(part.read_bytes()).digest())
    return digest.hexdigest()


def _read_known(path: Path) -> dict[str, None]:
    """Read the entries of the list, in their order.

    There are none if it is absent or damaged: then the user is asked.
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


FILES = "files"  # in a manifest
_ADVISORS = ("table", "recorded", "replay")  # kinds whose name ends with a path
_FLAGS = {"data.file": "--data"}


def list_files(config: RunConfig) -> dict[str, str]:
    """Map each key that names a file to the path, as the configuration names it."""
    found = {}
    for member in member_configs(config):
        prefix = f"data.per_market.{member.data.market}." if config.data.markets else "data."
        found |= {f"{prefix}{key}": path for key, path in member.data.files.items()}
        if member.data.contract is not None:
            found[f"{prefix}contract"] = member.data.contract
    panel = {f"advisor.panel.{i}": each.kind for i, each in enumerate(config.advisor.panel)}
    for key, kind in ({"advisor.kind": config.advisor.kind} | panel).items():
        head, _, rest = kind.partition(":")
        if head in _ADVISORS:
            found[key] = rest
    return found | files_of(config.advisor)


def file_values(config: RunConfig) -> dict[str, Any]:
    """Map each key that names a file to its value.

    A panel with files is one value: its list of members.
    """
    found: dict[str, Any] = {
        key: path
        for key, path in list_files(config).items()
        if not key.startswith("advisor.panel.")
    }
    if "advisor.kind" in found:
        found["advisor.kind"] = config.advisor.kind
    if len(found) < len(list_files(config)):
        found["advisor.panel"] = [member.model_dump(mode="json") for member in config.advisor.panel]
    return found


def record(config: RunConfig, folder: Path) -> dict[str, dict[str, Any]]:
    """Make the entry `files` of the manifest of a new run in `folder`."""
    found = {}
    for key, given in list_files(config).items():
        path = _contract(given) if _is_contract(key) else Path(given)
        if path.is_file():  # a file that is named but not read may be absent
            found[key] = (
                {"given": given}
                | ({"shipped": True} if _is_shipped(given, key) else path_forms(path, folder))
                | _content(path)
            )
    for name in config.imports:
        module = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
        if module is not None and Path(module).is_file():
            found[f"imports.{name}"] = (
                {"given": name} | path_forms(Path(module), folder) | _content(Path(module))
            )
    return found


def _contract(given: str) -> Path:
    return find_file(given, "contracts", "contract")


def _is_contract(key: str) -> bool:
    return key.startswith("data.") and key.endswith(".contract")


def _is_shipped(given: str, key: str) -> bool:
    return _is_contract(key) and not Path(given).is_file()


def path_forms(path: Path, folder: Path) -> dict[str, str]:
    """Return the path as `absolute`, and as `relative` seen from `folder`."""
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
    """Make the modules that a run imports importable, wherever it is read from.

    Nothing is imported here.

    A module that Python finds is left to Python. Otherwise the recorded file must be the one of the
    run, and one that the user trusts: its folder is searched from here on.

    names: the modules in the run's configuration.

    Raises ConfigError for a file that nobody trusted.
    """
    for key, entry in manifest.get(FILES, {}).items():
        head, _, name = key.partition(".")
        if head != "imports" or name not in names or _is_found(name.partition(".")[0]):
            continue
        for path in _candidates(entry, folder):
            if path.is_file() and _content(path)["sha256"] == entry["sha256"]:
                require_file(name, roots_of(path), folder)
                package = path.name == "__init__.py"
                sys.path.append(str(path.parents[1] if package else path.parent))
                break


def _is_found(module: str) -> bool:
    """Return whether Python finds a top-level module.

    The current folder counts, which will be searched too.
    """
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
    """Replace the paths of the run in `folder` by those at which its files are now.

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
    data, advisor, context = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    per_market = {symbol: dict(keys) for symbol, keys in config.data.per_market.items()}
    panel = list(config.advisor.panel)

    def move(kind: str, path: str) -> str:
        return f"{kind.partition(':')[0]}:{path}"

    for key, path in values.items():
        match key.split("."):
            case ["data", "per_market", *symbol, own]:  # a symbol may hold a dot
                per_market.setdefault(".".join(symbol), {})[own] = path
            case ["data", own]:
                data[own] = path
            case ["advisor", "kind"]:
                advisor["kind"] = move(config.advisor.kind, path)
            case ["advisor", "template"]:
                advisor["template"] = path
            case ["advisor", "panel", number]:
                member = panel[int(number)]
                panel[int(number)] = member.replace(kind=move(member.kind, path))
            case ["advisor", "context", own]:
                context[own] = path
    if per_market != config.data.per_market:
        data["per_market"] = per_market
    advisor |= {"panel": tuple(panel), "context": context}
    return config.replace(data=data, advisor=advisor)


def require(
    config: RunConfig, manifest: Mapping[str, Any], folder: Path, advisor: bool = True
) -> None:
    """Check a located configuration: every file exists, and the advisor's is the one of the run.

    advisor: False where another advisor takes the place of the run's own. The other files'
        contents are judged by what becomes of them, the market (`explain`): the same bars may be
        in another file.

    Raises DataError or ConfigError, which name the places and the fix.
    """
    for key, entry in manifest.get(FILES, {}).items():
        if (
            key.startswith("imports.")
            or entry.get("shipped")
            or (key.startswith("advisor.") and not advisor)
        ):
            continue
        path = Path(list_files(config)[key])
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


def require_contracts(config: RunConfig, manifest: Mapping[str, Any], folder: Path) -> None:
    """Raise ConfigError if a contract file is not the one of the run in `folder`, as its costs."""
    for key, entry in manifest.get(FILES, {}).items():
        if _is_contract(key) and not entry.get("shipped"):
            path = _contract(list_files(config)[key])
            if _content(path)["sha256"] != entry["sha256"]:
                raise ConfigError(
                    f"{path}: this contract file ({key}) has changed since {folder} was trained; bring back "
                    f"the old file, or state the new one: --set {key}={path}"
                )


def explain(config: RunConfig, manifest: Mapping[str, Any], folder: Path) -> str:
    """Explain why the market of a located configuration is not the one that the run was trained on.

    Say what to do.
    """
    again = "bring back the old file, or train a new run"
    changed = []
    for key, entry in manifest.get(FILES, {}).items():
        if key.startswith("data."):
            path = (
                _contract(entry["given"]) if entry.get("shipped") else Path(list_files(config)[key])
            )
            if (found := _content(path)["sha256"]) != entry["sha256"]:
                what = "the contract file" if _is_contract(key) else f"the file of {key}"
                changed.append(
                    f"{what} {path} has changed (sha256 {found[:16]}..., then {entry['sha256'][:16]}...)"
                )
    if changed:
        return (
            f"{folder}: since this run was trained, {' and '.join(changed)}; {again}. To see its policy on new "
            "bars: jaxtrade evaluate RUN --on FILE"
        )
    if FILES in manifest:
        return (
            f"{folder}: none of its files has changed, but this version of jaxtrade makes another market of its "
            "bars; use the version in the run's manifest.json, or train a new run"
        )
    contract = (
        " or its contract file" if any(_is_contract(key) for key in list_files(config)) else ""
    )
    return (
        f"{folder}: its data{contract} have changed since it was trained; {again}. To see its policy on new "
        "bars: jaxtrade evaluate RUN --on FILE"
    )
