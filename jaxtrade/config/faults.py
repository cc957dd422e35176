"""Names of keys and their faults.

What an unknown name means, those of earlier versions, settings by keyword, and what is wrong with
the values of a configuration, with the place of each fault.
"""

from __future__ import annotations

import copy
import difflib
import os
import re
import reprlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jaxtrade.config.base import read_descriptions
from jaxtrade.config.learners import LEARNER, SECTIONS, chosen_key
from jaxtrade.config.sb3 import INSTEAD, REMARKS, translate_sb3_name
from jaxtrade.errors import ConfigError
from jaxtrade.text import did_you_mean, pairs

# Which key an unknown name means: one that is spelt alike, or the key that Stable-Baselines3's name
# stands for.
#
# A suggestion is always accepted: keys of a learner that is not chosen are suggested only together
# with `algorithm`.

LIKE = 0.6  # least likeness of a suggestion


def last_part(key: str) -> str:
    """Return the name of a dotted key without its sections."""
    return key.rpartition(".")[2]


def alike(word: str, known: Iterable[str]) -> str | None:
    """Find the known word that `word` resembles most.

    Capital letters count as small ones. Of dotted keys the last parts must resemble each other too:
    the same section alone is no likeness. A word without a section is compared with them alone.
    """
    word = word.lower()
    part = str if "." in word else last_part
    names = {part(name).lower(): name for name in reversed(list(known))}
    for near in difflib.get_close_matches(word, names, n=5, cutoff=LIKE):
        if difflib.SequenceMatcher(None, last_part(near), last_part(word)).ratio() >= LIKE:
            return names[near]
    return None


def same_name(word: str, known: Iterable[str]) -> str | None:
    """Find the known key whose last part is that of `word`.

    Returns the first one, or for a word without a section the only one.
    """
    same = [name for name in known if last_part(name) == last_part(word)]
    return same[0] if len(same) == 1 or (same and "." in word) else None


def suggest_key(key: str, known: Iterable[str], algorithm: str) -> str | None:
    """Suggest the known key that an unknown one means; None if none is like it.

    known: dotted keys.
    algorithm: the chosen learner, a built-in one. A key without a section may be of any learner:
        of the chosen one before the others.
    """
    known, section = list(known), key.partition(".")[0].lower()
    others = [name for name in SECTIONS if name != algorithm and "." not in key]
    learners = [section] if section in SECTIONS else [algorithm, *others]
    own = [(learner, drop_unused_learners(known, learner)) for learner in learners]
    for learner, names in own:
        if (found := translate_sb3_name(key, learner)) in names:
            return found
        if found := same_name(key, names):
            return found
    if owners := owners_of(key, known):
        return f"{algorithm}.{last_part(key)}" if algorithm in owners else None
    return next((near for _, names in own if (near := alike(key, names))), None)


def drop_unused_learners(known: Iterable[str], algorithm: Any) -> list[str]:
    """Drop the keys of learners that are not chosen from the known keys.

    Keeps all where no built-in learner is chosen.
    """
    others = set(SECTIONS) - {algorithm} if algorithm in SECTIONS else set()
    return [name for name in known if name.partition(".")[0] not in others]


def explain_unknown(
    key: str, known: Iterable[str], algorithm: Any, model: type[BaseModel], keyword: bool = False
) -> str:
    """Return the end of a message about an unknown key: what is meant, or to use, or nothing.

    model: what declares the known keys.
    keyword: a key that is suggested is written as a keyword of Python where that is enough.
    """
    if key in MOVED:
        return f": it is {MOVED[key]} now"
    if instead := NO_KEYS.get(key) or INSTEAD.get(last_part(key)):
        return f": {instead}"
    known = list(known)

    def spell(found: str, learner: Any) -> str:
        last = last_part(found)
        plain = keyword and last not in model.model_fields
        return last if plain and same_name(last, drop_unused_learners(known, learner)) else found

    if algorithm not in SECTIONS:  # keys of all learners are accepted
        return did_you_mean(key, [spell(each, algorithm) for each in known])
    if found := suggest_key(key, known, algorithm):
        section, means = found.partition(".")[0], ""
        theirs = [translate_sb3_name(key, learner) for learner in SECTIONS]
        if found in theirs and last_part(found) != last_part(key):
            means = f" ({explain_key(found, model)})"
        other = section in SECTIONS and section != algorithm
        needs = f" with algorithm={section}" if other else ""
        shown = spell(found, section if other else algorithm)
        return f"; did you mean '{shown}'{means}{needs}?"
    owners = " and ".join(owners_of(key, known))
    return f": it is a key of {owners}, and algorithm is {algorithm}" if owners else ""


