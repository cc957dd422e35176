"""Attribution: linear policies worked by hand, a policy planted on one slot, and the whole
command's figures.
"""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import RunConfig
from jaxtrade.data.device import host_view
from jaxtrade.data.features.schema import table_columns
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation import grids
from jaxtrade.evaluation.attribution import (
    SlotGroup,
    attribute,
    changed_shares,
    gradient_shares,
    gradient_sizes,
    margin,
)
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import greedy
from jaxtrade.evaluation.evaluate import agent_key
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl.algorithms import first_policy, make_algorithm
from tests.evaluation.tiny import WALK, rule, setup

FEATURES = RunConfig().env.features


def lively_market():
    """WALK with features that vary, each by itself."""
    columns = table_columns(FEATURES)
    values = (
        np.random.default_rng(0)
        .uniform(1.0, 3.0, (len(WALK.bars.time), len(columns)))
        .astype(np.float32)
    )
    values[:, columns.index("close")] = WALK.bars.close
    seen = host_view(values, FEATURES, "relative", 0.25)
    return replace(WALK, data=WALK.data.replace(view=jax.tree.map(jnp.asarray, seen)))


MARKET = lively_market()
SECTIONS = {
    "network": {"hidden": [8]},
    "rollout": {"num_envs": 2, "num_steps": 4, "num_shards": 1},
    "env": {"task": "entry", "window": 5},
    "brackets": {"stop_atr": 0.5},
}


def made(algorithm="ppo", **network):
    """(environment, params, config, algorithm, untrained policy whose normaliser is not the
    identity).
    """
    sections = SECTIONS | {
        "algorithm": algorithm,
        algorithm: {"num_minibatches": 1},
        "network": SECTIONS["network"] | network,
    }
    env, params, config = setup(MARKET, MARKET.every, **sections)
    policy = first_policy(config, env.num_actions, env.observation_size, jax.random.key(1))
    rows = jnp.asarray(decision_bars(MARKET.data, MARKET.every).rows)
    seen = jax.vmap(lambda row: env.observe(env.ref(env.reset_at(params, 0, row), params), params))(
        rows
    )
    stats = RunningStats(
        jnp.full((1, seen.shape[1]), 9.0), seen.mean(0)[None], jnp.maximum(seen.var(0), 0.5)[None]
    )
    return env, params, config, make_algorithm(config, env, 1), policy.replace(normaliser=stats)


def found_by(parts, policy):
    env, params, config, algorithm, _ = parts
    return attribute(env, params, [greedy(algorithm, policy, env)], MARKET, MARKET.every, config)


def values(found, method):
    chosen = next(each for each in found.methods if each.name == method)
    return {name: value for (name, _), value in zip(found.groups, chosen.values, strict=True)}


# --- by hand ---------------------------------------------------------------------------------------------------------

WEIGHTS = np.array(
    [[0.0, 0.0, 0.0], [2.0, 1.0, 0.0], [-1.0, 0.0, 3.0]]
)  # logits of HOLD, BUY, SELL


def linear(observation, mask):
    return jnp.asarray(WEIGHTS) @ observation, mask


def test_a_single_legal_action_has_no_margin():
    found, slope = jax.value_and_grad(margin)(
        jnp.array([1.0, 5.0, 3.0]), jnp.array([False, True, False])
    )
    assert [float(found), *slope.tolist()] == [0.0] * 4


def test_gradients_of_a_linear_policy():
    observations = jnp.array(
        [
            [1.0, 0.0, 0.0],  # BUY 2, HOLD 0, SELL -1: slope of BUY - HOLD = (2, 1, 0)
            [0.0, 1.0, 1.0],  # SELL 3, BUY 1, HOLD 0: slope of SELL - BUY = (-3, -1, 3)
            [0.0, 1.0, 1.0],
        ]
    )  # the same without SELL: slope of BUY - HOLD
    masks = jnp.array([[True] * 3, [True] * 3, [True, True, False]])
    sizes = gradient_sizes(linear, observations, masks, np.array([1.0, 2.0, 0.5]))
    np.testing.assert_allclose(
        sizes, [(2 + 3 + 2) / 3, 2 * (1 + 1 + 1) / 3, 0.5 * (0 + 3 + 0) / 3], rtol=1e-6
    )
    groups = [SlotGroup("a", np.array([0, 2])), SlotGroup("b", np.array([1]))]
    shares = gradient_shares(sizes, groups)
    assert shares == pytest.approx([(7 + 1.5) / (7 + 6 + 1.5), 6 / (7 + 6 + 1.5)])
    assert gradient_shares(np.zeros(3), groups) is None


def test_the_share_of_changed_actions_of_a_threshold():
    # The action is the sign of slot 0. In stratum 0 both signs are equally frequent, in stratum 1
    # only one occurs.
    observations = np.zeros((400, 2), np.float32)
    observations[:, 0] = np.where(np.arange(400) < 100, 1, -1)
    observations[200:, 0] = 1
    observations[:, 1] = np.arange(400)
    strata = (np.arange(400) >= 200).astype(int)

    def choose(seen):
        return (seen[:, 0] > 0).astype(int)

    groups = [SlotGroup("sign", np.array([0])), SlotGroup("other", np.array([1]))]
    shares = changed_shares(choose, observations, groups, strata, 0, 50)
    # Of the first 200, a permutation gives half of them the other sign: 100 of 400. Its deviation
    # over 50 permutations is sqrt(100 * 100 * 100 * 100 / (200^2 * 199)) * 2 / 400 / sqrt(50) =
    # 0.0025.
    assert shares[0] == pytest.approx(0.25, abs=0.01)
    assert shares[1] == 0.0
    assert shares == changed_shares(choose, observations, groups, strata, 0, 50)
    assert shares != changed_shares(choose, observations, groups, strata, 1, 50)


