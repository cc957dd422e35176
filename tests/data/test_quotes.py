"""Bid and ask from one file or from two: what is read, widened, left out and refused."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.config import RunConfig
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.describe import check_text, describe, describe_text
from jaxtrade.data.intrabar import side_passages
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.read.validate import PRICES
from jaxtrade.data.sources import attach, bars_of
from jaxtrade.data.splits import split_sessions
from jaxtrade.env.params import _largest_ranges, make_params
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import assert_valid, read_es, set_to
from tests.messages import missing, refused

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
    bars = read_es(write(ROWS, QUOTES))
    assert [side.open.tolist() for side in bars.sides] == [[6681, 6682, 6684], [6682, 6683, 6685]]
    assert [side.high.tolist() for side in bars.sides] == [[6684, 6685, 6684], [6685, 6686, 6685]]
    assert [side.close.tolist() for side in bars.sides] == [[6682, 6684, 6681], [6684, 6685, 6682]]
    assert bars.mid.close.tolist() == [6683, 6684, 6681], "floor((bid + ask) / 2), in whole ticks"
    assert bars.mid.ask is None
    assert bars.contract.slippage_ticks == 0, "fills pay the spread"
    assert ES.slippage_ticks == 1
    assert any(note.startswith("two-sided bars") for note in bars.notes)
    assert "sides          bid and ask" in check_text(bars, RunConfig())
    assert bars.rows(slice(1, 3)).ask.low.tolist() == bars.ask.low[1:].tolist()


def test_the_columns_may_have_any_names_or_one_side_of_them_be_read(write):
    path = write(ROWS, QUOTES.replace("bid_", "b_").replace("ask_", "a_"))
    names = {name: f"{name[0]}_{name[4:]}" for name in QUOTES.split(",")[1:]}
    bars = read_es(path, columns=names)
    plain = read_es(write(ROWS, QUOTES))
    np.testing.assert_array_equal(bars.ask, plain.ask)
    bid = {name.removeprefix("bid_"): name for name in names if name.startswith("bid_")}
    one = read_es(write(ROWS, QUOTES), columns=bid)
    assert (one.ask, one.contract.slippage_ticks) == (None, 1)
    assert any("one-sided bars" in note for note in one.notes)


def test_crossed_bars_are_counted_and_widened(write):
    """The ask of 6680, 6683, 6678, 6683 over a bid of 6681, 6684, 6679, 6682: the larger of
    each.
    """
    bars = read_es(write((*ROWS, CROSSED), QUOTES))
    bid, ask = ([int(getattr(side, name)[3]) for name in PRICES] for side in bars.sides)
    assert (bid, ask) == ([6681, 6684, 6679, 6682], [6681, 6684, 6679, 6683])
    assert any(
        not missing(note, "1 crossed bars", "2013-10-07: 1", "line 5") for note in bars.notes
    )
    plain = read_es(write(ROWS, QUOTES))
    assert not any("crossed" in note for note in plain.notes)


def test_a_bar_without_a_side_is_left_out_and_counted(write):
    """One of 101 rows is within the limit of 1 %, two are not."""
    rows = [
        f"2013-10-07T{13 + minute // 60}:{minute % 60:02d}:00Z,{ROWS[0].split(',', 1)[1]}"
        for minute in range(100)
    ]
    lost = rows[40].split(",")
    rows.append(f"2013-10-07T14:40:00Z,{ROWS[0].split(',', 1)[1]}")
    rows[40] = ",".join([lost[0], "", "", "", "", *lost[5:]])
    bars = read_es(write(rows, QUOTES))
    assert (len(bars), bars.bar_seconds) == (100, 60)
    assert any(not missing(note, "1 of 101 rows", "line 42") for note in bars.notes)
    rows[50] = ",".join([*rows[50].split(",")[:5], "", "", "", ""])
    with pytest.raises(DataError, match=r"bars\.csv:42: .*2 of 101 .*\(1\.98 %, "):
        read_es(write(rows, QUOTES))


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
    with refused("bars.csv:5", *fragments, kind=DataError):
        read_es(write((*ROWS, row), QUOTES))


def test_half_a_mapping_is_refused(write):
    path = write(ROWS, QUOTES)
    with pytest.raises(DataError, match=r" open \(.* ask_open \(two-"):
        read_es(path, columns={"open": "bid_open", "ask_open": "ask_open"})
    cut = write([row.rsplit(",", 1)[0] for row in ROWS], QUOTES.rsplit(",", 1)[0])
    with pytest.raises(DataError, match=r"no column 'ask_close'"):
        read_es(cut, columns={"bid_open": "bid_open"})


# ---- quotes of a second file


@pytest.fixture
def pair(write):
    """Trades and their quotes."""
    return (
        read_es(write(TRADES, name="trades.csv")),
        read_es(write(ROWS, QUOTES, name="quotes.csv")),
    )


def test_quotes_go_under_trade_bars(pair):
    """Prices of the quotes, stamps and volume of the trades; the trade file's own prices are read
    and checked only.
    """
    trades, quotes = pair
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


def test_bars_without_a_quote_are_left_out_or_refused(pair):
    trades, quotes = pair
    few = quotes.rows(np.array([0, 2]))
    with pytest.raises(DataError, match=r"1 of 3 .*trades\.csv \(33\.33 %.*T13:31:00Z"):
        attach(trades, few)
    bars = attach(trades, few, tolerance=0.5)
    assert (len(bars), bars.volume.tolist()) == (2, [30, 32])
    assert any(note.startswith("1 of 3 bars") for note in bars.notes)


def test_files_that_do_not_pair_are_refused(pair):
    trades, quotes = pair
    with pytest.raises(DataError, match=r"quotes\.csv: .*data\.quotes"):
        attach(quotes, quotes)
    with pytest.raises(DataError, match=r"trades\.csv: .*bid_open"):
        attach(trades, trades)
    with pytest.raises(DataError, match=r" 60 s.* 3600 s"):
        attach(replace(trades, bar_seconds=3600), quotes)
    with pytest.raises(DataError, match=r"trades\.csv: .*quotes\.csv"):
        side_passages(trades, quotes)


def test_quotes_beside_synthetic_bars_are_refused():
    config = set_to("data.market=NQ data.source=synthetic data.quotes=quotes.csv")
    with pytest.raises(ConfigError, match=r"quotes = quotes\.csv .*= synthetic"):
        bars_of(config)


# ---- from bars to a market


@pytest.fixture(scope="module")
def hourly():
    """(configuration, two-sided market) of the bundled EURUSD hours."""
    config = set_to("data.market=EURUSD data.start=2016-03-01 data.end=2016-04-30")
    return config, load_market(config)


@pytest.mark.slow
def test_features_and_ranges_are_those_of_the_mid(hourly):
    config, market = hourly
    one_sided = build_market(market.bars.mid, config).data
    assert one_sided.ask is None
    np.testing.assert_array_equal(market.table, build_market(market.bars.mid, config).table)
    np.testing.assert_array_equal(market.data.tr_sum, one_sided.tr_sum)
    np.testing.assert_array_equal(market.data.mid_close, one_sided.close)
    np.testing.assert_array_equal(market.data.open, market.bars.open)
    np.testing.assert_array_equal(market.data.ask.high, market.bars.ask.high)


def test_the_fingerprint_covers_the_ask(hourly):
    config, market = hourly
    bars = market.bars
    high = bars.ask.high.copy()
    high[100] += 2
    others = (replace(bars, ask=bars.ask._replace(high=high)), bars.sides[0])
    found = {market.fingerprint, *(build_market(each, config).fingerprint for each in others)}
    assert len(found) == 3


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


def test_es_quotes_pair_with_es_trades(shared):
    """The December contract: 68 minutes lack a side, 9 bars are crossed in some field, 11 of 16,673
    trades unquoted.
    """
    folder = shared / "data" / "lean_es_1m"
    path = folder / "es_1m_quote.csv.gz"
    quotes = read_es(path, expiry="201312", missing=1.0)
    assert len(quotes) == 17_720 - 68
    assert any(note.startswith("9 crossed bars") for note in quotes.notes)
    bars = bars_of(
        set_to(
            f"data.source=file data.file={folder}/es_1m_trade.csv.gz data.quotes={path} "
            "data.stamp=open data.expiry=201312"
        )
    )
    assert (len(bars), bool(bars.volume.any())) == (16_673 - 11, True)
    assert bars.ask is not None
    assert_valid(bars)


def test_a_contract_that_is_hardly_quoted_is_refused(shared):
    path = shared / "data" / "lean_es_1m" / "es_1m_quote.csv.gz"
    with pytest.raises(DataError, match=r"954 of 961 rows \(99.27 %, limit 1 %\)"):
        read_es(path, expiry="202012")


@pytest.mark.slow
def test_real_seconds_rebuild_both_sides(shared):
    """EURUSD: every one of 15,366 minutes on either side."""
    folder = shared / "data" / "lean_fx_oanda"
    minutes, seconds = (
        load_bars(folder / f"eurusd_{name}_bidask.csv.gz", EURUSD, stamp="open")
        for name in ("minute", "second")
    )
    minutes = minutes.rows(minutes.time <= seconds.time[-1])
    for side, passages in zip(("bid", "ask"), side_passages(minutes, seconds), strict=True):
        assert passages.covered.all(), side
        assert not passages.mismatched.any(), side
        assert all(note.startswith(f"{side}: ") for note in passages.notes)
