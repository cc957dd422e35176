"""The reference runs, as command lines of `jaxtrade`, and the bars that some of them read.

They are small, and take every way through the code: tasks, networks, fusions, kinds of bars, seeds,
transfer.
"""

import numpy as np
import pandas as pd

from tests.children import sets
from tests.reading import ROOT

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
PRICES = ["open", "high", "low", "close"]


def _train(*settings, flags=()):
    return ["train", "quickstart", *flags, *sets(*TINY, *settings)]


def _advised(*settings):
    return [
        "train",
        "advised",
        "--advisor",
        "table:{folder}/advice.npz",
        *sets(*TINY, *settings),
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
    *sets("split.validation_sessions=1"),
]
RUNS = {
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
        *sets("data.source=synthetic", *TINY, "env.task=manage"),
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
    "curriculum": ["curriculum", "--advisor", "off", *sets(*TINY, "enforce_gates=false")],
}


def write_files(folder):
    """Five days of the bundled E-mini minutes: as they are, with an ask side, and with four seconds
    in each minute.
    """
    file = ROOT / "jaxtrade" / "data" / "bundled" / "es_1m_trade.csv.gz"
    bars = pd.read_csv(file, dtype={"expiry": str}).rename(columns={"ts_utc": "time"})
    week = (bars.time >= "2013-10-06T22") & (bars.time < "2013-10-11T22")
    bars = bars[week & (bars.expiry == "201312")].drop(columns="expiry")
    bars.to_csv(folder / "bars.csv", index=False)
    rng, bid = np.random.default_rng(7), bars[PRICES].to_numpy()
    ask = bid + rng.integers(1, 4, bid.shape) / 4
    ask[:, 1], ask[:, 2] = ask.max(axis=1), ask.min(axis=1)
    sides = pd.DataFrame(
        np.hstack([bid, ask]),
        columns=[f"{side}_{name}" for side in ("bid", "ask") for name in PRICES],
    )
    sides.insert(0, "time", bars.time.to_numpy())
    sides.to_csv(folder / "two_sided.csv", index=False)
    first = rng.random((len(bid), 1)) < 0.5
    inside = np.where(first, bid, bid[:, [0, 2, 1, 3]]).ravel()
    stamps = [f"{at[:-3]}{second}Z" for at in bars.time for second in ("00", "15", "30", "45")]
    seconds = pd.DataFrame({"time": stamps, **dict.fromkeys(PRICES, inside), "volume": 1})
    seconds.to_csv(folder / "seconds.csv", index=False)
