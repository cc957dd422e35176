"""Episodes that start in a position: the bar that an agent's own entry would have been, drawn as
often as asked.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env import episode, rules, summary
from jaxtrade.env.dynamics import TradingEnv, forced_entry
from jaxtrade.env.state import EndReason, EnvState
from tests import compiling
from tests.env import worlds
from tests.env.test_dynamics import ENVS, STEPS
from tests.env.test_dynamics import sample as dynamics_sample
from tests.env.worlds import Session, bars_of, i32, ints, leaves_differ, make_params

CONFIG = EnvConfig(quantity=2)
ENV = TradingEnv(CONFIG)
MARKET = worlds.make_market(
    worlds.random_bars(3, 480, step=8), worlds.even_sessions(3, 160, warm=5)
)
ALWAYS = jnp.float32(1)


def some(tree, which):
    return jax.tree.map(lambda x: x[which], tree)


ENTER = jax.jit(forced_entry, static_argnums=0, compiler_options=compiling.fast())
HAND = bars_of(
    [
        (8000, 8002, 7998, 8000),  # decided here
        (8001, 8006, 7999, 8004),  # filled at 8001, a tick worse
        (8004, 8010, 8003, 8009),
        (8009, 8011, 8001, 8002),
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "entry", "stop", "target", "equity", "peak", "fall"),
    [
        # 12.50 a tick, 2.08 a side, two contracts; the stop is 1.5 ATR of 10 ticks from the
        # unslipped open, the target 3x
        (1, 8002, 7986, 8046, 2 * (2 * 12_500 - 2_080), 45_840, 0),
        (-1, 8000, 8016, 7956, 2 * (-4 * 12_500 - 2_080), 0, 104_160),
    ],
)
def test_by_hand(side, entry, stop, target, equity, peak, fall):
    params = make_params(worlds.make_market(HAND, [Session(0, 4, 0, 2)], tr_sum=140))
    seed = next(
        seed
        for seed in range(50)
        if 1 - 2 * int(episode.draw(jnp.uint32(seed), i32(0), 4) % 2) == side
    )
    state = ENTER(
        CONFIG, episode.start(params, i32(0), i32(0), jnp.uint32(seed), i32(0)), ALWAYS, params
    )
    position, account, stats = state.position, state.account, state.stats
    assert ints(position, "quantity", "entry", "stop", "target", "opened") == [
        2 * side,
        entry,
        stop,
        target,
        1,
    ]
    assert [
        int(x) for x in (state.row, state.time, account.balance, account.equity, account.days)
    ] == [1, 0, -4_160, equity, 1]
    assert ints(stats, "length", "sides", "commission", "peak", "max_drawdown") == [
        0,
        2,
        4_160,
        peak,
        fall,
    ]
    assert float(stats.reward) == 0
    assert ENV.mask(state, params).tolist()[:3] == [True, False, False]


def test_a_hole_before_the_flat_bar_forbids_it():
    """The calendar still sees an hour to go, and the next bar that exists is the flat bar."""
    market = MARKET.replace(bars_to_flat=MARKET.bars_to_flat + 60)
    params = make_params(market)
    last = int(market.sessions.last[0])
    at_last, before = (
        episode.start(params, i32(0), i32(row), jnp.uint32(0), i32(0)) for row in (last, last - 1)
    )
    assert bool(rules.may_open(at_last, params))
    assert int(episode.forced_side(at_last, ALWAYS, params)) == 0
    assert int(episode.forced_side(before, ALWAYS, params)) != 0


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.7, 1.0])
def test_as_often_as_asked_and_to_both_sides_alike(probability):
    """20,000 legal starts, within five standard deviations of the binomial; neither side nor place
    sways the draw.
    """
    params = make_params(MARKET)
    seeds = jnp.asarray(np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32))

    def sides(seed):
        state = episode.start(params, i32(1), i32(200), seed, i32(3))
        row = episode.start_drawn(params, seed, i32(3), True).row
        return episode.forced_side(state, jnp.float32(probability), params), row

    drawn, rows = (np.asarray(x) for x in jax.jit(jax.vmap(sides))(seeds))
    count = len(drawn)
    bound = 5 * np.sqrt(count * probability * (1 - probability))
    assert abs((drawn != 0).sum() - count * probability) <= bound
    forced = (drawn != 0).sum()
    assert abs(drawn.sum()) <= 5 * np.sqrt(forced)
    early = rows < np.median(rows)
    assert abs((drawn[early] != 0).sum() - early.sum() * probability) <= bound


# ---- in a rollout


@functools.cache
def trace(probability):
    """Random play of `test_dynamics.sample`: sessions that end early and late, several of them to
    an episode.
    """
    env, params, plain = dynamics_sample()
    if probability is None:
        return jax.tree.map(np.asarray, plain)
    params = params.replace(forced_start=jnp.float32(probability))
    return jax.tree.map(np.asarray, worlds.run_random(env, params, 4, ENVS, STEPS))


@pytest.mark.slow
def test_probability_zero_changes_no_bit():
    none, zero = trace(None), trace(0.0)
    assert none.outcome.info.forced is None
    assert not zero.outcome.info.forced.any()
    reported = zero.outcome.replace(info=zero.outcome.info.replace(forced=None))
    assert leaves_differ(zero._replace(outcome=reported), none) == []


@pytest.mark.slow
def test_a_step_tells_the_forced_starts_that_follow_it():
    some_forced = trace(0.5)
    info, following = some_forced.outcome.info, some_forced.state
    ended = info.end != EndReason.NONE
    entered = following.stats.sides[1:] != 0
    np.testing.assert_array_equal(info.forced[:-1], ended[:-1] & entered)
    begun = ended[:-1]
    assert begun.sum() > 80
    assert (
        abs(info.forced[:-1][begun].mean() - 0.5) < 5 * 0.5 / np.sqrt(begun.sum()) + 0.05
    )  # a few rows forbid it
    opened: EnvState = some(
        following, np.append(np.zeros((1, ENVS), bool), info.forced[:-1], axis=0)
    )
    assert (opened.time == 0).all()
    assert (opened.position.quantity != 0).any()


@pytest.mark.slow
def test_the_share_of_forced_starts_is_measured():
    def shares(probability):
        steps: Any = trace(
            probability
        ).outcome  # `collect` reads no more of a transition than its `info`
        sums = jax.tree.map(lambda x: x.sum(axis=(0, 1)), jax.vmap(summary.collect)(steps))
        return summary.figures(sums, steps.info.end.size)

    info = trace(0.5).outcome.info
    ended = info.end != EndReason.NONE
    assert float(shares(0.5)["forced_share"]) == pytest.approx(info.forced.sum() / ended.sum())
    assert float(shares(0.0)["forced_share"]) == 0
    assert "forced_share" not in shares(None)
