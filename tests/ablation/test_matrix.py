"""One compiled program for all kinds and seeds: each member is the agent that it would be alone."""

import shutil
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.ablation import matrix
from jaxtrade.ablation.matrix import (
    FusionTraining,
    KnownAdvice,
    first_advice,
    first_state,
    matrix_stack,
    second_answers,
)
from jaxtrade.ablation.tables import Answers, KindTable, make_tables
from jaxtrade.advisor.compose import table_of
from jaxtrade.advisor.questions import mask_to_sessions
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import split_sessions
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.progress.screen import Screen
from jaxtrade.rl.advice import AdviceState
from jaxtrade.runs.advice import view_of
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import Programs
from jaxtrade.text import FORECAST
from jaxtrade.training.loop import Chunk, chunk_program
from tests.ablation.made import tiny
from tests.messages import missing

pytestmark = pytest.mark.slow  # compiling the matrix takes half a minute
KINDS = ("none", "mock:available:0/mock:oracle", "mock:oracle")
SEEDS = 2


class Made(NamedTuple):
    learner: FusionTraining
    tables: list[KindTable]
    splits: dict
    followed: np.ndarray
    known: np.ndarray
    askable: np.ndarray
    advice: AdviceState
    chunk: Chunk

    def first(self):
        """The first states, which a chunk takes over."""
        return jax.tree.map(
            jnp.copy,
            first_state(self.learner, matrix_stack(self.learner, self.advice, SEEDS), self.advice),
        )

    def run(self, state):
        state, figures, _ = self.chunk(state, self.learner.params)
        return state, {name: figures[name] for name in matrix.FIGURES}


@pytest.fixture(scope="module")
def made():
    config = tiny()
    market = load_market(config)
    splits = split_sessions(market, config.split)
    learner = matrix.make_learner(config, "trust", market, splits["train"])
    tables, followed, askable = make_tables(KINDS, config, market)
    known = mask_to_sessions(followed, market, splits["train"])
    advice = first_advice(learner, tables, known, askable)
    stack = matrix_stack(learner, advice, SEEDS)
    with Programs() as programs:
        program = chunk_program(KnownAdvice().wrap(stack.wrap(learner.algorithm)), 1)
        begin = first_state(learner, stack, advice), learner.params, None
        chunk = Chunk(programs.begin("train chunk", program, begin))
    return Made(learner, tables, splits, followed, known, askable, advice, chunk)


@pytest.fixture(scope="module")
def one_update(made):
    first = made.first()
    begun = jax.device_get(
        jax.tree.map(
            lambda x: (
                x if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jax.random.key_data(x)
            ),
            first,
        )
    )
    return begun, *made.run(first)


def without_advice(state):
    return state.replace(advice=None)


def of(tree, k):
    return jax.tree.map(lambda x: x[k], tree)


def test_kinds_begin_alike_and_seeds_do_not(one_update):
    begun, _, _ = one_update
    kernel = next(leaf for leaf in jax.tree.leaves(begun.params) if leaf.ndim == 4)
    assert np.array_equal(kernel[0], kernel[2])
    assert not np.array_equal(kernel[0, 0], kernel[0, 1])
    rows = begun.ref.row
    assert np.array_equal(rows[0], rows[2])  # the same start bars
    assert not np.array_equal(rows[0, 0], rows[0, 1])
    assert begun.ref.aux.version[0].max() == 0
    assert begun.ref.aux.version[2].max() == 1  # the oracle is heard from the first bar on


def test_no_answers_are_no_advisor_bit_for_bit(one_update):
    _, state, _ = one_update
    none, silent, oracle = matrix.digests(state)
    assert none == silent
    assert len({*none, *oracle}) == 4


