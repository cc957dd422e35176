"""Stable-Baselines3 as a side: sb3-contrib's MaskablePPO with the mathematics of a `Learning` on the
NumPy twin, its vector environments over the twin, and the twin alone.

It is given what makes it fast: the environment in plain NumPy without wrappers or monitors, no
logging, and the number of torch threads that a short trial finds faster. Everything here runs in a
child of its own (`worker`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxtrade.config import validated
from jaxtrade.errors import ConfigError

from .learning import Learning
from .twin import NUM_ACTIONS, Twin, load

DIFFERENCES = (
    "advantages are divided by a minibatch's sample standard deviation (n - 1), ours by the population's (n)",
)
TRIAL_STEPS = 1_024  # of one iteration in the trial of thread counts
TRIAL_ROUNDS = 2
WORTH = (
    1.25  # where CPU seconds are compared: what more threads must gain, for they cost more of these
)
MISSING = 'sb3-contrib is not installed: pip install "jaxtrade[sb3]"'


def arguments(config: Learning) -> dict[str, Any]:
    """MaskablePPO's keyword arguments for the same mathematics; `activation_fn` by name ("tanh",
    "relu").

    Equal to float order: the network and its orthogonal start, Adam's epsilon, the bootstrap after
    a truncation, the mean over a minibatch, one gradient norm over policy and value parameters.
    `DIFFERENCES` remain: neither side has a switch for them.

    Raises:
        ConfigError: a field that SB3 computes otherwise, or not at all. Observation normalisation
            is among them: VecNormalize updates its statistics within the rollout, ours are those of
            the rollouts before.
    """
    refused = {
        "kind": (config.kind != "mlp", "mlp: MaskablePPO has no memory"),
        "adapter": (config.adapter != 0, "0: its policy has no layer in front of both networks"),
        "num_shards": (
            config.shards != 1,
            "1 (or more than num_envs): SB3 permutes all rows together",
        ),
        "normalise_observations": (
            config.normalise_observations,
            "false: VecNormalize is another normaliser",
        ),
        "normalise_rewards": (
            config.normalise_rewards,
            "false: MaskablePPO itself does not scale rewards",
        ),
        "learning_rate_end": (
            config.learning_rate_end != config.learning_rate,
            "learning_rate: SB3 counts the progress of a schedule one update later",
        ),
        "ent_coef_end": (
            config.ent_coef_end not in (None, config.ent_coef),
            "None: SB3's coefficient is constant",
        ),
        "vf_clip_eps": (config.vf_clip_eps != 0, "0: SB3's clipped value loss is another one"),
    }
    if faults := [
        f"ppo.{name} = {getattr(config, name)}: expected {expected}"
        for name, (wrong, expected) in refused.items()
        if wrong
    ]:
        raise ConfigError("; ".join(["MaskablePPO cannot do the same", *faults]))
    return {
        "n_steps": config.num_steps,
        "batch_size": config.num_envs * config.num_steps // config.num_minibatches,
        "n_epochs": config.num_epochs,
        "learning_rate": config.learning_rate,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip_eps,
        "clip_range_vf": None,
        "normalize_advantage": config.normalise_advantages,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "max_grad_norm": config.max_grad_norm,
        "target_kl": config.target_kl / 1.5 or None,  # SB3 stops past 1.5 times the target
        "policy_kwargs": {
            "net_arch": {"pi": list(config.hidden), "vf": list(config.hidden)},
            "activation_fn": config.activation,
            "optimizer_kwargs": {"eps": 1e-5},
        },
    }


def open_twin(path: str) -> Twin:
    """The environment on the tape at `path`; for a process of its own, too."""
    return Twin(load(path))


def vector_env(path: str, kind: str, num_envs: int) -> Any:
    """Twins on the tape at `path` in SB3's `DummyVecEnv` or, kind "subproc", a process each."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv  # pyright: ignore[reportMissingImports]

    return {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[kind](
        [partial(open_twin, path)] * num_envs
    )


def make_model(envs: Any, chosen: Mapping[str, Any], seed: int) -> Any:
    """MaskablePPO on the CPU with `arguments(...)`, silent."""
    from sb3_contrib import MaskablePPO  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]

    policy = dict(chosen["policy_kwargs"])
    policy["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[policy["activation_fn"]]
    return MaskablePPO(
        "MlpPolicy", envs, **{**chosen, "policy_kwargs": policy}, seed=seed, device="cpu", verbose=0
    )


def iterate(model: Any, steps: int, callback: Callable[..., bool] | None = None) -> None:
    """One iteration of `learn`: a rollout of `steps` in all, and its epochs."""
    model.learn(steps, callback=callback, reset_num_timesteps=False, log_interval=None)


def fastest(
    seconds_of: Callable[[int], float], counts: Iterable[int], rounds: int, worth: float = 1.0
) -> tuple[int, dict[str, float]]:
    """The number of threads to measure with, and seconds by number (the best of `rounds`, taking
    turns).

    A larger number has to be at least `worth` times as fast by the wall clock.
    """
    best = dict.fromkeys(counts, float("inf"))
    for _ in range(rounds):
        for count in best:
            best[count] = min(best[count], seconds_of(count))
    chosen, *larger = sorted(best)
    for count in larger:
        chosen = count if best[count] * worth <= best[chosen] else chosen
    return chosen, {str(count): seconds for count, seconds in best.items()}


def choose_threads(
    envs: Any, chosen: Mapping[str, Any], counts: Sequence[int], worth: float = 1.0
) -> tuple[int, dict[str, float]]:
    """Set torch to the fastest of the thread counts, by whole iterations with short rollouts -> as
    `fastest`.
    """
    import torch  # pyright: ignore[reportMissingImports]

    if len(counts) == 1:
        torch.set_num_threads(counts[0])
        return counts[0], {}
    num_steps = max(TRIAL_STEPS, chosen["batch_size"]) // envs.num_envs
    model = make_model(envs, {**chosen, "n_steps": num_steps}, 0)

    def seconds_of(threads: int) -> float:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        iterate(model, num_steps * envs.num_envs)
        return time.perf_counter() - start

    seconds_of(counts[0])  # warms up
    threads, trial = fastest(seconds_of, counts, TRIAL_ROUNDS, worth)
    torch.set_num_threads(threads)
    return threads, trial


class Trainer:
    """For `Worker`: MaskablePPO with the mathematics of `ppo`, a `Learning` as JSON, on the tape at
    `path`. The first call chooses the number of torch threads, for the children of a bench start at
    the same time; every later call is one iteration.
    """

    def __init__(self, ppo: Mapping[str, Any], path: str, threads: Sequence[int]) -> None:
        self._config, self._threads = validated(Learning, ppo, "ppo"), threads
        self._envs = vector_env(path, "dummy", self._config.num_envs)
        self._model: Any = None

    def __call__(self) -> dict[str, Any]:
        if self._model is None:
            chosen = arguments(self._config)
            count, trial = choose_threads(self._envs, chosen, self._threads, WORTH)
            self._model = make_model(self._envs, chosen, 0)
            return {"threads": count, "trial_seconds": trial}
        iterate(self._model, self._config.num_envs * self._config.num_steps)
        return {}


class Learner:
    """A new run of MaskablePPO. A call is one iteration and returns its mean reward per step: what
    the environments gave, before SB3 adds the bootstrap of truncations to it.
    """

    def __init__(self, config: Learning, envs: Any, seed: int) -> None:
        self._model = make_model(envs, arguments(config), seed)  # seeds the environments too
        self._steps = config.num_envs * config.num_steps

    def __call__(self) -> float:
        total = 0.0

        def count(seen: dict[str, Any], _: dict[str, Any]) -> bool:
            nonlocal total
            total += float(np.sum(seen["rewards"]))
            return True

        iterate(self._model, self._steps, count)
        return total / self._steps


class Vector:
    """For `Worker`: `steps` steps of each of `num_envs` environments per call -> episodes that ended. kind:
    "dummy" or "subproc".
    """

    def __init__(self, path: str, kind: str, num_envs: int, steps: int) -> None:
        from sb3_contrib.common.maskable.utils import get_action_masks  # pyright: ignore[reportMissingImports]

        self._masks = get_action_masks
        self._envs = vector_env(path, kind, num_envs)
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
