"""Which key an unknown name means: one that is spelt alike, or the key that Stable-Baselines3's
name stands for.

A suggestion is always accepted: keys of a learner that is not chosen are suggested only together
with `algorithm`.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from jaxtrade.config.base import described
from jaxtrade.config.learners import SECTIONS
from jaxtrade.text import pairs

LIKE = 0.6  # least likeness of a suggestion
# Parameters of Stable-Baselines3, by learner -> the key of the learner's section that takes the
# same value.
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "dqn": pairs(
        """
        gamma  gamma
        batch_size  batch_size
        buffer_size  buffer_size
        learning_starts  learning_starts
        target_update_interval  target_every
        n_steps  n_steps
        exploration_fraction  epsilon_until
        exploration_initial_eps  epsilon
        exploration_final_eps  epsilon_end
        max_grad_norm  max_grad_norm
        prioritized_replay_alpha  priority_alpha
        prioritized_replay_beta0  priority_beta
        """
    ),
    "pqn": pairs(
        """
        gamma  gamma
        exploration_fraction  epsilon_until
        exploration_initial_eps  epsilon
        exploration_final_eps  epsilon_end
        max_grad_norm  max_grad_norm
        n_epochs  num_epochs
        """
    ),
    "ppo": pairs(
        """
        gamma  gamma
        n_epochs  num_epochs
        gae_lambda  gae_lambda
        clip_range  clip_eps
        ent_coef  ent_coef
        vf_coef  vf_coef
        max_grad_norm  max_grad_norm
        target_kl  target_kl
        """
    ),
}
# Names whose key is in another section, or takes a value of another meaning.
RELATED: Mapping[str, Mapping[str, str]] = {
    "dqn": pairs(
        """
        train_freq  dqn.replay_ratio
        gradient_steps  dqn.replay_ratio
        prioritized_replay  dqn.replay
        """
    ),
    "pqn": pairs(
        """
        n_steps  rollout.num_steps
        train_freq  rollout.num_steps
        batch_size  pqn.num_minibatches
        gradient_steps  pqn.num_epochs
        """
    ),
    "ppo": pairs(
        """
        n_steps  rollout.num_steps
        batch_size  ppo.num_minibatches
        clip_range_vf  ppo.vf_clip_eps
        normalize_advantage  ppo.normalise_advantages
        """
    ),
}
ANY_LEARNER = pairs(
    """
    n_envs  rollout.num_envs
    net_arch  network.hidden
    activation_fn  network.activation
    """
)


class Meant(NamedTuple):
    """The key that is meant. algorithm: the learner that must be chosen for it; None: any, or the
    chosen one. foreign: whether the name is one that only Stable-Baselines3 has."""

    key: str
    algorithm: str | None = None
    foreign: bool = False


def alike(word: str, known: Iterable[str], most: int = 5) -> list[str]:
    """The known words that `word` resembles, the nearest first. Capital letters count as small
    ones.

    Of dotted keys the last parts must resemble each other too: the same section alone is no
    likeness.
    """
    names = {name.lower(): name for name in reversed(list(known))}
    word = word.lower()
    own = word.rpartition(".")[2]
    return [
        names[name]
        for name in difflib.get_close_matches(word, list(names), n=most, cutoff=LIKE)
        if difflib.SequenceMatcher(None, name.rpartition(".")[2], own).ratio() >= LIKE
    ]


def same_name(word: str, known: Iterable[str]) -> str | None:
    """The known key whose last part is that of `word`: the first one, or for a word without a
    section the only one.
    """
    same = [name for name in known if name.rpartition(".")[2] == word.rpartition(".")[2]]
    return same[0] if len(same) == 1 or (same and "." in word) else None


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one that it resembles, or nothing."""
    known = list(known)
    near = same_name(word, known) or next(iter(alike(word, known)), None)
    return f"; did you mean '{near}'?" if near else ""


def meant(key: str, known: Iterable[str], algorithm: str) -> Meant | None:
    """The known key that an unknown one means; None if none is like it.

    known: dotted keys. algorithm: the chosen learner, a built-in one. A key without a section may
        be of any learner.
    """
    known, learners = list(known), learners_of(key, algorithm)
    own = {learner: accepted(known, learner) for learner in learners}
    for learner, names in own.items():
        if (found := foreign(key, learner)) in names:
            return Meant(
                found, _needed(found, algorithm), found.rpartition(".")[2] != key.rpartition(".")[2]
            )
        if (found := same_name(key, names)) is not None:
            return Meant(found, _needed(found, algorithm))
    owners = owners_of(key, known)
    if owners:
        return Meant(f"{algorithm}.{key.rpartition('.')[2]}") if algorithm in owners else None
    near = next((near[0] for names in own.values() if (near := alike(key, names))), None)
    return None if near is None else Meant(near, _needed(near, algorithm))


def accepted(known: Iterable[str], algorithm: Any) -> list[str]:
    """The known keys without those of learners that are not chosen. All where no built-in learner
    is chosen.
    """
    others = set(SECTIONS) - {algorithm} if algorithm in SECTIONS else set()
    return [name for name in known if name.partition(".")[0] not in others]


