"""Agents and sessions side by side: every record has the bits of the plain scan, whatever else is
evaluated beside it.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import sections_of
from jaxtrade.config import load_config
from jaxtrade.data.splits import session_set
from jaxtrade.evaluation import backtest, baselines, side_by_side
from jaxtrade.evaluation.backtest import Lane, plan_of, run_lanes, run_passes
from jaxtrade.evaluation.baselines import greedy, make_sampling_agent
from jaxtrade.evaluation.evaluate import agent_key
from jaxtrade.evaluation.record import decision_bars
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.setup import prepare
from tests.evaluation import tiny
from tests.evaluation.sequential import in_sequence
from tests.evaluation.tiny import hand_market, lively
from tests.rl.test_train import assert_same

PASSES = ("account", "strategy")
KEY = jax.random.key(7)


def made(*keys):
    """A run's parts, and three policies: untrained ones whose outputs were made lively, so that
    they do act.
    """
    setup = prepare(load_config("quickstart", list(keys)))
    policies = []
    for seed in range(3):
        policy = setup.algorithm.policy(setup.algorithm.init(jax.random.key(seed), setup.params))
        lively = jax.tree.map(
            lambda x: x * 30 if x.shape[-1:] == (setup.env.num_actions,) else x, policy.parameters
        )
        policies.append(policy.replace(parameters=lively))
    return setup, policies


def agents_of(setup, policies):
    own = [
        agent._replace(name=f"{agent.name} {i}")
        for i, policy in enumerate(policies)
        for agent in (
            greedy(setup.algorithm, policy, setup.env),
            make_sampling_agent(setup.algorithm, policy, setup.env),
        )
    ]
    rules = [
        baselines.flat(),
        baselines.random_masked(setup.env),
        baselines.buy_and_hold(setup.env),
        baselines.sma_cross(setup.env, setup.single.data, 5, 20),
    ]
    return [*own, *rules]


def lanes_of(setup, agents):
    sessions = setup.splits["all"]
    decisions = decision_bars(setup.single.data, sessions)
    return [
        Lane(agent, setup.params.replace(sessions=sessions), decisions, agent_key(KEY, agent.name))
        for agent in agents
    ]


def check(env, lanes):
    """The records have the bits of the plain scan."""
    for which in PASSES:
        for lane, record in zip(lanes, run_lanes(env, lanes, which, True), strict=True):
            expected = in_sequence(env, *lane[:3], which, lane.key, True)
            assert_same(record, expected, f"{lane.agent.name}, {which}")


@pytest.mark.slow
def test_days_of_real_bars():
    """A policy that draws its actions, and a rule, on three days."""
    setup, policies = made("network.hidden=[16]", "data.start=2013-10-09")
    agents = agents_of(setup, policies[:1])
    check(setup.env, lanes_of(setup, [agents[1], agents[4]]))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_parts_in_threads_have_the_bits_of_the_whole(count, monkeypatch):
    """Five sessions in two and three parts: of the last ones some lanes, or all, are
    copies.
    """
    setup, policies = made("network.hidden=[16]")
    lanes = lanes_of(setup, agents_of(setup, policies[:1])[1:3])
    whole = run_passes(setup.env, lanes, True)
    monkeypatch.setattr(backtest, "_part_count", lambda episodes: count if max(episodes) > 1 else 1)
    plan = plan_of(setup.env, lanes, "strategy")
    assert [part.slots[0].shape for part in plan.parts] == [(1, -(-5 // count))] * count
    for which, records in run_passes(setup.env, lanes, True).items():
        for lane, record, expected in zip(lanes, records, whole[which], strict=True):
            assert_same(record, expected, f"{lane.agent.name}, {which}, {count} parts")


def test_an_evaluation_has_as_many_parts_as_cores_but_whole_blocks(
    monkeypatch,
):
    monkeypatch.setenv("NPROC", "6")
    assert [backtest._part_count([episodes]) for episodes in (1, 4, 8, 23, 24, 500)] == [
        1,
        1,
        2,
        5,
        6,
        6,
    ]
    assert backtest._part_count([1, 500]) == 6
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert backtest._part_count([500]) == 1


@pytest.mark.slow
def test_lanes_may_have_other_sessions_accounts_and_costs():
    setup, policies = made("network.hidden=[16]")
    data, size = setup.single.data, setup.single.num_sessions
    lanes = []
    for i, ids in enumerate(([0, 1], [1, 2, 4], [3])):
        sessions = session_set(np.array(ids), size)
        params = setup.params.replace(
            sessions=sessions,
            account=setup.params.account.replace(drawdown=np.int32(400_000 + 300_000 * i)),
            contract=setup.params.contract.replace(slippage=jnp.int32(i)),
        )
        lanes.append(
            Lane(
                greedy(setup.algorithm, policies[i], setup.env),
                params,
                decision_bars(data, sessions),
                KEY,
            )
        )
    check(setup.env, lanes)  # equal shapes: the plain scan is compiled once for each number of bars


def tiny_lanes(sessions, count):
    """An environment, and lanes of `count` policies on the hand-worked market."""
    market = hand_market(sessions)
    keys = {"num_envs": 2, "num_steps": 4, "num_shards": 1, "num_minibatches": 1, "hidden": [16]}
    env, params, config = tiny.setup(market, market.every, **sections_of(keys))
    algorithm, decisions = make_ppo(config, env, 1), decision_bars(market.data, market.every)
    policies = [lively(config, env, 100 + i) for i in range(count)]
    return env, [Lane(greedy(algorithm, each, env), params, decisions, KEY) for each in policies]


def test_the_market_and_the_weights_are_held_once():
    env, lanes = tiny_lanes(5, 3)
    plan = plan_of(env, [*lanes, lanes[0]._replace(agent=baselines.flat())], "strategy")
    market = jax.tree.leaves(lanes[0].params.market)
    assert not any(
        own
        for leaf, own in zip(jax.tree.leaves(lanes[0].params), plan.shape.own, strict=True)
        if any(leaf is each for each in market)
    )
    policy, flat = plan.shape.groups
    assert (policy.count, policy.lanes, policy.blocked, flat.blocked) == (3, 5, True, False)
    # an MLP remembers nothing, so nothing of its carry goes from bar to bar
    assert all(policy.fixed)
    data = lanes[1].params.market
    other = lanes[1].params.replace(market=data.replace(close=data.close + 1))
    with pytest.raises(ValueError, match="one market"):
        plan_of(env, [lanes[0], lanes[1]._replace(params=other)], "account")
    with pytest.raises(ValueError, match="no agent"):
        plan_of(env, [], "account")


def test_a_block_has_one_width():
    """Whatever the number of lanes, a policy's products have `WIDTH` rows; a few lanes are one
    block, and no loop goes over it.
    """
    loops = set()
    for sessions in (1, 3):  # a lane each
        plan = plan_of(*tiny_lanes(sessions, 2), "strategy")
        step = functools.partial(side_by_side.step_all, plan.shape)
        text = str(jax.make_jaxpr(step)(plan.parts[0]))
        found = re.findall(r"f32\[([\d,]+)\] = dot_general", text)
        assert {shape.split(",")[1] for shape in found} == {str(side_by_side.WIDTH)}
        loops.add(text.count("scan["))
    assert len(loops) == 1
