"""Real bars are damaged as vendors' files are, and each damage is found with its row. Undamaged
bars have none.
"""

import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from jaxtrade.config import DataConfig, RunConfig, load_config, make_config
from jaxtrade.data.calendar.schedule import trade_dates
from jaxtrade.data.contracts import get_contract, load_contract
from jaxtrade.data.describe import check, check_text, describe_text
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import from_frame, load_bars, load_bundled
from jaxtrade.data.read.validate import NO_VOLUME_COLUMN
from jaxtrade.errors import DataError
from jaxtrade.formatting import iso
from tests.data.conftest import findings_of, set_to
from tests.data.damaged import (
    FIELDS,
    SHARE,
    as_share,
    frame_of,
    longer,
    read_again,
    regular_hours,
    standing,
    unadjusted,
    with_rows,
    with_ticks,
)
from tests.data.real_seconds import SPY_KEYS
from tests.messages import missing

DATE = "2013-10-09"
LOW_STOP = set_to("brackets.stop_atr=0.1 brackets.trail_atr=0.1")  # int32 holds them across a jump


def only(bars):
    (one,) = findings_of(bars)
    return one


def first_of(bars, date):
    return int(np.argmax(trade_dates(bars.time, bars.contract) >= np.datetime64(date)))


# --- splits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "moved"),
    [
        ("4:1", 499.23 / 4 / 127.58),  # AAPL, 31 August 2020: closed at 499.23, opened at 127.58
        ("5:1", 2213.40 / 5 / 444.61),  # TSLA on the same day
        ("3:1", 0.98),
        ("3:2", 1.0),
        ("10:1", 1.02),
        ("20:1", 0.99),
        ("1:10", 1.01),
    ],
)
def test_a_split_is_found_and_refused_until_it_is_stated(es_bars, ratio, moved):
    share = as_share(es_bars)
    new, old = map(int, ratio.split(":"))
    bars = unadjusted(share, DATE, Fraction(new, old), moved)
    one = only(bars)
    assert (one.kind, one.row, one.date, one.ratio) == ("split", first_of(bars, DATE), DATE, ratio)
    with pytest.raises(DataError, match=rf"2013-10-08T22:00:00Z: .*share split {ratio}") as told:
        build_market(bars, RunConfig())
    stated = {"4:1": "4", "1:10": "'1:10'", "3:2": "3:2"}.get(ratio)
    if stated:
        assert f"--set 'data.splits=[{{date: {DATE}, ratio: {stated}}}]'" in str(told.value)
    assert "data.allow_jumps=true" in str(told.value)


def test_a_jump_is_accepted_as_a_note(es_bars):
    bars = unadjusted(as_share(es_bars), DATE, Fraction(4))
    market = build_market(bars, LOW_STOP.model_copy(update={"data": DataConfig(allow_jumps=True)}))
    assert sum("likely a share split 4:1" in note for note in market.notes) == 1


def test_two_splits_are_named_with_one_fix(es_bars):
    bars = unadjusted(
        unadjusted(as_share(es_bars, 4), "2013-10-10", Fraction(3)), "2013-10-08", Fraction(2)
    )
    with pytest.raises(
        DataError, match=r"\[\{date: 2013-10-08, ratio: 2\}, \{date: 2013-10-10, ratio: 3\}\]"
    ):
        check_text(bars, RunConfig())


@pytest.mark.parametrize("before", [2.22, 1.75, 0.56])
def test_an_odd_jump_is_a_warning(es_bars, before):
    """A share that falls by 55 % or 43 % overnight, or gains 79 %, was not split: no simple ratio
    is near.
    """
    bars = unadjusted(as_share(es_bars), DATE, Fraction(1), before)
    one = only(bars)
    assert (one.kind, one.row, one.ratio) == ("jump", first_of(es_bars, DATE), "")
    assert any("a factor of" in note for note in build_market(bars, LOW_STOP).notes)


def test_a_level_that_does_not_stay_is_no_split(es_bars):
    share = as_share(es_bars)
    first = first_of(share, DATE)
    prices = {name: getattr(share, name).copy() for name in FIELDS}
    for column in prices.values():
        column[first : first + 20] //= 2
    assert not [
        one for one in findings_of(replace(share, **prices)) if one.kind in ("split", "jump")
    ]


