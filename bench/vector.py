"""Stable-Baselines3's vector environments over the twin, and the twin alone: environment steps, no
policy.

Each function returns the work that `bench.worker` repeats in a child: random legal actions, masks
asked for in every step as MaskablePPO does it (sb3-contrib's `get_action_masks`: under
`SubprocVecEnv` a second round trip per step).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .tape import load
from .twin import NUM_ACTIONS, Twin


def open_twin(path: str) -> Twin:
    """The environment on the tape at `path`; for a process of its own, too."""
    return Twin(load(path))


class Vector:
    """`steps` steps of each of `num_envs` environments per call -> episodes that ended. kind:
    "dummy" or "subproc".
    """

    def __init__(self, path: str, kind: str, num_envs: int, steps: int) -> None:
        from sb3_contrib.common.maskable.utils import get_action_masks  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv  # pyright: ignore[reportMissingImports]

        self._masks = get_action_masks
        self._envs: Any = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[kind](
            [partial(open_twin, path)] * num_envs
        )
        self._chances = np.random.default_rng(0).random((steps, num_envs, NUM_ACTIONS), np.float32)
        self._envs.seed(0)
        self._envs.reset()

    def __call__(self) -> int:
        envs, ended = self._envs, 0
        for chances in self._chances:
            actions = (self._masks(envs) * chances).argmax(
                axis=1
            )  # a legal one, all equally likely
            _, _, dones, _ = envs.step(actions)
            ended += int(dones.sum())
        return ended

    def close(self) -> None:
        """End the processes of the environments."""
        self._envs.close()


def vector(path: str, kind: str, num_envs: int, steps: int) -> Vector:
    """For `Worker`."""
    return Vector(path, kind, num_envs, steps)


def bare(path: str, steps: int) -> Callable[[], int]:
    """For `Worker`: one environment alone, `steps` steps per call -> episodes that ended."""
    env, chances = open_twin(path), np.random.default_rng(0).random(steps).tolist()
    legal_of: dict[bytes, list[int]] = {}
    env.reset(seed=0)

    def work() -> int:
        ended = 0
        for chance in chances:
            mask = env.action_masks()
            legal = legal_of.get(mask.tobytes())
            if legal is None:
                legal = legal_of[mask.tobytes()] = np.flatnonzero(mask).tolist()
            _, _, terminated, truncated, _ = env.step(legal[int(chance * len(legal))])
            if terminated or truncated:
                env.reset()
                ended += 1
        return ended

    return work
