"""G7: `monitor.csv` has a row with real values for every episode that ended: return, length, time,
drawdown, turnover, Sharpe ratio, largest drawdown.

In IntradayJules the four figures were missing from the `info` of the environment, so that
`VecMonitor` would have ended with a KeyError at the first end of an episode.
"""

import pandas as pd
import pytest

from jaxtrade.config import load_config
from jaxtrade.runs.setup import monitor_sink, prepare
from jaxtrade.storage.sinks import JsonlSink, read_rows
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack

AGENTS, UPDATES = 2, 6
pytestmark = pytest.mark.slow  # a whole training


KEYS = f"""
rollout.num_envs=8 rollout.num_steps=64 ppo.num_minibatches=2 ppo.num_epochs=1 network.hidden=[16]
env.task=entry episode.max_steps=40 train.chunk_updates=3 train.num_seeds={AGENTS}
train.total_timesteps={UPDATES * 512}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(metrics.jsonl, monitor.csv) of two agents on real E-mini minutes, episodes of at most 40
    bars.
    """
    path = tmp_path_factory.mktemp("run")
    config = load_config("quickstart", KEYS.split())
    setup = prepare(config)
    sinks = [JsonlSink(path / "metrics.jsonl"), monitor_sink(path, config, setup.market, None)]
    keys = Stack.of(AGENTS).keys(0)
    train(setup.algorithm, setup.params, config=config.train, key=keys, sinks=sinks)
    for sink in sinks:
        sink.close()
    return read_rows(path / "metrics.jsonl"), pd.read_csv(path / "monitor.csv", skiprows=1)


def test_each_ended_episode_has_a_row(run):
    """As many as the learner itself counts, by agent and update, in the order of the updates."""
    rows, frame = run
    counts = frame.groupby(["update", "agent"]).size()
    assert [counts.get((row["update"], agent), 0) for row in rows for agent in range(AGENTS)] == [
        count for row in rows for count in row["episodes/each"]
    ]
    assert len(frame) > 50
    assert frame["update"].is_monotonic_increasing


def test_each_row_has_real_values(run):
    _, frame = run
    assert frame.drop(columns="sharpe_ratio").notna().all(axis=None)
    assert frame["l"].between(1, 40).all()
    assert (frame["max_drawdown"] >= frame["drawdown"]).all()
    assert (frame["drawdown"] >= 0).all()
    traded = frame["turnover"] > 0
    assert traded.mean() > 0.5
    assert (frame.loc[~traded, ["r", "drawdown", "max_drawdown"]] == 0).all(axis=None)
    assert frame.loc[~traded, "sharpe_ratio"].isna().all()
    assert frame.loc[traded & (frame["l"] > 1), "sharpe_ratio"].notna().all()
    for column in ("r", "drawdown", "turnover", "sharpe_ratio", "max_drawdown"):
        assert frame[column].nunique() > 10, f"{column} hardly varies"
    assert set(frame["symbol"]) == {"ES"}


def test_returns_and_lengths_are_the_learners_own(run):
    """`episode_reward` and `episode_length` are summed by the learner, without the environment's
    statistics.
    """
    rows, frame = run
    means = frame.groupby(["update", "agent"])[["r", "l"]].mean()
    for row in rows:
        for agent in range(AGENTS):
            if row["episodes/each"][agent]:
                r, length = means.loc[(row["update"], agent)]
                assert r == pytest.approx(row["episode_reward/each"][agent], rel=1e-4, abs=1e-6)
                assert length == pytest.approx(row["episode_length/each"][agent], rel=1e-6)
