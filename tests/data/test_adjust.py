"""Stated splits: hand-worked prices, exact recovery, and the same rule for bars, quotes and
seconds.
"""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from jaxtrade.config import dump_config, load_config, make_config
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.intrabar import first_passages
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import adjust_for_splits, load_bars
from jaxtrade.data.sources import bars_of
from jaxtrade.errors import ConfigError, DataError
from tests.data.conftest import assert_valid, utc
from tests.data.damaged import FIELDS, SHARE, as_share, flat_bars, frame_of, longer, unadjusted
from tests.messages import missing

DATE = "2013-10-09"
QUOTES = "time,bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close"


def stated(*splits):
    return make_config(
        {"data": {"splits": [{"date": date, "ratio": ratio} for date, ratio in splits]}}
    ).data.splits


# --- what the configuration takes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ratio"),
    [
        ("4", "4:1"),
        ("1.5", "3:2"),
        ("3:2", "3:2"),
        ("'1:10'", "1:10"),
        ("0.1", "1:10"),
        ("20:2", "10:1"),
    ],
)
def test_a_ratio_is_read_exactly(text, ratio):
    config = load_config("quickstart", [f"data.splits=[{{date: 2020-08-31, ratio: {text}}}]"])
    assert [split.ratio for split in config.data.splits] == [ratio]
    assert config.data.splits[0].fraction == Fraction(*map(int, ratio.split(":")))
    assert make_config(parse_yaml(dump_config(config), "again")).data == config.data


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ("[{date: 2020-08-31, ratio: 0}]", "no shares on"),
        ("[{date: 2020-08-31, ratio: 1}]", "changes nothing"),
        ("[{date: 2020-08-31, ratio: four}]", "is not a ratio"),
        ("[{date: 2020-08-31, ratio: 4:0}]", "no shares on"),
        ("[{date: 2020-08-31, ratio: 3.14159}]", "more than 1000"),
        ("[{date: 31.8.2020, ratio: 4}]", "YYYY-MM-DD"),
        ("[{date: 2020-08-31, ratio: 4}, {date: 2020-08-30, ratio: 4}]", "dates must increase"),
        ("[{date: 2020-08-31}]", r"data\.splits\.0\.ratio|ratio"),
    ],
)
def test_a_wrong_split_is_refused(splits, message):
    with pytest.raises(ConfigError, match=message):
        load_config("quickstart", [f"data.splits={splits}"])


def test_splits_go_with_a_file_of_one_share():
    with pytest.raises(ConfigError, match=r"data\.splits .*source = bundled"):
        bars_of(load_config("quickstart", [f"data.splits=[{{date: {DATE}, ratio: 4}}]"]))
    with pytest.raises(ConfigError, match=r"data\.splits .*data\.roll"):
        load_config("quickstart", [f"data.splits=[{{date: {DATE}, ratio: 4}}]", "data.roll=volume"])


# --- prices -----------------------------------------------------------------------------------------------------------


def five(prices):
    """Bars of 2013-10-08 with these prices in ticks, all four the same."""
    return flat_bars(get_contract("ES"), utc("2013-10-08T14:00"), prices, 60, 100.0)


@pytest.mark.parametrize(
    ("ratio", "prices", "expected"),
    [
        (4, [49923, 4, 6, 10], [12481, 1, 2, 2]),  # 12480.75; 1.5 and 2.5 go to the even tick
        ("3:2", [3, 4, 5, 7, 150], [2, 3, 3, 5, 100]),  # 2, 2.67, 3.33, 4.67, 100
        ("1:10", [3, 4, 5, 7, 150], [30, 40, 50, 70, 1500]),
    ],
)
def test_prices_before_the_date_by_hand(ratio, prices, expected):
    bars = adjust_for_splits(five(prices), stated((DATE, ratio)))
    assert bars.close.tolist() == bars.open.tolist() == expected
    assert bars.close.dtype == np.int32
    np.testing.assert_allclose(bars.volume, 100 * float(stated((DATE, ratio))[0].fraction))


