"""What MaskablePPO's own `train` makes of one rollout of ours, from our weights
(`one_update.Rollout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from . import sb3
from .learning import learning_of
from .one_update import Rollout, Seen, layer


class Spaces(gymnasium.Env):
    """Nothing but spaces: no step is made."""

    def __init__(self, size: int, actions: int) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions)


def layers(policy: Any) -> dict[tuple[str, ...], Any]:
    """Our parameter path of each layer -> torch's Linear."""
    found: dict[tuple[str, ...], Any] = {
        ("policy_head",): policy.action_net,
        ("value_head",): policy.value_net,
    }
    torsos = {
        "policy_torso": policy.mlp_extractor.policy_net,
        "value_torso": policy.mlp_extractor.value_net,
    }
    for torso, net in torsos.items():
        found |= {(torso, f"Dense_{i}"): each for i, each in enumerate(list(net)[::2])}
    return found


def updated(rollout: Rollout, changed: Mapping[str, Any]) -> dict[tuple[str, ...], np.ndarray]:
    """Weights after MaskablePPO's own `train` on our rollout from our weights, [in, out] by our
    path. changed: over the arguments of the same mathematics (`sb3.arguments`)."""
    import torch  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.logger import Logger  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.vec_env import DummyVecEnv  # pyright: ignore[reportMissingImports]

    arguments = {**sb3.arguments(learning_of(rollout.world.config)), **changed}
    env, seen, count = rollout.world.env, rollout.seen, learning_of(rollout.world.config).num_envs
    envs = DummyVecEnv([lambda: Spaces(env.observation_size, env.num_actions)] * count)
    model = sb3.make_model(envs, arguments, 0)
    model.set_logger(Logger(None, []))
    with torch.no_grad():
        for path, each in layers(model.policy).items():
            ours = layer(rollout.before.params, path)
            each.weight.copy_(torch.tensor(np.array(ours["kernel"]).T))
            each.bias.copy_(torch.tensor(np.array(ours["bias"])))

    def values(observation: np.ndarray) -> Any:
        with torch.no_grad():
            return model.policy.predict_values(torch.tensor(observation))

    buffer = model.rollout_buffer
    buffer.reset()
    for t in range(learning_of(rollout.world.config).num_steps):
        now = Seen(*(x[t] for x in seen))
        final = values(np.asarray(now.final)).numpy()[:, 0]
        reward = now.reward + np.where(now.truncated, arguments["gamma"] * final, 0.0)
        buffer.add(
            now.observation,
            now.action[:, None],
            reward,
            now.first,
            torch.tensor(now.value),
            torch.tensor(now.log_prob),
            action_masks=now.mask,
        )
    buffer.compute_returns_and_advantage(
        last_values=values(np.asarray(rollout.last)), dones=seen.terminated[-1] | seen.truncated[-1]
    )
    model.train()
    return {path: each.weight.detach().numpy().T for path, each in layers(model.policy).items()}
