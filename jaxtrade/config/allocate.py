"""The section `allocate` of a configuration, and what must hold between it and the others."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from jaxtrade.config.base import Section, Widths

TASK = "allocate"
DUAL = 2  # symbols of the preset `dual_26`


class AllocateConfig(Section, frozen=True):
    """The task `allocate`: several symbols held jointly, in one account."""

    actions: Literal["product", "increment", "table"] = Field(
        default="product", examples=["increment"]
    )
    """product: every combination of flat, long and short; increment: one unit more or less of one
    symbol, or hold; table: all symbols flat, long or short
    """
    preset: Literal["full", "dual_26"] = Field(default="full", examples=["full"])
    """the observation: dual_26: 12 features of the bar and the position of two symbols; full:
    these, open profit and holding time of each symbol, and the account
    """
    size: Widths = Field(default=(1,), examples=["[2]"])
    """contracts per unit: one number, or one for each symbol"""
    max_units: int = Field(default=1, ge=1, le=100, examples=["2"])
    """units that may be held in one symbol; a target of long or short is so many"""
    max_total: int | None = Field(default=None, ge=1, examples=["2"])
    """units that may be held in all symbols together; null: no limit"""
    cooldown: int = Field(default=0, ge=0, le=100_000, examples=["5"])
    """bars that must pass after an order before the next"""
    trades_per_day: int = Field(default=0, ge=0, le=100_000, examples=["50"])
    """positions that orders may change in a session; 0: no limit"""
    gate: int = Field(default=1, ge=1, le=100_000, examples=["5"])
    """orders only at every so many bars of a session"""
    cost_bp: float = Field(default=0.0, ge=0, le=1000, examples=["0.5"])
    """cost of a fill in basis points of its notional, at most two decimals"""
    impact_bp: float = Field(default=0.0, ge=0, le=1000, examples=["1.5"])
    """cost in basis points of a fill with a notional of allocate.impact_base; it grows with the
    square root of the notional. At most one decimal
    """
    impact_base: float = Field(default=100_000.0, gt=0, le=1_000_000, examples=["50000.0"])
    """dollars; see allocate.impact_bp"""
    fee: float = Field(default=0.0, ge=0, le=10_000, examples=["1.0"])
    """dollars per fill, whatever its size"""

    @model_validator(mode="after")
    def _whole(self) -> AllocateConfig:
        for key, value, parts in (
            ("cost_bp", self.cost_bp, 100),
            ("impact_bp", self.impact_bp, 10),
        ):
            if round(value * parts) / parts != value:
                raise ValueError(
                    f"allocate.{key} = {value}: at most {len(str(parts)) - 1} decimals; write "
                    f"{round(value * parts) / parts:g}"
                )
        return self


def check_allocate(config: Any) -> None:
    """What must hold between `allocate` and the other sections. Raises ValueError, which pydantic
    expects.

    config: a `RunConfig`, which imports this module.
    """
    if config.env.task != TASK:
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
    env, fresh = config.env, type(config.env)()
    keys = {
        "env.fill": "orders fill at the next open",
        "env.mark": "the floors are tested inside the bar",
        "env.intrabar": "the legs of one bar are resolved together, the least favourable way",
        "env.actions": "its actions are in allocate.actions",
        "env.quantity": "its size is allocate.size",
        "env.advice": "no advisor knows several symbols",
    }
    for key, why in keys.items():
        name = key.partition(".")[2]
        if getattr(env, name) != getattr(fresh, name):
            raise ValueError(
                f"{key}={getattr(env, name)}: not with env.task={TASK}, because {why}; leave it out"
            )
    if config.brackets != type(config.brackets)():
        raise ValueError(
            f"brackets: not with env.task={TASK}, whose orders have neither stop nor target; leave the "
            "section out"
        )
    if config.advisor.on:
        raise ValueError(
            f"advisor.kind={config.advisor.kind}: not with env.task={TASK}, because no advisor knows "
            "several symbols; set advisor.kind=off"
        )
    if config.sampler != type(config.sampler)():
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
