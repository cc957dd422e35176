"""sbx's PPO (github.com/araffin/sbx, PyPI `sbx-rl`: Stable-Baselines3 with JAX networks) on our
environment.

Its environment is `SB3Trading`, one compiled call for all environments. It runs in a child of its
own (`worker`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from bench.learning import Learning, learning_of
from jaxtrade.config import make_config

DIFFERENCES = (
    "no action masks (sbx has no MaskablePPO): it samples among all actions, and an illegal one is executed as HOLD",
    "policy and value are two losses with an optimiser and a gradient norm each",
    "rollout and minibatches are loops on the host: one compiled call for each step and each minibatch",
)


def left_out() -> str | None:
    """Why it cannot run here, or None."""
    return (
        None
        if importlib.util.find_spec("sbx")
        else "is not installed: pip install 'jaxtrade[bench]'"
    )


def arguments(config: Learning) -> dict[str, Any]:
    """`config` in its words, the policy's left out."""
    return {
        "n_steps": config.num_steps,
        "batch_size": config.num_envs * config.num_steps // config.num_minibatches,
        "n_epochs": config.num_epochs,
        "learning_rate": config.learning_rate,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip_eps,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "max_grad_norm": config.max_grad_norm,
    }


class Trainer:
    """A call is `updates` updates of one run that goes on."""

    def __init__(self, config: Mapping[str, Any], updates: int) -> None:
        from sbx import PPO  # pyright: ignore[reportMissingImports]

        from jaxtrade.interop.registration import to_sb3
        from jaxtrade.interop.world import load_world
        from jaxtrade.networks.torso import ACTIVATIONS

        chosen = make_config(config)
        ppo = learning_of(chosen)
        self._envs = to_sb3(*load_world(chosen), ppo.num_envs)
        self._model = PPO(
            "MlpPolicy",
            self._envs,
            **arguments(ppo),
            seed=0,
            verbose=0,
            device="cpu",
            policy_kwargs={
                "net_arch": list(ppo.hidden),
                "activation_fn": ACTIVATIONS[ppo.activation],
                "ortho_init": True,
            },
        )
        self._steps = updates * ppo.num_envs * ppo.num_steps

    def __call__(self) -> None:
        self._model.learn(self._steps, reset_num_timesteps=False, log_interval=10**9)  # no logging

    def close(self) -> None:
        self._envs.close()


def trainer(config: Mapping[str, Any], updates: int) -> Callable[[], None]:
    """For `Worker`: `config` is a `RunConfig` as JSON."""
    return Trainer(config, updates)
