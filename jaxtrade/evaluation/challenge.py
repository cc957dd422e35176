"""The probability to pass an evaluation account, with both of its errors.

The errors come from too few accounts, and from too few days.

An account trades sessions that are drawn from those of an evaluation, in blocks of consecutive
days, until it passes, fails, or has traded N sessions. Whole sessions are drawn, never trades: an
account lives on the path of a day, and trades of one day belong together.

    inner  n accounts over the days as they are. Standard error of a share p: sqrt(p (1 - p) / n),
           the Monte Carlo error. More accounts make it as small as one likes.
    outer  B times, the days themselves are drawn anew (circular blocks, Politis and Romano 1992),
           and m accounts live on each draw. The spread of the B shares, less what m accounts
           explain of it, is the error of the days. Only more days make it smaller. The interval is the range of the
           middle 95 % of the B shares, stretched because few blocks of days stand behind it
           (`statistics.interval`), and cut to [0, 1].

The interval still holds the Monte Carlo noise of m accounts, so it is a little too wide and never
too narrow for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.state import OFF, EnvParams
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.account_draws import POINT, AccountDraws, check_draws
from jaxtrade.evaluation.challenge_accounts import (
    AccountFates,
    Challenge,
    ends_in_order,
    play_accounts,
    session_paths,
)
from jaxtrade.evaluation.record import DecisionBars, Record
from jaxtrade.evaluation.result import EvaluationResult
from jaxtrade.evaluation.statistics import MIN_DAYS, Interval, block_days, interval
from jaxtrade.evaluation.statistics.resampling import day_blocks
from jaxtrade.formatting import NOT_AVAILABLE, format_number, name_agent, share
from jaxtrade.text import align, several

_AT_ONCE = 20_000  # accounts
_FATES = 5  # rows of `_fates`


DEFAULT = AccountDraws()


class Odds(NamedTuple):
    """A share of accounts.

    monte_carlo: its standard error from the number of accounts.
    days: standard error from the days.
    interval: 95 %. The last two are None where `why` says so.
    """

    value: float
    monte_carlo: float
    days: float | None = None
    interval: Interval | None = None
    why: str | None = None


class AccountOdds(NamedTuple):
    """How accounts of one agent fare.

    The first four shares sum to 1; one that the rules make impossible is None.

    passed: the target was reached.
    bust, daily_loss: the account failed before that.
    time_out: neither, after the last session.
    lost_after: passed, and failed later; None unless the rules let an account go on after
        its target.
    days_to_pass: median number of sessions of the accounts that passed, the last one included; None
        if none did.
    """

    passed: Odds | None
    bust: Odds | None
    daily_loss: Odds | None
    time_out: Odds | None
    lost_after: Odds | None
    days_to_pass: float | None


@dataclass(frozen=True)
class PassProbability:
    """The odds of each agent under one account.

    An agent whose odds cannot be given is None, and `why` has the reason.

    rules: of the account, in words.
    sessions: their number, from which accounts were drawn.
    block: consecutive sessions that are drawn together.
    """

    rules: str
    sessions: int
    block: int
    draws: AccountDraws
    agents: dict[str, AccountOdds | None]
    why: dict[str, str]
    notes: tuple[str, ...]


def why_not_simulated(env: TradingEnv, params: EnvParams) -> str:
    """Say why accounts cannot be simulated from the sessions of a strategy pass; "" if they can."""
    rules = params.account
    if env.task.shows_record and int(params.episode_sessions) > 1:
        return (
            f"env.task={env.config.task} shows the policy the account's own record over {params.episode_sessions} "
            "sessions, so what it does on a day depends on the account's days before; only the environment itself "
            "can tell (see the accounts of `jaxtrade evaluate RUN`). With episode.sessions=1 the record begins "
            "anew each day, and the sessions can be drawn"
        )
    if min(int(rules.drawdown), int(rules.target)) >= OFF and not (
        int(rules.daily_loss) < OFF and bool(rules.fail_on_daily_loss)
    ):
        return (
            "the account has neither target nor drawdown nor a daily loss that fails it, so nothing can pass or "
            "fail; choose account.preset"
        )
    return ""


def check(env: TradingEnv, params: EnvParams, draws: AccountDraws) -> None:
    """Raise ConfigError if accounts cannot be simulated (`why_not_simulated`), or too few would be drawn."""
    check_draws(draws)
    if reason := why_not_simulated(env, params):
        raise ConfigError(f"pass probability: {reason}")


def pass_probability(
    result: EvaluationResult, env: TradingEnv, params: EnvParams, draws: AccountDraws = DEFAULT
) -> PassProbability:
    """Simulate evaluation accounts of each agent of an evaluation, from its strategy pass.

    All agents meet the same draws of days, so that differences between them are less noisy. An
    agent's accounts are also played in time order, and must end as those of its account pass did.
    If they do not, the agent acts on something that outlives a session, such as a memory, and has
    no odds.

    Args:
        result: of `evaluate`, in both passes.
        env, params: those it was evaluated with, of one symbol.

    Raises:
        ConfigError: as `check`.
    """
    check(env, params, draws)
    decisions = result.decisions
    days, block = len(decisions.ids), block_days(len(decisions.ids))
    found: dict[str, AccountOdds | None] = {}
    why: dict[str, str] = {}
    for agent in result.agents:
        challenge = Challenge(
            session_paths(agent.strategy, decisions, params, env.config), params.account
        )
        found[agent.name] = None
        in_order = ends_in_order(challenge, np.arange(days)[None, :])[0]
        if np.array_equal(in_order, recorded_ends(agent.account, decisions)):
            found[agent.name] = account_odds(challenge, draws)
        else:
            why[agent.name] = (
                "its accounts end otherwise than its sessions say, so it acts on something that "
                "outlives a session (a memory, or the account itself)"
            )
    return PassProbability(
        rules_text(result.settings), days, block, draws, found, why, _notes(challenge)
    )


def recorded_ends(account: Record, decisions: DecisionBars) -> np.ndarray:
    """Return the EndReason of an account pass in each session, else NONE (int64[n])."""
    ends = np.zeros(len(decisions.ids), np.int64)
    bars = np.flatnonzero(account.end)
    ends[decisions.session[bars]] = account.end[bars]
    return ends


def account_odds(challenge: Challenge, draws: AccountDraws) -> AccountOdds:
    """Estimate the odds under resampled sessions, with both errors."""
    days = challenge.sessions
    block = block_days(days)
    generator = np.random.default_rng([draws.seed, days, draws.horizon])
    orders = day_blocks(generator, POINT * draws.accounts, draws.horizon, days, block)
    found = play_accounts(challenge, orders)
    point = _fates(challenge, found)
    few = days < MIN_DAYS
    shares = np.zeros((0, _FATES)) if few else _outer(challenge, draws, generator, block)
    target = challenge.target < OFF
    possible = (
        target,
        challenge.drawdown < OFF,
        challenge.fails,
        True,
        target and not challenge.stop_at_target,
    )
    odds = (
        _odds(point[i], shares[:, i], draws, days) if can else None
        for i, can in enumerate(possible)
    )
    lasted = found.passed[found.passed > 0]
    median = float(np.median(lasted)) if len(lasted) else None
    return AccountOdds(*odds, days_to_pass=median)


def _fates(challenge: Challenge, found: AccountFates) -> np.ndarray:
    """Classify what became of n accounts (bool[_FATES, n]).

    The fates: passed, bust, daily loss, out of time, and failed after the target.
    """
    passed, bust, daily = found.passed > 0, found.bust > 0, found.daily > 0
    fates = [passed, ~passed & bust, ~passed & daily & ~bust, ~(passed | bust | daily)]
    lost = passed & (bust | daily) & (not challenge.stop_at_target)
    return np.stack([*fates, lost])


def _outer(
    challenge: Challenge, draws: AccountDraws, generator: np.random.Generator, block: int
) -> np.ndarray:
    """Return the shares of the fates on each draw of the days (float64[draws, _FATES])."""
    days, accounts = challenge.sessions, draws.accounts
    worlds = day_blocks(generator, draws.draws, days, days, block)
    at_once = max(1, _AT_ONCE // accounts)
    shares = []
    for first in range(0, draws.draws, at_once):
        chosen = worlds[first : first + at_once]
        inner = day_blocks(generator, len(chosen) * accounts, draws.horizon, days, block)
        orders = chosen[np.repeat(np.arange(len(chosen)), accounts)[:, None], inner]
        fates = _fates(challenge, play_accounts(challenge, orders))
        shares.append(fates.reshape(_FATES, -1, accounts).mean(axis=2).T)
    return np.concatenate(shares)


def _odds(happened: np.ndarray, shares: np.ndarray, draws: AccountDraws, days: int) -> Odds:
    """Estimate the odds of one fate, with its errors.

    Args:
        happened: bool[n] of the accounts on the days as they are.
        shares: float64[draws] on drawn days; empty where there are too few.
    """
    value = float(happened.mean())
    error = math.sqrt(value * (1 - value) / len(happened))
    if not len(shares):
        return Odds(
            value, error, why=f"{several(days, 'day')}; an interval needs {MIN_DAYS} or more"
        )
    if np.ptp(shares) == 0:
        return Odds(
            value,
            error,
            why=f"{value:g} on every draw of the days, which tells nothing about other days",
        )
    noise = float(np.mean(shares * (1 - shares))) / (
        draws.accounts - 1
    )  # variance that m accounts explain
    spread = math.sqrt(max(0.0, float(shares.var(ddof=1)) - noise))
    low, high = interval(shares, value, max(days / block_days(days), 2.0) - 1.0)
    return Odds(value, error, spread, Interval(max(low, 0.0), min(high, 1.0)))


def rules_text(settings: dict[str, Any]) -> str:
    """Describe the account's rules in words. settings: of an evaluation."""
    rules = settings["rules"]

    def dollars(key: str) -> str:
        return format_number(rules[key], "money", 0, none="off")

    parts = [
        f"account {settings['account']}: target {dollars('profit_target')}, drawdown {dollars('drawdown')}"
    ]
    if rules["drawdown"]:
        parts.append(f"{rules['trailing']}, freeze {rules['freeze']}")
    parts.append(
        f"daily loss {dollars('daily_loss')}"
        + (f" ({rules['on_daily_loss']})" if rules["daily_loss"] else "")
    )
    if rules["min_days"] > 1:
        parts.append(f"{rules['min_days']} trading days at least")
    if rules["profit_target"] and rules["on_target"] == "continue":
        parts.append("goes on after its target")
    return ", ".join(parts)


