"""Bid and ask from one file or from two: what is read, widened, left out and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import RunConfig, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.describe import check_text, describe, describe_text
from jaxtrade.data.features.columns import true_range_sum
from jaxtrade.data.intrabar import side_passages
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.sources import attach, bars_of
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import _largest_ranges, make_params
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import assert_valid
from tests.messages import missing

ES, EURUSD = get_contract("ES"), get_contract("EURUSD")
QUOTES = "time,bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close"
ROWS = (
    "2013-10-07T13:30:00Z,1670.25,1671.00,1669.75,1670.50,1670.50,1671.25,1670.00,1671.00",
    "2013-10-07T13:31:00Z,1670.50,1671.25,1670.25,1671.00,1670.75,1671.50,1670.50,1671.25",
    "2013-10-07T13:32:00Z,1671.00,1671.00,1670.00,1670.25,1671.25,1671.25,1670.25,1670.50",
)
CROSSED = "2013-10-07T13:33:00Z,1670.25,1671.00,1669.75,1670.50,1670.00,1670.75,1669.50,1670.75"
TRADES = tuple(
    f"2013-10-07T13:{minute}:00Z,1670.5,1671,1670,1670.5,{minute}" for minute in (30, 31, 32)
)


def test_bid_and_ask_columns_become_two_sided_bars(write):
    bars = load_bars(write(ROWS, QUOTES), ES, stamp="open")
    assert bars.ask is not None
    assert (bars.open.tolist(), bars.ask.open.tolist()) == ([6681, 6682, 6684], [6682, 6683, 6685])
    assert (bars.close.tolist(), bars.ask.close.tolist()) == (
        [6682, 6684, 6681],
        [6684, 6685, 6682],
    )
    assert bars.mid.close.tolist() == [6683, 6684, 6681], "floor((bid + ask) / 2), in whole ticks"
    assert bars.mid.ask is None
    assert [side.high.tolist() for side in bars.sides] == [[6684, 6685, 6684], [6685, 6686, 6685]]
    assert bars.contract.slippage_ticks == 0, "fills pay the spread"
    assert ES.slippage_ticks == 1
    assert any(note.startswith("two-sided bars") for note in bars.notes)
    assert "sides          bid and ask" in check_text(bars, RunConfig())
    kept = bars.rows(slice(1, 3))
    assert kept.ask is not None
    assert kept.ask.low.tolist() == bars.ask.low[1:].tolist()


def test_the_columns_may_have_any_names_or_one_side_of_them_be_read(write):
    path = write(ROWS, QUOTES.replace("bid_", "b_").replace("ask_", "a_"))
    names = {
        f"{side}_{price}": f"{side[0]}_{price}"
        for side in ("bid", "ask")
        for price in ("open", "high", "low", "close")
    }
    bars = load_bars(path, ES, stamp="open", columns=names)
    plain = load_bars(write(ROWS, QUOTES), ES, stamp="open")
    assert bars.ask is not None
    assert plain.ask is not None
    assert all((a == b).all() for a, b in zip(bars.ask, plain.ask, strict=True))
    one = load_bars(
        write(ROWS, QUOTES),
        ES,
        stamp="open",
        columns={price: f"bid_{price}" for price in ("open", "high", "low", "close")},
    )
    assert (one.ask, one.contract.slippage_ticks) == (None, 1)
    assert any("one-sided bars" in note for note in one.notes)


def test_crossed_bars_are_counted_and_widened(write):
    """The ask of 6680, 6683, 6678, 6683 over a bid of 6681, 6684, 6679, 6682: the larger of
    each.
    """
    path = write((*ROWS, CROSSED), QUOTES)
    bars = load_bars(path, ES, stamp="open")
    assert bars.ask is not None
    assert [int(prices[3]) for prices in bars.ask] == [6681, 6684, 6679, 6683]
    assert [int(getattr(bars, name)[3]) for name in ("open", "high", "low", "close")] == [
        6681,
        6684,
        6679,
        6682,
    ]
    note = next(note for note in bars.notes if "crossed" in note)
    assert all(part in note for part in ("1 crossed bars", "2013-10-07: 1", "line 5"))
    assert not any(
        "crossed" in note for note in load_bars(write(ROWS, QUOTES), ES, stamp="open").notes
    )


def test_a_bar_without_a_side_is_left_out_and_counted(write):
    """One of 101 rows is within the limit of 1 %, two are not."""
    rows = [
        f"2013-10-07T{13 + minute // 60}:{minute % 60:02d}:00Z,{ROWS[0].split(',', 1)[1]}"
        for minute in range(100)
    ]
    lost = rows[40].split(",")
    rows.append(f"2013-10-07T14:40:00Z,{ROWS[0].split(',', 1)[1]}")
    rows[40] = ",".join([lost[0], "", "", "", "", *lost[5:]])
    bars = load_bars(write(rows, QUOTES), ES, stamp="open")
    assert (len(bars), bars.bar_seconds) == (100, 60)
    assert any(not missing(note, "1 of 101 rows", "line 42") for note in bars.notes)
    rows[50] = ",".join([*rows[50].split(",")[:5], "", "", "", ""])
    with pytest.raises(DataError, match=r"bars\.csv:42: .*2 of 101 .*\(1\.98 %, "):
        load_bars(write(rows, QUOTES), ES, stamp="open")


@pytest.mark.parametrize(
    ("row", "fragments"),
    [
        (
            "2013-10-07T13:33:00Z,1670.25,1671.00,1669.75,1670.50,1670.50,,1670.00,1671.00",
            ("'ask_high' = ''", "finite"),
        ),
        (
            "2013-10-07T13:33:00Z,1670.25,x,1669.75,1670.50,1670.50,1671.25,1670.00,1671.00",
            ("'bid_high' = 'x'", "finite"),
        ),
        (
            "2013-10-07T13:33:00Z,1670.25,1671.00,1669.75,1670.50,1670.60,1671.25,1670.00,1671.00",
            ("'ask_open'", "tick"),
        ),
        (
            "2013-10-07T13:33:00Z,1670.25,1671.00,1669.75,1670.50,1670.50,1671.25,1670.00,1671.50",
            ("'ask_close'", "outside low..high"),
        ),
        (
            "2013-10-07T13:33:00Z,1670.25,1671.00,1669.75,1670.50,1670.50,1669.25,1670.00,1671.00",
            ("'ask_high'", "high is below low"),
        ),
    ],
)
def test_a_bad_cell_of_either_side_is_named_by_line_and_column(write, row, fragments):
    with pytest.raises(DataError) as error:
        load_bars(write((*ROWS, row), QUOTES), ES, stamp="open")
    assert all(fragment in str(error.value) for fragment in ("bars.csv:5", *fragments)), str(
        error.value
    )


def test_half_a_mapping_is_refused(write):
    path = write(ROWS, QUOTES)
    with pytest.raises(DataError, match=r" open \(.* ask_open \(two-"):
        load_bars(path, ES, stamp="open", columns={"open": "bid_open", "ask_open": "ask_open"})
    cut = write([row.rsplit(",", 1)[0] for row in ROWS], QUOTES.rsplit(",", 1)[0])
    with pytest.raises(DataError, match=r"no column 'ask_close'"):
        load_bars(cut, ES, stamp="open", columns={"bid_open": "bid_open"})


# ---- quotes of a second file


def test_quotes_go_under_trade_bars(write):
    """Prices of the quotes, stamps and volume of the trades; the trade file's own prices are read
    and checked only.
    """
    trades = load_bars(write(TRADES, name="trades.csv"), ES, stamp="open")
    quotes = load_bars(write(ROWS, QUOTES, name="quotes.csv"), ES, stamp="open")
    bars = attach(trades, quotes)
    assert bars.ask is not None
    assert (bars.volume.tolist(), bars.open.tolist(), bars.ask.close.tolist()) == (
        [30, 31, 32],
        quotes.open.tolist(),
        [6684, 6685, 6682],
    )
    assert bars.contract.slippage_ticks == 0
    assert not any("volume is 0" in note for note in bars.notes)
    assert any("are the quotes of" in note for note in bars.notes)


def test_bars_without_a_quote_are_left_out_or_refused(write):
    trades = load_bars(write(TRADES, name="trades.csv"), ES, stamp="open")
    quotes = load_bars(write(ROWS, QUOTES, name="quotes.csv"), ES, stamp="open")
    few = quotes.rows(np.array([0, 2]))
    with pytest.raises(DataError, match=r"1 of 3 .*trades\.csv \(33\.33 %.*T13:31:00Z"):
        attach(trades, few)
    bars = attach(trades, few, tolerance=0.5)
    assert (len(bars), bars.volume.tolist()) == (2, [30, 32])
    assert any(note.startswith("1 of 3 bars") for note in bars.notes)


def test_files_that_do_not_pair_are_refused(write):
    trades = load_bars(write(TRADES, name="trades.csv"), ES, stamp="open")
    quotes = load_bars(write(ROWS, QUOTES, name="quotes.csv"), ES, stamp="open")
    with pytest.raises(DataError, match=r"quotes\.csv: .*data\.quotes"):
        attach(quotes, quotes)
    with pytest.raises(DataError, match=r"trades\.csv: .*bid_open"):
        attach(trades, trades)
    with pytest.raises(DataError, match=r" 60 s.* 3600 s"):
        attach(replace(trades, bar_seconds=3600), quotes)
    with pytest.raises(DataError, match=r"trades\.csv: .*quotes\.csv"):
        side_passages(trades, quotes)


def test_quotes_beside_synthetic_bars_are_refused():
    config = make_config({"data": {"market": "NQ", "source": "synthetic", "quotes": "quotes.csv"}})
    with pytest.raises(ConfigError, match=r"quotes = 'quotes\.csv' .*= synthetic"):
        bars_of(config)


# ---- from bars to a market


@pytest.fixture(scope="module")
def hourly():
    """(configuration, two-sided market) of the bundled EURUSD hours."""
    config = make_config({"data": {"market": "EURUSD", "start": "2016-03-01", "end": "2016-04-30"}})
    return config, load_market(config)


@pytest.mark.slow
def test_features_and_ranges_are_those_of_the_mid(hourly):
    config, market = hourly
    bars, data = market.bars, market.data
    one_sided = build_market(bars.mid, config)
    assert one_sided.data.ask is None
    np.testing.assert_array_equal(market.table, one_sided.table)
    np.testing.assert_array_equal(data.tr_sum, one_sided.data.tr_sum)
    np.testing.assert_array_equal(data.mid_close, one_sided.data.close)
    np.testing.assert_array_equal(market.table[:, 0], data.mid_close)
    middle = [
        (np.asarray(getattr(data, name), np.int64) + np.asarray(getattr(data.ask, name))) // 2
        for name in ("high", "low", "close")
    ]
    np.testing.assert_array_equal(data.tr_sum, true_range_sum(*middle))
    np.testing.assert_array_equal(data.open, bars.open)
    np.testing.assert_array_equal(data.ask.high, bars.ask.high)


def test_the_fingerprint_covers_the_ask(hourly):
    config, market = hourly
    bars = market.bars
    high = bars.ask.high.copy()
    high[100] += 2
    other = build_market(replace(bars, ask=bars.ask._replace(high=high)), config)
    assert (
        len(
            {market.fingerprint, other.fingerprint, build_market(bars.sides[0], config).fingerprint}
        )
        == 3
    )


def test_slippage_is_none_unless_it_is_set(hourly):
    config, market = hourly
    sessions = split_sessions(market, config.split)["all"]
    assert int(make_params(market, sessions, config).contract.slippage) == 0
    chosen = config.model_copy(update={"costs": config.costs.model_copy(update={"slippage": 4})})
    assert int(make_params(market, sessions, chosen).contract.slippage) == 4
    one_sided = build_market(replace(market.bars.sides[0], contract=EURUSD), config)
    assert int(make_params(one_sided, sessions, config).contract.slippage) == 6


def test_money_limits_see_the_widest_of_both_sides(hourly):
    """A session's lowest bid to its highest ask, recomputed bar by bar."""
    _, market = hourly
    bid, ask = market.bars.sides
    widest = busiest = 0
    for first, last in zip(
        np.asarray(market.data.sessions.first), np.asarray(market.data.sessions.last), strict=True
    ):
        rows, before = slice(first + 1, last + 2), slice(first, last + 1)
        widest = max(widest, ask.high[rows].max() - bid.low[rows].min() + 1)
        jumps = [
            np.abs(now.open[rows] - was.close[before]) for now in (bid, ask) for was in (bid, ask)
        ]
        busiest = max(busiest, (np.max(jumps, axis=0) + ask.high[rows] - bid.low[rows]).sum())
    assert _largest_ranges(market) == (widest, busiest)


