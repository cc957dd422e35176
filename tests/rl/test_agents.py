"""Sixteen agents with rates and rewards of their own, in one program: each is the agent trained
alone, in any order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import make_config
from jaxtrade.rl.algorithms import make_algorithm
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


EPOCHS = {"num_minibatches": 2, "num_epochs": 2}
OWN = {
    "ppo": EPOCHS,
    "pqn": EPOCHS,
    "dqn": {
        "buffer_size": 512,
        "batch_size": 16,
        "learning_starts": 64,
        "n_steps": 3,
        "replay": "prioritised",
    },
}


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


@pytest.fixture(scope="module", params=OWN)
def trained(request):
    """The learner, its program of all agents, the first states and the results of all together."""
    name = request.param
    config = make_config(
        {"algorithm": name, "rollout": ROLLOUT, "network": {"hidden": [8]}, name: OWN[name]}
    )
    algorithm = make_algorithm(config, ENV, UPDATES)
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
