"""Every wrong input is refused in one message with file, line, column, value and fix; nothing is
repaired.
"""

import gzip
import random
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from jaxtrade.data.contracts import CONTRACTS, get_contract, load_contract
from jaxtrade.data.read.bars import load_bars
from jaxtrade.errors import DataError
from tests.data.conftest import assert_valid, read_es
from tests.messages import missing

ES = get_contract("ES")
HEADER = "time,open,high,low,close,volume"


def refused(path, *fragments, contract=ES, stamp="open", **options):
    with pytest.raises(DataError) as error:
        load_bars(path, contract, stamp=stamp, **options)
    message = str(error.value)
    assert str(path) in message
    for fragment in fragments:
        assert fragment in message, message
    return message


# Fault: what the third row becomes, fragments of the message.
CELL_FAULTS = {
    "high<low": (
        "2013-10-07T13:32:00Z,1671.00,1670.00,1670.50,1670.25,1",
        ["'high' = '1670.00'", "high is below low"],
    ),
    "close outside": (
        "2013-10-07T13:32:00Z,1671.00,1671.00,1670.00,1672.00,1",
        ["'close' = '1672.00'", "close is outside low..high"],
    ),
    "NaN": (
        "2013-10-07T13:32:00Z,1671.00,nan,1670.00,1670.25,1",
        ["'high' = 'nan'", "not a finite price"],
    ),
    "blank": (
        "2013-10-07T13:32:00Z,1671.00,,1670.00,1670.25,1",
        ["'high' = ''", "not a finite price"],
    ),
    "text": (
        "2013-10-07T13:32:00Z,1671.00,$1671,1670.00,1670.25,1",
        ["'high' = '$1671'", "plain number"],
    ),
    "zero": ("2013-10-07T13:32:00Z,0,1671.00,0,1670.25,1", ["'open' = '0'", "not positive"]),
    "negative": (
        "2013-10-07T13:32:00Z,1671,1671.00,-1670,1670.25,1",
        ["'low' = '-1670'", "not positive"],
    ),
    "off tick": (
        "2013-10-07T13:32:00Z,1671.00,1671.10,1670.00,1670.25,1",
        ["'high' = '1671.10'", "off the tick of ES (0.25)"],
    ),
    "huge": (
        "2013-10-07T13:32:00Z,1671.00,500000000,1670.00,1670.25,1",
        ["'high' = '500000000'", "ticks, more than"],
    ),
    "volume": (
        "2013-10-07T13:32:00Z,1671.00,1671.00,1670.00,1670.25,-5",
        ["'volume' = '-5'", "negative volume"],
    ),
    "duplicate": (
        "2013-10-07T13:31:00Z,1671.00,1671.00,1670.00,1670.25,1",
        ["'time'", "a duplicate stamp"],
    ),
    "unsorted": (
        "2013-10-07T13:29:00Z,1671.00,1671.00,1670.00,1670.25,1",
        ["not sorted", "sort the file"],
    ),
    "jitter": (
        "2013-10-07T13:32:07Z,1671.00,1671.00,1670.00,1670.25,1",
        ["67 s after the row before", "file of 60 s bars"],
    ),
    "half second": (
        "2013-10-07T13:32:00.5Z,1671.00,1671.00,1670.00,1670.25,1",
        ["between whole seconds"],
    ),
    "slashes": ("10/07/2013 13:32:00Z,1671.00,1671.00,1670.00,1670.25,1", ["not a stamp"]),
    "mixed zones": (
        "2013-10-07T13:32:00,1671.00,1671.00,1670.00,1670.25,1",
        ["carry a time zone offset and some do not"],
    ),
}


@pytest.mark.parametrize("fault", CELL_FAULTS)
def test_a_bad_row_is_named_by_line_column_and_value(write, rows, fault):
    rows[2], fragments = CELL_FAULTS[fault]
    path = write(rows)
    refused(path, f"{path}:4:", "Fix: ", *fragments)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("2013-10-07T13:32:00Z,1671.00,1671.00", "3 fields where the"),
        ("2013-10-07T13:32:00Z,1671,1671,1670,1670,1,9", "7 fields where the"),
        ("", " fields where the"),
        ('"2013-10-07T13:32:00Z,1671,1671,1670,1670,1', "an unbalanced quote"),
        (HEADER, "the header line again"),
    ],
)
def test_lines_of_another_form_are_refused(write, rows, row, fault):
    rows[2] = row
    path = write(rows)
    refused(path, f"{path}:4:", fault)


