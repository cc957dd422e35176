"""The last lines of a command: where its results are, and what to do next."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxtrade.config import RunConfig
from jaxtrade.config.allocate import TASK
from jaxtrade.evaluation.seeds import Results, SetResult
from jaxtrade.runs import rundir
from jaxtrade.training.population import Stack


def ending(
    path: Path, folder: Path, results: Results, config: RunConfig, advisor: Sequence[str] = ()
) -> Iterator[str]:
    """Lines below the table: the run's folder, its pictures, and two commands to go on with.

    The commands work as printed: they have what this evaluation needed, and no more.

    Args:
        path: the run's folder. folder: that of the evaluation. results: of the evaluation, by the
            agents' numbers.
        config: of the run, with the paths at which its files were read.
        advisor: the words that chose another advisor than the run's own.
    Raises ConfigError if `path` is not a run's folder.
    """
    if config.env.task == TASK:
        yield f"run       {path}"
        yield f"fills     {folder / 'trades.csv'}"
        yield f"equity    {folder / 'equity.csv'}"
        return
    yield f"run       {path}"
    own = (path / "training.png", path / "advice.png")
    found = [each for each in (*own, *sorted(folder.rglob("*.png"))) if each.is_file()]
    for label, picture in zip(["pictures", *[""] * len(found)], found, strict=False):
        yield f"{label:<9} {picture}"
    number, first = next(iter(results.items()))
    split = first.provenance["split"]
    run = [str(path), *Stack.of_run(config).flag(number), *_data(path, config)]
    grid = [*run, *(["--split", split] if split != "test" else []), *advisor, "--cost-grid"]
    replay = [*run, "--session", first.settings["last_session"]]
    if isinstance(first, SetResult):
        symbol = next(iter(first.symbols))
        replay = [
            *run,
            "--session",
            first.symbols[symbol].settings["last_session"],
            "--symbol",
            symbol,
        ]
    commands = {
        quoted([*program(), "evaluate", *grid]): "with other costs",
        quoted([*program(), "replay", *replay]): "one session, bar by bar",
    }
    widest = max(len(command) for command in commands)
    for label, (command, why) in zip(("next", ""), commands.items(), strict=True):
        yield f"{label:<9} {command:<{widest}}  # {why}"


def _data(path: Path, config: RunConfig) -> list[str]:
    """`--data PLACE`, if the bars were read from another place than the one that the run finds by
    itself.
    """
    found = rundir.read_run(path)[0].data
    if found.markets:
        files = [
            each.get("file")
            for each in (
                config.data.per_market.get(found.markets[0], {}),
                found.per_market.get(found.markets[0], {}),
            )
        ]
        return (
            []
            if files[0] is None or files[0] == files[1]
            else ["--data", str(Path(str(files[0])).parent)]
        )
    used, own = config.data.file, found.file
    return [] if used is None or used == own else ["--data", str(used)]


def quoted(words: Sequence[str]) -> str:
    """A command line that this system's shell takes apart into `words` again."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def program() -> list[str]:
    """The words with which this command was started: `jaxtrade`, or its path if the shell does not
    find that one.

    `jaxtrade` for any other program, such as one that calls `jaxtrade.run`.
    """
    started = Path(sys.argv[0])
    if (
        started.name == "__main__.py"
        and started.parent.name == "jaxtrade"
        and "-m" in sys.orig_argv
    ):
        return [*sys.orig_argv[: sys.orig_argv.index("-m")], "-m", "jaxtrade"]
    if started.stem != "jaxtrade":
        return ["jaxtrade"]
    found, own = shutil.which("jaxtrade"), shutil.which(str(started))
    elsewhere = own is not None and (found is None or not os.path.samefile(found, own))
    return [str(started)] if elsewhere else ["jaxtrade"]
