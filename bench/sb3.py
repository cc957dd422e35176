"""Stable-Baselines3 as a side: MaskablePPO on the NumPy twin, vector environments, the twin alone.

MaskablePPO is sb3-contrib's, with the mathematics of a `Learning`; the vector environments are over
the twin.

It is given what makes it fast: the environment in plain NumPy without wrappers or monitors, no
logging, and the number of torch threads that a short trial finds faster. Everything here runs in a
child of its own (`worker`).
"""

import importlib.util
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from jaxtrade.config import validate
from jaxtrade.errors import ConfigError

from .learning import Learning
from .twin import NUM_ACTIONS, Twin, load, make_tape, save

DIFFERENCES = (
    "advantages are divided by a minibatch's sample standard deviation (n - 1), ours by the population's (n)",
)
TRIAL_STEPS = 1_024  # of one iteration in the trial of thread counts
TRIAL_ROUNDS = 2
# Where CPU seconds are compared: what more threads must gain, for they cost more of these.
WORTH = 1.25
# Key -> what it has to be, and why.
ONLY = yaml.safe_load("""
kind: [mlp, MaskablePPO has no memory]
adapter: [0, its policy has no layer in front of both networks]
normalise_observations: [false, VecNormalize is another normaliser]
normalise_rewards: [false, MaskablePPO itself does not scale rewards]
vf_clip_eps: [0, SB3's clipped value loss is another one]
""")
INSTALL = 'pip install "jaxtrade[bench]"'


def arguments(config):
    """Return MaskablePPO's keyword arguments for the same mathematics.

    `activation_fn` is a name ("tanh", "relu").

    Equal to float order: the network and its orthogonal start, Adam's epsilon, the bootstrap after
    a truncation, the mean over a minibatch, one gradient norm over policy and value parameters.
    `DIFFERENCES` remain: neither side has a switch for them.

    Raises:
        ConfigError: a field that SB3 computes otherwise, or not at all. Observation normalisation
            is among them: VecNormalize updates its statistics within the rollout, ours are those of
            the rollouts before.
    """
    end = None if config.ent_coef_end is None else config.ent_coef
    shards = config.num_shards if config.shards == 1 else 1
    only = ONLY | {
        "num_shards": (shards, "or more than num_envs: SB3 permutes all rows together"),
        "learning_rate_end": (
            config.learning_rate,
            "learning_rate: SB3 counts the progress of a schedule one update later",
        ),
        "ent_coef_end": (end, "SB3's coefficient is constant"),
    }
    if faults := [
        f"ppo.{name} = {getattr(config, name)}: expected {expected} ({why})"
        for name, (expected, why) in only.items()
        if getattr(config, name) != expected
    ]:
        raise ConfigError("; ".join(["MaskablePPO cannot do the same", *faults]))
    same = "learning_rate gamma gae_lambda ent_coef vf_coef max_grad_norm"
    return {name: getattr(config, name) for name in same.split()} | {
        "n_steps": config.num_steps,
        "batch_size": config.num_envs * config.num_steps // config.num_minibatches,
        "n_epochs": config.num_epochs,
        "clip_range": config.clip_eps,
        "clip_range_vf": None,
        "normalize_advantage": config.normalise_advantages,
        "target_kl": config.target_kl / 1.5 or None,  # SB3 stops past 1.5 times the target
        "policy_kwargs": {
            "net_arch": {"pi": list(config.hidden), "vf": list(config.hidden)},
            "activation_fn": config.activation,
            "optimizer_kwargs": {"eps": 1e-5},
        },
    }


def missing(*modules):
    """Return what is missing of some packages of peers and how to get it; empty if nothing is."""
    names = [name.replace("_", "-") for name in modules if importlib.util.find_spec(name) is None]
    return f"{', '.join(names)} not installed: {INSTALL}" if names else ""


def open_twin(path):
    """Return the environment on the tape at `path`; for a process of its own, too."""
    return Twin(load(path))


@contextmanager
def taped(config, params):
    """Yield the path of the tape of an environment's configuration and parameters, for children."""
    with tempfile.TemporaryDirectory() as folder:
        save(make_tape(config, params), path := Path(folder) / "tape")
        yield str(path)


