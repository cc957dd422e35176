"""Sinks for the metrics of a run: JSON lines, TensorBoard, log file; and its lines of text.

`progress` shows the latter too.

A row is the metrics of one update: name -> float, or list of floats. If several agents train side
by side, `name` is their mean and `name/each` the list by agent. A row also holds `update` (updates
done), `steps` (environment steps done), `total_updates`, `seconds` and `steps_per_second` (both
without compilation) and `eta_seconds`.

An undefined metric is NaN in a row, `null` in JSON and `n/a` on the console. A sink may be given
names for the entries of a list (`action_share`: HOLD, BUY, ...); it then shows and writes the
entries by name.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrade.errors import DataError
from jaxtrade.formatting import clock_time
from jaxtrade.storage import digests
from jaxtrade.storage.events import EventWriter

if TYPE_CHECKING:
    import numpy as np

    from jaxtrade.types import (
        Row,
    )  # this module must not load JAX: a command shows its progress before that

Names = Mapping[str, Sequence[str]]  # name of a list-valued metric -> names of its entries
EACH = "/each"  # suffix of a metric's name: its values by agent
UNDONE = "undone"  # in the row of one of several agents: what it did in this chunk was taken back
Columns = Sequence[
    tuple[str, str, str]
]  # label, metric and format of a learner's console columns (`types.Column`)
UNNAMED: Names = MappingProxyType({})


class Episodes(NamedTuple):
    """The episodes that ended in one update, in the order of its steps, agent by agent.

    update: updates done, this one included.
    rows: float32[n, 7], `monitor.COLUMNS` and the symbol's number.
    agent: int[n].
    """

    update: int
    rows: np.ndarray
    agent: np.ndarray


class MetricSink:
    """Receives the rows of each chunk, in order, and what else is to be known of a run.

    It ignores what a class that derives from it does not define.
    """

    def write(self, rows: Sequence[Row]) -> None:
        """Receive the rows of a chunk."""

    def episodes(self, ended: Sequence[Episodes]) -> None:
        """Receive the episodes that ended in a chunk, by update. Raises StorageError."""

    def message(self, text: str) -> None:
        """Receive one line about the run."""

    def phase(
        self, name: str, about: str = "", total: int = 0, now: Callable[[], str] = str
    ) -> None:
        """Note that the run begins a phase: "compiling", "training" (`progress.screen.Screen.phase`)."""

    def rewind(self, update: int, steps: int) -> None:
        """Drop the rows after a rollback to `update` updates and `steps` environment steps."""

    def close(self) -> None:
        """Finish. Nothing is written afterwards."""


def by_name(row: Row, names: Names) -> dict[str, Any]:
    """Turn each list of `row` that is in `names` into a mapping from name to value.

    A list by agent stays a list; its elements become mappings.
    """

    def attach_labels(value: list[Any], labels: Sequence[str]) -> Any:
        if value and isinstance(value[0], list):
            return [attach_labels(each, labels) for each in value]
        return dict(zip(labels, value, strict=True))

    return {
        key: attach_labels(value, names[base])
        if (base := key.removesuffix(EACH)) in names
        else value
        for key, value in row.items()
    }


def count_agents(row: Row) -> int:
    """Count the agents that a row is of."""
    return next((len(value) for name, value in row.items() if name.endswith(EACH)), 1)


def per_agent(agents: int) -> tuple[str, str]:
    """Return what follows the steps of one agent, and the speed of all agents.

    Both are empty for a single agent.
    """
    return (f" of each of {agents} agents", " together") if agents > 1 else ("", "")


# --- text ------------------------------------------------------------------------------------------------------------


def _metric(value: Any, form: str) -> str:
    if value is None or not math.isfinite(value):
        return "n/a"
    return format(value, form)


def progress_line(rows: Sequence[Row], columns: Columns = ()) -> str:
    """Format one line about a chunk.

    It has progress, speed, mean return, then the learner's own `columns` from the last update. The
    return is the mean over all episodes that finished in the chunk, because a single update may
    finish none. It is left out if the learner reports none.
    """
    last = rows[-1]
    of, together = per_agent(count_agents(last))
    parts = [
        f"update {last['update']:.0f}/{last['total_updates']:.0f}",
        f"steps {last['steps']:,.0f}{of}",
        f"{_metric(last.get('steps_per_second'), ',.0f')} steps/s{together}",
        f"eta {clock_time(last['eta_seconds'])}",
    ]
    if "episode_reward" in last:
        parts.append(
            f"return {_metric(per_episode(rows, lambda row: row['episode_reward']), '.3f')}"
        )
    parts += [f"{label} {_metric(last.get(metric), form)}" for label, metric, form in columns]
    return "  ".join(parts)


def per_episode(rows: Sequence[Row], figure: Callable[[Row], float]) -> float:
    """Average a metric over all episodes that ended in these updates; NaN if none ended.

    figure: the metric of a row, a mean over that row's episodes. Each row is weighted by its number
        of episodes.
    """
    ended = [row for row in rows if row.get("episodes", 0) > 0]
    count = sum(row["episodes"] for row in ended)
    return sum(figure(row) * row["episodes"] for row in ended) / count if ended else math.nan


def _shares(values: Sequence[float], labels: Sequence[str]) -> str:
    """Format percentages by name. Entries that are 0 are left out."""
    if not all(math.isfinite(value) for value in values):
        return "n/a"
    return " ".join(
        f"{label} {100 * value:.1f}"
        for label, value in zip(labels, values, strict=True)
        if value > 0
    )


def panel_line(rows: Sequence[Row], names: Names) -> str:
    """Format one line about the policy's behaviour over a chunk.

    It shows actions and reasons for the end of episodes in per cent by name, round turns per
    episode, and the number of illegal samples. It is empty if the rows have none of these metrics.
    """
    last, parts = rows[-1], []
    if "action_share" in last and "action_share" in names:
        means = [
            sum(shares) / len(rows)
            for shares in zip(*(row["action_share"] for row in rows), strict=True)
        ]
        parts.append(f"actions % {_shares(means, names['action_share'])}")
    if "episode_trades" in last:
        parts.append(
            f"trades/episode {_metric(per_episode(rows, lambda row: row['episode_trades']), '.2f')}"
        )
    if "end_share" in last and "end_share" in names:
        ends = [
            per_episode(rows, lambda row, i=i: row["end_share"][i])
            for i in range(len(last["end_share"]))
        ]
        parts.append(f"ends % {_shares(ends, names['end_share'])}")
    if "illegal" in last:
        count = sum(row["illegal"] + row.get("illegal_executed", 0) for row in rows)
        parts.append(f"illegal {count:g}")
    return "  " + "  ".join(parts) if parts else ""


class LogSink(MetricSink):
    """Appends the lines of a plain console to `run.log`, each with the UTC time in front."""

    def __init__(self, path: Path | str, names: Names = UNNAMED, columns: Columns = ()) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 (stays open during the run)
        self._names, self._columns = names, columns

    def write(self, rows: Sequence[Row]) -> None:
        self.message(progress_line(rows, self._columns))
        if panel := panel_line(rows, self._names):
            self.message(panel)

    def message(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for line in text.splitlines():
            self._file.write(f"{stamp} {line}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


# --- files -----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert a value to plain JSON.

    Arrays and tuples become lists, numbers that are not finite None.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Read the rows of a JSON lines file.

    Ignores a last line without a newline: a killed process may have torn it.

    Raises:
        DataError: another line is not JSON; the message has its number.
    """
    *complete, _ = Path(path).read_bytes().split(b"\n")  # the last is a torn line, or empty
    rows = []
    for number, line in enumerate(complete, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is not JSON: {line[:60]!r}") from None
    return rows


class JsonlSink(MetricSink):
    """Writes one JSON object per row. Messages are ignored, because they are not data."""

    def __init__(
        self,
        path: Path | str,
        resume_update: int | None = None,
        names: Names = UNNAMED,
        every_update: bool = True,
    ) -> None:
        """Start a new file, or continue one after `resume_update`.

        Later rows are removed, because the resumed run writes them again.
        every_update: whether each update has a row. Then one of `resume_update` must be there.
        Raises DataError if a file to continue has changed since it was closed, or is missing
        or damaged.
        """
        self._path, self._names, self._every_update = Path(path), names, every_update
        if resume_update is not None and self._path.exists():
            digests.read_checked(self._path)
            digests.forget(self._path)
            _drop_rows(self._path, resume_update, every_update)
        elif resume_update and every_update:
            raise DataError(
                f"{path}: is missing, and the run goes on after update {resume_update}; restore the file, "
                "or train a new run"
            )
        else:
            digests.forget(self._path)
            self._path.write_bytes(b"")
        self._file = self._path.open("a", encoding="utf-8")

    def write(self, rows: Sequence[Row]) -> None:
        self._file.write("".join(_line(by_name(row, self._names)) for row in rows))
        self._file.flush()

    def rewind(self, update: int, steps: int) -> None:
        del steps
        self._file.close()
        _drop_rows(self._path, update, self._every_update)
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()
        digests.seal(self._path.parent, [self._path.name])


def _drop_rows(path: Path, after: int, every_update: bool) -> None:
    """Remove the rows after update `after`, and a torn last line. The file is replaced atomically.

    every_update: as of `JsonlSink`.
    """
    rows = read_rows(path)
    try:
        kept = [row for row in rows if row["update"] <= after]
    except (KeyError, TypeError):
        raise DataError(
            f"{path}: a row without its 'update'; restore the file, or train a new run"
        ) from None
    last = kept[-1]["update"] if kept else 0
    if every_update and last != after:
        raise DataError(
            f"{path}: its rows end at update {last}, and the run goes on after update {after}; restore the "
            "file, or train a new run"
        )
    digests.write_whole(path, "".join(_line(row) for row in kept))


def _line(row: Row) -> str:
    return json.dumps(plain(row), allow_nan=False) + "\n"


# What the environment and an advisor report about a rollout; the loop reports times; all else is
# the learner's.
_ROLLOUT = re.compile(
    r"episode|reward_|action_share|end_share|illegal|breaches|win_rate|forced_|commission_share|"
    r"advice_share|agreement|override|trust|hit_rate|brier|crowding_|impact_|maker_|offset_"
)
_GROUPED = ("monitor/",)
_TIME = ("update", "seconds", "steps_per_second", "eta_seconds")
NO_FIGURES = ("steps", "total_updates")  # the horizontal axis, and a constant


def name_tag(name: str) -> str:
    """Return the TensorBoard tag of a metric: `rollout/`, `time/` or `train/`, then its name.

    A name with a group stays.
    """
    if name.startswith(_GROUPED):
        return name
    return f"{'time' if name in _TIME else 'rollout' if _ROLLOUT.match(name) else 'train'}/{name}"


def metrics_of(row: Row, names: Names, without: Sequence[str] = NO_FIGURES) -> dict[str, float]:
    """Return the finite numbers of a row, by their tags."""
    named = {
        name_tag(name): value for name, value in by_name(row, names).items() if name not in without
    }
    return dict(scalars_of("", named))


class TensorBoardSink(MetricSink):
    """Writes TensorBoard event files. The horizontal axis is environment steps.

    Tags are grouped (`name_tag`). A list becomes `name/0`, `name/1`, ..., or one tag per entry name.
    A list of lists becomes `name/0/0`, ...
    """

    def __init__(
        self, directory: Path | str, resume_steps: int | None = None, names: Names = UNNAMED
    ) -> None:
        """Start or continue the event files.

        resume_steps: TensorBoard is to hide what an earlier process wrote after this step.
        """
        self._names = names
        self._writer = EventWriter(directory)
        if resume_steps is not None:
            self.rewind(0, resume_steps)

    def rewind(self, update: int, steps: int) -> None:
        """Make TensorBoard hide what was written after `steps`."""
        del update
        self._writer.forget_from(steps + 1)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._writer.scalars(metrics_of(row, self._names), int(row["steps"]))

    def figures(self, values: Mapping[str, float], steps: int) -> None:
        """Write numbers by tag, and leave out those that are not finite."""
        self._writer.scalars(dict(scalars_of("", values)), steps)

    def plot(self, tag: str, path: Path, steps: int) -> None:
        """Write a PNG file. Raises OSError if it cannot be read, ValueError if it is no PNG."""
        self._writer.image(tag, path.read_bytes(), steps)

    def settings(self, values: Mapping[str, float | bool | str], metrics: Sequence[str]) -> None:
        """Write hyper-parameters by name, and the tags of the metrics to compare runs by."""
        self._writer.hyperparameters(values, metrics)

    def close(self) -> None:
        self._writer.close()


def scalars_of(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield (tag, number) of every finite number in a row.

    Entries of lists and mappings become `tag/entry`.
    """
    if isinstance(value, list | Mapping):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from scalars_of(f"{tag}/{key}" if tag else str(key), item)
    elif math.isfinite(value):
        yield tag, float(value)
