"""Stable-Baselines3's own reader on our `monitor.csv`."""

import numpy as np
import pytest

from jaxtrade.storage.monitor import FIELDS, MONITOR, MonitorSink
from jaxtrade.storage.sinks import Episodes
from tests.extras import needed


@pytest.fixture(scope="module")
def sb3():
    return needed("stable_baselines3")


def episodes(update):
    rows = np.array(
        [[0.5, 10, 0.25, 3.5, np.nan, 0.5, 0], [-1.5, 20, 0, 0, 0.125, 0.75, 1]], np.float32
    )
    return Episodes(update, rows, np.arange(2))


def test_load_results_reads_our_file(sb3, tmp_path):
    from stable_baselines3.common.monitor import Monitor, load_results
    from stable_baselines3.common.results_plotter import X_TIMESTEPS, ts2xy

    now = iter([1000.0, 1002.5, 1004.0])
    sink = MonitorSink(
        tmp_path / MONITOR, "EURUSD+GBPUSD-manage", ("EURUSD", "GBPUSD"), clock=lambda: next(now)
    )
    sink.episodes([episodes(1)])
    sink.episodes([episodes(2)])
    sink.close()
    assert MONITOR.endswith(Monitor.EXT)
    frame = load_results(str(tmp_path))
    assert [name for name in frame.columns if name != "index"] == list(FIELDS)
    assert sorted(frame["r"]) == [-1.5, -1.5, 0.5, 0.5]
    assert frame["t"].tolist() == [2.5, 2.5, 4.0, 4.0]
    assert frame["sharpe_ratio"].isna().sum() == 2
    assert set(frame["symbol"]) == {"EURUSD", "GBPUSD"}
    steps, rewards = ts2xy(frame, X_TIMESTEPS)
    assert (steps[-1], rewards.sum()) == (60, -2.0)


def test_load_results_reads_what_a_kill_left(sb3, tmp_path):
    """A torn last line: SB3 takes what is left of it for a row, and reads the whole lines as they
    are.
    """
    from stable_baselines3.common.monitor import load_results

    sink = MonitorSink(tmp_path / MONITOR, "ES-manage", ("ES", "NQ"), clock=lambda: 1000.0)
    sink.episodes([episodes(1), episodes(2)])
    sink.close()
    data = (tmp_path / MONITOR).read_bytes()
    (tmp_path / MONITOR).write_bytes(data[:-9])
    assert len(load_results(str(tmp_path))) == 4
    MonitorSink(tmp_path / MONITOR, "ES-manage", ("ES", "NQ"), resume_update=1).close()
    assert load_results(str(tmp_path))["update"].tolist() == [1, 1]
