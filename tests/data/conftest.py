"""Small bar files written by hand, and the markets that several tests read."""

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import RunConfig, SplitConfig, load_config
from jaxtrade.data.calendar.schedule import schedule_for
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.findings import bar_findings
from jaxtrade.data.market import build_market, load_market
from jaxtrade.data.read.bars import from_frame, load_bars, load_bundled
from jaxtrade.data.read.validate import PRICES

HEADER = "time,open,high,low,close,volume"
# ES around the cash open of 2013-10-07 (09:30 New York); prices on the quarter-point grid.
ROWS = (
    "2013-10-07T13:30:00Z,1670.25,1671.00,1669.75,1670.50,5031",
    "2013-10-07T13:31:00Z,1670.50,1671.25,1670.25,1671.00,2210",
    "2013-10-07T13:32:00Z,1671.00,1671.00,1670.00,1670.25,1900",
    "2013-10-07T13:33:00Z,1670.25,1670.75,1669.50,1669.75,2400",
    "2013-10-07T13:34:00Z,1669.75,1670.50,1669.75,1670.50,1750",
    "2013-10-07T13:35:00Z,1670.50,1672.00,1670.50,1671.75,3100",
)


@pytest.fixture
def rows():
    return list(ROWS)


@pytest.fixture
def write(tmp_path):
    """write(rows, header=..., name=...) -> path of a CSV file."""

    def _write(rows=ROWS, header=HEADER, name="bars.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return path

    return _write


@pytest.fixture(scope="session")
def es_bars():
    return load_bundled(get_contract("ES"))


@pytest.fixture(scope="session")
def es_market(es_bars):
    return build_market(es_bars, RunConfig())


@pytest.fixture(scope="session")
def nq_market():
    return load_market(set_to("data.market=NQ data.source=synthetic data.synthetic_sessions=6"))


def assert_valid(bars):
    """Prices in range, and no ask below its bid."""
    for side in bars.sides:
        assert (side.low <= np.minimum(side.open, side.close)).all()
        assert (side.high >= np.maximum(side.open, side.close)).all()
        assert side.low.min() >= 1
        assert {getattr(side, name).dtype for name in PRICES} == {np.dtype(np.int32)}
    if bars.ask is not None:
        assert all((ask >= getattr(bars, name)).all() for name, ask in bars.ask._asdict().items())


def utc(text):
    return int(np.datetime64(text, "s").astype(np.int64))


def set_to(words):
    """The configuration with some keys set, as `--set` does it: words `section.key=value`."""
    return load_config(None, words.split())


def table_of(bars):
    """The calendar's sessions of the bars."""
    return schedule_for("table", bars.contract, bars.time, bars.bar_seconds)


def findings_of(bars, schedule=None, **keys):
    """What is wrong with bars, by their calendar's sessions or others."""
    return bar_findings(bars, schedule or table_of(bars), **keys)


def read_es(given, **options):
    """Bars of ES from a file or a frame whose stamps are opens."""
    read = from_frame if isinstance(given, pd.DataFrame) else load_bars
    return read(given, get_contract("ES"), stamp="open", **options)


def split_of(validation, test, embargo=0):
    return SplitConfig(validation_sessions=validation, test_sessions=test, embargo_sessions=embargo)


def assert_same(found, expected, volume=True):
    """Stamps, prices of both sides, and volumes."""
    for name in ("time", *PRICES, "volume")[: 6 if volume else 5]:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.bar_seconds == expected.bar_seconds
    assert (found.ask is None) == (expected.ask is None)
    np.testing.assert_array_equal(found.ask or (), expected.ask or ())
