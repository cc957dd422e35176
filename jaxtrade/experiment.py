"""The composition root: from a configuration to a trained, saved and evaluated policy, and back from a run's folder."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade import checkpoint, rundir
from jaxtrade.advisor_run import TrainingAdvisor, check_advisor, figure_lines
from jaxtrade.config import RunConfig
from jaxtrade.env.stages import describe as describe_stages
from jaxtrade.errors import ConfigError, InterruptedRunError, PreemptedError
from jaxtrade.evaluating import (
    evaluate_policies,
    history,
    open_run,
    policy_path,
    table_of,
)
from jaxtrade.evaluation.evaluate import EvaluationResult
from jaxtrade.evaluation.policy import FOLDER, save_policy_bundle
from jaxtrade.evaluation.validation import mean_reward
from jaxtrade.metrics import ConsoleSink, JsonlSink, LogSink, MetricSink, TensorBoardSink
from jaxtrade.preparation import Setup, figure_names, params_shown, policies_of, prepare, seeds_of
from jaxtrade.rl import control
from jaxtrade.rl.advised import start_advice
from jaxtrade.rl.health import Watch, health_labels, population_health
from jaxtrade.rl.opening import OpeningPlan
from jaxtrade.rl.population import population, seed_keys
from jaxtrade.rl.ppo.state import TrainState
from jaxtrade.rl.state import finished
from jaxtrade.rl.train import Hook, TrainResult, train
from jaxtrade.rl.transfer import Coverage, coverage_json, coverage_lines
from jaxtrade.source import Source, adopt, begin, check_alone, describe, open_source
from jaxtrade.types import PyTree

BEST_FOLDER = "policy_best"  # of a run directory, beside `policy`


@dataclass(frozen=True)
class RunResult:
    """exit_code: 0, or 1 where the run finished but a learning-health check failed. evaluations: by seed. table: the
    evaluation as text, of several seeds their spread."""

    path: Path
    training: TrainResult
    evaluations: dict[int, EvaluationResult]
    exit_code: int

    @property
    def evaluation(self) -> EvaluationResult:
        """Of the first seed, which most runs have alone."""
        return next(iter(self.evaluations.values()))

    @property
    def table(self) -> str:
        return table_of(self.evaluations)


class Begun(NamedTuple):
    """How a run begins with another one: its first state, and what the transfer did."""

    state: TrainState
    coverage: Coverage


def begun_with(setup: Setup, source: Source) -> Begun:
    """The first state of a run that begins with `source`; `setup`: of an adopted configuration. Raises ConfigError."""
    agents = setup.config.train.num_seeds
    fresh = jax.jit(population(setup.algorithm, agents).init)(seed_keys(setup.config.seed, agents), setup.params)
    return Begun(*begin(setup.config, source, fresh))


def run(config: RunConfig, path: Path | None = None, source: Source | None = None) -> RunResult:
    """Train, save the policy bundle and evaluate: what `jaxtrade train` does.

    Args:
        path: the new run's directory; default `runs/<market-task-utc-id>`.
        source: another run (`source.load_source`) whose learning this one begins with, by `config.transfer`.
    Raises:
        ConfigError, DataError: before anything is written. DivergedError, PreemptedError, InterruptedRunError,
        StorageError: as `rl.train.train`.
    """
    # The thread count changes bits on CPU; what is pinned here is recorded, and pinned again by a resume.
    os.environ.setdefault("NPROC", str(os.cpu_count() or 1))
    if source is None:
        check_alone(config)
    else:
        config = adopt(config, source)
    setup = prepare(config)
    begun = None if source is None else begun_with(setup, source)
    path = path or rundir.new_run_path(setup.market.contract.symbol, config.env.task)
    manifest = rundir.provenance(config, setup.market.fingerprint)
    if source is not None and begun is not None:
        manifest["source"] = describe(source, begun.coverage)
    check_advisor(config, setup.market)
    rundir.create_run(path, config, manifest)
    with rundir.locked(path):
        return _train_and_evaluate(setup, path, None, begun)


def resume(path: Path) -> RunResult:
    """Continue a run from its newest good checkpoint to the same bits as if it had never stopped, then evaluate.

    Raises ConfigError (not a run), DataError (the data have changed), CheckpointError, RunLockedError.
    """
    _, manifest = rundir.read_run(path)
    if manifest["nproc"]:
        os.environ["NPROC"] = manifest["nproc"]  # before JAX starts
    if "xla_flags" in manifest:  # a run from before they were recorded has none to restore
        os.environ["XLA_FLAGS"] = manifest["xla_flags"]
    setup, _ = open_run(path)
    with rundir.locked(path):
        restored = begun = None
        if checkpoint.list_checkpoints(path / "checkpoints"):
            restored = checkpoint.restore_latest(path / "checkpoints", _state_like(setup, manifest))
        elif manifest.get("source"):
            begun = begun_with(setup, source_again(path, manifest["source"]))
        return _train_and_evaluate(setup, path, restored, begun)


def _state_like(setup: Setup, manifest: dict[str, Any]) -> PyTree:
    """Shapes and dtypes of the run's state."""
    agents = setup.config.train.num_seeds
    state = jax.eval_shape(population(setup.algorithm, agents).init, seed_keys(setup.config.seed, agents), setup.params)
    if (view := setup.params.advice) is not None:
        size = len(setup.market.bars)
        state = state.replace(advice=jax.eval_shape(lambda: start_advice(
            view, jnp.zeros(size, jnp.int8), jnp.zeros(size, bool), setup.config.advisor.bins,
            setup.config.advisor.memory)))
    if not (manifest.get("source") or {}).get("new_actions"):
        return state
    lead = state.update.shape
    shapes: list[Any] = [jax.ShapeDtypeStruct((*lead, *shape), dtype) for shape, dtype in (
        ((setup.env.num_actions,), jnp.bool_), ((), jnp.float32), ((), jnp.float32))]
    return state.replace(opening=OpeningPlan(*shapes))


