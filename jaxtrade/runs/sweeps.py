"""A sweep that needs several programs, each trained in turn, and a search by Optuna.

Each is an ordinary run in a folder of the sweep's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade import interrupt
from jaxtrade.config import RunConfig, dump_config
from jaxtrade.config.load import SweepAgent, config_of, setting_text
from jaxtrade.config.sweep import SweepConfig, examples_of, range_of
from jaxtrade.errors import DivergedError
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.state import finish_policy
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import (
    BEST,
    FORMAT,
    SWEEP,
    FolderChoice,
    SweepGroup,
    announcement,
    batch_of,
    folder_of,
    write_agents,
)
from jaxtrade.runs.hooks import rank_agents
from jaxtrade.runs.initial_state import InitialState
from jaxtrade.runs.job import go_on_with
from jaxtrade.runs.memory import explain_memory
from jaxtrade.runs.plan import RunPlan
from jaxtrade.runs.setup import Setup, policies_of, prepare, with_sweep_of
from jaxtrade.runs.stored_run import RunResult
from jaxtrade.storage.compiling import Programs, RepeatedPrograms
from jaxtrade.text import align, several
from jaxtrade.training import loop
from jaxtrade.types import PyTree

Train = Callable[[RunPlan, Screen], RunResult]  # `runs.train.train`


def train_groups(plan: RunPlan, screen: Screen, train: Train) -> RunResult:
    """Train the programs of a sweep in turn, in `path/group_0`, `path/group_1`, ...

    Raises as `runs.train.train`. After an error `--resume` goes on with the program at which
    it stopped.
    """
    groups, path = plan.groups, plan.folder
    if plan.start is FolderChoice.NEW:
        of = {index: number for number, group in enumerate(groups) for index in group.agents}
        documents = [
            {
                "folder": folder_of(path, number).name,
                "agents": list(group.agents),
                "static": group.static,
            }
            for number, group in enumerate(groups)
        ]
        agents = [of[index] for index in range(len(of))]
        _create(path, plan.config, {"groups": documents}, agents)
    screen.message(announcement(groups))
    found = []
    for number, group in enumerate(groups):
        static = ", ".join(f"{key}={value}" for key, value in group.static.items())
        screen.message(f"program {number + 1} of {len(groups)}: {static}")
        found.append(train(plan.of_program(group.config, folder_of(path, number)), screen))
    return join_results(path, groups, found)


def _create(
    path: Path, config: RunConfig, about: dict[str, Any], group: Sequence[int] | None = None
) -> None:
    """Create the folder of a sweep or a search.

    about: entries of its `sweep.json`.
    group: of a sweep, the program of each agent, for `agents.json`.
    """

    def fill(new: Path) -> None:
        (new / "config.yaml").write_text(dump_config(config), encoding="utf-8")
        if group is not None:
            write_agents(new, config, group)
        rundir.write_json(new / SWEEP, {"format": FORMAT} | about)

    rundir.create_folder(path, fill)


def join_results(path: Path, groups: Sequence[SweepGroup], found: Sequence[RunResult]) -> RunResult:
    """Join the results of all programs into one, by the agents' indices in the sweep."""
    evaluations: dict[int, Any] = {}
    scores: dict[int, float] = {}
    places: dict[int, tuple[Path, int]] = {}
    for group, result in zip(groups, found, strict=True):
        for index, (number, each) in zip(group.agents, result.evaluations.items(), strict=True):
            evaluations[index] = replace(each, provenance=each.provenance | {"agent": index})
            places[index] = (result.path, number)
            if result.scores:
                scores[index] = result.scores[number]
    ordered = dict(sorted(evaluations.items()))
    ranked = tuple(scores[index] for index in ordered) if len(scores) == len(ordered) else ()
    return RunResult(
        path,
        found[0].training,
        ordered,
        max(result.exit_code for result in found),
        ranked,
        tuple(found),
        places,
    )


# A search by Optuna: settings are proposed in batches, each batch is trained as one program and
# scored on validation sessions.
#
# All batches share one compiled program: what is proposed are numbers that it takes as arguments.
# Optuna is an extra (`pip install "jaxtrade[optuna]"`) and is imported here alone.

JOURNAL, STUDY = "optuna.journal", "sweep"
SHOWN = 10  # proposals in the final ranking


def search(plan: RunPlan, screen: Screen, train: Train) -> RunResult:
    """Search for settings, or go on after the last batch that was scored.

    Then train the best one in `path/best`, and return the result of that run.

    Raises as `runs.train.train`.
    """
    config, path = plan.config, plan.folder
    with explain_memory(config), interrupt.hint(partial(go_on_with, path)):
        if plan.start is FolderChoice.NEW:
            _create(path, config, {"optuna": config.sweep.optuna})
        with rundir.lock_run(path):
            study = _study(path)
            _proposals(config, path, study, screen)
        best = study.best_trial
        setting = _setting(config.sweep, best.params)
        for line in _lines(config, study):
            screen.message(line)
        own = SweepAgent(best.number, config.seed, best.number, setting)
        screen.message(f"training the best setting alone, as an ordinary run: {own.text}")
        return train(plan.of_program(config_of(config, own), path / BEST), screen)


