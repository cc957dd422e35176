"""Null markets: what each kind keeps in every bar, what it destroys, and that its prices are
checked.
"""

from dataclasses import replace
from itertools import combinations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar.schedule import local_seconds, trade_dates
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.features.columns import true_ranges
from jaxtrade.data.intrabar import first_passages, market_path
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.nulls.market import (
    anchors,
    martingale_bars,
    minute_volatility,
    null_markets,
    phase_randomised,
    random_signs,
    sign_flipped,
    sign_flipped_path,
)
from jaxtrade.data.nulls.spec import NULL_KINDS, NullSpec, parse_null_spec
from jaxtrade.data.read.bars import Bars, load_bundled
from jaxtrade.data.read.roll import Leg
from jaxtrade.data.read.validate import PRICES, Side
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.types import IntrabarPath
from tests.data.conftest import assert_same, assert_valid, set_to
from tests.env import worlds
from tests.quotes import random_ask

ES, EURUSD, NQ = get_contract("ES"), get_contract("EURUSD"), get_contract("NQ")
OPENING = 1_704_205_800  # 2024-01-02 09:30 New York


def bars_of_rows(rows, ask=None, seconds=60, days=1, **kept):
    """Bars of ES with given open, high, low, close [T, 4], spread over `days` trade dates."""
    prices = np.asarray(rows, np.int32)
    row = np.arange(len(prices))
    each = -(-len(prices) // days)
    time = OPENING + 86_400 * (row // each) + seconds * (row % each)
    side = None if ask is None else Side(*np.asarray(ask, np.int32).T)
    return Bars(time, *prices.T, row + 1.0, seconds, ES, "by hand", ask=side, **kept)


def random_rows(seed, count):
    return np.stack(worlds.random_bars(seed, count, 9, 5, 4), axis=1)


def two_sided(rows, seed):
    return np.stack(random_ask(seed, *rows.T.tolist()), axis=1)


# --- sign -------------------------------------------------------------------------------------------------------------


def test_a_mirrored_bar_by_hand():
    """The second bar: gap +2, body -5, high 3 and low 6 from its previous close 100. Upside down:
    gap -2, body +5.
    """
    bars = bars_of_rows([(98, 101, 97, 100), (102, 103, 94, 95), (96, 99, 95, 98)])
    made = sign_flipped(bars, np.array([False, True, False]))
    assert np.stack([made.open, made.high, made.low, made.close], axis=1).tolist() == [
        [98, 101, 97, 100],
        [98, 106, 97, 105],
        [106, 109, 105, 108],
    ]
    first = sign_flipped(bars, np.array([True, False, False]))
    assert [first.open[0], first.high[0], first.low[0], first.close[0]] == [98, 99, 95, 96], (
        "about its own open"
    )
    assert first.open[1:].tolist() == [98, 92], "the rest moves by what its close has moved"


def test_a_mirrored_bar_with_two_sides_by_hand():
    """Previous close 100 x 103, so S = 203. The bid is what the ask was, upside down: open 203 -
    105 = 98.
    """
    bars = bars_of_rows(
        [(99, 101, 98, 100), (104, 106, 103, 105)], [(101, 104, 101, 103), (105, 108, 104, 107)]
    )
    made = sign_flipped(bars, np.array([False, True]))
    assert [int(getattr(made, name)[1]) for name in PRICES] == [98, 99, 95, 96]
    assert [int(prices[1]) for prices in made.ask] == [99, 100, 97, 98]
    assert (made.ask.open - made.open).tolist() == [2, 1], (
        "the spread at open and close is the real one"
    )
    assert (made.ask.close - made.close).tolist() == [3, 2]


def test_a_spliced_series_begins_anew():
    """Each contract is mirrored by itself and begins at its real open."""
    bars = bars_of_rows(
        random_rows(3, 40), days=4, legs=(Leg("a", "start"), Leg("b", "2024-01-04"))
    )
    start = anchors(bars)
    assert np.flatnonzero(start).tolist() == [0, 20]
    made = sign_flipped(bars, np.arange(40) % 3 != 1)
    assert made.open[start].tolist() == bars.open[start].tolist()
    alone = sign_flipped(
        replace(bars.rows(slice(20, None)), legs=()), (np.arange(40) % 3 != 1)[20:]
    )
    assert_same(made.rows(slice(20, None)), replace(alone, legs=made.legs))


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 60),
    masked=st.integers(0, 10_000),
    sides=st.booleans(),
    spliced=st.booleans(),
)
def test_sign_twice_with_one_mask_is_the_identity_and_keeps_magnitudes(
    seed, count, masked, sides, spliced
):
    rows = random_rows(seed, count)
    legs = (Leg("a", "start"), Leg("b", "2024-01-04")) if spliced else ()
    bars = bars_of_rows(rows, two_sided(rows, seed) if sides else None, days=3, legs=legs)
    mask = random_signs(count, np.random.default_rng(masked))
    made = sign_flipped(bars, mask)
    assert_valid(made)
    assert_same(sign_flipped(made, mask), bars)
    keeps(made, bars)
    start = anchors(bars)
    steps, real = (
        np.diff(each.close.astype(int) + each.sides[1].close)[~start[1:]] for each in (made, bars)
    )
    np.testing.assert_array_equal(steps, np.where(mask[1:][~start[1:]], -real, real))


