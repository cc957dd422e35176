"""The probability to pass an account, as a console table and as JSON values (the schema of the
report's section).
"""

from __future__ import annotations

from typing import Any

from jaxtrade.evaluation.account_draws import POINT
from jaxtrade.evaluation.challenge import AccountOdds, Odds, PassProbability
from jaxtrade.evaluation.report import NOT_AVAILABLE
from jaxtrade.text import aligned, several

HEAD = (
    "accounts of",
    "passed",
    "Monte Carlo",
    "days",
    "95 % interval",
    "bust",
    "daily loss",
    "out of time",
    "median days to pass",
)


def table(found: PassProbability) -> str:
    """Agents as rows. Monte Carlo and days: the two standard errors of `passed`."""
    draws = found.draws
    lines = [
        f"pass probability of an evaluation account within {several(draws.horizon, 'session')}",
        found.rules,
        f"{POINT * draws.accounts:,} accounts over {several(found.sessions, 'session')} drawn in blocks of "
        f"{found.block}; {draws.draws:,} draws of the sessions themselves with {draws.accounts:,} accounts "
        "each",
        "",
        *aligned([HEAD, *(_row(name, each) for name, each in found.agents.items())]),
    ]
    lost = [
        f"{name}: {_share(each.lost_after)} of its accounts passed and failed later"
        for name, each in found.agents.items()
        if each is not None and each.lost_after is not None
    ]
    notes = [
        *lost,
        *(f"{name}: {NOT_AVAILABLE}, {reason}" for name, reason in found.why.items()),
        *found.notes,
    ]
    return "\n".join([*lines, *(f"NOTE: {note}" for note in notes)])


def _row(name: str, odds: AccountOdds | None) -> tuple[str, ...]:
    if odds is None:
        return (name, *(NOT_AVAILABLE for _ in HEAD[1:]))
    passed = odds.passed
    median = NOT_AVAILABLE if odds.days_to_pass is None else f"{odds.days_to_pass:g}"
    return (
        name,
        _share(passed),
        _error(None if passed is None else passed.monte_carlo),
        _error(None if passed is None else passed.days),
        _interval(passed),
        _share(odds.bust),
        _share(odds.daily_loss),
        _share(odds.time_out),
        median,
    )


def _share(odds: Odds | None) -> str:
    return NOT_AVAILABLE if odds is None else f"{odds.value:.3f}"


def _error(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else f"+-{value:.3f}"


def _interval(odds: Odds | None) -> str:
    if odds is None or odds.interval is None:
        return NOT_AVAILABLE
    return f"{odds.interval.low:.2f} to {odds.interval.high:.2f}"


def to_json(found: PassProbability) -> dict[str, Any]:
    """JSON values. A share has `value`, `low` and `high` (95 %), `monte_carlo` and `days` (standard
    errors) and `why`, the reason of what is None."""
    draws = found.draws
    return {
        "rules": found.rules,
        "days": found.sessions,
        "block": found.block,
        "horizon": draws.horizon,
        "accounts": draws.accounts,
        "point_accounts": POINT * draws.accounts,
        "resamples": draws.draws,
        "seed": draws.seed,
        "agents": {
            name: _outcome(each, found.why.get(name)) for name, each in found.agents.items()
        },
        "notes": list(found.notes),
    }


def _outcome(odds: AccountOdds | None, why: str | None) -> dict[str, Any]:
    if odds is None:
        missing = _estimate(None, why)
        return {
            "passed": missing,
            "bust": missing,
            "daily_loss": missing,
            "time_out": missing,
            "lost_after": missing,
            "days_to_pass": None,
            "monte_carlo": None,
            "day_error": None,
        }
    return {
        "passed": _estimate(odds.passed, "the account has no target"),
        "bust": _estimate(odds.bust, "the account has no drawdown"),
        "daily_loss": _estimate(odds.daily_loss, "no daily loss ends the account"),
        "time_out": _estimate(odds.time_out),
        "lost_after": _estimate(odds.lost_after, "an account ends at its target"),
        "days_to_pass": odds.days_to_pass,
        "monte_carlo": None if odds.passed is None else odds.passed.monte_carlo,
        "day_error": None if odds.passed is None else odds.passed.days,
    }


def _estimate(odds: Odds | None, why: str | None = None) -> dict[str, Any]:
    if odds is None:
        return {
            "value": None,
            "low": None,
            "high": None,
            "monte_carlo": None,
            "days": None,
            "why": why,
        }
    low, high = (None, None) if odds.interval is None else odds.interval
    return {
        "value": odds.value,
        "low": low,
        "high": high,
        "monte_carlo": odds.monte_carlo,
        "days": odds.days,
        "why": odds.why,
    }
