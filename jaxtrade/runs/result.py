"""The outcome of a run: its training, its evaluations, and both as tables and figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrade.config.agents import Agent
from jaxtrade.evaluation import report, seeds
from jaxtrade.evaluation.evaluate import EvaluationResult
from jaxtrade.evaluation.seeds import Results, SetResult
from jaxtrade.runs.stored import ADVICE, episodes_frame, metrics_frame
from jaxtrade.text import several, short_repr
from jaxtrade.training.loop import TrainResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunResult:
    """The outcome of a finished run.

    evaluations: by seed, in a sweep by the index of the agent; `SetResult`s if the run has several
        symbols. exit_code:
    0, or 1 if the run finished but a learning-health check failed. table: the evaluation as text;
    for several seeds, their spread; for a sweep a row per agent. scores: of a sweep with validation
    sessions, the mean reward per validation session of each agent, by its index; empty for others.
    """

    path: Path
    training: TrainResult
    evaluations: Results
    exit_code: int
    scores: tuple[float, ...] = ()

    @property
    def evaluation(self) -> EvaluationResult | SetResult:
        """The evaluation of the first seed. Most runs have only one."""
        return next(iter(self.evaluations.values()))

    @property
    def table(self) -> str:
        """The console table of all agents, of a sweep with their ranking by validation score."""
        return "\n".join([seeds.table(self.evaluations), *self.ranking])

    @property
    def ranking(self) -> list[str]:
        """The best agents of a sweep by validation score, as lines; none without such scores."""
        if not self.scores:
            return []
        about = [result.provenance for result in self.evaluations.values()]
        return seeds.ranking(
            self.scores,
            [Agent(own["agent"], own["trained_seed"], 0, own["overrides"]) for own in about],
        )

    @property
    def trades(self) -> pd.DataFrame:
        """The trades of the policy (of the first seed's), one row each. See
        `EvaluationResult.trades`.
        """
        return self.evaluation.trades

    @property
    def equity(self) -> pd.DataFrame:
        """Equity of the policy (of the first seed's), one row per bar. See
        `EvaluationResult.equity`.
        """
        return self.evaluation.equity

    @property
    def metrics(self) -> pd.DataFrame:
        """The metrics of training, one row per update. `action_share` and others have a column per
        part.
        """
        return metrics_frame(self.path)

    @property
    def episodes(self) -> pd.DataFrame:
        """The episodes of training, one row each. Raises ConfigError if the run wrote no
        `monitor.csv`.
        """
        return episodes_frame(self.path)

    def plot(self) -> Figure:
        """A matplotlib figure: equity and drawdown of the policy (of the first seed's)."""
        return self.evaluation.plot()

    def __repr__(self) -> str:
        return short_repr(
            "RunResult",
            str(self.path),
            several(len(self.evaluations), "agent"),
            f"{'finished' if self.exit_code == 0 else 'a health check failed'}",
            repr(self.evaluation),
        )

    def _repr_html_(self) -> str:
        blocks = [each._repr_html_() for each in self.evaluations.values()]
        return report.notebook(str(self.path), self.path / ADVICE, blocks=blocks)


@dataclass(frozen=True, repr=False)
class SweepResult(RunResult):
    """The outcome of a sweep that needed several programs. training: of the first. programs: the
    result of each.
    places: agent of the sweep -> the folder of its program, and its number there."""

    programs: tuple[RunResult, ...] = ()
    places: Mapping[int, tuple[Path, int]] = field(default_factory=dict)

    @property
    def ranking(self) -> list[str]:
        lines = super().ranking
        if not lines:
            return []
        best = max(range(len(self.scores)), key=lambda i: (self.scores[i], -i))
        path, number = self.places[best]
        return [
            *lines,
            f"agent {best} is agent {number} of {path}: jaxtrade evaluate {shlex.quote(str(path))} "
            f"--agent {number}",
        ]