def test_a_price_below_half_a_tick_is_refused():
    """0.5 goes to the even tick, 0."""
    with pytest.raises(DataError, match=r"data\.splits .* 0 to 12481 "):
        adjust_for_splits(five([49923, 2]), stated((DATE, 4)))


def test_bars_on_and_after_the_date_stay():
    bars = adjust_for_splits(five([100, 200]), stated(("2013-10-08", 4)))
    assert bars.close.tolist() == [100, 200]
    assert bars.volume.tolist() == [100, 100]
    assert not missing(bars.notes[-1], "4:1", "2013-10-08", "0 of 2 bars")


def test_two_splits_divide_by_both():
    bars = adjust_for_splits(five([1200]), stated((DATE, 4), ("2014-01-02", "3:2")))
    assert bars.close.tolist() == [200]
    assert bars.volume.tolist() == [600]


def test_the_notes_count_bars_and_rounded_prices():
    bars = adjust_for_splits(five([4, 5, 6, 8]), stated((DATE, 4)))
    first, second = bars.notes
    assert not missing(first, "data.splits", "4:1", "2013-10-09", "4 of 4 bars")
    assert not missing(second, "data.splits", "8 of 16", "even")


def test_rounding_keeps_bars_valid_and_seconds_agree(es_bars):
    """Prices that are no multiple of the ratio: the minutes still rebuild the bars of five minutes,
    every one.
    """
    share = as_share(es_bars, 1)
    coarse = longer(share, 300)
    splits = stated((DATE, 7))
    fine, bars = adjust_for_splits(share, splits), adjust_for_splits(coarse, splits)
    assert any("fell between two ticks" in note for note in bars.notes)
    assert_valid(bars)
    assert not first_passages(bars, fine, 0.0).mismatched.any()


def test_quotes_are_adjusted_alike(write):
    rows = [
        f"2013-10-08T14:{minute:02d}:00Z,10.01,10.03,10.01,10.02,10.02,10.04,10.01,10.03"
        for minute in range(6)
    ]
    contract = replace(get_contract("ES"), tick_size=Decimal("0.01"), price_ranges=())
    bars = load_bars(write(rows, QUOTES), contract, stamp="open", splits=stated((DATE, 4)))
    assert (bars.open[0], bars.high[0]) == (250, 251)  # 250.25, 250.75
    assert (bars.ask.open[0], bars.ask.high[0]) == (250, 251)  # 250.5 to the even tick, 251
    assert_valid(bars)


def test_a_split_that_the_file_allows_for_already_is_refused(es_bars):
    with pytest.raises(DataError, match=r"data\.splits, .*adjusted already"):
        build_market(
            adjust_for_splits(as_share(es_bars), stated((DATE, 4))),
            make_config({"data": {"splits": [{"date": DATE, "ratio": 4}]}}),
        )


def test_every_file_of_a_market_is_adjusted(es_bars, tmp_path):
    """Bars of five minutes with their minutes: market and path are those of the adjusted files."""
    share = as_share(es_bars, 4)
    contract = tmp_path / "shr.yaml"
    contract.write_text(SHARE)
    found = []
    for name, bars, more in (
        (
            "before",
            unadjusted(share, DATE, Fraction(4)),
            [f"data.splits=[{{date: {DATE}, ratio: 4}}]"],
        ),
        ("after", share, []),
    ):
        frame_of(bars).to_csv(tmp_path / f"{name}.csv", index=False)
        frame_of(longer(bars, 300)).to_csv(tmp_path / f"{name}_5.csv", index=False)
        words = (
            f"data.source=file data.file={tmp_path}/{name}_5.csv data.contract={contract} "
            f"data.seconds={tmp_path}/{name}.csv data.stamp=open env.intrabar=path"
        )
        found.append(load_market(load_config("quickstart", [*words.split(), *more])))
    for name in FIELDS:
        np.testing.assert_array_equal(*(getattr(market.bars, name) for market in found))
    np.testing.assert_array_equal(*(market.data.path.falls for market in found))
    np.testing.assert_array_equal(*(market.data.tr_sum for market in found))
