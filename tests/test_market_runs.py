"""Whole runs by the command line on the markets that are not the plain ES week: train, evaluate, full coverage."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jaxtrade.cli import main
from jaxtrade.data import contracts
from jaxtrade.data.contracts import Contract

SMALL = ("ppo.num_envs=8", "ppo.num_steps=32", "ppo.num_minibatches=2", "ppo.hidden=[8]", "train.total_timesteps=1024",
         "train.chunk_updates=2", "train.checkpoint_every=2", "train.tensorboard=false")
GOOG = Contract("GOOG", "equity", Decimal("0.01"), 1_000, "USD", 500, 1, 5, False, 0, "us_equity", ())
SHARED = "data/lean_us_equity/goog_minute_trade_x10000.csv.gz"

# flags and keys; trade dates of the sessions; decision bars; what the output has to say
RUNS = {
    "roll inside": (
        ["--market", "ES"], ["data.roll={201312: start, 201403: 2013-12-18}", "data.start=2013-11-18"],
        ["2013-11-18", "2013-12-02", "2013-12-03", "2013-12-18", "2013-12-20"],
        "roll: 201403 from trade date 2013-12-18 in place of 201312 (-6.00 points"),
    "roll by volume": (
        ["--market", "ES"], ["data.roll=volume", "data.start=2013-12-02", "data.end=2013-12-20"],
        ["2013-12-02", "2013-12-03", "2013-12-18", "2013-12-20"], "roll: 201403 from trade date 2013-12-19"),
    "overnight": (
        ["--market", "ES"], ["session.overnight=true"], [f"2013-10-{day:02d}" for day in (7, 8, 9, 10, 11)], "ES"),
    "half day of shares": (
        ["--market", "GOOG"], ["data.stamp=open", "data.time_zone=America/New_York", "data.price_scale=0.0001",
                               "data.columns={time: ts_et}", "env.features=[close, volume, sma_5, atr]"],
        ["2015-12-23", "2015-12-24", "2015-12-28"], "GOOG"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RUNS))
def test_train_and_evaluate(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    flags, keys, dates, said = RUNS[name]
    if "GOOG" in flags:
        monkeypatch.setitem(contracts.CONTRACTS, "GOOG", GOOG)
        flags = [*flags, "--data", str(request.getfixturevalue("shared") / SHARED)]
    sets = [part for key in (*SMALL, *keys) for part in ("--set", key)]
    run = tmp_path / "run"
    assert main(["train", *flags, *sets, "--run-dir", str(run)]) in (0, 1)  # 1: so short a run may fail a health check
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    capsys.readouterr()
    assert main(["evaluate", str(run), "--split", "all", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    print(json.dumps(found)[:3000])
    trades = pd.read_csv(run / "evaluation/all/trades.csv")
    assert np.isfinite(trades.net).all()
    assert found["summary"]["coverage"] == 1
    assert dates
