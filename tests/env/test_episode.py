"""Starts, ends and their precedence, and what is counted on the way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env import episode
from jaxtrade.env.execution import empty_event
from jaxtrade.env.state import OFF, EndReason, Position
from tests.env import worlds
from tests.env.worlds import contract, i32, ints, make_params, rules

MARKET = worlds.walk_market(0, sessions=5)


# ---- drawn starts


def lowbias32(x):
    """The published hash in Python integers."""
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


def test_mix_is_the_published_hash():
    values = [0, 1, 2, 0xFFFFFFFF, 0x12345678, 2**31]
    assert [int(episode.mix(jnp.uint32(x))) for x in values] == [lowbias32(x) for x in values]


def test_draw_is_deterministic_and_depends_on_every_argument():
    def word(seed, counter, stream):
        return int(episode.draw(jnp.uint32(seed), i32(counter), stream))

    base = word(3, 4, 1)
    assert base == word(3, 4, 1)
    assert base == lowbias32((lowbias32(3 ^ 0x9E3779B9) + 4) % 2**32)
    assert len({base, word(4, 4, 1), word(3, 5, 1), word(3, 4, 2)}) == 4


def chi_squared(values, cells):
    """Pearson's statistic of each row against the uniform distribution on `cells` cells."""
    expected = values.shape[1] / cells
    observed = np.stack([np.bincount(row, minlength=cells) for row in values])
    return ((observed - expected) ** 2 / expected).sum(axis=1)


@pytest.mark.parametrize("along", ["seed", "episode"])
@pytest.mark.parametrize("stream", [1, 2])
def test_draw_is_uniform(along, stream):
    """Along seeds and along an environment's episodes, 200 series of 4,000 draws on 16 cells:
    Pearson's statistic has the mean (15) and the spread (sqrt(30)) of chi-squared, within five
    standard errors.
    """
    series = np.random.default_rng(stream).integers(0, 2**31, (200, 1))
    steps = np.arange(4_000)[None, :]
    seeds, counters = (steps, series) if along == "seed" else (series, steps)
    words = episode.draw(jnp.asarray(seeds, jnp.uint32), jnp.asarray(counters, jnp.int32), stream)
    found = chi_squared(np.asarray(episode.below(words, i32(16))), 16)
    assert abs(found.mean() - 15) < 5 * np.sqrt(30 / 200)
    assert 0.7 < found.std() / np.sqrt(30) < 1.3


def test_session_and_row_are_drawn_independently():
    """The pairs (stream 1, stream 2) of 64,000 starts fill an 8 x 8 table evenly."""
    seeds = jnp.asarray(np.random.default_rng(5).integers(0, 2**32, 64_000, dtype=np.uint32))
    slot, row = (
        np.asarray(episode.below(episode.draw(seeds, i32(0), stream), i32(8))) for stream in (1, 2)
    )
    assert abs(chi_squared((slot * 8 + row)[None], 64)[0] - 63) < 5 * np.sqrt(2 * 63)


def test_below_stays_in_range_for_the_largest_words():
    words = jnp.asarray([0, 1, 2**31 - 1, 2**31, 2**32 - 1], jnp.uint32)
    np.testing.assert_array_equal(episode.below(words, i32(10)), [0, 1, 7, 8, 5])


def test_drawn_starts_cover_every_decision_bar_of_the_split_and_no_other():
    params = make_params(MARKET, ids=[1, 3])
    start = jax.jit(jax.vmap(lambda seed: episode.start_drawn(params, seed, i32(0), True)))
    states = start(jnp.arange(20_000, dtype=jnp.uint32))
    rows = np.asarray(states.row)
    first, last = np.asarray(MARKET.sessions.first), np.asarray(MARKET.sessions.last)
    expected = {row for n in (1, 3) for row in range(first[n], last[n] + 1)}
    assert set(rows.tolist()) == expected
    session = np.asarray([1, 3])[np.asarray(states.slot)]
    assert ((rows >= first[session]) & (rows <= last[session])).all()
    fixed = jax.vmap(lambda seed: episode.start_drawn(params, seed, i32(0), False))(
        jnp.arange(64, dtype=jnp.uint32)
    )
    assert set(fixed.row.tolist()) == {first[1], first[3]}


# ---- ends


