"""The runs in a folder, each with its status and metrics, read from small files.

A folder that is damaged is an entry that says so. Nothing here takes a run's lock or writes
anything. Loads neither JAX nor pandas.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxtrade.config import read_values
from jaxtrade.errors import ConfigError, DataError, JaxtradeError
from jaxtrade.evaluation.run_days import DAILY, WALK, read_run_days
from jaxtrade.storage.digests import read_json
from jaxtrade.storage.status import RunStatus, age_of, is_alive, is_quiet, read_status

SUMMARY, MANIFEST, CONFIG, SWEEP = "summary.json", "manifest.json", "config.yaml", "sweep.json"
COURSE = "curriculum.yaml"
MARKS = (
    MANIFEST,
    CONFIG,
    SWEEP,
    COURSE,
    WALK,
    "checkpoints",
    "policy",
)  # any of them makes a folder look like a run
STATES = ("running", "stalled", "stopped", "failed", "died", "done", "unknown", "broken")
HELD_OUT = ("test", "validation")  # the splits whose figures are shown, the first that there is
# How an exception that ends a run cleanly begins in its status: the run can be resumed.
STOPPED = ("InterruptedRunError", "PreemptedError", "KeyboardInterrupt")


@dataclass(frozen=True)
class RunEntry:
    """One run. What is not known is None.

    name: its folder, seen from the listed one.
    status: of `STATES`.
    fault: why it is broken, or what has ended it.
    steps, total_steps: done, and planned.
    net_per_day: dollars per held-out day with the account rules off, of several policies
        the median.
    days: how many.
    split: which of `HELD_OUT`.
    agents: number of policies in that metric.
    age: seconds since the last sign of life.
    early: whether it is done before all its steps, because its scores did not get better.
    """

    name: str
    status: str
    fault: str | None = None
    market: str | None = None
    task: str | None = None
    learner: str | None = None
    steps: int | None = None
    total_steps: int | None = None
    net_per_day: float | None = None
    return_pct: float | None = None
    days: int | None = None
    split: str | None = None
    agents: int | None = None
    age: float | None = None
    early: bool = False

    def to_json(self) -> dict[str, Any]:
        """Convert the entry to plain data for JSON."""
        return asdict(self)


def entries_in(folder: Path) -> list[RunEntry]:
    """List the runs in a folder, by name.

    The parts of a sweep and the phases of a curriculum are entries of their own.

    A run's own folder gives that run, a curriculum's folder its phases. Raises ConfigError if there
    is no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder; name the one that holds the runs (default: runs)"
        )
    if (folder / MANIFEST).is_file():
        return [_entry(folder, folder.parent)]
    if (folder / COURSE).is_file():
        return [_entry(path, folder) for path in _phases(folder)]
    return [_entry(path, folder) for path in _runs(folder)]


def _runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs in `folder`, also those inside a sweep or a curriculum."""
    for path in sorted(
        each for each in folder.iterdir() if each.is_dir() and not each.name.startswith(".")
    ):
        if (path / SWEEP).is_file():
            yield from _runs(path)
        elif (path / COURSE).is_file():
            yield from _phases(path)
        elif any((path / mark).exists() for mark in MARKS):
            yield path


def _phases(course: Path) -> Iterator[Path]:
    """Yield the folders of a curriculum's phases that have begun."""
    return _runs(course / "phases") if (course / "phases").is_dir() else iter(())


def _entry(path: Path, root: Path) -> RunEntry:
    """Make the entry of one folder, whatever is wrong with it."""
    name = path.relative_to(root).as_posix()
    try:
        return _read(path, name)
    except (
        JaxtradeError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        StopIteration,
    ) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, KeyError):
            text = f"one of its files lacks the entry {text}"
        return RunEntry(name, "broken", text if str(path) in text else f"{path}: {text}")


def _read(path: Path, name: str) -> RunEntry:
    """Read the entry of a run. Raises what a damaged file raises."""
    status = read_status(path)
    if (path / WALK).is_file():
        return _walk(path, name, status)
    for needed in (MANIFEST, CONFIG):
        if not (path / needed).is_file():
            raise ConfigError(f"{path}: no {needed}")
    read_json(path / MANIFEST)
    summary = read_json(path / SUMMARY) if (path / SUMMARY).is_file() else None
    state, fault = _state(status, summary)
    early = state == "done" and bool((summary or {}).get("stop_reason"))
    found: dict[str, Any] = {"age": _age(path, status), "early": early}
    found |= _metrics(path) | _progress(status, summary, state)
    if status is None:  # of an earlier version; slower than all of the above
        values = read_values(path / CONFIG, exact=True)
        data = values.get("data", {})
        found |= {
            "market": "+".join(data.get("markets") or [data.get("market")]),
            "learner": str(values.get("algorithm", "ppo")),
            "task": values["env"]["task"],
            "total_steps": values["train"]["total_timesteps"],
        }
    return RunEntry(name, state, fault, **found)


