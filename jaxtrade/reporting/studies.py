"""The sections that other commands compute: each from a file of its name in the folder of the
evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.data.nulls.spec import NULL_KINDS
from jaxtrade.evaluation.openings import PREFIX
from jaxtrade.reporting import schema
from jaxtrade.reporting.documents import read_json

NULLS = "nulls"


class Studied(NamedTuple):
    """What a report is about. folder: of the evaluation's files. pooled: the folder of the split,
    where a run with several seeds keeps null markets that pool them; None for a run of one. number:
    of the policy. policy: its sha256, None in an evaluation of an earlier version. agent: the shown
    agent's name. title: of `ReportData`."""

    folder: Path
    pooled: Path | None
    number: int
    policy: str | None
    agent: str
    title: Mapping[str, Any]


class Found(NamedTuple):
    """sections: entries of `ReportData`, None where there is no file. labels: what the reader has
    to know of them.
    """

    sections: dict[str, Any]
    labels: list[str]


def optional(of: Studied) -> Found:
    """The sections. One that was made for another policy than the evaluation is left out, and a
    label says so: the run went on since then."""
    names = [name for name in schema.OPTIONAL if name not in ("in_sample", NULLS)]
    found = {name: _read(of.folder / f"{name}.json") for name in names}
    labels = [
        _stale(name, of) for name, each in found.items() if each is not None and _other(each, of)
    ]
    sections: dict[str, Any] = {
        name: None if each is not None and _other(each, of) else each
        for name, each in found.items()
    }
    tests, about = _nulls(of)
    first, *others = tests or [None]
    return Found(sections | {NULLS: first, "other_nulls": others}, [*labels, *about])


def _read(path: Path) -> dict[str, Any] | None:
    """A document without what it says of the trial log: the page has the count of now."""
    if not path.is_file():
        return None
    document = read_json(path)
    if "notes" in document:
        document["notes"] = [line for line in document["notes"] if not line.startswith(PREFIX)]
    return document


def _other(document: Mapping[str, Any], of: Studied) -> bool:
    """Whether a document is about another policy. One of an earlier version does not say of which
    it is.
    """
    found = document.get("policy_sha256")
    if isinstance(found, dict):  # of several policies, by their numbers
        found = found.get(str(of.number))
    return found is not None and of.policy is not None and found != of.policy


def _stale(section: str, of: Studied) -> str:
    return (
        f"left out: {section.replace('_', ' ')} was made for an earlier policy of this run; make it again: "
        f"{schema.command(section, of.title)}"
    )


def _nulls(of: Studied) -> tuple[list[dict[str, Any]], list[str]]:
    """The results of the shown agent against each kind of null market, and what the reader has to
    know of them.
    """
    files = [f"{NULLS}_{kind}.json" for kind in NULL_KINDS]
    if not any((folder / name).is_file() for folder in _folders(of) for name in files):
        files = [
            f"{NULLS}.json"
        ]  # of an earlier version, which kept the kind that was asked for last
    found, labels, stale = [], [], False
    for name in files:
        document = next(
            (each for folder in _folders(of) if (each := _read(folder / name)) is not None), None
        )
        if document is None or of.agent not in document["results"]:
            continue
        if _other(document, of):
            stale = True
            continue
        found.append(document["results"][of.agent])
        policies = document.get("policy_sha256", {})
        pooled = f" of {len(policies)} policies together" if len(policies) > 1 else ""
        labels.append(
            f"null markets ({found[-1]['kind']}): the result{pooled} without training anew; p is about these "
            "sessions alone, not about the way the policy was trained"
        )
    return found, [*([_stale(NULLS, of)] if stale else []), *labels]


def _folders(of: Studied) -> list[Path]:
    return [of.folder] if of.pooled is None else [of.pooled, of.folder]
