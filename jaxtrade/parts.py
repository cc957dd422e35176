"""Tables of the parts that a configuration chooses by name. Imports neither JAX nor the parts: names are checked early.

A new built-in part is its own module and one row here. A user's part is registered from outside (`registry.Registry`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtrade.registry import Registry

if TYPE_CHECKING:
    from jaxtrade.env.rewards import Term
    from jaxtrade.env.tasks.base import Task

TASKS: Registry[Task] = Registry("task", {
    "entry": "jaxtrade.env.tasks.entry:ENTRY",
    "manage": "jaxtrade.env.tasks.manage:MANAGE",
    "advised": "jaxtrade.env.tasks.advised:ADVISED",
})

REWARD_TERMS: Registry[Term] = Registry("reward term", {name: f"jaxtrade.env.rewards:{name}" for name in (
    "equity_change", "net_return", "closed_profit", "win", "loss", "trail_win", "in_position", "flat", "floor_reached",
    "forced_flat", "breakeven_moved", "trail_enabled", "trail_enabled_in_profit", "profit_level", "return_level",
    "illegal", "illegal_management")})
