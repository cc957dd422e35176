"""The composition root: from a configuration to a trained, saved and evaluated policy, and back from a run's folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxtrade import checkpoint, rundir
from jaxtrade.config import EnvConfig, RunConfig
from jaxtrade.data.market import Market, load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.env.summary import summarise
from jaxtrade.errors import ConfigError, DataError, InterruptedRunError, PreemptedError
from jaxtrade.evaluation import grids, report
from jaxtrade.evaluation.evaluate import EvaluationResult, evaluate, standard_agents, write
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.replay import replay_lines
from jaxtrade.metrics import ConsoleSink, JsonlSink, LogSink, MetricSink, TensorBoardSink, read_rows
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.state import policy_of
from jaxtrade.rl.train import Plan, TrainResult, plan_run, train
from jaxtrade.types import Algorithm, PyTree, SessionSet

HEALTH = {"learning_rate": "lowest learning rate", "approx_kl": "highest KL", "param_delta": "smallest step",
          "illegal": "illegal actions", "recompiles": "recompiles"}


def make_env(config: EnvConfig | RunConfig) -> TradingEnv:
    """The environment of a configuration. Static and hashable; data come in `EnvParams` (`make_params`)."""
    return TradingEnv(config.env if isinstance(config, RunConfig) else config)


@dataclass(frozen=True)
class Setup:
    """Everything a run is made of, before anything is written. `params` are those of the training split."""

    config: RunConfig
    market: Market
    splits: dict[str, SessionSet]
    env: TradingEnv
    params: EnvParams
    plan: Plan
    algorithm: Algorithm

    def evaluation_split(self) -> str:
        """`test`; `train` (in sample) where nothing is held out."""
        return "test" if int(self.splits["test"].count) else "train"


@dataclass(frozen=True)
class RunResult:
    """exit_code: 0, or 1 where the run finished but a learning-health check failed. table: the evaluation as text."""

    path: Path
    training: TrainResult
    evaluation: EvaluationResult
    exit_code: int

    @property
    def table(self) -> str:
        return report.table(self.evaluation)


def prepare(config: RunConfig) -> Setup:
    """Load the market and build environment, parameters and learner. Writes nothing; raises ConfigError, DataError."""
    market = load_market(config)
    splits = split_sessions(market, config.split)
    env = make_env(config)
    params = make_params(market, splits["train"], config)
    plan = plan_run(config.train, config.ppo.num_envs, config.ppo.num_steps)
    algorithm = make_ppo(config.ppo, env, plan.total_updates, summarise=summarise)
    return Setup(config, market, splits, env, params, plan, algorithm)


def run(config: RunConfig, path: Path | None = None) -> RunResult:
    """Train, save the policy bundle and evaluate: what `jaxtrade train` does.

    Args:
        path: the new run's directory; default `runs/<market-task-utc-id>`.
    Raises:
        ConfigError, DataError: before anything is written. DivergedError, PreemptedError, InterruptedRunError,
        StorageError: as `rl.train.train`.
    """
    # The thread count changes bits on CPU; what is pinned here is recorded, and pinned again by a resume.
    os.environ.setdefault("NPROC", str(os.cpu_count() or 1))
    setup = prepare(config)
    path = path or rundir.new_run_path(setup.market.contract.symbol, config.env.task)
    rundir.create_run(path, config, rundir.provenance(config, setup.market.fingerprint))
    with rundir.locked(path):
        return _train_and_evaluate(setup, path, None)


def resume(path: Path) -> RunResult:
    """Continue a run from its newest good checkpoint to the same bits as if it had never stopped, then evaluate.

    Raises ConfigError (not a run), DataError (the data have changed), CheckpointError, RunLockedError.
    """
    _, manifest = rundir.read_run(path)
    if manifest["nproc"]:
        os.environ["NPROC"] = manifest["nproc"]  # before JAX starts
    setup, _ = _open(path)
    with rundir.locked(path):
        restored = None
        if checkpoint.list_checkpoints(path / "checkpoints"):
            like = jax.eval_shape(setup.algorithm.init, jax.random.key(setup.config.seed), setup.params)
            restored = checkpoint.restore_latest(path / "checkpoints", like)
        return _train_and_evaluate(setup, path, restored)


def _open(path: Path) -> tuple[Setup, dict[str, Any]]:
    """Setup and manifest of an existing run, the configuration and the data being those it was made with.

    Raises ConfigError (not a run, edited configuration) or DataError (other data).
    """
    config, manifest = rundir.read_run(path)
    if config.digest() != manifest["config_sha256"]:
        raise ConfigError(f"{path / 'config.yaml'}: sha256 {config.digest()[:16]}..., the run was made with "
                          f"{manifest['config_sha256'][:16]}...; restore the file, or train a new run with the change")
    setup = prepare(config)
    if setup.market.fingerprint != manifest["data_sha256"]:
        raise DataError(f"{path}: trained on data with sha256 {manifest['data_sha256'][:16]}..., the data now have "
                        f"{setup.market.fingerprint[:16]}...; bring back the old file, or train a new run")
    return setup, manifest


def _opening_lines(
    setup: Setup, path: Path, restored: checkpoint.Restored | None, resuming: bool
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
    if restored is not None:
        yield from (f"passed over: {problem}" for problem in restored.problems)
        yield f"resumed after update {restored.step}"
    elif resuming:
        yield "no checkpoint had been written: starting again from the beginning"


def _sinks(config: RunConfig, path: Path, restored: checkpoint.Restored | None, resuming: bool) -> list[MetricSink]:
    update = restored.step if restored else 0
    sinks: list[MetricSink] = [
        ConsoleSink(),
        JsonlSink(path / "metrics.jsonl", resume_update=update if resuming else None),
        LogSink(path / "run.log"),
    ]
    if config.train.tensorboard:
        steps = update * config.ppo.num_envs * config.ppo.num_steps
        sinks.append(TensorBoardSink(path / "tensorboard", resume_steps=steps if resuming else None))
    return sinks


def _train_and_evaluate(setup: Setup, path: Path, restored: checkpoint.Restored | None) -> RunResult:
    config = setup.config
    resuming = (path / "metrics.jsonl").exists()
    sinks = _sinks(config, path, restored, resuming)
    try:
        for line in _opening_lines(setup, path, restored, resuming):
            for sink in sinks:
                sink.message(line)
        start: dict[str, PyTree] = ({"state": restored.state} if restored else {"key": jax.random.key(config.seed)})
        metadata = {"config_sha256": config.digest(), "data_sha256": setup.market.fingerprint}
        try:
            trained = train(setup.algorithm, setup.params, config=config.train, sinks=sinks,
                            checkpoint_dir=path / "checkpoints", metadata=metadata, **start)
        except (InterruptedRunError, PreemptedError) as stop:
            raise type(stop)(f"{stop}; continue with: jaxtrade train --resume {path}") from None
        policy = policy_of(trained.state)
        save_policy_bundle(path / "policy", policy, setup.env, setup.algorithm, setup.market, config)
        result = _evaluate(setup, policy, setup.evaluation_split(), path)
        for line in _closing_lines(trained):
            for sink in sinks:
                sink.message(line)
        for sink in sinks[1:]:  # the console shows progress on standard error; the table is the command's output
            sink.message(report.table(result))
    finally:
        for sink in sinks:
            sink.close()
    failed = any(not passed for passed, _ in trained.health.values())
    summary = {"health": {name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()},
               "updates": trained.updates, "steps": trained.steps, "compile_seconds": trained.compile_seconds,
               "steps_per_second": trained.steps_per_second}
    (path / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return RunResult(path, trained, result, 1 if failed else 0)


def _closing_lines(trained: TrainResult) -> Iterator[str]:
    if not trained.history:
        yield "nothing left to train; evaluating"
        return
    yield (f"trained {trained.steps:,} steps, {trained.steps_per_second:,.0f} steps/s after "
           f"{trained.compile_seconds:.1f} s of compilation")
    checks = ", ".join(f"{HEALTH[name]} {value:.3g} {'ok' if ok else 'FAILED'}"
                       for name, (ok, value) in trained.health.items())
    yield f"learning health over the run: {checks}"


def _evaluate(setup: Setup, policy: PyTree, split: str, path: Path) -> EvaluationResult:
    """Evaluate on a split against the baselines and write the files under `evaluation/<split>`."""
    sessions = _held_out(setup, split)
    _, manifest = rundir.read_run(path)
    result = evaluate(setup.env, setup.params, setup.market, sessions, setup.config,
                      algorithm=setup.algorithm, policy=policy,
                      provenance=manifest | {"split": split}, trained_on=setup.splits["train"])
    write(result, path / "evaluation" / split)
    return result


def evaluate_run(path: Path, split: str = "test", as_json: bool = False) -> str:
    """Evaluate a finished run again; the table, or JSON. Raises ConfigError, DataError, CheckpointError."""
    setup, _ = _open(path)
    policy = load_policy(path).policy
    with rundir.locked(path):
        result = _evaluate(setup, policy, split, path)
    return json.dumps(report.to_json(result), indent=2, allow_nan=False) if as_json else report.table(result)


def grid_run(path: Path, split: str = "test", intrabar: bool = True, costs: bool = False, as_json: bool = False) -> str:
    """Grids of a finished run: net profit of its policy and the baselines by intrabar order, and by costs.

    Writes nothing. Raises ConfigError, DataError, CheckpointError.
    """
    setup, _ = _open(path)
    config, sessions = setup.config, _held_out(setup, split)
    agents = standard_agents(setup.env, setup.market, config, setup.algorithm, load_policy(path).policy)
    made = [make(setup.env, setup.params, agents, setup.market, sessions, config)
            for wanted, make in ((intrabar, grids.intrabar_grid), (costs, grids.cost_grid)) if wanted]
    if as_json:
        return json.dumps({grid.title: grids.to_json(grid) for grid in made}, indent=2, allow_nan=False)
    return "\n\n".join(grids.table(grid) for grid in made)


def _held_out(setup: Setup, split: str) -> SessionSet:
    sessions = setup.splits[split]
    if not int(sessions.count):
        raise ConfigError(f"--split {split}: this run holds no sessions out for it (split.{split}_sessions = 0)")
    return sessions


def replay_run(path: Path, session: str) -> Iterator[str]:
    """Lines of one session under the run's greedy policy. Raises ConfigError where the date is no session."""
    setup, _ = _open(path)
    return replay_lines(setup.env, setup.params, setup.market, setup.algorithm, load_policy(path).policy, session)


def history(path: Path) -> list[dict[str, Any]]:
    """The metrics of a run, one row per update."""
    return read_rows(path / "metrics.jsonl")
