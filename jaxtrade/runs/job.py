"""One run in its folder: parts, programs, screen, sinks, and the lines with which it opens."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import name_account
from jaxtrade.config.sweep import flat
from jaxtrade.data.describe import warn_of_sizes
from jaxtrade.data.market import Market
from jaxtrade.data.members import member_configs
from jaxtrade.data.splits import reach_of
from jaxtrade.env.params import describe as describe_stages
from jaxtrade.env.shared import describe as describe_impact
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import DataError
from jaxtrade.evaluation.policy import save_policy_bundle
from jaxtrade.evaluation.result import SetResult
from jaxtrade.evaluation.results_table import LEAST, split_size_key
from jaxtrade.evaluation.seeds import Results
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.sharding import MeshDevices
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs import rundir, xla_settings
from jaxtrade.runs.agents import note_fixed_ends
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.initial_state import METRICS, InitialState
from jaxtrade.runs.memory import memory_notes
from jaxtrade.runs.setup import Setup, metric_names, monitor_sink, policies_of
from jaxtrade.runs.walk_document import how_reach
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.sinks import (
    Columns,
    JsonlSink,
    LogSink,
    MetricSink,
    Names,
    TensorBoardSink,
    per_agent,
)
from jaxtrade.storage.sizes import tree_bytes
from jaxtrade.storage.status import StatusSink
from jaxtrade.storage.trackers import TrackedRun, TrackerSink, run_name
from jaxtrade.text import in_short, note_line, several
from jaxtrade.training import replacement
from jaxtrade.training.control import Controller
from jaxtrade.training.health import Watch, health_labels, population_health
from jaxtrade.training.loop import TrainResult
from jaxtrade.training.multiprocess import is_main
from jaxtrade.training.run_io import WallClock
from jaxtrade.types import PyTree

# What a run writes to TensorBoard, and to a tracker, besides the rows of its training: settings,
# scores, results and plots.

SCORE = "eval/validation/score"


Board = TensorBoardSink | TrackerSink  # sinks that show figures besides those of updates


def settings(config: RunConfig) -> dict[str, float | bool | str]:
    """Return every key of a configuration as `section.key`, with a number, a bool or a text.

    Keys without a value are left out.
    """
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(config.model_dump(mode="json"))
        if value is not None
    }


def result_tag(split: str, agent: str, figure: str, seed: str = "") -> str:
    """Return the tag of a metric of an evaluation.

    seed: empty for a run with one seed.
    """
    return "/".join(part for part in ("eval", split, seed, agent, figure) if part)


def write_results(board: Board, evaluations: Results, split: str, steps: int) -> None:
    """Write the metrics of the strategy pass of all agents.

    Those of each symbol of a set are written too, under its name.
    """
    for seed, result in evaluations.items():
        name = "" if len(evaluations) == 1 else f"seed_{seed}"
        parts = {name: result}
        if isinstance(result, SetResult):
            parts |= {
                f"{name}/{symbol}".removeprefix("/"): own for symbol, own in result.symbols.items()
            }
        for part, each in parts.items():
            board.figures(
                {
                    result_tag(split, agent.name, figure, part): float(value)
                    for agent in each.agents
                    for figure, value in agent.strategy_figures.items()
                    if value is not None
                },
                steps,
            )


def write_plots(board: TensorBoardSink, path: Path, folder: Path, steps: int) -> None:
    """Write the plots of the training and of the evaluation in `folder`.

    path: the run's folder.
    """
    for tag, plot in (
        ("train/curves", path / "training.png"),
        ("train/advice", path / "advice.png"),
    ):
        if plot.is_file():
            board.plot(tag, plot, steps)
    for plot in sorted(folder.rglob("*.png")):
        board.plot(
            f"eval/{plot.relative_to(path / 'evaluation').with_suffix('').as_posix()}",
            plot,
            steps,
        )


LOG = "run.log"


class Job:
    """One run in its folder: its parts, its beginning, its programs, its screen and its sinks."""

    def __init__(
        self,
        setup: Setup,
        path: Path,
        beginning: InitialState,
        programs: Programs,
        screen: Screen,
    ) -> None:
        self.setup, self.path, self.beginning, self.programs = setup, path, beginning, programs
        self.validation: EnvParams | None = (
            None  # parameters that show the validation sessions, if they are scored
        )
        self.config, self.screen = setup.config, screen
        names, columns = metric_names(setup.env, setup.market), setup.algorithm.info.progress
        update = beginning.resume_update
        self.board: TensorBoardSink | None = None
        self.status: StatusSink | None = None
        self.tracker: TrackerSink | None = None
        screen.describe(names, columns)
        self.files: list[MetricSink] = []
        if is_main():  # the other processes of the run write nothing
            self._open_files(update, names, columns)
        learner = setup.algorithm
        self.watch = Watch(self.log, names, learner.info.warnings, learner.info.remedies)
        limit = self.config.control.wall_clock
        self.wall_clock = None if limit is None else WallClock(limit, setup.plan.total_updates)
        self.metadata = (
            {}
            if not is_main()
            else {
                "config_sha256": rundir.config_digest(path),
                "data_sha256": setup.market.fingerprint,
            }
        )

    def _open_files(self, update: int | None, names: Names, columns: Columns) -> None:
        """Open the sinks that write to the run's folder.

        update: of a resumed run; None for a new one.
        """
        path, setup = self.path, self.setup
        self.files += [
            JsonlSink(path / METRICS, resume_update=update, names=names),
            LogSink(path / LOG, names=names, columns=columns),
        ]
        if self.config.train.tensorboard:
            steps = None if update is None else update * setup.plan.steps_per_update
            self.board = TensorBoardSink(path / "tensorboard", resume_steps=steps, names=names)
            compared = result_tag(setup.evaluation_split(), "greedy", "net_profit")
            self.board.settings(settings(self.config), ["rollout/episode_reward", compared])
            self.files.append(self.board)
        if self.config.monitor.on and self.config.monitor.csv:
            self.files.append(monitor_sink(path, self.config, setup.market, update))
        shown = {
            "task": self.config.env.task,
            "learner": self.config.algorithm,
            "market": setup.market.name,
        }
        self.status = StatusSink(path, self.log, shown)
        self.files.append(self.status)  # last, so that what it counts has been written
        if self.config.train.tracker != "none":
            folder, resumed = path.resolve(), update is not None
            about = TrackedRun(
                folder,
                run_name(folder, resumed),
                resumed,
                self.config.train.tracker_online,
                settings(self.config) | {"run_folder": str(folder)},
            )
            self.tracker = TrackerSink(self.config.train.tracker, about, self.log, names)
            self.files.insert(0, self.tracker)  # closed first: what it says then goes to the others

    @property
    def boards(self) -> list[Board]:
        """The sinks that show scores and results, besides rows."""
        return [sink for sink in (self.board, self.tracker) if sink is not None]

    def log(self, line: str) -> None:
        """Write one line about the run to the console and the log."""
        for sink in (self.screen, *self.files):
            sink.message(line)

    def log_intro(self, lines: Sequence[str], changed: Iterable[str] = ()) -> None:
        """Write the lines with which a run opens: all to the log, few to the console.

        The console gets one for each kind of note, because a market may have thousands.

        changed: what of the machine is not as before.
        """
        for line in in_short(lines, str(self.path / LOG)):
            self.screen.message(line)
        for sink in self.files:
            for line in lines:
                sink.message(line)
        for difference in changed:
            self.log(f"note: not the machine of before, so the bits may differ: {difference}")

    def phase(self, name: str) -> None:
        """Write in `status.json` what the run does now."""
        if self.status is not None:
            self.status.phase(name)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the files at the end of the block.

        `status.json` then says which error has ended it, if one has.
        """
        try:
            yield
        except BaseException as error:
            if self.status is not None:
                self.status.note_failure(error)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        while self.files:
            self.files.pop(0).close()

    def conclude(self, table: str, summary: Mapping[str, Any], lines: Iterable[str]) -> None:
        """End the files with the table of the results, and write `summary.json`.

        The screen gets the last lines. The command prints the table itself.
        """
        for sink in self.files:
            sink.message(table)
        self.close()
        rundir.write_json(self.path / rundir.SUMMARY, dict(summary))
        self.screen.at_end(lines)

    @property
    def stop_reason(self) -> str | None:
        """Why the wall clock has ended the run; None if it has not."""
        return None if self.wall_clock is None else self.wall_clock.reason

    @property
    def agent_steps(self) -> int:
        """Environment steps in one update, over all agents."""
        return self.setup.plan.steps_per_update * self.setup.stack.count