def end(
    at_flat=False,
    complete=True,
    left=0,
    slot=0,
    equity=0,
    floor=-OFF,
    balance=None,
    days=1,
    time=1,
    max_steps=0,
    quantity=0,
    ids=None,
    **limits,
):
    if floor != -OFF:  # the high-water mark of a new account is 0
        limits["drawdown"] = -floor
    params = make_params(MARKET, account=rules(**limits), max_steps=max_steps, ids=ids)
    done = jnp.full(5, complete)
    params = params.replace(market=MARKET.replace(sessions=MARKET.sessions.replace(complete=done)))
    row = int(MARKET.sessions.last[int(params.sessions.ids[slot])]) + (1 if at_flat else 0)
    state = episode.start(params, i32(slot), i32(row), jnp.uint32(0), i32(0))
    account = state.account.replace(
        equity=i32(equity), balance=i32(equity if balance is None else balance), days=i32(days)
    )
    state = state.replace(
        account=account,
        time=i32(time),
        sessions_left=i32(left),
        position=Position.flat().replace(quantity=i32(quantity)),
    )
    return EndReason(int(episode.end_reason(state, params)))


def test_each_reason_alone():
    assert end() == EndReason.NONE
    assert end(equity=-100, floor=-100) == EndReason.BUST
    assert end(equity=-99, floor=-100) == EndReason.NONE
    assert end(equity=-OFF - 5) == EndReason.NONE  # no floor, however low
    assert end(equity=-100, daily_loss=100, fail_on_daily_loss=True) == EndReason.DAILY_LOSS
    assert end(equity=-100, daily_loss=100) == EndReason.NONE
    assert end(equity=500, target=500) == EndReason.TARGET
    assert end(equity=500, target=500, stop_at_target=False) == EndReason.NONE
    assert end(equity=900, balance=499, target=500, quantity=1) == EndReason.NONE
    assert end(equity=500, target=500, min_days=2) == EndReason.NONE
    assert end(at_flat=True) == EndReason.SESSION_END
    assert end(at_flat=True, complete=False) == EndReason.END_OF_DATA
    assert end(time=7, max_steps=7) == EndReason.STEP_LIMIT
    assert end(time=6, max_steps=7) == EndReason.NONE
    assert end(time=6_000, max_steps=0) == EndReason.NONE


def test_sessions_that_are_left_and_splits_that_are_not():
    assert end(at_flat=True, left=1) == EndReason.NONE
    assert (
        end(at_flat=True, left=1, slot=4) == EndReason.SESSION_END
    )  # the split has no further session
    assert end(at_flat=True, left=3, slot=1, ids=[0, 1]) == EndReason.SESSION_END
    assert end(at_flat=True, left=1, complete=False) == EndReason.END_OF_DATA


def test_precedence():
    """BUST > DAILY_LOSS > TARGET > SESSION_END / END_OF_DATA > STEP_LIMIT."""
    every = {
        "equity": 500,
        "floor": 500,
        "daily_loss": -500,
        "fail_on_daily_loss": True,
        "target": 500,
        "at_flat": True,
        "time": 3,
        "max_steps": 3,
    }
    assert end(**every) == EndReason.BUST
    assert end(**every | {"floor": 0}) == EndReason.DAILY_LOSS
    assert end(**every | {"floor": 0, "daily_loss": None}) == EndReason.TARGET
    rest = every | {"floor": 0, "daily_loss": None, "target": None}
    assert end(**rest) == EndReason.SESSION_END
    assert end(**rest | {"complete": False}) == EndReason.END_OF_DATA
    assert end(**rest | {"at_flat": False}) == EndReason.STEP_LIMIT


def test_only_the_step_limit_and_the_end_of_data_truncate():
    truncating = {reason for reason in EndReason if bool(episode.is_truncation(i32(reason)))}
    assert truncating == {EndReason.STEP_LIMIT, EndReason.END_OF_DATA}


# ---- counts


def event(**values):
    return empty_event(i32(0)).replace(**{name: i32(value) for name, value in values.items()})


def test_wins_are_net_of_two_commissions():
    costs = contract(commission=2_080, tick_mills=4_160)
    won = event(exit_quantity=2, exit_price=102, commission=4_160)
    even = event(
        exit_quantity=2, exit_price=101, commission=4_160
    )  # one tick pays two commissions exactly
    stats = episode.count_fills(episode.new_stats(make_params(MARKET)), won, i32(100), costs)
    stats = episode.count_fills(stats, even, i32(100), costs)
    assert ints(stats, "trades", "wins", "sides", "commission") == [
        2,
        1,
        4,
        8_320,
    ]
