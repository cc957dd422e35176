"""The section `shared` of a configuration, and what must hold between it and the others."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field, model_validator

from jaxtrade.config.base import Section, Share

TASKS = ("entry", "manage")
PARTS = 1000  # impact is counted in thousandths of a tick, decay in thousandths
MOST_TICKS = (
    2000  # of the offset, so that its product with `PARTS` fits int32, and of temporary impact
)
MOST_CONTRACTS = 65_536  # entries of the table of square roots


class SharedConfig(Section, frozen=True):
    """One market for all agents of a run: their orders move its price."""

    on: bool = Field(default=False, examples=["true", "train.num_seeds=8"])
    """the agents (train.num_seeds) trade in the same worlds, so that each moves the price of all;
    false: each has a market of its own
    """
    kappa: int = Field(default=250, ge=0, le=1_000_000, examples=["500", "shared.on"])
    """thousandths of a tick by which each contract that all agents together buy (net) raises later
    prices, and the open at which it is ordered
    """
    eta: int = Field(default=300, ge=0, le=1_000_000, examples=["1000", "shared.on"])
    """thousandths of a tick, times the square root of the net contracts ordered at an open: what
    that open's fills move besides, against the net side
    """
    decay: Share = Field(default=0.99, examples=["0.95", "shared.on"])
    """share of the price offset that is left after a bar, at most three decimals; 1: impact is
    permanent within a session
    """

    @model_validator(mode="after")
    def _whole(self) -> SharedConfig:
        if round(self.decay * PARTS) / PARTS != self.decay:
            raise ValueError(
                f"shared.decay = {self.decay}: at most three decimals; write "
                f"{round(self.decay * PARTS) / PARTS:g}"
            )
        return self


def most_contracts(config: Any) -> int:
    """The largest net number of contracts that all agents of a run can order in one bar: each turns
    round.
    """
    return 2 * config.env.quantity * config.train.num_seeds


def temporary(eta: int, contracts: int) -> int:
    """Thousandths of a tick: eta * sqrt(contracts), rounded down. Exact, in integers."""
    return math.isqrt(eta * eta * contracts)


def largest_offset(config: Any) -> int:
    """Ticks: a bound of the offset. By parts, a sum of decayed flows is at most kappa times twice
    the largest net position; rounding towards zero in each bar adds less than a tick."""
    return (config.shared.kappa * most_contracts(config) + PARTS + PARTS // 2) // PARTS


def largest_temporary(config: Any) -> int:
    """Ticks: a bound of the temporary impact at an open."""
    return temporary(config.shared.eta, most_contracts(config)) // PARTS + 1


def largest_move(config: Any) -> int:
    """Ticks: the most that impact can add to the profit or loss of a position; 0 without a shared
    market.
    """
    if not config.shared.on:
        return 0
    return 2 * (2 * largest_offset(config) + largest_temporary(config))


def check_shared(config: Any) -> None:
    """What must hold between `shared` and the other sections. Raises ValueError, which pydantic
    expects.

    config: a `RunConfig`, which imports this module.
    """
    shared = config.shared
    if not shared.on:
        changed = [name for name, value in shared if value != getattr(SharedConfig(), name)]
        if changed:
            raise ValueError(
                f"shared.{changed[0]} needs a shared market, and shared.on is false: set shared.on=true, "
                "or leave it out"
            )
        return
    if config.train.num_seeds < 2:
        raise ValueError(
            f"shared.on=true: a market is shared by the agents of a run, and train.num_seeds is "
            f"{config.train.num_seeds}: set train.num_seeds to 2 or more"
        )
    _refuse_others(config)
    _check_sizes(config)


def _refuse_others(config: Any) -> None:
    """Refuse what a shared market has no meaning for."""
    env = config.env
    if env.task not in TASKS:
        raise ValueError(
            f"shared.on=true: env.task is {env.task}; expected one of {', '.join(TASKS)}"
        )
    if len(config.data.markets) > 1:
        raise ValueError(
            f"shared.on=true: the agents trade one symbol, and data.markets names "
            f"{len(config.data.markets)}: leave it empty, and set data.market"
        )
    if config.sweep.on:
        raise ValueError(
            "shared.on=true: the agents of a shared market differ by their seeds alone: leave out the "
            "keys of section sweep (--sweep, --random, --optuna)"
        )
    if config.parallel.devices not in ("auto", 1) or config.parallel.reduce == "strict":
        raise ValueError(
            f"shared.on=true: the agents meet inside the program of one device, and parallel.devices is "
            f"{config.parallel.devices}, parallel.reduce {config.parallel.reduce}: leave both out"
        )
    if config.advisor.on:
        raise ValueError(
            f"shared.on=true: no advisor knows the other agents, and advisor.kind is "
            f"{config.advisor.kind[:60]}: set advisor.kind=off"
        )
    if env.fill != "next_open":
        raise ValueError(
            f"shared.on=true: the orders of all agents meet at the next open, and env.fill is {env.fill}: "
            "set env.fill=next_open"
        )
    if config.stages.forces_starts:
        raise ValueError(
            f"shared.on=true: a forced entry (stages.forced_start={config.stages.forced_start:g}) would "
            "be the same for all agents: set stages.forced_start=0"
        )
    if config.episode.max_steps:
        raise ValueError(
            f"shared.on=true: a world ends with its session, and episode.max_steps is "
            f"{config.episode.max_steps}: set episode.max_steps=0"
        )


def _check_sizes(config: Any) -> None:
    contracts = most_contracts(config)
    sizes = f"train.num_seeds={config.train.num_seeds} x env.quantity={config.env.quantity}"
    if contracts > MOST_CONTRACTS:
        raise ValueError(
            f"shared.on=true: {sizes} may order {contracts:,} contracts at one open, and at most "
            f"{MOST_CONTRACTS:,} are supported: lower one of them"
        )
    for key, ticks in (("kappa", largest_offset(config)), ("eta", largest_temporary(config))):
        if ticks > MOST_TICKS:
            raise ValueError(
                f"shared.{key}={getattr(config.shared, key)}: {sizes} could move the price by {ticks:,} "
                f"ticks, and at most {MOST_TICKS:,} are supported: lower it"
            )
