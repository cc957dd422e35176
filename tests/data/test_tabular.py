"""Text columns and CSV files: what Python's own reader says of each line, and pandas of each number."""

from __future__ import annotations

import gzip
import re
from csv import reader

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read import grammar, tabular
from jaxtrade.data.read.bars import from_frame, load_bars
from jaxtrade.data.read.grammar import read_stamps
from jaxtrade.data.read.tabular import as_numbers, is_text, read_table
from jaxtrade.errors import DataError

ES = get_contract("ES")
HEAD = "time,open,high,low,close,volume"

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
def test_numbers_are_those_of_pandas_to_the_last_bit_but_one(texts):
    """pyarrow rounds numbers of many digits correctly; pandas may miss the last bit."""
    column = pd.Series(texts, dtype=str)
    assert is_text(column)
    expected = as_numbers(column.astype(object))
    np.testing.assert_allclose(as_numbers(column), expected, rtol=3e-16)
    plain = [re.fullmatch(r"[0-9.]{1,16}", text) is not None for text in texts]
    np.testing.assert_array_equal(as_numbers(column)[plain], expected[plain])


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**9), 10**9, places=9).map(str), min_size=1, max_size=12))
def test_numbers_are_rounded_correctly(texts):
    assert as_numbers(pd.Series(texts, dtype=str)).tolist() == [float(text) for text in texts]


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
def stamp_column(draw):
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


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(stamp_column(), st.integers(1, 4), st.integers(1, 4))
def test_stamps_are_read_alike_in_pieces_of_any_length(texts, piece, block):
    pieces = [texts[i : i + piece] for i in range(0, len(texts), piece)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grammar, "BLOCK", block)
        found = read_stamps(pa.chunked_array(pieces, pa.large_string())[1:], None)
    alone = [read_stamps(pa.chunked_array([[text]], pa.large_string()), None) for text in texts[1:]]
    assert found.seconds.tolist() == [int(each.seconds[0]) for each in alone]
    assert found.aware.tolist() == [bool(each.aware[0]) for each in alone]


# --- files -----------------------------------------------------------------------------------------------------------


CELL = st.one_of(
    st.sampled_from(["1", "2.50", "", " 3 ", "x", "-4", "1e2"]),
    st.text(alphabet="ab\u00e9 .5\x0b\x85", max_size=4),
)
ODD_LINES = ("", " ", '"1",2,3', "time,open,close", "1,2", "1,2,3,4", "\u2028", "1;2;3")


@st.composite
def csv_bytes(draw):
    """Files that are almost always plain, and sometimes have a fault of form."""
    separator = draw(st.sampled_from([",", ";", "\t", "|"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    rows = draw(st.lists(st.lists(CELL, min_size=3, max_size=3), max_size=12))
    lines = [separator.join(row) for row in [["time", "open", "close"], *rows]]
    for odd in draw(st.lists(st.sampled_from(ODD_LINES), max_size=1)):
        lines.insert(draw(st.integers(0, len(lines))), odd)
    text = end.join(lines) + draw(st.sampled_from(["", end, end + end, end + " \t" + end, "\n"]))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode()


def by_lines(raw):
    """The cells of all lines below the header by Python's reader, or the line that is wrong."""
    lines = re.split("\r\n|\r|\n", raw.decode("utf-8-sig"))
    while not lines[-1].strip(" \t"):
        lines.pop()
    separator, rows = tabular.separator_of(lines[0]), []
    names = next(reader([lines[0]], delimiter=separator), [""])
    if len(names) < 2 or any(name.strip().isdigit() for name in names):
        return ":1: "
    for number, line in enumerate(lines[1:], start=2):
        cells = next(reader([line], delimiter=separator), [""])
        if len(cells) != 3 or line.count('"') % 2 or line == lines[0]:
            return f":{number}: "
        rows.append([cell.strip() for cell in cells])
    return rows


@pytest.mark.slow
@settings(deadline=None, max_examples=500)
@given(csv_bytes(), st.sampled_from([64, 1 << 22]))
def test_a_file_is_read_or_refused_as_line_by_line(tmp_path_factory, raw, block):
    path, expected = tmp_path_factory.getbasetemp() / "any.csv", by_lines(raw)
    path.write_bytes(raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabular, "BLOCK_BYTES", block)
        if isinstance(expected, str):
            with pytest.raises(DataError, match=expected):
                read_table(path)
            return
        table = read_table(path)
    names = ["time", "open", "close"]
    assert list(table.columns) == names
    assert (len(table), table.first_line) == (len(expected), 2)
    for name, cells in zip(names, zip(*expected, strict=True), strict=False):
        assert [table.cell(name, row) for row in range(len(table))] == list(cells)
        assert table.empty(name).tolist() == [not cell for cell in cells]
        rest = table.chosen(np.arange(1, len(table)))
        np.testing.assert_array_equal(rest.numbers(name), table.numbers(name)[1:])


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_any_form_read_the_same(write, layout):
    path = write()
    path.write_bytes(LAYOUTS[layout](path.read_text()))
    bars = load_bars(path, ES, stamp="open")
    assert bars.open.tolist() == [6681, 6682, 6684, 6681, 6679, 6682]
    assert bars.volume.tolist() == [5031, 2210, 1900, 2400, 1750, 3100]


@pytest.mark.parametrize("stamp", ["13811526000000000000", "-1381152600", "1e300"])
def test_a_number_far_from_any_year_is_named(rows, write, stamp):
    with pytest.raises(DataError, match=rf":2: column 'time' = '{stamp}': .*1990-2100"):
        load_bars(write([f"{stamp}{row[20:]}" for row in rows]), ES, stamp="open")


def test_several_contracts(rows, write):
    lines = []
    for row in rows:
        lines += [f"{row},201312,ESZ3", f"{row},201403,a longer name: ESH4"]
    path = write(lines, header=f"{HEAD},expiry,symbol")
    assert len(load_bars(path, ES, stamp="open", expiry="201403")) == 6
    assert len(load_bars(path, ES, stamp="open", expiry="ESZ3")) == 6


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