def _state(status: RunStatus | None, summary: dict[str, Any] | None) -> tuple[str, str | None]:
    """Return (status of `STATES`, what ended the run or None)."""
    if status is None:  # an earlier version wrote none
        return (
            ("done", None)
            if summary is not None
            else ("unknown", f"no {SUMMARY} and no status.json")
        )
    if status.phase != "ended" and is_alive(status) is not False:
        return ("stalled" if is_quiet(status) else "running"), None
    if status.fault is not None:
        return ("stopped" if status.fault.startswith(STOPPED) else "failed"), status.fault
    if status.phase != "ended":
        return "died", f"process {status.pid} is gone, it was {status.phase}"
    if summary is None:
        return "died", f"it ended without a {SUMMARY}"
    limit = summary.get("stop_reason")
    early = limit is not None and not str(limit).startswith(
        "control.patience"
    )  # a limit of time: it can go on
    return ("stopped", str(limit)) if early else ("done", None)


def failed_unsaved(path: Path) -> bool:
    """Return whether the run in the folder failed before its first checkpoint."""
    others = (SWEEP, COURSE, WALK, SUMMARY, "policy")
    if not (path / MANIFEST).is_file() or any((path / mark).exists() for mark in others):
        return False
    try:
        state, _ = _state(read_status(path), None)
    except DataError:  # its status is damaged
        return False
    return state in ("failed", "died") and not any((path / "checkpoints").glob("*"))


def _progress(
    status: RunStatus | None, summary: dict[str, Any] | None, state: str
) -> dict[str, Any]:
    """Return the steps of a run, and what its status says of it."""
    steps = None if summary is None else int(summary["steps"])
    if status is None:
        return {"steps": steps}
    total = None
    if status.update and status.steps is not None and status.total_updates is not None:
        total = status.steps // status.update * status.total_updates
        steps = status.steps if steps is None or state in ("running", "stalled") else steps
    known = {name: getattr(status, name) for name in ("market", "task", "learner")}
    return {"steps": steps, "total_steps": total} | known


def _age(path: Path, status: RunStatus | None) -> float:
    """Return the seconds since the last sign of life.

    That is the status, else the youngest of a few files.
    """
    if status is not None:
        return age_of(status)
    files = [path / SUMMARY, path / "metrics.jsonl", path / MANIFEST]
    newest = max(each.stat().st_mtime for each in files if each.is_file())
    return max(0.0, time.time() - newest)


def _metrics(path: Path) -> dict[str, Any]:
    """Read the metrics of the first held-out split that was evaluated."""
    for split in HELD_OUT:
        folder = path / "evaluation" / split
        for name in ("evaluation.json", "seeds.json", SWEEP):
            if not (folder / name).is_file():
                continue
            found = read_json(folder / name)
            each = list((found.get("seeds") or found.get("sweep") or {"": found}).values())
            figures = [next(iter(own["agents"].values()))["strategy"] for own in each]
            days = int(each[0]["settings"]["sessions"])
            return {
                "split": split,
                "days": days,
                "agents": len(each),
                "net_per_day": statistics.median(own["net_profit"] for own in figures) / days,
                "return_pct": statistics.median(own["return_pct"] for own in figures),
            }
    return {}


def _walk(path: Path, name: str, status: RunStatus | None) -> RunEntry:
    """Make the entry of a walk-forward folder: its daily net is that of all folds together."""
    read_json(path / WALK)
    done = (path / DAILY).is_file()
    state, fault = "done" if done else "unknown", None
    found: dict[str, Any] = {}
    if status is not None:
        state, fault = _state(status, {} if done else None)
        found = {"age": age_of(status)}
    found |= _progress(status, None, state)
    if done:
        days = read_run_days(path)
        found |= {
            "split": days.split,
            "days": len(days.dates),
            "agents": len(days.policies),
            "net_per_day": statistics.median(days.net.mean(axis=1).tolist()),
        }
    return RunEntry(name, state, fault, **found)


# --- order -----------------------------------------------------------------------------------------------------------


def sort_entries(entries: list[RunEntry], order: str, backwards: bool = False) -> list[RunEntry]:
    """Sort the entries by age, name, status, net, days or steps.

    The youngest, the largest net, the most days or steps come first; names and statuses (in the
    order of `STATES`) from the start. Entries without the value come last, backwards too.
    """

    def value(entry: RunEntry) -> Any:
        numbers = {"net": entry.net_per_day, "days": entry.days, "steps": entry.steps}
        if order in numbers:
            return None if (number := numbers[order]) is None else -number
        return {"age": entry.age, "name": entry.name, "status": STATES.index(entry.status)}[order]

    known = [entry for entry in entries if value(entry) is not None]
    return [
        *sorted(known, key=value, reverse=backwards),
        *(entry for entry in entries if value(entry) is None),
    ]
