"""The advisors of a configuration, each as the configuration of a run with that advisor alone.

Everything that asks an advisor therefore knows one advisor only. A panel is what puts their rows
together: advice of member i about bar b is in row i T + b of the run's table (`advisor.table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jaxtrade.advisor.host.registry import takes
from jaxtrade.config import RunConfig
from jaxtrade.errors import ConfigError

PANEL = "panel"
_NO_MEMBERS = ("none", "off", "replay", PANEL)


def members_of(config: RunConfig) -> tuple[RunConfig, ...]:
    """One configuration per advisor: of a panel its members, else the configuration itself.

    A member has its own options, and those of `advisor.options` that its kind takes.
    Raises ConfigError for a member that is no advisor, or of an unknown kind.
    """
    chosen = config.advisor
    if chosen.kind != PANEL:
        return (config,)
    found = []
    for number, member in enumerate(chosen.panel):
        head = member.kind.partition(":")[0]
        if head in _NO_MEMBERS:
            raise ConfigError(
                f"advisor.panel.{number} = {member.kind}: is no advisor of its own; expected rules, "
                "mock:KIND, recorded:FILE, table:FILE or the URL of a server"
            )
        known = (
            {}
            if head == "table"
            else {
                name: value for name, value in chosen.options.items() if name in takes(member.kind)
            }
        )
        alone = chosen.model_copy(
            update={"kind": member.kind, "options": {**known, **member.options}, "panel": ()}
        )
        found.append(config.model_copy(update={"advisor": alone}))
    return tuple(found)


def snapshots_of(config: RunConfig) -> dict[int, Path]:
    """Number of each advisor whose advice is in a snapshot -> its file. A replay has those of the
    recorded panel.
    """
    chosen, replayed = config.advisor, config.advisor.kind.startswith("replay:")
    kinds = (
        [member.kind for member in chosen.panel]
        if chosen.kind == PANEL or replayed
        else [chosen.kind]
    )
    return {
        i: Path(kind.removeprefix("table:"))
        for i, kind in enumerate(kinds)
        if kind.startswith("table:")
    }


def name_of(config: RunConfig) -> str:
    """The advisor as reports name it: its kind; of a panel, those of its members."""
    kinds = ", ".join(member.kind for member in config.advisor.panel)
    return f"panel [{kinds}]" if config.advisor.kind == PANEL else config.advisor.kind


def identity_of_members(identities: list[Mapping[str, str]]) -> dict[str, str]:
    """The identities of several advisors as one: each name behind its member's number. That of one
    stays as it is.
    """
    if len(identities) == 1:
        return dict(identities[0])
    return {
        f"{i}.{name}": text
        for i, identity in enumerate(identities)
        for name, text in identity.items()
    }
