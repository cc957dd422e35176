"""The observation and the actions of a whole configuration, whatever its task.

`observation.make_spec` and `tasks.base.action_names` know the tasks of one symbol; `allocate` also depends on its own
section and on the symbols.
"""

from __future__ import annotations

from jaxtrade.config import EnvConfig, RunConfig
from jaxtrade.config.allocate import TASK, AllocateConfig
from jaxtrade.data.members import symbols_of
from jaxtrade.env import observation
from jaxtrade.env.observation import ObservationSpec
from jaxtrade.env.portfolio import observation as joint
from jaxtrade.env.tasks import base


def spec_of(config: RunConfig) -> ObservationSpec:
    """The slots of the observation."""
    return make_spec(config.env, config.allocate, symbols_of(config))


def actions_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the actions, in the order of their ids."""
    return action_names(config.env, config.allocate, symbols_of(config))


def make_spec(
    env: EnvConfig, allocate: AllocateConfig | None = None, symbols: tuple[str, ...] = ()
) -> ObservationSpec:
    """The slots of the observation. allocate, symbols: needed by that task alone."""
    if env.task != TASK:
        return observation.make_spec(env)
    return joint.make_spec(env, AllocateConfig() if allocate is None else allocate, symbols)


def action_names(
    env: EnvConfig, allocate: AllocateConfig | None = None, symbols: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Names of the actions, in the order of their ids. allocate, symbols: needed by that task
    alone.
    """
    if env.task != TASK:
        return base.action_names(env)
    return joint.action_names(AllocateConfig() if allocate is None else allocate, symbols)
