"""G9: an environment that cannot be built is an error; no other environment takes its place."""

import pytest

import jaxtrade as jt
from jaxtrade.interop.jules import TrainerAgent, build_vec_env, get_optimal_n_envs
from jaxtrade.runs import setup

CONFIG = {"algorithm": "PPO"}


def test_an_unknown_symbol():
    with pytest.raises(jt.ConfigError, match=r"GBPUSX.*'GBPUSD'"):
        build_vec_env(["EURUSD", "GBPUSX"], None, CONFIG)


def test_a_file_that_cannot_be_read_stops_training(tmp_path):
    for symbol in ("EURUSD", "GBPUSD"):
        (tmp_path / f"{symbol}.csv").write_text("time,open,high,low,close\nyesterday,1,1,1,1\n")
    agent = TrainerAgent(CONFIG, path=tmp_path / "run")
    agent.set_env(agent.create_vectorized_env(["EURUSD", "GBPUSD"], tmp_path, n_envs=8))
    with pytest.raises(jt.DataError, match=r"EURUSD\.csv"):
        agent.train()
    assert not (tmp_path / "run").exists()


def test_an_error_inside_is_not_swallowed(monkeypatch):
    def broken(*given, **more):
        raise RuntimeError("a bug in the factory")

    monkeypatch.setattr(setup, "load_markets", broken)
    with pytest.raises(RuntimeError, match="a bug in the factory"):
        get_optimal_n_envs(["EURUSD", "GBPUSD"])
