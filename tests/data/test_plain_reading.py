"""Columns of bytes and the line-by-line reader say the same: values, notes and faults."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read import cells as cells_module
from jaxtrade.data.read import lines as lines_module
from jaxtrade.data.read import tabular
from jaxtrade.data.read.bars import Bars, from_frame, load_bars
from jaxtrade.data.read.cells import Cells, decimals, labels, whole_numbers
from jaxtrade.data.read.faults import Faults
from jaxtrade.data.read.stamps import parse_stamps
from jaxtrade.data.read.tabular import Table, as_numbers, plain_table
from jaxtrade.errors import DataError
from tests.data.test_bars_faults import CELL_FAULTS, HEADER

ES = get_contract("ES")
HEAD = "time,open,high,low,close,volume"


def as_cells(texts: list[str], strip: bool = True) -> Cells:
    """Cells with a byte between them."""
    ends = np.cumsum([len(text.encode()) + 1 for text in texts]) - 1
    data = np.frombuffer("|".join(texts).encode() + b"|", np.uint8)
    return Cells(data, np.concatenate([[-1], ends[:-1]]), ends, 1, strip)


@pytest.fixture(params=["usual sizes", "small pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces: every file is read in several chunks and blocks."""
    if request.param == "small pieces":
        monkeypatch.setattr(lines_module, "CHUNK", 70)
        monkeypatch.setattr(cells_module, "BLOCK", 3)


# --- cells -----------------------------------------------------------------------------------------------------------

NUMBER_TEXT = st.one_of(
    st.text(alphabet="0123456789.-+eE ", max_size=20),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(min_value=0, max_value=10**9, places=4).map(str),
    st.integers(0, 10**17).map(str),
    st.sampled_from(
        [
            "",
            ".",
            "5.",
            ".5",
            "1..2",
            "nan",
            "inf",
            "1_000",
            "1,5",
            "0x10",
            "\u00bd",
            "\u0663",
            "00.50",
        ]
    ),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(NUMBER_TEXT, min_size=1, max_size=12))
def test_decimals_are_those_of_pandas_or_left_to_it(texts):
    cells = as_cells(texts)
    values, read = decimals(cells)
    expected = as_numbers(pd.Series([text.strip() for text in texts], dtype=str))
    np.testing.assert_array_equal(values[read], expected[read])
    np.testing.assert_array_equal(Table("", {"x": cells}, None).numbers("x"), expected)


def test_plain_decimals_are_read_here():
    """1/3 has no exact double; 2**53 + 1 has 16 digits."""
    values, read = decimals(
        as_cells(["4", "1670.25", "0.3333333333", "9007199254740993", "-1", " 1"])
    )
    assert read.tolist() == [True, True, True, False, False, False]
    assert values[:3].tolist() == [4.0, 1670.25, 0.3333333333]


@settings(deadline=None)
@given(
    st.lists(st.text(alphabet="ab \u00e9\U0001f600Z12345", max_size=20), min_size=1, max_size=20),
    st.booleans(),
)
def test_labels_are_the_texts(texts, strip):
    found, codes = labels(as_cells(texts, strip))
    assert [found[code] for code in codes] == [text.strip() if strip else text for text in texts]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9 * 10**18 - 1), min_size=1, max_size=20))
def test_whole_numbers_are_exact(numbers):
    found = whole_numbers(as_cells([str(number) for number in numbers]))
    assert found is not None
    assert found.tolist() == numbers


@pytest.mark.parametrize("text", ["", "1.0", "-1", " 1", "1e3", "9" * 19, "1" * 20, "x"])
def test_whole_numbers_are_all_or_none(text):
    assert whole_numbers(as_cells(["12", text])) is None


# --- stamps ----------------------------------------------------------------------------------------------------------

ODD_STAMPS = (
    "2013-02-29 10:00:00",
    "2013-13-01 10:00:00",
    "2013-10-07 24:00:00",
    "2013-10-07 10:60:00",
    "2013-10-07 10:00:60",
    "2013-10-07 10:00:00.5",
    "2013-10-07",
    "20131007 10:00:00",
    "1381152600",
    "",
    "2013-10-07 10:00:00Z",
    "2013-10-07 10:00:00+25:00",
    "2013-10-07 10:00:00 -04:00",
    "0001-01-01 10:00:00",
    "2013-11-03 01:30:00",
    "2013-03-10 02:30:00",
    "1985-01-01 10:00:00",
    "2013-1-07 10:00:00",
    "x",
    "nan",
    "2013-10-07 1:30:00",
    "2013/10/07 10:00:00",
    "2300-01-01 10:00:00",
    "2013-10-07 10:00:00+04:61",
)


