"""Train a run as its plan says, or go on with one in its folder.

Training loads the run's parts, trains, saves the policies and evaluates them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jaxtrade import interrupt
from jaxtrade.config import RunConfig
from jaxtrade.errors import OutOfMemoryError
from jaxtrade.evaluation.plots import style, training
from jaxtrade.evaluation.policy import FOLDER
from jaxtrade.evaluation.seeds import Results
from jaxtrade.progress.screen import Plain, Screen
from jaxtrade.rl.transfer import coverage_json
from jaxtrade.runs import advice_evaluation, rundir
from jaxtrade.runs.advice import check_advisor, metric_lines
from jaxtrade.runs.agents import FolderChoice, write_agents
from jaxtrade.runs.auto_envs import (
    SizedSetup,
    describe_choice,
    prepare_sized,
    shrink_setup,
)
from jaxtrade.runs.evaluate import (
    begin_for_run,
    evaluate_policies,
    evaluation_footer,
    folder_of,
    history,
    open_run,
)
from jaxtrade.runs.hooks import Hooks, rank_agents, run_hooks
from jaxtrade.runs.initial_state import (
    InitialState,
    Source,
    adopt,
    begin_from,
    describe,
    load_source,
    require_same,
    resume_beginning,
)
from jaxtrade.runs.job import (
    Job,
    check_health_of_run,
    exit_code_of,
    how_to_continue,
    intro_lines,
    save_policies,
    summary_of,
    training_footer,
    write_plots,
    write_results,
)
from jaxtrade.runs.memory import check_device, explain_memory
from jaxtrade.runs.new_bars import DAYS, days_of
from jaxtrade.runs.plan import RunPlan, plan_new, plan_resumed
from jaxtrade.runs.rundir import differences, facts
from jaxtrade.runs.setup import Setup
from jaxtrade.runs.stored_run import RunResult, policy_path
from jaxtrade.runs.sweeps import search, train_groups
from jaxtrade.runs.xla_settings import apply_xla_settings
from jaxtrade.storage.compiling import Programs
from jaxtrade.training import loop
from jaxtrade.training.control import Controller
from jaxtrade.training.loop import TrainResult
from jaxtrade.training.multiprocess import from_main, is_main
from jaxtrade.types import PyTree

# In the run folder, beside `policy`: the best policy by validation score, or the last one where
# `policy` is the best.
BEST_FOLDER, LAST_FOLDER = "policy_best", "policy_last"


def train(plan: RunPlan, screen: Screen | None = None) -> RunResult:
    """Train what a plan says, save the policies and evaluate them. `jaxtrade train` calls this.

    A sweep whose agents need several programs has `programs`: each one is a run in
    `path/group_<n>`. A run that goes on is bit-identical to one that never stopped, on the same
    devices; on others it needs `parallel.reduce=strict` for that.

    Args:
        screen: where the run shows its progress; it stays open. Default: plain lines on
            standard error.

    Raises:
        ConfigError, DataError: before anything is written.
        CheckpointError, RunLockedError: a run that is to go on is damaged, or in use.
        OutOfMemoryError: memory of the machine or its accelerator ran out.
        DivergedError, PreemptedError, InterruptedRunError, StorageError: as `training.loop.train`.
    """
    if plan.start is FolderChoice.NEW or plan.is_sweep:
        apply_xla_settings(
            plan.configs
        )  # before JAX starts: the manifest records what changes bits
    with shown_on(screen) as shown:
        if plan.start is FolderChoice.NEW:
            plan = plan.ask_models(shown.message)
        if plan.is_search:
            return search(plan, shown, train)
        if plan.is_sweep:
            return train_groups(plan, shown, train)
        source = None if plan.source is None else load_source(plan.source)
        path = Path(from_main(lambda: str(plan.path)))
        sized = _size_run(plan, path, source, shown) if plan.start is FolderChoice.NEW else None
        while True:
            opened = (
                _reopen_run(plan, path, shown)
                if sized is None
                else create_run(sized, path, shown, source)
            )
            try:
                with opened as job:
                    with run_hooks(job) as hooks:
                        trained = hooks.ended or loop.train(
                            job.setup.algorithm, job.setup.agents.params, **arguments(job, hooks)
                        )
                    return _finish(job, hooks, trained)
            except OutOfMemoryError as error:
                if sized is None or (smaller := shrink_setup(sized, path)) is None:
                    raise
                now, before = (each.setup.config.rollout.num_envs for each in (smaller, sized))
                shown.message(
                    f"warning: {error}. Trying again with {now:,} environments instead of {before:,} "
                    "(rollout.num_envs: auto)"
                )
                sized = smaller
            gc.collect()  # of what has failed


def run(
    config: RunConfig,
    path: Path | None = None,
    source: Path | None = None,
    screen: Screen | None = None,
) -> RunResult:
    """Plan and train a new run. Arguments as `plan_new`, errors as `train`."""
    return train(plan_new(config, path, source), screen)


def resume(
    path: Path,
    data: Path | None = None,
    screen: Screen | None = None,
    set: Sequence[str] = (),
) -> RunResult:
    """Go on with the run in a folder, and evaluate it.

    set: `control.wall_clock=TIME` gives this process another limit of its time,
        `parallel.devices=N` another number of devices; the folder keeps its own.

    Other arguments as `plan_resumed`, errors as `train`.
    """
    return train(plan_resumed(path, set, data), screen)


def shown_on(screen: Screen | None) -> AbstractContextManager[Screen]:
    """Return the caller's screen, which stays open, or one that closes with the run."""
    return Plain() if screen is None else nullcontext(screen)


