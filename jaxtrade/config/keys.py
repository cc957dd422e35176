"""Every configuration key with its type, range, default and description, read from the models that
declare it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from jaxtrade.config.faults import sections_of
from jaxtrade.config.run import RunConfig
from jaxtrade.config.yaml12 import dump_yaml, parse_yaml
from jaxtrade.text import pairs

_WORDS = pairs(
    """
    integer  whole number
    number  number
    string  text
    boolean  true or false
    null  null
    """
)
_LIMITS = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "above"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "below"),
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
# pydantic knows no type of these.
_SHAPES = pairs(
    """
    data.roll  off, volume, or a mapping expiry: first trade date
    data.splits  list of {date: YYYY-MM-DD, ratio: NEW:OLD}
    sweep.keys  mapping of key to list of values, or ranges such as log:1e-4..1e-2
    sweep.settings  list of {key: value}
    evolve.keys  mapping of key to [low, high]
    data.per_market  mapping of symbol to keys of the section data
    """
)


class Key(NamedTuple):
    """One key. kind: its type and range in words. default: the value, as plain data. choices: the
    only values that it may have; empty if there are others. examples: of its field: the value of
    an example as YAML, then what this asks for, overrides or keys whose own examples it takes.
    """

    name: str
    kind: str
    default: Any
    description: str
    choices: tuple[Any, ...]
    examples: tuple[str, ...]

    @property
    def section(self) -> str:
        """The section of the key, "" for a key of the top level."""
        return self.name.rpartition(".")[0]


@functools.cache
def all_keys() -> dict[str, Key]:
    """Every key by its dotted name, in the order in which the models declare them."""
    defaults = RunConfig().model_dump(mode="json")
    schema = RunConfig.model_json_schema()
    found = {}
    for name, part, value in _leaves(schema, schema, defaults):
        kind = _SHAPES.get(name) or _kind(part, schema)
        about, examples = part.get("description", ""), tuple(part.get("examples", ()))
        found[name] = Key(name, kind, value, about, _choices(part), examples)
    return found


@functools.cache
def sections() -> dict[str, str]:
    """Every section by its dotted name, with the first paragraph of what its class says of it."""

    def walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
        for name, section in sections_of(model).items():
            first = (section.__doc__ or "").strip().partition("\n\n")[0]
            yield prefix + name, " ".join(first.split())
            yield from walk(section, f"{prefix}{name}.")

    return dict(walk(RunConfig, ""))


def written(value: Any) -> str:
    """A plain value as YAML on one line, as it may stand in a file or after `--set KEY=`."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_yaml(value, "value") == value:
        return value  # PyYAML would quote words such as off, which YAML 1.2 reads as text
    return dump_yaml([value], flow=True).strip()[1:-1]


def lookup(values: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """(whether nested `values` hold a dotted key, its value or None)."""
    node: Any = values
    for part in name.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return False, None
        node = node[part]
    return True, node


def _leaves(
    part: Mapping[str, Any],
    schema: Mapping[str, Any],
    defaults: Mapping[str, Any],
    prefix: str = "",
) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """(dotted key, its JSON schema, its default) of every key below a section's schema."""
    for name, child in part["properties"].items():
        inner = _inner(child, schema)
        if "properties" in inner:
            yield from _leaves(inner, schema, defaults[name], f"{prefix}{name}.")
        else:
            yield prefix + name, inner, defaults[name]


def _inner(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or the definition that it refers to."""
    reference = part.get("$ref")
    return schema["$defs"][reference.rpartition("/")[2]] if reference else part


def _choices(part: Mapping[str, Any]) -> tuple[Any, ...]:
    """The values of an enumeration, null among them where it is allowed; nothing for other
    types.
    """
    if "enum" in part:
        return tuple(part["enum"])
    if "const" in part:
        return (part["const"],)
    if part.get("type") == "boolean":
        return (False, True)
    if part.get("type") == "null":
        return (None,)
    members = [_choices(member) for member in part.get("anyOf", ())]
    return (
        tuple(value for member in members for value in member) if members and all(members) else ()
    )


def _kind(part: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    part = _inner(part, schema)
    if part.get("type") != "boolean" and (choices := _choices(part)):
        return " | ".join(written(value) for value in choices)
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_kind(member, schema) for member in part["anyOf"]))
    if part.get("type") == "array":
        return f"list, each item: {_kind(part.get('items', {}), schema)}"
    if "properties" in part:
        return f"text, or keys {', '.join(part['properties'])}"
    if part.get("type") == "object":
        return f"mapping of text to {_kind(part.get('additionalProperties', {}), schema)}"
    limits = [f"{words} {part[name]:,}" for name, words in _LIMITS if name in part]
    return ", ".join([_WORDS.get(part.get("type", ""), "any value"), *limits])
