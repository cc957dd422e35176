"""Progress as one live panel on a terminal, drawn by rich. Messages scroll above it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jaxtrade.formatting import duration
from jaxtrade.progress.screen import (
    LastingStream,
    Now,
    Screen,
    ShownPhase,
    panel_closed,
    panel_opened,
)
from jaxtrade.storage.sinks import count_agents, panel_line, per_episode, progress_line
from jaxtrade.text import printable

if TYPE_CHECKING:
    from jaxtrade.types import Row

WIDTH = 100  # columns; the panel is not wider
PER_SECOND = 4  # redraws
BARS = "▁▂▃▄▅▆▇█"
SPARK, BAR, NAME, CLOCK = 36, 18, 10, 8  # columns
LEAST_SHARE = 0.005  # of an action that is shown
STYLES = (("warning:", "yellow"), ("error:", "bold red"), ("note:", "dim"))


class PhasePanel(Screen):
    """The phases of a command with their times, and below them the metrics of the training.

    The cursor stays visible: a process that is killed then leaves the terminal as it was.
    """

    live = True

    def __init__(self, title: str, stream: TextIO) -> None:
        """title: of the panel.

        stream: a terminal that can show a panel (`screen.can_show_panel`).
        """
        super().__init__()
        self._title, self._descriptor = title, stream.fileno()
        self._chapter = ""
        self._before: list[tuple[str, float]] = []  # chapters that have ended, and their seconds
        self._returns: list[float] = []
        self._best: tuple[float, int] | None = None  # highest return of a chunk, and its update
        self._figures: tuple[str, ...] = ()
        self._last: Row | None = None
        self._failed = False
        self._spinner = Spinner("dots")
        self._console = _Console(
            file=cast("TextIO", LastingStream(stream)),
            force_terminal=True,
            highlight=False,
            markup=False,
            emoji=False,
        )
        # Python's own messages on standard error go above the panel. What goes to standard output
        # is a result: it is only taken along if it ends on the same terminal.
        self._live = Live(
            get_renderable=self.draw,
            console=self._console,
            refresh_per_second=PER_SECOND,
            redirect_stderr=True,
            redirect_stdout=sys.stdout.isatty(),
        )

    def phase(self, name: str, about: str = "", total: int = 0, now: Now = str) -> None:
        super().phase(name, about, total, now)
        if not self._live.is_started:
            panel_opened(self._descriptor)
            self._live.start(refresh=True)
        else:
            self._live.refresh()  # a short phase would otherwise end between two redraws, unseen

    def chapter(self, name: str) -> None:
        if self._chapter:
            self._before.append((self._chapter, sum(phase.seconds for phase in self.phases)))
        super().chapter(name)
        self._chapter, self._returns, self._best, self._figures, self._last = (
            name,
            [],
            None,
            (),
            None,
        )

    def write(self, rows: Sequence[Row]) -> None:
        self._last = last = rows[-1]
        if "episode_reward" in last:
            mean = per_episode(rows, lambda row: row["episode_reward"])
            self._returns.append(mean)
            if math.isfinite(mean) and (not self._best or mean > self._best[0]):
                self._best = mean, int(last["update"])
        # The figures of a plain line, without those that the panel shows elsewhere.
        own = progress_line(rows, self.columns).split("  ")[4 + ("episode_reward" in last) :]
        behaviour = panel_line(rows, self.names).strip().split("  ")
        rest = "  ".join(part for part in behaviour if not part.startswith("actions"))
        self._figures = tuple(line for line in ("  ".join(own), self._actions(last), rest) if line)

    def _actions(self, row: Row) -> str:
        """Format the shares of the actions, the largest first.

        Those below half a per cent are left out.
        """
        names = self.names.get("action_share", ())
        shares = [
            (share, name)
            for share, name in zip(row.get("action_share", ()), names, strict=False)
            if share >= LEAST_SHARE
        ]
        return "  ".join(
            f"{name} {100 * share:.0f} %" for share, name in sorted(shares, reverse=True)
        )

    def message(self, text: str) -> None:
        style = next((style for start, style in STYLES if text.startswith(start)), None)
        self._console.print(Text(printable(text), style=style or ""), soft_wrap=True)

    def end_with_error(self) -> None:
        self._failed = True

    def close(self) -> None:
        super().close()
        if self._live.is_started:
            self._live.stop()
        panel_closed(self._descriptor)

    # --- drawing -----------------------------------------------------------------------------------------------------

    def draw(self) -> RenderableType:
        """Draw the panel as it is now."""
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=1)
        grid.add_column(width=NAME, no_wrap=True)
        grid.add_column(width=CLOCK, justify="right", no_wrap=True)
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for phase in tuple(self.phases):
            grid.add_row(
                self._mark(phase),
                Text(phase.name, style="bold" if phase.lasts else ""),
                Text(duration(phase.seconds), style="dim"),
                self._about(phase),
            )
            if phase.name == "training" and self._last:
                for line in self._below():
                    grid.add_row("", "", "", line)
        chapters = [
            Text.assemble(("✓ ", "green"), name, (f"  {duration(seconds)}", "dim"))
            for name, seconds in self._before
        ]
        if self._chapter:
            chapters.append(Text(self._chapter, style="bold"))
        return Panel(
            Group(*chapters, grid),
            title=Text(f" {self._title} ", style="bold"),
            title_align="left",
            border_style="dim",
            width=min(WIDTH, self._console.width),
        )

    def _mark(self, phase: ShownPhase) -> RenderableType:
        if phase.lasts:
            return self._spinner
        if self._failed and phase is self.phases[-1]:
            return Text("✗", style="red")
        return Text("✓", style="green")

    def _about(self, phase: ShownPhase) -> RenderableType:
        if phase.name == "training" and self._last:
            return self._training(phase, self._last)
        if phase.total and phase.lasts:
            text = Text(
                f"{phase.done}/{phase.total} {phase.doing}", no_wrap=True, overflow="ellipsis"
            )
            return _side_by_side(ProgressBar(phase.total, phase.done, width=BAR), text)
        return Text(
            phase.doing if phase.lasts else phase.about,
            no_wrap=True,
            overflow="ellipsis",
        )

    def _training(self, phase: ShownPhase, last: Row) -> RenderableType:
        speed, agents = f"{last['steps_per_second']:,.0f} steps/s", count_agents(last)
        steps = f"{f'{agents} x ' if agents > 1 else ''}{last['steps']:,.0f} steps"
        if not phase.lasts:
            return Text(f"{steps}, {speed}")
        left = max(0.0, last["eta_seconds"])
        text = Text(
            f"{100 * last['update'] / last['total_updates']:3.0f} %  {steps}  "
            f"eta {duration(left)}  {speed}",
            no_wrap=True,
            overflow="ellipsis",
        )
        return _side_by_side(ProgressBar(last["total_updates"], last["update"], width=BAR), text)

    def _below(self) -> list[Text]:
        lines = []
        if self._returns:
            known = "n/a" if not math.isfinite(self._returns[-1]) else f"{self._returns[-1]:.3f}"
            best = f"  best {self._best[0]:.3f} at update {self._best[1]}" if self._best else ""
            spark = sparkline(self._returns, SPARK)
            lines.append(
                Text.assemble(
                    ("return ", "dim"), (known, "bold"), (best, "dim"), "  ", (spark, "cyan")
                )
            )
        return lines + [Text(line, style="dim") for line in self._figures]


class _Console(Console):
    """rich's console, which leaves the cursor visible."""

    def show_cursor(self, show: bool = True) -> bool:
        del show
        return False


def _side_by_side(bar: RenderableType, text: RenderableType) -> RenderableType:
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=BAR)
    row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    row.add_row(bar, text)
    return row


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw the values as bars from the lowest to the highest, at most `width` of them.

    More values than `width` are averaged in `width` groups of equal size, up to one. A value that
    is not finite is a space. Values that are all equal are in the middle.
    """
    if not values or width < 1:
        return ""
    count = min(len(values), width)
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [_mean(values[a:b]) for a, b in itertools.pairwise(edges)]
    known = [value for value in means if math.isfinite(value)]
    if not known:
        return " " * count
    low, span = min(known), max(known) - min(known)
    if not span:
        return "".join(BARS[len(BARS) // 2] if math.isfinite(value) else " " for value in means)
    return "".join(
        BARS[round((value - low) / span * (len(BARS) - 1))] if math.isfinite(value) else " "
        for value in means
    )


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
