"""The score of training control: what training pays, by the evaluator."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.env.actions import Action
from jaxtrade.evaluation.evaluators import mean_reward
from jaxtrade.evaluation.side_by_side import step_all
from tests.evaluation.tiny import LENGTHS, WALK, hand_market, setup

pytestmark = pytest.mark.slow

OFF = {"drawdown": "off", "daily_loss": "off", "profit_target": "off"}


def act(policy, carry, ref, params, key, explore):
    """The policy is the action that it takes wherever that is legal."""
    return carry, jnp.where(ref.mask[policy], policy, 0), None


ALWAYS = SimpleNamespace(act=act, carry=())


def trained_reward(env, params, session, action):
    """Sum over one session of what `TradingEnv.step` pays, until the episode ends; and how many
    steps that took.
    """
    params = params.replace(
        sessions=params.sessions.replace(ids=params.sessions.ids.at[0].set(session))
    )
    state, sum_of, steps = env.reset_at(params, 0, params.market.sessions.first[session]), 0.0, 0

    @jax.jit
    def step(state, params):
        chosen = jnp.where(env.mask(state, params)[action], action, 0)
        state, _, outcome = env.step(jax.random.key(0), state, chosen, params)
        return state, outcome.reward, outcome.terminated | outcome.truncated

    done = False
    while not done:
        state, reward, done = step(state, params)
        sum_of, steps = sum_of + float(reward), steps + 1
    return sum_of, steps


def test_by_hand():
    """In at 8002, out at the flat bar's 8007 - 1: 4 ticks less two commissions, $45.84 a session;
    none for staying out.

    The stop is 15 ticks away and never reached."""
    market = hand_market(3)
    env, params, _ = setup(market, market.sessions(0), account=OFF)
    unit = float(params.account.risk_unit)
    sessions = market.every
    score = mean_reward(env, params, sessions, ALWAYS, [jnp.int32(Action.BUY)])  # type: ignore[arg-type]
    assert score == pytest.approx(45_840 / unit, rel=1e-6)
    both = mean_reward(
        env,
        params,
        sessions,
        ALWAYS,  # type: ignore[arg-type]
        [jnp.int32(Action.BUY), jnp.int32(Action.HOLD)],
    )
    assert both == pytest.approx(score / 2)


@pytest.mark.parametrize(("drawdown", "whole"), [(20_000.0, True), (300.0, False)])
def test_the_evaluator_pays_what_training_pays(drawdown, whole):
    """With every kind of term, one session, and an account that ends in it: nothing is paid after
    that, though `flat` would pay for every idle bar."""
    reward = {
        "preset": "seed_phase2",
        "weights": {"equity_change": 1.0, "flat": 0.5, "in_position": -0.25},
    }
    account = OFF | {"drawdown": drawdown, "freeze": "never"}
    env, params, _ = setup(WALK, WALK.sessions(0), account=account, reward=reward)
    session = WALK.sessions(1)
    score = mean_reward(env, params, session, ALWAYS, [jnp.int32(Action.SELL)])  # type: ignore[arg-type]
    expected, steps = trained_reward(env, params, 1, Action.SELL)
    assert (steps == LENGTHS[1] - 1) == whole
    assert score == pytest.approx(expected, rel=1e-6)
    assert score != 0


def test_new_weights_do_not_compile_again():
    market = hand_market(3)
    env, params, _ = setup(market, market.sessions(0), account=OFF)
    before = step_all._cache_size()  # type: ignore[attr-defined]
    scores = [
        mean_reward(env, params, market.every, ALWAYS, [np.int32(action)])  # type: ignore[arg-type]
        for action in (Action.HOLD, Action.BUY, Action.SELL)
    ]
    assert step_all._cache_size() - before <= 1  # type: ignore[attr-defined]
    assert len(set(scores)) == 3