def _study(path: Path) -> Any:
    """Open the study of a search, with Optuna's own journal as its file.

    Proposals of a batch that was cut are given up.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path / JOURNAL)))
    study = optuna.create_study(
        storage=storage, study_name=STUDY, direction="maximize", load_if_exists=True
    )
    for trial in _trials(study, "RUNNING"):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _trials(study: Any, state: str) -> list[Any]:
    """List the proposals in a state, as Optuna calls it."""
    import optuna

    return study.get_trials(deepcopy=False, states=(optuna.trial.TrialState[state],))


def _count_scored(study: Any) -> int:
    return len(_trials(study, "COMPLETE"))


def _proposals(config: RunConfig, path: Path, study: Any, screen: Screen) -> None:
    """Propose, train and score batches until there are enough scores."""
    import optuna

    size, distributions = config.train.num_seeds, _distributions(config.sweep)
    batches = math.ceil(config.sweep.optuna / size)
    screen.message(
        f"Optuna proposes {several(batches * size, 'setting')}, {several(size, 'agent')} at a time, scored "
        "on validation sessions alone"
    )
    if _count_scored(study) >= config.sweep.optuna:
        return
    screen.phase("loading", "the market")
    examples = tuple(dict(each) for each in examples_of(config.sweep))
    setup = prepare(batch_of(config, examples))
    with RepeatedPrograms() as programs:
        while (done := _count_scored(study)) < config.sweep.optuna:
            trials = _ask(study, distributions, size, config.seed)
            own = with_sweep_of(
                setup, batch_of(config, [_setting(config.sweep, trial.params) for trial in trials])
            )
            screen.message(
                f"{done} of {config.sweep.optuna} settings are scored; training the next {size}"
            )
            scores = _train_batch(own, path, programs, screen)
            for trial, score in zip(trials, scores, strict=True):
                if math.isfinite(score):
                    study.tell(trial, score)
                else:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
            if not any(map(math.isfinite, scores)):
                raise DivergedError(
                    f"{path}: no setting of the last batch trained to its end with a finite score; "
                    "narrow the ranges of sweep.keys"
                )
            screen.message(f"best score so far: {study.best_value:.6g}")


def _ask(study: Any, distributions: Mapping[str, Any], size: int, seed: int) -> list[Any]:
    """Draw a batch of proposals.

    They depend on the seed and on what was asked and scored before alone.
    """
    import optuna

    study.sampler = optuna.samplers.TPESampler(
        seed=seed + len(study.get_trials(deepcopy=False)), constant_liar=True
    )
    return [study.ask(dict(distributions)) for _ in range(size)]


def _train_batch(setup: Setup, path: Path, programs: Programs, screen: Screen) -> tuple[float, ...]:
    """Train a batch and score it. Nothing is saved of it but its scores.

    They are NaN for a setting that diverged, because an agent that was put back did not train with
    the setting alone.
    """
    config = setup.config
    result = loop.train(
        setup.algorithm,
        setup.agents.params,
        num_seeds=setup.stack,
        config=config.train,
        sinks=[screen],
        max_rollbacks=config.control.max_rollbacks,
        programs=programs,
        **InitialState().arguments(setup, None),
    )
    policies: list[PyTree] = [
        finish_policy(policy) for policy in jax.device_get(policies_of(setup, result.state))
    ]
    scores = rank_agents(setup, policies, path, screen.message, programs)
    return tuple(
        math.nan if gone else score
        for score, gone in zip(scores, np.ravel(result.state.rollbacks) > 0, strict=True)
    )


def _distributions(sweep: SweepConfig) -> dict[str, Any]:
    """Make Optuna's distribution of each key: of a range, or of a list of values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for key, values in sweep.keys.items():
        interval = range_of(values[0])
        if interval is None:
            found[key] = CategoricalDistribution([_choice(value) for value in values])
        elif interval.whole:
            found[key] = IntDistribution(int(interval.low), int(interval.high), log=interval.log)
        else:
            found[key] = FloatDistribution(interval.low, interval.high, log=interval.log)
    return found


def _choice(value: Any) -> Any:
    """Convert a value to what Optuna can hold: a list becomes JSON text."""
    return json.dumps(value) if isinstance(value, list | dict) else value


def _setting(sweep: SweepConfig, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting of a proposal, with the values as the configuration lists them."""
    known = {
        key: {_choice(value): value for value in values if range_of(value) is None}
        for key, values in sweep.keys.items()
    }
    return {key: known[key].get(value, value) for key, value in params.items()}


def _lines(config: RunConfig, study: Any) -> list[str]:
    """Format the best proposals, by score."""
    trials = _trials(study, "COMPLETE")
    order = sorted(trials, key=lambda trial: (-trial.value, trial.number))[:SHOWN]
    rows = [
        ["proposal", "score", *config.sweep.keys],
        *(
            [
                str(trial.number),
                f"{trial.value:.6g}",
                *(setting_text(trial.params[key]) for key in config.sweep.keys),
            ]
            for trial in order
        ),
    ]
    return [
        f"the best {len(order)} of {len(trials)} proposals by mean reward per validation session (no test session "
        "was looked at):",
        *align(rows),
    ]