def owners_of(key: str, known: Iterable[str]) -> list[str]:
    """List the learners that have the last part of a key, if it names a learner's section."""
    section, _, name = key.partition(".")
    return [learner for learner in SECTIONS if section in SECTIONS and f"{learner}.{name}" in known]


def explain_key(key: str, model: Any) -> str:
    """Return the description of a dotted key, or how its value follows from SB3's."""
    *path, last = key.split(".")
    for part in path:
        model = model.model_fields[part].annotation
    said = model.model_fields[last].description or read_descriptions(model).get(last, "")
    return REMARKS.get(key) or said


# Read configurations that earlier versions wrote: rename old keys to today's, convert values whose
# unit changed, and write out a key that they lack and whose default is not what they did.
#
# Pure functions of plain values. Only run folders and policy bundles are migrated. In a user's own
# file, an old key is an error that gives the new name (`MOVED`), and an old value one that gives
# the new value (`config.base.Atrs`).

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


def migrate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the nested `values` of a run's `config.yaml` to today's keys and values.

    Those of today are left unchanged.

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
    """Rename old keys in the part `network` of a policy bundle's schema.

    Today's keys are left unchanged.
    """
    result = dict(values)
    if "network" in result:
        result["kind"] = result.pop("network")
    return result


# --- Settings by keyword: `total_timesteps=50_000` finds its key `train.total_timesteps`


