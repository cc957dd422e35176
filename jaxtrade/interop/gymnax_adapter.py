"""Any gymnax (>= 1.0.1) environment with discrete actions and array observations, as an `Env`."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import jax.numpy as jnp

from jaxtrade.config.faults import explain_gymnasium
from jaxtrade.errors import ConfigError
from jaxtrade.rl.state import strong_types
from jaxtrade.types import Array, Outcome, PyTree

if TYPE_CHECKING:
    from gymnax.environments.environment import Environment


@dataclasses.dataclass(frozen=True)
class GymnaxEnv:
    """A gymnax environment as an `Env`.

    The reference is the flattened observation itself, float32[D]. Every action is legal.

    A gymnax step returns six values. `info["final_observation"]` is the observation before an
    auto-reset. The time limit of the environment is a truncation.
    """

    environment: Environment
    num_actions: int
    observation_size: int

    def reset(self, key: Array, params: PyTree) -> tuple[PyTree, Array]:
        """Reset the environment -> (state, observation float32[D])."""
        observation, state = self.environment.reset(key, params)
        return _arrays(state), _flat(observation)

    def step(
        self, key: Array, state: PyTree, action: Array, params: PyTree
    ) -> tuple[PyTree, Array, Outcome[Array]]:
        """Take a step -> (state, observation float32[D], outcome); `info` is empty."""
        observation, state, reward, terminated, truncated, info = self.environment.step(
            key, state, action, params
        )
        outcome = Outcome(
            final_ref=_flat(info["final_observation"]),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=jnp.asarray(terminated, bool),
            truncated=jnp.asarray(truncated, bool),
            info=(),
        )
        return _arrays(state), _flat(observation), outcome

    def observe(self, ref: Array, params: PyTree) -> Array:
        """Return the reference itself."""
        del params
        return ref

    def action_mask(self, ref: Array) -> Array:
        """Return the mask (bool[A]), all True."""
        del ref
        return jnp.ones(self.num_actions, bool)


def _arrays(state: PyTree) -> PyTree:
    # gymnax states hold Python numbers (time=0). Their weak types would make the second call
    # compile again.
    return strong_types(jax.tree.map(jnp.asarray, state))


def _flat(observation: Array) -> Array:
    return jnp.asarray(observation, jnp.float32).reshape(-1)


def from_gymnax(name: str, **keywords: Any) -> tuple[GymnaxEnv, PyTree]:
    """Make a gymnax environment by its registered name -> (env, params).

    params is a pytree of arrays.

    Raises:
        ConfigError: an environment itself is given. ValueError: the actions are not discrete, or
            gymnax does not know the name.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"from_gymnax({type(name).__name__}): expected the registered name of an environment of "
            'gymnax, such as from_gymnax("CartPole-v1")'
        )
    import gymnax  # imported here because it loads matplotlib, pandas and gymnasium
    from gymnax.environments import spaces

    environment, params = gymnax.make(name, **keywords)
    actions = environment.action_space(params)
    if not isinstance(actions, spaces.Discrete):
        raise ValueError(
            f"gymnax environment '{name}': needs discrete actions, has {type(actions).__name__}"
        )
    size = math.prod(environment.observation_space(params).shape)
    return GymnaxEnv(environment, int(actions.n), size), _arrays(params)


def from_gymnasium(environment: Any) -> NoReturn:
    """Raise ConfigError, which says what to do instead.

    An environment of Gymnasium steps in Python, so no compiled program can hold it.
    """
    raise ConfigError(f"from_gymnasium: {explain_gymnasium(environment)}")