# How a run opens, as lines.


def bars_line(market: Market, config: RunConfig) -> str:
    """Describe which bars a symbol has, and whether they are real."""
    symbol = market.contract.symbol
    if market.synthetic:
        return (
            f"bars are SYNTHETIC ({symbol}, seed {config.data.synthetic_seed}): generated, never traded; give "
            "--data FILE for your own"
        )
    return f"bars: {market.bars.source} ({symbol}, real)"


def split_lines(setup: Setup) -> Iterator[str]:
    """Yield the trade dates of each split of a set, which are the same for all symbols."""
    for name in ("train", "validation", "test"):
        found = np.unique(setup.dates(name))
        if len(found):
            few = (
                f": too few to tell skill from luck; hold out more with {split_size_key(name)}"
                if name == "test" and len(found) < LEAST
                else ""
            )
            yield f"  {name}: {several(len(found), 'trade date')} {found[0]} .. {found[-1]}{few}"


def intro_lines(job: Job) -> Iterator[str]:
    setup, market, env = job.setup, job.setup.market, job.setup.env
    yield f"run {job.path}"
    counts = {name: int(split.count) for name, split in setup.splits.items()}
    members = member_configs(job.config)
    for member, config in zip(market.members, members, strict=True):
        yield bars_line(member, config)
    yield (
        f"{market.extent}; train {counts['train']}, validation {counts['validation']}, test "
        f"{counts['test']}; task {env.title}, {env.observation_size} observations, {env.num_actions} "
        f"actions, account {name_account(job.config.account)}"
    )
    if len(market.parts) > 1:
        yield from split_lines(setup)
    yield from map(note_line, market.notes)
    if env.has_brackets:
        for member, config in zip(market.members, members, strict=True):
            name = f"{member.name}: " if len(members) > 1 else ""
            yield from (f"{name}{warning}" for warning in warn_of_sizes(member, config))
    if env.config.optimistic:
        yield "OPTIMISTIC: fills or marks are kinder than a market would be"
    yield from _about_the_run(job)
    if setup.folds:
        yield from walk_lines(setup)


