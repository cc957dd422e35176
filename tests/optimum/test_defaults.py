"""The defaults as they are, without one tuned number: they learn a market whose optimum is known,
and the quickstart's training days."""

from __future__ import annotations

import jax
import pytest

from bench.studies.defaults_problems import PROBLEMS, config_of, world_of
from jaxtrade.config import load_config
from jaxtrade.evaluation.evaluate import evaluate
from jaxtrade.rl.ppo.state import policy_of
from jaxtrade.runs.setup import prepare
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack

STEPS = {"mlp": 400_000, "gru": 400_000}


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", pytest.param("gru", marks=pytest.mark.long)])
def test_the_defaults_reach_nine_tenths_of_the_optimum(network):
    """Two seeds, on sessions that neither has seen. docs/defaults.md shows eight seeds and more
    markets.
    """
    problem = PROBLEMS["reversion"]
    config = config_of(
        problem, network, (f"train.total_timesteps={STEPS[network]}", "train.num_seeds=2")
    )
    world, setup = world_of(problem, config), prepare(config)
    result = train(setup.algorithm, setup.params, config=config.train, key=Stack.of(2).keys(0))
    found = world.judge(setup.algorithm, jax.vmap(policy_of)(result.state))
    print(f"{network}: {found['score']} of the optimum")
    assert found["score"].min() >= 0.9


@pytest.mark.slow
def test_the_quickstart_does_not_lose_in_sample():
    """Its training days, the greedy policy. What the held-out day says is no part of this test."""
    config = load_config("quickstart")
    setup = prepare(config)
    result = train(
        setup.algorithm, setup.params, config=config.train, key=jax.random.key(config.seed)
    )
    report = evaluate(
        setup.env,
        setup.params,
        setup.market,
        setup.splits["train"],
        config,
        algorithm=setup.algorithm,
        policy=policy_of(result.state),
    )
    print(report.table())
    own, chance = (
        report.agent(name).strategy_figures["net_profit"] for name in ("greedy", "random")
    )
    assert own >= 0 > chance
