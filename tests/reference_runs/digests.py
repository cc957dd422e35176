"""Digests of the programs of many configurations: equal digests are equal bits, on any machine.

Each configuration is one real command, run by `capture.py`, which lowers its programs and computes
next to nothing. It takes seconds where a reference run takes a minute, and shows that code was moved
or renamed without a change of what is computed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.reference_runs.runs import PREPARE, RUNS, TINY, write_files

CAPTURE = Path(__file__).with_name("capture.py")
FLAGS = (  # as little work as can be for what is compiled, and two devices to shard over
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_force_host_platform_device_count=2",
)
# Settings of the reference runs that do not matter here, or belong to PPO alone.
COMMON = tuple(each for each in TINY if not each.startswith(("ppo.", "train.total", "control.")))
Q = ("rollout.num_envs=8", "train.total_timesteps=1024")
DQN = ("algorithm=dqn", "dqn.learning_starts=256", "dqn.buffer_size=2048", "dqn.batch_size=32", *Q)
PQN = ("algorithm=pqn", *Q)
PAIR = ("data.source=synthetic", "data.markets=[EURUSD,USDJPY]", "data.synthetic_sessions=12")
SETTINGS: dict[str, Sequence[str]] = {
    "bfloat16": ("compute.precision=bfloat16",),
    "features": ("env.features=[close,volume,rsi_14,atr_14]", "env.window=5"),
    "closed": ("env.fill=close", "env.mark=close", "env.scaling=seed"),
    "rewards": ("reward.preset=seed_phase2", "episode.max_steps=100", "ppo.vf_clip_eps=0.2"),
    "relu": ("network.activation=relu", "ppo.normalise_advantages=false", "ppo.ent_coef_end=0"),
    "stale": ("actor.delay=2",),
    "stale_gru": (
        "actor.delay=1",
        "network.kind=gru",
        "network.rnn_width=8",
        "rollout.num_shards=2",
    ),
    "prioritised": ("sampler.kind=prioritised",),
    "several_sessions": ("episode.sessions=3", "account.trailing=end_of_day"),
    "monitor": ("monitor.on=true",),
    "dqn": DQN,
    "dqn_prioritised": (*DQN, "dqn.replay=prioritised", "dqn.dueling=false", "dqn.layer_norm=true"),
    "dqn_soft": (*DQN, "dqn.tau=0.01", "dqn.double=false", "dqn.n_steps=1", "env.task=entry"),
    "pqn": PQN,
    "pqn_gru": (*PQN, "network.kind=gru", "network.rnn_width=8", "rollout.num_shards=2"),
    "pqn_epochs": (*PQN, "pqn.num_epochs=1", "pqn.dueling=true", "pqn.normalise_rewards=false"),
    "set": (*PAIR, "env.task=manage"),
    "set_dqn": (*PAIR, *DQN),
    "allocate": (*PAIR, "env.task=allocate"),
    "allocate_table": (*PAIR, "env.task=allocate", "allocate.preset=dual_26"),
    "allocate_dqn": (*PAIR, *DQN, "env.task=allocate", "allocate.actions=increment"),
    "shared": ("shared.on=true", "train.num_seeds=4"),
    "shared_dqn": (*DQN, "shared.on=true", "train.num_seeds=4"),
    "population": ("sweep.keys={ppo.ent_coef: [0.01, 0.02]}", "sweep.seeds=2"),
    "evolving": (
        "train.num_seeds=4",
        "evolve.keys={ppo.learning_rate: [1e-4, 1e-2]}",
        "evolve.every=1",
    ),
    "two_devices": ("parallel.devices=2",),
    "two_devices_strict": ("parallel.devices=2", "parallel.reduce=strict"),
    "two_devices_seeds": ("parallel.devices=2", "train.num_seeds=2"),
    "two_devices_dqn": (*DQN, "parallel.devices=2"),
    "held_advice": (
        "env.task=advised",
        "advisor.kind=mock:skilled:0.6",
        "advisor.transport=callback",
    ),
    "live_dqn": (
        *DQN,
        "env.task=advised",
        "env.advice=true",
        "advisor.kind=mock:skilled:0.6",
        "advisor.fusion=slots",
    ),
    "synthetic": ("data.source=synthetic", "account.preset=rules_off_50k"),
}


def _train(settings):
    given = [word for each in (*COMMON, *settings) for word in ("--set", each)]
    return ["train", "quickstart", "--test", *given]


def commands():
    """Name -> words of the command line, without its run folder."""
    runs = {name: words for name, words in RUNS.items() if words[0] == "train"}
    trained = runs | {name: _train(settings) for name, settings in SETTINGS.items()}
    return trained | {"evaluate": ["evaluate", "{folder}/entry", "--cost-grid"]}


# What other commands read comes first.
FIRST = ("entry", "manage")


def capture_all(tree, names, folder, jobs):
    """Name -> digests of its large programs, sorted, for the
    package of the checkout at `tree`. Raises SystemExit where a command fails before its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_files(folder)
    environment = os.environ | {
        "NPROC": "8",  # as many as a strict reduction of two devices asks for
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(tree),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "XLA_FLAGS": " ".join(FLAGS),
    }

    def run(command):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        # 1: finished, but a health check of so short a run failed
        if done.returncode not in (0, 1) or "this is a bug" in done.stderr:
            words = " ".join(command)
            raise SystemExit(f"{words}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done.stdout

    def capture(name):
        out = folder / f"{name}.json"
        words = [word.replace("{folder}", str(folder)) for word in every[name]]
        if words[0] == "train":
            words += ["--run-dir", str(folder / name)]
        run([str(CAPTURE), str(out), *words])
        return json.loads(out.read_text(encoding="utf-8"))

    every = commands()
    found = {name: capture(name) for name in FIRST}
    if any("table:" in word for name in names for word in every[name]):
        run(["-m", "jaxtrade.cli", *(word.replace("{folder}", str(folder)) for word in PREPARE)])
    with ThreadPoolExecutor(jobs) as pool:
        rest = [name for name in names if name not in found]
        for name, its in zip(rest, pool.map(capture, rest), strict=True):
            found[name] = its
            print(f"{name}: {len(its)} programs", flush=True)
    return {name: found[name] for name in names}


def compare(found, expected):
    """Print what differs; how many configurations do."""
    bad = 0
    for name, its in found.items():
        if its != expected.get(name) or not its:
            bad += 1
            print(f"DIFFERS {name}: {' '.join(its)}, expected {' '.join(expected.get(name, []))}")
    count = sum(map(len, found.values()))
    print(f"{len(found) - bad} of {len(found)} configurations equal ({count} programs)")
    return bad
