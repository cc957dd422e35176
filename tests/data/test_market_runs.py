"""Whole runs by the command line on the markets that are not the plain ES week: train, evaluate,
full coverage.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from jaxtrade.cli import main

SMALL = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=1024",
    "train.chunk_updates=2",
    "train.checkpoint_every=2",
    "train.tensorboard=false",
)
SHARES = [
    "data.stamp=open",
    "data.time_zone=America/New_York",
    "data.price_scale=0.0001",
    "data.columns={time: ts_et}",
    "env.features=[close, volume, sma_5, atr]",
]
EQUITY, FX = "data/lean_us_equity/", "data/lean_fx_oanda/"

# flags; keys; decision bars of each trade date that is evaluated (all but the first, trained on);
# what is said
RUNS = {
    # By day the evenings of the 4th and of the 19th, all that the file has of them, hold no
    # decision.
    "a roll inside": (
        ["--market", "ES"],
        ["data.roll={201312: start, 201403: 2013-12-18}", "data.start=2013-12-02"],
        {"2013-12-03": 433, "2013-12-18": 433, "2013-12-20": 433},
        "roll: 201403 from trade date 2013-12-18 in place of 201312 (-6.00 points",
    ),
    # The bars of each date from 18:00 until 16:57.
    "overnight": (
        ["--market", "ES"],
        ["session.overnight=true"],
        {"2013-10-08": 1349, "2013-10-09": 1359, "2013-10-10": 1346, "2013-10-11": 1356},
        "ES",
    ),
    "a half day of shares": (
        ["--contract", "GOOG", "--data", EQUITY + "goog_minute_trade_x10000.csv.gz"],
        SHARES,
        {"2015-12-24": 208, "2015-12-28": 380},
        "GOOG",
    ),
    # 390 minutes a day, all of them there; the last decision is at 15:58, the close of the bar
    # before the flat bar.
    "seconds of shares": (
        [
            "--contract",
            "SPY",
            "--data",
            EQUITY + "spy_minute_trade_x10000.csv.gz",
            "--seconds",
            EQUITY + "spy_second_trade_x10000.csv.gz",
        ],
        [*SHARES, "data.start=2013-10-07", "data.end=2013-10-11", "env.intrabar=path"],
        {"2013-10-08": 388, "2013-10-09": 388, "2013-10-10": 388, "2013-10-11": 388},
        "intrabar order: path",
    ),
    # The minutes of each trade date from 17:00 that close by 16:59, without the flat bar.
    "bid and ask": (
        [
            "--market",
            "EURUSD",
            "--data",
            FX + "eurusd_minute_bidask.csv.gz",
            "--seconds",
            FX + "eurusd_second_bidask.csv.gz",
        ],
        ["data.stamp=open", "data.start=2014-05-13", "data.end=2014-05-15", "env.intrabar=path"],
        {"2014-05-14": 1419, "2014-05-15": 1405},
        "two-sided bars",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.long] * (name not in ("bid and ask", "seconds of shares"))
        )
        for name in RUNS
    ],
)
def test_train_and_evaluate(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    flags, keys, bars, said = RUNS[name]
    flags = [
        str(request.getfixturevalue("shared") / flag) if flag.startswith("data/") else flag
        for flag in flags
    ]
    sets = [
        part
        for key in (*SMALL, *keys, f"split.test_sessions={len(bars)}")
        for part in ("--set", key)
    ]
    run = tmp_path / "run"
    assert main(["train", *flags, *sets, "--run-dir", str(run)]) == 0, (
        run / "summary.json"
    ).read_text()
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert "coverage 100 %" in printed.out
    settings = json.loads((run / "evaluation/test/evaluation.json").read_text())["settings"]
    assert settings["coverage"] == 1
    assert settings["decision_bars"] == sum(bars.values())
    equity = pd.read_csv(run / "evaluation/test/equity.csv")
    assert equity.groupby("session").size().to_dict() == bars
    assert (
        equity.groupby("session").strategy_position.last() == 0
    ).all()  # flat at the end of every session
