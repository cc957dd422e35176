"""Advisors x seeds as one compiled program: the training of all agents of one fusion.

Every agent of a seed begins with the same keys, so with the same network and the same episodes, whoever advises it:
what differs in the end comes from the advice. The tables are batched over kinds and shared by seeds, the market is
shared by all. Advice is an argument of the program, so that no table compiles anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.ablation.tables import KindTable
from jaxtrade.advisor.fusion import Fusion, make_fusion
from jaxtrade.advisor.outcomes import Outcomes
from jaxtrade.advisor.table import AdviceTable, Delta, empty_table
from jaxtrade.advisor_run import view_of
from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.stages import make_stages
from jaxtrade.env.state import EnvParams
from jaxtrade.env.summary import summarise
from jaxtrade.evaluation.backtest import decision_bars
from jaxtrade.rl.advised import AdviceState, start_advice, with_answers
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.population import seed_keys
from jaxtrade.rl.train import Plan, plan_run
from jaxtrade.types import Algorithm, Array, PyTree, SessionSet

FIGURES = ("episode_profit", "episode_trades", "advice_share", "agreement", "override", "trust", "hit_rate", "entropy",
           "approx_kl", "finite")
_TURN = 0x7412  # stream of the order in which a turn's answers come


class Learner(NamedTuple):
    """One fusion's agents. `params` are those of the training sessions, without advice."""

    config: RunConfig
    env: TradingEnv
    params: EnvParams
    plan: Plan
    fusion: Fusion
    algorithm: Algorithm


class Heard(NamedTuple):
    """What differs between kinds in their `AdviceState`, leaves [K, ...]; all the rest of it is shared."""

    table: AdviceTable
    outcomes: Outcomes


class Trained(NamedTuple):
    """state: [K, S, ...]. heard: as it stood at the end. history: float[U, K, S] per figure, NaN where undefined.
    turned: update from which second answers came, or None. seconds: of training, without compile_seconds."""

    state: PyTree
    heard: Heard
    history: dict[str, np.ndarray]
    turned: int | None
    seconds: float
    compile_seconds: float


def with_fusion(config: RunConfig, fusion: str) -> RunConfig:
    """The configuration of one fusion: `slots` shows advice in the observation, which makes it another network."""
    advisor = config.advisor.model_copy(update={"kind": "none", "fusion": fusion})
    env = config.env.model_copy(update={"advice": config.env.advice or fusion == "slots"})
    return config.model_copy(update={"advisor": advisor, "env": env})


def make_learner(config: RunConfig, fusion: str, market: Market, sessions: SessionSet) -> Learner:
    """The learner of a fusion on the training sessions. Raises ConfigError as `make_params`."""
    config = with_fusion(config, fusion)
    env = TradingEnv(config.env)
    params = make_params(market, sessions, config)
    plan = plan_run(config.train, config.rollout.num_envs, config.rollout.num_steps)
    made = make_fusion(config.advisor, config.env)
    assert made is not None  # its kind is on
    algorithm = make_algorithm(config, env, plan.total_updates, summarise=summarise, stage=make_stages(config.stages),
                               fusion=made)
    return Learner(config, env, params, plan, made, algorithm)


def padded(answers: Sequence[tuple[np.ndarray, np.ndarray]], bars: int, version: int, least: int = 1) -> Delta:
    """Answers of several kinds as one delta, leaves [K, ...], NumPy: as many rows as the longest has, or `least`."""
    most = max(least, *(len(found) for found, _ in answers))
    where = np.full((len(answers), most), bars, np.int32)
    rows = np.zeros((len(answers), most, 6), np.float32)
    for k, (found, told) in enumerate(answers):
        where[k, : len(found)], rows[k, : len(found)] = found, told
    return Delta(where, rows, np.array([version * (len(found) > 0) for found, _ in answers], np.int32))


def advised(shared: AdviceState, own: Heard) -> AdviceState:
    """One kind's state."""
    return shared.replace(view=shared.view.replace(table=own.table), outcomes=own.outcomes)


def _hear(shared: AdviceState, own: Heard, delta: Delta) -> Heard:
    state = with_answers(advised(shared, own), delta)
    return Heard(state.view.table, state.outcomes)


hear_all = jax.jit(jax.vmap(_hear, (None, 0, 0)))


def first_advice(learner: Learner, tables: Sequence[KindTable], followed: np.ndarray,
                 askable: np.ndarray) -> tuple[AdviceState, Heard]:
    """The advice of all kinds as a run begins with it: every answer is in its table, and those about training sessions
    are scored, in the order of time.

    followed: int8[T], 0 outside the training sessions.
    """
    config = learner.config.advisor
    view = view_of(config, learner.params.market.sessions, empty_table(len(followed)), True)
    shared = start_advice(view, followed, askable, config.bins, config.memory)
    kinds = len(tables)
    nothing = jax.tree.map(lambda x: jnp.broadcast_to(x, (kinds, *x.shape)),
                           Heard(shared.view.table, shared.outcomes))
    return shared, hear_all(shared, nothing, padded([(table.bars, table.rows) for table in tables], len(followed), 1))


