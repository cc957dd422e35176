"""PureJaxRL's PPO (github.com/luchris429/purejaxrl) on our environment, from the user's own
checkout.

    git clone https://github.com/luchris429/purejaxrl && git -C purejaxrl checkout 31756b1
    jaxtrade bench ppo_train --purejaxrl purejaxrl

It runs unchanged but for one thing: its network's widths, 64 and 64, are written in its source. For
other widths the same network with these takes its place (`sized`).

Its wrappers import brax and navix for environments that are not run here; where these are not
installed, empty stand-ins take their place during the import. Needs distrax (rejax brings it).
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, PyTree

from .catalogue import NO_CHECKOUT
from .learning import Learning
from .old_gymnax import offered
from .setting import World

WIDTHS = (64, 64)  # written into its ActorCritic
DIFFERENCES = (
    "its source has a network of 64 and 64 units; for other widths that class is replaced by the same with these",
    "no action masks: it samples among all actions, and an illegal one is executed as HOLD",
    "a truncated episode counts as terminated (gymnax 0.0.9 has one `done`): no value of the observation that follows",
    "the value loss is clipped by clip_eps, and halved",
    "a learning rate that falls at all falls to 0",
    "stores observations, and shuffles a copy of them in each epoch",
    "a repeat is a whole run: initialising the network and the first reset are in it, compiling is not",
    "no check for gradients that are not finite, and no metrics beside four numbers of its log wrapper for each step",
)
STAND_INS = {
    "brax": ("envs",),
    "brax.envs": (),
    "brax.envs.wrappers": (),
    "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
    "navix": (),
}


def left_out(config: Learning, checkout: Path | None) -> str | None:
    """Why it cannot run this configuration here, or None."""
    if checkout is None:
        return NO_CHECKOUT
    if importlib.util.find_spec("distrax") is None:
        return "needs distrax, which is not installed: pip install distrax"
    return None


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Its modules import each other by bare names (`wrappers`); nothing of that stays behind."""
    missing = [name for name in ("brax", "navix") if importlib.util.find_spec(name) is None]
    placed = {name: ModuleType(name) for name in STAND_INS if name.partition(".")[0] in missing}
    for name, module in placed.items():
        for attribute in STAND_INS[name]:
            setattr(module, attribute, placed.get(f"{name}.{attribute}"))
    before = {name: sys.modules.pop(name) for name in ("wrappers",) if name in sys.modules}
    sys.modules.update(placed)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in (*placed, "wrappers"):
            sys.modules.pop(name, None)
        sys.modules.update(before)


def load(checkout: Path) -> ModuleType:
    """Its `ppo` module. Raises ConfigError where the checkout has none."""
    path = checkout.expanduser().resolve() / "purejaxrl" / "ppo.py"
    if not path.is_file():
        raise ConfigError(
            f"purejaxrl: {checkout} has no purejaxrl/ppo.py; expected the root of a checkout of "
            "github.com/luchris429/purejaxrl"
        )
    spec = importlib.util.spec_from_file_location("purejaxrl_ppo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importable(path.parent):
        spec.loader.exec_module(module)
    return module


def sized(widths: tuple[int, ...]) -> type:
    """Its `ActorCritic` with hidden layers of these widths: the same layers, names, starting values
    and activations.
    """
    import distrax  # pyright: ignore[reportMissingImports]
    from flax import linen

    def dense(features: int, scale: float) -> linen.Dense:
        return linen.Dense(
            features,
            kernel_init=linen.initializers.orthogonal(scale),
            bias_init=linen.initializers.constant(0.0),
        )

    class ActorCritic(linen.Module):
        action_dim: int
        activation: str = "tanh"

        @linen.compact
        def __call__(self, x: Array) -> tuple[Any, Array]:
            activation = linen.relu if self.activation == "relu" else linen.tanh

            def head(outputs: int, scale: float) -> Array:
                hidden = x
                for width in widths:
                    hidden = activation(dense(width, math.sqrt(2))(hidden))
                return dense(outputs, scale)(hidden)

            logits = head(self.action_dim, 0.01)
            return distrax.Categorical(logits=logits), jnp.squeeze(head(1, 1.0), axis=-1)

    return ActorCritic


def settings(config: Learning, updates: int) -> dict[str, Any]:
    """`config` in its words; `ENV_NAME` is still missing."""
    return {
        "LR": config.learning_rate,
        "ANNEAL_LR": config.learning_rate_end != config.learning_rate,
        "NUM_ENVS": config.num_envs,
        "NUM_STEPS": config.num_steps,
        "TOTAL_TIMESTEPS": updates * config.num_envs * config.num_steps,
        "UPDATE_EPOCHS": config.num_epochs,
        "NUM_MINIBATCHES": config.num_minibatches,
        "GAMMA": config.gamma,
        "GAE_LAMBDA": config.gae_lambda,
        "CLIP_EPS": config.clip_eps,
        "ENT_COEF": config.ent_coef,
        "VF_COEF": config.vf_coef,
        "MAX_GRAD_NORM": config.max_grad_norm,
        "ACTIVATION": config.activation,
        "DEBUG": False,
    }


def compiled(
    config: Learning, world: World, updates: int, checkout: Path
) -> Callable[[Array, EnvParams], PyTree]:
    """`updates` updates from scratch, ahead of time: (key, params) -> everything that its `train`
    returns.
    """
    peer = load(checkout)  # anew each time: a network put into it stays with this caller
    if tuple(config.hidden) != WIDTHS:
        peer.ActorCritic = sized(tuple(config.hidden))

    def train(key: Array, params: EnvParams) -> PyTree:
        with offered(world.env, params) as name:
            return peer.make_train(settings(config, updates) | {"ENV_NAME": name})(key)

    return jax.jit(train).lower(jax.random.key(0), world.params).compile()
