"""The base class of all sections, and the types of keys that people write in several ways."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import CoreSchema

from jaxtrade.errors import ConfigError
from jaxtrade.registry import Registry

UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
_COUNT = re.compile(rf"([0-9][0-9_]*(?:\.[0-9]+)?)([{''.join(UNITS)}])", re.IGNORECASE)
AUTO = 0  # the value of a count that is written `auto`: it is measured before it is used
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(rf"([0-9]+(?:\.[0-9]+)?)([{''.join(SECONDS)}])")
MOST_ATRS = 100  # a larger whole number is one of the thousandths that earlier versions used
OLD_ATRS = 1000  # runs of earlier versions hold up to so many


def parse_count(value: Any) -> Any:
    """Parse a count written with a unit: 250k is 250,000 and 1.5M is 1,500,000.

    Anything else is left as it is. Raises ValueError if the count is not whole.
    """
    found = _COUNT.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return value
    number = Decimal(found[1].replace("_", "")) * UNITS[found[2].lower()]
    if number % 1:
        raise ValueError(f"{number:,f} is not a whole number")
    return int(number)


def accept_list(item: Callable[[str], Any]) -> BeforeValidator:
    """Make a validator that also takes a list written without brackets.

    Such a list is `256,256`, or `256` for a list of one.
    item: what makes an item of its text.
    """

    def split(value: Any) -> Any:
        if isinstance(value, str):
            return [item(part.strip()) for part in value.split(",")]
        return [value] if type(value) in (int, float) else value

    return BeforeValidator(split)


def parse_whole(text: str) -> Any:
    """Parse the int that `text` writes, such as 1_024 or 2k; return the text if it writes none."""
    return int(text) if re.fullmatch(r"[0-9][0-9_]*", text) else parse_count(text)


def _auto_count(value: Any) -> Any:
    """Parse `auto` as `AUTO`, and a count as `parse_count` reads it.

    Raises ValueError for a count below 1.
    """
    if value == "auto":
        return AUTO
    count = parse_count(value)
    if type(count) is int and count < 1:
        raise ValueError("expected at least 1, or auto")
    if isinstance(count, str):
        raise ValueError("expected a whole number, or auto")
    return count


def _seconds(value: Any) -> Any:
    """Parse a time written with a unit, `90s`, `15m`, `2h` or `1d`, in seconds.

    Anything else is left as it is. Raises ValueError for other text and for a time that is not
    above 0.
    """
    if isinstance(value, str):
        found = _TIME.fullmatch(value.strip())
        if not found:
            raise ValueError("expected seconds, or a time such as 90s, 15m, 2h or 1d")
        value = float(found[1]) * SECONDS[found[2]]
    if type(value) in (int, float) and not 0 < value < math.inf:
        raise ValueError("expected a time above 0 (null: no limit)")
    return value


def _atrs(value: Any) -> Any:
    """Refuse thousandths of an ATR, and decimals beyond the market's whole thousandths."""
    if type(value) is int and value > MOST_ATRS:
        meant = Decimal(value) / 1000
        hint = f"write {meant.normalize():f}" if meant <= MOST_ATRS else "lower it"
        raise ValueError(
            f"the unit is ATRs (at most {MOST_ATRS}), no longer thousandths of an ATR; {hint}"
        )
    if type(value) is float and OLD_ATRS < value < math.inf:
        raise ValueError(f"expected at most {MOST_ATRS} ATRs")
    if (
        type(value) is float
        and Decimal(repr(value)).is_finite()
        and Decimal(repr(value)) * 1000 % 1
    ):
        raise ValueError(f"at most three decimals; write {value:.3f}")
    return value


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Part = Annotated[float, Field(gt=0, le=1)]
FromOne = Annotated[int, Field(ge=1)]
FromZero = Annotated[int, Field(ge=0)]
Count = Annotated[
    int, BeforeValidator(parse_count)
]  # a number of things; it may be written as 250k or 1M
CountFromOne = Annotated[Count, Field(ge=1)]
AutoCount = Annotated[
    int,
    BeforeValidator(_auto_count),
    PlainSerializer(lambda count: "auto" if count == AUTO else count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]
Seconds = Annotated[
    float | None,
    BeforeValidator(_seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "description": "15m"},
                {"type": "null"},
            ]
        }
    ),
]
Names = Annotated[tuple[str, ...], Field(strict=False), accept_list(str)]
Widths = Annotated[tuple[FromOne, ...], Field(strict=False), accept_list(parse_whole)]
# A multiple of the average true range, in whole thousandths. What people read of its limit is the
# one for new values.
Atrs = Annotated[
    float, Field(ge=0.001, json_schema_extra={"maximum": MOST_ATRS}), BeforeValidator(_atrs)
]


def declare_bounds(default: Any, least: float, most: float | None = None) -> Any:
    """Declare a number with its default, its least value and perhaps its largest."""
    return Field(default=default, ge=least, le=most)


def name_in(registry: Registry[Any]) -> AfterValidator:
    """Make a validator that accepts the names of a registry's parts. It imports none of them."""

    def check(name: str) -> str:
        try:
            return registry.check(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(check)


class Section(BaseModel, frozen=True):
    """A frozen and hashable section.

    It refuses unknown keys, values of another type, NaN and infinity.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        for name, text in read_descriptions(cls).items():
            handler.resolve_ref_schema(schema)["properties"][name]["description"] = text
        return schema

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values of some keys, unchecked.

        Those of a section may be a mapping of some of its keys.
        """
        for name, value in values.items():
            if isinstance(section := getattr(self, name), Section) and isinstance(value, Mapping):
                values[name] = section.replace(**value)
        return self.model_copy(update=values)

    def list_changed(self, *names: str) -> list[str]:
        """List the keys that have another value than the default.

        names: of these keys alone.
        """
        default = type(self)()
        return [
            name
            for name, value in self
            if value != getattr(default, name) and (not names or name in names)
        ]


@functools.cache
def read_descriptions(section: type[BaseModel]) -> dict[str, str]:
    """Read the text below each key in the class.

    Reads the source when it is asked for: pydantic's `use_attribute_docstrings` would do so at each
    start, for 0.1 s.
    """
    [tree] = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    inherited = [read_descriptions(each) for each in section.__bases__ if issubclass(each, Section)]
    own = {
        key.target.id: " ".join(str(text.value.value).split())
        for key, text in itertools.pairwise(tree.body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    return {key: text for each in (*inherited, own) for key, text in each.items()}
