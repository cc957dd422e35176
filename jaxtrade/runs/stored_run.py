"""A run that is read from its folder, and the outcome of one that has just ended.

Each gives its configuration, what it learned and what came of it, as tables and plots.

Nothing is trained, evaluated or compiled here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtrade.config import RunConfig
from jaxtrade.config.load import SweepAgent, agents_of
from jaxtrade.config.sweep import require_no_walk
from jaxtrade.data.contracts import contract_of
from jaxtrade.data.members import symbols_of
from jaxtrade.errors import CheckpointError, ConfigError, DataError
from jaxtrade.evaluation import frames, results_table, seeds
from jaxtrade.evaluation.policy import FOLDER, LoadedPolicy, load_policy
from jaxtrade.evaluation.records import RECORDS, EvaluationRecords, read_records
from jaxtrade.evaluation.result import EvaluationResult, ResultViews, SetResult
from jaxtrade.evaluation.seeds import Results
from jaxtrade.runs import files, rundir
from jaxtrade.storage import digests
from jaxtrade.storage.monitor import MONITOR
from jaxtrade.storage.sinks import read_rows
from jaxtrade.text import several, short_repr
from jaxtrade.training.loop import TrainResult
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


METRICS = "metrics.jsonl"
ADVICE = "advice.png"  # the plot of a run's advice
FIRST = ("test", "validation", "train")  # the order in which the evaluation of a run is chosen


# The policies of a run: where that of each agent is, and which one was asked for.


def policy_path(path: Path, config: RunConfig, number: int, folder: str = FOLDER) -> Path:
    """Return the folder of one agent's policy.

    It is `policy`, `policy/seed_<n>` of several seeds, or `policy/agent_<nnn>` of a sweep.

    number: of the agent (`Stack.numbers`).
    """
    return Stack.of_run(config).folder(path / folder, number)


def _numbers(config: RunConfig) -> range:
    return Stack.of_run(config).numbers(config.seed)


def read_policy(path: Path, config: RunConfig, number: int) -> PyTree:
    """Read the policy of one agent. Raises CheckpointError if it is absent or damaged."""
    return load_policy(policy_path(path, config, number)).policy


def chosen_number(config: RunConfig, seed: int | None, agent: int | None = None) -> int:
    """Find the number of the agent that was asked for by its seed or its index, or of the only one.

    Raises ConfigError if the run has no such agent, or has several and none was named, or is
    a walk-forward.
    """
    require_no_walk(config)
    known, swept = _numbers(config), config.sweep.on
    if seed is not None and agent is not None:
        raise ConfigError(f"seed (--seed) {seed} and agent (--agent) {agent}: give one of them")
    if agent is not None:
        if not 0 <= agent < len(known):
            raise ConfigError(
                f"agent {agent}: this run has no such agent; give agent (--agent) 0 .. {len(known) - 1}"
            )
        return known[agent]
    if swept and (seed is not None or len(known) > 1):
        asked = (
            "this run has several policies"
            if seed is None
            else (
                f"seed {seed}: the agents of this run differ in their settings, and several have the same seed"
            )
        )
        raise ConfigError(f"{asked}; give agent (--agent) 0 .. {len(known) - 1}, as in agents.json")
    if seed is None and len(known) == 1:
        return known[0]
    if seed is None or seed not in known:
        asked = (
            "this run has several policies"
            if seed is None
            else f"seed {seed}: this run has no such seed"
        )
        raise ConfigError(
            f"{asked}; give seed (--seed) {known[0]}"
            + (f" .. {known[-1]}" if len(known) > 1 else "")
        )
    return seed


def chosen_numbers(config: RunConfig, seed: int | None, agent: int | None) -> list[int]:
    """Do as `chosen_number`, but return all agents if none was named."""
    require_no_walk(config)
    return (
        list(_numbers(config))
        if seed is None and agent is None
        else [chosen_number(config, seed, agent)]
    )


# An evaluation, and a run, as their folders have them.


@dataclass(frozen=True, repr=False)
class StoredEvaluation(ResultViews):
    """An evaluation that is read from its folder: `evaluation/<split>` of a run or a seed.

    document: the content of `evaluation.json`.
    zone: IANA zone of the exchange, for the times of the frames. Of a set of symbols, the
        frames have a column `symbol`; of `allocate` they are fills, and equity with one column
        for each symbol.
    """

    path: Path
    document: dict[str, Any]
    zone: str

    def to_json(self) -> dict[str, Any]:
        """Make the content of `evaluation.json`."""
        return self.document

    @property
    def table(self) -> str:
        """The console table, as the run wrote it. Raises DataError if its file is missing."""
        path = self.path / "evaluation.txt"
        if not path.is_file():
            raise DataError(f"{path}: no such file; evaluate the run again: jaxtrade evaluate RUN")
        return path.read_text(encoding="utf-8").rstrip("\n")

    @property
    def verdict(self) -> str:
        """One line that compares the policy with staying flat."""
        return self.document["verdict"]

    @cached_property
    def symbols(self) -> dict[str, StoredEvaluation]:
        """Symbol -> its evaluation, of a set; empty for one account."""
        return {
            symbol: StoredEvaluation(self.path / symbol, document, self.zone)
            for symbol, document in self.document.get("symbols", {}).items()
        }

    @cached_property
    def trades(self) -> pd.DataFrame:
        """The trades of the policy, one row each (`EvaluationResult.trades`). Raises DataError."""
        if self.symbols:
            return frames.by_symbol({name: each.trades for name, each in self.symbols.items()})
        path = self.path / "trades.csv"
        joint = results_table.is_joint(self.document["settings"])
        return frames.read_fills(path) if joint else frames.read_trades(path, self.zone)

    @cached_property
    def equity(self) -> pd.DataFrame:
        """Equity of the policy, one row per bar (`EvaluationResult.equity`). Raises DataError."""
        if self.symbols:
            return frames.by_symbol({name: each.equity for name, each in self.symbols.items()})
        path, settings = self.path / "equity.csv", self.document["settings"]
        if results_table.is_joint(settings):
            return frames.read_joint(path, settings["symbols"])
        return frames.read_equity(path, self.zone)

    def equity_of(self, name: str) -> pd.DataFrame:
        """Return `equity` of one agent alone; the folder has it."""
        return self.equity

    @cached_property
    def records(self) -> EvaluationRecords:
        """The arrays of the evaluation: daily net of all agents, bars, both passes and trades.

        Raises DataError.
        """
        return read_records(self.path / RECORDS)


class _RunView:
    """The tables and plots of a run, whether it has just ended or is read from its folder."""

    path: Path

    @property
    def evaluation(self) -> Any:
        """The evaluation that these tables and plots are of."""
        raise NotImplementedError

    @property
    def trades(self) -> pd.DataFrame:
        """The trades of `evaluation`, one row each. See `EvaluationResult.trades`."""
        return self.evaluation.trades

    @property
    def equity(self) -> pd.DataFrame:
        """Equity of `evaluation`, one row per bar. See `EvaluationResult.equity`."""
        return self.evaluation.equity

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The metrics of training, one row per update, indexed by `update`.

        A metric with several named parts has one column for each, such as `action_share.BUY`.

        Raises DataError if a line of `metrics.jsonl` is damaged, ConfigError if there is none.
        """
        import pandas as pd

        if not (self.path / METRICS).is_file():
            raise ConfigError(
                f"{self.path / METRICS}: no such file: the run has not begun to train"
            )
        frame = pd.json_normalize(read_rows(self.path / METRICS))
        return frame.set_index("update") if len(frame) else frame

    @cached_property
    def episodes(self) -> pd.DataFrame:
        """The episodes of training, one row each in the order in which they ended.

        Columns: docs/run_folder.md. `t` is in seconds since the start of the run. An undefined
        Sharpe ratio is NaN.

        Raises ConfigError if there is no `monitor.csv`, DataError if it is damaged.
        """
        file = self.path / MONITOR
        if not file.is_file():
            raise ConfigError(
                f"{file}: no such file: the run has not begun to train, or it was told to write none "
                "(monitor.on, monitor.csv)"
            )
        return frames.read_episodes(file)

    def plot(self) -> Figure:
        """Plot the equity and drawdown of `evaluation` as a matplotlib figure."""
        return self.evaluation.plot()