def test_describe_says_how_many_sides_and_what_the_spread_costs(hourly, es_market):
    config, market = hourly
    facts, one = describe(market, config), describe(es_market, RunConfig())
    assert (facts["two_sided"], one["two_sided"], one["mean_spread_ticks"]) == (True, False, 0)
    assert 10 < facts["mean_spread_ticks"] < 20
    assert facts["round_turn_cost"] == pytest.approx(6 + facts["mean_spread_ticks"])
    assert "ask: mean spread" in describe_text(market, config)
    assert "at the same prices" in describe_text(es_market, RunConfig())


# ---- real quotes


def es_quotes(shared, expiry):
    path = shared / "data" / "lean_es_1m" / "es_1m_quote.csv.gz"
    return load_bars(path, ES, stamp="open", expiry=expiry, missing=1.0)


def test_es_quotes_pair_with_es_trades(shared):
    """The December contract: 68 minutes lack a side, 9 bars are crossed in some field, 11 of 16,673
    trades unquoted.
    """
    folder = shared / "data" / "lean_es_1m"
    quotes = es_quotes(shared, "201312")
    assert len(quotes) == 17_720 - 68
    assert any(note.startswith("9 crossed bars") for note in quotes.notes)
    config = make_config(
        {
            "data": {
                "market": "ES",
                "source": "file",
                "file": str(folder / "es_1m_trade.csv.gz"),
                "quotes": str(folder / "es_1m_quote.csv.gz"),
                "stamp": "open",
                "expiry": "201312",
            }
        }
    )
    bars = bars_of(config)
    assert bars.ask is not None
    assert (len(bars), bool(bars.volume.any())) == (16_673 - 11, True)
    assert_valid(bars)


