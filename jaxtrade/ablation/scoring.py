"""Evaluates the trained agents of a matrix with the standard evaluator, each with the advice of its
own advisor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxtrade.ablation.matrix import FusionTraining, Trained, of_kind
from jaxtrade.ablation.results import Scores
from jaxtrade.ablation.tables import KindTable, skill
from jaxtrade.advisor.compose import table_of
from jaxtrade.evaluation import metrics
from jaxtrade.evaluation.backtest import Lane, run_lanes
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.record import Record, decision_bars
from jaxtrade.rl.state import Policy
from jaxtrade.runs.advice import view_of
from jaxtrade.types import PyTree, SessionSet


def policies_of(learner: FusionTraining, trained: Trained, kind: int) -> Policy:
    """The policies of a kind, [S, ...], with the trust at the end of training. An evaluation does
    not measure trust.
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
    trained: Trained,
    tables: Sequence[KindTable],
    followed: np.ndarray,
    sessions: SessionSet,
    split: str,
    begun: Callable[[str], None] | None = None,
) -> Scores:
    """Evaluate every agent's greedy policy over all decision bars of `sessions`. The seeds of a
    kind run side by side.

    followed: int8[T] of every session. It scores the advice; agents never see it. All kinds share
        one compiled program,
    because their tables have the same shape. begun: called before each kind. Raises like
    `backtest`.
    """
    decisions = decision_bars(learner.params.market, sessions)
    key = jax.random.key(0)  # required by the interface; a greedy policy does not use it
    records = []
    for k, table in enumerate(tables):
        if begun is not None:
            begun(f"{table.kind}, {split} sessions")
        view = view_of(
            learner.config.advisor,
            learner.params.market.sessions,
            table_of(*table.latest, len(followed)),
            training=False,
        )
        params = learner.params.replace(sessions=sessions, advice=view)
        agent, policies = (
            greedy(learner.algorithm, None, learner.env),
            policies_of(learner, trained, k),
        )
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
        skill=tuple(skill(*table.latest, followed, decisions.rows) for table in tables),
    )


def agreement(record: Record) -> float:
    """Of the bars that showed a direction, the share after which that side was held; NaN without
    such bars.
    """
    advised = np.asarray(record.ref.aux.direction)
    directed = advised != 0
    return (
        float(np.mean(np.sign(record.quantity)[directed] == advised[directed]))
        if directed.any()
        else float("nan")
    )


def digests(state: PyTree) -> tuple[tuple[str, ...], ...]:
    """sha256 (hex) of each agent's parameters and observation statistics, [K][S]. Equal digests
    mean equal bits.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((state.params, state.normaliser))]
    kinds, seeds = leaves[0].shape[:2]

    def digest(k: int, s: int) -> str:
        found = hashlib.sha256()
        for leaf in leaves:
            found.update(np.ascontiguousarray(leaf[k, s]).tobytes())
        return found.hexdigest()

    return tuple(tuple(digest(k, s) for s in range(seeds)) for k in range(kinds))