@dataclass(frozen=True, repr=False)
class StoredRun(_RunView):
    """A run in its folder.

    config: its configuration.
    manifest: versions, commit, device, seeds and digests.
    """

    path: Path
    config: RunConfig
    manifest: dict[str, Any]

    @cached_property
    def evaluations(self) -> dict[str, StoredEvaluation]:
        """The evaluations by name: `test`, or `test/seed_3`, `test/agent_003` of several agents.

        Empty before the first one.

        That of a set holds those of its symbols. Raises DataError if a file is damaged.
        """
        root, zone = self.path / "evaluation", _zone(self.config)
        found = sorted(
            root.rglob("evaluation.json"), key=lambda path: _rank(path.relative_to(root).parts)
        )
        of = {path.parent.relative_to(root).as_posix(): path for path in found}
        return {
            name: StoredEvaluation(path.parent, _read(path), zone)
            for name, path in of.items()
            if path.parent.name not in symbols_of(self.config)
        }

    @property
    def evaluation(self) -> StoredEvaluation:
        """The evaluation on the test sessions (of the first seed), or else the first that there is.

        Raises ConfigError if the run has none.
        """
        if not self.evaluations:
            raise ConfigError(
                f"{self.path}: no evaluation yet; let the run finish (jaxtrade train --resume "
                f"{self.path}), or evaluate it (jaxtrade evaluate {self.path})"
            )
        return next(iter(self.evaluations.values()))

    @property
    def table(self) -> str:
        """The console table of `evaluation`."""
        return self.evaluation.table

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of `summary.json`: health, steps, speed. None before the run has finished."""
        path = self.path / "summary.json"
        return _read(path) if path.is_file() else None

    @cached_property
    def policy(self) -> LoadedPolicy:
        """The policy (of the first agent). Raises CheckpointError if the run has not saved one."""
        return self.policy_of(agent=0)

    @property
    def agents(self) -> tuple[SweepAgent, ...]:
        """The agents of the run: the seed and the settings of each, as `agents.json` has them.

        Raises ConfigError for a walk-forward.
        """
        require_no_walk(self.config)
        return agents_of(self.config)

    def policy_of(self, seed: int | None = None, agent: int | None = None) -> LoadedPolicy:
        """Load the policy of one agent, by its seed or its index.

        Raises ConfigError if the run has no such agent, CheckpointError if it has not saved
        the policy.
        """
        folder = policy_path(self.path, self.config, chosen_number(self.config, seed, agent))
        if not folder.is_dir():
            raise CheckpointError(
                f"{folder}: the run has saved no policy here; let it finish "
                f"(jaxtrade train --resume {self.path})"
            )
        return load_policy(folder)

    def __repr__(self) -> str:
        state = repr(self.evaluation) if self.evaluations else "no evaluation yet"
        return short_repr(
            "StoredRun",
            str(self.path),
            f"task={self.config.env.task}",
            several(len(self.evaluations), "evaluation"),
            state,
        )

    def _repr_html_(self) -> str:
        blocks = [each._repr_html_() for each in self.evaluations.values()]
        lines = [] if blocks else ["no evaluation yet"]
        return results_table.notebook(
            str(self.path), self.path / ADVICE, lines=lines, blocks=blocks
        )


def open_run(path: Path | str, trust_imports: bool = False) -> StoredRun:
    """Open a run folder to read its results.

        run = jaxtrade.open_run("runs/ES-manage-20260101T120000Z-ab12")
        run.trades, run.equity, run.metrics, run.plot()

    trust_imports: import the modules that the run's configuration names, although they are not
        known to be yours (docs/run_folder.md).

    Raises ConfigError if `path` is not a run folder, or names such modules.
    """
    folder = Path(path)
    if trust_imports:
        files.allow(rundir.module_names(rundir.written_values(folder)))
    return StoredRun(folder, *rundir.read_run(folder))


def _zone(config: RunConfig) -> str:
    """Return the zone of the exchange, for the times of frames.

    Of a set, it is that of its first symbol.
    """
    first = {"market": config.data.markets[0]} if config.data.markets else {}
    return contract_of(config.data.model_copy(update=first)).zone


def _rank(parts: tuple[str, ...]) -> tuple[Any, ...]:
    """Rank splits for sorting as in `FIRST`, and agents by number (`seed_10` after `seed_9`)."""
    split = parts[0]
    return FIRST.index(split) if split in FIRST else len(FIRST), split, len(parts[1]), parts


def _read(path: Path) -> dict[str, Any]:
    return digests.read_json(path, "evaluate the run again: jaxtrade evaluate RUN")


# The outcome of a run: its training, its evaluations, and both as tables and figures.


@dataclass(frozen=True)
class RunResult(_RunView):
    """The outcome of a finished run.

    evaluations: by seed, in a sweep by the index of the agent; `SetResult`s if the run has
        several symbols.
    exit_code: 0, or 1 if the run finished but a learning-health check failed.
    table: the evaluation as text; for several seeds, their spread; for a sweep a row per agent.
    scores: of a sweep with validation sessions, the mean reward per validation session of each
        agent, by its index; empty for others.
    programs: of a sweep that needed several, the result of each; training is that of the first.
    places: agent of the sweep -> the folder of its program, and its number there.
    """

    path: Path
    training: TrainResult
    evaluations: Results
    exit_code: int
    scores: tuple[float, ...] = ()
    programs: tuple[RunResult, ...] = ()
    places: Mapping[int, tuple[Path, int]] = field(default_factory=dict)

    @property
    def evaluation(self) -> EvaluationResult | SetResult:
        """The evaluation of the first seed. Most runs have only one."""
        return next(iter(self.evaluations.values()))

    @property
    def table(self) -> str:
        """The console table of all agents, of a sweep with their ranking by validation score."""
        return "\n".join([seeds.table(self.evaluations), *self.ranking])

    @property
    def summary(self) -> str:
        """The table as a run ends with it: the rows that matter first. The rest is in its file."""
        return "\n".join([seeds.table(self.evaluations, brief=True), *self.ranking])

    @property
    def ranking(self) -> list[str]:
        """The best agents of a sweep by validation score, as lines; none without such scores."""
        if not self.scores:
            return []
        about = [result.provenance for result in self.evaluations.values()]
        agents = [
            SweepAgent(own["agent"], own["trained_seed"], 0, own["overrides"]) for own in about
        ]
        lines, scores = seeds.ranking(self.scores, agents), self.scores
        best = max(range(len(scores)), key=lambda i: (scores[i], -i))
        if best in self.places:
            path, number = self.places[best]
            lines.append(
                f"agent {best} is agent {number} of {path}: jaxtrade evaluate "
                f"{shlex.quote(str(path))} --agent {number}"
            )
        return lines

    def __repr__(self) -> str:
        count = len(self.evaluations)
        return short_repr(
            "RunResult",
            str(self.path),
            several(count, "agent"),
            f"{'finished' if self.exit_code == 0 else 'a health check failed'}",
            f"{f'agent 0 of {count}: ' if count > 1 else ''}{self.evaluation!r}",
        )

    def _repr_html_(self) -> str:
        blocks = [each._repr_html_() for each in self.evaluations.values()]
        return results_table.notebook(str(self.path), self.path / ADVICE, blocks=blocks)