def source_again(path: Path, named: dict[str, Any]) -> Source:
    """The source of a run that had saved nothing yet. Raises ConfigError where it has changed since."""
    source = open_source(named["path"])
    if (source.update, source.config_sha256) != (named["update"], named["config_sha256"]):
        raise ConfigError(f"{path}: began with update {named['update']} of {named['path']}, whose newest checkpoint is "
                          f"now of update {source.update}; nothing of this run was saved, so train a new one")
    return source


def _opening_lines(
    setup: Setup, path: Path, restored: checkpoint.Restored | None, resuming: bool, begun: Begun | None
) -> Iterator[str]:
    market, counts = setup.market, {name: int(split.count) for name, split in setup.splits.items()}
    yield f"run {path}"
    if market.synthetic:
        yield (f"bars are SYNTHETIC ({market.contract.symbol}, seed {setup.config.data.synthetic_seed}): generated, "
               "never traded; give --data FILE for your own")
    else:
        yield f"bars: {market.bars.source} ({market.contract.symbol}, real)"
    yield (f"{market.num_sessions} sessions, {len(market.bars):,} bars; train {counts['train']}, validation "
           f"{counts['validation']}, test {counts['test']}; task {setup.env.config.task}, "
           f"{setup.env.observation_size} observations, {setup.env.num_actions} actions, account "
           f"{setup.config.account.preset}")
    yield from (f"note: {note}" for note in market.notes)
    if setup.env.config.optimistic:
        yield "OPTIMISTIC: fills or marks are kinder than a market would be"
    if setup.plan.message:
        yield setup.plan.message
    yield from describe_stages(setup.config.stages)
    if setup.config.train.num_seeds > 1:
        chosen = seeds_of(setup.config)
        yield (f"{len(chosen)} agents as one program, seeds {chosen[0]} .. {chosen[-1]}, each for "
               f"{setup.plan.total_steps:,} steps; figures are means over them")
    if restored is not None:
        yield from (f"passed over: {problem}" for problem in restored.problems)
        yield f"resumed after update {restored.step}"
    elif resuming:
        yield "no checkpoint had been written: starting again from the beginning"
    if begun is not None:
        yield from coverage_lines(begun.coverage)


