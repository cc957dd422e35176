"""Vendors' layouts: the bundled bars, written as a vendor writes them, are read back bar for bar.

What a layout leaves open (time zone, stamp side) is asked for with the usual values, and never
guessed.
"""

import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.data.contracts import get_contract, load_contract
from jaxtrade.data.formats.recognise import head_of, recognise
from jaxtrade.data.read import tabular
from jaxtrade.data.read.bars import from_frame, load_bars, load_bundled
from jaxtrade.data.read.tabular import table_of_frame
from jaxtrade.errors import DataError
from tests import vendors
from tests.data.conftest import assert_same, read_es
from tests.data.real_seconds import SPY_KEYS
from tests.messages import missing

ES, EURUSD = get_contract("ES"), get_contract("EURUSD")
SERVER = "America/New_York+7h"
FIELDS = ("time", "open", "high", "low", "close", "volume")


@pytest.fixture(scope="module")
def es(es_bars):
    """Two sessions of minutes."""
    return es_bars.between("2013-10-07", "2013-10-08")


@pytest.fixture(scope="module")
def eurusd():
    """Hours with bid and ask, over the change of New York's clock on 2013-11-03."""
    return load_bundled(EURUSD, start="2013-10-28", end="2013-11-08")


@pytest.fixture
def put(tmp_path):
    def _put(content, name="bars.csv"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return _put


def refusal(path, contract=ES, **options):
    with pytest.raises(DataError) as error:
        load_bars(path, contract, **options)  # type: ignore[arg-type]
    return str(error.value)


def dated(names, form):
    """A file with own columns of dates and times, in a form of `strftime`."""
    return lambda bars: vendors.plain(bars, names, lambda at: f"{at:{form}}")


# (how it is written, what must be stated, the beginning of the note that says how it is read)
TRADES = {
    "mt5": (
        vendors.mt5,
        {"time_zone": SERVER},
        "read as an MT5 export: stamps name a bar's open, in America/New_York+7h (as stated)",
    ),
    "mt4": (
        vendors.mt4,
        {"time_zone": SERVER},
        "read as an MT4 export (also HistData's): stamps name a bar's open",
    ),
    "ninjatrader": (
        vendors.ninjatrader,
        {"time_zone": "UTC", "stamp": "close"},
        "read as a NinjaTrader or HistData "
        "file: stamps name a bar's close (as stated), in UTC (as stated)",
    ),
    "histdata": (
        vendors.histdata,
        {"time_zone": "Etc/GMT+5", "stamp": "open"},
        "read as a NinjaTrader or HistData",
    ),
    "databento": (
        vendors.databento,
        {},
        "read as a Databento file: stamps name a bar's open, in UTC",
    ),
    "databento integers": (
        lambda bars: vendors.databento(bars, pretty=False),
        {},
        "read as a Databento file: stamps name a bar's open, in UTC, prices in units of 1e-09",
    ),
    "yfinance": (
        vendors.yahoo,
        {"stamp": "open"},
        "read as a yfinance file of ES=F: stamps name a bar's open",
    ),
    "binance": (vendors.binance, {}, "read as Binance klines: stamps name a bar's open, in UTC"),
    "binance microseconds without header": (
        lambda bars: vendors.binance(bars, False, True),
        {},
        "read as Binance klines",
    ),
    "date and time": (
        dated("Date,Time", "%Y-%m-%d,%H:%M"),
        {"time_zone": "UTC", "stamp": "open"},
        "read as bars with separate date and time columns",
    ),
    "compact date and time": (
        dated("DATE,TIME", "%Y%m%d,%H%M%S"),
        {"time_zone": "UTC", "stamp": "open"},
        "read as bars with separate date and time",
    ),
    "day first": (
        dated("date,time", "%d.%m.%Y,%H:%M:%S"),
        {"time_zone": "UTC", "stamp": "open", "date_order": "dmy"},
        "read as bars with separate date",
    ),
    "one digit": (
        dated("date,time", "%-m/%-d/%Y,%H:%M"),
        {"time_zone": "UTC", "stamp": "open", "date_order": "mdy"},
        "read as bars with separate date",
    ),
    "open_time": (
        dated("open_time", "%Y-%m-%d %H:%M:%S+00:00"),
        {},
        "read as bars with a column open_time: stamps name a bar's open",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRADES)
def test_a_vendors_minutes_are_the_bars_they_were_written_from(es, put, name):
    write, stated, note = TRADES[name]
    bars = load_bars(put(write(es)), ES, **stated)
    assert_same(bars, es)
    assert bars.notes[0].startswith(note), bars.notes
    assert any("spread" in each for each in bars.notes) == (name == "mt5")


UNUSED = (
    "(median 1) is not used: fills pay costs.slippage, in ticks per side, which stands for half the spread; for "
    "fills at real quotes give bid and ask bars (data.quotes)"
)


def test_a_column_of_spreads_is_said_to_be_unused(es, put):
    bars = load_bars(put(vendors.mt5(es)), ES, time_zone=SERVER)
    assert bars.notes[1] == f"column '<SPREAD>' {UNUSED}"
    text = dated("time", "%Y-%m-%dT%H:%MZ")(es.rows(slice(0, 50))).decode()
    head, *rows = text.splitlines()

    def notes(name, cells):
        lines = [
            f"{head},{name}",
            *(f"{row},{cell}" for row, cell in zip(rows, cells, strict=True)),
        ]
        return read_es(put("\n".join(lines).encode())).notes

    assert f"column 'Spread' {UNUSED}" in notes("Spread", ["1", ""] * 25)
    assert any("'spread' is not used" in note for note in notes("spread", [""] * 50))


@pytest.mark.parametrize(
    "name",
    [
        "mt5",
        "mt4",
        "ninjatrader",
        "databento",
        "databento integers",
        "binance",
        "compact date and time",
        "day first",
    ],
)
def test_common_vendors_are_read_fast(es, put, name, monkeypatch):
    """No cell becomes a Python string: text stays with pyarrow, and no line is looked at alone."""

    def never(*_):
        raise AssertionError("read by lines")

    monkeypatch.setattr(tabular, "_check_lines", never)
    monkeypatch.setattr(pd, "to_numeric", never)
    write, stated, _ = TRADES[name]
    path = put(write(es))
    assert set(tabular.read_table(path).data.schema.types) == {pa.large_string()}
    assert len(load_bars(path, ES, **stated)) == len(es)


QUOTES = {
    "fxcm": (vendors.fxcm, {"time_zone": "UTC", "stamp": "open"}),
    "fxcm of the python client": (
        lambda bars: vendors.fxcm(
            bars,
            "date,bidopen,bidhigh,bidlow,bidclose,askopen,askhigh,asklow,askclose",
            lambda at: f"{at:%Y-%m-%d %H:%M:%S}",
        ),
        {"time_zone": "UTC", "stamp": "open"},
    ),
    "lean hours": (vendors.lean_hours, {"time_zone": "UTC"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUOTES)
def test_quotes_of_vendors_have_two_sides(eurusd, put, name):
    write, stated = QUOTES[name]
    assert_same(load_bars(put(write(eurusd)), EURUSD, **stated), eurusd, volume=False)


# --- what is asked for ---------------------------------------------------------------------------------------------

ASKED = {
    "mt5": (
        {},
        [
            "read as an MT5 export; the file does not say the time zone of its stamps",
            "UTC+2, and UTC+3 in New York's summer",
            f"--set data.time_zone={SERVER}",
            "data.time_zone=UTC",
        ],
    ),
    "ninjatrader": (
        {},
        [
            "the time zone of its stamps nor whether a stamp names a bar's open or its close",
            "settings, often UTC): --set data.time_zone=UTC --set data.stamp=close",
            "HistData: --set data.time_zone=Etc/GMT+5 --set data.stamp=open",
        ],
    ),
    "histdata": (
        {"time_zone": "Etc/GMT+5"},
        ["does not say whether a stamp names", "HistData: --set data.stamp=open"],
    ),
    "yfinance": (
        {},
        ["read as a yfinance file; the file does not say whether", "Yahoo: --set data.stamp=open"],
    ),
    "mt4": ({}, ["read as an MT4 export", f"--set data.time_zone={SERVER}"]),
    "date and time": ({}, ["it is not stated whether stamps name a bar's open or its close"]),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_layout_leaves_open_is_asked_with_its_usual_values(es, put, name):
    options, parts = ASKED[name]
    message = refusal(put(TRADES[name][0](es)), **options)
    assert not missing(message, *parts)
    assert message.count("\n") == 0


def test_fxcm_and_lean_quotes_ask_for_the_time_zone(eurusd, put):
    message = refusal(put(vendors.fxcm(eurusd)), EURUSD)
    assert not missing(message, "FXCM", "data.time_zone=UTC", "data.stamp=open")
    assert "data.time_zone=UTC" in refusal(put(vendors.lean_hours(eurusd)), EURUSD)


def test_what_the_user_states_overrides_the_format_and_the_note_says_so(es, put):
    bars = load_bars(put(vendors.databento(es)), ES, stamp="close")
    assert (bars.time == es.time - 60).all()
    assert not missing(bars.notes[0], "Databento", "close (as stated", "says open")


# Names of our own: no vendor's layout says in which order their dates are.
NAMES = "time,bid_open,bid_high,bid_low,bid_close,ask_open,ask_high,ask_low,ask_close"


@pytest.mark.parametrize(
    ("form", "shown"), [("%d/%m/%Y %H:%M", "day first"), ("%m/%d/%Y %H:%M", "month first")]
)
def test_a_day_above_12_shows_which_number_is_the_month(eurusd, put, form, shown):
    """2013-10-28 .. 2013-11-08: the file shows the order itself, and a note says so."""
    path = put(vendors.fxcm(eurusd, NAMES, lambda at: f"{at:{form}}"))
    bars = load_bars(path, EURUSD, time_zone="UTC", stamp="open")
    assert_same(bars, eurusd, volume=False)
    assert any(shown in note for note in bars.notes)


def test_a_date_of_unknown_order_is_refused(es, put):
    path = put(dated("time", "%m/%d/%Y %H:%M")(es))
    message = refusal(path, time_zone="UTC", stamp="open")
    assert f"{path}:2: column 'time' = '10/06/2013 22:00'" in message
    assert "data.date_order=mdy" in message


# --- single vendors ------------------------------------------------------------------------------------------------


def test_mt5_takes_tick_volume_where_there_is_no_other(es, put):
    bars = load_bars(put(vendors.mt5(es, real_volume=False)), ES, time_zone=SERVER)
    assert_same(bars, es)
    assert any(not missing(note, "<TICKVOL>", "<VOL> is 0") for note in bars.notes)
    chosen = load_bars(put(vendors.mt5(es)), ES, time_zone=SERVER, columns={"volume": "<TICKVOL>"})
    assert set(chosen.volume) == {7.0}


def test_mt5_in_utf16_and_with_commas(es, put):
    """MetaTrader's "save as" writes UTF-16; some tools write commas."""
    text = vendors.mt5(es).decode()
    for content in (text.encode("utf-16"), text.replace("\t", ",").encode()):
        assert_same(load_bars(put(content), ES, time_zone=SERVER), es)


def test_mt5_days_are_refused_as_days(put):
    rows = "".join(
        f"2013.10.{day:02d}\t1676.00\t1680.00\t1670.00\t1675.00\t9\t9\t1\n" for day in range(7, 12)
    )
    path = put(
        ("<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\n" + rows).encode()
    )
    assert "86400 s" in refusal(path, time_zone="UTC")


def test_faults_in_a_vendors_file_name_its_lines_and_columns(es, put):
    text = vendors.mt5(es).decode().splitlines(keepends=True)
    text[7] = text[7].replace(text[7].split("\t")[4], "1.00", 1)
    path = put("".join(text).encode())
    assert f"{path}:8: column '<LOW>' = '1.00'" in refusal(path, time_zone=SERVER)
    broken = vendors.ninjatrader(es).decode().splitlines(keepends=True)
    broken[5] = "20131006 220600;1676\n"
    path = put("".join(broken).encode())
    assert f"{path}:6: 2 fields where line 1 has 6" in refusal(path, time_zone="UTC", stamp="close")


def test_databento_several_instruments_are_chosen_by_symbol(es, put):
    """A parent symbol's file holds each expiry, and spreads between them."""
    far = es.rows(slice(0, 500))
    both = vendors.databento(es) + vendors.databento(far, "ESH4", header=False)
    path = put(both)
    message = refusal(path)
    assert not missing(message, "'symbol'", f"ESZ3 ({len(es)} rows)", "ESH4 (500 rows)")
    assert_same(load_bars(path, ES, expiry="ESZ3"), es)
    assert_same(load_bars(path, ES, expiry="ESH4"), far)
    spread = put(both + vendors.databento(far, "ESZ3-ESH4", header=False))
    assert "calendar spread is mixed" in refusal(spread)
    message = refusal(put(vendors.databento(es)), get_contract("NQ"))
    assert not missing(message, "ES bars", "data.market is NQ")


def test_databento_without_symbols_tells_instruments_apart(es, put):
    text = vendors.databento(es).decode().replace(",symbol\n", "\n").replace(",ESZ3\n", "\n")
    assert_same(load_bars(put(text.encode()), ES), es)
    mixed = text + text.partition("\n")[2].replace(",5482,", ",77,")
    assert "'instrument_id' holds 2" in refusal(put(mixed.encode()))
    assert_same(load_bars(put(mixed.encode()), ES, expiry="77"), es)


@pytest.mark.parametrize(
    ("column", "old", "new", "what"),
    [
        ("rtype", ",33,1,", ",32,1,", "lengths of bars"),
        ("publisher_id", ",33,1,", ",33,2,", "venues"),
    ],
)
def test_databento_mixed_schemas_and_venues_are_refused(es, put, column, old, new, what):
    text = vendors.databento(es).decode()
    mixed = text + text.partition("\n")[2].replace(old, new)
    assert f"column '{column}' holds 2 {what}" in refusal(put(mixed.encode()))


def test_databento_frames_and_parquet(es, tmp_path):
    """`to_df()` gives the stamps as the index, with a zone, and decimal prices."""
    prices = {name: getattr(es, name) * 0.25 for name in FIELDS[1:5]}
    frame = pd.DataFrame(
        {"rtype": 33, "publisher_id": 1, "instrument_id": 5482, **prices, "symbol": "ESZ3"},
        index=pd.to_datetime(es.time, unit="s", utc=True).rename("ts_event"),
    ).assign(volume=es.volume.astype(np.uint64))
    assert_same(from_frame(frame, ES), es)
    frame.to_parquet(tmp_path / "bars.parquet")
    assert_same(load_bars(tmp_path / "bars.parquet", ES), es)


def test_yfinance_frames_as_they_come(es):
    """Two levels of column names, in both orders, and an index in any zone."""
    frame = vendors.yahoo_frame(es, zone="America/New_York")
    assert_same(read_es(frame), es)
    assert_same(read_es(frame.swaplevel(axis=1)), es)
    assert_same(read_es(frame.droplevel("Ticker", axis=1)), es)
    with pytest.raises(DataError, match=r"open or its close"):
        from_frame(frame, ES)


def test_frames_and_files_of_several_tickers_are_refused(es, put):
    both = pd.concat([vendors.yahoo_frame(es), vendors.yahoo_frame(es, "NQ=F")], axis=1)
    with pytest.raises(DataError, match=r"ES=F, NQ=F\..*\('ES=F'"):
        table_of_frame(both, "frame")
    message = refusal(put(both.to_csv().encode()), stamp="open")
    assert "Close ES=F" in message
    columns = {
        name: f"{name.capitalize()} NQ=F" for name in ("open", "high", "low", "close", "volume")
    }
    assert_same(read_es(put(both.to_csv().encode()), columns=columns), es)


def test_yahoos_32_bit_prices_are_read_to_their_tick(eurusd, put):
    """1.36543 is 1.3654299974441528 as a 32-bit float: not on the tick of 0.00001, but nothing else
    can be meant.
    """
    bid = eurusd.sides[0]
    bars = load_bars(put(vendors.yahoo(bid, "EURUSD=X")), EURUSD, stamp="open")
    assert_same(bars, bid)
    assert any("32-bit" in note for note in bars.notes)
    assert_same(from_frame(vendors.yahoo_frame(bid, "EURUSD=X"), EURUSD, stamp="open"), bid)


def test_32_bit_prices_off_the_tick_are_refused(eurusd):
    frame = vendors.yahoo_frame(eurusd.sides[0], "EURUSD=X").droplevel("Ticker", axis=1)
    frame.iloc[3, 0] = float(np.float32(frame.iloc[3, 0] + 0.000004))
    with pytest.raises(DataError, match=r"the tick of EURUSD"):
        from_frame(frame, EURUSD, stamp="open")


def test_binance_in_a_zip(es, put):
    assert_same(
        load_bars(put(vendors.zipped({"ES-1m-2013-10.csv": vendors.binance(es)}), "b.zip"), ES), es
    )


# --- LEAN ----------------------------------------------------------------------------------------------------------


def test_lean_days_of_a_future_in_one_zip(es, put):
    """One file per UTC date; the expiry is in the names, and prices have decimals."""
    days = vendors.lean_days(es, "es", expiry="_201312_20131220")
    assert list(days) == [
        f"201310{day}_es_minute_trade_201312_20131220.csv" for day in ("06", "07", "08")
    ]
    path = put(vendors.zipped(days), "es.zip")
    assert "data.time_zone=UTC" in refusal(path)
    bars = load_bars(path, ES, time_zone="UTC")
    assert_same(bars, es)
    assert not missing(bars.notes[0], "LEAN bars of ES:", "open")
    far = vendors.lean_days(es, "es", expiry="_201403_20140321")
    several = put(vendors.zipped(days | far), "two.zip")
    assert "column 'expiry' holds 2 contracts" in refusal(several, time_zone="UTC")
    assert_same(load_bars(several, ES, time_zone="UTC", expiry="201403"), es)


def test_lean_quotes_of_fx(eurusd, put):
    days = vendors.lean_days(eurusd, "eurusd")
    bars = load_bars(put(vendors.zipped(days), "eurusd.zip"), EURUSD, time_zone="UTC")
    assert_same(bars, eurusd, volume=False)


def test_a_single_lean_day_by_its_file_name(es, put):
    name, content = next(iter(vendors.lean_days(es, "es", expiry="_201312_20131220").items()))
    day = es.rows(es.time < 1381104000)  # 2013-10-07 00:00 UTC
    assert_same(load_bars(put(content, name), ES, time_zone="UTC"), day)
    assert_same(load_bars(put(gzip.compress(content), f"{name}.gz"), ES, time_zone="UTC"), day)
    assert "'bars.csv' holds no" in refusal(put(content), time_zone="UTC")


def test_lean_shares_are_in_new_york_time_and_ten_thousandths(es, put):
    """Whole prices in a file without an expiry are shares times 10,000. The bars serve as shares
    with a tick of ES.
    """
    days = vendors.lean_days(es, "spy", "America/New_York", 10_000)
    bars = load_bars(put(vendors.zipped(days), "spy.zip"), ES)
    assert_same(bars, es)
    assert not missing(bars.notes[0], "LEAN", "shares of SPY", "open", "America/New_York", "0.0001")


@pytest.mark.parametrize(
    ("members", "part"),
    [
        ({}, "no .csv or .txt"),
        ({"a.csv": b"time,open\n", "b.csv": b"time,open\n"}, "holds 2 files (a.csv, b"),
        (
            {
                "20131007_es_minute_trade.csv": b"0,1,1,1,1,1\n",
                "20131008_nq_minute_trade.csv": b"0,1,1,1,1,1\n",
            },
            "es and nq",
        ),
        ({"20131307_es_minute_trade.csv": b"0,1,1,1,1,1\n"}, "'20131307' in a file's name"),
        (
            {"20131007_es_minute_trade.csv": b"86400000,1,1,1,1,1\n"},
            "not milliseconds since midnight",
        ),
    ],
)
def test_archives_that_are_not_bars(put, members, part):
    assert part in refusal(put(vendors.zipped(members), "x.zip"), stamp="open", time_zone="UTC")


def test_a_damaged_zip_is_refused(es, put):
    content = vendors.zipped({"b.csv": vendors.binance(es)})
    assert "archive is damaged" in refusal(put(content[:-200], "b.zip"))


def test_real_shares_of_lean_read_as_before_in_their_own_layout(shared, put):
    """Two real days of GOOG, taken apart into LEAN's daily files, are the bars of the joined
    file.
    """
    source = shared / "data" / "lean_us_equity" / "goog_minute_trade_x10000.csv.gz"
    goog = load_contract("GOOG")
    whole = load_bars(source, goog, **SPY_KEYS)
    days = vendors.lean_days(whole, "goog", "America/New_York", 10_000)
    assert_same(load_bars(put(vendors.zipped(days), "goog.zip"), goog), whole)


def test_the_page_lists_every_layout(es, eurusd):
    """docs/data.md has a row for the layout of every file that these tests write."""
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    listed = {
        line.split(" | ")[0].strip("| ") for line in page.splitlines() if line.startswith("| ")
    }
    few, hours = es.rows(slice(0, 5)), eurusd.rows(slice(0, 5))
    files = {name: write(few) for name, (write, *_) in TRADES.items()} | {
        name: write(hours) for name, (write, _) in QUOTES.items()
    }
    files |= vendors.lean_days(few, "es", expiry="_201312_20131220") | vendors.lean_days(
        few, "spy", scale=10_000
    )
    files["finam"] = (
        b"<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>\nES,1,20131007,093000,1,1,1,1\n"
    )
    found = {name: recognise(head_of(content, name)) for name, content in files.items()}
    titles = {layout.title for layout in found.values()}
    assert len(titles) == 13
    assert titles <= listed
    finam = found["finam"]
    assert (finam.naive, finam.time_zone, finam.stamp) == (True, None, None)
    assert found["finam"].columns["symbol"] == "<TICKER>"


WORDS = """
<DATE>,<TIME>,<OPEN>,<CLOSE>,<TICKVOL>,date,time,open,high,low,close,ts_event,rtype,instrument_id,Price,Ticker,Datetime,
open_time,close_time,2013.10.07,20131007 090000,09:30,34200000,1381152600000,1676.25,1,BidOpen,DateTime,\u00e9
"""
HEADS = st.lists(st.lists(st.sampled_from(re.split(",\n?|\n", WORDS)), max_size=13), max_size=5)


@settings(deadline=None, max_examples=300)
@given(HEADS, st.sampled_from([",", ";", "\t"]))
def test_any_beginning_of_a_file_is_looked_at_without_an_error(rows, separator):
    """What is recognised has columns of the file, or names for all of them."""
    raw = "\n".join(separator.join(row) for row in rows).encode()
    head = head_of(raw, "bars.csv")
    layout = recognise(head)
    names = layout.names or tuple(head.names)
    assert {*layout.columns.values(), layout.date, layout.clock} <= {*names, "volume", "time", ""}