def test_a_contract_that_is_hardly_quoted_is_refused(shared):
    path = shared / "data" / "lean_es_1m" / "es_1m_quote.csv.gz"
    with pytest.raises(DataError, match=r"954 of 961 rows \(99.27 %, limit 1 %\)"):
        load_bars(path, ES, stamp="open", expiry="202012")


@pytest.mark.slow
def test_real_seconds_rebuild_both_sides(shared):
    """EURUSD: every one of 15,366 minutes on either side."""
    folder = shared / "data" / "lean_fx_oanda"
    minutes, seconds = (
        load_bars(folder / f"eurusd_{name}_bidask.csv.gz", EURUSD, stamp="open")
        for name in ("minute", "second")
    )
    minutes = minutes.rows(minutes.time <= seconds.time[-1])
    bid, ask = side_passages(minutes, seconds)
    for side, passages, bars in (("bid", bid, minutes.sides[0]), ("ask", ask, minutes.sides[1])):
        assert passages.covered.all(), side
        assert not passages.mismatched.any(), side
        clear = ~np.asarray(passages.path.ambiguous).any(axis=1)
        lowest = np.asarray(passages.path.falls, np.int64)[:, :, 2].min(
            axis=2
        )  # of the bar, and of it upside down
        np.testing.assert_array_equal(
            -lowest[clear], np.stack([bars.open - bars.low, bars.high - bars.open], 1)[clear]
        )
        assert all(note.startswith(f"{side}: ") for note in passages.notes)