def _sinks(setup: Setup, path: Path, restored: checkpoint.Restored | None, resuming: bool) -> list[MetricSink]:
    config, names, columns = setup.config, figure_names(setup.env), setup.algorithm.progress
    update = restored.step if restored else 0
    sinks: list[MetricSink] = [
        ConsoleSink(names=names, columns=columns),
        JsonlSink(path / "metrics.jsonl", resume_update=update if resuming else None, names=names),
        LogSink(path / "run.log", names=names, columns=columns),
    ]
    if config.train.tensorboard:
        steps = update * setup.plan.steps_per_update
        sinks.append(TensorBoardSink(path / "tensorboard", resume_steps=steps if resuming else None, names=names))
    return sinks


def _controller(setup: Setup, path: Path, restored: checkpoint.Restored | None, begun: Begun | None,
                metadata: dict[str, Any], tell: Callable[[str], None]) -> control.Controller | None:
    """The hook that scores the policy on the validation sessions, as it was when `restored` was saved; None where
    nothing is to be scored."""
    config, num_seeds = setup.config, setup.config.train.num_seeds
    chosen = config.control
    if not chosen.evaluate_every:
        return None
    start = restored or begun
    # No early stop before new actions are open.
    if start is not None and getattr(start.state, "opening", None) is not None:
        updates = config.transfer.open_until * setup.plan.total_updates
        least = math.ceil(updates / (chosen.evaluate_every * config.train.chunk_updates))
        chosen = chosen.model_copy(update={"min_evaluations": max(chosen.min_evaluations, least)})

    params, _ = params_shown(setup, "validation", path, tell)

    def score(state: PyTree) -> float:
        return mean_reward(setup.env, params, setup.splits["validation"], setup.algorithm,
                           jax.device_get(policies_of(setup, state)))

    over = f", mean of {num_seeds} seeds," if num_seeds > 1 else ""
    made = control.Controller(
        chosen, score, path / control.FOLDER, chunk_updates=config.train.chunk_updates,
        total_updates=setup.plan.total_updates, steps_per_update=setup.plan.steps_per_update, metadata=metadata,
        tell=tell, unit=f"mean reward per session{over}", step_sizes=setup.algorithm.step_sizes,
        exploration=setup.algorithm.exploration)
    made.recall(restored.metadata["hooks"][made.name] if restored else {})
    return made


def _train(setup: Setup, path: Path, restored: checkpoint.Restored | None, begun: Begun | None,
           sinks: list[MetricSink], controller: control.Controller | None, metadata: dict[str, Any],
           advisor: TrainingAdvisor | None) -> TrainResult:
    """Train from where the run is; not at all where it has stopped early."""
    config = setup.config
    if restored and controller and controller.exhausted:
        return TrainResult(restored.state, [], {}, restored.step, restored.metadata["steps"], 0.0, float("nan"), True)
    start: dict[str, PyTree] = {"key": seed_keys(config.seed, config.train.num_seeds)}
    if source := restored or begun:
        start = {"state": source.state}
    hooks: list[Hook] = [] if controller is None else [controller]
    if advisor is not None:
        advisor.recall(restored.metadata["hooks"][advisor.exchange.name] if restored else None)
        hooks.append(advisor.exchange)
        if begun is not None and restored is None:
            start = {"state": begun.state.replace(advice=advisor.exchange.start)}
    try:
        return train(setup.algorithm, setup.params, config=config.train, sinks=sinks, metadata=metadata,
                     checkpoint_dir=path / "checkpoints", hooks=hooks, max_rollbacks=config.control.max_rollbacks,
                     exchange=advisor.exchange if advisor else None, **start)
    except (InterruptedRunError, PreemptedError) as stop:
        raise type(stop)(f"{stop}; continue with: jaxtrade train --resume {path}") from None


