"""The sections `allocate` and `shared`, and what must hold between them and the others.

`allocate`: several symbols in one account; `shared`: several agents in one market.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from jaxtrade.config.base import FromOne, Section, Widths, declare_bounds
from jaxtrade.text import pairs

TASK = "allocate"
DUAL = 2  # symbols of the preset `dual_26`


class AllocateConfig(Section, frozen=True):
    """The task `allocate`: several symbols held jointly, in one account."""

    actions: Literal["product", "increment", "table"] = "product"
    """product: every combination of flat, long and short; increment: one unit more or less of one
    symbol, or hold; table: all symbols flat, long or short
    """
    preset: Literal["full", "dual_26"] = "full"
    """the observation: dual_26: 12 features of the bar and the position of two symbols; full:
    these, open profit and holding time of each symbol, and the account
    """
    size: Widths = (1,)
    """contracts per unit: one number, or one for each symbol"""
    max_units: int = declare_bounds(1, 1, 100)
    """units that may be held in one symbol; a target of long or short is so many"""
    max_total: FromOne | None = None
    """units that may be held in all symbols together; null: no limit"""
    cooldown: int = declare_bounds(0, 0, 100_000)
    """bars that must pass after an order before the next"""
    trades_per_day: int = declare_bounds(0, 0, 100_000)
    """positions that orders may change in a session; 0: no limit"""
    gate: int = declare_bounds(1, 1, 100_000)
    """orders only at every so many bars of a session"""
    cost_bp: float = Field(default=0.0, ge=0, le=1000, multiple_of=0.01)
    """cost of a fill in basis points of its notional, at most two decimals"""
    impact_bp: float = Field(default=0.0, ge=0, le=1000, multiple_of=0.1)
    """cost in basis points of a fill with a notional of allocate.impact_base; it grows with the
    square root of the notional. At most one decimal
    """
    impact_base: float = Field(default=100_000.0, gt=0, le=1_000_000)
    """dollars; see allocate.impact_bp"""
    fee: float = declare_bounds(0.0, 0, 10_000)
    """dollars per fill, whatever its size"""


def check_allocate(config: Any) -> None:
    """Check what must hold between `allocate` and the other sections.

    config: a `RunConfig`, which imports this module.
    Raises ValueError, which pydantic expects.
    """
    if not config.env.joint:
        if config.allocate != AllocateConfig():
            raise ValueError(
                f"keys of allocate need env.task={TASK}, found {config.env.task}: leave them out, or set "
                "it"
            )
        return
    symbols, allocate = len(config.data.markets) or 1, config.allocate
    if allocate.preset == "dual_26" and symbols != DUAL:
        raise ValueError(
            f"allocate.preset=dual_26 shows two symbols, and data.markets has {symbols}: name two, or set "
            "allocate.preset=full"
        )
    if len(allocate.size) not in (1, symbols):
        raise ValueError(
            f"allocate.size has {len(allocate.size)} numbers for {symbols} symbols: give one, or one for "
            "each of data.markets"
        )
    if allocate.actions == "product" and symbols > 5:
        raise ValueError(
            f"allocate.actions=product has 3^{symbols} actions for {symbols} symbols: set "
            "allocate.actions=increment, or name at most 5"
        )
    _refuse(config)


def _refuse(config: Any) -> None:
    """Refuse keys that other tasks have and this one has no meaning for."""
    keys = pairs(
        """
        fill  orders fill at the next open
        mark  the floors are tested inside the bar
        intrabar  the legs of one bar are resolved together, the least favourable way
        actions  its actions are in allocate.actions
        quantity  its size is allocate.size
        advice  no advisor knows several symbols
        """
    )
    changed = config.env.list_changed()
    for key, why in keys.items():
        if key in changed:
            raise ValueError(
                f"env.{key}={getattr(config.env, key)}: not with env.task={TASK}, because {why}; "
                "leave it out"
            )
    if config.brackets.list_changed():
        raise ValueError(
            f"brackets: not with env.task={TASK}, whose orders have neither stop nor target; leave the "
            "section out"
        )
    if config.advisor.on:
        raise ValueError(
            f"advisor.kind={config.advisor.kind}: not with env.task={TASK}, because no advisor knows "
            "several symbols; set advisor.kind=off"
        )
    if config.sampler.list_changed():
        raise ValueError(
            f"sampler: not with env.task={TASK}, which holds all symbols in every episode; leave the "
            "section out"
        )
    if config.stages.forces_starts:
        raise ValueError(
            f"stages.forced_start={config.stages.forced_start:g}: not with env.task={TASK}, whose "
            "episodes start flat; set it to 0"
        )
    if config.data.seconds is not None:
        raise ValueError(
            f"data.seconds: not with env.task={TASK}, which joins bars and not seconds; leave it out"
        )


# The section `shared` of a configuration, and what must hold between it and the others.

TASKS = ("entry", "manage")
PARTS = 1000  # impact is counted in thousandths of a tick, decay in thousandths
MOST_TICKS = (
    2000  # of the offset, so that its product with `PARTS` fits int32, and of temporary impact
)
MOST_CONTRACTS = 65_536  # entries of the table of square roots


class SharedConfig(Section, frozen=True):
    """One market for all agents of a run: their orders move its price."""

    on: bool = False
    """the agents (train.num_seeds) trade in the same worlds, so that each moves the price of all;
    false: each has a market of its own
    """
    kappa: int = declare_bounds(250, 0, 1_000_000)
    """thousandths of a tick by which each contract that all agents together buy (net) raises later
    prices, and the open at which it is ordered
    """
    eta: int = declare_bounds(300, 0, 1_000_000)
    """thousandths of a tick, times the square root of the net contracts ordered at an open: what
    that open's fills move besides, against the net side
    """
    decay: float = Field(default=0.99, ge=0, le=1, multiple_of=1 / PARTS)
    """share of the price offset that is left after a bar, at most three decimals; 1: impact is
    permanent within a session
    """


def most_contracts(config: Any) -> int:
    """Return the most contracts, net, that all agents of a run can order in one bar.

    Each agent turns round.
    """
    return 2 * config.env.quantity * config.train.num_seeds


def temporary(eta: int, contracts: int) -> int:
    """Compute the temporary impact in thousandths of a tick: eta * sqrt(contracts), rounded down.

    Exact, in integers.
    """
    return math.isqrt(eta * eta * contracts)


def largest_offset(config: Any) -> int:
    """Return a bound of the offset, in ticks.

    By parts, a sum of decayed flows is at most kappa times twice the largest net position; rounding
    towards zero in each bar adds less than a tick.
    """
    return (config.shared.kappa * most_contracts(config) + PARTS + PARTS // 2) // PARTS


def largest_temporary(config: Any) -> int:
    """Return a bound of the temporary impact at an open, in ticks."""
    return temporary(config.shared.eta, most_contracts(config)) // PARTS + 1


def largest_move(config: Any) -> int:
    """Return the most ticks that impact can add to the profit or loss of a position.

    It is 0 without a shared market.
    """
    if not config.shared.on:
        return 0
    return 2 * (2 * largest_offset(config) + largest_temporary(config))


def check_shared(config: Any) -> None:
    """Check what must hold between `shared` and the other sections.

    config: a `RunConfig`, which imports this module.
    Raises ValueError, which pydantic expects.
    """
    shared = config.shared
    if not shared.on:
        if changed := shared.list_changed():
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
    """Refuse keys for which a shared market has no meaning."""
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
