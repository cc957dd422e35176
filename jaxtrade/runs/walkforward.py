"""Train a walk-forward and test it out of sample, or resume one from its folder.

`jaxtrade walkforward` calls these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrade import interrupt
from jaxtrade.config import RunConfig, SplitConfig
from jaxtrade.data.market import Market
from jaxtrade.data.nulls.market import name_null_errors, null_markets
from jaxtrade.data.nulls.spec import NullSpec
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.nulls import (
    NULLS,
    NullJournal,
    NullResult,
    null_document,
    null_table,
    run_nulls,
    with_market,
)
from jaxtrade.evaluation.policy import FOLDER
from jaxtrade.evaluation.run_days import DAILY, OutOfSampleDays, WalkDays, write_walk_days
from jaxtrade.evaluation.statistics.resampling import iqm
from jaxtrade.evaluation.test_set_history import history_lines, with_policy, with_trials
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import AGENTS
from jaxtrade.runs.auto_envs import SizedSetup
from jaxtrade.runs.distributed import find_joined
from jaxtrade.runs.evaluate import open_run
from jaxtrade.runs.hooks import Hooks
from jaxtrade.runs.initial_state import InitialState
from jaxtrade.runs.job import (
    Job,
    check_health_of_run,
    exit_code_of,
    how_to_continue,
    save_policies,
    summary_of,
    training_footer,
)
from jaxtrade.runs.memory import check_memory, explain_memory
from jaxtrade.runs.plan import check, with_own_modules
from jaxtrade.runs.setup import Setup, policies_of, prepare
from jaxtrade.runs.train import arguments, continue_run, create_run, shown_on
from jaxtrade.runs.trial_log import count_days, make_look
from jaxtrade.runs.walk_document import (
    WalkEvaluation,
    folds_csv,
    walk_document,
    walk_table,
)
from jaxtrade.runs.xla_settings import apply_xla_settings
from jaxtrade.storage.compiling import Programs, RepeatedPrograms
from jaxtrade.text import Log, several
from jaxtrade.training.loop import TrainResult, train
from jaxtrade.types import PyTree
from jaxtrade.version import __version__

# A walk-forward against null markets: on each of them all folds and seeds are trained again, by
# the executables that trained the first null market, and tested out of sample.

POLICY = "policy"
RESULT = "nulls.json"


def walk_statistics(days: OutOfSampleDays) -> dict[str, float]:
    """Compute dollars a day, out of sample, account rules off.

    Those of the policies are the IQM over seeds; each baseline has its own.
    """
    rules = zip(days.baselines.tolist(), days.pool(days.baseline_net).tolist(), strict=True)
    return {POLICY: float(iqm(days.pool(days.net))), **{str(name): net for name, net in rules}}


def check_nulls(setup: Setup, spec: NullSpec) -> None:
    """Make the first null market, to refuse a kind that does not fit before hours of training.

    Raises ConfigError and DataError as `walk_nulls`.
    """
    market = null_markets(setup.single, setup.config, spec.kind, setup.config.seed)(0)
    with name_null_errors(spec.kind, setup.config.seed, 0):
        on_market(setup, market)


def walk_nulls(
    setup: Setup,
    path: Path,
    days: WalkDays,
    spec: NullSpec,
    screen: Screen,
) -> dict[str, NullResult]:
    """Test a walk-forward's result against null markets, and write `nulls.json` into its folder.

    The statistics of each finished null market are in `nulls.jsonl` there: a test that was killed
    goes on with the next one. The draws begin with the run's own seed.

    Args:
        setup, path, days: of the walk-forward; `days` are its result on the real market.

    Raises:
        ConfigError: this kind does not fit the run, or the journal belongs to another test.
        DataError: a null market cannot be used.
        DivergedError, InterruptedRunError, PreemptedError: as in training.
    """
    config = setup.config
    markets = null_markets(setup.single, config, spec.kind, config.seed)
    journal = NullJournal(
        path / NULLS,
        {
            "kind": spec.kind,
            "seed": config.seed,
            "config": config.digest(),
            "data": setup.market.fingerprint,
            "version": __version__,
        },
    )
    screen.phase(
        "nulls", f"{spec}: {several(setup.stack.count, 'agent')} trained again on each", spec.draws
    )
    with Programs(eager=True) if config.compute.eager else RepeatedPrograms() as programs:
        results = run_nulls(
            lambda market: walk_statistics(trained_on(setup, market, programs)),
            markets,
            walk_statistics(days),
            spec,
            config.seed,
            journal,
            step=screen.step,
        )
    rundir.write_json(
        path / RESULT,
        null_document(
            results,
            notes_of(days),
            config_sha256=config.digest(),
            data_sha256=setup.market.fingerprint,
            retrained=True,
        ),
    )
    return results


def notes_of(days: WalkDays) -> list[str]:
    """List what the reader of the p-values must know."""
    return [
        f"{POLICY} is trained again on each null market, by the same executable; "
        f"{several(len(days.seeds), 'seed')}, {several(days.independent, 'independent day')}"
    ]


def trained_on(setup: Setup, market: Market, programs: Programs) -> OutOfSampleDays:
    """Train the walk-forward of `setup` on another market of the same shapes, and test it.

    It is trained from its seeds, and tested out of sample. Nothing is written.

    programs: where the programs are compiled.

    The account's rules and the training days are left out, because a null is compared by
    `walk_statistics` alone.
    """
    own = on_market(setup, market)
    trained = train(
        setup.algorithm,
        own.agents.params,
        num_seeds=setup.stack,
        config=setup.config.train,
        max_rollbacks=setup.config.control.max_rollbacks,
        programs=programs,
        place=setup.place,
        **InitialState().arguments(setup, None),
    )
    policies: list[PyTree] = [finish_policy(policy) for policy in policies_of(setup, trained.state)]
    return WalkEvaluation(own, policies, programs, Screen()).out_of_sample()


def on_market(setup: Setup, market: Market) -> Setup:
    """Move the setup of a walk-forward to another market of the same shapes.

    Raises ConfigError as `with_market`.
    """
    params = with_market(setup.params, market, setup.params.sessions, setup.config)
    agents = replace(
        setup.agents,
        params=setup.agents.params.replace(market=market.data),
        rules=tuple(each.replace(market=market.data) for each in setup.agents.rules),
    )
    return replace(setup, market=market, params=params, agents=agents)


WALK, FOLDS = "walkforward.json", "folds.csv"  # in the folder of a walk-forward
COMMAND = "walkforward"


@dataclass(frozen=True)
class WalkResult:
    """The outcome of a walk-forward.

    days: None if `control.wall_clock` ended the training before its last update, so that nothing
        was tested.
    document: the content of `walkforward.json`; None likewise.
    exit_code: 0, or 1 if a learning-health check failed.
    nulls: by name, the results against null markets; None if none were asked for.
    lines: on how often the days were looked at.
    """

    path: Path
    training: TrainResult
    days: WalkDays | None
    document: dict[str, Any] | None
    exit_code: int
    nulls: dict[str, NullResult] | None = None
    lines: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The printed table, or where to go on."""
        if self.document is None:
            return f"{self.path}: not trained to its end, so nothing was tested; {how_to_continue(self.path, COMMAND)}"
        table = "\n".join([walk_table(self.document), *self.lines])
        if self.nulls is None or self.days is None:
            return table
        return f"{table}\n\n{null_table([*self.nulls.values()], notes_of(self.days))}"


