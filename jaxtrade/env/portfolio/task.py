"""The row of `allocate` in the table of tasks. A task has one symbol; this one has an environment
of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from jaxtrade.data.features.schema import DUAL_FEATURES
from jaxtrade.env.tasks.base import Task
from jaxtrade.errors import ConfigError


def _refuse() -> NoReturn:
    raise ConfigError(
        "env.task=allocate holds several symbols: its environment is "
        "jaxtrade.env.portfolio.dynamics.PortfolioEnv, not TradingEnv; jaxtrade.make_env makes it "
        "from a whole configuration: make_env(config), not make_env(config.env)"
    )


@dataclass(frozen=True)
class AllocateTask(Task):
    """Stands for `allocate` where a task is named. Every use as a task of one symbol raises
    ConfigError.
    """

    context: tuple[str, ...] = DUAL_FEATURES

    def actions(self, config: Any) -> tuple[str, ...]:
        _refuse()

    def sides(self, config: Any) -> tuple[int | None, ...]:
        _refuse()

    def mask(self, config: Any, state: Any, params: Any) -> Any:
        _refuse()

    def decode(self, config: Any, action: Any, state: Any, params: Any) -> Any:
        _refuse()

    def slots(self, config: Any) -> tuple[Any, ...]:
        _refuse()

    def observe(self, config: Any, ref: Any, params: Any) -> tuple[Any, ...]:
        _refuse()


ALLOCATE = AllocateTask()
