"""The agents of a run before JAX is loaded.

Which of them share a program, the file `agents.json`, and what a resumed run may change.

Agents share a program if they differ only in numbers that the program takes as arguments: the
tunable floats of the learner (`config.learners.TUNABLE`), and the keys of the sections `costs`,
`account`, `brackets` and `reward`, which become numbers of the environment's parameters. Any other
key is static: it decides the program.
"""

from __future__ import annotations

import enum
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxtrade.config import RunConfig, digest_of, make_config, read_values
from jaxtrade.config.learners import TUNABLE
from jaxtrade.config.load import SweepAgent, agents_of, changed_config, config_of, module_names
from jaxtrade.config.sweep import FOLLOWS, SweepConfig, examples_of, flat, range_of
from jaxtrade.env.reward_presets import resolve_reward
from jaxtrade.errors import ConfigError
from jaxtrade.runs import files, rundir
from jaxtrade.storage import digests
from jaxtrade.text import NOTE, several

# The folder of a sweep that needs several programs, or of a search.

SWEEP = "sweep.json"  # marks the folder of such a sweep
FORMAT = 1
BEST = "best"  # the folder of a search's best setting, trained as an ordinary run


def folder_of(path: Path, number: int) -> Path:
    """Return the folder of program `number` in that of its sweep."""
    return path / f"group_{number}"


def is_sweep(path: Path) -> bool:
    """Return whether a folder is that of a sweep of several programs, or of a search."""
    return (path / SWEEP).is_file()


def runs_of(path: Path) -> list[Path]:
    """List the folders of the runs that a sweep or a search trains at the end.

    They may not exist yet.
    """
    found = digests.read_json(path / SWEEP, "restore it, or start the sweep anew")
    return (
        [path / group["folder"] for group in found["groups"]]
        if "groups" in found
        else [path / BEST]
    )


def read_sweep(path: Path) -> RunConfig:
    """Read the configuration of a sweep of several programs.

    Raises ConfigError if its folder is damaged.
    """
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: a sweep whose config.yaml is missing; start it anew")
    values = read_values(path / "config.yaml", exact=True)
    files.require_trusted(module_names(values), path)
    return make_config(values, str(path / "config.yaml"), stored=True)


# Checks of a search by Optuna.