HEADER_FAULTS = {
    "missing": (
        "time,open,high,low,closing,volume",
        ["no column 'close'", "data.columns={close: NAME}", "could be closing"],
    ),
    "one unused number": (
        "time,open,high,low,settle,volume",
        ["no column 'close'", "NAME could be settle: the one"],
    ),
    "two missing": (
        "time,open,high,bottom,settle,volume",
        [
            "no column 'low' for low",
            "no column 'close' for close",
            "set data.columns={close: NAME}",
        ],
    ),
    "no header": ("2013-10-07T13:29:00Z,1,1,1,1,1", [":1:", "no header line"]),
    "twins": ("time,open,high,low,low,volume", ["'low' appears twice"]),
    "date and time": (
        "date,time,high,low,close,open",
        ["could each be time", "columns named date and time"],
    ),
    "two candidates": ("time,open,o,high,low,close", ["could each be open"]),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_a_bad_header_is_explained(write, fault):
    header, fragments = HEADER_FAULTS[fault]
    refused(write(header=header), *fragments)


OPTION_FAULTS = {
    "stamp": ({"stamp": None}, ["open or its close", "data.stamp=open"]),
    "unknown field": (
        {"columns": {"opne": "open"}},
        ["unknown field 'opne'", "did you mean 'open'"],
    ),
    "mapped column absent": ({"columns": {"close": "last"}}, ["no column 'last' for close"]),
    "no expiry column": ({"expiry": "201312"}, ["no expiry or symbol column"]),
    "no such date": (
        {"start": "2014-01-01"},
        ["no bars of trade dates 2014-01-01", "2013-10-07..2013-10-07"],
    ),
    "bad zone": ({"time_zone": "New York"}, ["unknown time zone 'New York'", "America/New_York"]),
    "bad shift": (
        {"time_zone": "America/New_York+7"},
        ["unknown time zone 'America/New_York+7'", "York+7h"],
    ),
}


@pytest.mark.parametrize("fault", OPTION_FAULTS)
def test_what_is_not_stated_is_asked_for(write, fault):
    options, fragments = OPTION_FAULTS[fault]
    refused(write(), *fragments, **options)


def test_no_time_zone(write, rows):
    refused(
        write([row.replace("Z", "") for row in rows]),
        ":2:",
        "no time zone",
        "data.time_zone=America/New_York",
    )


def test_numeric_stamps_between_seconds(write, rows):
    lines = [
        f"{(1381152600 + 60 * i) * 1000 + (i == 2) * 500}{row[20:]}" for i, row in enumerate(rows)
    ]
    path = write(lines)
    refused(path, f"{path}:4:", "= '1381152720500'", "between whole seconds")


@pytest.mark.parametrize("stamp", ["2013-11-03 01:30:00", "2013-03-10 02:30:00"])
def test_hours_that_daylight_saving_repeats_or_skips(write, rows, stamp):
    refused(
        write([stamp + rows[0][20:], stamp[:-4] + "1:00" + rows[1][20:]]),
        "twice or never in America/New_York",
        time_zone="America/New_York",
    )


INSTRUMENT_FAULTS = {
    "spread": (
        "symbol",
        ["ESZ3"] * 5 + ["ESZ3-ESH4"],
        ["a calendar spread is mixed in (1 rows)", "'ESZ3-ESH4'", ":7:"],
    ),
    "expiry spread": (
        "expiry",
        ["201312"] * 5 + ["201312-201403"],
        ["a calendar spread is mixed in"],
    ),
    "two symbols": (
        "symbol",
        ["ESZ3"] * 4 + ["ESH4"] * 2,
        ["holds 2 contracts: ESZ3 (4 rows), ESH4 (2 rows)", "data.expiry=ESZ3", "data.roll"],
    ),
    "two expiries": (
        "expiry",
        ["201312"] * 3 + ["201403"] * 3,
        ["holds 2 contracts", "data.expiry="],
    ),
    "another product": (
        "symbol",
        ["NQZ3"] * 6,
        ["these are NQ bars but data.market is ES", "'NQZ3'"],
    ),
}


@pytest.mark.parametrize("fault", INSTRUMENT_FAULTS)
def test_one_file_is_one_contract_of_the_market(write, rows, fault):
    column, values, fragments = INSTRUMENT_FAULTS[fault]
    lines = [f"{row},{value}" for row, value in zip(rows, values, strict=True)]
    refused(write(lines, header=f"{HEADER},{column}"), *fragments)


SEVERAL = "if the file holds several contracts, add an expiry or symbol column and set data.expiry"


@pytest.mark.parametrize("minutes", [(30, 30, 31, 31, 32, 32), (30, 31, 32, 30, 31, 32)])
@pytest.mark.parametrize("symbol", [False, True])
def test_contracts_that_no_column_tells_apart(write, rows, minutes, symbol):
    lines = [
        f"2013-10-07T13:{m}:00Z{row[20:]}{',ESZ3' if symbol else ''}"
        for m, row in zip(minutes, rows, strict=True)
    ]
    message = refused(write(lines, header=f"{HEADER}{',symbol' if symbol else ''}"), "Fix: ")
    assert (SEVERAL in message) is not symbol
    assert ("data.expiry" in message) is not symbol


def test_a_spread_can_be_named_out_of_the_file(write, rows):
    lines = [f"{row},ESZ3" for row in rows] + [f"{rows[-1].replace('13:35', '13:36')},ESZ3-ESH4"]
    bars = read_es(write(lines, header=f"{HEADER},symbol"), expiry="ESZ3")
    assert len(bars) == 6


def test_an_expiry_that_is_not_there_lists_those_that_are(write, rows):
    refused(
        write([f"{row},201312" for row in rows], header=f"{HEADER},expiry"),
        "no row of contract '201406'",
        "one of 201312",
        expiry="201406",
    )


@pytest.mark.parametrize("market", ["NQ", "YM", "RTY", "MNQ"])
def test_prices_that_contradict_the_market_are_refused(write, rows, market):
    whole = [
        ",".join([c[0], "1670", "1671", "1669", "1670", c[5]])
        for c in (row.split(",") for row in rows)
    ]
    refused(
        write(whole),
        f"bars of 2013 contradict {market}",
        "they fit ES",
        "data.market",
        contract=get_contract(market),
    )


def test_prices_a_little_outside_the_known_range_are_a_warning(write, rows):
    """The ranges are of one feed and contract; a wrong market is off by far more."""
    low, high = ES.price_range(2013)
    edge = np.ceil(low) - 1
    rows[2] = f"2013-10-07T13:32:00Z,{edge + 1},{edge + 1},{edge},{edge + 1},1"
    [said] = [note for note in read_es(write(rows)).notes if note.startswith("WARNING: ")]
    assert not missing(said, "1 of 6 bars of 2013", f"between {low:.2f} and {high:.2f}", " %")
    far = np.floor(low * 0.94)
    rows[2] = f"2013-10-07T13:32:00Z,{far},{far},{far},{far},1"
    message = refused(write(rows), f"'low' = '{far}'", "1 of 6 bars", "% outside")
    name, own = "--contract my_es.yaml", message.partition("echo '")[2].partition("' >")[0]
    assert name in message
    path = write([])
    path.with_name("my_es.yaml").write_text(own)
    contract = load_contract(str(path.with_name("my_es.yaml")))
    assert contract == replace(ES, price_ranges=())
    assert len(load_bars(write(rows), contract, stamp="open")) == 6


@pytest.mark.parametrize("symbol", CONTRACTS)
def test_the_contract_file_of_the_message_is_that_of_the_market(symbol, tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CONTRACTS[symbol].file_text())
    assert load_contract(str(path)) == replace(CONTRACTS[symbol], price_ranges=())


@pytest.mark.parametrize(
    ("symbol", "price", "scale", "fix"),
    [
        ("GBPUSD", 160_000, 1.0, "0.00001"),
        ("USDJPY", 98_000, 1.0, "0.001"),
        ("USDJPY", 98_000, 0.00001, "0.001"),
        ("GBPUSD", 0.016, 1.0, "100"),
    ],
)
def test_prices_in_another_unit_name_the_scale_and_its_key(write, rows, symbol, price, scale, fix):
    whole = [",".join([row.split(",")[0], *[f"{price}"] * 4, "1"]) for row in rows]
    refused(
        write(whole),
        f"6 of 6 bars of 2013 contradict {symbol}",
        f"if the file holds {symbol} in another unit, set data.price_scale={fix} (for this symbol alone, "
        f"data.per_market.{symbol}.price_scale={fix}); otherwise check data.market",
        contract=get_contract(symbol),
        price_scale=scale,
    )


def test_a_block_of_prices_a_hundred_times_too_small_is_refused(write, rows):
    rows[3] = "2013-10-07T13:33:00Z,16.75,16.75,16.50,16.50,2400"
    refused(write(rows), ":5:", "'low' = '16.50'", "1 of 6 bars of 2013 contradict ES")


def test_faults_are_collected_and_counted(write, rows):
    lines = [
        row.replace("2013-10-07T13:3", f"2013-10-07T1{h}:3").replace("1670.50,", "1670.55,")
        for h in range(10)
        for row in rows
    ]
    path = write(lines)  # 1670.55 is the second row's open in 10 copies, and (row one) a close
    off = [1 + i for i, line in enumerate(lines, start=1) if "1670.55" in line]
    message = refused(
        path,
        f"{path}:{off[0]}: column 'close'",
        f"... and {len(off) - 1} more rows like it",
        f"{path}: {sum(line.count('1670.55') for line in lines)} faults in all",
    )
    assert message.count("off the tick") == 1
    assert message.count("\n") == 1


def test_a_message_has_five_lines_at_most(write, rows):
    price = "1671.00,1671.00,1670.00,1670.25"
    rows[0] = f"2013-10-07T13:30:00Z,{price},-5"
    rows[1] = "2013-10-07T13:31:00Z,1671.00,1670.00,1670.50,1670.25,1"
    rows[2] = "2013-10-07T13:32:00Z,1671.00,1671.10,1670.00,1670.25,1"
    rows[3] = "2013-10-07T13:33:00Z,1671.00,1671.00,1670.00,1672.00,1"
    rows[4] = "2013-10-07T13:34:00Z,1669.00,1671.00,1670.00,1670.25,1"
    rows[5] = f"2013-10-07T13:34:00Z,{price},1"
    path = write(rows)
    lines = refused(path, "6 faults in all, 2 more kinds of them not shown").split("\n")
    assert [line.split(":")[1] for line in lines[:4]] == ["2", "3", "4", "5"]
    assert len(lines) == 5


def test_another_markets_quarter_ticks_are_reported_as_that_market(write, rows):
    """ES on the quarter point given as YM (whole points): the market is the fault, the ticks only
    follow from it.
    """
    message = refused(
        write(rows), "6 of 6 bars of 2013 contradict YM", "they fit ES", contract=get_contract("YM")
    )
    assert "\n" not in message


def test_oil_below_zero_is_refused_with_the_reason(write, rows):
    lines = [
        row.replace("2013-10-07", "2020-04-20").split(",")[0] + ",-3.00,-2.50,-37.63,-10.01,5"
        for row in rows
    ]
    refused(
        write(lines),
        "'low' = '-37.63'",
        "oil in April 2020",
        "another expiry",
        contract=get_contract("CL"),
    )


def test_files_that_are_none(tmp_path):
    refused(tmp_path / "none.csv", "no such file", "data.file")
    refused(tmp_path, "is a directory")
    empty = tmp_path / "empty.csv"
    empty.touch()
    refused(empty, "is empty")


BYTES = {
    "utf16": (HEADER.encode("utf-16") + b"x", ["UTF-16", "UTF-8"]),
    "binary": (b"\x89PNG\r\n\x00\x01", ["not text"]),
    "latin": (b"time,open\n\xff\xfe\xfd", ["not UTF-8"]),
    "page": (b"<!DOCTYPE html><html>", ["HTML"]),
    "header alone": (HEADER.encode() + b"\n", ["0 bars: too few"]),
    "one bar": (
        HEADER.encode() + b"\n2013-10-07T13:30:00Z,1670,1670,1670,1670,1\n",
        ["1 bars: too few"],
    ),
    "blank": (b"\n\n", ["is empty"]),
    "parquet cut": (b"PAR1 and then nothing", ["cannot be read as Parquet"]),
}


@pytest.mark.parametrize("fault", BYTES)
def test_bytes_that_are_not_bars(tmp_path, fault):
    content, fragments = BYTES[fault]
    path = tmp_path / "bars.csv"
    path.write_bytes(content)
    refused(path, *fragments)


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_gzip_is_not_read_halfway(tmp_path, write, rows, damage):
    packed = bytearray(gzip.compress(write(rows * 50).read_bytes()))
    path = tmp_path / "bars.csv.gz"
    if damage == "flip":
        packed[-6] ^= 1  # the stored checksum
    path.write_bytes(bytes(packed[:-20] if damage == "cut" else packed))
    refused(path, "cut or damaged", "download the file again")


def test_daily_bars_are_refused(write, rows):
    lines = [
        row.replace("2013-10-07T13:3" + str(i), f"2013-10-{7 + i:02d}T13:30")
        for i, row in enumerate(rows)
    ]
    refused(write(lines), "step between bars is 86400 s", "intraday")


def test_parquet_has_rows_and_no_lines(tmp_path, write, rows):
    frame, path = pd.read_csv(write(rows)), tmp_path / "bars.parquet"
    frame.loc[2, "high"] = 1671.1
    frame.to_parquet(path)
    refused(path, f"{path}: row 2 (0-based): column 'high' = '1671.1': off the tick")


@pytest.mark.slow
def test_random_edits_are_refused_or_read_as_valid_bars(tmp_path, write):
    """Whatever a byte edit does, the reader answers with DataError or with sorted, consistent
    bars.
    """
    good, rng, path = write().read_bytes(), random.Random(1), tmp_path / "edited.csv"
    refusals = 0
    for _ in range(400):
        edited = bytearray(good)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(edited))
            edited[at : at + rng.randrange(2)] = bytes(
                [rng.choice(b'0123456789.,-:TZ;"\n\r\t eEna\x00\xff')]
            )
        path.write_bytes(bytes(edited))
        try:
            bars = read_es(path, time_zone=rng.choice([None, "America/New_York"]))
        except DataError:
            refusals += 1
            continue
        assert_valid(bars)
        assert (np.diff(bars.time) > 0).all()
    assert 200 < refusals < 400


@pytest.mark.parametrize("year", [2101, 2597, 9999])
def test_a_stamp_of_a_far_year_is_refused_in_every_resolution(tmp_path, write, rows, year):
    """Years after 2262 do not fit in nanoseconds: they were refused for fractions of a second,
    NumPy 2.5 raises.
    """
    far = [f"{year}{row[4:]}" for row in rows]
    refused(write(far), ":2:", f"'{year}-", "outside 1990-2100")
    frame = pd.read_csv(write(far))
    naive = pd.to_datetime(frame["time"].str.rstrip("Z"), format="ISO8601")
    for unit in ("s", "ms", "us"):
        frame["time"] = naive.dt.as_unit(unit)
        with pytest.raises(DataError, match=f"column 'time' = '{year}-"):
            read_es(frame, time_zone="UTC")


def test_a_missing_stamp_in_a_frame_is_not_called_daylight_saving(write, rows):
    frame = pd.read_csv(write(rows))
    frame["time"] = pd.to_datetime(frame["time"]).dt.tz_localize(None)
    frame.loc[3, "time"] = pd.NaT
    with pytest.raises(DataError, match=r"row 3 \(0-based\): .*'time' = 'NaT'"):
        read_es(frame, time_zone="UTC")
