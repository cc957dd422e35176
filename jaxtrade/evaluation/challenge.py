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
from jaxtrade.evaluation.statistics import MIN_DAYS, block_days, interval
from jaxtrade.evaluation.statistics.resampling import block_count, day_blocks
from jaxtrade.formatting import NOT_AVAILABLE, format_number, name_agent, share
from jaxtrade.text import align, several

_AT_ONCE = 20_000  # accounts


DEFAULT = AccountDraws()


class Odds(NamedTuple):
    """A share of accounts, with 95 % from `low` to `high`.

    monte_carlo: its standard error from the number of accounts.
    days: standard error from the days.
    why: the reason of what is None.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    monte_carlo: float | None = None
    days: float | None = None
    why: str | None = None


FATES = ("passed", "bust", "daily_loss", "time_out", "lost_after")


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
) -> dict[str, Any]:
    """Simulate evaluation accounts of each agent of an evaluation, from its strategy pass.

    All agents meet the same draws of days, so that differences between them are less noisy. An
    agent's accounts are also played in time order, and must end as those of its account pass did.
    If they do not, the agent acts on something that outlives a session, such as a memory, and has
    no odds, and `why` says so.

    Returns JSON values, in the schema of the report's section: the rules in words, how accounts
    were drawn, notes, and for each agent what `account_odds` returns.

    Args:
        result: of `evaluate`, in both passes.
        env, params: those it was evaluated with, of one symbol.

    Raises:
        ConfigError: as `check`.
    """
    check(env, params, draws)
    decisions = result.decisions
    days, block = len(decisions.ids), block_days(len(decisions.ids))
    found: dict[str, dict[str, Any]] = {}
    for agent in result.agents:
        challenge = Challenge(
            session_paths(agent.strategy, decisions, params, env.config), params.account
        )
        in_order = ends_in_order(challenge, np.arange(days)[None, :])[0]
        if np.array_equal(in_order, recorded_ends(agent.account, decisions)):
            found[agent.name] = account_odds(challenge, draws)
        else:
            why = (
                "its accounts end otherwise than its sessions say, so it acts on something that "
                "outlives a session (a memory, or the account itself)"
            )
            found[agent.name] = _outcome(dict.fromkeys(FATES, Odds(why=why)), None)
    return {
        "rules": rules_text(result.settings),
        "days": days,
        "block": block,
        "horizon": draws.horizon,
        "accounts": draws.accounts,
        "point_accounts": POINT * draws.accounts,
        "resamples": draws.draws,
        "seed": draws.seed,
        "agents": found,
        "notes": _notes(challenge),
    }


def recorded_ends(account: Record, decisions: DecisionBars) -> np.ndarray:
    """Return the EndReason of an account pass in each session, else NONE (int64[n])."""
    ends = np.zeros(len(decisions.ids), np.int64)
    bars = np.flatnonzero(account.end)
    ends[decisions.session[bars]] = account.end[bars]
    return ends


def account_odds(challenge: Challenge, draws: AccountDraws) -> dict[str, Any]:
    """Estimate how accounts fare under resampled sessions, with both errors, as JSON values.

    passed: the target was reached.
    bust, daily_loss: the account failed before that.
    time_out: neither, after the last session. These four shares sum to 1; one that the rules make
        impossible is None.
    lost_after: passed, and failed later; None unless the rules let an account go on after its
        target.
    days_to_pass: median number of sessions of the accounts that passed, the last one included; None
        if none did.
    monte_carlo, day_error: the errors of `passed`.
    """
    days = challenge.sessions
    block = block_days(days)
    generator = np.random.default_rng([draws.seed, days, draws.horizon])
    orders = day_blocks(generator, POINT * draws.accounts, draws.horizon, days, block)
    found = play_accounts(challenge, orders)
    point = _fates(challenge, found)
    few = days < MIN_DAYS
    shares = np.zeros((0, len(FATES))) if few else _outer(challenge, draws, generator, block)
    no_target = challenge.target >= OFF
    impossible = (
        no_target and "the account has no target",
        challenge.drawdown >= OFF and "the account has no drawdown",
        not challenge.fails and "no daily loss ends the account",
        False,
        (no_target or challenge.stop_at_target) and "an account ends at its target",
    )
    odds = {
        fate: Odds(why=why) if why else _odds(point[i], shares[:, i], draws, days)
        for i, (fate, why) in enumerate(zip(FATES, impossible, strict=True))
    }
    lasted = found.passed[found.passed > 0]
    return _outcome(odds, float(np.median(lasted)) if len(lasted) else None)


def _outcome(odds: dict[str, Odds], days_to_pass: float | None) -> dict[str, Any]:
    return {
        **{fate: each._asdict() for fate, each in odds.items()},
        "days_to_pass": days_to_pass,
        "monte_carlo": odds["passed"].monte_carlo,
        "day_error": odds["passed"].days,
    }


def _fates(challenge: Challenge, found: AccountFates) -> np.ndarray:
    """Classify what became of n accounts (bool[fates, n]).

    The rows are in the order of `FATES`.
    """
    passed, bust, daily = found.passed > 0, found.bust > 0, found.daily > 0
    fates = [passed, ~passed & bust, ~passed & daily & ~bust, ~(passed | bust | daily)]
    lost = passed & (bust | daily) & (not challenge.stop_at_target)
    return np.stack([*fates, lost])


def _outer(
    challenge: Challenge, draws: AccountDraws, generator: np.random.Generator, block: int
) -> np.ndarray:
    """Return the shares of the fates on each draw of the days (float64[draws, fates])."""
    days, accounts = challenge.sessions, draws.accounts
    worlds = day_blocks(generator, draws.draws, days, days, block)
    at_once = max(1, _AT_ONCE // accounts)
    shares = []
    for first in range(0, draws.draws, at_once):
        chosen = worlds[first : first + at_once]
        inner = day_blocks(generator, len(chosen) * accounts, draws.horizon, days, block)
        orders = chosen[np.repeat(np.arange(len(chosen)), accounts)[:, None], inner]
        fates = _fates(challenge, play_accounts(challenge, orders))
        shares.append(fates.reshape(len(FATES), -1, accounts).mean(axis=2).T)
    return np.concatenate(shares)


def _odds(happened: np.ndarray, shares: np.ndarray, draws: AccountDraws, days: int) -> Odds:
    """Estimate the odds of one fate, with its errors.

    Args:
        happened: bool[n] of the accounts on the days as they are.
        shares: float64[draws] on drawn days; empty where there are too few.
    """
    value = float(happened.mean())
    error = math.sqrt(value * (1 - value) / len(happened))
    known = Odds(value, monte_carlo=error)
    if not len(shares):
        return known._replace(why=f"{several(days, 'day')}; an interval needs {MIN_DAYS} or more")
    if np.ptp(shares) == 0:
        return known._replace(
            why=f"{value:g} on every draw of the days, which tells nothing about other days"
        )
    noise = float(np.mean(shares * (1 - shares))) / (
        draws.accounts - 1
    )  # variance that m accounts explain
    spread = math.sqrt(max(0.0, float(shares.var(ddof=1)) - noise))
    low, high = interval(shares, value, block_count(days, block_days(days)) - 1.0)
    return known._replace(low=max(low, 0.0), high=min(high, 1.0), days=spread)


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


def _notes(challenge: Challenge) -> list[str]:
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
    return notes


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


def table(document: dict[str, Any]) -> str:
    """Format the odds with agents as rows.

    Monte Carlo and days: the two standard errors of `passed`.
    """
    agents = document["agents"]
    lines = [
        f"pass probability of an evaluation account within {several(document['horizon'], 'session')}",
        document["rules"],
        f"{document['point_accounts']:,} accounts over {several(document['days'], 'session')} drawn in blocks of "
        f"{document['block']}; {document['resamples']:,} draws of the sessions themselves with "
        f"{document['accounts']:,} accounts each",
        "",
        *align([HEAD, *(_row(name, each) for name, each in agents.items())]),
    ]
    lost = [
        f"{name}: {share(lost)} of its accounts passed and failed later"
        for name, each in agents.items()
        if (lost := each["lost_after"]["value"]) is not None
    ]
    unknown = [
        f"{name}: {NOT_AVAILABLE}, {each['time_out']['why']}"
        for name, each in agents.items()
        if each["time_out"]["value"] is None
    ]
    return "\n".join([*lines, *(f"NOTE: {note}" for note in [*lost, *unknown, *document["notes"]])])


def _row(name: str, odds: dict[str, Any]) -> tuple[str, ...]:
    passed, median = odds["passed"], odds["days_to_pass"]
    return (
        name_agent(name),
        share(passed["value"]),
        *(
            NOT_AVAILABLE if passed[error] is None else f"+-{share(passed[error])}"
            for error in ("monte_carlo", "days")
        ),
        NOT_AVAILABLE
        if passed["low"] is None
        else f"{share(passed['low'])} to {share(passed['high'])}",
        *(share(odds[fate]["value"]) for fate in ("bust", "daily_loss", "time_out")),
        NOT_AVAILABLE if median is None else f"{median:g}",
    )
