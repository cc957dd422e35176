"""A Databento order of ES.FUT: two expiries, and spreads between them, whose prices are differences."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
import yaml

from jaxtrade.cli.entry import main
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.read.validate import list_spreads
from jaxtrade.data.sources import bars_of
from jaxtrade.errors import DataError
from tests.data.conftest import set_to
from tests.messages import missing

HEAD = "ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol"
DAYS = (9, 10, 11, 12)  # December 2013, Monday to Thursday
# Contracts traded on each day: March trades more on the 10th, so it is front from the 11th on.
VOLUMES = {"ESZ3": (900, 400, 300, 200), "ESH4": (100, 500, 700, 800)}
PRICES = {"ESZ3": 1800.0, "ESH4": 1794.0, "ESZ3-ESH4": -6.0, "ES:BF Z3-H4-M4": 0.25}
MINUTES = 10


def order(pretty):
    """The text of the file: ten minutes a day, in four rows each, as Databento writes them."""
    rows = []
    for number, day in enumerate(DAYS):
        for minute in range(MINUTES):
            at = datetime(2013, 12, day, 15, minute, tzinfo=UTC)
            for code in ("ESZ3-ESH4", "ESZ3", "ESH4", "ES:BF Z3-H4-M4"):
                price = PRICES[code] + (number if len(code) == 4 else 0)
                cells = [f"{price:.9f}" if pretty else str(round(price * 1e9))] * 4
                stamp = f"{at:%Y-%m-%dT%H:%M}:00.000000000Z"
                rows.append(
                    f"{stamp if pretty else int(at.timestamp()) * 10**9},33,1,{len(code)},{','.join(cells)},"
                    f"{VOLUMES.get(code, DAYS)[number] // MINUTES},{code}"
                )
    return "\n".join([HEAD, *rows]) + "\n"


@pytest.fixture(params=[True, False], ids=["pretty", "whole"])
def path(request, tmp_path):
    file = tmp_path / "es_fut.csv"
    file.write_text(order(request.param))
    return file


def test_a_parents_file_rolls_by_volume_without_its_spreads(path):
    bars = load_bars(path, "ES", roll="volume", spreads="drop")
    assert [(leg.expiry, leg.first) for leg in bars.legs] == [
        ("ESZ3", "start"),
        ("ESH4", "2013-12-11"),
    ]
    assert (bars.legs[1].step, bars.bar_seconds) == (-6.0, 60)
    # points: December's 1800 and 1801, then March's 1794 + 2 and 1794 + 3
    points = np.repeat([1800, 1801, 1796, 1797], MINUTES)
    for prices in (bars.open, bars.high, bars.low, bars.close):
        np.testing.assert_array_equal(prices, 4 * points)
    np.testing.assert_array_equal(bars.volume, np.repeat([90, 40, 70, 80], MINUTES))
    [note] = [note for note in bars.notes if "data.spreads" in note]
    assert not missing(note, "80 of 160 rows", "ESZ3-ESH4 (40 rows)", "ES:BF Z3-H4-M4 (40 rows)")


def test_spreads_are_refused_with_row_symbol_and_key(path):
    with pytest.raises(DataError) as told:
        load_bars(path, "ES", roll="volume")
    assert not missing(
        str(told.value), f"{path}:2: column 'symbol' = 'ESZ3-ESH4'", "80 rows", "data.spreads=drop"
    )


def test_a_file_of_spreads_alone_stays_refused(path):
    lines = path.read_text().splitlines()
    path.write_text("\n".join([HEAD, *(line for line in lines if line.endswith("-ESH4"))]))
    with pytest.raises(DataError, match="calendar spread"):
        load_bars(path, "ES", spreads="drop")


def test_init_writes_that_spreads_are_dropped(path, tmp_path, capsys):
    out = tmp_path / "es.yaml"
    words = ["init", str(path), "--non-interactive", "--out", str(out)]
    assert main(words) == 2  # which contract is asked, and a spread is no choice
    assert "data.expiry=ESZ3 " in capsys.readouterr().err
    assert main([*words, "--set", "data.roll=volume"]) == 0
    data = yaml.safe_load(out.read_text())["data"]
    assert (data["spreads"], data["roll"], data["market"]) == ("drop", "volume", "ES")
    assert main(["data", "check", str(out)]) == 0


@pytest.mark.parametrize(
    ("code", "spread"),
    [
        ("ESZ3-ESH4", True),
        ("CLF4-CLG4", True),
        ("201312-201403", True),
        ("ES:BF Z3-H4-M4", True),
        ("CL:SA 03M J4", True),
        ("UD:1V: GN 1234567", True),
        ("ESZ3", False),
        ("ES 12-25", False),
        ("EUR/USD", False),
        ("CME_MINI:ES1!", False),
        ("20131220", False),
        ("2013-12-20", False),
    ],
)
def test_names_of_spreads(code, spread):
    assert list_spreads(pd.Series({code: 1})) == ([code] if spread else [])


def test_the_key_of_a_configuration(path):
    words = f"data.source=file data.file={path} data.roll=volume data.spreads=drop"
    assert len(bars_of(set_to(words))) == MINUTES * len(DAYS)
