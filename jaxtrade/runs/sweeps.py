"""A sweep that needs several programs: each trains in turn, as an ordinary run in a folder of the
sweep's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig, dump_config
from jaxtrade.runs import rundir
from jaxtrade.runs.agents import (
    FORMAT,
    SWEEP,
    Group,
    announcement,
    folder_of,
    groups_of,
    write_agents,
)
from jaxtrade.runs.stored import RunResult, SweepResult
from jaxtrade.text import Tell

Begin = Callable[[RunConfig, Path], RunResult]  # trains a new run in a folder
Resume = Callable[[Path], RunResult]


def train_groups(
    config: RunConfig, groups: Sequence[Group], path: Path, begin: Begin, tell: Tell
) -> RunResult:
    """Train the programs of a sweep one after the other, in `path/group_0`, `path/group_1`, ...

    Raises as `runs.train.run`. After an error `--resume` goes on with the program at which it
    stopped.
    """
    of = {index: number for number, group in enumerate(groups) for index in group.agents}

    def fill(new: Path) -> None:
        (new / "config.yaml").write_text(dump_config(config), encoding="utf-8")
        write_agents(new, config, [of[index] for index in range(len(of))])
        rundir.write_json(
            new / SWEEP,
            {
                "format": FORMAT,
                "groups": [
                    {
                        "folder": folder_of(path, number).name,
                        "agents": list(group.agents),
                        "static": group.static,
                    }
                    for number, group in enumerate(groups)
                ],
            },
        )

    rundir.create_folder(path, fill)
    return _each(groups, path, begin, None, tell)


def resume_groups(
    config: RunConfig, path: Path, begin: Begin, resume: Resume, tell: Tell
) -> RunResult:
    """Go on with a sweep of several programs: with those that have begun, then with the others.

    config: of the sweep, as its folder has it. Raises as `runs.train.resume`.
    """
    return _each(groups_of(config), path, begin, resume, tell)


def _each(
    groups: Sequence[Group], path: Path, begin: Begin, resume: Resume | None, tell: Tell
) -> RunResult:
    tell(announcement(groups))
    found = []
    for number, group in enumerate(groups):
        folder = folder_of(path, number)
        tell(f"program {number + 1} of {len(groups)}: {_static(group)}")
        begun = resume is not None and (folder / "manifest.json").is_file()
        found.append(resume(folder) if begun else begin(group.config, folder))  # pyright: ignore[reportOptionalCall]
    return joined(path, groups, found)


def _static(group: Group) -> str:
    return ", ".join(f"{key}={value}" for key, value in group.static.items())


def joined(path: Path, groups: Sequence[Group], found: Sequence[RunResult]) -> SweepResult:
    """The results of all programs as one, by the agents' indices in the sweep."""
    evaluations: dict[int, Any] = {}
    scores: dict[int, float] = {}
    places: dict[int, tuple[Path, int]] = {}
    for group, result in zip(groups, found, strict=True):
        for index, (number, each) in zip(group.agents, result.evaluations.items(), strict=True):
            evaluations[index] = replace(each, provenance=each.provenance | {"agent": index})
            places[index] = (result.path, number)
            if result.scores:
                scores[index] = result.scores[number]
    ordered = dict(sorted(evaluations.items()))
    ranked = tuple(scores[index] for index in ordered) if len(scores) == len(ordered) else ()
    return SweepResult(
        path,
        found[0].training,
        ordered,
        max(result.exit_code for result in found),
        ranked,
        tuple(found),
        places,
    )
