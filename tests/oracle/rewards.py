"""Every reward term from its line in docs/features.md, in plain Python: mills and flags in, one
number out.
"""

from dataclasses import dataclass

from jaxtrade.env.state import ExitReason
from tests.oracle.model import ENABLE_TRAIL, MOVE_STOP_TO_BREAKEVEN, Event


@dataclass(frozen=True)
class Facts:
    """One step: the action as chosen, whether it was legal, what the bar did, and money (mills from
    the start).
    """

    action: int
    legal: bool
    event: Event
    open_profit: int  # of the position at the decision's close
    change: int  # of equity, close to close
    equity: int  # at the bar's close
    held: bool  # at the bar's close


def acted(facts, action):
    return facts.legal and facts.action == action


def enabled_in_profit(facts, settings):
    if not acted(facts, ENABLE_TRAIL):
        return 0.0
    return 1.0 if facts.open_profit > settings.start_balance / 100 else -1.0


TERMS = {
    "equity_change": lambda f, s: f.change / s.risk_unit,
    "net_return": lambda f, s: f.change / s.start_balance,
    "closed_profit": lambda f, s: sum(net for net, _ in f.event.closed) / 1000,
    "win": lambda f, s: sum(net > 0 for net, _ in f.event.closed),
    "loss": lambda f, s: sum(net <= 0 for net, _ in f.event.closed),
    "trail_win": lambda f, s: sum(net > 0 and trailed for net, trailed in f.event.closed),
    "in_position": lambda f, s: float(f.held),
    "flat": lambda f, s: float(not f.held and not f.event.closed),
    "floor_reached": lambda f, s: float(f.event.breach),
    "forced_flat": lambda f, s: float(f.event.exit_reason == ExitReason.FLAT),
    "breakeven_moved": lambda f, s: float(acted(f, MOVE_STOP_TO_BREAKEVEN)),
    "trail_enabled": lambda f, s: float(acted(f, ENABLE_TRAIL)),
    "trail_enabled_in_profit": enabled_in_profit,
    "profit_level": lambda f, s: max(0, f.equity) / 1000,
    "return_level": lambda f, s: f.equity / s.start_balance,
    "illegal": lambda f, s: float(not f.legal),
    "illegal_management": lambda f, s: float(not f.legal and f.action >= MOVE_STOP_TO_BREAKEVEN),
}