@st.composite
def stamp_column(draw: Any) -> list[str]:
    """Stamps of one form, and perhaps some of any other form."""
    form = draw(
        st.sampled_from(
            [
                "%Y-%m-%d %H:%M:%S",
                "%Y-%m-%dT%H:%M:%S",
                "%Y-%m-%dT%H:%M",
                "%Y-%m-%d %H:%M:%S.000",
                "%Y-%m-%d",
                "%Y%m%dT%H%M%S",
                "%Y-%m-%d %H:%M:%S.123456",
            ]
        )
    )
    ends = draw(
        st.sampled_from(
            [("",), ("Z",), ("+00:00",), ("-04:00", "-05:00"), ("+0530",), ("-04",), ("", "Z")]
        )
    )
    times = draw(st.lists(st.integers(631_152_000, 4_000_000_000), min_size=1, max_size=8))
    texts = [
        pd.Timestamp(at, unit="s").strftime(form) + draw(st.sampled_from(ends)) for at in times
    ]
    for odd in draw(st.lists(st.sampled_from(ODD_STAMPS), max_size=2)):
        texts.insert(draw(st.integers(0, len(texts))), odd)
    return texts


def stamps_or_message(table: Table, zone: str | None) -> tuple[Any, list[str], str]:
    faults, notes = Faults("file.csv"), list[str]()
    rows = np.arange(len(table))
    try:
        found = parse_stamps(table, "time", rows, zone, faults, notes)
        faults.stop()
    except DataError as error:
        return None, notes, str(error)
    return found.tolist(), notes, ""


@settings(deadline=None, max_examples=400)
@example(
    ["20131007T133000+00:00", "2013-10-07T13+00:00"], None
)  # an offset after a time without colons
@given(stamp_column(), st.sampled_from([None, "UTC", "America/New_York", "America/New_York+7h"]))
def test_stamps_are_those_of_pandas(texts, zone):
    plain = stamps_or_message(Table("file.csv", {"time": as_cells(texts)}, 2), zone)
    assert plain == stamps_or_message(
        Table("file.csv", {"time": pd.Series(texts, dtype=str)}, 2), zone
    )


def test_a_usual_column_needs_no_pandas_for_its_text(monkeypatch, write):
    """What makes reading fast: no Series of texts is made for stamps, prices or volume."""
    monkeypatch.setattr(tabular, "_texts", lambda cells: pytest.fail("texts were made"))
    assert len(load_bars(write(), ES, stamp="open")) == 6


# --- files -----------------------------------------------------------------------------------------------------------


def outcome(raw: bytes) -> tuple[str, Any]:
    """What the line-by-line reader makes of a file."""
    try:
        return "", tabular._table_by_lines(raw, "f.csv")
    except DataError as error:
        return str(error), None


CELL = st.one_of(
    st.sampled_from(["1", "2.50", "", " 3 ", "x", "-4", "1e2"]),
    st.text(alphabet="ab\u00e9 .5\x0b\x85", max_size=4),
)
ODD_LINES = ("", " ", '"1",2,3', "time,open,close", "1,2", "1,2,3,4", "\u2028", "1;2;3")


