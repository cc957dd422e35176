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
from jaxtrade.evaluation import grids, report, seeds
from jaxtrade.evaluation.evaluate import EvaluationResult, evaluate, standard_agents, write
from jaxtrade.evaluation.policy import FOLDER, load_policy, save_policy_bundle
from jaxtrade.evaluation.replay import replay_lines
from jaxtrade.metrics import ConsoleSink, JsonlSink, LogSink, MetricSink, TensorBoardSink, read_rows
from jaxtrade.rl.population import agent, population, seed_keys
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
        return _table(self.evaluations)


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
    if "xla_flags" in manifest:  # a run from before they were recorded has none to restore
        os.environ["XLA_FLAGS"] = manifest["xla_flags"]
    setup, _ = _open(path)
    with rundir.locked(path):
        restored = None
        if checkpoint.list_checkpoints(path / "checkpoints"):
            agents = setup.config.train.num_seeds
            like = jax.eval_shape(population(setup.algorithm, agents).init, seed_keys(setup.config.seed, agents),
                                  setup.params)
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
    if setup.config.train.num_seeds > 1:
        chosen = seeds_of(setup.config)
        yield (f"{len(chosen)} agents as one program, seeds {chosen[0]} .. {chosen[-1]}, each for "
               f"{setup.plan.total_steps:,} steps; figures are means over them")
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
        start: dict[str, PyTree] = (
            {"state": restored.state} if restored else {"key": seed_keys(config.seed, config.train.num_seeds)})
        metadata = {"config_sha256": config.digest(), "data_sha256": setup.market.fingerprint}
        try:
            trained = train(setup.algorithm, setup.params, config=config.train, sinks=sinks,
                            checkpoint_dir=path / "checkpoints", metadata=metadata, **start)
        except (InterruptedRunError, PreemptedError) as stop:
            raise type(stop)(f"{stop}; continue with: jaxtrade train --resume {path}") from None
        policies = {seed: agent(policy_of(trained.state), i, config.train.num_seeds)
                    for i, seed in enumerate(seeds_of(config))}
        for seed, policy in policies.items():
            save_policy_bundle(_policy_path(path, config, seed), policy, setup.env, setup.algorithm, setup.market,
                               config)
        results = _evaluate(setup, policies, setup.evaluation_split(), path)
        for line in _closing_lines(trained):
            for sink in sinks:
                sink.message(line)
        for sink in sinks[1:]:  # the console shows progress on standard error; the table is the command's output
            sink.message(_table(results))
    finally:
        for sink in sinks:
            sink.close()
    failed = any(not passed for passed, _ in trained.health.values())
    summary = {"health": {name: {"passed": ok, "value": value} for name, (ok, value) in trained.health.items()},
               "updates": trained.updates, "steps": trained.steps, "compile_seconds": trained.compile_seconds,
               "steps_per_second": trained.steps_per_second}
    (path / "summary.json").write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return RunResult(path, trained, results, 1 if failed else 0)


def _closing_lines(trained: TrainResult) -> Iterator[str]:
    if not trained.history:
        yield "nothing left to train; evaluating"
        return
    yield (f"trained {trained.steps:,} steps, {trained.steps_per_second:,.0f} steps/s after "
           f"{trained.compile_seconds:.1f} s of compilation")
    checks = ", ".join(f"{HEALTH[name]} {value:.3g} {'ok' if ok else 'FAILED'}"
                       for name, (ok, value) in trained.health.items())
    yield f"learning health over the run: {checks}"


def seeds_of(config: RunConfig) -> range:
    """The seeds that a run trains."""
    return range(config.seed, config.seed + config.train.num_seeds)


def _policy_path(path: Path, config: RunConfig, seed: int) -> Path:
    """`policy`, or `policy/seed_<n>` where a run has several."""
    return path / FOLDER if config.train.num_seeds == 1 else path / FOLDER / f"seed_{seed}"


