"""What must hold between the chosen learner, its section and the rest of a configuration.

`config` is a `config.run.RunConfig`, which this module does not import because it is part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jaxtrade.config.sb3 import translate_sb3_name
from jaxtrade.errors import ConfigError
from jaxtrade.parts import Q_NETWORKS

SECTIONS = (
    "ppo",
    "dqn",
    "pqn",
)  # sections of the built-in learners, each of the name that `algorithm` chooses
Q_LEARNERS = ("dqn", "pqn")
Q_FUSIONS = ("slots", "none")  # the fusions that need no distribution to tilt
LEARNER = "learner"  # stands for the chosen learner's section in `--set learner.KEY=VALUE`
_OF_Q = "learning_rate learning_rate_end gamma max_grad_norm epsilon epsilon_end epsilon_until"
# Keys of each learner's section that are floats of its state (`PPOHParams` and others): agents of one program may
# differ in them. A test compares this table with the states.
TUNABLE = {
    name: keys.split()
    for name, keys in {
        "ppo": "adapter_freeze learning_rate learning_rate_end gamma gae_lambda clip_eps vf_clip_eps "
        "ent_coef ent_coef_end vf_coef max_grad_norm target_kl",
        "dqn": f"{_OF_Q} tau priority_alpha priority_beta priority_beta_end",
        "pqn": f"{_OF_Q} q_lambda",
    }.items()
}
AUTO_ROWS, AUTO_MOST = (
    512,
    32,
)  # of `num_minibatches: auto`: rows of a minibatch, and how many there may be


def check(config: Any) -> None:
    """Raise ValueError where the learner and the rest of the configuration do not fit."""
    _only_its_own_keys(config)
    if not config.rollout.auto:  # counts are checked once they are known
        _minibatches_fit(config)
    if config.algorithm in Q_LEARNERS:
        _fits_q_learner(config)
    if config.algorithm == "dqn":
        _fits_dqn(config)


def _only_its_own_keys(config: Any) -> None:
    """Refuse keys of learners that are not chosen, unless they have their default.

    Such a key has no effect. A learner of the user's own may read any section.
    """
    if config.algorithm not in SECTIONS:
        return
    for name in SECTIONS:
        if name != config.algorithm and (changed := getattr(config, name).list_changed()):
            own = translate_sb3_name(changed[0], config.algorithm) or ""
            if changed[0] in type(config.learner).model_fields:
                own = f"{config.algorithm}.{changed[0]}"
            raise ValueError(
                f"{name}.{changed[0]} is a key of {name}, and algorithm is {config.algorithm}: leave it out"
                f"{f', set {own}' if own else ''} or set algorithm={name}"
            )


def _minibatches_fit(config: Any) -> None:
    section, rollout = config.learner, config.rollout
    count: Any = getattr(section, "num_minibatches", "auto")
    if not section or count == "auto":
        return
    envs = rollout.num_envs // rollout.shards
    if envs * rollout.num_steps % count:
        raise ValueError(
            f"rollout.num_envs/rollout.num_shards*rollout.num_steps ({envs * rollout.num_steps}) must "
            f"be a multiple of {config.algorithm}.num_minibatches ({count})"
        )
    if config.network.kind == "gru" and envs % count:
        raise ValueError(
            f"network.kind=gru: rollout.num_envs/rollout.num_shards ({envs}) must be a multiple of "
            f"{config.algorithm}.num_minibatches ({count}), because a minibatch holds whole rollouts of "
            "some envs"
        )


def _fits_q_learner(config: Any) -> None:
    advisor, algorithm = config.advisor, config.algorithm
    if advisor.on and advisor.fusion not in Q_FUSIONS:
        raise ValueError(
            f"advisor.fusion={advisor.fusion} changes a distribution over actions, and {algorithm} has "
            "none: set advisor.fusion=slots (advice in the observation) or none, or algorithm=ppo"
        )
    try:
        Q_NETWORKS.check(config.network.kind)
    except ConfigError as error:
        raise ValueError(
            f"network.kind={config.network.kind} with algorithm={algorithm}: {error}"
        ) from None


def _fits_dqn(config: Any) -> None:
    if config.network.kind == "gru":
        raise ValueError(
            "network.kind=gru has a memory, and the samples of DQN's replay are too short to rebuild it: "
            "set algorithm=pqn, which learns from whole rollouts, or network.kind=mlp"
        )
    config.dqn.check_priorities()
    if not config.rollout.auto:  # the counts are checked once they are known
        config.dqn.check(config.rollout)


def find_rising_rate(config: Any, changed: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) where one end of the learning rate makes it rise to the other.

    Whoever gives both ends may want that. An agent of a sweep is not refused.

    changed: keys that were set beside the file.
    """
    learner, names = config.learner, ("learning_rate", "learning_rate_end")
    start, end = (getattr(learner, name, 0.0) for name in names)
    if learner is None or end <= start:
        return
    own = {chosen_key(key, config.algorithm) for key in changed}
    one, other = (f"{config.algorithm}.{name}" in own for name in names)
    if one != other or not learner.model_fields_set.issuperset(names):
        key = f"{config.algorithm}.{names[0]}"
        yield (
            key,
            f"'{key}' = {start:g}: the rate would rise to {key}_end={end:g}: set {key}_end={start:g} for "
            "a constant rate, or give both",
        )


def minibatches(config: Any) -> int:
    """Return the number of minibatches per epoch.

    For `auto`, it is the most that have `AUTO_ROWS` rows or more, at most `AUTO_MOST`; a
    network with a memory keeps whole rollouts together, so it may get fewer. 1 for a learner
    without minibatches.
    """
    section: Any = config.learner or config.ppo  # a learner of the user's own may read `ppo`
    count = getattr(section, "num_minibatches", 1)
    if count != "auto":
        return count
    rollout = config.rollout
    sequences = (
        rollout.num_envs
        // rollout.shards
        * (rollout.num_steps if config.network.kind == "mlp" else 1)
    )
    wanted = min(max(rollout.num_envs * rollout.num_steps // AUTO_ROWS, 1), AUTO_MOST)
    return next(count for count in range(wanted, 0, -1) if sequences % count == 0)


def tunable_floats(config: Any) -> dict[str, float]:
    """Return the floats with which the chosen learner begins, by name.

    Empty for a learner of the user's own. An entropy bonus without an end (`ppo.ent_coef_end:
    null`) ends where it begins.
    """
    if config.algorithm not in TUNABLE:
        return {}
    values = {name: getattr(config.learner, name) for name in TUNABLE[config.algorithm]}
    return {name: values["ent_coef"] if value is None else value for name, value in values.items()}


def chosen_key(key: str, algorithm: Any) -> str:
    """Replace the section `learner` of a key by that of the chosen learner; leave other keys as is.

    Raises ConfigError if the learner is not a built-in one.
    """
    section, dot, name = key.partition(".")
    if section != LEARNER or not dot:
        return key
    if algorithm not in SECTIONS:
        raise ConfigError(
            f"{key}: '{LEARNER}' stands for the section of the chosen learner, and algorithm is "
            f"{algorithm}, which has none; expected one of {', '.join(SECTIONS)}"
        )
    return f"{algorithm}.{name}"