def test_years_between_two_dates_are_no_split(es_bars):
    """Ten years later the index is at three times the level."""
    later = replace(
        es_bars,
        time=es_bars.time + 3650 * 86_400,
        **{name: getattr(es_bars, name) * np.int32(3) for name in FIELDS},
    )
    both = {
        name: np.concatenate([getattr(es_bars, name), getattr(later, name)])
        for name in ("time", *FIELDS, "volume")
    }
    assert findings_of(replace(es_bars, places=None, **both)) == ()


def test_a_split_in_a_future_is_two_price_scales(es_bars):
    bars = unadjusted(
        replace(es_bars, contract=replace(es_bars.contract, price_ranges=())), DATE, Fraction(10)
    )
    assert not missing(only(bars).cause, "two price scales", "10:1")


def test_the_real_split_of_aapl(shared):
    """7:1 on 2014-06-09. The first bar of the new price still opens at the old one."""
    contract = replace(load_contract("SPY"), symbol="AAPL", price_ranges=())
    path = shared / "data/lean_us_equity/aapl_minute_trade_x10000.csv.gz"
    one = only(load_bars(path, contract, **SPY_KEYS))
    assert (one.kind, one.date, one.ratio) == ("split", "2014-06-09", "7:1")
    assert f"{path}:1471: bar 2014-06-09T08:00:00Z" in one.text()
    stated = load_config(None, ["data.splits=[{date: 2014-06-09, ratio: 7}]"]).data.splits
    again = findings_of(load_bars(path, contract, **SPY_KEYS, splits=stated), splits=stated)
    assert [(one.kind, one.row) for one in again] == [("spike", 1469)]


# --- two levels in one date -------------------------------------------------------------------------------------------


def mixed(bars, rows, ticks):
    """The chosen rows at another level."""
    moved = {name: getattr(bars, name) + (rows * ticks).astype(np.int32) for name in FIELDS}
    return replace(bars, **moved)


@pytest.mark.slow
@pytest.mark.parametrize("ticks", [24, -24, 212])
@pytest.mark.parametrize("kind", ["in turn", "three of five", "at random"])
def test_rows_of_two_contracts_around_a_roll(es_bars, ticks, kind):
    """ES of December and March 2013 were 6 points apart; two dates of the week mix their
    minutes.
    """
    dates = trade_dates(es_bars.time, es_bars.contract).astype(str)
    row = np.arange(len(es_bars))
    other = {
        "in turn": row % 2 == 0,
        "three of five": row % 5 < 3,
        "at random": np.random.default_rng(1).random(len(row)) < 0.5,
    }[kind]
    bars = mixed(es_bars, other & np.isin(dates, ["2013-10-08", DATE]), ticks)
    (one,) = (each for each in findings_of(bars) if each.kind == "levels")
    assert first_of(bars, "2013-10-08") <= one.row <= first_of(bars, "2013-10-08") + 20
    assert f"about {abs(ticks) / 4:.0f}" in one.size
    assert "on 2 dates" in one.size
    assert any("two price levels" in note for note in build_market(bars, LOW_STOP).notes)


def test_another_scale_from_the_middle_of_a_date_on(es_bars):
    bars = as_share(es_bars, 4)
    row = first_of(bars, DATE) + 300
    twice = np.where(np.arange(len(bars)) < row, 2, 1).astype(np.int32)
    one = only(replace(bars, **{name: getattr(bars, name) * twice for name in FIELDS}))
    assert (one.kind, one.row) == ("levels", row)


def test_prints_off_the_market_are_no_second_level(shared):
    """Trades of SPY by the second: 61 reported late, about $1.10 off, among 100,184 bars."""
    contract = replace(load_contract("SPY"), tick_size=Decimal("0.0001"), price_ranges=())
    bars = load_bars(
        shared / "data/lean_us_equity/spy_second_trade_x10000.csv.gz",
        contract,
        **SPY_KEYS,
    )
    assert not [one for one in findings_of(bars) if one.kind == "levels"]


