"""Episodes that start in a position: the bar that an agent's own entry would have been, drawn as
often as asked.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import EnvConfig
from jaxtrade.env import episode, rules
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EndReason
from tests.env import worlds
from tests.env.test_dynamics import ENVS, STEPS
from tests.env.test_dynamics import sample as dynamics_sample
from tests.env.test_rewards import figures_of
from tests.env.worlds import i32, leaves_differ, make_params

CONFIG = EnvConfig(quantity=2)
ENV = TradingEnv(CONFIG)
MARKET = worlds.make_market(
    worlds.random_bars(3, 480, step=8), worlds.even_sessions(3, 160, warm=5)
)
ALWAYS = jnp.float32(1)


def some(tree, which):
    return jax.tree.map(lambda x: x[which], tree)


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
    opened = some(following, np.append(np.zeros((1, ENVS), bool), info.forced[:-1], axis=0))
    assert (opened.time == 0).all()
    assert (opened.position.quantity != 0).any()


@pytest.mark.slow
def test_the_share_of_forced_starts_is_measured():
    none, zero, info = (trace(probability).outcome.info for probability in (None, 0.0, 0.5))
    share = info.forced.sum() / (info.end != EndReason.NONE).sum()
    assert float(figures_of(info)["forced_share"]) == pytest.approx(share)
    assert float(figures_of(zero)["forced_share"]) == 0
    assert "forced_share" not in figures_of(none)
