"""Many trading environments as one Stable-Baselines3 `VecEnv`. One compiled call steps all of them.

The module needs stable-baselines3 (the `sb3` extra). MaskablePPO of sb3-contrib reads the masks by
`env_method("action_masks")`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv  # pyright: ignore[reportMissingImports]

from jaxtrade.env.dynamics import MarketEnv
from jaxtrade.errors import ConfigError
from jaxtrade.interop.gymnasium_env import checked_actions, reset_info, spaces_of, step_info
from jaxtrade.interop.host import MAX_SEED, HostEnv
from jaxtrade.types import PyTree


class SB3Trading(VecEnv):
    """A `VecEnv` with auto-reset; the infos hold `terminal_observation` and `TimeLimit.truncated`.

    `seed(s)` gives environment i the seed s + i at the next reset. Options (`set_options`) must be equal for all
    environments.
    """

    def __init__(self, env: MarketEnv[Any], params: PyTree, num_envs: int) -> None:
        self.env = env
        self._host = HostEnv(env, params, (num_envs,))
        super().__init__(num_envs, *spaces_of(env))

    def reset(self) -> np.ndarray:
        """Reset all environments -> observations float32[N, D].

        `reset_infos` holds the info of each environment. Raises ConfigError if the options differ
        between environments, or do not name a decision bar.
        """
        options, seeds = self._options[0], None
        if any(other != options for other in self._options):
            raise ConfigError(
                "set_options: one dictionary for all environments, not different ones"
            )
        if None not in self._seeds:
            seeds = np.asarray(self._seeds) % (MAX_SEED + 1)  # seed() may draw up to 2^32 and add i
        observed = self._host.reset(seeds, options, np.random.default_rng())
        self.reset_infos = _per_env(reset_info(observed), self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observed.observation

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions for `step_wait`.

        Raises RuntimeError before the first reset, InvalidAction.
        """
        self._host.latest(RuntimeError, "step before reset")
        self._actions = checked_actions(actions, self.num_envs, self.env.num_actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Take the step.

        Returns (observations float32[N, D], rewards float32[N], dones bool[N], infos).
        """
        observed, result = self._host.step(self._actions)
        done = result.terminated | result.truncated
        infos = _per_env(step_info(result.final, result), self.num_envs)
        for i, info in enumerate(infos):
            info["TimeLimit.truncated"] = bool(result.truncated[i] & ~result.terminated[i])
        if done.any():
            following = _per_env(reset_info(observed), self.num_envs)
            for i in np.flatnonzero(done):
                infos[i]["terminal_observation"] = result.final.observation[i]
                infos[i] |= self._host.describe_end(result, int(i))
                self.reset_infos[i] = following[i]
        return observed.observation, result.reward, done, infos

    def action_masks(self) -> np.ndarray:
        """Return the masks of the latest observations (bool[N, A]).

        Raises RuntimeError before the first reset.
        """
        return self._host.latest(RuntimeError, "action_masks before reset").mask

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def has_attr(self, attr_name: str) -> bool:
        """Return True for `action_masks` (a method of every environment) and `render_mode`."""
        return attr_name in ("action_masks", "render_mode")

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return None for all environments if `render_mode` is asked for.

        Raises AttributeError for other names: the environments are rows of arrays and have
        no attributes.
        """
        if attr_name != "render_mode":
            raise AttributeError(
                f"environments of {type(self).__name__} have no attribute '{attr_name}'"
            )
        return [None for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise AttributeError: the environments are rows of arrays and have no attributes."""
        raise AttributeError(
            f"environments of {type(self).__name__} have no attribute '{attr_name}' to set"
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the masks for the method `action_masks`. Raises AttributeError for other methods."""
        if method_name != "action_masks":
            raise AttributeError(
                f"environments of {type(self).__name__} have no method '{method_name}'"
            )
        masks = self.action_masks()
        return [masks[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for all: no gymnasium wrapper is applied to them."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]


def _per_env(info: dict[str, np.ndarray], num_envs: int) -> list[dict[str, Any]]:
    """Turn arrays [N, ...] by key into one dictionary per environment, with Python scalars."""
    columns = {key: value if value.ndim > 1 else value.tolist() for key, value in info.items()}
    return [{key: column[i] for key, column in columns.items()} for i in range(num_envs)]
