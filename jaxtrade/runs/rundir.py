"""A run on disk: its directory, its one-writer lock and its manifest."""

from __future__ import annotations

import datetime
import difflib
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig, digest_of, dump_config, make_config, read_values
from jaxtrade.config.faults import migrate
from jaxtrade.config.load import module_names, validate
from jaxtrade.errors import ConfigError, DataError, RunLockedError, StorageError
from jaxtrade.parts import find_homes
from jaxtrade.registry import SCRIPT
from jaxtrade.runs import files
from jaxtrade.storage import digests
from jaxtrade.storage.locks import try_lock
from jaxtrade.training.multiprocess import from_main, is_main
from jaxtrade.version import __version__

# What the bits of a run depend on besides its configuration and data: versions, device, driver,
# threads, flags.

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "numpy", "pandas")
DRIVER = Path("/proc/driver/nvidia/version")  # Linux only


def facts() -> dict[str, Any]:
    """Collect the machine's part of a manifest. Starts JAX."""
    import jax

    device = jax.devices()[0]
    return {
        "versions": {name: metadata.version(name) for name in LIBRARIES}
        | {"jaxtrade": __version__, "python": platform.python_version()},
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "runtime": device.client.platform_version,
            "driver": driver(),
        },
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "nproc": os.environ.get("NPROC"),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def driver(path: Path = DRIVER) -> str | None:
    """Find the version of the NVIDIA driver, such as "580.95.05".

    None if there is none, or on another system than Linux.
    """
    if not path.is_file():
        return None
    found = re.search(
        r"Kernel Module.*?\s(\d+(?:\.\d+)+)", path.read_text(encoding="utf-8", errors="replace")
    )
    return found.group(1) if found else None


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between the machines of two manifests.

    A run that goes on with a difference is not bit-identical.

    Facts that only one of the manifests has are passed over: an earlier version did not record
    them. So is the version of jaxtrade itself, whose changelog says what changes bits.
    """
    for part, ignored in (
        ("versions", {"jaxtrade", "pandas"}),
        ("device", {"count"}),
        ("machine", {"cpus"}),
    ):
        before, after = then.get(part, {}), now[part]
        for name in before.keys() & after.keys() - ignored:
            if before[name] != after[name]:
                yield f"{part.removesuffix('s')} {name}: {_line(before[name])}, now {_line(after[name])}"
    for name, label in (("nproc", "compute threads (NPROC)"), ("xla_flags", "XLA_FLAGS")):
        if then.get(name) is not None and then[name] != now[name]:
            yield f"{label}: {then[name]}, now {now[name]}"


def _line(value: Any) -> str:
    return " ".join(str(value).split())


# The commit of the code that runs: of its own checkout, or of the one that the installed package
# was built from.

STAMP = "_commit.txt"  # in the package; written by setup.py into wheels and source distributions
UNKNOWN = "unknown"
PACKAGE = Path(__file__).resolve().parent.parent
# Where git looks instead of around the current folder. Git sets them for hooks: they name another
# repository.
PLACES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
)


def commit(package: Path = PACKAGE) -> str:
    """Return 40 hex digits, with "-dirty" if the source had changes that were not committed.

    Return "unknown" if nothing says it.

    A package in its own checkout asks git. An installed copy may lie inside another repository,
    whose commit would say nothing: it reads what the build has written.
    """
    found = _of_checkout(package)
    if found is None and (package / STAMP).is_file():
        found = (package / STAMP).read_text(encoding="ascii").strip()
    return found or UNKNOWN


def environment() -> dict[str, str]:
    """Make the environment in which git searches around the folder that it is given alone."""
    return {name: value for name, value in os.environ.items() if name not in PLACES}


def _of_checkout(package: Path) -> str | None:
    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(package), *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
                env=environment(),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if (
        top is None
        or Path(top).resolve() != package.parent.resolve()
        or git("ls-files", "--error-unmatch", str(package / "__init__.py")) is None
    ):
        return None
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


SUMMARY = "summary.json"  # of a finished run
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of a run's folder


def new_run_path(market: str, task: str) -> Path:
    """Return `runs/<market>-<task>-<utc>-<id>`, not created yet.

    market: its name, or that of a set (EURUSD+USDJPY).
    """
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{market.replace('+', '-')}-{task}-{stamp}-{secrets.token_hex(2)}"


def named_folder(name: str, flag: str = "--name ", other: str = "--run-dir") -> Path:
    """Return `runs/<name>`.

    flag, other: how the caller gives the name, and another folder.

    Raises ConfigError for a name that is no name of a folder.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{flag}{name}: expected letters, digits, '.', '_' or '-' (at most 100), the first a "
            f"letter or digit; for another folder than runs/NAME use {other}"
        )
    return Path("runs") / name


