"""The last lines of a command: where its results are, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from jaxtrade.evaluation.report import EvaluationResult


def ending(path: Path, folder: Path, results: Mapping[int, EvaluationResult]) -> Iterator[str]:
    """Lines below the table: the run's folder, its pictures, and two commands to go on with.

    Args:
        path: the run's folder. folder: that of the evaluation. results: of the evaluation, by seed.
    """
    yield f"run       {path}"
    found = [each for each in (path / "training.png", *sorted(folder.rglob("*.png"))) if each.is_file()]
    for label, picture in zip(["pictures", *[""] * len(found)], found, strict=False):
        yield f"{label:<9} {picture}"
    first = next(iter(results.values()))
    run, seed = shlex.quote(str(path)), "" if len(results) == 1 else f" --seed {next(iter(results))}"
    commands = {f"jaxtrade evaluate {run}{seed} --cost-grid": "with other costs",
                f"jaxtrade replay {run}{seed} --session {first.settings['last_session']}": "one session, bar by bar"}
    widest = max(len(command) for command in commands)
    for label, (command, why) in zip(("next", ""), commands.items(), strict=True):
        yield f"{label:<9} {command:<{widest}}  # {why}"