def learners_of(key: str, algorithm: str) -> list[str]:
    """The learners whose keys an unknown key may mean: that of its section, else the chosen one
    before the others.
    """
    section = key.partition(".")[0].lower()
    others = [name for name in SECTIONS if name != algorithm and "." not in key]
    return [section] if section in SECTIONS else [algorithm, *others]


def foreign(key: str, learner: str) -> str | None:
    """Our key for Stable-Baselines3's name of a learner's parameter (the last part of `key`); None
    for other names.
    """
    name = key.rpartition(".")[2]
    if own := PARAMETERS[learner].get(name):
        return f"{learner}.{own}"
    return RELATED[learner].get(name) or ANY_LEARNER.get(name)


def hint(key: str, known: Iterable[str], algorithm: Any, model: type[BaseModel]) -> str:
    """The end of a message about an unknown key: what is meant, or nothing. model: what declares
    the known keys.
    """
    known = list(known)
    if algorithm not in SECTIONS:  # keys of all learners are accepted
        return suggest(key, known)
    found = meant(key, known, algorithm)
    if found is None:
        owners = owners_of(key, known)
        return (
            f": it is a key of {' and '.join(owners)}, and algorithm is {algorithm}"
            if owners
            else ""
        )
    means = f" ({explained(found.key, model)})" if found.foreign else ""
    needs = f" with algorithm={found.algorithm}" if found.algorithm else ""
    return f"; did you mean '{found.key}'{means}{needs}?"


def owners_of(key: str, known: Iterable[str]) -> list[str]:
    """The learners that have the last part of a key, if it names a learner's section."""
    section, _, name = key.partition(".")
    return [learner for learner in SECTIONS if section in SECTIONS and f"{learner}.{name}" in known]


def explained(key: str, model: Any) -> str:
    """The description of a dotted key."""
    *path, last = key.split(".")
    for part in path:
        model = model.model_fields[part].annotation
    return described(model).get(last, "")


def _needed(key: str, algorithm: str) -> str | None:
    section = key.partition(".")[0]
    return section if section in SECTIONS and section != algorithm else None


# Read configurations that earlier versions wrote: rename old keys to today's, convert values
# whose
# unit changed, and write out a key that they lack and whose default is not what they did.
#
# Pure functions of plain values. Only run folders and policy bundles are migrated. In a user's
# own
# file, an old key is an error that gives the new name (`MOVED`), and an old value one that gives
# the
# new value (`config.base.Atrs`).

# Until 2026 the keys of the sections `network` and `rollout` were part of `ppo`.
MOVED = pairs(
    """
    ppo.network  network.kind
    ppo.hidden  network.hidden
    ppo.activation  network.activation
    ppo.rnn_width  network.rnn_width
    ppo.adapter  network.adapter
    ppo.normalise_observations  network.normalise_observations
    ppo.num_envs  rollout.num_envs
    ppo.num_steps  rollout.num_steps
    ppo.num_shards  rollout.num_shards
    """
)


# Until 2026 these were whole thousandths of an ATR. Today they are ATRs, which a run folder always
# holds as a float.
IN_THOUSANDTHS = ("stop_atr", "trail_atr")
_MONTH = re.compile(r"\d{4}-\d\d")


def migrated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Today's keys and values for the nested `values` of a run's `config.yaml`. Those of today are
    left unchanged.

    values: read by `read_values(path, exact=True)`, because an int and a float of the same value
        differ in their unit.
    """
    result = copy.deepcopy(dict(values))
    for old, new in MOVED.items():
        section, _, key = old.partition(".")
        if isinstance(result.get(section), dict) and key in result[section]:
            target, _, name = new.partition(".")
            result.setdefault(target, {})[name] = result[section].pop(key)
    brackets = result.get("brackets")
    if isinstance(brackets, dict):
        brackets |= {
            key: brackets[key] / 1000 for key in IN_THOUSANDTHS if type(brackets.get(key)) is int
        }
    data = result.get("data")
    if isinstance(data, dict):  # a month alone was read as its first day
        data |= {
            key: f"{data[key]}-01"
            for key in ("start", "end")
            if _MONTH.fullmatch(str(data.get(key)))
        }
    algorithm = result.get("algorithm", "ppo")
    for section in set(SECTIONS) - {algorithm} if algorithm in SECTIONS else ():
        result.pop(section, None)  # defaults that had no effect; those of today may be others
    if isinstance(
        result.get("ppo"), dict
    ):  # a run writes every key: one without this key did not scale its rewards
        result["ppo"].setdefault("normalise_rewards", False)
    result.setdefault("monitor", {}).setdefault(
        "on", False
    )  # a run folder without this section had no monitor
    if isinstance(result.get("advisor"), dict):
        # Trust was measured by the rule that is now called `answers`; `demand` was per chunk,
        # however long it was.
        result["advisor"].setdefault("evidence", "answers")
        result["advisor"].setdefault("demand_per", "chunk")
    return result


def migrated_network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Rename old keys in the part `network` of a policy bundle's schema. Today's keys are left
    unchanged.
    """
    result = dict(values)
    if "network" in result:
        result["kind"] = result.pop("network")
    return result
