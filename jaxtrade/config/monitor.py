"""The section `monitor` of a configuration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jaxtrade.config.base import Count, Section


class MonitorConfig(Section, frozen=True):
    """Statistics of every finished training episode, in `monitor.csv` and TensorBoard."""

    on: bool = Field(
        default=True,
        description="count drawdown, turnover and Sharpe ratio of each training episode, "
        "and report their means; the policy learns the same either way",
    )
    csv: bool = Field(
        default=True,
        description="write a row for each episode to monitor.csv, which Stable-Baselines3 can read",
    )
    rows: Literal["auto"] | Annotated[Count, Field(ge=1, le=1 << 22)] = Field(
        default="auto",
        description="episodes of one update and agent that monitor.csv has room for; more are counted "
        "(monitor/lost) and miss their rows; auto: rollout.num_envs times an eighth of rollout.num_steps, at least 2",
    )
