"""A network of one's own: an observation in, logits and a value out."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade
from jaxtrade.config import NetworkConfig
from jaxtrade.parts import NETWORKS
from tests.messages import refused


class Mine(nn.Module):
    num_actions: int
    axis: int = 0

    @nn.compact
    def __call__(self, observation):
        x = nn.tanh(nn.Dense(8)(observation))
        value = nn.Dense(1)(x)
        return nn.Dense(self.num_actions)(x), value if self.axis else value[..., 0]


@pytest.fixture
def made():
    """(name, network) -> what `network.kind=NAME` makes."""

    def register(name, network):
        jaxtrade.register_network(name, network)
        return NETWORKS[name](NetworkConfig(), 5, jax.lax.dot_general)

    return register


def test_it_is_a_network_without_a_memory(made):
    network = made("mine", Mine)
    seen = jnp.ones((3, 4, 11))
    variables = network.init(jax.random.key(0), None, seen)
    carry, logits, value = network.apply(variables, None, seen)
    assert carry is None
    assert network.first_carry() is None
    assert (logits.shape, value.shape) == ((3, 4, 5), (3, 4))
    own = Mine(5).apply({"params": variables["params"]["own"]}, seen)
    np.testing.assert_array_equal(logits, own[0])
    np.testing.assert_array_equal(network.apply(variables, None, seen, method="value"), own[1])


def test_other_shapes_are_refused(made):
    wrong = made("wide", lambda actions: Mine(actions, axis=1))
    with refused("network.kind=wide", "(3, 1)", "value[..., 0]"):
        wrong.init(jax.random.key(0), None, jnp.ones((3, 11)))
    few = made("few", lambda actions: Mine(actions - 1))
    with refused("network.kind=few", "(5,)", "(4,)"):
        few.init(jax.random.key(0), None, jnp.ones(11))


def with_layers(actions):
    def heads(observation):
        x = nn.tanh(nn.Dense(8)(observation))
        return nn.Dense(actions)(x), nn.Dense(1)(x)[..., 0]

    return heads


def without_parameters(actions):
    return lambda seen: (jnp.zeros((*seen.shape[:-1], actions)), seen.sum(-1))


@pytest.mark.parametrize(("make", "layers"), [(with_layers, 3), (without_parameters, 0)])
def test_a_function_is_a_network(made, make, layers):
    network, seen = made("plain", make), jnp.ones((3, 11))
    variables = network.init(jax.random.key(0), None, seen)
    assert len(variables.get("params", {}).get("own", {})) == layers
    _, logits, value = network.apply(variables, None, seen)
    assert (logits.shape, value.shape) == ((3, 5), (3,))


@pytest.mark.parametrize("wrong", [None, Mine])
def test_what_cannot_be_called_is_refused(made, wrong):
    with refused("network.kind=wrong", "nn.Module", repr(wrong)):
        made("wrong", lambda actions: wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "learns"), [(Mine, True), (with_layers, True), (without_parameters, False)]
)
def test_a_learner_trains_it(made, make, learns):
    made("mine", make)
    env, params = jaxtrade.from_gymnax("CartPole-v1")
    small = {"num_envs": 8, "num_steps": 8}
    config = jaxtrade.load_config(
        "quickstart", rollout=small, set=["network.kind=mine", "train.chunk_updates=1"]
    )
    ppo = jaxtrade.make_ppo(config, env, 1)
    trained = jaxtrade.train(ppo, params, config=config.train, key=jax.random.key(0))
    assert (trained.history[-1]["param_delta"] > 0) == learns