# --- planted ---------------------------------------------------------------------------------------------------------


def planted(parts, slot):
    """The policy whose BUY logit is 3 tanh of one normalised slot; every other input has a weight
    of 1e-6.
    """
    env, *_, policy = parts
    place = env.spec.names.index(slot)
    first = jnp.full((env.observation_size, 8), 1e-6).at[place, 0].set(1.0)
    second = jnp.zeros((8, env.num_actions)).at[0, 1].set(3.0)
    bias = jnp.full(env.num_actions, -9.0).at[0].set(0.0).at[1].set(0.1)  # BUY or HOLD, never SELL
    torso = {"Dense_0": {"kernel": first, "bias": jnp.zeros(8)}}
    return policy.replace(
        parameters=policy.parameters
        | {"policy_torso": torso, "policy_head": {"kernel": second, "bias": bias}}
    )


@pytest.fixture(scope="module")
def ppo():
    return made()


@pytest.fixture(scope="module")
def first(ppo):
    return found_by(ppo, ppo[-1])


@pytest.mark.slow
def test_a_policy_that_is_planted_on_one_slot_is_found_by_every_method(ppo):
    env, params, config, algorithm, _ = ppo
    name = FEATURES[1]
    slot = f"{name}[t-1]"
    policy = planted(ppo, slot)
    found = found_by(ppo, policy)
    slopes, changed, dollars = (
        values(found, method) for method in ("gradient", "permutation", "ablation")
    )
    assert slopes[name] >= 0.99
    assert sum(slopes.values()) == pytest.approx(1.0)
    assert changed[name] > 0.1
    assert {other for other, share in changed.items() if share} == {name}
    assert {other for other, change in dollars.items() if change} == {name}
    # At its mean, the planted slot is 0: the same as a policy whose weight there is 0.
    torso = policy.parameters["policy_torso"]["Dense_0"]
    kernel = torso["kernel"].at[env.spec.names.index(slot)].set(0.0)
    blind = {"policy_torso": {"Dense_0": torso | {"kernel": kernel}}}
    decisions = decision_bars(MARKET.data, params.sessions)
    key = agent_key(jax.random.key(config.seed), "greedy")
    with_it, without_it = (
        backtest(env, greedy(algorithm, each, env), params, decisions, "strategy", key).equity[-1]
        for each in (policy, policy.replace(parameters=policy.parameters | blind))
    )
    assert dollars[name] == pytest.approx((without_it - with_it) / 1000, abs=1e-3)


@pytest.mark.slow
def test_a_q_learner_is_attributed_by_its_q_values():
    parts = made("pqn")
    slopes = values(found_by(parts, parts[-1]), "gradient")
    assert sum(slopes.values()) == pytest.approx(1.0)
    assert min(slopes.values()) > 0


@pytest.mark.slow
def test_a_policy_with_a_memory_has_only_the_ablation():
    parts = made(kind="gru", rnn_width=4)
    found = found_by(parts, parts[-1])
    for method in found.methods[:2]:
        assert set(method.values) == {None}
        assert "memory" in method.why
    assert None not in found.methods[2].values
    part = found.to_json()["methods"][0]["parts"][0]
    assert part["value"] == {"value": None, "why": found.methods[0].why}
    assert "gradient: n/a: " in grids.format_results({"ES": [found]}, False)


@pytest.mark.slow
def test_a_policy_that_looks_at_nothing_has_no_gradient(ppo):
    found = found_by(
        ppo, ppo[-1].replace(parameters=jax.tree.map(jnp.zeros_like, ppo[-1].parameters))
    )
    assert [set(method.values) for method in found.methods] == [{None}, {0.0}, {0.0}]
    assert "no slot" in found.methods[0].why


@pytest.mark.slow
def test_without_statistics_those_of_the_decisions_are_used(first):
    parts = made(normalise_observations=False)
    assert "does not normalise" in found_by(parts, parts[-1]).notes[1]
    assert "those of training" in first.notes[1]


@pytest.mark.slow
def test_it_needs_a_policy(ppo):
    env, params, config, *_ = ppo
    with pytest.raises(ConfigError, match="greedy policy; found flat"):
        attribute(env, params, [rule("flat", env)], MARKET, MARKET.every, config)


@pytest.mark.slow
def test_text_and_json(ppo, first):
    text = grids.format_results({"ES": [first]}, False)
    lines = text.splitlines()
    names = [method.name for method in first.methods]
    assert lines[0].split()[-5:] == ["slots", *names, "($)"]
    assert lines[1].split()[:2] == [FEATURES[0], "5"]
    assert any(line.startswith("NOTE: gradient, permutation: ") for line in lines)
    document = json.loads(grids.format_results({"ES": [first]}, True))["attribution"]
    assert [method["name"] for method in document["methods"]] == names
    assert document["methods"][0]["parts"][0]["value"]["value"] == first.methods[0].values[0]
    assert sum(document["slots"].values()) == ppo[0].observation_size
    both = json.loads(grids.format_results({"ES": [first], "NQ": [first]}, True))
    assert list(both) == ["ES", "NQ"]