def _notes(challenge: Challenge) -> tuple[str, ...]:
    days = challenge.sessions
    notes = [
        "the Monte Carlo error shrinks with more accounts (--accounts), the error of the days only with more days"
    ]
    if days < MIN_DAYS:
        notes.append(
            f"no interval: {several(days, 'day')} cannot show how much days differ ({MIN_DAYS} or more can)"
        )
    elif days < 250:
        notes.append(
            f"{several(days, 'day')} say little about this probability: read the interval, not the figure"
        )
    if challenge.target >= OFF:
        notes.append("passed is n/a: the account has no target")
    return tuple(notes)


HEAD = (
    "accounts of",
    "passed",
    "Monte Carlo",
    "days",
    "95 % interval of passed",
    "bust",
    "daily loss",
    "out of time",
    "median days to pass",
)


def table(found: PassProbability) -> str:
    """Format the odds with agents as rows.

    Monte Carlo and days: the two standard errors of `passed`.
    """
    draws = found.draws
    lines = [
        f"pass probability of an evaluation account within {several(draws.horizon, 'session')}",
        found.rules,
        f"{POINT * draws.accounts:,} accounts over {several(found.sessions, 'session')} drawn in blocks of "
        f"{found.block}; {draws.draws:,} draws of the sessions themselves with {draws.accounts:,} accounts "
        "each",
        "",
        *align([HEAD, *(_row(name, each) for name, each in found.agents.items())]),
    ]
    lost = [
        f"{name}: {share(each.lost_after.value)} of its accounts passed and failed later"
        for name, each in found.agents.items()
        if each and each.lost_after
    ]
    notes = [
        *lost,
        *(f"{name}: {NOT_AVAILABLE}, {reason}" for name, reason in found.why.items()),
        *found.notes,
    ]
    return "\n".join([*lines, *(f"NOTE: {note}" for note in notes)])


