"""Train a run: compose its parts, train, save the policies and evaluate them; or resume it from its
folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jaxtrade import interrupt
from jaxtrade.advisor.host.openai import with_model
from jaxtrade.config import RunConfig
from jaxtrade.config.sweep import require_no_walk
from jaxtrade.data.members import set_name, symbols_of
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.pictures import style, training
from jaxtrade.evaluation.policy import FOLDER
from jaxtrade.evaluation.seeds import Results
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.transfer import coverage_json
from jaxtrade.runs import advice_evaluation, rundir, training_job
from jaxtrade.runs.advice import TrainingAdvisor, check_advisor, figure_lines
from jaxtrade.runs.agents import (
    announcement,
    groups_of,
    is_sweep,
    read_sweep,
    resumed_config,
    write_agents,
)
from jaxtrade.runs.auto_envs import Sized, document, prepared, remembered_in, shrinking
from jaxtrade.runs.beginning import (
    Beginning,
    Source,
    adopt,
    check_alone,
    describe,
    resumed,
    transferred,
)
from jaxtrade.runs.evaluate import ending, evaluate_policies, folder_of, history, open_run
from jaxtrade.runs.job import Job, opening_lines, write_pictures, write_results
from jaxtrade.runs.memory import explained
from jaxtrade.runs.policies import policy_path, ranked
from jaxtrade.runs.preflight import check, check_device, check_memory, settle
from jaxtrade.runs.processes import check_config, joined
from jaxtrade.runs.rundir import differences, facts
from jaxtrade.runs.stored import RunResult
from jaxtrade.runs.sweeps import go_on, resume_groups, search, train_groups
from jaxtrade.runs.training_job import (
    closing_lines,
    controller_of,
    evolving,
    exit_code_of,
    go_on_with,
    how_to_continue,
    save_policies,
    shown_on,
    train_job,
    whole_health,
)
from jaxtrade.storage.compiling import Programs
from jaxtrade.training import control
from jaxtrade.training.together import from_main, is_main
from jaxtrade.types import PyTree

# In the run folder, beside `policy`: the best policy by validation score, or the last one where
# `policy` is the best.
BEST_FOLDER, LAST_FOLDER = "policy_best", "policy_last"


def run(
    config: RunConfig,
    path: Path | None = None,
    source: Source | None = None,
    screen: Screen | None = None,
) -> RunResult:
    """Train, save the policy bundle and evaluate it. `jaxtrade train` calls this.

    A sweep whose agents need several programs is a `SweepResult`: each program is a run in
    `path/group_<n>`.

    Args:
        path: the new run folder; default `runs/<market-task-utc-id>`.
        source: a source run (`beginning.load_source`) that this run begins from, as `config.transfer`
            says.
        screen: where the run shows its progress; it stays open. Default: plain lines on standard
            error.
    Raises:
        ConfigError, DataError: before anything is written.
        OutOfMemoryError: memory of the machine or its accelerator ran out.
        DivergedError, PreemptedError, InterruptedRunError, StorageError: as `training.loop.train`.
    """
    require_no_walk(config)
    check(config)
    check_config(config, joined())
    if config.sweep.optuna:
        return _search(config, path, source, screen)
    groups = groups_of(config)
    configs = [group.config for group in groups]
    check_memory(configs)
    settle(
        configs
    )  # these settings change bits, so the manifest records them and `resume` makes them again
    with shown_on(screen) as shown:
        if len(groups) == 1:
            return _one(configs[0], path, source, shown)
        if source is not None:
            raise ConfigError(
                f"sweep: {announcement(groups)}, and one of them alone can begin from another run: sweep "
                "other keys, or leave the source run out (--from, --continue)"
            )
        where = path or rundir.new_run_path(set_name(symbols_of(config)), "sweep")
        return train_groups(
            config, groups, where, lambda own, to: _one(own, to, None, shown), shown.message
        )


def _search(
    config: RunConfig,
    path: Path | None,
    source: Source | None,
    screen: Screen | None,
    again: Sequence[str] | None = None,
) -> RunResult:
    """Search for settings by Optuna, as `run`. again: the `set` of `resume` for a search that goes
    on.
    """
    if source is not None:
        raise ConfigError(
            "sweep.optuna (--optuna): a search trains afresh; leave the source run out (--from, "
            "--continue)"
        )
    check_memory([config])
    settle([config])
    where = path or rundir.new_run_path(set_name(symbols_of(config)), "optuna")
    with shown_on(screen) as shown, explained(config), interrupt.hint(partial(go_on_with, where)):
        return (search if again is None else go_on)(
            config,
            where,
            shown,
            lambda own, to: (
                resume(to, None, shown, again or ())
                if (to / "manifest.json").is_file()
                else _one(own, to, None, shown)
            ),
        )


def _one(config: RunConfig, path: Path | None, source: Source | None, shown: Screen) -> RunResult:
    """Train one program, as `run`."""
    if source is None:
        check_alone(config)
    else:
        config = adopt(config, source)
    shown.phase("loading", "the market")
    config = with_model(config, shown.message)  # before anything is compiled
    with explained(config):
        sized = prepared(config, remembered_in(), shown)
    where = Path(
        from_main(
            lambda: str(path or rundir.new_run_path(sized.setup.market.name, config.env.task))
        )
    )

    def begin(sized: Sized) -> RunResult:
        with explained(sized.setup.config):
            check_device(sized.setup.config)
            with Programs() as programs:
                return _run(sized, where, source, programs, shown)

    return shrinking(sized, where, begin, shown.message)


def _run(
    sized: Sized, path: Path, source: Source | None, programs: Programs, screen: Screen
) -> RunResult:
    setup, config = sized.setup, sized.setup.config
    begins = Beginning() if source is None else transferred(setup, source, programs)
    manifest = rundir.provenance(config, setup.market.fingerprint)
    if sized.choice is not None:
        manifest["auto_envs"] = document(sized.choice, config.rollout.num_envs)
    if source is not None and begins.coverage is not None:
        manifest["source"] = describe(source, begins.coverage, path)
    if config.advisor.on:
        check_advisor(config, setup.single)
    rundir.create_run(path, config, manifest)
    if setup.stack.shape:
        write_agents(path, config)
    with rundir.locked(path), interrupt.hint(partial(how_to_continue, path)):
        return _train_and_evaluate(
            Job(setup, path, begins, programs, screen, config.control.wall_clock)
        )


def resume(
    path: Path,
    data: Path | None = None,
    screen: Screen | None = None,
    set: Sequence[str] = (),
) -> RunResult:
    """Continue a run from its newest good checkpoint, then evaluate it.

    The result has the same bits as if the run had never stopped, on the same devices. On others it
    needs
    `parallel.reduce=strict` for that.

    Args:
        screen: as in `run`. data: a file of the run's bars, instead of its own.
        set: `control.wall_clock=TIME` gives this process another limit of its time,
            `parallel.devices=N` another number of devices. The run folder keeps its own.
    Raises:
        ConfigError (not a run, or another key in `set`), DataError (the data have changed),
        CheckpointError, RunLockedError.
    """
    if is_sweep(path):
        config = resumed_config(read_sweep(path), set)
        if config.sweep.optuna:
            return _search(config, path, None, screen, set)
        settle(
            [group.config for group in groups_of(config)]
        )  # as `run` does, also if none of them had begun
        with shown_on(screen) as shown:
            return resume_groups(
                config,
                path,
                lambda own, to: _one(own, to, None, shown),
                lambda to: resume(to, data, shown, set),
                shown.message,
            )
    require_no_walk(rundir.read_run(path)[0])
    with interrupt.hint(partial(how_to_continue, path)), shown_on(screen) as shown:
        shown.phase("loading", "the market and the checkpoint")
        setup, manifest = open_run(path, data, overrides=set)
        check_config(setup.config, joined())
        limit = setup.config.control.wall_clock
        with explained(setup.config), Programs() as programs, rundir.locked(path):
            begins = resumed(setup, path, manifest, programs)
            return _train_and_evaluate(
                Job(setup, path, begins, programs, shown, limit), differences(manifest, facts())
            )


def _advisor(job: Job) -> TrainingAdvisor | None:
    """The advisor for the rest of the training. None if the run has no advisor or nothing is left
    to train.
    """
    if job.setup.fusion is None or job.beginning.update >= job.setup.plan.total_updates:
        return None
    return TrainingAdvisor(
        job.config, job.setup.single, job.setup.splits["train"], job.path, job.tell
    )


def _follow(job: Job) -> RunResult:
    """A run in a process that writes nothing: it trains, then waits while process 0 evaluates.

    The result has no evaluations, and the exit code of process 0.
    """
    trained = train_job(job, controller_of(job), None, evolving(job))
    return RunResult(job.path, trained, {}, from_main(int))


def _save_policies(job: Job, state: PyTree, folder: str) -> dict[int, PyTree]:
    """Write the policy bundles of `state` to the run folder. Returns the policies by the numbers of
    their agents.
    """
    numbers = job.setup.stack.numbers(job.config.seed)
    folders = [policy_path(job.path, job.config, number, folder) for number in numbers]
    return dict(zip(numbers, save_policies(job, state, folders), strict=True))


def _kept_policies(
    job: Job, state: PyTree, controller: control.Controller | None
) -> dict[int, PyTree]:
    """Save the last policies, and the best ones by validation if there are scores. Returns those
    that `control.keep` names, which are in `policy`."""
    if controller is None or not controller.state.scores:
        return _save_policies(job, state, FOLDER)
    best, keeps_best = controller.best(state), job.config.control.keep == "best"
    _save_policies(job, state if keeps_best else best, LAST_FOLDER if keeps_best else BEST_FOLDER)
    return _save_policies(job, best if keeps_best else state, FOLDER)


def _train_and_evaluate(job: Job, changed: Iterable[str] = ()) -> RunResult:
    setup, path, beginning, programs, screen = (
        job.setup,
        job.path,
        job.beginning,
        job.programs,
        job.screen,
    )
    if not is_main():
        return _follow(job)
    with job.closing():
        job.tell_opening([*opening_lines(job)], changed)
        if beginning.coverage is not None:
            rundir.write_json(path / "transfer.json", coverage_json(beginning.coverage))
        controller, advisor, evolution = controller_of(job), _advisor(job), evolving(job)
        try:
            trained = train_job(job, controller, advisor, evolution)
        finally:
            advice = None if advisor is None else advisor.close()
        policies = _kept_policies(job, trained.state, controller)
        evolved = (
            {}
            if evolution is None
            else {"evolution": evolution.close(trained.state, trained.updates)}
        )
        trained = trained._replace(health=whole_health(job, trained))
        job.phase("evaluating")
        results = evaluate_policies(
            setup,
            policies,
            setup.evaluation_split(),
            path,
            job.tell,
            programs=programs,
            screen=screen,
        )
        scores = ranked(setup, list(policies.values()), path, job.tell, programs)
        _draw(job, controller, results, trained.steps)
        for line in closing_lines(job, trained, controller):
            job.tell(line)
        if job.stop_reason is not None:
            job.tell(f"{job.stop_reason}; saved; {how_to_continue(path)}")
        if advice is not None:
            for line in figure_lines(advice, history(path), len(trained.history) * job.agent_steps):
                job.tell(line)
        result = RunResult(path, trained, results, exit_code_of(trained), scores)
        for sink in (
            job.files
        ):  # not to the screen, which shows progress: the command prints the table itself
            sink.message(result.table)
    of_sweep = {"validation_scores": list(scores)} if scores else {}
    rundir.write_json(
        path / "summary.json",
        training_job.of_run(job, trained, controller) | of_sweep | evolved,
    )
    screen.at_end(ending(path, folder_of(path, setup.evaluation_split()), results, setup.config))
    return replace(result, exit_code=from_main(lambda: result.exit_code))


def _draw(job: Job, controller: control.Controller | None, results: Results, steps: int) -> None:
    """Write `training.png` and `advice.png`, from the metrics of all processes, and all results to
    TensorBoard and the tracker."""
    config, metrics = job.config, [column.metric for column in job.setup.algorithm.info.progress]
    title = (
        f"Training on {job.setup.market.name}: task {config.env.task}, learner {config.algorithm}"
    )
    scores, best = (
        (controller.state.scores, controller.state.best_update) if controller else ((), None)
    )
    curves = training.figure_of(history(job.path), metrics, title, scores, best)
    style.write(curves, job.path / "training.png")
    if config.advisor.on:
        advice_evaluation.draw(
            config,
            job.setup.single,
            job.setup.splits["train"],
            job.path,
            history(job.path),
            job.tell,
        )
    split = job.setup.evaluation_split()
    for each in job.boards:
        write_results(each, results, split, steps)
    if job.board is not None:
        write_pictures(job.board, job.path, folder_of(job.path, split), steps)
