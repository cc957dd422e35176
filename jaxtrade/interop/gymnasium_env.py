"""The trading environment as a gymnasium `Env` and `VectorEnv`.

Importing this module registers it with gymnasium.

Masks: `action_masks()` (the name that sb3-contrib calls) and `info["action_mask"]` hold the mask of
the latest observation. Further keys of `info` are row (market row of the observation's bar) and, after a step,
equity (mills relative to the start balance, before any reset), end_reason (`EndReason`) and illegal
(True if the action was illegal; it was then executed as HOLD). The last info of an episode has end, the name of
the reason, and trades, its closed round turns (`host.list_trades`; not of several symbols in one account).

`reset(seed=s)` starts the first episode of `TradingEnv.reset(jax.random.key(s))`. `reset()` starts the next episode of
the same stream. `reset(options={"session": "2013-10-07", "row": 500})` starts at a chosen place, see `Host.place`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from jaxtrade.env.dynamics import MarketEnv
from jaxtrade.interop.host import DecisionInput, HostEnv, StepResult
from jaxtrade.interop.world import ENV_ID, LIMIT, load_world
from jaxtrade.types import PyTree

Info = dict[str, Any]


def to_gymnasium(env: MarketEnv[Any], params: PyTree) -> GymnasiumTrading:
    """Return the environment as a `gymnasium.Env`, on the CPU."""
    return GymnasiumTrading(env, params)


def to_gymnasium_vec(env: MarketEnv[Any], params: PyTree, num_envs: int) -> GymnasiumTradingVec:
    """Return `num_envs` environments as one `gymnasium.vector.VectorEnv`.

    One compiled call on the CPU steps all of them.
    """
    return GymnasiumTradingVec(env, params, num_envs)


def make_gymnasium(**world: Any) -> GymnasiumTrading:
    """Make the environment for `gymnasium.make(ENV_ID, ...)`; keywords as `load_world`."""
    return GymnasiumTrading(*load_world(**world))


def make_gymnasium_vec(num_envs: int = 1, **world: Any) -> GymnasiumTradingVec:
    """Make the environments for `gymnasium.make_vec(ENV_ID, num_envs, ...)`.

    Keywords as `load_world`.
    """
    return GymnasiumTradingVec(*load_world(**world), num_envs)


def spaces_of(env: MarketEnv[Any]) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Discrete]:
    """Return the spaces of the observations, float32[D], and of the actions, 0 .. A - 1."""
    seen = env.observation_spec
    low, high = np.clip([seen.minimum, seen.maximum], -LIMIT, LIMIT)
    return (
        gymnasium.spaces.Box(low, high, seen.shape, np.dtype(seen.dtype).type),
        gymnasium.spaces.Discrete(env.num_actions),
    )


def reset_info(observed: DecisionInput) -> Info:
    """Return the entries of `info` that describe an observation, after a reset and after a step."""
    return {"action_mask": observed.mask, "row": observed.row}


def step_info(observed: DecisionInput, result: StepResult) -> Info:
    """Return `reset_info` of an observation, and the entries that describe the step that led to it."""
    return reset_info(observed) | {
        "equity": result.equity,
        "end_reason": result.end,
        "illegal": result.illegal,
    }


def _plain(info: Info) -> Info:
    """Turn NumPy scalars into Python scalars, and keep arrays."""
    return {key: value if value.ndim else value.item() for key, value in info.items()}


class GymnasiumTrading(gymnasium.Env[np.ndarray, np.int64]):
    """One environment. Observation float32[D]; `terminated` and `truncated` as in `TradingEnv`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (as the base class declares it)

    def __init__(self, env: MarketEnv[Any], params: PyTree) -> None:
        self.env = env
        self.observation_space, self.action_space = spaces_of(env)
        self._host = HostEnv(env, params)
        self._prepared: DecisionInput | None = None  # first observation after an episode that ended

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        """Reset the environment -> (observation, info).

        Raises ConfigError if the options do not name a decision bar of the split.
        """
        super().reset(seed=seed)
        observed = self._host.reset(seed, options or {}, self.np_random, self._prepared)
        self._prepared = None
        return observed.observation, _plain(reset_info(observed))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        """Take a step -> (observation, reward, terminated, truncated, info).

        Raises ResetNeeded before a reset and after the end of an episode, InvalidAction for an
        unknown action.
        """
        self._host.latest(ResetNeeded, "step before reset, or after the episode's end")
        if not self.action_space.contains(action):
            raise InvalidAction(
                f"action {action!r}: expected an integer in 0 .. {self.env.num_actions - 1}"
            )
        following, result = self._host.step(action)
        info = _plain(step_info(result.final, result))
        if result.terminated | result.truncated:
            self._host.observed, self._prepared = None, following
            info |= self._host.describe_end(result)
        return (
            result.final.observation,
            result.reward.item(),
            result.terminated.item(),
            result.truncated.item(),
            info,
        )

    def action_masks(self) -> np.ndarray:
        """Return the mask of the latest observation (bool[A]).

        Raises ResetNeeded if no episode is running.
        """
        what = "action_masks before reset, or after the episode's end"
        return self._host.latest(ResetNeeded, what).mask

    def render(self) -> None:
        """Do nothing: there are no render modes."""


