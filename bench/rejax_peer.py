"""rejax's PPO (github.com/keraJLi/rejax, PyPI `rejax`) on our environment."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import jax

from jaxtrade.types import Array, PyTree

from .learning import Learning
from .old_gymnax import OldGymnax
from .setting import World

DIFFERENCES = (
    "no action masks: it samples among all actions, and an illegal one is executed as HOLD",
    "a truncated episode counts as terminated (gymnax 0.0.9 has one `done`): no value of the observation that follows",
    "policy and value are two losses with an optimiser each; gradients are clipped element by element",
    "the value loss is clipped by clip_eps, and halved",
    "the learning rate is constant",
    "stores observations, and shuffles a copy of them in each epoch",
    "a repeat is a whole run: initialising the networks and the first reset are in it, compiling is not; its "
    "evaluations, which nobody asked for here, are replaced by nothing",
)


def left_out() -> str | None:
    """Why it cannot run here, or None."""
    return (
        None
        if importlib.util.find_spec("rejax")
        else "is not installed: pip install 'jaxtrade[bench]'"
    )


def compiled(
    config: Learning, world: World, updates: int
) -> tuple[Callable[[Any, Array], PyTree], Any]:
    """`updates` updates from scratch, ahead of time: ((algorithm, key) -> all that `train`
    returns), algorithm.
    """
    from rejax import PPO  # pyright: ignore[reportMissingImports]

    steps = updates * config.num_envs * config.num_steps
    algorithm = PPO.create(
        env=OldGymnax(world.env, world.params),
        env_params=world.params,
        agent_kwargs={"hidden_layer_sizes": config.hidden, "activation": config.activation},
        num_envs=config.num_envs,
        num_steps=config.num_steps,
        num_epochs=config.num_epochs,
        num_minibatches=config.num_minibatches,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_eps=config.clip_eps,
        vf_coef=config.vf_coef,
        ent_coef=config.ent_coef,
        max_grad_norm=config.max_grad_norm,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, key: ())
    return jax.jit(PPO.train).lower(algorithm, jax.random.key(0)).compile(), algorithm