def walk_forward(
    config: RunConfig,
    path: Path | None = None,
    screen: Screen | None = None,
    nulls: NullSpec | None = None,
) -> WalkResult:
    """Train all folds and seeds as one program, save their policies, and test them.

    Each is tested on the days of its fold.

    Args:
        config: its section `split` is not used: folds replace it.
        path: the new folder; default `runs/<market-walkforward-utc-id>`.
        screen: as in `runs.train.run`.
        nulls: null markets on which all is trained and tested again.
    Raises as `runs.train.run`, and ConfigError if the data have too few sessions for one fold.
    """
    with shown_on(screen) as shown:
        config = with_own_modules(as_walk(config, shown))
        check(config)
        check_memory([config])
        apply_xla_settings([config])
        shown.phase("loading", "the market")
        with explain_memory(config):
            setup = prepare(config)
        if nulls is not None:
            check_nulls(setup, nulls)
        check_memory([setup.counted])
        where = path or rundir.new_run_path(setup.market.name, COMMAND)
        sized, again = SizedSetup(setup, config), partial(_how_to_continue, nulls)
        with create_run(sized, where, shown, again=again) as job:
            _write_agents(where, setup)
            return _with_nulls(job, _train_and_test(job), nulls)


def resume_walk(
    path: Path,
    data: Path | None = None,
    screen: Screen | None = None,
    set: Sequence[str] = (),
    nulls: NullSpec | None = None,
) -> WalkResult:
    """Continue a walk-forward from its newest good checkpoint, then test it.

    It is bit-identical to one that never stopped.

    nulls: as in `walk_forward`; finished null markets are not made again.

    Other arguments and errors as `runs.train.resume`, and ConfigError for the folder of
    another run.
    """
    if not rundir.read_run(path)[0].walk.on:
        raise ConfigError(f"{path}: not a walk-forward; continue it with `jaxtrade train --resume`")
    with (
        interrupt.hint(partial(_how_to_continue, nulls, path)),
        shown_on(screen) as shown,
    ):
        shown.phase("loading", "the market and the checkpoint")
        setup, manifest = open_run(path, data, overrides=set)
        if nulls is not None:
            check_nulls(setup, nulls)
        with continue_run(setup, manifest, path, shown) as job:
            return _with_nulls(job, _train_and_test(job), nulls)