def second_answers(tables: Sequence[KindTable], config: RunConfig, plan: Plan, bars: int,
                   trained_on: np.ndarray) -> dict[int, Delta]:
    """What becomes visible before which update, for kinds whose answers change: none of most matrices.

    From the first chunk border at half of the run on, second answers about training bars arrive in a random order, as
    many per update as `advisor.rows`, like a live advisor's; each replaces the first one and is scored. Deltas are
    [K, ...] of constant shapes. trained_on: int[n] bars.
    """
    if all(table.then is None for table in tables):
        return {}
    chunk = config.train.chunk_updates
    most, begin = config.advisor.rows * chunk, chunk * (plan.chunks // 2)
    order = np.random.default_rng([config.seed, _TURN]).permutation(bars)  # of bars, so that all kinds share it
    queues = []
    for table in tables:
        found, rows = table.then or (table.bars[:0], table.rows[:0])
        mine = np.argsort(order[found], kind="stable")
        mine = mine[np.isin(found[mine], trained_on)]
        queues.append((found[mine], rows[mine]))
    longest = max(len(found) for found, _ in queues)
    deltas = {}
    for i, first in enumerate(range(0, longest, most)):
        if begin + i * chunk < plan.total_updates:
            part = [(found[first:first + most], rows[first:first + most]) for found, rows in queues]
            deltas[begin + i * chunk] = padded(part, bars, 2 + i, most)
    return deltas


class Program:
    """The compiled training of one fusion: K kinds x S seeds."""

    def __init__(self, learner: Learner) -> None:
        update, init = learner.algorithm.update, learner.algorithm.init

        def begin(keys: Array, params: EnvParams, shared: AdviceState, own: Heard) -> PyTree:
            seen = params.replace(advice=advised(shared, own).view)
            return jax.vmap(lambda key: init(key, seen))(keys)

        def of_kind(state: PyTree, params: EnvParams, shared: AdviceState, own: Heard) -> tuple[PyTree, Any]:
            return jax.vmap(update, (0, None, None))(state, params, advised(shared, own))

        def step(state: PyTree, params: EnvParams, shared: AdviceState, own: Heard) -> tuple[PyTree, dict[str, Array]]:
            state, metrics = jax.vmap(of_kind, (0, None, None, 0))(state, params, shared, own)
            return state, {name: metrics[name] for name in FIGURES}

        def run(state: PyTree, params: EnvParams, shared: AdviceState, own: Heard) -> tuple[PyTree, dict[str, Array]]:
            return jax.lax.scan(lambda state, _: step(state, params, shared, own), state, None,
                                length=learner.config.train.chunk_updates)

        self._params = learner.params
        self._begin = jax.jit(jax.vmap(begin, (None, None, None, 0)))
        self._run = jax.jit(run, donate_argnums=0)
        self._compiled: Any = None

    def first(self, keys: Array, shared: AdviceState, own: Heard) -> PyTree:
        """The first states, [K, S, ...]: of one seed the same for every kind, but for the advice shown first."""
        return self._begin(keys, self._params, shared, own)

    def compile(self, state: PyTree, shared: AdviceState, own: Heard) -> float:
        """Ahead of time; returns the seconds it took. What is compiled takes no other shapes and compiles no more."""
        begun = time.perf_counter()
        self._compiled = self._run.lower(state, self._params, shared, own).compile()
        return time.perf_counter() - begun

    def chunk(self, state: PyTree, shared: AdviceState, own: Heard) -> tuple[PyTree, dict[str, np.ndarray]]:
        """`train.chunk_updates` updates of all agents; takes the state over. Figures are [updates, K, S]."""
        state, figures = self._compiled(state, self._params, shared, own)
        return state, jax.device_get(figures)


def matrix_keys(seed: int, seeds: int) -> Array:
    """key[S]: of the seeds `seed`, `seed + 1`, ..., the same for every kind and every fusion."""
    return jnp.reshape(seed_keys(seed, seeds), (seeds,))


def train_matrix(learner: Learner, tables: Sequence[KindTable], followed: np.ndarray, askable: np.ndarray, seeds: int,
                 tell: Callable[[str], None] | None = None) -> Trained:
    """Train every kind's agents of the seeds `config.seed`, `config.seed + 1`, ... as one program.

    followed: int8[T], 0 outside the training sessions. askable: bool[T]. tell: gets a line when it is compiled and
    after each tenth of the run.
    """
    config, plan, name = learner.config, learner.plan, learner.config.advisor.fusion
    shared, own = first_advice(learner, tables, followed, askable)
    program = Program(learner)
    state = program.first(matrix_keys(config.seed, seeds), shared, own)
    rows = decision_bars(learner.params.market, learner.params.sessions).rows
    later = second_answers(tables, config, plan, len(followed), rows)
    compile_seconds = program.compile(state, shared, own)
    say = tell or (lambda line: None)
    say(f"fusion {name}: {len(tables)} kinds x {seeds} seeds compiled in {compile_seconds:.1f} s; "
        f"{plan.total_updates} updates of {plan.steps_per_update:,} steps for each agent")
    history, begun, told = [], time.perf_counter(), 0
    for done in range(plan.chunks):
        if (delta := later.get(done * config.train.chunk_updates)) is not None:
            own = hear_all(shared, own, delta)
        state, figures = program.chunk(state, shared, own)
        history.append(figures)
        if (tenths := 10 * (done + 1) // plan.chunks) > told:
            told = tenths
            say(f"fusion {name}: {10 * told} % after {time.perf_counter() - begun:.0f} s")
    seconds = time.perf_counter() - begun
    joined = {figure: np.concatenate([np.asarray(part[figure], np.float64) for part in history]) for figure in FIGURES}
    return Trained(state, own, joined, min(later, default=None), seconds, compile_seconds)
