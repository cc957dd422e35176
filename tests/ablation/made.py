"""Ablations made up on the spot, and a tiny one that is really run."""

import numpy as np

from jaxtrade.ablation.kinds import reads_future
from jaxtrade.ablation.results import Ablation, FusionResult, Scores
from jaxtrade.ablation.tables import AdviceSkill
from jaxtrade.config import load_config

TINY = (
    "data.source=synthetic",
    "data.synthetic=martingale",
    "data.synthetic_sessions=8",
    "split.test_sessions=3",
    "account.preset=rules_off_50k",
    "env.task=entry",
    "env.features=[close]",
    "env.window=1",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "ppo.num_epochs=1",
    "network.hidden=[8]",
    "train.num_seeds=2",
    "train.total_timesteps=256",
    "train.chunk_updates=1",
    "advisor.horizon=10",
    "advisor.drop_bar=0.2",
)


def tiny(*overrides):
    return load_config(None, [*TINY, *overrides])


def made_ablation(
    worth,
    seeds=4,
    days=20,
    noise=10.0,
    *,
    profit=None,
    turned=None,
    digests=None,
):
    """An ablation whose kinds are worth so many dollars per day, over a noise that is each seed's
    and day's own.

    profit: float[U, K, S] of the training's history.
    """
    kinds, generator = tuple(worth), np.random.default_rng(0)
    market = generator.normal(0, 1000.0, (1, days))  # what the day did to everyone
    net = np.stack(
        [market + value + generator.normal(0, noise, (seeds, days)) for value in worth.values()]
    )
    per_agent = np.zeros((len(kinds), seeds))
    skills = tuple(AdviceSkill(1.0, 0.6, 0.2, 100) for _ in kinds)
    dates = tuple(f"2024-01-{day + 1:02d}" for day in range(days))
    scores = Scores(
        "test",
        dates,
        net,
        per_agent + 3.0,
        per_agent + 50.0,
        np.full_like(per_agent, np.nan),
        skills,
    )
    updates = 8 if profit is None else len(profit)
    history = {
        "trust": np.full((updates, len(kinds), seeds), 0.5),
        "finite": np.ones((updates, len(kinds), seeds)),
        "episode_profit": np.zeros((updates, len(kinds), seeds)) if profit is None else profit,
    }
    known = {kind: kind for kind in kinds} | (digests or {})
    fusion = FusionResult(
        "trust",
        {"test": scores},
        history,
        np.zeros((len(kinds), 5)),
        tuple((known[kind],) * seeds for kind in kinds),
        turned,
        1.0,
        2.0,
        3.0,
    )
    reported = tuple(reads_future(kind) for kind in kinds)
    return Ablation(
        kinds,
        reported,
        tuple(range(seeds)),
        (fusion,),
        "test",
        {"market": "ES"},
        {"versions": {}},
        ("cheating: some",),
    ), fusion
