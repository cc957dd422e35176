"""Account presets: versioned rule sets of prop-firm style evaluations. No affiliation with any firm.

Figures: public descriptions of such programmes as of 2025 (they change; the name carries the version). Money in
dollars. Contract caps are in mini-equivalents: 10 micros count as one mini, one standard FX lot as one mini.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from jaxtrade.config import AccountConfig
from jaxtrade.errors import ConfigError


@dataclass(frozen=True)
class AccountPreset:
    """Rules of one account, dollars; None switches a limit off.

    freeze: when the trailing floor stops rising: never, at start + $100, or at (profit target - drawdown).
    """

    start_balance: float
    drawdown: float | None
    daily_loss: float | None
    profit_target: float | None
    max_contracts: int
    freeze: str = "at_target"
    min_days: int = 1
    on_target: str = "terminate"
    on_daily_loss: str = "lock_until_next_session"


def _apex_like(start: float, target: float, drawdown: float, contracts: int) -> AccountPreset:
    return AccountPreset(start, drawdown, None, target, contracts)


PRESETS: dict[str, AccountPreset] = {
    "apex_like_25k_2025": _apex_like(25_000, 1_500, 1_500, 4),
    "apex_like_50k_2025": _apex_like(50_000, 3_000, 2_500, 10),
    "apex_like_100k_2025": _apex_like(100_000, 6_000, 3_000, 14),
    "apex_like_150k_2025": _apex_like(150_000, 9_000, 5_000, 17),
    "rules_off_50k": AccountPreset(50_000, None, None, None, 1_000, freeze="never", min_days=0),
}


def resolve_account(config: AccountConfig) -> AccountPreset:
    """The preset with the user's changes. Raises ConfigError for an unknown preset or a limit that is not positive."""
    if config.preset not in PRESETS:
        near = difflib.get_close_matches(config.preset, PRESETS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"account.preset: unknown preset '{config.preset}' (known: {', '.join(PRESETS)}){hint}")
    changes = config.model_dump(exclude={"preset"}, exclude_none=True)
    for key in ("drawdown", "daily_loss", "profit_target"):
        value = changes.get(key)
        if value == "off":
            changes[key] = None
        elif value is not None and value <= 0:
            raise ConfigError(f"account.{key} = {value}: expected a positive amount of dollars, or 'off'")
    preset = replace(PRESETS[config.preset], **changes)
    if preset.freeze == "at_target" and (preset.profit_target is None or preset.drawdown is None):
        if "freeze" in changes:
            raise ConfigError("account.freeze = 'at_target': needs both a profit target and a drawdown; "
                              "set them, or account.freeze=never")
        preset = replace(preset, freeze="never")  # the preset's freeze point went with its target
    return preset
