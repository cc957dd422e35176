"""The environment behind the interface of gymnax 0.0.9, which JAX learners of its time call.

Steps return five values, `done` is terminated or truncated, and there are no action masks: an
illegal action is executed as HOLD. Learners of that interface are run as they are; this adapter is
what changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnax
from gymnax.environments import spaces

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import EnvParams, EnvState
from jaxtrade.interop.gymnax_env import GymnaxTrading, to_gymnax
from jaxtrade.types import Array

OLD_ID = "jaxtrade/Trading-gymnax-0.0.9"


class OldGymnax:
    """`GymnaxTrading` with five-value steps. `info` is empty: whatever it held, PureJaxRL would
    store for each step.
    """

    def __init__(self, env: TradingEnv, params: EnvParams) -> None:
        self._door: GymnaxTrading = to_gymnax(env, params)

    @property
    def default_params(self) -> EnvParams:
        return self._door.default_params

    @property
    def num_actions(self) -> int:
        return self._door.num_actions

    def action_space(self, params: EnvParams | None = None) -> spaces.Discrete:
        """Discrete(A), all of them always allowed."""
        return self._door.action_space(params)

    def observation_space(self, params: EnvParams | None = None) -> spaces.Box:
        """Box float32[D]."""
        return self._door.observation_space(params)

    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, EnvState]:
        """-> (observation float32[D], state)."""
        return self._door.reset(key, params)

    def step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams | None = None
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """-> (observation, state, reward, done, info), with auto-reset."""
        observation, state, reward, terminated, truncated, _ = self._door.step(
            key, state, action, params
        )
        return observation, state, reward, terminated | truncated, {}


_offered: list[OldGymnax] = []


def _make() -> OldGymnax:
    if not _offered:
        raise RuntimeError(f"gymnax.make('{OLD_ID}'): only inside `with offered(env, params)`")
    return _offered[-1]


if OLD_ID not in gymnax.registered_envs:
    gymnax.register(OLD_ID, _make)


@contextmanager
def offered(env: TradingEnv, params: EnvParams) -> Iterator[str]:
    """Inside, `gymnax.make` of the name that this gives returns the adapter and `params`.

    Under a trace `params` may be tracers: the market is then an argument of the learner's program,
    as in ours, and not a constant of 100,000 bars inside it.
    """
    _offered.append(OldGymnax(env, params))
    try:
        yield OLD_ID
    finally:
        _offered.pop()
