"""Checks of a search by Optuna, before JAX is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.config.sweep import SweepConfig, examples_of, range_of
from jaxtrade.errors import ConfigError
from jaxtrade.runs.agents import groups_of


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
    """The configuration of one batch: a sweep over its settings."""
    own = SweepConfig(settings=tuple(dict(each) for each in settings))
    return config.model_copy(
        update={"sweep": own, "train": config.train.model_copy(update={"num_seeds": 1})}
    )
