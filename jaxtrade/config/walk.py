"""The section `walk` of a configuration: the folds of `jaxtrade walkforward`, and what must hold
between it and the other sections."""

from __future__ import annotations

from math import comb
from typing import Annotated, Any, Literal

from pydantic import Field

from jaxtrade.config.allocate import TASK
from jaxtrade.config.base import FromOne, Section
from jaxtrade.config.sweep import MOST_AGENTS
from jaxtrade.errors import ConfigError

Mode = Literal["rolling", "anchored", "cpcv"]
FORWARD_EMBARGO = 1  # sessions: `embargo: auto` of folds whose training lies before their test
EMBARGO_SHARE = (
    100  # one session in so many: `embargo: auto` of cpcv (Lopez de Prado 2018, section 7.4.2)
)


class WalkConfig(Section, frozen=True):
    """The folds of `jaxtrade walkforward`, each with training and test sessions of its own.

    The other keys have no effect without `on`, so that one file can serve `train` and
    `walkforward`.
    """

    on: bool = False
    """whether the run is a walk-forward; `jaxtrade walkforward` sets it, and nothing else needs to
    """
    mode: Mode = "rolling"
    """how the sessions become folds: rolling, a training block of fixed length before each test
    block; anchored, all sessions before it; cpcv, every choice of test_groups out of groups blocks
    is tested, and the rest is trained on
    """
    train: FromOne = 60
    """training sessions of a fold: of rolling all, of anchored the least (not of cpcv)"""
    test: FromOne = 10
    """test sessions of a fold (not of cpcv)"""
    embargo: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        default="auto",
        description="sessions left out between training and test, beside those that are purged; auto: "
        f"{FORWARD_EMBARGO}, and of cpcv one in {EMBARGO_SHARE} of all sessions, at least {FORWARD_EMBARGO}",
    )
    groups: int = Field(default=6, ge=2, le=50)
    """of cpcv: blocks of equal length that the sessions form"""
    test_groups: int = Field(default=2, ge=1, le=49)
    """of cpcv: blocks that a fold tests"""
    seeds: int = Field(default=10, ge=1, le=MOST_AGENTS)
    """agents per fold, from seed, seed+1, ...; all folds have the same seeds"""

    def embargo_of(self, sessions: int) -> int:
        """The number of sessions that `embargo` stands for. sessions: of the data."""
        if self.embargo != "auto":
            return self.embargo
        return (
            FORWARD_EMBARGO
            if self.mode != "cpcv"
            else max(FORWARD_EMBARGO, -(-sessions // EMBARGO_SHARE))
        )


def check_walk(config: Any) -> None:
    """What must hold between `walk` and the other sections. Raises ValueError, which pydantic
    expects.

    config: a `RunConfig`, which imports this module.
    """
    walk = config.walk
    if not walk.on:
        return
    if walk.mode == "cpcv":
        if walk.test_groups >= walk.groups:
            raise ValueError(
                f"walk.test_groups={walk.test_groups} tests as many blocks as there are (walk.groups="
                f"{walk.groups}), and none is left for training: lower it"
            )
        if (folds := comb(walk.groups, walk.test_groups)) * walk.seeds > MOST_AGENTS:
            raise ValueError(
                f"walk.groups={walk.groups}, walk.test_groups={walk.test_groups}: {folds:,} folds x "
                f"{walk.seeds} seeds are more than {MOST_AGENTS:,} agents: lower one of them"
            )
    _refuse_agents(config)
    _refuse_rest(config)


def _refuse_agents(config: Any) -> None:
    """Refuse other sections that say which agents there are."""
    if config.train.num_seeds != 1:
        raise ValueError(
            f"train.num_seeds={config.train.num_seeds}: a walk-forward counts its own agents, walk.seeds "
            "(--seeds) in each fold: leave it out"
        )
    for name in ("sweep", "evolve", "shared"):
        if getattr(config, name).on:
            raise ValueError(
                f"{name}: a walk-forward trains the same settings in every fold, each agent in a market "
                f"of its own: leave section {name} out"
            )


def _refuse_rest(config: Any) -> None:
    """Refuse what folds have no meaning for, or what is not built for them."""
    if config.advisor.on:
        raise ValueError(
            f"advisor.kind={config.advisor.kind[:60]}: all agents of a program share one state of advice, "
            "and folds must not learn from each other's days: set advisor.kind=off"
        )
    if config.env.task == TASK:
        raise ValueError(
            f"env.task={TASK}: a walk-forward has one symbol in an account: choose another env.task"
        )
    if len(config.data.markets) > 1:
        raise ValueError(
            f"data.markets names {len(config.data.markets)} symbols, and a walk-forward has one: leave it "
            "empty, and set data.market"
        )
    if config.control.evaluate_every:
        raise ValueError(
            f"control.evaluate_every={config.control.evaluate_every} scores policies on validation "
            "sessions, and the folds of a walk-forward have none: set it to 0"
        )
    if config.control.keep == "best":
        raise ValueError(
            "control.keep=best chooses a policy on validation sessions, and the folds of a walk-forward "
            "have none: set control.keep=last"
        )
    if config.rollout.auto:
        raise ValueError(
            "rollout.num_envs=auto: a walk-forward does not measure it: give a number (--envs)"
        )
    if config.parallel.devices not in ("auto", 1):
        raise ValueError(
            f"parallel.devices={config.parallel.devices}: a walk-forward trains on one device: leave it "
            "out"
        )


def require_no_walk(config: Any) -> None:
    """Refuse a walk-forward where a run of one split is expected. config: a `RunConfig`. Raises
    ConfigError.
    """
    if config.walk.on:
        raise ConfigError(
            "walk.on=true: this is a walk-forward: train it with `jaxtrade walkforward`, continue it "
            "with `jaxtrade walkforward --resume`, and find its results in its folder's "
            "walkforward.json, of which `jaxtrade report` makes a page"
        )
