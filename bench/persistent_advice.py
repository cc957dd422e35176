"""Advice without skill that persists: how often it is trusted, and what an ablation finds it worth.

`trust`: many runs, each on a martingale of its own and with opinions of its own
    (`mock:persistent:60` and its placebo).
As in every ablation, all answers are scored before the first update, in the order of time. The
trust that a run ends with then follows from the market and the answers alone, so nothing is
trained. The share of runs without trust has its 95 % interval (Wilson), over independent runs.
`ablation`: one whole ablation of such advisors, where the interval of each difference to no advice
must contain 0. With fusion `trust` the difference is exactly 0 where nothing is trusted.
`slots` shows the advice to the network, so there it is not.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import jax
import numpy as np

from jaxtrade.ablation.matrix import first_advice, make_learner
from jaxtrade.ablation.results import Ablation
from jaxtrade.ablation.run import ablate
from jaxtrade.ablation.tables import make_tables
from jaxtrade.advisor.compose import only
from jaxtrade.config import RunConfig, load_config
from jaxtrade.data.market import load_market
from jaxtrade.data.splits import split_sessions

from .catalogue import Options

ADVICE = ("mock:persistent:60", "mock:shifted/mock:persistent:60")
KINDS = ("none", *ADVICE, "mock:persistent:10", "mock:persistent:240")
FUSIONS = ("trust", "slots")
RUNS, QUICK_RUNS = 1_000, 20
LEVEL = 0.95
# A martingale of one tick a minute, as in the tests of the ablation; small networks and short
# episodes.
SETTINGS = (
    "data.source=synthetic",
    "data.synthetic=martingale",
    "data.synthetic_sessions=60",
    "split.test_sessions=30",
    "account.preset=rules_off_50k",
    "costs.commission=0.5",
    "costs.slippage=0",
    "env.task=entry",
    "env.features=[close]",
    "env.window=1",
    "brackets.stop_atr=3",
    "brackets.target_multiple=1",
    "brackets.min_stop_ticks=3",
    "advisor.horizon=30",
    "rollout.num_envs=32",
    "rollout.num_steps=64",
    "ppo.num_minibatches=4",
    "ppo.num_epochs=2",
    "network.hidden=[16]",
    "train.num_seeds=5",
    "train.total_timesteps=204_800",
    "train.chunk_updates=5",
)
HELD_OUT = (
    "data.synthetic_sessions=32",
    "split.test_sessions=2",
)  # of `trust`, where only training sessions count
QUICK = (
    "data.synthetic_sessions=16",
    "split.test_sessions=6",
    "train.num_seeds=3",
    "train.total_timesteps=20_480",
)


def config_of(quick: bool) -> RunConfig:
    """The configuration of the ablation."""
    return load_config(None, [*SETTINGS, *(QUICK if quick else ())])


def run_of(number: int) -> RunConfig:
    """The configuration of run `number` of `trust`. The number is the seed of its bars and of its
    opinions.
    """
    return load_config(
        None, [*SETTINGS, *HELD_OUT, f"seed={number}", f"data.synthetic_seed={number}"]
    )


def trust_of(config: RunConfig) -> list[float]:
    """The largest |log-odds| over the ranges of confidence, for each of `ADVICE`, at the end of a
    run's training.
    """
    market = load_market(config)
    train = split_sessions(market, config.split)["train"]
    tables, followed, askable = make_tables(ADVICE, config, market)
    learner = make_learner(config, "trust", market, train)
    advice = first_advice(learner, tables, only(followed, market, train), askable)
    return (
        np.abs(np.asarray(jax.vmap(learner.fusion.trust)(advice.outcomes).log_odds))
        .max(axis=1)
        .tolist()
    )


def share_interval(hits: int, runs: int, level: float = LEVEL) -> tuple[float, float]:
    """The Wilson interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle, half = hits + z * z / 2, z * math.sqrt(hits * (runs - hits) / runs + z * z / 4)
    return (middle - half) / (runs + z * z), (middle + half) / (runs + z * z)


def trust_figures(found: np.ndarray) -> dict[str, Any]:
    """The figures of each of `ADVICE`. found: float64[runs, kinds] of `trust_of`."""
    figures = {}
    for kind, trust in zip(ADVICE, found.T, strict=True):
        without = int((trust == 0).sum())
        low, high = share_interval(without, len(trust))
        figures[kind] = {
            "runs": len(trust),
            "without_trust": without,
            "share_without_trust": without / len(trust),
            "share_interval": [low, high],
            "largest_trust": float(trust.max()),
            "mean_trust": float(trust.mean()),
        }
    return figures


def ablation_figures(found: Ablation) -> dict[str, Any]:
    """By fusion and advisor: what it was worth less no advice, in dollars per day, and the trust
    that training left.
    """
    figures = {}
    for fusion in found.fusions:
        for k, kind in enumerate(found.kinds[1:], 1):
            less = found.compared(fusion, kind, "none")
            assert less.interval is not None  # it has enough days and seeds
            assert less.deflated is not None
            figures[f"{fusion.fusion}: {kind}"] = {
                "less_none": less.mean,
                "interval": list(less.interval),
                "deflated": list(less.deflated),
                "contains_0": 0 in less.interval,
                "deflated_contains_0": 0 in less.deflated,
                "largest_trust": float(np.abs(fusion.trust[k]).max()),
            }
    return figures


def run(options: Options) -> dict[str, Any]:
    runs = QUICK_RUNS if options.quick else RUNS
    trust = np.array([trust_of(run_of(number)) for number in range(runs)])
    found = ablate(config_of(options.quick), KINDS, FUSIONS)
    settings = {
        "settings": [*SETTINGS, *(QUICK if options.quick else ())],
        "trust_settings": HELD_OUT,
        "runs": runs,
        "kinds": KINDS,
        "fusions": FUSIONS,
        "seeds": len(found.seeds),
        "days": len(found.fusions[0].scores[found.split].dates),
        "level": LEVEL,
    }
    return {"config": settings, "trust": trust_figures(trust), "ablation": ablation_figures(found)}
