import hashlib

import numpy as np
import pytest

from jaxtrade.config import RunConfig
from jaxtrade.data.calendar import findings, schedule_for
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import build_market
from jaxtrade.data.synthetic import synthetic_bars
from jaxtrade.errors import ConfigError

NQ = get_contract("NQ")


def digest(bars) -> str:
    names = ("time", "open", "high", "low", "close", "volume")
    return hashlib.sha256(b"".join(getattr(bars, name).tobytes() for name in names)).hexdigest()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    assert digest(synthetic_bars(NQ, 5, 1)) == digest(synthetic_bars(NQ, 5, 1)) != digest(synthetic_bars(NQ, 5, 2))


def test_the_bytes_are_pinned():
    """A change here changes every figure ever quoted on synthetic bars: it must be deliberate."""
    assert digest(synthetic_bars(NQ, 5, 0)) == "190c918ff8e987c1d90e6336e70e9f9455d14630604a4b0725d7f3250103fcbb"


@pytest.mark.parametrize("symbol", ["NQ", "ES", "RTY", "EURUSD"])
def test_bars_are_valid_on_the_real_calendar(symbol):
    contract = get_contract(symbol)
    bars = synthetic_bars(contract, 8, 0)
    assert bars.synthetic
    assert (bars.low <= np.minimum(bars.open, bars.close)).all()
    assert (bars.high >= np.maximum(bars.open, bars.close)).all()
    assert (bars.low > 0).all()
    assert (bars.volume >= 1).all()
    assert (np.diff(bars.time) >= 60).all()
    assert findings(schedule_for("table", contract, bars.time, 60), bars.time, 60, contract) == ()
    assert build_market(bars, RunConfig()).synthetic


def test_the_default_run_has_half_days():
    market = build_market(synthetic_bars(NQ, 6, 0), RunConfig())
    lengths = np.asarray(market.data.sessions.last) - np.asarray(market.data.sessions.first) + 2
    assert [str(d) for d in market.trade_dates[3:5]] == ["2023-11-23", "2023-11-24"]
    assert lengths.tolist()[3:5] == [209, 224]  # 09:30 to 12:59 and 13:14


def test_it_looks_like_an_index_future():
    bars = synthetic_bars(NQ, 60, 0)
    market = build_market(bars, RunConfig())
    ranges = (bars.high - bars.low).astype(float)
    minute = (np.asarray(market.data.view.table)[:, 3] * 7.48 + 9.5) * 60
    opening, noon, close, night = (ranges[(minute >= a) & (minute < b)].mean()
                                   for a, b in ((570, 600), (710, 740), (930, 960), (60, 120)))
    assert opening > 1.5 * noon > 1.5 * night  # U-shaped by day, quiet by night
    assert close > 1.2 * noon
    moves = np.diff(bars.close).astype(float)
    moves /= moves.std()
    assert (moves ** 4).mean() > 6  # fat tails
    assert abs(np.corrcoef(moves[1:], moves[:-1])[0, 1]) < 0.02  # nothing to predict
    daily = [np.log(bars.close[int(e) - 1] / bars.close[int(s)]) for s, e in
             zip(market.data.sessions.start, market.data.sessions.end, strict=True)]
    assert 0.006 < np.std(daily) < 0.025


def test_long_runs_start_earlier_and_the_longest_is_named():
    bars = synthetic_bars(NQ, 900, 0)
    assert str(bars.time[0].astype("datetime64[s]"))[:4] == "2022"
    with pytest.raises(ConfigError, match=r"data\.synthetic_sessions = 5000: the calendar of NQ holds \d{4} sessions"):
        synthetic_bars(NQ, 5000, 0)