def check_new(path: Path) -> None:
    """Check that a run can be created at `path`. Leaves nothing there.

    Raises ConfigError for an unsafe name, a file in the way, or a folder that is not empty, and
    StorageError for a place that cannot be written.
    """
    where = f"run folder {path} (--run-dir)"
    if not NAME.fullmatch(path.name):
        raise ConfigError(
            f"{where}: the last part must be letters, digits, '.', '_' or '-' (at most 100)"
        )
    check_place(path, where)
    if path.is_dir() and any(path.iterdir()):
        hint = f", or go on with it (--resume {path})" if (path / "manifest.json").is_file() else ""
        raise ConfigError(f"{where}: already exists and is not empty; choose another{hint}")


def check_place(path: Path, where: str) -> None:
    """Check that a folder can be made at `path`, or written if it exists. Leaves nothing there.

    where: the folder and its flag, for messages.

    Raises ConfigError for a file in the way, StorageError for a place that cannot be written.
    """
    there = next((place for place in (path, *path.parents) if place.exists()), None)
    if there is None:
        raise ConfigError(f"{where}: neither it nor a folder above it exists; choose another place")
    if not there.is_dir():
        raise ConfigError(
            f"{where}: {'it' if there == path else there} is a file; choose another name"
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".jaxtrade-", dir=there):
            pass  # rights, read-only disks and the like: only trying tells
    except OSError as error:
        raise StorageError(
            f"{where}: nothing can be written in {there} ({error.strerror}); choose another "
            "place, or change the folder's rights"
        ) from None


def create_run(path: Path, config: RunConfig, manifest: dict[str, Any]) -> None:
    """Create the folder with `config.yaml` and `manifest.json`: with both, or not at all.

    Of several processes, process 0 creates it and the others wait. Raises ConfigError as
    `check_new` does, and for a configuration that could not be read again.
    """

    def fill(new: Path) -> None:
        (new / "config.yaml").write_text(dump_config(config), encoding="utf-8")
        document = manifest | {files.FILES: files.record(config, path)}
        write_json(new / "manifest.json", document)

    def create() -> bool:
        # What a run has found out for itself stands in it unchecked: better refused now than after
        # the training, when the folder is opened.
        validate(RunConfig, config.model_dump(mode="json"), "configuration")
        create_folder(path, fill)
        for problem in (files.remember(config.imports), _explain_script(config)):
            if problem:
                print(f"note: {problem}", file=sys.stderr)
        return True

    from_main(create)


def _explain_script(config: RunConfig) -> str:
    """Say of which parts nobody else can read the run, since the program itself registers them."""
    homes = find_homes(config.model_dump(mode="json"))
    own = ", ".join(part for part, home in homes.items() if home == SCRIPT)
    return own and (
        f"{own}: registered in the program itself ({SCRIPT}), so no command can read this run; write it to "
        "a module of its own (my_parts.py) and import that (for this run: jaxtrade evaluate --import my_parts)"
    )