@st.composite
def csv_bytes(draw: Any) -> bytes:
    """Files that are almost always plain, and sometimes have a fault of form."""
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    rows = draw(st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=12))
    lines = [separator.join(row) for row in [["time", "open", "close"], *rows]]
    for odd in draw(st.lists(st.sampled_from(ODD_LINES), max_size=1)):
        lines.insert(draw(st.integers(0, len(lines))), odd)
    text = end.join(lines) + draw(st.sampled_from(["", end, end + end, end + " \t" + end, "\n"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode()


@settings(deadline=None, max_examples=500)
@given(csv_bytes(), st.sampled_from([25, 1 << 22]))
def test_a_plain_table_is_the_table_by_lines(raw, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "CHUNK", chunk)
        plain = plain_table(raw, "f.csv")
    if plain is None:
        return
    message, table = outcome(raw)
    assert message == ""
    assert (plain.notes, plain.first_line, len(plain), list(plain.columns)) == (
        table.notes,
        table.first_line,
        len(table),
        list(table.columns),
    )
    rows = np.arange(len(table))
    for name in table.columns:
        assert plain.series(name).tolist() == table.series(name).tolist()
        assert [plain.cell(name, row) for row in rows] == table.series(name).tolist()
        np.testing.assert_array_equal(plain.numbers(name), table.numbers(name))
        np.testing.assert_array_equal(plain.empty(name, rows), table.empty(name, rows))
        np.testing.assert_array_equal(plain.numbers(name, rows[1:]), table.numbers(name, rows[1:]))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end", "blank lines"])
def test_usual_files_are_plain(separator, end, last):
    lines = [
        separator.join(["time", "open", "close"]),
        *(separator.join([str(i), "2.5", " x"]) for i in range(5)),
    ]
    text = end.join(lines) + {"": "", "end": end, "blank lines": end + end + " " + end}[last]
    table = plain_table(text.encode(), "f.csv")
    assert table is not None
    assert table.numbers("time").tolist() == [0, 1, 2, 3, 4]
    assert table.series("close").tolist() == ["x"] * 5


@pytest.mark.parametrize("row", [f[1] for f in CELL_FAULTS], ids=[f[0] for f in CELL_FAULTS])
def test_faults_have_the_same_message_either_way(pieces, write, rows, row, monkeypatch):
    rows[2] = row
    path = write(rows, header=HEADER)
    messages = []
    for _ in range(2):
        with pytest.raises(DataError) as error:
            load_bars(path, ES, stamp="open")
        messages.append(str(error.value))
        monkeypatch.setattr(tabular, "plain_table", lambda *_: None)
    assert messages[0] == messages[1]


def same(a: Bars, b: Bars) -> None:
    assert (a.notes, a.bar_seconds, a.contract, a.source, a.legs) == (
        b.notes,
        b.bar_seconds,
        b.contract,
        b.source,
        b.legs,
    )
    for name in ("time", "open", "high", "low", "close", "volume"):
        first, second = getattr(a, name), getattr(b, name)
        np.testing.assert_array_equal(first, second)
        assert first.dtype == second.dtype


LAYOUTS = {
    "as it is": lambda text: text.encode(),
    "carriage returns": lambda text: text.replace("\n", "\r\n").encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "no last line end": lambda text: text.rstrip("\n").encode(),
    "blank lines at the end": lambda text: (text + "\n \n").encode(),
    "spaces": lambda text: text.replace(",", " , ").encode(),
    "semicolons": lambda text: text.replace(",", ";").encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "quoted": lambda text: "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) for line in text.splitlines()
    ).encode(),
    "old Macintosh": lambda text: text.replace("\n", "\r").encode(),
}


@pytest.fixture
def either_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    def read(raw: bytes, **options: Any) -> Bars:
        """The bars, read both ways and compared."""
        path = tmp_path / "bars.csv"
        path.write_bytes(raw)
        first = load_bars(path, ES, **options)
        with monkeypatch.context() as patch:
            patch.setattr(tabular, "plain_table", lambda *_: None)
            same(first, load_bars(path, ES, **options))
        return first

    return read


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_read_the_same_either_way(pieces, write, layout, either_way):
    bars = either_way(LAYOUTS[layout](write().read_text()), stamp="open")
    assert bars.open.tolist() == [6681, 6682, 6684, 6681, 6679, 6682]
    assert bars.volume.tolist() == [5031, 2210, 1900, 2400, 1750, 3100]


@pytest.mark.parametrize(("scale", "options"), [(1, {}), (1000, {}), (10**6, {}), (10**9, {})])
def test_numbers_as_stamps_read_the_same_either_way(rows, scale, options, either_way):
    text = "\n".join(
        [HEAD, *(f"{(1381152600 + 60 * i) * scale}{row[20:]}" for i, row in enumerate(rows))]
    )
    assert either_way(text.encode(), stamp="open", **options).time[0] == 1381152600


@pytest.mark.parametrize("scale", [1, 1000, 10**6, 10**9])
def test_whole_stamps_may_be_written_with_a_point(rows, scale, either_way):
    text = "\n".join(
        [HEAD, *(f"{(1381152600 + 60 * i) * scale}.0{row[20:]}" for i, row in enumerate(rows))]
    )
    assert either_way(text.encode(), stamp="open").time.tolist() == [
        1381152600 + 60 * i for i in range(6)
    ]


def test_several_contracts_read_the_same_either_way(rows, either_way):
    lines = [f"{HEAD},expiry,symbol"]
    for row in rows:
        lines += [f"{row},201312,ESZ3", f"{row},201403,a longer name: ESH4"]
    raw = "\n".join(lines).encode()
    assert len(either_way(raw, stamp="open", expiry="201403")) == 6
    assert len(either_way(raw, stamp="open", expiry="ESZ3")) == 6


def test_text_of_parquet_and_frames_reads_like_csv(write, tmp_path):
    expected = load_bars(write(), ES, stamp="open")
    frame = pd.read_csv(write(), dtype=str)
    path = tmp_path / "bars.parquet"
    frame.to_parquet(path)
    part = pd.concat([frame, frame])[
        : len(frame)
    ]  # of two pieces of memory, and then of a part of them
    for bars in (
        load_bars(path, ES, stamp="open"),
        *(from_frame(x, ES, stamp="open") for x in (frame, frame.astype(object), part)),
    ):
        np.testing.assert_array_equal(bars.time, expected.time)
        np.testing.assert_array_equal(bars.close, expected.close)
        np.testing.assert_array_equal(bars.volume, expected.volume)


@pytest.mark.parametrize("cell", [None, "", "2013-10-07", "\u00e9"])
def test_a_bad_text_stamp_of_parquet_is_named(write, tmp_path, cell):
    frame = pd.read_csv(write(), dtype=str)
    frame.loc[2, "time"] = cell
    path = tmp_path / "bars.parquet"
    frame.to_parquet(path)
    messages = []
    for read in (
        lambda: load_bars(path, ES, stamp="open"),
        lambda: from_frame(frame.astype(object), ES, stamp="open", source=str(path)),
    ):
        with pytest.raises(DataError, match=r"row 2 \(0-based\)") as error:
            read()
        messages.append(str(error.value).replace("nan", "None"))
    assert messages[0] == messages[1]
