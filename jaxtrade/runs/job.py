"""One run in its folder: its parts, its programs, its screen and its sinks, and the lines with
which it opens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import room_warning
from jaxtrade.config.sweep import flat
from jaxtrade.data.describe import cost_warning, round_turn
from jaxtrade.data.market import Market
from jaxtrade.data.members import member_configs
from jaxtrade.env.params import describe as describe_stages
from jaxtrade.env.shared import describe as describe_impact
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation.report import LEAST, key_of
from jaxtrade.evaluation.seeds import Results, SetResult
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.sharding import Spread
from jaxtrade.runs import preflight, rundir
from jaxtrade.runs.beginning import METRICS, Beginning
from jaxtrade.runs.preflight import memory_notes
from jaxtrade.runs.setup import Setup, figure_names, monitor_sink
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.sinks import Columns, JsonlSink, LogSink, MetricSink, Names, TensorBoardSink
from jaxtrade.storage.status import StatusSink
from jaxtrade.storage.trackers import About, TrackerSink, run_name
from jaxtrade.text import in_short, note_line, several
from jaxtrade.training.health import Watch
from jaxtrade.training.run_io import WallClock
from jaxtrade.training.together import is_main

# What a run writes to TensorBoard, and to a tracker, besides the rows of its training: settings,
# scores, results and pictures.

SCORE = "eval/validation/score"


Board = TensorBoardSink | TrackerSink  # sinks that show figures besides those of updates


def settings(config: RunConfig) -> dict[str, float | bool | str]:
    """Every key of a configuration as `section.key`, with a number, a bool or a text. Keys without
    a value are left out."""
    return {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(config.model_dump(mode="json"))
        if value is not None
    }


def result_tag(split: str, agent: str, figure: str, seed: str = "") -> str:
    """The tag of a figure of an evaluation. seed: empty for a run with one seed."""
    return "/".join(part for part in ("eval", split, seed, agent, figure) if part)


def describe(board: TensorBoardSink, config: RunConfig, split: str) -> None:
    """Write the hyper-parameters, and which figures to compare runs by."""
    board.settings(
        settings(config), ["rollout/episode_reward", result_tag(split, "greedy", "net_profit")]
    )


def write_results(board: Board, evaluations: Results, split: str, steps: int) -> None:
    """Write the figures of the strategy pass of all agents; of a set those of each symbol too,
    under its name.
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


def write_pictures(board: TensorBoardSink, path: Path, folder: Path, steps: int) -> None:
    """Write the pictures of the training and of the evaluation in `folder`. path: the run's
    folder.
    """
    for tag, picture in (
        ("train/curves", path / "training.png"),
        ("train/advice", path / "advice.png"),
    ):
        if picture.is_file():
            board.picture(tag, picture, steps)
    for picture in sorted(folder.rglob("*.png")):
        board.picture(
            f"eval/{picture.relative_to(path / 'evaluation').with_suffix('').as_posix()}",
            picture,
            steps,
        )


LOG = "run.log"


