"""What a resumed run may change: the limit of its time, and the devices that it trains on.

`train --auto-resume` gives the whole configuration again each time, so here it is compared with the run's own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.config.load import changed_config
from jaxtrade.errors import ConfigError
from jaxtrade.runs import files, rundir
from jaxtrade.runs.agents import is_sweep, read_sweep, runs_of
from jaxtrade.storage import digests

# Another number of devices changes bits only with parallel.reduce=psum, where the last digits
# depend on it.
FREE = ("control.wall_clock", "parallel.devices")
_ABSENT = "nothing"
# Keys that a run fills in by itself, and the values for which it does.
_CHOSEN = (
    "split.validation_sessions",
    "split.test_sessions",
    "split.embargo_sessions",
    "control.evaluate_every",
    "control.keep",
)
FOUND = {
    "advisor.options.model": (_ABSENT, None),
    "network.adapter": (_ABSENT, None, 0),
} | dict.fromkeys(_CHOSEN, (None,))


class Start(enum.StrEnum):
    """What `--auto-resume` does with a run folder."""

    NEW = "new"
    CONTINUE = "continue"
    DONE = "done"


def how_to_start(path: Path) -> Start:
    """Whether the folder holds no run, one to go on with, or a finished one.

    A run that its limit of time has ended (`control.wall_clock`) has a summary too, and goes on. A
    sweep has finished when all its runs have.
    """
    if is_sweep(path):
        return (
            Start.DONE
            if all(how_to_start(run) is Start.DONE for run in runs_of(path))
            else Start.CONTINUE
        )
    if not all((path / name).is_file() for name in ("config.yaml", "manifest.json")):
        return Start.NEW
    if not (path / rundir.SUMMARY).is_file():
        return Start.CONTINUE
    reason = digests.read_json(path / rundir.SUMMARY).get("stop_reason")
    return Start.CONTINUE if str(reason).startswith(FREE[0]) else Start.DONE


def require_own(asked: RunConfig, path: Path) -> None:
    """Check that a configuration is that of the run at `path`, except for `FREE`.

    Raises ConfigError, which names every key that differs with both values.
    """
    own = read_sweep(path) if is_sweep(path) else rundir.read_run(path)[0]
    if differ := [
        f"{key}: {_shown(mine)}, the run has {_shown(its)}"
        for key, mine, its in differing(asked, own)
    ]:
        raise ConfigError(
            "\n".join(
                [
                    f"{path} (--auto-resume): holds a run of another configuration; give the same one "
                    "again, or choose another --run-dir",
                    *(f"  {line}" for line in differ),
                ]
            )
        )


def differing(asked: RunConfig, own: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """(key, value asked for, value of the run) of every key in which two configurations differ.

    Passed over are `FREE`, a number of environments that was `auto`, what a run fills in by itself
    (`FOUND`), and files that are the same file by another path.
    """
    mine, its = (dict(_flat("", config.model_dump(mode="json"))) for config in (asked, own))
    same = {
        key
        for key, path in files.named(asked).items()
        if (other := files.named(own).get(key)) is not None
        and Path(path).resolve() == Path(other).resolve()
    }
    for key in sorted(mine.keys() | its.keys()):
        value, other = mine.get(key, _ABSENT), its.get(key, _ABSENT)
        filled_in = value in FOUND.get(key, ())
        if (
            value != other
            and key not in FREE
            and key not in same
            and not filled_in
            and not (key == "rollout.num_envs" and value == "auto")
        ):
            yield key, value, other


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(f"{prefix}{name}.", value)
        elif value != {}:
            yield f"{prefix}{name}", value


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def changes_bits(overrides: Sequence[str]) -> list[str]:
    """The overrides `a.b=value` that a resumed run refuses."""
    return [override for override in overrides if override.partition("=")[0].strip() not in FREE]


def resumed_config(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The configuration of a resumed run, with the overrides.

    Raises ConfigError for another key than those of `FREE`, and for a value that is wrong.
    """
    if refused := changes_bits(overrides):
        raise ConfigError(
            f"{', '.join(refused)}: a resumed run keeps its configuration, except {', '.join(FREE)}; for "
            "other keys, begin a new run from this one"
        )
    return changed_config(config, overrides, stored=True) if overrides else config
