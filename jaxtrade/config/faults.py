"""What is wrong with the values of a configuration: pydantic's findings as lines for people, each
with its key.
"""

from __future__ import annotations

import copy
import re
import reprlib
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jaxtrade.config.legacy import MOVED
from jaxtrade.config.meant import hint

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


def _keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a model. `*` stands for a name that the user chooses, as in
    `phases.*.gate.min_trades`.
    """
    keys = []
    for name, field in model.model_fields.items():
        inner, named = field.annotation, get_args(field.annotation)[1:]
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _keys(inner, f"{prefix}{name}.")
        elif named and isinstance(named[0], type) and issubclass(named[0], BaseModel):
            keys += _keys(named[0], f"{prefix}{name}.*.")
        else:
            keys.append(prefix + name)
    return keys


def _chosen(known: Iterable[str], key: str) -> list[str]:
    """The known keys, with the names that `key` has where they have a `*`."""
    parts = key.split(".")

    def filled(own: str) -> str:
        return ".".join(
            parts[i] if part == "*" and i < len(parts) else part
            for i, part in enumerate(own.split("."))
        )

    return [filled(own) for own in known]


def _location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The path of a fault's value, without the member of a union."""
    member = len(location) > 2 and MEMBER.fullmatch(str(location[-1]))
    return location[:-1] if member else location


def _unknown(
    item: ErrorDetails, key: str, known: list[str], model: type[BaseModel], algorithm: Any
) -> tuple[str, str]:
    """(key, line) of an unknown key. algorithm: as in `faults_of`."""
    if isinstance(item["input"], Mapping) and item["input"] and key.isidentifier():
        key = (
            f"{key}.{next(iter(item['input']))}"  # the whole section is unknown: name its first key
        )
    if key in MOVED:
        return key, f"unknown key '{key}': it is {MOVED[key]} now"
    if key in NO_KEYS:
        return key, f"unknown key '{key}': {NO_KEYS[key]}"
    known, section = _chosen(known, key), key.rpartition(".")[0]
    said = hint(key, known, algorithm, model)
    if "did you mean" in said:
        return key, f"unknown key '{key}'{said}"
    section = (
        algorithm if said else section
    )  # the keys of a learner that is not chosen would be refused
    siblings = [k for k in known if section and k.rpartition(".")[0] == section] or list(
        model.model_fields
    )
    return key, f"unknown key '{key}'{said}; expected one of: {', '.join(siblings)}"


def _said(item: ErrorDetails) -> str:
    """What is wrong with a value, without pydantic's words and the names of classes."""
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
    """(key, start of the line) of a fault of a value. A rule about several keys names them
    itself.
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
    """(key, one line about it) of every fault. The key of a rule about several keys is that of
    their section, or "".

    algorithm: the chosen learner of a run's configuration, whose keys are suggested; None for other
        models.
    """
    unknown: list[tuple[str, str]] = []
    others: dict[tuple[str, str], list[str]] = {}
    known, items = _keys(model), error.errors()
    for item in items:
        key = ".".join(str(part) for part in _location(item["loc"]))
        if item["type"] == "extra_forbidden":
            unknown.append(_unknown(item, key, known, model, algorithm))
            continue
        key, where = _place(item, key)
        others.setdefault((key, where), []).append(_said(item))
    return unknown + [(key, where + "; or: ".join(what)) for (key, where), what in others.items()]


def without(values: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """The nested `values` without those that an error complains about."""
    left = copy.deepcopy(dict(values))
    for item in error.errors():
        node: Any = left
        *path, last = _location(item["loc"]) or ("",)
        for part in path:
            node = node.get(part) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return left


def of_bars(path: Path) -> str:
    """What to do with a file of bars that was given as another file."""
    file = shlex.quote(str(path))
    return f"run 'jaxtrade init {file}', which writes a configuration that reads it, or set data.file (--data {file})"


def of_folder(path: Path) -> str:
    """The end of a message about a folder that was given as a file: what to do with it if it is a
    run's.
    """
    if not all((path / name).is_file() for name in ("config.yaml", "manifest.json")):
        return ""
    run = shlex.quote(str(path))
    return f"; it is a run: jaxtrade evaluate {run}, or jaxtrade train --resume {run}"
