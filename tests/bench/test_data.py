"""From a file to a market: the file has what a vendor's has, and one quick run."""

import numpy as np
import pytest

from bench import data
from bench.catalogue import Options
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import load_market
from jaxtrade.data.synthetic import synthetic_bars


def test_the_file_has_the_synthetic_bars(tmp_path):
    files, bars = data.written(tmp_path, 3)
    expected = synthetic_bars(get_contract("NQ"), 3)
    assert bars == len(expected)
    first = files["csv"].read_text().splitlines()[:2]
    assert first[0] == "time,open,high,low,close,volume"
    assert first[1].split(",")[0] == str(np.datetime64(int(expected.time[0]), "s")).replace(
        "T", " "
    )
    for file in files.values():
        market = load_market(data.config_of(file))
        np.testing.assert_array_equal(market.bars.time, expected.time)
        np.testing.assert_array_equal(market.bars.close, expected.close)


@pytest.mark.slow
def test_a_quick_run():
    found = data.run(Options(quick=True, repeats=1))
    assert set(found["to_market"]) == {"csv", "parquet"} == set(found["peak_resident_bytes"])
    assert all(each["seconds"] > 0 for each in found["to_market"].values())
    assert min(found["peak_resident_bytes"].values()) > 50e6  # JAX and NumPy alone are larger
