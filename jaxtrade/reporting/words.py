"""Names and sentences, as the templates of the pages show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxtrade.formatting import name_agent


def reasons(what: str, estimates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say why metrics or intervals are absent.

    There is one line for each reason, with the names that it holds for.
    """
    by_reason: dict[str, list[str]] = {}
    for name, each in estimates.items():
        if each.get("why"):
            by_reason.setdefault(each["why"], []).append(name_agent(name))
    return [f"{what} ({', '.join(names)}): {why}" for why, names in by_reason.items()]


_KINDS = {"sampled": "s1", "flat": "s2", "random": "s3", "buy_hold": "s4", "sma_cross": "s5"}


def kinds(agents: Iterable[str]) -> dict[str, str]:
    """Return agent -> class of its colour. The first agent is the one that the report is about."""
    return {
        name: "s0" if i == 0 else _KINDS.get(name.rstrip("_0123456789"), f"s{1 + (i - 1) % 5}")
        for i, name in enumerate(agents)
    }


def format_key(key: str) -> str:
    """Format a key as words: `daily_loss` -> `daily loss`."""
    return key.replace("_", " ")


def times(number: int) -> str:
    """Count in words: `once`, `twice`, `7 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def ordinal(number: int) -> str:
    """Format an ordinal: `1st`, `2nd`, `11th`, `23rd`."""
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number:,}{ending}"


def capital(text: str) -> str:
    """Capitalise the first letter of a text."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(reason: str) -> str:
    """Format a reason as a sentence of its own: a capital letter and a full stop."""
    return f"{capital(reason)}{'' if reason.endswith('.') else '.'}"


def clock_of(stamp: str) -> str:
    """Return the time of day of an ISO 8601 stamp, in the zone of the exchange.

    It is `09:32`, with seconds if it has any.
    """
    return stamp[11:19].removesuffix(":00")


def flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested facts to (name, value), in the order given."""
    plain = {None: "none", True: "yes", False: "no"}
    for key, value in values.items():
        name = f"{before}{format_key(str(key))}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            yield name, ", ".join(map(str, value)) or "none"
        else:
            yield name, plain[value] if value is None or isinstance(value, bool) else str(value)