# --- single bars ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factors", "off"),
    [
        (dict.fromkeys(FIELDS, 1.11), r"[+]1[01]"),
        (dict.fromkeys(FIELDS, 0.89), "-1[01]"),
        ({"high": 1.3}, r"[+](29|30)"),
    ],
)
def test_one_bar_off_the_market(es_bars, factors, off):
    one = only(with_ticks(es_bars, 2000, **factors))
    assert (one.kind, one.row, one.bars) == ("spike", 2000, 1)
    assert re.match(rf"stands {off}\.\d % off", one.size)


def test_several_bad_prints_are_one_finding(es_bars):
    one = only(with_ticks(with_ticks(es_bars, 1000, low=0.9), 4000, high=1.3))
    assert (one.row, one.bars) == (1000, 2)
    assert "2 such bars" in one.size


def test_a_shock_that_leaves_a_trace_is_no_bad_print(es_bars):
    """From one bar on, all prices are 5 % lower, and the first of them fell another 2 %."""
    prices = {name: getattr(es_bars, name).copy() for name in ("open", "high", "low", "close")}
    for column in prices.values():
        column[3000:] = (column[3000:] * 0.95).astype(np.int32)
    prices["low"][3000] = int(prices["low"][3000] * 0.98)
    assert findings_of(replace(es_bars, **prices)) == ()


# --- runs of bars -----------------------------------------------------------------------------------------------------


def test_150_identical_bars(es_bars):
    one = only(standing(es_bars, 2500, 150))
    assert (one.kind, one.row, one.bars) == ("stale", 2500, 150)


@pytest.mark.parametrize("volume", [True, False])
def test_a_block_of_190_bars_copied(es_bars, volume):
    bars = with_rows(es_bars, 4000, 1500, 190)
    if not volume:
        bars = replace(bars, volume=np.zeros(len(bars)), notes=(*bars.notes, NO_VOLUME_COLUMN))
    one = only(bars)
    assert (one.kind, one.row, one.bars) == ("copy", 4000, 190)
    assert f"repeat those from {iso(es_bars.time[1500])} on" in one.size


def test_volume_that_is_0_throughout(es_bars):
    one = only(read_again(replace(es_bars, volume=np.zeros(len(es_bars)))))
    assert (one.kind, one.row) == ("no_volume", -1)
    without = from_frame(frame_of(es_bars).drop(columns="volume"), es_bars.contract, stamp="open")
    assert findings_of(without) == ()


# --- gaps -------------------------------------------------------------------------------------------------------------