def _save_policies(setup: Setup, path: Path, state: PyTree, folder: str) -> dict[int, PyTree]:
    """Write the policy bundles of `state` below the run; the policies by seed."""
    config = setup.config
    policies = {seed: finished(policy) for seed, policy in zip(seeds_of(config), policies_of(setup, state),
                                                               strict=True)}
    for seed, policy in policies.items():
        save_policy_bundle(policy_path(path, config, seed, folder), policy, setup.env, setup.market, config)
    return policies


def _train_and_evaluate(setup: Setup, path: Path, restored: checkpoint.Restored | None,
                        begun: Begun | None = None) -> RunResult:
    config = setup.config
    resuming = (path / "metrics.jsonl").exists()
    sinks = _sinks(setup, path, restored, resuming)

    def tell(line: str) -> None:
        for sink in sinks:
            sink.message(line)

    try:
        for line in _opening_lines(setup, path, restored, resuming, begun):
            tell(line)
        if begun is not None:
            rundir.write_json(path / "transfer.json", coverage_json(begun.coverage))
        metadata = {"config_sha256": rundir.config_digest(path), "data_sha256": setup.market.fingerprint}
        controller = _controller(setup, path, restored, begun, metadata, tell)
        watch = Watch.of(setup.algorithm, tell, figure_names(setup.env))
        # Nobody is asked where nothing is left to train.
        left = restored is None or restored.step < setup.plan.total_updates
        advisor = None if setup.fusion is None or not left else TrainingAdvisor(
            config, setup.market, setup.splits["train"], path, tell)
        try:
            trained = _train(setup, path, restored, begun, [*sinks, watch], controller, metadata, advisor)
        finally:
            advice = None if advisor is None else advisor.close()
        policies = _save_policies(setup, path, trained.state, FOLDER)
        if controller and controller.state.scores:
            _save_policies(setup, path, controller.best(trained.state), BEST_FOLDER)
        trained = trained._replace(health=_whole_health(path, trained, setup))
        results = evaluate_policies(setup, policies, setup.evaluation_split(), path, tell)
        for line in _closing_lines(trained, controller, health_labels(setup.algorithm.health)):
            tell(line)
        if advice is not None:
            steps = len(trained.history) * setup.plan.steps_per_update * config.train.num_seeds
            for line in figure_lines(advice, history(path), steps):
                tell(line)
        for sink in sinks[1:]:  # the console shows progress on standard error; the table is the command's output
            sink.message(table_of(results))
    finally:
        for sink in sinks:
            sink.close()
    failed = any(not passed for passed, _ in trained.health.values())
    summary = {"health": {name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()},
               "updates": trained.updates, "steps": trained.steps, "compile_seconds": trained.compile_seconds,
               "steps_per_second": None if math.isnan(trained.steps_per_second) else trained.steps_per_second,
               "stopped_early": trained.stopped,
               "rollbacks": int(np.reshape(trained.state.rollbacks, -1)[0]), "warnings": watch.seen}
    if controller:
        summary["validation"] = controller.state._asdict()
    rundir.write_json(path / "summary.json", summary)
    return RunResult(path, trained, results, 1 if failed else 0)


def _whole_health(path: Path, trained: TrainResult, setup: Setup) -> dict[str, tuple[bool, float]]:
    """`learning_health` over every update of the run, those of earlier processes too; recompiles are this one's."""
    recompiles = int(trained.health["recompiles"][1]) if trained.health else 0
    return population_health(history(path), recompiles, setup.config.train.num_seeds, setup.algorithm.health)


def _closing_lines(trained: TrainResult, controller: control.Controller | None,
                   labels: dict[str, str]) -> Iterator[str]:
    if trained.history:
        yield (f"trained {trained.steps:,} steps, {trained.steps_per_second:,.0f} steps/s after "
               f"{trained.compile_seconds:.1f} s of compilation")
        checks = ", ".join(f"{labels[name]} {value:.3g} {'ok' if ok else 'FAILED'}"
                           for name, (ok, value) in trained.health.items())
        yield f"learning health over the run: {checks}"
    else:
        yield "nothing left to train; evaluating"
    if controller and controller.state.scores:
        yield controller.summary()