# A run opens: each context is its `Job`, in whose folder this process alone writes.


def _size_run(plan: RunPlan, path: Path, source: Source | None, screen: Screen) -> SizedSetup:
    """Prepare a new run, and measure its number of environments where that is `auto`."""
    (config,) = plan.configs
    if source is not None:
        if plan.keeps:
            require_same(source, config)
        config = adopt(config, source)
    screen.phase("loading", "the market")
    with explain_memory(config):
        found = prepare_sized(config, screen)
    if found.choice is not None:
        rundir.check_new(path)  # whatever is in the folder later is of this run
    return found


@contextmanager
def create_run(
    sized: SizedSetup,
    path: Path,
    screen: Screen,
    source: Source | None = None,
    again: Callable[[Path], str] = how_to_continue,
) -> Iterator[Job]:
    """Create a new run.

    again: says how the run goes on after an end by a signal.
    """
    setup, config = sized.setup, sized.setup.config
    with explain_memory(setup.counted), Programs() as programs:
        check_device(setup.counted)
        begins = InitialState() if source is None else begin_from(setup, source, programs)
        manifest = rundir.provenance(config, setup.market.fingerprint)
        if not config.walk.on:
            manifest[DAYS] = days_of(setup, source and source.path)
        if sized.choice is not None:
            manifest["auto_envs"] = describe_choice(sized.choice, config.rollout.num_envs)
        if source is not None and begins.coverage is not None:
            manifest["source"] = describe(source, begins.coverage, path)
        if config.advisor.on:
            check_advisor(config, setup.single)
        rundir.create_run(path, config, manifest)
        if setup.stack.shape and not setup.folds:
            write_agents(path, config)
        with rundir.lock_run(path), interrupt.hint(partial(again, path)):
            job = Job(setup, path, begins, programs, screen)
            with job.closing():
                _log_intro(job)
                yield job


@contextmanager
def _reopen_run(plan: RunPlan, path: Path, screen: Screen) -> Iterator[Job]:
    """Reopen a run that goes on from its newest good checkpoint."""
    with interrupt.hint(partial(how_to_continue, path)):
        screen.phase("loading", "the market and the checkpoint")
        setup, manifest = open_run(path, plan.data, overrides=plan.changes)
        with continue_run(setup, manifest, path, screen) as job:
            yield job


@contextmanager
def continue_run(
    setup: Setup, manifest: dict[str, Any], path: Path, screen: Screen
) -> Iterator[Job]:
    """Go on with a run that was opened."""
    with explain_memory(setup.counted), Programs() as programs, rundir.lock_run(path):
        begins = resume_beginning(setup, path, manifest, programs)
        job = Job(setup, path, begins, programs, screen)
        with job.closing():
            _log_intro(job, differences(manifest, facts()))
            yield job


def _log_intro(job: Job, changed: Iterable[str] = ()) -> None:
    """Log how the run begins, by process 0.

    changed: what of the machine is not as before.
    """
    if is_main():
        job.log_intro([*intro_lines(job)], changed)
        if job.beginning.coverage is not None:
            rundir.write_json(job.path / "transfer.json", coverage_json(job.beginning.coverage))


