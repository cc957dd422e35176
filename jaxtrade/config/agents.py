"""The agents of a run: the seed and the settings of each. Imports no heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtrade.config.load import changed_config
from jaxtrade.config.run import RunConfig
from jaxtrade.config.sweep import SweepConfig, settings_of
from jaxtrade.errors import ConfigError


class Agent(NamedTuple):
    """One agent of a run. index: its place in the run. setting: the number of its setting.
    overrides: key -> value.
    """

    index: int
    seed: int
    setting: int
    overrides: Mapping[str, Any]

    @property
    def text(self) -> str:
        """What the agent has of its own, for people: "ppo.learning_rate=0.001, seed 3"."""
        return ", ".join(
            [
                *(f"{key}={setting_text(value)}" for key, value in self.overrides.items()),
                f"seed {self.seed}",
            ]
        )


def setting_text(value: Any) -> str:
    """A value of a setting in a table or a message."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def agents_of(config: RunConfig) -> tuple[Agent, ...]:
    """The agents of a run, in the order of their indices: all seeds of the first setting, then of
    the second, ...

    Agent i of a sweep has the seed `config.seed + i mod sweep.seeds`, so settings are compared with
    the same random numbers. Without a sweep agent i has the seed `config.seed + i`.
    """
    seeds = config.sweep.seeds if config.sweep.on else config.train.num_seeds
    settings = settings_of(config.sweep, config.seed)
    return tuple(
        Agent(number * seeds + i, config.seed + i, number, setting)
        for number, setting in enumerate(settings)
        for i in range(seeds)
    )


def config_of(config: RunConfig, agent: Agent) -> RunConfig:
    """The configuration of an agent alone. Raises ConfigError for a key or a value that does not
    exist.
    """
    alone = config.model_copy(
        update={
            "seed": agent.seed,
            "sweep": SweepConfig(),
            "train": config.train.model_copy(update={"num_seeds": 1}),
        }
    )
    if not agent.overrides:
        return alone
    try:
        return changed_config(alone, agent.overrides)
    except ConfigError as error:
        raise ConfigError(
            f"sweep, setting {agent.setting} ({agent.text}): {str(error).removeprefix('set: ')}"
        ) from None
