"""The reference runs, as command lines of `jaxtrade`, and the bars that some of them read.

They are small, and take every way through the code: tasks, networks, fusions, kinds of bars, seeds,
transfer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "ppo.num_minibatches=2",
    "ppo.num_epochs=2",
    "network.hidden=[16]",
    "train.total_timesteps=1536",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "monitor.on=false",
    "train.keep_checkpoints=9",
    "split.validation_sessions=1",
    "control.evaluate_every=1",
    # the learner and the stops that these runs had from the start, whatever the defaults are now
    "ppo.normalise_rewards=false",
    "ppo.learning_rate=3e-4",
    "ppo.learning_rate_end=3e-5",
    "brackets.stop_atr=1.5",
    "brackets.target_multiple=3",
    "brackets.trail_atr=1.0",
)
STATED = ("data.stamp=open",)


def _settings(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def _train(*settings, flags=()):
    return ["train", "quickstart", *flags, *_settings(*TINY, *settings)]


def _advised(*settings):
    return [
        "train",
        "advised",
        "--advisor",
        "table:{folder}/advice.npz",
        *_settings(*TINY, *settings),
    ]


def _file(name, *settings, flags=()):
    given = ["--market", "ES", "--data", f"{{folder}}/{name}", *flags]
    return _train("data.source=file", *STATED, *settings, flags=given)


# A live mock answers when its threads come to it. Asked about every bar ahead of time, it always
# answers the same.
PREPARE = [
    "advise",
    "precompute",
    "advised",
    "--advisor",
    "mock:skilled:0.6",
    "--out",
    "{folder}/advice.npz",
    *_settings("split.validation_sessions=1"),
]
RUNS: dict[str, list[str]] = {
    "entry": _train("env.task=entry"),
    "manage": _train("env.task=manage"),
    "advised": _train("env.task=advised"),
    "old_account": _train(
        "env.task=manage",
        "env.scaling=seed",
        "env.mark=close",
        "env.intrabar=nearer_extreme",
        "env.actions=seed6",
        "reward.preset=seed_phase2",
        "ppo.target_kl=0.01",
    ),
    "stages": _train(
        "env.task=manage",
        "stages.commission_start=0",
        "stages.commission_until=0.5",
        "stages.forced_start=0.5",
        "stages.forced_start_end=0.2",
        "ppo.gradient_rows=32",
    ),
    "gru": _train(
        "env.task=manage", "network.kind=gru", "network.rnn_width=8", "rollout.num_shards=2"
    ),
    "fusion_trust": _advised("advisor.fusion=trust"),
    "fusion_gate": _advised("advisor.fusion=gate"),
    "fusion_rules": _advised("advisor.fusion=rules"),
    "fusion_slots": _advised("advisor.fusion=slots"),
    "fusion_none": _advised("advisor.fusion=none"),
    "fusion_gru": _advised(
        "advisor.fusion=trust", "network.kind=gru", "network.rnn_width=8", "rollout.num_shards=2"
    ),
    "two_seeds": _train("env.task=manage", "train.num_seeds=2"),
    "two_advised_seeds": _advised("advisor.fusion=trust", "train.num_seeds=2"),
    "quotes": _file("two_sided.csv", "env.task=manage"),
    "converted": [
        "train",
        "quickstart",
        "--market",
        "USDJPY",
        *_settings("data.source=synthetic", *TINY, "env.task=manage"),
    ],
    "path": _file(
        "bars.csv",
        "env.task=manage",
        "env.intrabar=path",
        flags=["--seconds", "{folder}/seconds.csv"],
    ),
    "transfer": _train(
        "env.task=manage", "transfer.open_until=0.5", flags=["--from", "{folder}/entry"]
    ),
    "adapter": _train(
        "env.task=advised",
        "transfer.mode=adapter",
        "ppo.adapter_freeze=0.5",
        flags=["--from", "{folder}/manage"],
    ),
    # Its advisor is a live one, which answers when its threads come to it.
    "curriculum": ["curriculum", "--advisor", "off", *_settings(*TINY, "enforce_gates=false")],
}
AFTER = {"transfer": "entry", "adapter": "manage"}  # run -> its source run


def ordered(names):
    """The runs and their source runs, in the order of `RUNS`."""
    wanted = set(names)
    wanted |= {AFTER[name] for name in wanted & AFTER.keys()}
    return [name for name in RUNS if name in wanted]


def _points(ticks):
    return f"{ticks / 4:.2f}"


def write_files(folder):
    """Five days of the bundled E-mini minutes: as they are, with an ask side, and with four seconds
    in each minute.
    """
    file = ROOT / "jaxtrade" / "data" / "bundled" / "es_1m_trade.csv.gz"
    frame = pd.read_csv(file, dtype={"expiry": str})
    frame = frame[
        (frame.expiry == "201312")
        & (frame.ts_utc >= "2013-10-06T22")
        & (frame.ts_utc < "2013-10-11T22")
    ]
    ticks = np.rint(4 * frame[["open", "high", "low", "close"]].to_numpy()).astype(int)
    rng = np.random.default_rng(7)
    one_sided = "time,open,high,low,close,volume"
    bars, seconds = [one_sided], [one_sided]
    names = [
        f"{side}_{field}" for side in ("bid", "ask") for field in ("open", "high", "low", "close")
    ]
    two_sided = ["time," + ",".join(names) + ",volume"]
    for stamp, prices, volume in zip(
        frame.ts_utc, ticks.tolist(), frame.volume.tolist(), strict=True
    ):
        spread = rng.integers(1, 4, 4).tolist()
        open_, high, low, close = prices
        ask = [price + wide for price, wide in zip(prices, spread, strict=True)]
        ask[1], ask[2] = max(ask), min(ask)
        bars.append(f"{stamp},{','.join(map(_points, prices))},{volume}")
        two_sided.append(f"{stamp},{','.join(map(_points, [*prices, *ask]))},{volume}")
        first, second = (high, low) if rng.random() < 0.5 else (low, high)
        for second_, price in zip(
            ("00", "15", "30", "45"), (open_, first, second, close), strict=True
        ):
            seconds.append(f"{stamp[:-3]}{second_}Z,{','.join([_points(price)] * 4)},1")
    for name, lines in (("bars.csv", bars), ("two_sided.csv", two_sided), ("seconds.csv", seconds)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