def check_search(config: RunConfig) -> None:
    """Check a search before JAX is started.

    Raises ConfigError if Optuna is absent, no session is held out for validation, a key is static,
    or a key has ranges beside other values.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError(
            'sweep.optuna (--optuna): needs Optuna: pip install "jaxtrade[optuna]"; without it, draw '
            "settings at random (--random N)"
        )
    if why := config.split.without_validation:
        raise ConfigError(
            f"sweep.optuna (--optuna): settings are scored on validation sessions, and {why}: hold some "
            "out, e.g. split.validation_sessions=1"
        )
    if config.advisor.on:
        raise ConfigError(
            f"sweep.optuna (--optuna) with advisor.kind={config.advisor.kind}: an advisor answers one "
            "run; set advisor.kind=off"
        )
    for key, values in config.sweep.keys.items():
        if len(values) > 1 and any(range_of(value) is not None for value in values):
            raise ConfigError(
                f"sweep.keys: {key} has a range beside other values: give Optuna one range or a list"
            )
    groups = groups_of(batch_of(config, examples_of(config.sweep)))
    if len(groups) > 1:
        static = ", ".join(dict.fromkeys(key for group in groups for key in group.static))
        raise ConfigError(
            f"sweep.optuna (--optuna): {static} decides what is compiled, and all proposals share one "
            "program: give it one value, or sweep it without sweep.optuna"
        )


def batch_of(config: RunConfig, settings: Sequence[Mapping[str, Any]]) -> RunConfig:
    """Configure one batch: a sweep over its settings."""
    own = SweepConfig(settings=tuple(dict(each) for each in settings))
    return config.model_copy(
        update={"sweep": own, "train": config.train.model_copy(update={"num_seeds": 1})}
    )


AGENTS = "agents.json"
RULES = (
    "costs",
    "account",
    "brackets",
)  # sections whose keys are numbers of the environment's parameters


class SweepGroup(NamedTuple):
    """The agents of a sweep that train as one program.

    config: of a run with these agents alone.
    agents: their indices in the sweep.
    static: what decides their program, key -> value.
    """

    config: RunConfig
    agents: tuple[int, ...]
    static: dict[str, Any]


def static_of(config: RunConfig) -> dict[str, Any]:
    """Return what decides the program of an agent alone, as nested plain values.

    Agents with equal values share a program.
    """
    values = config.model_dump(mode="json", exclude={"sweep", "seed"})
    own = values.get(config.algorithm)
    if config.algorithm in TUNABLE and isinstance(own, dict):
        soft = own.get("tau", 0) > 0  # a target network that moves at every step is another program
        values[config.algorithm] = {
            key: value for key, value in own.items() if key not in TUNABLE[config.algorithm]
        }
        values[config.algorithm] |= {"tau > 0": soft} if "tau" in own else {}
    values["reward"] = sorted(
        resolve_reward(config.reward)
    )  # only these terms are compiled; their weights are numbers
    if (
        not config.advisor.on
    ):  # an advisor, which all agents of a program share, reads the rules of the account
        values = {name: value for name, value in values.items() if name not in RULES}
    return values


def groups_of(config: RunConfig) -> tuple[SweepGroup, ...]:
    """List the programs that a run needs, in the order of their first agents. Most runs need one.

    If all agents of a sweep fit the configuration's own program, its `config` is the configuration
    itself. Raises ConfigError for a setting that is at fault.
    """
    alone = (SweepGroup(config, tuple(range(config.agents)), {}),)
    if not config.lists_agents:
        return alone
    found, statics = dict[str, list[SweepAgent]](), dict[str, dict[str, Any]]()
    for agent in agents_of(config):
        static = static_of(config_of(config, agent))
        digest = digest_of(static)
        statics[digest] = static
        found.setdefault(digest, []).append(agent)
    own = digest_of(static_of(config_of(config, SweepAgent(0, config.seed, 0, {}))))
    if list(found) == [own]:
        return alone
    deciding = _deciding([*statics.values()], agents_of(config))
    return tuple(_group(config, agents, deciding) for agents in found.values())


def _deciding(
    statics: Sequence[Mapping[str, Any]], agents: Sequence[SweepAgent]
) -> tuple[str, ...]:
    """Find the keys of the settings that differ between the programs."""
    every = [dict(flat(each)) for each in statics]
    paths = dict.fromkeys(path for each in every for path in each)
    differ = [path for path in paths if len({json.dumps(each.get(path)) for each in every}) > 1]
    keys = dict.fromkeys(key for agent in agents for key in agent.overrides)
    return tuple(
        key for key in keys if any(path.startswith(key) or key.startswith(path) for path in differ)
    )


def _group(config: RunConfig, agents: Sequence[SweepAgent], deciding: Sequence[str]) -> SweepGroup:
    """Make one program: the configuration of its first agent, with the settings of all of them."""
    first = agents[0]
    settings = tuple(dict(agent.overrides) for agent in agents[:: config.sweep.seeds])
    own = config_of(config, first._replace(seed=config.seed)).model_copy(
        update={"sweep": SweepConfig(settings=settings, seeds=config.sweep.seeds)}
    )
    return SweepGroup(
        own,
        tuple(agent.index for agent in agents),
        {key: first.overrides[key] for key in deciding if key in first.overrides},
    )


def note_fixed_ends(config: RunConfig) -> Iterator[str]:
    """Yield a note on each schedule whose start the settings of a sweep change, but not its end."""
    if not config.sweep.on:
        return
    alone = [config_of(config, agent) for agent in agents_of(config)[:: config.sweep.seeds]]
    learners = [getattr(each, each.algorithm, None) for each in alone]
    for start, end in FOLLOWS.items():
        starts, ends = ({getattr(each, key, None) for each in learners} for key in (start, end))
        if len(starts) > 1 and len(ends) == 1 and None not in starts | ends:
            name = f"{config.algorithm}.{end}"
            yield f"{NOTE}{name} is not swept: it is {ends.pop():g} at the end of every setting"


def announcement(groups: Sequence[SweepGroup]) -> str:
    """Format one line about the programs of a sweep that needs several."""
    sizes = [len(group.agents) for group in groups]
    each = (
        f"{several(sizes[0], 'agent')} each"
        if len(set(sizes)) == 1
        else ", ".join(str(size) for size in sizes) + " agents"
    )
    keys = ", ".join(dict.fromkeys(key for group in groups for key in group.static))
    return (
        f"{len(groups)} programs of {each}, one after the other, because {keys} "
        f"{'are' if ',' in keys else 'is'} static (decides what is compiled)"
    )


def table(config: RunConfig, group: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Return the agents of a run as plain data, one row each.

    group: of a sweep of several programs, the program of each; `number` is then the agent's number
        in that program.
    """
    rows = [agent._asdict() | {"overrides": dict(agent.overrides)} for agent in agents_of(config)]
    if group is None:
        return rows
    return [
        row | {"group": own, "number": list(group[:i]).count(own)}
        for i, (row, own) in enumerate(zip(rows, group, strict=True))
    ]