def same_spread(made, bars):
    for name in ("open", "close"):
        spreads = (getattr(each.ask, name) - getattr(each, name) for each in (made, bars))
        np.testing.assert_array_equal(*spreads)


def keeps(made, bars):
    """What `sign` keeps in every bar: stamp, volume, spread, and the true range of one side or from
    bid to ask.
    """
    np.testing.assert_array_equal(made.time, bars.time)
    np.testing.assert_array_equal(made.volume, bars.volume)
    inside = ~anchors(bars)
    if bars.ask is None or made.ask is None:
        new, real = (true_ranges(each)[inside] for each in (made, bars))
        np.testing.assert_array_equal(new, real)
        return
    same_spread(made, bars)
    np.testing.assert_array_equal(made.ask.high - made.low, bars.ask.high - bars.low)


FX = set_to("data.market=EURUSD")


@pytest.fixture(scope="module")
def eurusd_market():
    return build_market(load_bundled(EURUSD).rows(slice(0, 6_000)), FX)


def drawn(market, config, kind, seed=0, draw=0, row=0):
    """The bars of one null market."""
    return null_markets(market, config, kind, seed, row).bars(draw)[0]


@pytest.mark.slow
def test_sign_on_the_bundled_bars(es_market, eurusd_market):
    for market in (es_market, eurusd_market):
        mask = random_signs(len(market.bars), np.random.default_rng(7))
        made = sign_flipped(market.bars, mask)
        assert_valid(made)
        keeps(made, market.bars)
        assert_same(sign_flipped(made, mask), market.bars)
        assert 0.45 < mask.mean() < 0.55


def test_a_null_market_of_es_has_the_stops_and_shapes_of_the_real_one(es_market):
    null, same_as = null_markets(es_market, RunConfig(), "sign", 0)(0), es_market.data
    np.testing.assert_array_equal(null.data.tr_sum, same_as.tr_sum)
    np.testing.assert_array_equal(null.data.bars_to_flat, same_as.bars_to_flat)
    jax.tree.map(np.testing.assert_array_equal, null.data.sessions, same_as.sessions)
    assert jax.tree.structure(null.data) == jax.tree.structure(same_as)
    assert null.synthetic
    assert null.fingerprint != es_market.fingerprint
    direct = build_market(null.bars, RunConfig())
    np.testing.assert_array_equal(direct.table, null.table)  # features by the code of real bars
    assert not np.array_equal(null.table, es_market.table)


