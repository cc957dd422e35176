import hashlib
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from jaxtrade.config import DataConfig, RunConfig, load_config
from jaxtrade.data.calendar.schedule import findings
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import build_market
from jaxtrade.data.read.bars import from_frame, load_bundled
from jaxtrade.data.sources import bars_of
from jaxtrade.data.synthetic import (
    bars_of_kind,
    phase_randomised_values,
    synthetic_bars,
)
from jaxtrade.errors import ConfigError
from tests.data.conftest import assert_valid, table_of
from tests.data.expiries import expiry_table
from tests.data.synthetic_statistics import compared, table

NQ, ES = get_contract("NQ"), get_contract("ES")
KINDS = get_args(DataConfig.model_fields["synthetic"].annotation)


def kind(name, contract=ES, **keys):
    return bars_of_kind(contract, DataConfig(synthetic=name, **keys))


def digest(bars):
    names = ("time", "open", "high", "low", "close", "volume")
    return hashlib.sha256(b"".join(getattr(bars, name).tobytes() for name in names)).hexdigest()


@pytest.mark.parametrize(
    ("contract", "name", "pinned"),
    [
        (NQ, "nq_like", "190c918ff8e987c1d90e6336e70e9f9455d14630604a4b0725d7f3250103fcbb"),
        (ES, "martingale", "d6a0c2e14e8cd219c219d518d6929e9b790bf6adb0cbdb2276e767333ce59913"),
        (ES, "trend", "4247b06e4cfdf271ec306ce7e9ac26ebc6e19440d71a0e6be80c35af471c7fd7"),
        (ES, "mean_reversion", "726d96e3b5bebadae1ae3ac13f0bfa90d9478ede20262af0d684bf8b2a220410"),
    ],
)
def test_the_bytes_are_pinned(contract, name, pinned):
    """A change here changes every figure ever quoted on synthetic bars: it must be deliberate."""
    assert digest(kind(name, contract, synthetic_sessions=5)) == pinned
    assert digest(kind(name, contract, synthetic_sessions=5, synthetic_seed=1)) != pinned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        *(("ES", name) for name in sorted(KINDS)),
        ("EURUSD", "phase_randomised"),
        *((other, "nq_like") for other in ("NQ", "RTY", "EURUSD")),
    ],
)
def test_bars_are_valid_on_the_real_calendar(symbol, name):
    contract = get_contract(symbol)
    bars = kind(name, contract, synthetic_sessions=8)
    assert bars.synthetic
    assert_valid(bars)
    assert (np.diff(bars.time) >= bars.bar_seconds).all()
    if name not in ("phase_randomised", "planted"):  # which have the clock of the real bars
        assert (bars.volume >= 1).all()
        assert findings(table_of(bars), bars.time, 60, contract) == ()
    assert build_market(bars, RunConfig()).synthetic


@pytest.mark.slow
def test_long_runs_start_earlier_and_the_longest_is_named():
    bars = synthetic_bars(NQ, 900, 0)
    assert str(bars.time[0].astype("datetime64[s]"))[:4] == "2022"
    with pytest.raises(ConfigError, match=r"data\.synthetic_sessions = 5000: .* NQ "):
        synthetic_bars(NQ, 5000, 0)


@pytest.mark.parametrize("drift", [0.05, -0.2, 0.0])
def test_the_walk_drifts_as_it_says(drift):
    bars = kind("trend", synthetic_drift=drift)
    steps = (bars.close - bars.open).astype(float)
    assert set(steps) == {-1.0, 1.0}
    error = np.sqrt((1 - drift**2) / len(steps))
    assert abs(steps.mean() - drift) < 3 * error
    assert abs(np.corrcoef(steps[1:], steps[:-1])[0, 1]) < 3 / np.sqrt(len(steps))


def test_a_phase_randomised_copy_keeps_the_spectrum_and_nothing_else():
    """Its kurtosis and its memory are in docs/data.md."""
    real, copy = load_bundled(ES), kind("phase_randomised")
    assert np.array_equal(real.time, copy.time)
    assert np.array_equal(real.volume, copy.volume)
    moves, made = (np.diff(np.log(each.close)) for each in (real, copy))
    turned = phase_randomised_values(moves, np.random.default_rng(0))
    np.testing.assert_allclose(np.abs(np.fft.rfft(turned)), np.abs(np.fft.rfft(moves)), atol=1e-12)
    assert turned.mean() == pytest.approx(moves.mean(), abs=1e-12)
    assert made.std() == pytest.approx(moves.std(), rel=0.05)  # rounding to ticks adds to it
    assert np.corrcoef(moves, made)[0, 1] < 0.1
    assert digest(copy) != digest(kind("phase_randomised", synthetic_seed=1))


@pytest.mark.slow
def test_the_committed_statistics_are_what_the_code_computes():
    assert table(compared()) in (Path(__file__).parents[2] / "docs/data.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("data.synthetic=trend",),
            r"synthetic = trend .*source = bundled",
        ),
        (
            ("data.source=synthetic", "data.synthetic_drift=0.1"),
            r"synthetic_drift = 0\.1 .* nq_like",
        ),
        (
            ("data.source=synthetic", "data.synthetic=trend", "data.synthetic_pull=0.5"),
            "mean_reversion",
        ),
        (
            ("data.source=synthetic", "data.synthetic=trend", "data.synthetic_drift=1"),
            "between -1 and 1",
        ),
        (
            ("data.source=synthetic", "data.synthetic=trend", "data.synthetic_drift=-0.5"),
            "fall below zero",
        ),
        (
            ("data.source=synthetic", "data.synthetic=mean_reversion", "data.synthetic_pull=1.5"),
            "at most 1",
        ),
        (
            ("data.market=NQ", "data.source=synthetic", "data.synthetic=phase_randomised"),
            "bundled for NQ",
        ),
    ],
)
def test_keys_that_do_not_fit_are_named(overrides, message):
    with pytest.raises(ConfigError, match=message):
        bars_of(load_config(None, overrides))


def test_a_roll_of_the_expiries_gives_the_bars_back():
    bars = synthetic_bars(NQ, 40, 0)
    spliced = from_frame(pd.DataFrame(expiry_table(bars)), NQ, stamp="open", roll="volume")
    assert [leg.expiry for leg in spliced.legs] == ["202312", "202403"]
    assert np.array_equal(spliced.time, bars.time)
    moved = spliced.close - bars.close
    splice = np.flatnonzero(np.diff(moved))
    assert len(splice) == 1  # two prices apart, one splice
    assert str(bars.time[splice[0] + 1].astype("datetime64[s]"))[:10] in (
        "2023-12-07",
        "2023-12-08",
    )
