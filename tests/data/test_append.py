"""`jaxtrade data append`: two exports become one file, or nothing changes."""

import gzip
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.cli.entry import main
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read.bars import BROKER, load_bars, load_bundled
from tests import vendors
from tests.messages import missing

BUNDLED = resources.files("jaxtrade.data.bundled")
UTC = ["--set", "data.stamp=open"]
FEW = 60  # rows of the property test


def bundled(name):
    head, *rows = gzip.decompress((BUNDLED / name).read_bytes()).decode().splitlines()
    return head, rows


def put(path, head, rows):
    text = "\n".join([head, *rows, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def append(old, new, out=None, *words):
    return main(["data", "append", str(old), str(new), "--out", str(out or old), *(words or UTC)])


@pytest.fixture
def week(tmp_path):
    """The first 4,000 rows of ES, one contract, in two files that share 100 rows."""
    head, rows = bundled("es_1m_trade.csv.gz")
    old = put(tmp_path / "old.csv", head, rows[:2000])
    return old, put(tmp_path / "new.csv", head, rows[1900:4000]), head, rows


def same_bars(one, two, *names, **keys):
    a, b = (load_bars(path, *names, **{"stamp": "open", **keys}) for path in (one, two))
    assert a.legs == b.legs
    for name in ("time", "open", "high", "low", "close", "volume"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_the_whole_file_of_several_expiries(tmp_path, suffix):
    """Cut at a date, with the days between two dates in both files."""
    name = "es_1m_trade.csv.gz"
    head, rows = bundled(name)
    old = put(tmp_path / f"old.{suffix}", head, [row for row in rows if row < "2013-12-19"])
    new = put(tmp_path / "new.csv.gz", head, [row for row in rows if row >= "2013-12-03"])
    assert append(old, new) == 0
    with resources.as_file(BUNDLED / name) as whole:
        for keys in ({"roll": "volume"}, {"expiry": "201403"}):
            same_bars(old, whole, "ES", **keys)


def test_the_whole_file_of_an_fx_pair(tmp_path):
    name = "gbpusd_hour.csv.gz"
    head, rows = bundled(name)
    old, new = put(tmp_path / "a.csv.gz", head, rows[:30_000]), tmp_path / "b.csv"
    put(new, head, rows[29_000:])
    keys = ["time_zone=America/New_York+7h", "stamp=open", "price_scale=1e-5"]
    keys.append("columns={time: Date, volume: tick_volume}")
    words = [word for key in keys for word in ("--set", f"data.{key}")]
    assert append(old, new, tmp_path / "c.csv.gz", "--market", "GBPUSD", *words) == 0
    with resources.as_file(BUNDLED / name) as whole:
        same_bars(tmp_path / "c.csv.gz", whole, "GBPUSD", price_scale=1e-5, **BROKER)


def test_quotes_and_parquet(tmp_path, capsys):
    head, rows = bundled("eurusd_hour_bidask.csv.gz")
    frame = pd.DataFrame([row.split(",") for row in rows[:300]], columns=head.split(","))
    frame = frame.astype(dict.fromkeys(frame.columns[1:], float))
    frame["ts_utc"] = pd.to_datetime(frame["ts_utc"])
    paths = [tmp_path / f"{name}.parquet" for name in ("old", "new", "whole")]
    for path, part in zip(paths, (frame[:200], frame[150:], frame), strict=True):
        part.to_parquet(path)
    words = ["--market", "EURUSD", *UTC]
    assert append(*paths[:2], tmp_path / "joined.csv", *words) == 2
    assert ".parquet" in capsys.readouterr().err
    assert append(*paths[:2], None, *words) == 0
    same_bars(paths[0], paths[2], "EURUSD")
    assert pd.read_parquet(paths[0]).dtypes.equals(pd.read_parquet(paths[2]).dtypes)


def test_a_databento_order_with_spreads(tmp_path):
    """Rows belong together by time and symbol; those of spreads are joined as they are."""
    es = load_bundled(get_contract("ES"))

    def text(rows):
        part = es.rows(rows)
        ends = [vendors.databento(part, code, header=False) for code in ("ESH4", "ESZ3-ESH4")]
        return vendors.databento(part) + b"".join(ends)

    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_bytes(text(slice(0, 300)))
    new.write_bytes(text(slice(250, 500)))
    assert append(old, new) == 0
    assert sorted(old.read_bytes().splitlines()) == sorted(text(slice(0, 500)).splitlines())
    new.write_bytes(vendors.databento(es.rows(slice(250, 600)), pretty=False))
    assert append(old, new) == 2  # stamps and prices in other units


def test_bars_that_differ_are_counted_ten_are_listed_and_nothing_is_written(week, capsys):
    old, new, head, rows = week
    changed = rows[1900:4000]
    changed[10] = changed[10].rpartition(",")[0] + ",77"  # volume
    del changed[20]
    put(new, head, changed)
    before = old.read_bytes()
    assert append(old, new) == 2
    told, stamp = capsys.readouterr().err, rows[1910].partition(",")[0]
    volume = rows[1910].rpartition(",")[2]
    assert not missing(
        told,
        f"{new}: {stamp} 201312: column 'volume': found 77.0 (line 12), expected {volume}.0 (line 1912)",
        f"{rows[1920].partition(',')[0]} 201312: column 'row': found no bar, expected a bar (line 1922)",
        "2 differences",
    )
    put(new, head, [row.rpartition(",")[0] + ",0" for row in rows[1900:4000]])
    assert append(old, new) == 2
    told = capsys.readouterr().err
    assert (told.count("found 0.0 "), "100 differences" in told) == (10, True)
    assert old.read_bytes() == before
    assert sorted(path.name for path in old.parent.iterdir()) == ["new.csv", "old.csv"]


FAULTS = {
    "unsorted": (lambda rows: [rows[1], rows[0], *rows[2:]], ["new.csv:3", "not sorted"]),
    "twice": (lambda rows: [*rows, rows[-1]], ["new.csv:2102", "duplicate stamp"]),
    "NaN": (
        lambda rows: [*rows[:-1], "2013-10-10T15:00:00Z,201312,1690,1690,1690,nan,5"],
        ["new.csv:2101", "'close' = 'nan'"],
    ),
    "format": (
        lambda rows: [row.replace("T", " ") for row in rows],
        ["new.csv", "stamps", "0-0-0 0:0:0Z"],
    ),
    "half of it": (lambda rows: [*rows[:-1], rows[-1][:30]], ["new.csv:2101", "fields"]),
    "bar length": (lambda rows: rows[::2], ["seconds of its bars is 120"]),
    "empty": (lambda rows: [], ["no bars"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_file_as_it_was(week, capsys, fault):
    old, new, head, rows = week
    change, words = FAULTS[fault]
    put(new, head, change(rows[1900:4000]))
    before = old.read_bytes()
    assert append(old, new) == 2
    assert not missing(capsys.readouterr().err, *words)
    assert old.read_bytes() == before


def test_only_the_earlier_export_is_overwritten(week, capsys):
    old, new, head, rows = week
    other = old.with_name("other.csv")
    other.write_text("mine")
    for out in (other, new, old.with_name("other.parquet"), old.parent / "none" / "out.csv"):
        assert append(old, new, out) == 2
    assert other.read_text() == "mine"
    assert append(new, old, old.with_name("out.csv")) == 2  # the later export first
    assert not missing(capsys.readouterr().err, "a bar (line 2), expected no bar", "1,900 diff")
    put(new, head, rows[100:200])
    assert append(old, new) == 0
    assert "nothing to append" in capsys.readouterr().out
    assert old.read_text() == "\n".join([head, *rows[:2000], ""])


def test_an_error_of_the_disk_leaves_the_file_as_it_was(week, monkeypatch):
    old, new, *_ = week
    before = old.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert append(old, new) == 74
    assert old.read_bytes() == before
    assert sorted(path.name for path in old.parent.iterdir()) == ["new.csv", "old.csv"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cuts")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_two_cuts_make_the_whole(folder, data):
    """Cuts of the same rows, whatever they share, and with other ends of lines."""
    head, rows = bundled("es_1m_trade.csv.gz")
    end = data.draw(st.integers(1, FEW))
    begin = data.draw(st.integers(0, end))
    texts = [[head, *rows[:end]], [head, *rows[begin:FEW]]]
    ends = [data.draw(st.sampled_from(["\n", "\r\n"])) for _ in texts]
    last = [data.draw(st.booleans()) for _ in texts]
    old, new = folder / "old.csv", folder / "new.csv"
    for path, text, mark, ended in zip((old, new), texts, ends, last, strict=True):
        path.write_bytes((mark.join(text) + mark * ended).encode())
    if begin == FEW:  # nothing is left for the second file
        assert append(old, new) == 2
        return
    before, whole = old.read_bytes(), ends[0].join([head, *rows[:FEW], ""]).encode()
    assert append(old, new) == 0
    assert old.read_bytes() == (before if end == FEW else whole)


def test_each_row_keeps_its_end(week):
    old, new, head, rows = week
    text = "\r\n".join([head, *rows[:2]]) + "\n" + "\n".join(rows[2:2000])
    old.write_bytes(text.encode())
    assert append(old, new) == 0
    assert old.read_bytes() == (text + "\r\n" + "\r\n".join([*rows[2000:4000], ""])).encode()
