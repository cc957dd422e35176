"""Settings by keyword: `total_timesteps=50_000` finds its key `train.total_timesteps`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from jaxtrade.config.learners import LEARNER, SECTIONS, chosen_key
from jaxtrade.config.meant import accepted, described, foreign
from jaxtrade.errors import ConfigError


def sections_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Name -> model of the sections in a model."""
    inner = {name: field.annotation for name, field in model.model_fields.items()}
    return {
        name: kind
        for name, kind in inner.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }


def keys_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted keys of a model, in order, without its sections."""
    sections, keys = sections_of(model), []
    for name in model.model_fields:
        keys += keys_of(sections[name], f"{prefix}{name}.") if name in sections else [prefix + name]
    return keys


def placed(
    settings: Mapping[str, Any], model: type[BaseModel], algorithm: Any = SECTIONS[0]
) -> dict[str, Any]:
    """Settings by their dotted keys.

    Args:
        settings: name -> value. A name is a key without its section where only one section has it
            (`gamma`), a dotted key (`ppo.gamma`), or a section with a mapping of its keys. A
            section that has a `preset` also takes the name of one (`account="..."`), and `data`
            takes a file.
        model: the configuration. algorithm: the learner of this configuration. A key that only
            sections of learners have is that of its section.
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
            f"({keys}, ...)"
        )


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else f"<{type(value).__name__}>"


def _whole_key(name: str, model: type[BaseModel], algorithm: Any) -> str:
    known = keys_of(model)
    same = [key for key in known if key.rpartition(".")[2] == name]
    if len(same) == 1:
        return same[0]
    own = f"{algorithm}.{name}"
    if own in same and all(key.rpartition(".")[0] in SECTIONS for key in same):
        return own
    if same:
        *most, last = (key.rpartition(".")[0] for key in same)
        section = most[0]
        raise ConfigError(
            f"{name}=...: several sections have the key '{name}': {', '.join(most)} and {last}; name "
            f"one, e.g. {section}={{'{name}': ...}} or set=['{section}.{name}=...']"
        )
    own = accepted(known, algorithm)
    found = foreign(name, algorithm) if algorithm in SECTIONS else None
    if found in own:
        raise ConfigError(
            f"{name}=...: unknown key '{name}'; did you mean '{found.rpartition('.')[2]}' ({found}: "
            f"{described(found, model)})?"
        )
    names = list(dict.fromkeys(key.rpartition(".")[2] for key in own))
    near = difflib.get_close_matches(name, names, n=1)
    if not near:
        raise ConfigError(
            f"{name}=...: unknown key '{name}'; `jaxtrade config keys` lists the keys"
        )
    where = [key for key in own if key.rpartition(".")[2] == near[0]]
    raise ConfigError(
        f"{name}=...: unknown key '{name}'; did you mean '{near[0]}' ({' or '.join(where)})?"
    )
