"""The optima and random results that `bench.studies.defaults_problems` states are computed again, by
dynamic programming.
"""

import numpy as np
import pytest

from bench.studies import defaults_problems as problems
from jaxtrade.data.synthetic import REVERSION_PULL
from jaxtrade.evaluation.baselines import random_masked
from jaxtrade.runs.setup import prepare
from tests.optimum.dp import solve
from tests.optimum.learner import Sessions, optimal, profits, settings
from tests.optimum.walk import OneStep, optimal_walker, solve_walk


def fresh(name):
    """The path on which the problem is judged. None of these agents looks at the observation."""
    problem = problems.PROBLEMS[name]
    config = problems.config_of(
        problem, "mlp", ("env.features=[close]", "env.window=1", "rollout.num_envs=8")
    )
    data = config.data.model_copy(
        update={
            "synthetic_seed": problems.FRESH_SEED,
            "synthetic_sessions": problems.FRESH_SESSIONS,
        }
    )
    return prepare(config.model_copy(update={"data": data}))


def solved_agent(setup):
    """The optimum of the setup's market and task, as an agent."""
    data, task = setup.config.data, setup.config.env.task
    chosen, bars = settings("entry" if task == "entry" else "manage"), 449
    if data.synthetic == "mean_reversion":
        return optimal(setup, solve(chosen, data.synthetic_pull or REVERSION_PULL, bars))
    drift = 0.0 if data.synthetic == "martingale" else data.synthetic_drift
    assert drift is not None
    return optimal_walker(setup.env, solve_walk(chosen, drift, bars))


def dollars(setup, agent):
    params = setup.params
    first, last = (
        np.asarray(x) for x in (params.market.sessions.first, params.market.sessions.last)
    )
    return float(
        profits(setup.env, agent, params, Sessions(first, last - first + 1, first)).mean() / 1000
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["reversion", "trend", "martingale", "reversion, advised"],
)
def test_the_stated_optimum_is_what_the_solved_policy_makes(name):
    setup, problem = fresh(name), problems.PROBLEMS[name]
    assert round(dollars(setup, solved_agent(setup)), 2) == problem.optimum
    assert round(dollars(setup, random_masked(setup.env)), 2) == problem.random


def test_a_step_of_the_walk_by_hand():
    """BUY at the close 10,000: filled at the next open, one tick worse, with stop 9,992 and target
    10,024. The bar closes at 10,001."""
    bar = OneStep(settings("entry"))
    (side, entry, stop, target, trailing), cash = bar.after(1, (0, 0, 0, 0, False), 9, 1)
    assert (side, entry, stop, target, trailing) == (1, 0, -9, 23, False)
    assert cash == -2_080


def test_scores():
    market, control = problems.PROBLEMS["trend"], problems.PROBLEMS["martingale"]
    assert problems.score_of(market, np.array([market.optimum, 0.0])).tolist() == [1.0, 0.0]
    assert problems.score_of(control, np.array([control.random, 0.0])).tolist() == [0.0, 1.0]
