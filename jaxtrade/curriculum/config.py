"""Typed configuration of a curriculum.

It has keys for every phase, then the phases in order, each with its keys and gate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from jaxtrade.config import (
    RunConfig,
    apply_overrides,
    config_path,
    digest_of,
    make_config,
    name_config,
    origins_of,
    read_values,
    validate,
)
from jaxtrade.config.base import FromZero, NotNegative, Section
from jaxtrade.config.faults import migrate
from jaxtrade.config.learners import SECTIONS
from jaxtrade.config.load import locate, module_names
from jaxtrade.config.yaml12 import dump_yaml
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError
from jaxtrade.runs import files

CURRICULUM = "curriculum.yaml"  # in the folder of a curriculum
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


class GateConfig(Section, frozen=True):
    """Conditions that a phase's greedy policy must meet before the next phase begins.

    They are met on the validation sessions.
    """

    min_reward: float | None = None
    """mean reward per session, account rules on; None: not asked"""
    min_trades: FromZero = 1
    """round turns over all validation sessions"""
    max_breach_share: float | None = Field(default=None, ge=0, le=1)
    """accounts that ended at a loss limit over all accounts opened; None: not asked"""
    min_kl: NotNegative = 0.0
    """the mean KL of the run's last tenth must be above it; of a Q-learner the mean change of Q"""


class PhaseConfig(Section, frozen=True):
    """One phase. run: sections of a run's configuration; they override those of `base`."""

    run: dict[str, Any] = Field(default_factory=dict)
    gate: GateConfig = GateConfig()


class CurriculumConfig(Section, frozen=True):
    """The file of a curriculum.

    base: sections for every phase. phases: name -> phase, in order. enforce_gates: whether the
        curriculum stops at a
    failed gate; if not, the gate is only reported.
    """

    base: dict[str, Any] = Field(default_factory=dict)
    phases: dict[str, PhaseConfig]
    enforce_gates: bool = True