def write_agents(path: Path, config: RunConfig, group: Sequence[int] | None = None) -> None:
    """Write `agents.json` into the folder of a run or of a sweep of several programs."""
    rundir.write_json(
        path / AGENTS,
        {
            "format": 1,
            "seeds": config.sweep.seeds if config.sweep.on else config.agents,
            "agents": table(config, group),
        },
    )


# What a resumed run may change: the limit of its time, and the devices that it trains on.
#
# `train --auto-resume` gives the whole configuration again each time, so here it is compared with
# the run's own.

# Another number of devices changes bits only with parallel.reduce=psum, where the last digits
# depend on it.
FREE = ("control.wall_clock", "parallel.devices")
_ABSENT = "nothing"
# Keys that a run fills in by itself, and the values for which it does.
FOUND = {
    "advisor.options.model": (_ABSENT, None),
    "network.adapter": (_ABSENT, None, 0),
    "split.validation_sessions": (None,),
    "split.test_sessions": (None,),
    "split.embargo_sessions": (None,),
    "control.evaluate_every": (None,),
    "control.keep": (None,),
}


class FolderChoice(enum.StrEnum):
    """What `--auto-resume` does with a run folder."""

    NEW = "new"
    CONTINUE = "continue"
    DONE = "done"


def how_to_start(path: Path) -> FolderChoice:
    """Return whether the folder holds no run, one to go on with, or a finished one.

    A run that its limit of time has ended (`control.wall_clock`) has a summary too, and goes on. A
    sweep has finished when all its runs have.
    """
    if is_sweep(path):
        return (
            FolderChoice.DONE
            if all(how_to_start(run) is FolderChoice.DONE for run in runs_of(path))
            else FolderChoice.CONTINUE
        )
    if not all((path / name).is_file() for name in ("config.yaml", "manifest.json")):
        return FolderChoice.NEW
    if not (path / rundir.SUMMARY).is_file():
        return FolderChoice.CONTINUE
    reason = digests.read_json(path / rundir.SUMMARY).get("stop_reason")
    return FolderChoice.CONTINUE if str(reason).startswith(FREE[0]) else FolderChoice.DONE


def require_own(asked: RunConfig, path: Path) -> None:
    """Check that a configuration is that of the run at `path`, except for `FREE`.

    Raises ConfigError, which names every key that differs with both values.
    """
    own = read_sweep(path) if is_sweep(path) else rundir.read_run(path)[0]
    if differ := [
        f"{key}: {_format_value(mine)}, the run has {_format_value(its)}"
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
    """Yield (key, asked value, the run's value) of every key in which two configurations differ.

    Passed over are `FREE`, a number of environments that was `auto`, what a run fills in by itself
    (`FOUND`), and files that are the same file by another path.
    """
    mine, its = (dict(flat(config.model_dump(mode="json"))) for config in (asked, own))
    same = {
        key
        for key, path in files.list_files(asked).items()
        if (other := files.list_files(own).get(key)) is not None
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


def _format_value(value: Any) -> str:
    return "none" if value is None else str(value)


def changes_bits(overrides: Sequence[str]) -> list[str]:
    """List the overrides `a.b=value` that a resumed run refuses."""
    return [override for override in overrides if override.partition("=")[0].strip() not in FREE]


def resumed_config(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Apply the overrides to the configuration of a resumed run.

    Raises ConfigError for another key than those of `FREE`, and for a value that is wrong.
    """
    if refused := changes_bits(overrides):
        raise ConfigError(
            f"{', '.join(refused)}: a resumed run keeps its configuration, except {', '.join(FREE)}; for "
            "other keys, begin a new run from this one"
        )
    return changed_config(config, overrides, stored=True) if overrides else config