def arguments(job: Job, hooks: Hooks) -> dict[str, Any]:
    """Return the keyword arguments of `training.loop.train` for the rest of a run."""
    setup, config = job.setup, job.config
    exchange = None if hooks.advisor is None else hooks.advisor.exchange

    def ahead(state: PyTree) -> None:
        """Begin to compile the programs with which process 0 evaluates."""
        begin_for_run(job.programs, setup, state, job.validation)

    return {
        "num_seeds": setup.stack,
        "config": config.train,
        "sinks": [job.screen, *job.files, job.watch],
        "metadata": job.metadata,
        "checkpoint_dir": job.path / "checkpoints",
        "hooks": hooks.in_order(job),
        "max_rollbacks": config.control.max_rollbacks,
        "exchange": exchange,
        "programs": Programs(eager=True) if config.compute.eager else job.programs,
        # Those of a walk-forward are compiled when they are needed: they are not of one split.
        "ahead": ahead if is_main() and not config.walk.on else None,
        "place": setup.place,
        **job.beginning.arguments(setup, exchange.start if exchange else None),
    }


# A run ends: its policies, its evaluation, its plots, and `summary.json`.


def _finish(job: Job, hooks: Hooks, trained: TrainResult) -> RunResult:
    """Save the policies of a trained run and evaluate them.

    Other processes than 0 wait for it, and have no evaluations.
    """
    if not is_main():
        return RunResult(job.path, trained, {}, from_main(int))
    setup, path, split = job.setup, job.path, job.setup.evaluation_split()
    policies = _kept_policies(job, trained.state, hooks.controller)
    also: dict[str, Any] = {}  # of `summary.json`
    if hooks.evolution is not None:
        also["evolution"] = hooks.evolution.close(trained.state, trained.updates)
    trained = trained._replace(health=check_health_of_run(job, trained))
    job.phase("evaluating")
    results = evaluate_policies(
        setup, policies, split, path, job.programs, job.screen, job.log, "train"
    )
    scores = rank_agents(setup, list(policies.values()), path, job.log, job.programs)
    if scores:
        also["validation_scores"] = list(scores)
    _draw(job, hooks.controller, results, trained.steps)
    for line in _last_lines(job, hooks, trained):
        job.log(line)
    result = RunResult(path, trained, results, exit_code_of(trained), scores)
    last = evaluation_footer(path, folder_of(path, split), results, setup.config)
    job.conclude(result.table, summary_of(job, trained, hooks.controller) | also, last)
    return replace(result, exit_code=from_main(lambda: result.exit_code))


def _last_lines(job: Job, hooks: Hooks, trained: TrainResult) -> Iterator[str]:
    yield from training_footer(job, trained, hooks.controller)
    if job.stop_reason is not None:
        yield f"{job.stop_reason}; saved; {how_to_continue(job.path)}"
    if hooks.advice is not None:
        steps = len(trained.history) * job.agent_steps
        yield from metric_lines(hooks.advice, history(job.path), steps)


def _kept_policies(job: Job, state: PyTree, controller: Controller | None) -> dict[int, PyTree]:
    """Save the last policies, and the best ones by validation if there are scores.

    Return those that `control.keep` names, which are in `policy`.
    """
    if controller is None or not controller.state.scores:
        return _save_policies(job, state, FOLDER)
    best, keeps_best = controller.best(state), job.config.control.keep == "best"
    _save_policies(job, state if keeps_best else best, LAST_FOLDER if keeps_best else BEST_FOLDER)
    return _save_policies(job, best if keeps_best else state, FOLDER)


def _save_policies(job: Job, state: PyTree, folder: str) -> dict[int, PyTree]:
    """Write the policy bundles of `state` to the run folder.

    Return the policies by the numbers of their agents.
    """
    numbers = job.setup.stack.numbers(job.config.seed)
    folders = [policy_path(job.path, job.config, number, folder) for number in numbers]
    return dict(zip(numbers, save_policies(job, state, folders), strict=True))


def _draw(job: Job, controller: Controller | None, results: Results, steps: int) -> None:
    """Write `training.png` and `advice.png`, from the metrics of all processes.

    All results go to TensorBoard and the tracker.
    """
    config, metrics = job.config, [column.metric for column in job.setup.algorithm.info.progress]
    title = (
        f"Training on {job.setup.market.name}: task {config.env.task}, learner {config.algorithm}"
    )
    scores, best = (
        (controller.state.scores, controller.state.best_update) if controller else ((), None)
    )
    settings = [agent.chosen for agent in job.setup.stack.swept]
    curves = training.plot_training(history(job.path), metrics, title, scores, best, settings)
    style.write(curves, job.path / "training.png")
    if config.advisor.on:
        advice_evaluation.draw(
            config,
            job.setup.single,
            job.setup.splits["train"],
            job.path,
            history(job.path),
            job.log,
        )
    split = job.setup.evaluation_split()
    for each in job.boards:
        write_results(each, results, split, steps)
    if job.board is not None:
        write_plots(job.board, job.path, folder_of(job.path, split), steps)