def test_every_second_minute_missing(es_bars):
    """The file then looks like one of bars of two minutes."""
    bars = read_again(es_bars, es_bars.time // 60 % 2 == 0)
    assert bars.bar_seconds == 120
    one = only(bars)
    assert one.kind == "gaps"
    assert "every second bar of 60 s" in one.size


def test_every_second_minute_of_a_day_missing(es_bars):
    day = (trade_dates(es_bars.time, es_bars.contract) == np.datetime64(DATE)) & (
        es_bars.time // 60 % 2 == 1
    )
    one = only(read_again(es_bars, ~day))
    assert (one.kind, one.row) == ("gaps", first_of(es_bars, DATE))
    assert not missing(one.size, "120 s", "60 s")


def test_every_fifth_minute_missing(es_bars):
    one = only(read_again(es_bars, es_bars.time // 60 % 5 != 0))
    assert one.kind == "gaps"
    assert not missing(one.size, "12 of 60", ": :00, :05")


# --- hours ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "hours", "zone"),
    [
        ("UTC", "05:30-12:00", "America/New_York"),
        ("America/Denver", "11:30-18:00", None),
        ("America/New_York", None, None),
    ],
)
def test_regular_hours_labelled_with_a_wrong_zone(es_bars, label, hours, zone):
    """New York stamps of 09:30-16:00, read as those of another zone."""
    frame = frame_of(regular_hours(es_bars), "America/New_York")
    bars = from_frame(frame, es_bars.contract, stamp="open", time_zone=label)
    if hours is None:
        assert findings_of(bars) == ()
        return
    one = only(bars)
    assert one.kind == "zone"
    assert not missing(one.size, f" {hours} ", "5 of 5")
    assert (f"(perhaps {zone})" in one.fix) == (zone is not None)


# --- no false findings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "keys"),
    [
        ("ES", {}),
        ("ES", {"start": "2013-10-06", "end": "2020-01-31"}),
        ("ES", {"roll": "volume"}),
        ("EURUSD", {}),
        ("GBPUSD", {}),
        ("USDJPY", {}),
        ("USDCHF", {}),
    ],
)
def test_the_bundled_bars_have_no_findings(symbol, keys):
    assert findings_of(load_bundled(get_contract(symbol), **keys)) == ()


@pytest.mark.parametrize("seconds", [120, 300, 900, 1800, 3600])
def test_longer_bars_of_the_same_week_have_none(es_bars, seconds):
    assert findings_of(longer(es_bars, seconds)) == ()


SHARE_FILES = """
spy_minute_trade spy_minute_quote spy_second_trade spy_second_quote goog_minute_trade
goog_minute_quote
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARE_FILES.split())
def test_real_shares_have_no_findings(shared, name):
    contract = replace(load_contract("GOOG"), symbol=name[:4].upper(), tick_size=Decimal("0.0001"))
    bars = load_bars(
        shared / f"data/lean_us_equity/{name}_x10000.csv.gz",
        contract,
        **SPY_KEYS,
    )
    assert findings_of(bars) == ()


@pytest.mark.slow
@pytest.mark.parametrize("length", ["second", "minute"])
def test_real_eurusd_has_no_findings(shared, length):
    path = shared / f"data/lean_fx_oanda/eurusd_{length}_bidask.csv.gz"
    assert findings_of(load_bars(path, get_contract("EURUSD"), stamp="open")) == ()


TRULY_BAD = {  # prints far from both neighbours, at the halt of 16:15
    ("trade", "201403"): ["2013-12-18T21:30:00Z"],  # a low of 1760.75 between bars at 1804.50
    ("quote", "201406"): ["2013-10-09T20:14:00Z"],  # a high of 1767.50 between bars at 1635
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trade", "quote"])
@pytest.mark.parametrize("expiry", ["201312", "201403", "201406", "202003"])
def test_real_futures_have_no_findings_but_bad_prints(shared, kind, expiry):
    bars = load_bars(
        shared / f"data/lean_es_1m/es_1m_{kind}.csv.gz",
        get_contract("ES"),
        stamp="open",
        expiry=expiry,
        missing=1.0,
    )
    bad = findings_of(bars)
    assert [one.kind for one in bad] == ["spike"] * len(TRULY_BAD.get((kind, expiry), []))
    for one, stamp in zip(bad, TRULY_BAD.get((kind, expiry), []), strict=True):
        assert stamp in one.where


# --- where they are told ----------------------------------------------------------------------------------------------


def test_findings_come_first_in_check_describe_and_notes(es_bars, tmp_path):
    path, config = tmp_path / "es.csv", set_to("data.stamp=open")
    frame_of(with_ticks(es_bars, 3000, high=1.3)).to_csv(path, index=False)
    bars = load_bars(path, replace(es_bars.contract, price_ranges=()), stamp="open")
    told = f"WARNING: {path}:3002: bar "
    text = check_text(bars, config)
    assert "read as ES, 1 warning" in text
    assert told in text
    market = build_market(bars, config)
    assert market.notes[0].startswith(told)
    assert told in describe_text(market, config)


def test_check_refuses_a_split_as_training_does(es_bars, tmp_path):
    path, contract = tmp_path / "shr.csv", tmp_path / "shr.yaml"
    frame_of(unadjusted(as_share(es_bars, 4), DATE, Fraction(4))).to_csv(path, index=False)
    contract.write_text(SHARE)
    data = {"stamp": "open", "contract": str(contract)}
    line = first_of(es_bars, DATE) + 2
    with pytest.raises(DataError, match=rf"shr\.csv:{line}: bar 2013-10-08T22:00:00Z"):
        check(str(path), make_config({"data": data}))
    assert "no fault" in check(
        str(path), make_config({"data": data | {"splits": [{"date": DATE, "ratio": 4}]}})
    )