def test_the_draws_are_fair_seeded_and_apart(es_market):
    first, again, *others = (
        drawn(es_market, RunConfig(), "sign", seed, draw).close
        for seed, draw in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    np.testing.assert_array_equal(first, again)
    moved = np.diff(es_market.bars.close) != 0
    signs = [np.diff(close.astype(int))[moved] > 0 for close in (first, *others)]
    for a, b in combinations(signs, 2):
        assert abs((a == b).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(a))


def test_rows_before_after_stay_real(es_market, eurusd_market):
    """And the bars of the market are not changed in place."""
    for market, config, kinds in (
        (es_market, RunConfig(), ("sign", "phase", "martingale")),
        (eurusd_market, FX, NULL_KINDS),
    ):
        row = int(np.asarray(market.data.sessions.start)[market.num_sessions // 3])
        for kind in kinds:
            made = drawn(market, config, kind, row=row)
            assert_valid(made)
            assert_same(made.rows(slice(0, row)), market.bars.rows(slice(0, row)))
            assert not np.array_equal(made.close[row:], market.bars.close[row:])


# --- intrabar paths ---------------------------------------------------------------------------------------------------


def bars_and_seconds(seed, minutes, sides):
    """Minutes of 60 one-second bars each; with two sides, minutes are made of the seconds of each
    side.
    """
    rows = random_rows(seed, 60 * minutes)
    fine = bars_of_rows(rows, two_sided(rows, seed) if sides else None, seconds=1)

    def folded(side):
        open_, high, low, close = (getattr(side, name).reshape(minutes, 60) for name in PRICES)
        return np.stack([open_[:, 0], high.max(axis=1), low.min(axis=1), close[:, -1]], axis=1)

    bid, ask = fine.sides
    return bars_of_rows(folded(bid), folded(ask) if sides else None), fine


def path_of(bars, fine):
    """The path that seconds give the bars of each side."""
    sides = zip(bars.sides, fine.sides, strict=True)
    passages = tuple(first_passages(*pair, 0.0) for pair in sides)
    return market_path(passages if bars.ask else passages[:1])


@pytest.mark.parametrize("sides", [False, True])
def test_the_path_of_mirrored_bars_is_that_of_mirrored_seconds(sides):
    """Independent of the swap: mirror every second bar about its minute's mirror, then read the
    falls of each side.
    """
    minutes, fine = bars_and_seconds(5, 50, sides)
    mask = random_signs(50, np.random.default_rng(1))
    made = sign_flipped(minutes, mask)
    bid, ask = minutes.sides
    sums = ask.close.astype(int) + bid.close
    centre = np.concatenate([[int(ask.open[0]) + int(bid.open[0])], sums[:-1]])
    shift = made.close.astype(int) - np.where(mask, centre - ask.close, bid.close)
    wide, moved, turned = (np.repeat(each, 60) for each in (centre, shift, mask))

    def side(own, other):
        upside_down = {"open": "open", "high": "low", "low": "high", "close": "close"}
        return {
            name: (
                np.where(turned, wide - getattr(other, swapped), getattr(own, name)) + moved
            ).astype(np.int32)
            for name, swapped in upside_down.items()
        }

    asks = Side(**side(*fine.sides[::-1])) if sides else None
    expected = path_of(made, replace(fine, **side(*fine.sides), ask=asks))
    known = path_of(minutes, fine)
    swapped = sign_flipped_path(known, mask)
    np.testing.assert_array_equal(swapped.ambiguous, expected.ambiguous)
    clear = ~np.asarray(expected.ambiguous)
    np.testing.assert_array_equal(
        np.asarray(swapped.falls)[clear], np.asarray(expected.falls)[clear]
    )
    assert clear.any()
    twice = sign_flipped_path(swapped, mask)
    np.testing.assert_array_equal(twice.falls, known.falls)


# --- sessions ---------------------------------------------------------------------------------------------------------

SESSIONS = set_to("data.market=NQ data.source=synthetic data.synthetic_sessions=24")


@pytest.fixture(scope="module")
def nq():
    return load_market(SESSIONS)


def moved_by(market, made):
    """New trade date -> old one, found by the volumes, which move with their session."""
    old = market.bars
    days = np.unique(trade_dates(old.time, NQ))
    volumes = {bytes(old.volume[trade_dates(old.time, NQ) == day]): day for day in days}
    return {day: volumes[bytes(made.volume[trade_dates(made.time, NQ) == day])] for day in days}


def test_sessions_move_whole_within_their_class(nq):
    made = null_markets(nq, SESSIONS, "sessions", 0)(0).bars
    assert_valid(made)
    places = moved_by(nq, made)
    assert sorted(places.values()) == sorted(places), "a permutation"
    assert places[min(places)] == min(places), "the first stays"
    bars_of = dict(zip(nq.trade_dates, nq.data.sessions.last - nq.data.sessions.first, strict=True))
    moved = {new: old for new, old in places.items() if new != old}
    assert len(moved) >= 12
    for new, old in moved.items():
        assert bars_of[new] == bars_of[old], "half days change places with half days"
        weekdays = [(day.astype(int) + 3) % 7 for day in (new, old)]
        assert max(weekdays) < 5
        assert (weekdays[0] == 0) == (weekdays[1] == 0), "a Monday follows a weekend"


def test_sessions_keep_their_returns_times_and_volume(nq):
    made, old = null_markets(nq, SESSIONS, "sessions", 0)(1).bars, nq.bars
    places = moved_by(nq, made)
    for new, before in places.items():
        of_made, of_old = (
            (each, np.flatnonzero(trade_dates(each.time, NQ) == day), day.astype("datetime64[s]"))
            for each, day in ((made, new), (old, before))
        )
        clocks = (
            local_seconds(each.time[rows], NQ.zone) - day.astype(int)
            for each, rows, day in (of_made, of_old)
        )
        np.testing.assert_array_equal(*clocks)
        ratio = (each.close[rows] / each.open[rows][0] for each, rows, _ in (of_made, of_old))
        np.testing.assert_allclose(*ratio, atol=1.5 / old.low.min())
        if places[min(places)] != before:  # the gap from the session before moves with the session
            gap = (
                each.open[rows[0]] / each.close[rows[0] - 1] for each, rows, _ in (of_made, of_old)
            )
            np.testing.assert_allclose(*gap, atol=1.5 / old.low.min())


def test_sessions_carry_their_paths(nq):
    """Falls are the prices they stand for, scaled like all prices: the deepest is the bar's low
    where it is a fall.
    """

    def deepest(bars):
        up, down = (bars.high - bars.open).astype(int), (bars.open - bars.low).astype(int)
        return np.stack([np.stack([up, -down], axis=1), np.stack([down, -up], axis=1)], axis=1)

    falls = np.zeros((len(nq.bars), 2, 3, 2), np.int32)
    falls[:, :, 1:, 0] = deepest(nq.bars)
    path = IntrabarPath(falls, np.zeros((len(nq.bars), 2), bool))
    market = replace(nq, data=nq.data.replace(path=path))
    made, moved = null_markets(market, SESSIONS, "sessions", 0).bars(0)
    np.testing.assert_array_equal(moved.falls[:, :, 1:, 0], deepest(made))
    assert not np.asarray(moved.falls[..., 1]).any(), "padding stays padding"


def test_too_few_sessions_are_refused(es_market):
    with pytest.raises(DataError, match=r"null market 0 .*sessions .* 5 "):
        null_markets(es_market, RunConfig(), "sessions", 0)(0)


# --- phase and martingale ---------------------------------------------------------------------------------------------


def test_phase_keeps_the_spectrum_and_wicks_of_any_bars(nq, eurusd_market):
    made = drawn(nq, SESSIONS, "phase")
    assert_valid(made)
    real, new = (np.abs(np.fft.rfft(np.diff(np.log(each.close)))) for each in (nq.bars, made))
    assert abs(new.std() / real.std() - 1) < 0.01
    assert np.corrcoef(real, new)[0, 1] > 0.99  # rounding to ticks is what differs
    wicks = (each.high - np.maximum(each.open, each.close) for each in (made, nq.bars))
    np.testing.assert_array_equal(*wicks)
    quoted = drawn(eurusd_market, FX, "phase")
    assert_valid(quoted)
    spreads = (each.ask.close - each.close for each in (quoted, eurusd_market.bars))
    np.testing.assert_array_equal(*spreads)


def test_phase_randomises_each_contract_by_itself():
    bars = bars_of_rows(
        random_rows(1, 400), days=4, legs=(Leg("a", "start"), Leg("b", "2024-01-04"))
    )
    made = phase_randomised(bars, np.random.default_rng(0))
    for row in (0, 200):
        assert made.open[row] == bars.open[row]
        assert made.close[row] == bars.close[row]
    short = bars_of_rows(
        random_rows(1, 12), days=6, legs=(Leg("a", "start"), Leg("b", "2024-01-07"))
    )
    with pytest.raises(DataError, match="2 bars of one contract"):
        phase_randomised(short, np.random.default_rng(0))


@pytest.mark.slow
def test_the_martingale_has_the_volatility_of_each_minute(nq):
    made = [drawn(nq, SESSIONS, "martingale", draw=draw) for draw in range(30)]
    for each in made[:3]:
        assert_valid(each)
        np.testing.assert_array_equal(each.time, nq.bars.time)
        np.testing.assert_array_equal(each.volume, nq.bars.volume)
    _, real = minute_volatility(nq.bars)
    seen = np.sqrt(np.mean([minute_volatility(each)[1] ** 2 for each in made], axis=0))
    traded = real > 0
    assert abs(np.median(seen[traded] / real[traded]) - 1) < 0.02
    assert np.corrcoef(seen[traded], real[traded])[0, 1] > 0.98  # the shape over the day stays
    moves = np.concatenate([np.diff(each.close.astype(float)) for each in made])
    assert abs(moves.mean()) < 4 * moves.std() / np.sqrt(len(moves))
    assert abs(np.corrcoef(moves[1:], moves[:-1])[0, 1]) < 4 / np.sqrt(len(moves))


def test_the_martingale_over_two_sides_keeps_the_spread(eurusd_market):
    bars = eurusd_market.bars
    made = martingale_bars(bars, np.random.default_rng(0))
    assert_valid(made)
    same_spread(made, bars)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_prices_below_a_tick_are_refused_with_a_fix():
    """A series that rose from 2 ticks by 5 a bar: upside down it falls below zero."""
    close = 7 + 5 * np.arange(30)
    bars = bars_of_rows(np.stack([close - 5, close, close - 5, close], axis=1))
    with pytest.raises(DataError, match=r"by hand: .* 30 .* 1 \.\. .*data\.start"):
        sign_flipped(bars, np.ones(30, bool))


def test_prices_beyond_int32_are_refused():
    close = np.array([0, -400, 0, 0]) + (1 << 31) - 100
    bars = bars_of_rows(np.stack([close] * 4, axis=1).astype(np.int32))
    with pytest.raises(DataError, match="outside 1"):
        sign_flipped(bars, np.array([False, True, False, False]))


def test_a_failed_null_says_which_one_it_is_and_what_to_do(es_market):
    bars = es_market.bars
    prices = {name: getattr(bars, name) - bars.low.min() - 500 for name in PRICES}
    lowered = replace(es_market, bars=replace(bars, **prices))
    with pytest.raises(DataError, match=r"null market 4 .*sign \(seed 3\)"):
        null_markets(lowered, RunConfig(), "sign", 3)(4)


def test_path_needs_a_kind_that_knows_the_order_of_prices(nq):
    config = SESSIONS.model_copy(
        update={"env": SESSIONS.env.model_copy(update={"intrabar": "path"})}
    )
    for kind in ("phase", "martingale"):
        with pytest.raises(ConfigError, match=r"second bars.*sign, sessions"):
            null_markets(nq, config, kind, 0)


def test_specs():
    assert parse_null_spec("sign:19") == NullSpec("sign", 19)
    assert parse_null_spec("phase", 99) == NullSpec("phase", 99)
    assert NullSpec("sign", 19).floor == 0.05
    assert str(NullSpec("sign", 19)) == "sign:19"
    for text, said in (
        ("sgin:19", r"'sgin' is no kind .*did you mean sign\?"),
        ("sign:0", "'0' is no number"),
        ("sign:", "'' is no number"),
        ("sign:1.5", "from 1 to"),
        ("sign:-3", "KIND:DRAWS"),
        ("", "expected KIND:DRAWS, as in --nulls sign:99"),
    ):
        with pytest.raises(ConfigError, match=said):
            parse_null_spec(text)