def walk_lines(setup: Setup) -> Iterable[str]:
    """Yield what a walk-forward says of its folds when it begins."""
    walk, dates = setup.config.walk, setup.single.trade_dates
    yield (
        f"walk-forward ({walk.mode}): {several(len(setup.folds), 'fold')} x {several(walk.seeds, 'seed')}, embargo "
        f"{several(walk.embargo_of(setup.market.num_sessions), 'session')}"
    )
    yield how_reach(reach_of(setup.config))
    for number, fold in enumerate(setup.folds):
        yield (
            f"  fold {number}: {several(len(fold.train), 'training session')} {dates[fold.train[0]]} .. "
            f"{dates[fold.train[-1]]}, test {several(len(fold.test), 'session')} {dates[fold.test[0]]} .. "
            f"{dates[fold.test[-1]]}, purged {len(fold.purged)}, embargoed {len(fold.embargoed)}"
        )


def _about_the_run(job: Job) -> Iterator[str]:
    """Yield lines that do not depend on the market."""
    setup = job.setup
    if setup.split_note:
        yield note_line(setup.split_note)
    if setup.plan.message:
        yield setup.plan.message
    yield from describe_stages(job.config.stages)
    yield from setup.stack.describe(job.config.seed, setup.plan.total_steps)
    yield from note_fixed_ends(job.config)
    yield from describe_impact(job.config.shared)
    if isinstance(setup.place, MeshDevices):
        yield setup.place.describe()
    yield from xla_settings.lines(job.config)
    yield from memory_notes(job.config)
    yield from job.beginning.lines()


# What a run measured of itself. Nothing here is an expectation.

UNITS: Mapping[str, str] = {  # every figure, in the order in which it is shown
    "steps_per_second": "environment steps of all agents per second of training, without compilation",
    "compile_seconds": "seconds to compile the training program, or to read it from JAX's cache",
    "phase_seconds": "seconds by phase of the command that finished the run",
    "num_envs": "environments of each agent",
    "num_steps": "steps of each environment per update",
    "agents": "agents trained side by side",
    "devices": "devices",
    "device": "kind of device",
    "threads": "compute threads on a CPU",
    "market_bytes": "bytes of the market on the device, shared by all environments",
    "state_bytes": "bytes of the training state",
    "program_bytes": "bytes that the compiled program works on: arguments, results, temporaries",
    "peak_resident_bytes": "most bytes of memory that the process has had",
    "times_one_env": "times the steps per second of one environment, both measured one update at a time; only on "
    "request",
}


def measure_run(job: Job, trained: TrainResult) -> dict[str, Any]:
    """Compute the metrics of `UNITS` for a run that has just trained.

    What was not measured is None.
    """
    config, device = job.config, jax.local_devices()[0]
    speed = trained.steps_per_second
    return {
        "steps_per_second": None if math.isnan(speed) else speed,
        "compile_seconds": trained.compile_seconds if trained.history else None,
        "phase_seconds": {phase.name: phase.seconds for phase in job.screen.phases} or None,
        "num_envs": config.rollout.num_envs,
        "num_steps": config.rollout.num_steps,
        "agents": job.setup.stack.count,
        "devices": jax.device_count(),
        "device": device.device_kind,
        "threads": int(os.environ["NPROC"])
        if device.platform == "cpu" and "NPROC" in os.environ
        else None,
        "market_bytes": tree_bytes(job.setup.params),
        "state_bytes": tree_bytes(trained.state),
        "program_bytes": trained.program_bytes,
        "peak_resident_bytes": _peak(),
        "times_one_env": None,
    }


