"""What an evaluation takes after compilation: ten years of minute bars, 500 sessions held out, six
agents, both passes.

`both passes` is what `evaluate` runs: all agents and sessions side by side, the accounts of the account pass worked out
from the strategy pass, every joint compared, and the records on the host. `in turn` is the same account pass with one
session after the other, all agents at once. Both give the same records, which is asserted here.

`validation` is one score of a policy in training (`training`: one chunk of updates) in a run of the default protocol on
the same bars: three validation scores at least, on 40 sessions. `validation_share` says which part of the run's time
that is: scores x seconds of a score over that and chunks x seconds of a chunk.
"""

from __future__ import annotations

import statistics
from typing import Any

import jax
import numpy as np

from jaxtrade.config import RunConfig, make_config
from jaxtrade.evaluation.agents import greedy
from jaxtrade.evaluation.backtest import Lane, decision_bars, run_lanes
from jaxtrade.evaluation.evaluate import agent_key, standard_agents
from jaxtrade.evaluation.passes import run_account, run_passes
from jaxtrade.runs.setup import Setup, prepare
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.chunk import compile_chunk

from . import harness
from .catalogue import Options

SESSIONS = 2520  # ten years
HELD_OUT = 500
QUICK_SESSIONS, QUICK_HELD_OUT = 120, 24


def config_of(quick: bool, **sections: Any) -> RunConfig:
    """The defaults, on synthetic ES bars."""
    small = (
        {"rollout": {"num_envs": 16, "num_steps": 16}, "train": {"total_timesteps": 4096}}
        if quick
        else {}
    )
    return make_config(
        {
            "data": {
                "market": "ES",
                "source": "synthetic",
                "synthetic_sessions": QUICK_SESSIONS if quick else SESSIONS,
            },
            **small,
            **sections,
        }
    )


def evaluation_lanes(setup: Setup) -> list[Lane]:
    """The six standard agents on the test sessions, with an untrained policy."""
    policy = setup.algorithm.policy(setup.algorithm.init(jax.random.key(0), setup.params))
    params, key = setup.params.replace(sessions=setup.splits["test"]), jax.random.key(0)
    decisions = decision_bars(setup.single.data, setup.splits["test"])
    return [
        Lane(agent, params, decisions, agent_key(key, agent.name))
        for agent in standard_agents(setup.env, setup.single, setup.config, setup.algorithm, policy)
    ]


def same(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether two lists of records have the same bits."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    return all(np.array_equal(one, other, equal_nan=one.dtype.kind == "f") for one, other in pairs)


def of_evaluation(options: Options) -> tuple[dict[str, list[harness.Sample]], dict[str, Any]]:
    """Samples of both passes and of the account pass in turn, and what was evaluated."""
    held_out = QUICK_HELD_OUT if options.quick else HELD_OUT
    setup = prepare(
        config_of(options.quick, split={"test_sessions": held_out, "validation_sessions": 0})
    )
    lanes = evaluation_lanes(setup)
    if not same(run_passes(setup.env, lanes)["account"], run_lanes(setup.env, lanes, "account")):
        raise RuntimeError("the account pass side by side has other records than in turn")
    bars = len(lanes[0].decisions.rows) * len(lanes)
    samples = harness.interleave(
        {
            "both passes": harness.side(
                lambda: run_passes(setup.env, lanes)["account"][0].equity, 2 * bars
            ),
            "account pass, in turn": harness.side(
                lambda: run_lanes(setup.env, lanes, "account")[0].equity, bars
            ),
        },
        options.repeats,
    )
    return samples, {
        "agents": [lane.agent.name for lane in lanes],
        "test_sessions": held_out,
        "test_bars": len(lanes[0].decisions.rows),
        "market_bars": len(setup.single.bars.time),
    }


def of_training(options: Options) -> tuple[dict[str, list[harness.Sample]], dict[str, Any]]:
    """Samples of a chunk of training and of a validation score, and how often a run does either."""
    setup = prepare(config_of(options.quick))
    train, control = setup.config.train, setup.config.control
    algorithm, sessions = setup.algorithm, setup.splits["validation"]
    state, params = jax.jit(algorithm.init)(jax.random.key(0), setup.params), setup.params
    with Programs() as programs:
        chunk = compile_chunk(programs, algorithm, train.chunk_updates, state, params)
    decisions, key = decision_bars(setup.single.data, sessions), jax.random.key(0)
    held = [state]

    def learn() -> Any:
        held[0], metrics, _ = chunk(held[0], params)
        return metrics

    def score() -> Any:
        agent = greedy(algorithm, algorithm.policy(held[0]), setup.env)
        return run_account(
            setup.env, [Lane(agent, params.replace(sessions=sessions), decisions, key)], True
        )[0].reward

    assert train.total_timesteps is not None, "the default"
    updates = train.total_timesteps // algorithm.steps_per_update
    chunks = -(-updates // train.chunk_updates)
    scores = -(-chunks // control.evaluate_every)
    steps = train.chunk_updates * algorithm.steps_per_update
    samples = harness.interleave(
        {
            "training": harness.side(learn, steps),
            "validation": harness.side(score, len(decisions.rows)),
        },
        options.repeats,
    )
    return samples, {
        "validation_sessions": int(sessions.count),
        "validation_bars": len(decisions.rows),
        "chunks": chunks,
        "scores": scores,
        "total_timesteps": train.total_timesteps,
    }


def run(options: Options) -> dict[str, Any]:
    evaluated, about = of_evaluation(options)
    trained, run_of = of_training(options)
    samples = evaluated | trained
    bars = about["test_bars"] * len(about["agents"])
    steps = {
        "both passes": 2 * bars,
        "account pass, in turn": bars,
        "validation": run_of["validation_bars"],
        "training": run_of["total_timesteps"] // run_of["chunks"],
    }
    seconds = {
        name: harness.rounded(statistics.median(each.wall for each in taken))
        for name, taken in samples.items()
    }
    scoring = run_of["scores"] * seconds["validation"]
    sides = {name: harness.summary(taken, steps[name]) for name, taken in samples.items()}
    return {
        "config": about | run_of | {"repeats": options.repeats, "threads": harness.cores()},
        "sides": sides,
        "seconds": seconds,
        "ratios": {
            "account pass in turn / both passes, time": harness.rounded(
                seconds["account pass, in turn"] / seconds["both passes"]
            )
        },
        "validation_share": harness.rounded(
            scoring / (scoring + run_of["chunks"] * seconds["training"])
        ),
    }
