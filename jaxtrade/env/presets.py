"""Account presets: versioned rule sets in the style of prop-firm evaluations. No affiliation with any firm.

Such rules change, and descriptions of them conflict. The name of a preset therefore holds a version, and every figure
can be overridden. docs/accounts.md lists the presets with their sources and the conflicts. Money is in dollars.
Contract caps count minis: 10 micros count as one mini, and so does one standard FX lot.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from jaxtrade.config import AccountConfig
from jaxtrade.errors import ConfigError


@dataclass(frozen=True)
class AccountPreset:
    """Rules of one account in dollars. None switches a limit off.

    trailing: when the high-water mark, which the drawdown floor follows, may rise. intraday: with live equity;
    end_of_day: at the end of a session, to its closing equity; static: never.
    freeze: where the floor stops rising. never; at_start_plus_100: at the start balance + $100; at_target: at start
    balance + profit target - drawdown.
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
    trailing: str = "intraday"


# Size: profit target, drawdown, contract cap. The drawdowns are those of RL-Trainer. Most descriptions
# agree on the targets and caps of 25k, 50k and 100k. Uncertain, with one source or conflicting ones: the targets of 75k
# (4,250 or 4,000), 150k (9,000 or 8,000), 250k (15,000 or 12,500) and 300k (20,000 or 15,000), and the caps of 75k and
# of 150k and above.
SIZES: dict[str, tuple[float, float, int]] = {
    "25k": (1_500, 1_500, 4),
    "50k": (3_000, 2_500, 10),
    "75k": (4_250, 2_750, 12),
    "100k": (6_000, 3_000, 14),
    "150k": (9_000, 5_000, 17),
    "250k": (15_000, 6_500, 27),
    "300k": (20_000, 7_500, 35),
}


def _evaluation(size: str) -> AccountPreset:
    """An evaluation as of 2025: the drawdown trails live equity and freezes at the target; no daily loss limit."""
    target, drawdown, contracts = SIZES[size]
    return AccountPreset(start_balance=1_000 * float(size.removesuffix("k")), drawdown=drawdown, daily_loss=None,
                         profit_target=target, max_contracts=contracts)


_50K = _evaluation("50k")

PRESETS: dict[str, AccountPreset] = {
    **{f"apex_like_{size}_2025": _evaluation(size) for size in SIZES},
    # Since March 2026 an evaluation trails intraday or end of day. Our sources do not give the figures of end-of-day
    # accounts, so these are the ones of 2025. The sources mention a daily pause but not its amount: set
    # account.daily_loss.
    **{f"apex_like_{size}_eod_2026": replace(_evaluation(size), trailing="end_of_day") for size in SIZES},
    # 100k with a floor that never moves. Its target and its cap are from memory; we have no source for them.
    "apex_like_100k_static_2025": AccountPreset(100_000, 625, None, 2_000, 2, freeze="never", trailing="static"),
    # A funded account has no target, and its floor stops at start + $100. On some platforms evaluations never freeze.
    "apex_like_50k_funded_2025": replace(_50K, profit_target=None, freeze="at_start_plus_100"),
    "apex_like_50k_no_freeze_2025": replace(_50K, freeze="never"),
    # The daily limit of RL-Trainer ($1,000, switched off there), with each of the two consequences.
    "apex_like_50k_daily_lock_2025": replace(_50K, daily_loss=1_000),
    "apex_like_50k_daily_fail_2025": replace(_50K, daily_loss=1_000, on_daily_loss="fail"),
    "rules_off_50k": AccountPreset(50_000, None, None, None, 1_000, freeze="never", min_days=0),
}


def resolve_account(config: AccountConfig) -> AccountPreset:
    """The preset with the user's changes.

    Raises ConfigError for an unknown preset, a limit that is not positive, or a rule about a limit that is off.
    """
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
        preset = replace(preset, freeze="never")  # without target or drawdown there is no freeze point
    if "trailing" in changes and preset.drawdown is None:
        raise ConfigError(f"account.trailing = '{preset.trailing}': this account has no drawdown that could trail; "
                          "set account.drawdown")
    return preset