def _deep(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Override `base` by the keys of `over`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = (
            _deep(inner, value)
            if isinstance(inner, Mapping) and isinstance(value, Mapping)
            else value
        )
    return merged


class Phase(Section, frozen=True):
    """A phase with its complete configuration."""

    name: str
    config: RunConfig
    gate: GateConfig


class Curriculum(Section, frozen=True):
    """The phases in order, each with its complete configuration."""

    phases: tuple[Phase, ...]
    enforce_gates: bool

    def digest(self) -> str:
        """Compute the sha256 of the resolved curriculum (hex)."""
        return digest_of(self.model_dump(mode="json"))


Resolve = Callable[
    [Mapping[str, Any], str], RunConfig
]  # (sections, name for messages) -> a run's configuration


def load_curriculum(
    name: str, overrides: Sequence[str], base: Sequence[str], resolve: Resolve
) -> Curriculum:
    """Read a curriculum file.

    Args:
        name: a file, or the name of a shipped one.
        overrides: `phases.NAME.run.section.key=value`, `phases.NAME.gate.key=value` or
            `enforce_gates=...`; or `section.key=value` for every phase.
        base: `section.key=value` for every phase. All `overrides` take precedence; of these the
            last one wins.
        resolve: makes a phase's configuration from its sections.

    Raises:
        ConfigError: as `load_config`; also if there are no phases, or if a gate needs validation
            sessions and there are none. All faults of the file and its phases are reported at once.
    """
    path = config_path(name)
    values = locate(read_values(path), path.parent)
    return _resolve_values(name_config(path), name, values, overrides, base, resolve)


def _resolve_values(
    file: str,
    name: str,
    values: Mapping[str, Any],
    overrides: Sequence[str],
    base: Sequence[str],
    resolve: Resolve,
) -> Curriculum:
    """Resolve the curriculum that the `values` of a file describe, as `load_curriculum`.

    file: its name for messages.
    """
    if "phases" not in values:
        raise ConfigError(
            f"{file}: no 'phases'; this is no curriculum (for a single run: jaxtrade train {name})"
        )
    own = [
        text
        for text in overrides
        if text.partition("=")[0].split(".")[0] in CurriculumConfig.model_fields
    ]
    faults, phases = list[tuple[str, str]](), list[Phase]()
    values = apply_overrides(values, own)
    try:
        raw = validate(CurriculumConfig, values, file, origins_of(own))
    except ConfigFaultsError as error:  # the phases that can be read are checked too
        faults += error.faults
        raw = _readable(error.rest)
    if not faults and not raw.phases:
        raise ConfigError(f"{file}: 'phases' is empty; name at least one")
    for label, phase in raw.phases.items():
        where = f"{file}, phase {label}"
        try:
            given = [*base, *_of_phase(label, overrides)]
            config = resolve(apply_overrides(_deep(raw.base, phase.run), given), where)
            faults += [(where, fault) for fault in _phase_faults(label, config)]
            phases.append(Phase(name=label, config=config, gate=phase.gate))
        except ConfigFaultsError as error:
            faults += [(place or where, what) for place, what in error.faults]
        except (ConfigError, DataError) as error:
            faults.append((where, str(error).removeprefix(f"{where}: ")))
    if faults:
        raise ConfigFaultsError(
            _together(faults, [f"{file}, phase {label}" for label in raw.phases], file)
        )
    return Curriculum(phases=tuple(phases), enforce_gates=raw.enforce_gates)


def _readable(values: Mapping[str, Any]) -> CurriculumConfig:
    """Build a curriculum of the values that have no fault of their own.

    It has no phases if they make none.
    """
    try:
        return CurriculumConfig.model_validate(dict(values))
    except ValidationError:
        return CurriculumConfig(
            phases={}
        )  # the faults that were found first are reported; these follow from them


def _phase_faults(label: str, config: RunConfig) -> Iterator[str]:
    """Yield what a curriculum does not allow in a phase that could be a run."""
    if not _NAME.fullmatch(label):
        yield "a phase's name is lower-case letters, digits and '_', at most 31"
    if config.sweep.on:
        yield "sweep: a curriculum trains one policy at a time; sweep a single run"
    elif config.agents != 1:
        yield (
            f"train.num_seeds={config.train.num_seeds}: a curriculum trains one policy at a time; start one per "
            "seed"
        )
    if config.algorithm not in SECTIONS:
        yield (
            f"algorithm={config.algorithm}: this learner does not carry its learning into the next phase; set "
            f"algorithm to one of {', '.join(SECTIONS)}"
        )
    if len(config.data.markets) > 1:
        yield "data.markets: a curriculum trains on one symbol; set data.market instead, and data.markets=[]"
    if why := config.split.without_validation:
        yield f"its gate cannot be evaluated: {why}; hold out at least one session"


def _together(
    faults: Sequence[tuple[str, str]], phases: Sequence[str], file: str
) -> list[tuple[str, str]]:
    """Merge the faults: one that all of several phases share is named once."""
    shared = {
        what
        for where, what in faults
        if len(phases) > 1 and all((phase, what) in faults for phase in phases)
    }
    return [
        (f"{file}, every phase" if what in shared and where in phases else where, what)
        for where, what in faults
    ]


def _of_phase(label: str, overrides: Sequence[str]) -> list[str]:
    """List the overrides of one phase's run, in order, as `section.key=value`.

    They are those of every phase, and its own.
    """
    own = f"phases.{label}.run."
    return [
        text.removeprefix(own)
        for text in overrides
        if text.startswith(own)
        or text.partition("=")[0].split(".")[0] not in CurriculumConfig.model_fields
    ]


def dump_curriculum(curriculum: Curriculum) -> str:
    """Write every key of every phase as YAML, which `load_curriculum` can read."""
    return dump_yaml(
        {
            "enforce_gates": curriculum.enforce_gates,
            "base": {},
            "phases": {
                phase.name: {
                    "run": phase.config.model_dump(mode="json"),
                    "gate": phase.gate.model_dump(mode="json"),
                }
                for phase in curriculum.phases
            },
        }
    )


def read_curriculum(folder: Path) -> Curriculum:
    """Read the curriculum of a folder that this or an earlier `jaxtrade curriculum` created.

    Raises ConfigError if it is not such a folder.
    """
    path = folder / CURRICULUM
    if not path.is_file():
        raise ConfigError(
            f"{folder} (--resume): no {CURRICULUM}; expected a folder written by 'jaxtrade curriculum' "
            "(a single run is resumed by jaxtrade train --resume)"
        )

    def make(sections: Mapping[str, Any], where: str) -> RunConfig:
        files.require_trusted(module_names(sections), folder)
        return make_config(migrate(sections), where, stored=True)

    return _resolve_values(str(path), str(path), read_values(path, exact=True), (), (), make)


def written_digest(folder: Path) -> str:
    """Compute the digest of what the folder's file says.

    It is equal to `Curriculum.digest` of the version that wrote the file; keys that were renamed or
    added later do not change it.
    """
    values = read_values(folder / CURRICULUM, exact=True)
    # A key that was taken out gives another digest, which says that the file has changed.
    return digest_of(
        {
            "enforce_gates": values.get("enforce_gates"),
            "phases": [
                {"name": name, "config": phase.get("run"), "gate": phase.get("gate")}
                for name, phase in values["phases"].items()
            ],
        }
    )