def _how_to_continue(nulls: NullSpec | None, path: Path) -> str:
    return how_to_continue(path, COMMAND, [] if nulls is None else ["--nulls", str(nulls)])


def _with_nulls(job: Job, result: WalkResult, nulls: NullSpec | None) -> WalkResult:
    """Test the result against null markets if asked for, and if there is something to test."""
    if nulls is None or result.days is None:
        return result
    return replace(result, nulls=walk_nulls(job.setup, job.path, result.days, nulls, job.screen))


def as_walk(config: RunConfig, screen: Screen) -> RunConfig:
    """Configure a walk-forward: without a split.

    Raises ConfigError if `walk.on` is false, or the process is one of several.
    """
    if not config.walk.on:
        raise ConfigError("walk.on=false: set walk.on=true for a walk-forward")
    if not find_joined().alone:
        raise ConfigError(
            "a walk-forward trains in one process, and this is one of several: start it by itself"
        )
    if config.split.automatic:
        return config
    screen.message("note: split.* is not used: the folds of walk.* replace it")
    return config.model_copy(update={"split": SplitConfig()})


def _write_agents(path: Path, setup: Setup) -> None:
    """Write `agents.json`: fold and seed of each agent, and the folder of its policy."""
    rundir.write_json(
        path / AGENTS,
        {
            "format": 1,
            "seeds": setup.config.walk.seeds,
            "agents": [
                {
                    "index": agent.index,
                    "seed": agent.seed,
                    "fold": agent.setting,
                    "policy": bundle_path(Path(), agent.setting, agent.seed).as_posix(),
                }
                for agent in setup.stack.swept
            ],
        },
    )


def bundle_path(path: Path, fold: int, seed: int) -> Path:
    """Return the folder of one policy bundle, which `jaxtrade.load_policy` reads.

    path: the folder of the walk-forward.
    """
    return path / FOLDER / f"fold_{fold:03d}" / f"seed_{seed}"


def _train_and_test(job: Job) -> WalkResult:
    setup, path = job.setup, job.path
    trained = train(setup.algorithm, setup.agents.params, **arguments(job, Hooks()))
    if job.stop_reason is not None:
        job.log(f"{job.stop_reason}; saved; {how_to_continue(path, COMMAND)}")
        return WalkResult(path, trained, None, None, 0)
    folders = [bundle_path(path, agent.setting, agent.seed) for agent in setup.stack.swept]
    policies = save_policies(job, trained.state, folders)
    trained = trained._replace(health=check_health_of_run(job, trained))
    job.phase("evaluating")
    days = WalkEvaluation(setup, policies, job.programs, job.screen).whole()
    lines, counted = count_walk(setup, path, days, job.log)
    for line in training_footer(job, trained, None):
        job.log(line)
    document = walk_document(setup, days) | counted
    write_walk_days(days, path / DAILY)
    (path / FOLDS).write_text(folds_csv(document), encoding="utf-8")
    rundir.write_json(path / WALK, document)
    result = WalkResult(path, trained, days, document, exit_code_of(trained), lines=lines)
    last = [
        f"run       {path}",
        f"figures   {path / WALK}, {path / FOLDS}, {path / DAILY}",
        f"policies  {path / FOLDER}/fold_*/seed_*",
        f"page      jaxtrade report {path}",
    ]
    job.conclude(result.table, summary_of(job, trained), last)
    return result


def count_walk(
    setup: Setup, path: Path, days: WalkDays, log: Log
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Enter the test days of all folds in the trial log, as one look with a trial for each seed.

    Return what the reader must know about earlier looks at these days: lines for the printed
    result, and the keys `labels` and `trials` of `walkforward.json`.

    The seed's policies of all folds are one trial: its profit is known on every tested day, and a
    day that several folds test (cpcv) has its mean over them. The same look is entered once,
    however often the run is resumed.

    log: receives a warning if the log cannot be written; the result then has a label that says so.
    """
    net, _ = days.by_date(days.net)
    dates = np.unique(days.date).astype("datetime64[D]").astype(str).tolist()
    nets = {
        str(seed): tuple(round(value, 3) for value in own.tolist())
        for seed, own in zip(days.seeds.tolist(), net, strict=True)
    }
    opening = make_look(setup, path, "test", "walkforward", dates)._replace(net=nets)
    counted = count_days(path, opening, log, once=True)
    history = with_trials(counted.history, counted.matrix)
    each = {seed: with_policy(history, np.array(own), counted.matrix) for seed, own in nets.items()}
    shown = next(iter(each.values())) if len(each) == 1 else history
    by_seed = {
        seed: {name: value for name, value in own.to_json().items() if name in ("psr", "dsr")}
        for seed, own in each.items()
    }
    return (
        (*(f"NOTE: {label}" for label in counted.labels), *history_lines(shown)),
        {"labels": list(counted.labels), "trials": shown.to_json() | {"by_seed": by_seed}},
    )