def _row(name: str, odds: AccountOdds | None) -> tuple[str, ...]:
    passed = getattr(odds, "passed", None)
    ends = passed and passed.interval
    return (
        name_agent(name),
        share(getattr(passed, "value", None)),
        *(
            NOT_AVAILABLE if (error := getattr(passed, name, None)) is None else f"+-{share(error)}"
            for name in ("monte_carlo", "days")
        ),
        f"{share(ends.low)} to {share(ends.high)}" if ends else NOT_AVAILABLE,
        *(
            share(getattr(getattr(odds, fate, None), "value", None))
            for fate in ("bust", "daily_loss", "time_out")
        ),
        f"{odds.days_to_pass:g}" if odds and odds.days_to_pass is not None else NOT_AVAILABLE,
    )


def to_json(found: PassProbability) -> dict[str, Any]:
    """Return JSON values.

    A share has `value`, `low` and `high` (95 %), `monte_carlo` and `days` (standard errors) and
    `why`, the reason of what is None.
    """
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


WHY_NONE = {  # of a share that is not given although the agent has odds
    "passed": "the account has no target",
    "bust": "the account has no drawdown",
    "daily_loss": "no daily loss ends the account",
    "time_out": None,
    "lost_after": "an account ends at its target",
}


def _outcome(odds: AccountOdds | None, why: str | None) -> dict[str, Any]:
    shares = {
        name: _estimate(getattr(odds, name, None), reason if odds else why)
        for name, reason in WHY_NONE.items()
    }
    passed = shares["passed"]
    return {
        **shares,
        "days_to_pass": odds.days_to_pass if odds else None,
        "monte_carlo": passed["monte_carlo"],
        "day_error": passed["days"],
    }


def _estimate(odds: Odds | None, why: str | None) -> dict[str, Any]:
    value, monte_carlo, days, ends, why = odds or (None, None, None, None, why)
    low, high = ends or (None, None)
    return {
        "value": value,
        "low": low,
        "high": high,
        "monte_carlo": monte_carlo,
        "days": days,
        "why": why,
    }
