"""A policy that remembers, in the evaluator and out of its bundle: it forgets where training
episodes begin.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import sections_of
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.policy import load_policy, save_policy_bundle
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.evaluation.trades import coverage
from jaxtrade.rl.ppo import make_ppo
from tests.evaluation.tiny import TWO_DAYS as MARKET
from tests.evaluation.tiny import lively, observed, setup

PPO = {
    "kind": "gru",
    "rnn_width": 8,
    "num_envs": 2,
    "num_steps": 4,
    "num_minibatches": 1,
    "num_shards": 1,
    "hidden": [16],
}
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An untrained network with lively outputs and a normaliser that is not the identity, saved as
    a run would.
    """
    env, params, config = setup(
        MARKET, MARKET.every, account={"drawdown": 400.0}, **sections_of(PPO)
    )
    policy = lively(config, env)
    torso = policy.parameters["policy_torso"]["Dense_0"]
    # what it makes of its memory
    heavier = torso["kernel"].at[env.observation_size :].multiply(200)
    parameters = policy.parameters | {"policy_torso": {"Dense_0": torso | {"kernel": heavier}}}
    policy = policy.replace(parameters=parameters)
    run = tmp_path_factory.mktemp("run")
    save_policy_bundle(run / "policy", policy, env, MARKET, config)
    return make_ppo(config, env, 1), policy, env, params, load_policy(run)


def stepped(made, record, begins):
    """Actions of the loaded bundle, bar by bar, its memory begun anew where bool[L] `begins`."""
    _, _, env, params, loaded = made
    carry, actions = loaded.first_carry(), []
    seen = observed(env, record, params)
    for observation, mask, first in zip(seen, record.mask, begins, strict=True):
        carry, action = loaded.step(loaded.first_carry() if first else carry, observation, mask)
        actions.append(action)
    return actions


FIRST = np.arange(118) == 0
SECOND = np.arange(118) == 59  # the second session's first decision bar


@pytest.mark.parametrize(
    ("which", "episode_sessions", "accounts", "begins", "otherwise"),
    [
        ("strategy", 1, 1, FIRST | SECOND, FIRST),
        ("strategy", 2, 1, FIRST, FIRST | SECOND),
        (
            "account",
            2,
            2,
            FIRST | SECOND,
            FIRST,
        ),  # a bust in the first session: the second has a new account
    ],
)
def test_the_bundle_acts_as_the_evaluator_did(
    made, which, episode_sessions, accounts, begins, otherwise
):
    algorithm, policy, env, params, _ = made
    params = params.replace(episode_sessions=jnp.int32(episode_sessions))
    decisions = decision_bars(MARKET.data, params.sessions)
    record = backtest(env, greedy(algorithm, policy, env), params, decisions, which, KEY)
    assert coverage(record, decisions) == 1.0
    assert record.legal.all()
    assert record.account.max() + 1 == accounts
    assert len(set(record.action.tolist())) >= 3
    assert stepped(made, record, begins) == record.action.tolist()
    assert stepped(made, record, otherwise) != record.action.tolist()


def test_a_batch_of_memories(made):
    *_, loaded = made
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(3, 5, len(loaded.observation_names))).astype(np.float32)
    masks = rng.random((3, 5, 7)) < 0.5
    masks[..., 0] = True
    carry, singles = loaded.first_carry(5), [loaded.first_carry()] * 5
    assert carry.shape == (5, 8)
    for observation, mask in zip(observations, masks, strict=True):
        carry, actions = loaded.step(carry, observation, mask)
        singles, alone = zip(*map(loaded.step, singles, observation, mask), strict=True)
        assert actions.tolist() == list(alone)
        np.testing.assert_allclose(carry, singles, rtol=1e-5, atol=1e-6)


def test_a_memory_cannot_be_left_out(made):
    *_, loaded = made
    observation, mask = np.zeros(len(loaded.observation_names)), np.ones(7, bool)
    assert loaded.has_memory
    with pytest.raises(ValueError, match="remembers its episode"):
        loaded.act(observation, mask)
    for wrong in (None, np.zeros(7), loaded.first_carry(1)):
        with pytest.raises(ValueError, match=r"carry has shape .* expected \(8,\)"):
            loaded.step(wrong, observation, mask)
