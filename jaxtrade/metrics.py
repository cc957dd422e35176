"""Where the figures of a run go: console, JSON lines, TensorBoard, log file.

A row is the metrics of one update: name -> float, or list of floats. Of several agents trained side by side it is the
mean, and `name/each` the list by agent. It holds `update` (updates done), `steps`
(environment steps done), `total_updates`, `seconds` and `steps_per_second` (compilation apart) and `eta_seconds`.
Undefined figures are NaN in a row, `null` in JSON, `n/a` on the console.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from jaxtrade.errors import DataError

Row = Mapping[str, Any]


class MetricSink(Protocol):
    """Receives the rows of each chunk, in order, and one-line messages about the run."""

    def write(self, rows: Sequence[Row]) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


# --- text ------------------------------------------------------------------------------------------------------------


def _figure(value: Any, form: str) -> str:
    if value is None or not math.isfinite(value):
        return "n/a"
    return format(value, form)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def progress_line(rows: Sequence[Row]) -> str:
    """One line about a chunk: progress, speed, then the learning-health figures of its last update.

    The return is the mean over the chunk's finished episodes, since a single update may finish none.
    """
    last = rows[-1]
    ended = [row for row in rows if row.get("episodes", 0) > 0]
    count = sum(row["episodes"] for row in ended)
    reward = sum(row["episode_reward"] * row["episodes"] for row in ended) / count if ended else math.nan
    return (f"update {last['update']:.0f}/{last['total_updates']:.0f}  steps {last['steps']:,.0f}  "
            f"{_figure(last.get('steps_per_second'), ',.0f')} steps/s  eta {_duration(last['eta_seconds'])}  "
            f"return {_figure(reward, '.3f')}  kl {_figure(last.get('approx_kl'), '.1e')}  "
            f"clip {_figure(last.get('clip_fraction'), '.3f')}  entropy {_figure(last.get('entropy'), '.3f')}  "
            f"ev {_figure(last.get('explained_variance'), '.2f')}  lr {_figure(last.get('learning_rate'), '.2e')}")


class ConsoleSink:
    """One line per chunk. Figures are dimmed labels on a terminal, plain text otherwise or where NO_COLOR is set."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._color = self._stream.isatty() and not os.environ.get("NO_COLOR")

    def write(self, rows: Sequence[Row]) -> None:
        line = progress_line(rows)
        if self._color:
            head, *figures = line.split("  ")
            line = "  ".join([f"\x1b[1m{head}\x1b[0m", *(_dim_label(figure) for figure in figures)])
        print(line, file=self._stream, flush=True)

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to release: the stream is the caller's."""


def _dim_label(figure: str) -> str:
    label, sign, value = figure.rpartition(" ")
    return f"\x1b[2m{label}\x1b[0m{sign}{value}" if sign else figure


class LogSink:
    """`run.log`: the console's lines with the UTC time in front, appended."""

    def __init__(self, path: Path | str) -> None:
        self._file = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 (open as long as the run)

    def write(self, rows: Sequence[Row]) -> None:
        self.message(progress_line(rows))

    def message(self, text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for line in text.splitlines():
            self._file.write(f"{stamp} {line}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


# --- files -----------------------------------------------------------------------------------------------------------


def _json_value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """Rows of a JSON lines file; a last line that was torn by a kill is left out.

    Raises:
        DataError: any other line that is not JSON, with its number.
    """
    lines = Path(path).read_bytes().split(b"\n")
    complete, torn = lines[:-1], lines[-1]  # what follows the last newline is a torn line, or empty
    del torn
    rows = []
    for number, line in enumerate(complete, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is not JSON: {line[:60]!r}") from None
    return rows


class JsonlSink:
    """One JSON object per update. Messages are not data and go elsewhere."""

    def __init__(self, path: Path | str, resume_update: int | None = None) -> None:
        """Start a new file, or continue one after `resume_update`: later rows, which will be written again, go."""
        path = Path(path)
        if resume_update is not None and path.exists():
            kept = [row for row in read_rows(path) if row["update"] <= resume_update]
            temporary = path.with_name(f".{path.name}.new")
            temporary.write_text("".join(_line(row) for row in kept), encoding="utf-8")
            temporary.replace(path)
        else:
            path.write_bytes(b"")
        self._file = path.open("a", encoding="utf-8")

    def write(self, rows: Sequence[Row]) -> None:
        self._file.write("".join(_line(row) for row in rows))
        self._file.flush()

    def message(self, text: str) -> None:
        del text

    def close(self) -> None:
        self._file.close()


def _line(row: Row) -> str:
    return json.dumps({key: _json_value(value) for key, value in row.items()}, allow_nan=False) + "\n"


class TensorBoardSink:
    """TensorBoard event files; the horizontal axis is environment steps. Lists become `name/0`, `name/1`, ..., lists
    of lists `name/0/0`, ..."""

    def __init__(self, directory: Path | str, resume_steps: int | None = None) -> None:
        """`resume_steps`: TensorBoard hides what an earlier process wrote beyond this step."""
        from tensorboardX import SummaryWriter  # here, because it is slow to import

        self._writer = SummaryWriter(str(directory), purge_step=resume_steps)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in row.items():
                self._write(name, value, row["steps"])
        self._writer.flush()

    def _write(self, name: str, value: Any, steps: int) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                self._write(f"{name}/{index}", item, steps)
        elif math.isfinite(value):
            self._writer.add_scalar(name, value, steps)

    def message(self, text: str) -> None:
        del text

    def close(self) -> None:
        self._writer.close()
