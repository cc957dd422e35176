"""The trading environment as a gymnax (>= 1.0.1) environment.

Importing this module registers it with gymnax.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.environments import spaces
from gymnax.environments.environment import Environment

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.episode import end_reason, is_truncation
from jaxtrade.env.state import EndReason, EnvParams, EnvState, ObservationRef
from jaxtrade.interop.world import ENV_ID, LIMIT, load_world
from jaxtrade.types import Array, Outcome, PyTree


def to_gymnax(env: TradingEnv, params: EnvParams) -> GymnaxTrading:
    """Wrap the environment in gymnax's interface; `params` become its `default_params`."""
    return GymnaxTrading(env, params)


def make_gymnax(**world: Any) -> GymnaxTrading:
    """Make the environment for `gymnax.make(ENV_ID, ...)`; keywords as `load_world`."""
    return GymnaxTrading(*load_world(**world))


class GymnaxTrading(Environment[EnvState, EnvParams]):  # pyright: ignore[reportInvalidTypeArguments]
    """gymnax's interface (a step returns six values) to `TradingEnv`.

    All results are equal to it bit for bit.

    Episode starts depend on the key of `reset` alone, never on the keys of `step`. `info` holds
    terminated, truncated, final_observation (float32[D], before the reset), action_mask (bool[A],
    of the returned observation), equity (int32[] mills relative to the start balance, before the
    reset), end_reason (int32[] EndReason) and illegal (bool[], True if the action was illegal and
    executed as HOLD). `reset` returns no info; `action_mask(state, params)` returns the mask of any
    state.

    Inside your own jit, pass `params` to `step` and `reset`. The default would become a constant of
    the program.
    """

    def __init__(self, env: TradingEnv, params: EnvParams) -> None:
        self.env = env
        self._default_params = params

    @property
    def default_params(self) -> EnvParams:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The parameters with which the environment was made."""
        return self._default_params

    @property
    def name(self) -> str:
        return ENV_ID

    @property
    def num_actions(self) -> int:
        return self.env.num_actions

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:
        """Return Discrete(A). The mask says which of the actions are legal."""
        return spaces.Discrete(self.env.num_actions)

    def observation_space(self, params: EnvParams | None = None) -> spaces.Box:
        """Return Box float32[D]; names of the slots: `env.observation_spec`."""
        seen = self.env.observation_spec
        low, high = jnp.clip(jnp.stack([seen.minimum, seen.maximum]), -LIMIT, LIMIT)
        return spaces.Box(low, high, seen.shape, jnp.dtype(seen.dtype))

    def state_space(self, params: EnvParams | None = None) -> spaces.Dict:
        """Return a space for each leaf of the state, by name. Its limits are those of the dtype."""
        params = params or self.default_params
        state, _ = jax.eval_shape(self.env.reset, jax.random.key(0), params)
        return _space(state)

    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, EnvState]:  # pyright: ignore
        """Reset the environment -> (observation float32[D], state)."""
        return _reset(self.env, key, params or self.default_params)

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, key: Array, state: EnvState, action: Array | int, params: EnvParams | None = None
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        """Take a step with auto-reset.

        Returns (observation, state, reward, terminated, truncated, info).
        """
        del key
        return _step(
            self.env,
            state,
            jnp.asarray(action, jnp.int32),
            params or self.default_params,
        )

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """Reset as `reset`."""
        return self.reset(key, params)

    def step_env(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, key: Array, state: EnvState, action: Array | int, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """Step one bar without auto-reset -> (observation, state, reward, terminated, info)."""
        del key
        state, outcome = self.env.advance(state, jnp.asarray(action, jnp.int32), params)
        observation = self.env.observe(outcome.final_ref, params)
        info = _info(outcome, outcome.final_ref.mask)
        return observation, state, outcome.reward, outcome.terminated, info

    def get_obs(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state: EnvState, params: EnvParams | None = None, key: Array | None = None
    ) -> Array:
        """Return the observation at `state` (float32[D])."""
        params = params or self.default_params
        return self.env.observe(self.env.ref(state, params), params)

    def action_mask(self, state: EnvState, params: EnvParams | None = None) -> Array:
        """Return the mask at `state` (bool[A])."""
        return self.env.mask(state, params or self.default_params)

    def is_terminated(self, state: EnvState, params: EnvParams) -> Array:  # pyright: ignore
        """Return whether the step to `state` (without auto-reset) terminated the episode (bool[])."""
        reason = end_reason(state, params)
        return (reason != EndReason.NONE) & ~is_truncation(reason)

    def is_truncated(self, state: EnvState, params: EnvParams) -> Array:  # pyright: ignore
        """Return whether the step to `state` (without auto-reset) truncated the episode (bool[])."""
        return is_truncation(end_reason(state, params))


def _info(outcome: Outcome[ObservationRef], mask: Array) -> dict[str, Any]:
    return {
        "action_mask": mask,
        "equity": outcome.info.equity,
        "end_reason": outcome.info.end,
        "illegal": outcome.info.illegal,
    }


# Module functions, so that the market is an argument of the compiled program, and equal
# environments share a program.
@partial(jax.jit, static_argnums=0)
def _reset(env: TradingEnv, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
    state, ref = env.reset(key, params)
    return env.observe(ref, params), state


@partial(jax.jit, static_argnums=0)
def _step(env: TradingEnv, state: EnvState, action: Array, params: EnvParams) -> tuple[Any, ...]:
    state, ref, outcome = env.step(jax.random.key(0), state, action, params)
    info = _info(outcome, ref.mask) | {
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "final_observation": env.observe(outcome.final_ref, params),
    }
    return (
        env.observe(ref, params),
        state,
        outcome.reward,
        outcome.terminated,
        outcome.truncated,
        info,
    )


class _Table(spaces.Dict):
    """A `Dict` space for plain dictionaries. gymnax's own class looks up names as attributes."""

    def contains(self, x: Any) -> Array:
        return jnp.all(jnp.array([space.contains(x[name]) for name, space in self.spaces.items()]))


def _space(tree: PyTree) -> Any:
    """Return a gymnax space for a pytree with named nodes. Nodes that are None are left out."""
    if isinstance(tree, dict):
        return _Table({name: _space(leaf) for name, leaf in tree.items()})
    if hasattr(tree, "__dataclass_fields__") and not hasattr(tree, "dtype"):
        nodes = {name: getattr(tree, name) for name in tree.__dataclass_fields__}
        return spaces.Dict({name: _space(node) for name, node in nodes.items() if node is not None})
    if tree.dtype == jnp.bool_:
        return spaces.Box(False, True, tree.shape, jnp.bool_)
    limits = (
        jnp.finfo(tree.dtype) if jnp.issubdtype(tree.dtype, jnp.floating) else jnp.iinfo(tree.dtype)
    )
    # Arrays, because JAX would convert a Python int to int32, which cannot hold the limit of
    # uint32.
    low, high = (jnp.asarray(limit, tree.dtype) for limit in (limits.min, limits.max))
    return spaces.Box(low, high, tree.shape, tree.dtype)


if ENV_ID not in gymnax.registered_envs:
    gymnax.register(ENV_ID, make_gymnax)