class Job:
    """One run in its folder: its parts, its beginning, its programs, its screen and its sinks."""

    def __init__(
        self,
        setup: Setup,
        path: Path,
        beginning: Beginning,
        programs: Programs,
        screen: Screen,
        limit: float | None,
    ) -> None:
        """limit: of the time of this process, in seconds: `control.wall_clock`, or what a resume
        was given.
        """
        self.setup, self.path, self.beginning, self.programs = setup, path, beginning, programs
        self.validation: EnvParams | None = (
            None  # parameters that show the validation sessions, if they are scored
        )
        self.config, self.screen = setup.config, screen
        names, columns = figure_names(setup.env, setup.market), setup.algorithm.info.progress
        update = beginning.resume_update
        self.board: TensorBoardSink | None = None
        self.status: StatusSink | None = None
        self.tracker: TrackerSink | None = None
        screen.describe(names, columns)
        self.files: list[MetricSink] = []
        if is_main():  # the other processes of the run write nothing
            self._open_files(update, names, columns)
        learner = setup.algorithm
        self.watch = Watch(self.tell, names, learner.info.warnings, learner.info.remedies)
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
        """Open the sinks that write to the run's folder. update: of a resumed run; None for a new
        one.
        """
        path, setup = self.path, self.setup
        self.files += [
            JsonlSink(path / METRICS, resume_update=update, names=names),
            LogSink(path / LOG, names=names, columns=columns),
        ]
        if self.config.train.tensorboard:
            steps = None if update is None else update * setup.plan.steps_per_update
            self.board = TensorBoardSink(path / "tensorboard", resume_steps=steps, names=names)
            describe(self.board, self.config, setup.evaluation_split())
            self.files.append(self.board)
        if self.config.monitor.on and self.config.monitor.csv:
            self.files.append(monitor_sink(path, self.config, setup.market, update))
        shown = {
            "task": self.config.env.task,
            "learner": self.config.algorithm,
            "market": setup.market.name,
        }
        self.status = StatusSink(path, self.tell, shown)
        self.files.append(self.status)  # last, so that what it counts has been written
        if self.config.train.tracker != "none":
            folder, resumed = path.resolve(), update is not None
            about = About(
                folder,
                run_name(folder, resumed),
                resumed,
                self.config.train.tracker_online,
                settings(self.config) | {"run_folder": str(folder)},
            )
            self.tracker = TrackerSink(self.config.train.tracker, about, self.tell, names)
            self.files.insert(0, self.tracker)  # closed first: what it says then goes to the others

    @property
    def boards(self) -> list[Board]:
        """The sinks that show scores and results, besides rows."""
        return [sink for sink in (self.board, self.tracker) if sink is not None]

    def tell(self, line: str) -> None:
        """Write one line about the run to the console and the log."""
        for sink in (self.screen, *self.files):
            sink.message(line)

    def tell_opening(self, lines: Sequence[str], changed: Iterable[str] = ()) -> None:
        """Write the lines with which a run opens: all of them to the log, and to the console one
        for each kind of note, because a market may have thousands. changed: what of the machine is
        not as before."""
        for line in in_short(lines, str(self.path / LOG)):
            self.screen.message(line)
        for sink in self.files:
            for line in lines:
                sink.message(line)
        for difference in changed:
            self.tell(f"note: not the machine of before, so the bits may differ: {difference}")

    def phase(self, name: str) -> None:
        """Say in `status.json` what the run does now."""
        if self.status is not None:
            self.status.phase(name)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the files at the end of the block; `status.json` then says which error has ended
        it, if one has.
        """
        try:
            yield
        except BaseException as error:
            if self.status is not None:
                self.status.failed(error)
            raise
        finally:
            self.close()

    def close(self) -> None:
        for sink in self.files:
            sink.close()

    @property
    def stop_reason(self) -> str | None:
        """Why the wall clock has ended the run; None if it has not."""
        return None if self.wall_clock is None else self.wall_clock.reason

    @property
    def agent_steps(self) -> int:
        """Environment steps in one update, over all agents."""
        return self.setup.plan.steps_per_update * self.setup.stack.count


def bars_line(market: Market, config: RunConfig) -> str:
    """Which bars a symbol has, and whether they are real."""
    symbol = market.contract.symbol
    if market.synthetic:
        return (
            f"bars are SYNTHETIC ({symbol}, seed {config.data.synthetic_seed}): generated, never traded; give "
            "--data FILE for your own"
        )
    return f"bars: {market.bars.source} ({symbol}, real)"


def split_lines(setup: Setup) -> Iterator[str]:
    """The trade dates of each split of a set, which are the same for all symbols."""
    for name in ("train", "validation", "test"):
        found = np.unique(setup.dates(name))
        if len(found):
            few = (
                f": too few to tell skill from luck; hold out more with {key_of(name)}"
                if name == "test" and len(found) < LEAST
                else ""
            )
            yield f"  {name}: {several(len(found), 'trade date')} {found[0]} .. {found[-1]}{few}"


def cost_warnings(market: Market, config: RunConfig) -> Iterator[str]:
    """Warnings about costs that are large beside the stop or the account."""
    turn = round_turn(market, config)
    warnings = (
        cost_warning(turn.cost, turn.risk),
        room_warning(config.account, turn.cost * config.env.quantity),
    )
    yield from (warning for warning in warnings if warning)


def opening_lines(job: Job) -> Iterator[str]:
    setup, market, env = job.setup, job.setup.market, job.setup.env
    yield f"run {job.path}"
    counts = {name: int(split.count) for name, split in setup.splits.items()}
    members = member_configs(job.config)
    for member, config in zip(market.members, members, strict=True):
        yield bars_line(member, config)
    yield (
        f"{market.extent}; train {counts['train']}, validation {counts['validation']}, test "
        f"{counts['test']}; task {env.title}, {env.observation_size} observations, {env.num_actions} "
        f"actions, account {job.config.account.preset}"
    )
    if len(market.parts) > 1:
        yield from split_lines(setup)
    yield from map(note_line, market.notes)
    if env.has_brackets:
        for member, config in zip(market.members, members, strict=True):
            name = f"{member.name}: " if len(members) > 1 else ""
            yield from (f"{name}{warning}" for warning in cost_warnings(member, config))
    if env.config.optimistic:
        yield "OPTIMISTIC: fills or marks are kinder than a market would be"
    yield from _about_the_run(job)


def _about_the_run(job: Job) -> Iterator[str]:
    """Lines that do not depend on the market."""
    setup = job.setup
    if setup.split_note:
        yield note_line(setup.split_note)
    if setup.plan.message:
        yield setup.plan.message
    yield from describe_stages(job.config.stages)
    yield from setup.stack.describe(job.config.seed, setup.plan.total_steps)
    yield from describe_impact(job.config.shared)
    if isinstance(setup.place, Spread):
        yield setup.place.describe()
    yield from preflight.lines(job.config)
    yield from memory_notes(job.config)
    yield from job.beginning.lines()