def test_other_tables_compile_nothing(made):
    """A market's other answers are other arguments: the compiled program and the evaluation take
    them as they are.
    """
    tables = [
        table._replace(bars=table.bars[:50], rows=table.rows[:50] + 0.1) for table in made.tables
    ]
    state = made.first()
    first, other = (
        first_advice(made.learner, each, made.known, made.askable)
        for each in (tables, made.tables[::-1])
    )
    compiled = []

    def listen(event, seconds, **more):
        compiled.extend([event] if "backend_compile" in event else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        state, _ = made.run(state.replace(advice=first))
        made.run(state.replace(advice=other))
    finally:
        jax.monitoring.unregister_event_duration_listener(
            listen
        )  # others stay: a chunk counts with one of its own
    assert compiled == []


def test_trust_is_measured_on_training_sessions_alone(made):
    """What followed on held-out days changes nothing that any agent sees."""
    held_out = made.followed.copy()
    held_out[made.known != 0] = 0
    assert held_out.any()
    scored = np.asarray(
        first_advice(made.learner, made.tables, made.known, made.askable).outcomes.seen
    )
    assert scored.tolist() == [0, 0, int((made.known != 0).sum())]


def test_second_answers_come_in_parts(made):
    """From half of the run on, `rows` per update, each training bar once, in an order that is not
    that of time.
    """
    config = tiny("advisor.rows=10", "train.chunk_updates=2")
    plan = made.learner.plan._replace(total_updates=8, chunks=4)
    bars = np.arange(50, dtype=np.int32)
    rows = np.tile(np.arange(50, dtype=np.float32)[:, None], 6)
    turned = KindTable("turn", bars, rows, (bars, rows + 100))
    deltas = second_answers([turned, made.tables[0]], config, plan, 60, np.arange(5, 40))
    assert sorted(deltas) == [4, 6]
    assert all(delta.bars.shape == (2, 20) for delta in deltas.values())
    first, second = deltas[4], deltas[6]
    came = np.concatenate([first.bars[0], second.bars[0]])
    assert sorted(came[came < 60]) == list(range(5, 40))
    assert not np.array_equal(first.bars[0], np.sort(first.bars[0]))
    assert np.array_equal(first.rows[0, :, 0], first.bars[0] + 100)
    assert (first.bars[1] == 60).all()  # nobody else turns
    assert first.version.tolist() == [2, 0]
    assert second.version.tolist() == [3, 0]
    assert second_answers(made.tables, config, plan, 60, np.arange(5, 40)) == {}


def test_slots_show_advice_and_others_do_not():
    config = tiny()
    assert matrix.with_fusion(config, "slots").env.advice
    assert not matrix.with_fusion(config, "trust").env.advice
    assert matrix.with_fusion(config, "gate").advisor.fusion == "gate"


def test_the_first_state_is_that_of_the_agent_alone(made, one_update):
    begun, _, _ = one_update
    advice = matrix.of_kind(made.advice, 2)
    alone = jax.jit(made.learner.algorithm.init)(
        jax.random.key(1), made.learner.params.replace(advice=advice.view)
    )
    member = of(of(without_advice(begun).replace(key=()), 2), 1)
    for a, b in zip(jax.tree.leaves(alone.replace(key=())), jax.tree.leaves(member), strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-6, atol=1e-6
        )


def test_an_evaluation_hears_its_own_advisor(made, one_update):
    """On held-out days, with nothing kept back; the seeds side by side as each alone."""
    _, state, figures = one_update
    trained = matrix.TrainedAblation(
        without_advice(state), made.advice, figures, None, 0.0, 0.0, {}
    )
    found = matrix.score(
        made.learner,
        trained,
        Answers(made.tables, made.followed, made.askable),
        made.splits["test"],
        "test",
        str,
    )
    assert found.net.shape == (3, SEEDS, 3)
    assert np.array_equal(found.net[0], found.net[1])
    assert np.isnan(found.agreement[:2]).all()
    assert np.isfinite(found.agreement[2]).all()
    assert found.skill[2].hit_rate == 1.0
    assert found.skill[0].advised == 0.0
    assert len(found.dates) == 3
    alone = of(matrix.policies_of(made.learner, trained, 2), 1)
    table = table_of(*made.tables[2].latest, len(made.followed))
    view = view_of(made.learner.config.advisor, made.learner.params.market.sessions, table, False)
    params = made.learner.params.replace(sessions=made.splits["test"], advice=view)
    decisions = decision_bars(params.market, params.sessions)
    record = backtest(
        made.learner.env,
        greedy(made.learner.algorithm, alone, made.learner.env),
        params,
        decisions,
        "strategy",
        jax.random.key(0),
    )
    assert np.array_equal(session_pnl(record.equity, decisions.last) / 1000, found.net[2, 1])


def test_a_killed_matrix_goes_on_to_the_same_bits(made, tmp_path):
    """With second answers in mid-run, which a resumed process finds in the state, or makes visible
    itself.
    """
    config = tiny(
        "train.total_timesteps=768",
        "train.checkpoint_every=1",
        "train.keep_checkpoints=9",
        "advisor.rows=8",
    )
    learner = matrix.make_learner(config, "trust", load_market(config), made.splits["train"])
    answers = make_tables(("none", "turn"), config, load_market(config))
    answers = Answers(answers.tables, made.known, made.askable)
    screen, lines = Screen(), []
    screen.message = lines.append

    def trained(folder):
        return matrix.train_matrix(learner, answers, SEEDS, folder, screen)

    whole = trained(tmp_path / "whole")
    assert whole.turned == 3
    assert all(passed for passed, _ in whole.health.values())
    assert not missing(lines[0], "fusion trust", "2 kinds x 2 seeds", "6 updates of 128 steps")
    assert lines[1].startswith(f"fusion trust: {FORECAST}")
    assert lines[-1].startswith("fusion trust: 100 % after ")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for update, path in checkpoint.list_checkpoints(tmp_path / "cut" / "checkpoints"):
        if update > 2:
            shutil.rmtree(path)
    resumed = trained(tmp_path / "cut")
    assert matrix.digests(resumed.state) == matrix.digests(whole.state)
    for name, values in whole.history.items():
        np.testing.assert_array_equal(resumed.history[name], values, err_msg=name)
    for a, b in zip(jax.tree.leaves(resumed.advice), jax.tree.leaves(whole.advice), strict=True):
        np.testing.assert_array_equal(a, b)
    again = trained(tmp_path / "cut")  # nothing is left to train
    assert matrix.digests(again.state) == matrix.digests(whole.state)
    assert len(again.history["trust"]) == 6