def sections_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Map names to the models of the sections in a model."""
    inner = {name: field.annotation for name, field in model.model_fields.items()}
    return {
        name: kind
        for name, kind in inner.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }


def keys_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List the dotted keys of a model, in order, without its sections.

    `*` stands for a name that the user chooses, as in `phases.*.gate.min_trades`.
    """
    keys = []
    for name, field in model.model_fields.items():
        kinds = {"": field.annotation, "*.": next(iter(get_args(field.annotation)[1:]), None)}
        inner = [
            keys_of(kind, f"{prefix}{name}.{star}")
            for star, kind in kinds.items()
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        keys += inner[0] if inner else [prefix + name]
    return keys


def flatten_settings(
    settings: Mapping[str, Any], model: type[BaseModel], algorithm: Any = SECTIONS[0]
) -> dict[str, Any]:
    """Return settings by their dotted keys.

    Args:
        settings: name -> value. A name is a key without its section where only one section has it
            (`gamma`), a dotted key (`ppo.gamma`), or a section with a mapping of its keys. A
            section that has a `preset` also takes the name of one (`account="..."`), and `data`
            takes a file.
        model: the configuration.
        algorithm: the learner of this configuration. A key that only sections of learners have is
            that of its section.

    Raises:
        ConfigError: a name is unknown (with a suggestion), belongs to several sections, or a key is
            given twice. The message has one line for each fault.
    """
    found: dict[str, Any] = {}
    faults: list[str] = []
    for name, value in settings.items():
        try:
            for key, plain in _keys_and_values(name, value, model, algorithm):
                if key in found:
                    faults.append(f"{name}=...: the key '{key}' is given twice; give it once")
                found[key] = os.fspath(plain) if isinstance(plain, os.PathLike) else plain
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("\n".join(faults))
    return found


def _keys_and_values(
    name: str, value: Any, model: type[BaseModel], algorithm: Any
) -> Iterator[tuple[str, Any]]:
    sections = sections_of(model)
    if name in sections:
        yield from _of_section(name, value, sections[name])
    elif name == LEARNER and isinstance(value, Mapping):
        yield from ((chosen_key(f"{name}.{key}", algorithm), inner) for key, inner in value.items())
    elif "." in name or name in model.model_fields:
        yield chosen_key(name, algorithm), value
    else:
        yield _whole_key(name, model, algorithm), value


FOREIGN = {
    "env": ". Runs trade jaxtrade's own markets; to train on another environment, take the parts: "
    "env, params = jt.from_gymnax(NAME), then jt.make_ppo(config, env, updates) and jt.train "
    "(docs/interop.md)"
}  # what else may be meant by the value of a section


def _of_section(name: str, value: Any, section: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    if isinstance(value, Mapping):
        yield from ((f"{name}.{key}", inner) for key, inner in value.items())
    elif name == "data" and isinstance(value, str | os.PathLike):
        yield "data.source", "file"
        yield "data.file", value
    elif isinstance(value, str) and "preset" in section.model_fields:
        yield f"{name}.preset", value
    else:
        keys = ", ".join(list(section.model_fields)[:4])
        raise ConfigError(
            f"{name}={_kind(value)}: '{name}' is a section of the configuration; give a dict of its keys "
            f"({keys}, ...){FOREIGN.get(name, '')}"
        )


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else f"<{type(value).__name__}>"


def _whole_key(name: str, model: type[BaseModel], algorithm: Any) -> str:
    known = keys_of(model)
    same = [key for key in known if last_part(key) == name]
    own = drop_unused_learners(same, algorithm)
    if not own and algorithm in SECTIONS and translate_sb3_name(name, algorithm):
        same = []  # the chosen learner calls it otherwise
    found = own or same
    if len(found) == 1:
        return found[0]
    if not found:
        said = explain_unknown(name, known, algorithm, model, keyword=True)
        said = said or "; `jaxtrade config keys` lists the keys"
        raise ConfigError(f"{name}=...: unknown key '{name}'{said}")
    *most, last = (key.rpartition(".")[0] for key in found)
    raise ConfigError(
        f"{name}=...: several sections have the key '{name}': {', '.join(most)} and {last}; name "
        f"one, e.g. {most[0]}={{'{name}': ...}} or set=['{most[0]}.{name}=...']"
    )


# --- What is wrong with the values of a configuration: pydantic's findings as lines for people, each
# with its key.


_SHORT = reprlib.Repr()  # shortens values in messages, because YAML aliases can make them endless
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 2

# pydantic's kinds of faults about the type of a value, in the words of a configuration's reader.
EXPECTED = {
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"
    ),
    "finite_number": "a finite number",
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "text",
    "list_type": "a list, such as [a, b]",
    "tuple_type": "a list, such as [a, b]",
}
# The names that pydantic gives to the members of a union. It appends the one that it tried to the
# path of a fault.
MEMBER = re.compile(r"float|constrained-\w+|(literal|function-[a-z]+)\[.*\]", re.DOTALL)
# Keys that people look for and that do not exist: what to use.
NO_KEYS = {
    f"account.{name}": "the start balance comes with account.preset"
    for name in (
        "balance",
        "initial_balance",
        "start_balance",
        "starting_balance",
        "start",
        "size",
        "capital",
    )
}
SECTION = ("model_type", "model_attributes_type", "dict_type")


def _expand_key(known: Iterable[str], key: str) -> list[str]:
    """Return the known keys, with the names that `key` has where they have a `*`."""
    parts = key.split(".")

    def fill(own: str) -> str:
        return ".".join(
            parts[i] if part == "*" and i < len(parts) else part
            for i, part in enumerate(own.split("."))
        )

    return [fill(own) for own in known]


def _location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return the path of a fault's value, without the member of a union."""
    member = len(location) > 2 and MEMBER.fullmatch(str(location[-1]))
    return location[:-1] if member else location


def _unknown(
    item: ErrorDetails, key: str, known: list[str], model: type[BaseModel], algorithm: Any
) -> tuple[str, str]:
    """Return (key, line) of an unknown key.

    algorithm: as in `faults_of`.
    """
    if isinstance(item["input"], Mapping) and item["input"] and key.isidentifier():
        key = (
            f"{key}.{next(iter(item['input']))}"  # the whole section is unknown: name its first key
        )
    known = _expand_key(known, key)
    said = explain_unknown(key, known, algorithm, model)
    owned = owners_of(key, known)  # the keys of a learner that is not chosen would be refused
    if said and (said[-1] == "?" or not owned):
        return key, f"unknown key '{key}'{said}"
    section = algorithm if owned else key.rpartition(".")[0]
    siblings = [k for k in known if section and k.rpartition(".")[0] == section] or list(
        model.model_fields
    )
    return key, f"unknown key '{key}'{said}; expected one of: {', '.join(siblings)}"


def _word_error(item: ErrorDetails) -> str:
    """Say what is wrong with a value, without pydantic's words and the names of classes."""
    if item["type"] in SECTION:
        return "expected a section of keys, 'key: value'"
    if item["type"] in EXPECTED:
        return f"expected {EXPECTED[item['type']]}"
    if item["type"] == "missing":
        return "missing"
    if item["type"] == "too_short":
        return f"expected at least {item.get('ctx', {}).get('min_length', 1)} item(s)"
    return re.sub("^Input should be ", "expected ", item["msg"].removeprefix("Value error, "))


def _place(item: ErrorDetails, key: str) -> tuple[str, str]:
    """Return (key, start of the line) of a fault of a value.

    A rule about several keys names them itself.
    """
    value = item["input"]
    if not key:
        return "", ""
    if (
        (item["type"] in EXPECTED or item["type"] == "literal_error")
        and isinstance(value, Mapping)
        and value
    ):
        inner = f"{key}.{next(iter(value))}"  # as --set names it
        return inner, f"unknown key '{inner}': '{key}' is one value, it has no keys: "
    return key, f"'{key}': " if isinstance(value, Mapping) else f"'{key}' = {_SHORT.repr(value)}: "


def faults_of(
    error: ValidationError, model: type[BaseModel], algorithm: Any = None
) -> list[tuple[str, str]]:
    """Return (key, one line about it) of every fault.

    The key of a rule about several keys is that of their section, or "".

    algorithm: the chosen learner of a run's configuration, whose keys are suggested; None for
        other models.
    """
    unknown: list[tuple[str, str]] = []
    others: dict[tuple[str, str], list[str]] = {}
    known, items = keys_of(model), error.errors()
    for item in items:
        key = ".".join(str(part) for part in _location(item["loc"]))
        if item["type"] == "extra_forbidden":
            unknown.append(_unknown(item, key, known, model, algorithm))
            continue
        key, where = _place(item, key)
        others.setdefault((key, where), []).append(_word_error(item))
    return unknown + [(key, where + "; or: ".join(what)) for (key, where), what in others.items()]


def drop_faulty(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return the nested `values` without those that an error complains about."""
    left = copy.deepcopy(dict(values))
    for item in error.errors():
        node: Any = left
        *path, last = _location(item["loc"]) or ("",)
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return left


def explain_bars_file(path: Path) -> str:
    """Say what to do with a file of bars that was given as another file."""
    file = shlex.quote(str(path))
    return f"run 'jaxtrade init {file}', which writes a configuration that reads it, or set data.file (--data {file})"


def is_run(path: Path) -> bool:
    """Return whether a path is the folder of a run."""
    return all((path / name).is_file() for name in ("config.yaml", "manifest.json"))


def explain_folder(path: Path) -> str:
    """Return the end of a message about a folder that was given as a file.

    It says what to do with the folder if it is a run's.
    """
    if not is_run(path):
        return ""
    run = shlex.quote(str(path))
    return f"; it is a run: jaxtrade evaluate {run}, or jaxtrade train --resume {run}"


def explain_gymnasium(environment: Any) -> str:
    """Say what to do with an environment of Gymnasium, or its name, which no learner can train on."""
    known = environment if isinstance(environment, str) else None
    known = known or getattr(getattr(environment, "spec", None), "id", None)
    name = known or getattr(environment, "__name__", type(environment).__name__)
    gymnax = (
        f"If gymnax has it: env, params = jt.from_gymnax('{known}'). Else write"
        if known
        else "Write"
    )
    return (
        f"{name} steps in Python, and jaxtrade's learners are compiled together with their environment. "
        f"{gymnax} it as a task ('An environment becomes a task' in docs/sb3.md), or with jax.numpy as a "
        "jaxtrade.types.Env (six functions), or train on it with Stable-Baselines3. The other way, "
        "jaxtrade's market in Gymnasium, is jt.to_gymnasium (docs/interop.md)"
    )


def explain_object(found: Any) -> str:
    """Say what to do with an object that was given as a configuration."""
    steps = hasattr(found, "step") and hasattr(found, "reset")
    if steps and not (hasattr(found, "action_mask") or hasattr(found, "step_env")):
        return f"configuration: {explain_gymnasium(found)}"
    return (
        f"configuration <{type(found).__name__}>: expected a file, a shipped name such as 'quickstart', or a "
        f"RunConfig{FOREIGN['env'] if steps else ''}"
    )