def vector_env(path, kind, num_envs):
    """Twins on the tape at `path` in SB3's `DummyVecEnv` or, kind "subproc", a process each."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    made = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[kind]
    return made([partial(open_twin, path)] * num_envs)


def make_model(envs, chosen, seed):
    """MaskablePPO on the CPU with `arguments(...)`, silent."""
    from sb3_contrib import MaskablePPO
    from torch import nn

    policy = dict(chosen["policy_kwargs"])
    policy["activation_fn"] = {"tanh": nn.Tanh, "relu": nn.ReLU}[policy["activation_fn"]]
    return MaskablePPO(
        "MlpPolicy", envs, **{**chosen, "policy_kwargs": policy}, seed=seed, device="cpu", verbose=0
    )


def iterate(model, steps, callback=None):
    """One iteration of `learn`: a rollout of `steps` in all, and its epochs."""
    model.learn(steps, callback=callback, reset_num_timesteps=False, log_interval=None)


def fastest(seconds_of, counts, rounds, worth=1.0):
    """Return the number of threads to measure with, and seconds by number.

    Seconds are the best of `rounds`, taking turns.

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


def choose_threads(envs, chosen, counts, worth=1.0):
    """Set torch to the fastest of the thread counts -> as `fastest`.

    Whole iterations with short rollouts are timed.
    """
    import torch

    if len(counts) == 1:
        torch.set_num_threads(counts[0])
        return counts[0], {}
    num_steps = max(TRIAL_STEPS, chosen["batch_size"]) // envs.num_envs
    model = make_model(envs, {**chosen, "n_steps": num_steps}, 0)

    def seconds_of(threads):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        iterate(model, num_steps * envs.num_envs)
        return time.perf_counter() - start

    seconds_of(counts[0])  # warms up
    threads, trial = fastest(seconds_of, counts, TRIAL_ROUNDS, worth)
    torch.set_num_threads(threads)
    return threads, trial


def trainer(ppo, path, threads):
    """Train MaskablePPO for `Worker`, with the mathematics of `ppo`, on the tape at `path`.

    ppo: a `Learning` as JSON. The first repeat chooses the number of torch threads, for the
    children of a bench start at the same time; every later one is one iteration.
    """
    config = validate(Learning, ppo, "ppo")
    chosen, envs = arguments(config), vector_env(path, "dummy", config.num_envs)
    yield {}
    count, trial = choose_threads(envs, chosen, threads, WORTH)
    model = make_model(envs, chosen, 0)
    yield {"threads": count, "trial_seconds": trial}
    while True:
        iterate(model, config.num_envs * config.num_steps)
        yield {}


class Learner:
    """A new run of MaskablePPO. A call is one iteration and returns its mean reward per step.

    The reward is what the environments gave, before SB3 adds the bootstrap of truncations to it.
    """

    def __init__(self, config, envs, seed):
        self._model = make_model(envs, arguments(config), seed)  # seeds the environments too
        self._steps = config.num_envs * config.num_steps

    def __call__(self):
        total = 0.0

        def count(seen, _):
            nonlocal total
            total += float(np.sum(seen["rewards"]))
            return True

        iterate(self._model, self._steps, count)
        return total / self._steps


def stepped(path, kind, num_envs, num_steps):
    """Take `num_steps` steps of each of `num_envs` environments per repeat, for `Worker`.

    Returns the episodes that ended. kind: "dummy" or "subproc".
    """
    from sb3_contrib.common.maskable.utils import get_action_masks

    envs = vector_env(path, kind, num_envs)
    drawn = np.random.default_rng(0).random((num_steps, num_envs, NUM_ACTIONS), np.float32)
    envs.seed(0)
    envs.reset()
    ended = 0
    try:
        while True:
            yield ended
            ended = 0
            for chances in drawn:  # a legal action, all equally likely
                _, _, dones, _ = envs.step((get_action_masks(envs) * chances).argmax(axis=1))
                ended += int(dones.sum())
    finally:
        envs.close()


def bare(path, num_steps):
    """For `Worker`: one environment alone, `num_steps` steps per repeat -> episodes that ended."""
    env, chances = open_twin(path), np.random.default_rng(0).random(num_steps).tolist()
    legal_of = {}
    env.reset(seed=0)
    ended = 0
    while True:
        yield ended
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