def _peak() -> int | None:
    if os.name == "nt":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# How a run ends: what is said, and what its folder then holds.


def go_on_with(path: Path, command: str = "train", more: Sequence[str] = ()) -> str:
    """Format the command that continues a run, as part of a message.

    command: that has begun it.
    more: further words of it.
    """
    return f"continue with: {rundir.quote_command(['jaxtrade', command, '--resume', str(path), *more])}"


def how_to_continue(path: Path, command: str = "train", more: Sequence[str] = ()) -> str:
    """Explain how to continue a run that Ctrl-C has stopped. Arguments as `go_on_with`."""
    said = (
        ""
        if checkpoint.list_checkpoints(path / "checkpoints")
        else "the run had saved nothing yet; "
    )
    return said + go_on_with(path, command, more)


def save_policies(job: Job, state: PyTree, folders: Iterable[Path]) -> list[PyTree]:
    """Write the policy bundles of `state`, each to its folder.

    Return the policies, in the order of the agents.
    """
    setup = job.setup
    policies = [finish_policy(policy) for policy in policies_of(setup, state)]
    for policy, folder in zip(policies, folders, strict=True):
        save_policy_bundle(folder, policy, setup.env, setup.market, setup.config)
    return policies


def check_health_of_run(job: Job, trained: TrainResult) -> dict[str, tuple[bool, float]]:
    """Check learning health over every update of the run, including those of earlier processes.

    Recompiles are counted in this process only. Raises DataError if a row lacks a metric: rows of a
    run that was killed have no digest, so damage shows here.
    """
    recompiles = int(trained.health["recompiles"][1]) if trained.health else 0
    try:
        return population_health(
            history(job.path), recompiles, job.setup.stack, job.setup.algorithm.info.health
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{job.path / METRICS}: its rows do not have the metrics of this run ({error!r}); restore the "
            "file, then continue the run again"
        ) from None


def exit_code_of(trained: TrainResult) -> int:
    """Return 1 if a health check has failed, else 0."""
    return int(not all(passed for passed, _ in trained.health.values()))


def training_footer(job: Job, trained: TrainResult, controller: Controller | None) -> Iterator[str]:
    """Yield what is said about a finished training.

    That is its speed, the health of learning, its scores, and the agents that diverged for good.
    """
    if trained.history:
        labels = health_labels(job.setup.algorithm.info.health)
        of, together = per_agent(job.setup.stack.count)
        yield (
            f"trained {trained.steps:,} steps{of} at {trained.steps_per_second:,.0f} steps/s{together}, after "
            f"compiling for {trained.compile_seconds:.1f} s"
        )
        failed = [
            f"{labels[name]} {value:.3g} FAILED"
            for name, (ok, value) in trained.health.items()
            if not ok
        ]
        passed = (
            f"{len(trained.health) - len(failed)} of {several(len(trained.health), 'check')} ok"
        )
        yield (
            "learning health (did the learner work? it says nothing about profit): "
            f"{', '.join([passed, *failed])}"
        )
    else:
        yield "nothing left to train; evaluating"
    if controller and controller.state.scores:
        yield controller.summary()
    yield from replacement.frozen_agents_lines(
        trained.state.rollbacks, job.config.control.max_rollbacks
    )


def summary_of(
    job: Job, trained: TrainResult, controller: Controller | None = None
) -> dict[str, Any]:
    """Make the content of `summary.json`, by which a run is known to have finished."""
    performance, reason = measure_run(job, trained), job.stop_reason
    if reason is None and trained.stopped and controller is not None:
        since = controller.state.since_best
        reason = f"control.patience: {since} evaluations without a better score"
    found = {
        "health": {
            name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()
        },
        "updates": trained.updates,
        "steps": trained.steps,
        "compile_seconds": trained.compile_seconds,
        "steps_per_second": performance["steps_per_second"],
        "stopped_early": trained.stopped,
        "stop_reason": reason,
        "performance": performance,
        "warnings": job.watch.seen,
    }
    found |= replacement.summary(trained.state.rollbacks, job.config.control.max_rollbacks)
    return found if controller is None else found | {"validation": controller.state._asdict()}