class GymnasiumTradingVec(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N environments with the autoreset mode SAME_STEP.

    A step that ends an episode returns the first observation of the next one. The last observation
    of the ended episode and its info are in `infos["final_obs"]` and `infos["final_info"]`, exactly
    as in `SyncVectorEnv`.

    `reset(seed=s)` seeds environment i with s + i. A list holds one seed per environment. Options apply to all
    environments.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, env: MarketEnv[Any], params: PyTree, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs
        self._host = HostEnv(env, params, (num_envs,))
        self.single_observation_space, self.single_action_space = spaces_of(env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        """Reset all environments -> (observations float32[N, D], infos).

        Raises ConfigError if the options do not name a decision bar.
        """
        each: Any = seed
        if isinstance(seed, int | np.integer):
            each = int(seed) + np.arange(self.num_envs)
            super().reset(seed=int(seed))
        observed = self._host.reset(each, options or {}, self.np_random)
        infos: Info = {}
        _add(infos, reset_info(observed), np.ones(self.num_envs, bool))
        return observed.observation, infos

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Step all environments.

        Returns (observations float32[N, D], rewards float32[N], terminations bool[N],
        truncations bool[N], infos). Raises ResetNeeded before the first reset, InvalidAction for
        unknown actions.
        """
        self._host.latest(ResetNeeded, "step before reset")
        observed, result = self._host.step(
            checked_actions(actions, self.num_envs, self.env.num_actions)
        )
        done = result.terminated | result.truncated
        infos: Info = {}
        if done.any():
            final = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                final[i] = result.final.observation[i]
            inner: Info = {}
            _add(inner, step_info(result.final, result), done)
            for i in np.flatnonzero(done):
                for key, value in self._host.describe_end(result, int(i)).items():
                    inner.setdefault(key, np.full(self.num_envs, None, object))[i] = value
                    inner[f"_{key}"] = done.copy()
            infos |= {
                "final_obs": final,
                "_final_obs": done.copy(),
                "final_info": inner,
                "_final_info": done.copy(),
            }
        _add(infos, reset_info(observed), np.ones(self.num_envs, bool))
        if not done.all():
            reported = step_info(result.final, result)
            _add(infos, {key: value for key, value in reported.items() if key not in infos}, ~done)
        return observed.observation, result.reward, result.terminated, result.truncated, infos

    def action_masks(self) -> np.ndarray:
        """Return the masks of the latest observations (bool[N, A]).

        Raises ResetNeeded before the first reset.
        """
        return self._host.latest(ResetNeeded, "action_masks before reset").mask

    def call(self, name: str) -> tuple[Any, ...]:
        """Return one value per environment, as `SyncVectorEnv.call`.

        The only method is "action_masks".
        """
        if name != "action_masks":
            raise AttributeError(
                f"environments of {type(self).__name__} have no method '{name}' (only action_masks)"
            )
        return tuple(self.action_masks())

    def render(self) -> None:
        """Do nothing: there are no render modes."""


def checked_actions(actions: Any, num_envs: int, num_actions: int) -> np.ndarray:
    """Return the actions as int[N] in 0 .. A - 1. Raises InvalidAction for others.

    The check runs on the host, because a compiled program would silently read outside the mask.
    """
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise InvalidAction(
            f"actions are {actions.dtype}{list(actions.shape)}, expected integers [{num_envs}]"
        )
    if actions.min() < 0 or actions.max() >= num_actions:
        raise InvalidAction(f"actions {actions.tolist()}: expected 0 .. {num_actions - 1}")
    return actions


def _add(infos: Info, values: Info, where: np.ndarray) -> None:
    """Add arrays in gymnasium's format.

    `key` holds the values, 0 outside `where`, and `_key` holds `where`.
    """
    for key, value in values.items():
        shown = where.reshape(-1, *[1] * (value.ndim - 1))
        infos[key] = np.where(shown, value, np.zeros_like(value))
        infos[f"_{key}"] = where.copy()


if ENV_ID not in gymnasium.registry:
    gymnasium.register(
        ENV_ID,
        entry_point="jaxtrade.interop.gymnasium_env:make_gymnasium",
        vector_entry_point="jaxtrade.interop.gymnasium_env:make_gymnasium_vec",
    )
