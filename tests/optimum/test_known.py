"""The optimum that an evaluation shows is that of the tests' own dynamic program, and the market that
has one trains the quickstart's program.
"""

from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest

from jaxtrade.config import DataConfig, load_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.synthetic import (
    LEVELS,
    REVERSION_PULL,
    bar_between,
    bars_of_kind,
    chain_states,
    level_of,
    transitions,
)
from jaxtrade.evaluation import results_table
from jaxtrade.evaluation.optimum import Costs, best_profit, is_known, play, solve, states_of
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.runs.setup import prepare
from tests.evaluation.test_verdict import agent, said
from tests.messages import missing
from tests.optimum import dp
from tests.optimum.learner import settings

FAR = {"stop_atr": 10_000, "target_multiple": 2, "trail_atr": 10_000}
COSTS = Costs(commission=2_080, tick=12_500, slippage=1, breakeven=1)


def test_it_is_the_optimum_of_the_oracle():
    costs, bars = COSTS._replace(slippage=3, breakeven=0), 12
    asked = replace(settings("manage"), slippage=costs.slippage, be_ticks=costs.breakeven, **FAR)
    expected = dp.solve(asked, REVERSION_PULL, bars)
    np.testing.assert_array_equal(
        solve(REVERSION_PULL, bars, costs).value[:, :, 0], expected.value[:, :, 0]
    )


def test_what_it_makes_on_all_paths_is_its_value():
    bars, matrix = 5, transitions(REVERSION_PULL)
    solved = solve(REVERSION_PULL, bars, COSTS)
    for start in (0, 5, 8):
        total = 0.0
        for turns in product((0, -1), repeat=bars):
            path, chance = [start], 1.0
            for turn in turns:
                after = np.flatnonzero(matrix[path[-1]])
                if turn and len(after) == 1:  # an outer level, where the price always turns
                    chance = 0.0
                    break
                path.append(int(after[turn]))
                chance *= matrix[path[-2], path[-1]]
            total += chance and chance * play(solved, np.array(path))
        assert total == pytest.approx(solved.value[bars, start, 0])


def test_each_bar_tells_its_state():
    states = chain_states(np.random.default_rng(0), 500, REVERSION_PULL)
    levels = level_of(states)
    bars = 1_000 + bar_between(levels[:-1], levels[1:])
    np.testing.assert_array_equal(states_of(bars[:, 0], bars[:, 3]), states[1:])
    bars[7, 3] += 1
    assert states_of(bars[:, 0], bars[:, 3]) is None


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ("seed=1", True),
        ("data.synthetic=mean_reversion", True),
        ("brackets.stop_atr=1.5", False),
        ("brackets.trail_atr=1", False),
        ("env.task=entry", False),
        ("env.actions=seed6", False),
        ("data.synthetic=trend", False),
    ],
)
def test_it_is_known_where_no_bracket_can_be_met(change, known):
    market = type("", (), {"contract": get_contract("ES")})
    assert is_known(load_config("proof", [change]), market) is known


def test_the_planted_chain_has_the_minutes_of_the_bundled_bars():
    made = bars_of_kind(get_contract("ES"), DataConfig(synthetic="planted"))
    real = prepare(load_config("quickstart")).market.bars
    np.testing.assert_array_equal(made.time, real.time)
    assert set((made.close - made.close.min()).tolist()) == set(LEVELS.tolist())


def test_proof_and_quickstart_train_one_program():
    """What is static is equal, and so are the shapes of what is not."""
    one, other = (prepare(load_config(name)) for name in ("proof", "quickstart"))
    assert one.env == other.env
    assert one.plan == other.plan
    for section in ("rollout", "network", "compute", "sampler", "actor", "stages"):
        assert getattr(one.config, section) == getattr(other.config, section)
    assert one.config.minibatches == other.config.minibatches
    shapes = [
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (setup.params, setup.splits))
        for setup in (one, other)
    ]
    assert shapes[0] == shapes[1]
    decisions = decision_bars(one.market.data, one.splits["test"])
    best = best_profit(one.config, one.market, one.params, decisions)
    assert best == pytest.approx(141_413.08)
    assert best_profit(other.config, other.market, other.params, decisions) is None


def test_the_verdict_says_how_much_was_found():
    held = [agent("greedy", 88.0), agent("flat", 0.0)]
    text = results_table.compare_agents(held, "1 held-out session", best=100.0)
    assert not missing(text, "88 %", "$100.00", "more than flat")
    assert "luck" in said(*held)
    assert "luck" not in text