def create_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder with all that `fill` writes into the folder it is given, or not at all.

    Raises ConfigError as `check_new` does.
    """
    check_new(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # left by a process that was killed
    new.mkdir()
    try:
        fill(new)
        if (
            path.exists()
        ):  # the check above has shown that it is empty; Windows does not rename over it
            path.rmdir()
        new.rename(path)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file atomically.

    Raises ValueError for NaN or infinity, which JSON cannot express.
    """
    content = (json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    with digests.replace_files(path.parent, {path.name: content}):
        temporary.replace(path)


def read_run(
    path: Path, instead: Mapping[str, str] | None = None
) -> tuple[RunConfig, dict[str, Any]]:
    """Read the configuration and manifest of a run. Runs of earlier versions can be read too.

    Paths in the configuration are those at which the run's files are now (`files.locate`).

    instead: key -> path of files that the user names now, e.g. `data.file`.

    Raises ConfigError if `path` is not a run folder.
    """
    for name in ("config.yaml", "manifest.json"):
        if not (path / name).is_file():
            if path.is_file():
                raise ConfigError(
                    f"{path}: a file, and a run's folder is expected, written by 'jaxtrade train' (for "
                    f"bars of your own: jaxtrade init {shlex.quote(str(path))}, then jaxtrade train)"
                )
            if (path / "sweep.json").is_file():
                inside = [each.parent for each in path.glob("*/manifest.json")]
                agents = path / "agents.json"  # a search has no such file
                which = f" (its agents count from 0; {agents} has the group and number of each)"
                raise ConfigError(
                    f"{path}: a sweep of several programs, each a run of its own; name one of them, such "
                    f"as {min(inside, default=path / 'group_0')}{which if agents.is_file() else ''}"
                )
            raise ConfigError(
                f"{path}: not a run directory (no {name}); expected a folder written by 'jaxtrade train'"
                f"{_nearest_run(path)}"
            )
    try:
        manifest = digests.read_json(path / "manifest.json", "restore it or train again")
    except DataError as error:
        raise ConfigError(str(error)) from None
    missing = [key for key in ("config_sha256", "data_sha256", "nproc") if key not in manifest]
    if missing:
        raise ConfigError(
            f"{path / 'manifest.json'}: no '{missing[0]}'; restore the file or train again"
        )
    config = path / "config.yaml"
    if (found := config_digest(path)) != manifest["config_sha256"]:
        raise ConfigError(
            f"{config}: sha256 {found[:16]}..., the run was made with "
            f"{str(manifest['config_sha256'])[:16]}...; restore the file, or train a new run with the "
            "change"
        )
    values = written_values(path)
    files.find_imports(manifest, path, module_names(values))
    files.require_trusted(module_names(values), path)
    return files.locate(
        make_config(values, str(config), stored=True), manifest, path, instead
    ), manifest


def _nearest_run(path: Path) -> str:
    """Find a run for the end of a message about `path`: the one that it lies in, or a similar one.

    A similar one is beside it, and its name is like it or begins like it. Nothing if there is none.
    """
    if (path.parent / "config.yaml").is_file() and (path.parent / "manifest.json").is_file():
        return f"; did you mean {path.parent}?"
    runs = (
        sorted(
            each.parent.name
            for each in path.parent.glob("*/manifest.json")
            if (each.parent / "config.yaml").is_file()
        )
        if path.name
        else []
    )
    begins = [name for name in runs if name.startswith(path.name)]
    near = begins or difflib.get_close_matches(path.name, runs, n=1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def written_values(path: Path) -> dict[str, Any]:
    """Read the values in a run's `config.yaml`, under today's keys and in today's units.

    Raises ConfigError.
    """
    return migrate(read_values(path / "config.yaml", exact=True))


def config_digest(path: Path) -> str:
    """Compute the sha256 (hex) of the values in a run's `config.yaml`.

    The digest covers the file only, without the defaults that this version would add. A key that a
    later version adds therefore changes no digest.
    """
    return digest_of(read_values(path / "config.yaml", exact=True))


def quote_command(words: Sequence[str]) -> str:
    """Quote a command line so that this system's shell takes it apart into `words` again."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def program() -> list[str]:
    """Return the words with which this command was started.

    They are `jaxtrade`, or its path if the shell does not find that one.

    `jaxtrade` for any other program, such as one that calls `jaxtrade.run`.
    """
    started = Path(sys.argv[0])
    if (
        started.name == "__main__.py"
        and started.parent.name == "jaxtrade"
        and "-m" in sys.orig_argv
    ):
        return [*sys.orig_argv[: sys.orig_argv.index("-m")], "-m", "jaxtrade"]
    if started.stem != "jaxtrade":
        return ["jaxtrade"]
    found, own = shutil.which("jaxtrade"), shutil.which(str(started))
    elsewhere = own is not None and (found is None or not os.path.samefile(found, own))
    return [str(started)] if elsewhere else ["jaxtrade"]


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold the run's writer lock. The operating system releases it even if the process is killed.

    Of the processes of one run, process 0 writes and holds it.

    Raises RunLockedError, naming the holder, if another process has the lock.
    """
    if not is_main():
        yield
        return
    handle = (path / "run.lock").open("a+", encoding="utf-8")
    try:
        if not try_lock(handle):
            handle.seek(0)
            holder = handle.read().strip() or "another process"
            raise RunLockedError(
                f"{path}: locked by {holder}; one writer per run. Wait for it, or stop it"
            )
        handle.seek(0)
        handle.truncate()
        handle.write(f"pid {os.getpid()} on {platform.node()}")
        handle.flush()
        yield
    finally:
        handle.close()


def provenance(config: RunConfig, fingerprint: str) -> dict[str, Any]:
    """Describe where a result comes from: versions, commit, device, seeds and digests.

    Starts JAX.
    """
    return facts() | {
        "format": 1,
        "config_sha256": config.digest(),
        "data_sha256": fingerprint,
        "seed": config.seed,
        "git": commit(),
        "compute": config.compute.model_dump(mode="json"),
    }
