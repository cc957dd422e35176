"""The report of a transfer: what became of every number of the source run's arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtrade.errors import ConfigError


class Part(NamedTuple):
    """One array of the source: what became of it, how many of its numbers are in the target, and
    why not all.

    outcome: copied, widened (it has more rows or columns now), dropped (some or all of it found no
        place).
    """

    name: str
    outcome: str
    carried: int
    size: int
    why: str = ""


class Coverage(NamedTuple):
    """What a transfer did. parts: every array of the source. new_slots, new_actions: what the
    source did not have.
    """

    parts: tuple[Part, ...]
    new_slots: tuple[str, ...]
    new_actions: tuple[str, ...]

    @property
    def share(self) -> float:
        """Numbers of the source that are in the target over all of them, 0 to 1."""
        return sum(part.carried for part in self.parts) / max(
            sum(part.size for part in self.parts), 1
        )

    @property
    def complete(self) -> bool:
        """Nothing was dropped."""
        return all(part.carried == part.size for part in self.parts)


def coverage_lines(coverage: Coverage) -> list[str]:
    """The report as text: one line per array of the source, then the share and what is new."""
    width = max(len(part.name) for part in coverage.parts)
    lines = [
        f"{part.name:<{width}}  {part.outcome:<8} {part.carried:>8,} of {part.size:>8,}"
        + (f"  {part.why}" if part.why else "")
        for part in coverage.parts
    ]

    def named(what: str, names: tuple[str, ...]) -> str:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        return f"new {what}: {len(names)}" + (f" ({shown})" if names else "")

    return [
        *lines,
        f"transfer coverage {percent(coverage)}; {named('slots', coverage.new_slots)}; "
        f"{named('actions', coverage.new_actions)}",
    ]


def percent(coverage: Coverage) -> str:
    """ "100 %" only where nothing was dropped."""
    return "100 %" if coverage.complete else f"{min(100 * coverage.share, 99.99):.2f} %"


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """The report for `transfer.json`."""
    return {
        "coverage": coverage.share,
        "complete": coverage.complete,
        "parts": [part._asdict() for part in coverage.parts],
        "new_slots": list(coverage.new_slots),
        "new_actions": list(coverage.new_actions),
    }


def require_complete(coverage: Coverage, allowed: bool) -> None:
    """Raises ConfigError naming what was dropped, unless that is allowed."""
    if coverage.complete or allowed:
        return
    lost = [part for part in coverage.parts if part.carried < part.size]
    first = lost[0]
    raise ConfigError(
        f"transfer coverage {percent(coverage)}: {len(lost)} arrays of the source do not fit the "
        f"target, first {first.name} ({first.carried} of {first.size} numbers; {first.why}); keep "
        "the task, network and advisor.fusion that they belong to, or set transfer.allow_dropped=true"
    )