def _chosen_seed(config: RunConfig, seed: int | None) -> int:
    """The seed asked for; raises ConfigError where it is none of the run's, or none is named of several."""
    known = seeds_of(config)
    if seed is None and len(known) == 1:
        return known[0]
    if seed is None or seed not in known:
        asked = "this run has several policies" if seed is None else f"--seed {seed}: this run has no such seed"
        raise ConfigError(f"{asked}; give --seed {known[0]}" + (f" .. {known[-1]}" if len(known) > 1 else ""))
    return seed


def _load(path: Path, config: RunConfig, seed: int) -> PyTree:
    return load_policy(_policy_path(path, config, seed)).policy


def _table(results: dict[int, EvaluationResult]) -> str:
    return seeds.table(results) if len(results) > 1 else report.table(next(iter(results.values())))


def _evaluate(setup: Setup, policies: dict[int, PyTree], split: str, path: Path) -> dict[int, EvaluationResult]:
    """Evaluate policies by seed on a split against the baselines and write the files under `evaluation/<split>`, of a
    run with several seeds under `evaluation/<split>/seed_<n>`. The draws of sampled agents are the same for all seeds.
    """
    sessions, config = _held_out(setup, split), setup.config
    _, manifest = rundir.read_run(path)
    folder, results = path / "evaluation" / split, {}
    for seed, policy in policies.items():
        provenance = manifest | {"split": split}
        own = folder
        if config.train.num_seeds > 1:
            provenance["trained_seed"], own = seed, folder / f"seed_{seed}"
        results[seed] = evaluate(setup.env, setup.params, setup.market, sessions, config, algorithm=setup.algorithm,
                                 policy=policy, provenance=provenance, trained_on=setup.splits["train"])
        write(results[seed], own)
    if len(results) > 1:
        (folder / "seeds.json").write_text(json.dumps(seeds.to_json(results), indent=2, allow_nan=False) + "\n",
                                           encoding="utf-8")
        (folder / "seeds.txt").write_text(seeds.table(results) + "\n", encoding="utf-8")
    return results


def evaluate_run(path: Path, split: str = "test", as_json: bool = False, seed: int | None = None) -> str:
    """Evaluate a finished run again, all its seeds or one; the table, or JSON.

    Raises ConfigError, DataError, CheckpointError.
    """
    setup, _ = _open(path)
    chosen = seeds_of(setup.config) if seed is None else [_chosen_seed(setup.config, seed)]
    policies = {each: _load(path, setup.config, each) for each in chosen}
    with rundir.locked(path):
        results = _evaluate(setup, policies, split, path)
    if not as_json:
        return _table(results)
    document = seeds.to_json(results) if len(results) > 1 else report.to_json(next(iter(results.values())))
    return json.dumps(document, indent=2, allow_nan=False)


def grid_run(path: Path, split: str = "test", intrabar: bool = True, costs: bool = False, as_json: bool = False,
             seed: int | None = None) -> str:
    """Grids of a finished run: net profit of its policy and the baselines by intrabar order, and by costs.

    Writes nothing. `seed`: which policy, of a run with several. Raises ConfigError, DataError, CheckpointError.
    """
    setup, _ = _open(path)
    config, sessions = setup.config, _held_out(setup, split)
    policy = _load(path, config, _chosen_seed(config, seed))
    agents = standard_agents(setup.env, setup.market, config, setup.algorithm, policy)
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


def replay_run(path: Path, session: str, seed: int | None = None) -> Iterator[str]:
    """Lines of one session under the run's greedy policy (`seed`: which, of several). Raises ConfigError where the
    date is no session."""
    setup, _ = _open(path)
    policy = _load(path, setup.config, _chosen_seed(setup.config, seed))
    return replay_lines(setup.env, setup.params, setup.market, setup.algorithm, policy, session)


def history(path: Path) -> list[dict[str, Any]]:
    """The metrics of a run, one row per update."""
    return read_rows(path / "metrics.jsonl")
