"""G1. The earlier project's dual environment paid a position chosen at bar t for the move from t -
1 to t.

Here a move that is already printed can earn nothing, and no later bar changes what was seen or paid
before it.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.golden.engines import ENGINES, play
from tests.oracle.portfolio import Side, join
from tests.oracle.portfolio_worlds import (
    portfolio_env,
    portfolio_params,
    random_symbol,
    run,
)
from tests.oracle.test_portfolio import CASES


def moves(count):
    """Bars that move inside even bars and stand still in odd ones, and the sign of each bar's
    move.
    """
    rng = np.random.default_rng(4)
    rows, signs, price = [], [], 20_000
    for i in range(count):
        move = int(rng.integers(5, 20)) * int(rng.choice([-1, 1])) if i % 2 == 0 else 0
        rows.append((price, max(price, price + move), min(price, price + move), price + move))
        signs.append(int(np.sign(move)))
        price += move
    return rows, signs


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_acting_on_a_return_already_known_earns_nothing(engine):
    rows, signs = moves(60)
    known = [[signs[t]] for t in range(59)]  # the move of the bar that has just closed
    steps = play(engine, [rows], known)
    assert sum(len(step.fills) for step in steps) > 20
    assert [step.equity for step in steps] == [0] * 59
    # Otherwise this could not fail: signs one bar ahead are paid.
    ahead = [[signs[t + 1]] for t in range(59)]
    assert play(engine, [rows], ahead)[-1].equity > 1_000_000


def leaves(trace, steps):
    kept = (
        trace.ref.mask,
        trace.action,
        trace.outcome.reward,
        trace.outcome.info.event,
        trace.outcome.info.equity,
        trace.state.legs,
        trace.state.account,
    )
    return [np.asarray(leaf)[:steps].tobytes() for leaf in jax.tree.leaves(kept)]


@pytest.mark.slow
def test_later_bars_change_nothing_before():
    """`allocate`: bars after a row are replaced; masks, rewards, fills and accounts up to it keep
    their bits.
    """
    settings = replace(
        CASES["product"], drawdown=None, daily_loss=None, target=None, episode_sessions=12
    )
    symbols = [random_symbol(1, 12, missing=0.0), random_symbol(2, 12, 9_000, missing=0.0)]
    at = 300

    def other(side):
        tail = [p + 37 for p in side.close[at + 1 :]]
        return Side(
            *([*getattr(side, name)[: at + 1], *tail] for name in ("open", "high", "low", "close"))
        )

    changed = [replace(s, bid=other(s.bid), ask=other(s.ask)) for s in symbols]
    env = portfolio_env(settings, ("A", "B"))
    both = [portfolio_params(join(pair), settings) for pair in (symbols, changed)]
    early = (seed for seed in range(50) if run(env, both[0], seed, 400).state.row[0] < 100)
    seed = next(early)
    traces = [run(env, params, seed, 400) for params in both]
    before = int(np.flatnonzero(traces[0].state.row > at)[0]) - 1
    assert before > 20
    assert leaves(traces[0], before) == leaves(traces[1], before)
    assert leaves(traces[0], 400) != leaves(traces[1], 400)
