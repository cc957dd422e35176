"""Text columns and CSV files: what Python's own reader says of each line, and pandas of each number."""

import gzip
import re
from csv import reader

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.read import tabular
from jaxtrade.data.read.tabular import as_numbers, read_table
from jaxtrade.errors import DataError
from tests.data.conftest import assert_same, read_es

ES = get_contract("ES")


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


def numbers_of(texts):
    return as_numbers(pa.chunked_array([texts], pa.large_string()))


@settings(deadline=None, max_examples=300)
@given(st.lists(NUMBER_TEXT, min_size=1, max_size=12))
def test_numbers_are_those_of_pandas_to_the_last_bit_but_one(texts):
    """pyarrow rounds numbers of many digits correctly; pandas may miss the last bit."""
    expected = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(float)
    np.testing.assert_allclose(numbers_of(texts), expected, rtol=3e-16)
    plain = [re.fullmatch(r"[0-9.]{1,16}", text) is not None for text in texts]
    np.testing.assert_array_equal(numbers_of(texts)[plain], expected[plain])


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**9), 10**9, places=9).map(str), min_size=1, max_size=12))
def test_numbers_are_rounded_correctly(texts):
    assert numbers_of(texts).tolist() == [float(text) for text in texts]


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
@example(b"time\topen\tclose\n1\t1\t1\n\t\t\x0b", 64)  # no blank line: its last cell is a \x0b
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
    assert table.names == names
    assert (len(table), table.first_line) == (len(expected), 2)
    for name, cells in zip(names, zip(*expected, strict=True), strict=False):
        assert [table.cell(name, row) for row in range(len(table))] == list(cells)
        assert table.empty(name).tolist() == [not cell for cell in cells]
        rest = table.select(np.arange(1, len(table)))
        np.testing.assert_array_equal(rest.numbers(name), table.numbers(name)[1:])


LAYOUTS = {
    "as it is": lambda text: text,
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "byte order mark": lambda text: "\ufeff" + text,
    "no last line end": lambda text: text.rstrip("\n"),
    "blank lines at the end": lambda text: text + "\n \n",
    "spaces": lambda text: text.replace(",", " , "),
    "semicolons": lambda text: text.replace(",", ";"),
    "quoted": lambda text: re.sub("[^,\n]+", r'"\g<0>"', text),
    "old Macintosh": lambda text: text.replace("\n", "\r"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_files_of_any_form_read_the_same(write, layout, packed):
    path = write()
    path.write_bytes(packed(LAYOUTS[layout](path.read_text()).encode()))
    bars = read_es(path)
    assert bars.open.tolist() == [6681, 6682, 6684, 6681, 6679, 6682]
    assert bars.volume.tolist() == [5031, 2210, 1900, 2400, 1750, 3100]


@pytest.mark.parametrize("stamp", ["13811526000000000000", "-1381152600", "1e300"])
def test_a_number_far_from_any_year_is_named(rows, write, stamp):
    with pytest.raises(DataError, match=rf":2: column 'time' = '{stamp}': .*1990-2100"):
        read_es(write([f"{stamp}{row[20:]}" for row in rows]))


def test_text_of_parquet_and_frames_reads_like_csv(write, tmp_path):
    expected = read_es(write())
    frame, path = pd.read_csv(write(), dtype=str), tmp_path / "bars.parquet"
    frame.to_parquet(path)
    # of two pieces of memory, and then of a part of them
    part = pd.concat([frame, frame])[: len(frame)]
    frames = [read_es(x) for x in (frame, frame.astype(object), part)]
    for bars in (read_es(path), *frames):
        assert_same(bars, expected)


@pytest.mark.parametrize(
    "dtype", ["category", "object", "Sparse[float]", "Float64", "double[pyarrow]"]
)
def test_prices_of_any_type_that_pandas_has_read_the_same(write, dtype):
    frame = pd.read_csv(write())
    prices = dict.fromkeys(("open", "high", "low", "close"), dtype)
    assert_same(read_es(frame.astype(prices)), read_es(frame))


@pytest.mark.parametrize("cell", [None, "", "2013-10-07", "\u00e9"])
def test_a_bad_text_stamp_of_parquet_is_named(write, tmp_path, cell):
    frame = pd.read_csv(write(), dtype=str)
    frame.loc[2, "time"] = cell
    path = tmp_path / "bars.parquet"
    frame.to_parquet(path)
    with pytest.raises(DataError, match=r"row 2 \(0-based\)") as of_file:
        read_es(path)
    with pytest.raises(DataError) as of_frame:
        read_es(frame.astype(object), source=str(path))
    said = [str(error.value).replace("nan", "None") for error in (of_file, of_frame)]
    assert said[0] == said[1]
