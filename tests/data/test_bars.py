"""Reading bars: what is accepted, in which units, and what the notes admit."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read.bars import load_bars
from tests.data.conftest import assert_same, read_es, utc
from tests.messages import missing

ES = get_contract("ES")


def test_prices_are_integer_ticks_and_stamps_are_utc_opens(write):
    bars = read_es(write())
    assert bars.open.tolist() == [6681, 6682, 6684, 6681, 6679, 6682]  # 1670.25 / 0.25 = 6681
    assert bars.high[0] == 6684
    assert bars.low[3] == 6678
    assert bars.close[5] == 6687
    assert bars.volume.tolist() == [5031, 2210, 1900, 2400, 1750, 3100]
    assert bars.time[0] == 1381152600  # 2013-10-07 13:30 UTC
    assert bars.bar_seconds == 60
    assert bars.open.dtype == np.int32
    assert bars.time.dtype == np.int64


def test_close_stamps_are_moved_back_by_one_bar(write):
    at_open, at_close = (load_bars(write(), ES, stamp=side) for side in ("open", "close"))
    assert (at_open.time - at_close.time == 60).all()


@pytest.mark.parametrize("point", ["", ".0"])
@pytest.mark.parametrize(
    ("scale", "unit"),
    [(1, "seconds"), (10**3, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")],
)
def test_epoch_numbers_are_read_in_the_one_unit_that_fits_and_noted(
    write, rows, scale, unit, point
):
    lines = [f"{(1381152600 + 60 * i) * scale}{point}{row[20:]}" for i, row in enumerate(rows)]
    bars = read_es(write(lines))
    assert bars.time.tolist() == [1381152600 + 60 * i for i in range(6)]
    assert any(f"read as {unit} since 1970" in note for note in bars.notes)


def test_columns_by_map_and_by_obvious_alias(write, rows):
    path = write(rows, header="ts_event,O,H,L,settle,Vol")
    bars = read_es(path, columns={"close": "settle"})
    assert bars.close[0] == 6682
    last = read_es(write(rows, header="time,open,high,low,Last,volume"))
    assert last.close[0] == 6682
    assert any(not missing(note, "'Last'", "close") for note in last.notes)
    for note in (
        "column 'ts_event' read as time",
        "column 'O' read as open",
        "column 'Vol' read as volume",
    ):
        assert note in bars.notes


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_are_read_and_noted(write, rows, separator):
    path = write(
        [row.replace(",", separator) for row in rows],
        header="time,open,high,low,close,volume".replace(",", separator),
    )
    bars = read_es(path)
    assert len(bars) == 6
    assert any("separated" in note for note in bars.notes)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_and_frames_read_like_csv_at_every_resolution(tmp_path, write, unit):
    expected = read_es(write())
    frame = pd.read_csv(write())
    frame["time"] = pd.to_datetime(frame["time"]).astype(f"datetime64[{unit}, UTC]")
    frame.to_parquet(tmp_path / "bars.parquet")
    for bars in (
        read_es(tmp_path / "bars.parquet"),
        read_es(frame),
        read_es(frame.set_index("time")),
    ):
        assert_same(bars, expected)


def test_price_scale_turns_integers_into_points(write, rows):
    lines = [
        ",".join([c[0], *(str(round(float(x) * 10_000)) for x in c[1:5]), c[5]])
        for c in (row.split(",") for row in rows)
    ]
    assert read_es(write(lines), price_scale=0.0001).open[0] == 6681


def test_no_volume_column_is_zero_and_noted(write, rows):
    path = write([row.rsplit(",", 1)[0] for row in rows], header="time,open,high,low,close")
    bars = read_es(path)
    assert not bars.volume.any()
    assert any("no volume column" in note for note in bars.notes)


@pytest.mark.parametrize("symbol", ["ESZ3", "ES", "MESZ3", "ES 12-13", "ES=F", "ES.c.0", "@ES"])
def test_symbols_of_the_market_or_its_micro_are_accepted(write, rows, symbol):
    path = write(
        [f"{row},{symbol}" for row in rows], header="time,open,high,low,close,volume,symbol"
    )
    assert len(read_es(path)) == 6


def test_start_and_end_are_trade_dates(write, rows):
    evening = [
        row.replace("2013-10-07T13", "2013-10-07T22") for row in rows
    ]  # 18:30 New York: the next trade date
    bars = read_es(write(rows + evening), start="2013-10-08")
    assert len(bars) == 6
    assert bars.time[0] == 1381152600 + 9 * 3600


def test_bundled_bars_have_the_published_counts(es_bars):
    assert len(es_bars) == 6826  # 201312, trade dates 2013-10-07..11
    assert es_bars.bar_seconds == 60
    assert es_bars.low.min() * 0.25 == 1640.0


# Monday 00:00 of a trading server that keeps New York time plus seven hours is Sunday 17:00 in New
# York, also in the weeks in which only one of Europe and the United States keeps summer time.
SERVER_MIDNIGHTS = [
    ("America/New_York+7h", "2014-03-03", "2014-03-02T22:00:00"),
    ("America/New_York+7h", "2014-03-10", "2014-03-09T21:00:00"),
    ("America/New_York+7h", "2014-03-31", "2014-03-30T21:00:00"),
    ("America/New_York+7h", "2014-10-27", "2014-10-26T21:00:00"),
    ("America/New_York+7h", "2014-11-03", "2014-11-02T22:00:00"),
    ("UTC-3h", "2014-07-01", "2014-07-01T03:00:00"),
]


@pytest.mark.parametrize(("zone", "midnight", "wanted"), SERVER_MIDNIGHTS)
def test_a_zone_with_a_fixed_shift(write, zone, midnight, wanted):
    lines = [f"{midnight} {hour:02}:00:00,1670.25,1671.00,1669.75,1670.50,1" for hour in range(3)]
    bars = load_bars(write(lines), replace(ES, price_ranges=()), stamp="open", time_zone=zone)
    assert bars.time.tolist() == [utc(wanted) + 3600 * hour for hour in range(3)]
