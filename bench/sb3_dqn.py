"""Stable-Baselines3's DQN as a side of `learners`: its own loop, on gymnasium's CartPole or on the
NumPy twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .learners_settings import SB3, Goal
from .recent import Recent
from .sb3 import vector_env

DIFFERENCES = (
    "Stable-Baselines3's DQN knows no action masks: on the chain an illegal action is executed as HOLD, and its "
    "targets take the maximum over all actions",
    "its DQN is neither double nor dueling; on the chain its learning rate is constant, and it neither normalises "
    "observations nor scales rewards",
    "it trains with one environment, as its tuned settings do; ours has the environments of its row",
)


def racer(task: str, goal: list[Any], seeds: list[int], path: str, threads: int) -> Any:
    """For `Worker`. The first call imports torch and makes the environments; each later one trains
    the next seed until the target or the budget and returns `Recent.result`."""
    chosen, order = Goal(*goal), iter(seeds)
    envs: Any = None

    def work() -> dict[str, Any]:
        nonlocal envs
        if envs is None:
            import torch  # pyright: ignore[reportMissingImports]

            torch.set_num_threads(threads)
            envs = _environments(task, path)
            return {}
        return train(envs, SB3[task], chosen, next(order))

    return work


def _environments(task: str, path: str) -> Any:
    """One environment: DQN's settings of the zoo are for one."""
    if task != "cartpole":
        return vector_env(path, "dummy", 1)
    import gymnasium
    from stable_baselines3.common.vec_env import DummyVecEnv  # pyright: ignore[reportMissingImports]

    return DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])


def train(
    envs: Any, settings: tuple[Mapping[str, Any], int], goal: Goal, seed: int
) -> dict[str, Any]:
    """One run of `learn`, which a callback ends once the target is met."""
    from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]

    keywords, budget = settings
    model = DQN("MlpPolicy", envs, seed=seed, device="cpu", verbose=0, **keywords)
    recent, returns = Recent(goal), np.zeros(envs.num_envs)

    def count(seen: dict[str, Any], _: dict[str, Any]) -> bool:
        rewards, dones = np.asarray(seen["rewards"], float), np.asarray(seen["dones"], bool)
        np.add(returns, rewards, out=returns)
        recent.add(
            len(rewards), float(rewards.sum()), int(dones.sum()), float(returns[dones].sum())
        )
        returns[dones] = 0.0
        return not recent.reached

    model.learn(budget, callback=count, log_interval=None)
    return recent.result(budget)
