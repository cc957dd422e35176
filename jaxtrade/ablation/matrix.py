"""Trains all agents of one fusion, advisors x seeds, in one compiled program.

All agents of a seed start with the same keys, so with the same network and the same episodes,
whatever their advisor. Any difference at the end comes from the advice. The tables have one batch
entry per kind and are shared by the seeds. The market is shared by all agents. Advice is part of
the state, so a new table needs no new compilation.

Then evaluates them with the standard evaluator, each with the advice of its own advisor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.ablation.results import Scores
from jaxtrade.ablation.tables import Answers, KindTable, skill
from jaxtrade.advisor.compose import table_of
from jaxtrade.advisor.table import Delta, empty_table
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.monitor import summarise
from jaxtrade.env.params import make_params, make_stages
from jaxtrade.env.state import EnvParams
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.backtest import Lane, run_lanes
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.record import Record, decision_bars
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.advice import (
    AdviceState,
    Fusion,
    make_fusion,
    start_advice,
    with_answers,
)
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.state import Policy
from jaxtrade.runs.advice import view_of
from jaxtrade.storage import checkpoint
from jaxtrade.storage.sinks import JsonlSink, MetricSink, read_rows
from jaxtrade.training.health import population_health
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import RunLength, plan_run, train
from jaxtrade.training.population import SEEDS, Axes, Stack
from jaxtrade.types import Array, Learner, PyTree, SessionSet

FIGURES = (
    "episode_profit",
    "episode_trades",
    "advice_share",
    "agreement",
    "override",
    "trust",
    "hit_rate",
    "entropy",
    "approx_kl",
    "finite",
)
CHECKPOINTS = "checkpoints"
_TURN = 0x7412  # random stream for the order in which second answers arrive


class FusionTraining(NamedTuple):
    """What is needed to train one fusion.

    params: of the training sessions, without advice.
    """

    config: RunConfig
    env: TradingEnv
    params: EnvParams
    plan: RunLength
    fusion: Fusion
    algorithm: Learner


class TrainedAblation(NamedTuple):
    """The result of training K kinds x S seeds for U updates.

    state: [K, S, ...], without advice.
    advice: at the end of training, in the form of `first_advice`.
    history: float64[U, K, S] per metric, NaN where undefined.
    turned: first update with second answers, or None.
    seconds: training time, without compile_seconds.
    health: check -> (passed, value) of the worst agent over the whole run.
    """

    state: PyTree
    advice: AdviceState
    history: dict[str, np.ndarray]
    turned: int | None
    seconds: float
    compile_seconds: float
    health: dict[str, tuple[bool, float]]


def with_fusion(config: RunConfig, fusion: str) -> RunConfig:
    """Return the configuration of one fusion.

    `slots` adds advice to the observation, which changes the network.
    """
    advice = config.env.advice or fusion == "slots"
    return config.replace(advisor={"kind": "none", "fusion": fusion}, env={"advice": advice})


def make_learner(
    config: RunConfig, fusion: str, market: Market, sessions: SessionSet
) -> FusionTraining:
    """Make the learner of a fusion on the training sessions.

    Raises ConfigError like `make_params`.
    """
    config = with_fusion(config, fusion)
    env = TradingEnv(config.env)
    params = make_params(market, sessions, config)
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    chosen = make_fusion(config.advisor, config.env)
    assert chosen is not None  # None only where the advisor is off, and here it is on
    algorithm = make_algorithm(
        config,
        env,
        plan.total_updates,
        summarise=summarise,
        stage=make_stages(config.stages),
        fusion=chosen,
    )
    return FusionTraining(config, env, params, plan, chosen, algorithm)


def pad_answers(
    answers: Sequence[tuple[np.ndarray, np.ndarray]], bars: int, version: int, least: int = 1
) -> Delta:
    """Pad answers of K kinds to one NumPy delta with leaves [K, ...].

    It has the longest kind's number of rows, and at least `least`.

    bars: T, also the padding bar.
    """
    most = max(least, *(len(found) for found, _ in answers))
    where = np.full((len(answers), most), bars, np.int32)
    rows = np.zeros((len(answers), most, 6), np.float32)
    for k, (found, values) in enumerate(answers):
        where[k, : len(found)], rows[k, : len(found)] = found, values
    # A kind without rows gets version 0, which leaves the `newest` of its table as it was.
    return Delta(
        where, rows, np.array([version * (len(found) > 0) for found, _ in answers], np.int32)
    )


def kind_axes(advice: AdviceState) -> AdviceState:
    """Return `in_axes` for `vmap` over kinds.

    Table and outcomes have a leading axis K, the rest of the advice is shared.
    """
    shared, per_kind = jax.tree.map(lambda _: None, advice), jax.tree.map(lambda _: 0, advice)
    return shared.replace(
        view=shared.view.replace(table=per_kind.view.table), outcomes=per_kind.outcomes
    )


def of_kind(advice: AdviceState, kind: int) -> AdviceState:
    """Select the advice of one kind, in the form of a run with this advisor only."""
    table, outcomes = jax.tree.map(lambda x: x[kind], (advice.view.table, advice.outcomes))
    return advice.replace(view=advice.view.replace(table=table), outcomes=outcomes)


@jax.jit
def with_all_answers(advice: AdviceState, delta: Delta) -> AdviceState:
    """Let each kind receive and score its own rows of a delta with leaves [K, ...]."""
    axes = kind_axes(advice)
    return jax.vmap(with_answers, (axes, 0), axes)(advice, delta)


def first_advice(
    learner: FusionTraining, tables: Sequence[KindTable], followed: np.ndarray, askable: np.ndarray
) -> AdviceState:
    """Make the advice of all kinds at the start of training.

    Every answer is in its table. Answers about training sessions are scored, in time order. Table
    and outcomes are [K, ...]; the rest is shared.

    followed: int8[T], 0 outside the training sessions.
    askable: bool[T].
    """
    config = learner.config.advisor
    view = view_of(config, learner.params.market.sessions, empty_table(len(followed)), True)
    one = start_advice(view, followed, askable, config)
    table, outcomes = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (len(tables), *x.shape)), (one.view.table, one.outcomes)
    )
    nothing = one.replace(view=one.view.replace(table=table), outcomes=outcomes)
    return with_all_answers(
        nothing, pad_answers([(table.bars, table.rows) for table in tables], len(followed), 1)
    )


def second_answers(
    tables: Sequence[KindTable],
    config: RunConfig,
    plan: RunLength,
    bars: int,
    trained_on: np.ndarray,
) -> dict[int, Delta]:
    """Make deltas by the update before which they become visible, for kinds whose answers change.

    Most matrices have none.

    Second answers about training bars arrive from the middle chunk of the run on, in a random
    order. As with a live advisor, `advisor.rows` of them arrive per update. Each replaces the
    first answer and is scored. All deltas have leaves [K, ...] of the same shapes, so they share
    one compilation.

    trained_on: int[n] bars.
    """
    if all(table.then is None for table in tables):
        return {}
    chunk = config.train.chunk_updates
    most, begin = config.advisor.rows * chunk, chunk * (plan.chunks // 2)
    order = np.random.default_rng([config.seed, _TURN]).permutation(
        bars
    )  # a permutation of bars, shared by all kinds
    queues = []
    for table in tables:
        found, rows = table.then or (table.bars[:0], table.rows[:0])
        queue = np.argsort(order[found], kind="stable")
        queue = queue[np.isin(found[queue], trained_on)]
        queues.append((found[queue], rows[queue]))
    longest = max(len(found) for found, _ in queues)
    deltas = {}
    for i, first in enumerate(range(0, longest, most)):
        if begin + i * chunk < plan.total_updates:
            part = [
                (found[first : first + most], rows[first : first + most]) for found, rows in queues
            ]
            deltas[begin + i * chunk] = pad_answers(part, bars, 2 + i, most)
    return deltas


class KnownAdvice:
    """The `training.hooks.Exchange` of a matrix.

    The state holds all advice, so the host exchanges nothing.
    """

    def wrap(self, algorithm: Learner) -> Learner:
        """Change the algorithm to learn with the advice in its own state."""

        def update(
            state: Any, params: EnvParams, inputs: PyTree = None
        ) -> tuple[Any, dict[str, Array]]:
            del inputs
            advice = state.advice
            seen = params.replace(advice=advice.view)
            state, metrics = algorithm.update(state.replace(advice=None), seen, advice)
            # Visits per bar only serve the demand for a live advisor. Here all answers are known,
            # so drop them.
            return state.replace(advice=advice), {
                name: metrics[name] for name in metrics if name != "visits"
            }

        return algorithm._replace(update=update)

    def close_chunk(self, state: Any) -> tuple[Any, PyTree]:
        return state, None

    def inputs(self, update: int, updates: int) -> PyTree:
        """Return None: no row becomes visible inside a chunk."""
        del update, updates

    def receive(self, update: int, news: PyTree) -> None:
        """Receive nothing."""
        del update, news


class _Progress(MetricSink):
    """A sink that reports the progress of a fusion's training.

    A live screen gets all of it, anything else one line after each tenth.
    """

    def __init__(self, fusion: str, screen: Screen) -> None:
        self._fusion, self._screen, self._tenths, self.phase = fusion, screen, 0, screen.phase

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._screen.live:
            self._screen.write(rows)
            return
        last = rows[-1]
        if (tenths := 10 * last["update"] // last["total_updates"]) > self._tenths:
            self._tenths = tenths
            self.message(f"{10 * tenths} % after {last['seconds']:.0f} s")

    def message(self, text: str) -> None:
        self._screen.message(f"fusion {self._fusion}: {text}")


def matrix_stack(learner: FusionTraining, advice: AdviceState, seeds: int) -> Stack:
    """Stack K kinds x S seeds.

    Each kind has its own advice. All kinds share the S keys and the market.
    """
    axes = kind_axes(advice)
    params = jax.tree.map(lambda _: None, learner.params).replace(advice=axes.view)
    return Stack((advice.view.table.newest.shape[0], seeds), (Axes(None, params, axes), SEEDS))


def train_matrix(
    learner: FusionTraining, answers: Answers, seeds: int, folder: Path, screen: Screen
) -> TrainedAblation:
    """Train the agents of every kind and seed (`config.seed`, `config.seed + 1`, ...) together.

    They are one program.

    Args:
        answers: of which `followed` is 0 outside the training sessions.
        folder: for checkpoints and metrics. Training resumes from what a killed process left there,
            and is bit-identical.
        screen: shows phases and, if it is live, rows; else a line at the start, one after
            compilation and one after each tenth of the run.
    Raises like `training.loop.train`, with one exception: a step that is not finite is skipped and
    does not stop the run.
    """
    config, plan, tables = learner.config, learner.plan, answers.tables
    advice = first_advice(learner, *answers)
    stack = matrix_stack(learner, advice, seeds)
    rows = decision_bars(learner.params.market, learner.params.sessions).rows
    later = second_answers(tables, config, plan, len(answers.followed), rows)
    if 0 in later:
        advice = with_all_answers(advice, later[0])
    screen.describe({"action_share": list(learner.env.actions)}, learner.algorithm.info.progress)
    progress = _Progress(config.advisor.fusion, screen)
    progress.message(
        f"{len(tables)} kinds x {seeds} seeds, {plan.total_updates} updates of {plan.steps_per_update:,} "
        "steps for each agent"
    )
    saved, metrics = folder / CHECKPOINTS, folder / "metrics.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    first = partial(first_state, learner, stack)
    if checkpoint.list_checkpoints(saved):
        restored = checkpoint.restore_latest(saved, jax.eval_shape(first, advice))
        state, update = restored.state, restored.step
    else:
        state, update = first(advice), None

    def turn(state: Any, update: int) -> Change:
        """Make second answers visible at the border of a chunk where they are due."""
        if update not in later:
            return Change()
        return Change(state=state.replace(advice=with_all_answers(state.advice, later[update])))

    sink = JsonlSink(metrics, resume_update=update)  # drops rows later than the checkpoint
    before = [] if update is None else read_rows(metrics)
    trained = train(
        learner.algorithm,
        learner.params,
        state=state,
        config=config.train,
        sinks=[progress, sink],
        checkpoint_dir=saved,
        hooks=[turn],
        num_seeds=stack,
        max_rollbacks=None,
        exchange=KnownAdvice(),
    )
    sink.close()
    history = before + trained.history
    seconds = trained.history[-1]["seconds"] if trained.history else 0.0
    recompiles = int(trained.health["recompiles"][1]) if trained.health else 0
    health = population_health(history, recompiles, stack, learner.algorithm.info.health)
    return TrainedAblation(
        trained.state.replace(advice=None),
        trained.state.advice,
        {figure: _metric(stack, history, figure) for figure in FIGURES},
        min(later, default=None),
        seconds,
        trained.compile_seconds,
        health,
    )


def _metric(stack: Stack, history: Sequence[Any], name: str) -> np.ndarray:
    """Return one metric of every update (float64[U, K, S]).

    It is NaN where the learner does not report it.
    """
    if history and name not in history[-1]:
        return np.full((len(history), *stack.shape), np.nan)
    return stack.each(history, name)


def first_state(learner: FusionTraining, stack: Stack, advice: AdviceState) -> PyTree:
    """Make the initial states, [K, S, ...].

    For one seed they are equal for all kinds, except for the first advice seen.
    """
    init = jax.jit(stack.wrap(learner.algorithm).init)
    return init(
        stack.keys(learner.config.seed), learner.params.replace(advice=advice.view)
    ).replace(advice=advice)


def policies_of(learner: FusionTraining, trained: TrainedAblation, kind: int) -> Policy:
    """Return the policies of a kind, [S, ...], with the trust at the end of training.

    An evaluation does not measure trust.
    """
    state = jax.tree.map(lambda x: x[kind], trained.state)
    outcomes = of_kind(trained.advice, kind).outcomes
    policies = jax.vmap(learner.algorithm.policy)(state)
    seeds = state.update.shape[0]
    trust = jax.tree.map(
        lambda x: np.broadcast_to(x, (seeds, *x.shape)), learner.fusion.trust(outcomes)
    )
    return policies.replace(fusion=trust)


def score(
    learner: FusionTraining,
    trained: TrainedAblation,
    answers: Answers,
    sessions: SessionSet,
    split: str,
    begun: Callable[[str], None],
) -> Scores:
    """Evaluate every agent's greedy policy over all decision bars of `sessions`.

    The seeds of a kind run side by side. Raises like `backtest`.

    answers: `followed` is of every session. It scores the advice; agents never see it. All kinds
        share one compiled program, because their tables have the same shape.
    begun: called before each kind.
    """
    decisions = decision_bars(learner.params.market, sessions)
    key = jax.random.key(0)  # required by the interface; a greedy policy does not use it
    agent, records = greedy(learner.algorithm, None, learner.env), []
    for k, table in enumerate(answers.tables):
        begun(f"{table.kind}, {split} sessions")
        view = view_of(
            learner.config.advisor,
            learner.params.market.sessions,
            table_of(*table.latest, len(answers.followed)),
            training=False,
        )
        params = learner.params.replace(sessions=sessions, advice=view)
        policies = policies_of(learner, trained, k)
        seeds = jax.tree.leaves(policies.parameters)[0].shape[0]
        lanes = [
            Lane(
                agent._replace(
                    name=f"{table.kind}, seed {i + 1} of {seeds}",
                    carry=(jax.tree.map(lambda x, i=i: x[i], policies), learner.algorithm.carry),
                ),
                params,
                decisions,
                key,
            )
            for i in range(seeds)
        ]
        records.append(run_lanes(learner.env, lanes, "strategy"))

    def every(of: object) -> np.ndarray:
        return np.array([[of(record) for record in row] for row in records], np.float64)  # type: ignore[operator]

    days = len(decisions.ids)
    return Scores(
        split=split,
        dates=tuple(str(date) for date in decisions.date),
        net=every(lambda r: metrics.session_pnl(r.equity, decisions.last) / 1000),
        trades=every(lambda r: np.sum(r.event.entry_quantity != 0) / days),
        drawdown=every(lambda r: metrics.max_drawdown(r.equity) / 1000),
        agreement=every(agreement),
        skill=tuple(
            skill(*table.latest, answers.followed, decisions.rows) for table in answers.tables
        ),
    )


def agreement(record: Record) -> float:
    """Compute the share of the bars that showed a direction after which that side was held.

    NaN without such bars.
    """
    advised = np.asarray(record.ref.aux.direction)
    directed = advised != 0
    return (
        float(np.mean(np.sign(record.quantity)[directed] == advised[directed]))
        if directed.any()
        else float("nan")
    )


def digests(state: PyTree) -> tuple[tuple[str, ...], ...]:
    """Compute the sha256 (hex) of each agent's parameters and observation statistics, [K][S].

    Agents with equal digests are bit-identical.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.normaliser))]
    kinds, seeds = leaves[0].shape[:2]

    def digest(k: int, s: int) -> str:
        found = hashlib.sha256()
        for leaf in leaves:
            found.update(np.ascontiguousarray(leaf[k, s]).tobytes())
        return found.hexdigest()

    return tuple(tuple(digest(k, s) for s in range(seeds)) for k in range(kinds))
