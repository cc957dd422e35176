"""The device table: rows by bar, lags in bars, sessions' borders, versions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.advisor.table import (
    AdviceSeen,
    Delta,
    demand,
    empty_table,
    is_dropped,
    look_up,
    make_view,
    session_starts,
    write_delta,
)

BARS = 100


def delta(bars, version, size=4, side=1.0):
    rows = np.zeros((size, 6), np.float32)
    where = np.full(size, BARS, np.int32)
    for i, bar in enumerate(bars):
        rows[i] = [0.0, side, 0.0, 0.7, 0.2, bar]
        where[i] = bar
    return Delta(where, rows, np.array(version, np.int32))


def test_rows_are_written_by_bar_and_padding_is_dropped():
    table = write_delta(empty_table(BARS), delta([3, 99], 1))
    assert np.flatnonzero(table.version).tolist() == [3, 99]
    assert table.rows[99].tolist() == pytest.approx([0, 1, 0, 0.7, 0.2, 99])
    assert int(table.newest) == 1
    again = write_delta(table, delta([3], 2, side=-1.0))
    assert again.version[np.array([3, 99])].tolist() == [2, 1]
    assert float(again.rows[3, 1]) == -1.0
    padded = write_delta(table, delta([], 0))
    jax.tree.map(np.testing.assert_array_equal, padded, table)


def test_advice_is_read_a_lag_later_and_never_across_a_session():
    """Sessions 0 to 9, 10 to 15 and 16 to 99; row 14 looks before its session, row 16 at one before
    it, row 46 at a bar without advice."""
    starts = session_starts(np.array([0, 10, 16]), np.array([8, 14, 98]), BARS)
    table = write_delta(empty_table(BARS), delta([10, 11, 40], 3))
    view = make_view(table, starts, latency=(5,), max_age=5)
    seen = look_up(view, jnp.int32(15))
    assert (bool(seen.valid), int(seen.version), int(seen.direction)) == (True, 3, 1)
    shown = [float(each) for each in (seen.age, seen.confidence, seen.risk)]
    assert shown == pytest.approx([5.0, 0.7, 0.2])
    hidden = [look_up(view, jnp.int32(row)) for row in (14, 16, 3, 46)]
    for none in (*hidden, look_up(view, jnp.int32(15), True)):
        assert not bool(none.valid)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(none))


def test_a_session_reaches_to_its_flat_bar_and_bars_between_sessions_are_in_none():
    starts = session_starts(np.array([2, 7]), np.array([3, 7]), 10)
    assert starts.tolist() == [10, 10, 2, 2, 2, 10, 10, 7, 7, 10]
    view = make_view(empty_table(10), starts)
    assert view.source.tolist() == [-1, -1, 2, 3, 4, -1, -1, 7, 8, -1]


def plain_hash(*words):
    h = 0
    for word in words:
        h = (h ^ (word % 2**32)) * 0xCC9E2D51 % 2**32
        h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
        h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
        h ^= h >> 16
    return h


def test_which_bar_is_read_is_that_of_a_plain_loop():
    """Every bar of three sessions against Python integers: lag, session and age."""
    sessions, latency, seed, max_age = [(0, 30), (32, 60), (62, 97)], (0, 3, 12, 40), 11, 11
    starts = session_starts(*np.array(sessions).T, BARS)
    view = make_view(empty_table(BARS), starts, latency, seed, max_age)
    expected = []
    for row in range(BARS):
        lag = latency[(plain_hash(1, seed, row) >> 8) % 64 % 4]
        own = [first for first, last in sessions if first <= row <= last + 1]
        expected.append(row - lag if own and row - lag >= own[0] and lag <= max_age else -1)
    assert view.source.tolist() == expected
    assert 10 < expected.count(-1) < 90


def test_what_is_kept_back_depends_on_the_episode_and_the_bar():
    view = make_view(empty_table(BARS), np.zeros(BARS, np.int32), drop_episode=0.25, drop_bar=0.5)
    episodes, rows = jnp.arange(400)[:, None], jnp.arange(300)
    shut = np.asarray(is_dropped(view, jnp.uint32(5), episodes, rows))
    whole = shut.all(axis=1)
    assert float(whole.mean()) == pytest.approx(0.25, abs=0.07)
    assert float(shut[~whole].mean()) == pytest.approx(0.5, abs=0.02)


def test_the_most_wanted_bars_without_advice_come_first():
    want = jnp.zeros(BARS).at[5:9].set(jnp.array([1.0, 4.0, 3.0, 2.0]))
    table = write_delta(empty_table(BARS), delta([6], 1))
    bars, weight = demand(want, jnp.ones(BARS, bool).at[8].set(False), table.version, 3)
    assert bars[:2].tolist() == [7, 5]
    assert weight.tolist() == [3.0, 1.0, 0.0]


def test_a_direction_needs_the_largest_logit():
    logits = np.array([[0, 2, 0], [0, 0, 2], [2, 0, 0], [0, 0, 0], [0, 2, 2]])
    seen = AdviceSeen(jnp.asarray(np.pad(logits, ((0, 0), (0, 3)))), jnp.ones(5, jnp.int32))
    assert seen.direction.tolist() == [1, -1, 0, 0, 0]
