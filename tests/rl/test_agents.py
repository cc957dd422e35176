"""Sixteen agents with rates and rewards of their own, in one program: each is the agent trained
alone, in any order.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade.config import make_config
from jaxtrade.rl.dqn import make_dqn
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.rl.pqn import make_pqn
from jaxtrade.training.hooks import set_hparams
from jaxtrade.training.population import Axes, Stack
from tests.rl.probes import Probe, probe_params
from tests.rl.test_train import assert_close, assert_same

pytestmark = pytest.mark.slow

N, UPDATES = 16, 8
ENV = Probe((lambda ref, action: ref.cue * action, lambda ref, action: ref.time * 1.0))
SCALES = jnp.linspace(0.5, 2.0, N)
RATES = np.geomspace(1e-3, 3e-2, N).astype(np.float32)
PARAMS = probe_params(length=5)
# The scale of the reward is each agent's own, as costs and weights are; all else is shared.
AXES = jax.tree.map(lambda leaf: None, PARAMS).replace(scale=0)
STACK = Stack((N,), (Axes(params=AXES),))
KEYS = STACK.keys(7)
ORDER = np.random.default_rng(0).permutation(N)
ROLLOUT = {"num_envs": 8, "num_steps": 8, "num_shards": 2}


def learner(name):
    if name == "ppo":
        return make_ppo(
            Learning(**ROLLOUT, num_minibatches=2, num_epochs=2, hidden=(8,)).run, ENV, UPDATES
        )
    own = {
        "pqn": {"num_minibatches": 2, "num_epochs": 2},
        "dqn": {
            "buffer_size": 512,
            "batch_size": 16,
            "learning_starts": 64,
            "n_steps": 3,
            "replay": "prioritised",
        },
    }
    config = make_config(
        {"algorithm": name, "rollout": ROLLOUT, "network": {"hidden": [8]}, name: own[name]}
    )
    return (make_pqn if name == "pqn" else make_dqn)(config, ENV, UPDATES)


def updated(algorithm):
    """A compiled function (state, parameters) -> the states after one and after two updates, and
    the last metrics.
    """

    def run(state, params):
        first, _ = algorithm.update(state, params, None)
        second, metrics = algorithm.update(first, params, None)
        return first, second, metrics

    return jax.jit(run)


def begun(algorithm, keys, params, rates):
    return set_hparams(jax.jit(algorithm.init)(keys, params), {"learning_rate": rates})


@pytest.fixture(scope="module", params=["ppo", "dqn", "pqn"])
def trained(request):
    """The learner, its program of all agents, the first states and the results of all together."""
    algorithm = learner(request.param)
    stacked = STACK.wrap(algorithm)
    together = updated(stacked)
    first = begun(stacked, KEYS, PARAMS.replace(scale=SCALES), RATES)
    return algorithm, together, first, together(first, PARAMS.replace(scale=SCALES))


def test_each_agent_is_that_agent_trained_alone(trained):
    """Its first state bit for bit; after an update integers exactly and floats within 1e-6."""
    algorithm, _, first, results = trained
    alone = updated(algorithm)
    for i in range(N):
        params = PARAMS.replace(scale=SCALES[i])
        own = begun(algorithm, KEYS[i], params, RATES[i])
        assert_same(STACK.agent(first, i), own)
        expected = alone(own, params)[0]
        assert_close(STACK.agent(results[0], i), expected)


def test_agents_in_another_order_give_the_same_results_in_that_order(trained):
    _, together, first, results = trained
    moved = jax.tree.map(lambda leaf: leaf[ORDER], first)
    found = together(moved, PARAMS.replace(scale=SCALES[ORDER]))
    assert_same(found, jax.tree.map(lambda leaf: leaf[ORDER], results))


def test_agents_have_their_own_rate_and_reward(trained):
    _, _, first, (after, second, _) = trained
    assert np.array_equal(first.hparams.learning_rate, RATES)
    gap = jax.tree.map(
        lambda a, b: np.abs(a - b).reshape(N, -1).sum(1), second.params, first.params
    )
    moved = sum(jax.tree.leaves(gap))
    assert moved[-1] > 3 * moved[0] > 0
    assert len({float(total) for total in after.episodes.reward.sum(axis=1)}) > N // 2
