"""Convert YAML text to plain values and back, by the rules of YAML 1.2.

No Python objects are constructed.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

from jaxtrade.errors import ConfigError

MOST_DIGITS = 40  # of a whole number; the largest that any key takes has 19


class _Loader(yaml.SafeLoader):
    """A SafeLoader that refuses duplicate keys and reads plain scalars as YAML 1.2 does.

    PyYAML follows YAML 1.1, where `off` is False, 2013-10-07 a date object, 12:30 the number 750
    and 1e-3 a string.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class _Dumper(yaml.SafeDumper):
    """A SafeDumper that also quotes strings that only `_Loader` reads as numbers, as '1e3'."""


_EXPONENT = r"[eE][-+]?[0-9]+"
_DECIMAL = (
    rf"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*(?:{_EXPONENT})?|{_EXPONENT})|\.[0-9]+(?:{_EXPONENT})?)"
)
for _kind, _pattern, _starts in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    ("float", rf"{_DECIMAL}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+0123456789.")),
):
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(
            f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), _starts
        )


def _number(loader: _Loader, node: yaml.ScalarNode) -> float | int:
    """Parse a float, or an int if it is whole. A count may therefore be written as 1e6."""
    value = loader.construct_yaml_float(node)
    return int(value) if value.is_integer() and abs(value) < 10.0**MOST_DIGITS else value


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    digits = len(node.value)
    if digits > MOST_DIGITS:  # Python refuses to read some thousand digits at all
        raise ConfigError(
            f"{node.start_mark.name}, line {node.start_mark.line + 1}: a number of {digits} digits; "
            f"expected at most {MOST_DIGITS}"
        )
    return loader.construct_yaml_int(node)


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        where = f"{key_node.start_mark.name}, line {key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise ConfigError(
                f"{where}: a list or mapping stands where a key is expected; write 'key: value'"
            )
        key = loader.construct_object(key_node, deep=True)
        if key in mapping:
            raise ConfigError(f"{where}: key '{key}' appears twice; keep one")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


class _Exact(_Loader):
    """A loader that keeps whole floats as floats, exactly as the file has them."""


_Exact.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def parse_yaml(text: str, name: str, exact: bool = False) -> Any:
    """Parse YAML text into plain values.

    name: the source, for messages.
    exact: keep whole floats (`1.0`) as floats; by default they become ints.
    Raises ConfigError if the text is not YAML, has a duplicate key or a number of too many digits,
    or is nested too deeply.
    """
    try:
        loader = (_Exact if exact else _Loader)(text)
        loader.name = name
        return loader.get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError(
            f"{name}: nested too deeply; a configuration has sections of 'key: value'"
        ) from None


def dump_yaml(values: Any, flow: bool = False) -> str:
    """Write plain values as YAML text.

    Keys keep their order, and `parse_yaml` reads back equal values.
    flow: on one line, with brackets and braces.
    """
    if flow:
        return yaml.dump(
            values, Dumper=_Dumper, sort_keys=False, default_flow_style=True, width=float("inf")
        )
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)
