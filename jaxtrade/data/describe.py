"""Describe a market before trading it: sessions, gaps, stops against costs, ambiguous bars."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import resolve_account, room_warning
from jaxtrade.data.bars import Bars
from jaxtrade.data.calendar.schedule import (
    DAY,
    Schedule,
    hhmm,
    local_seconds,
    most_common,
)
from jaxtrade.data.calendar.sessions import HOLE, list_holes, schedule_of
from jaxtrade.data.contracts import Contract, contract_of, micro_of
from jaxtrade.data.findings import check_bars
from jaxtrade.data.market import Market, decision_sessions, history_needed
from jaxtrade.data.read.bars import load_bars
from jaxtrade.data.sources import dollars_per_tick, read_keys
from jaxtrade.formatting import cost, iso, local
from jaxtrade.text import several

COST_WARNING = 0.25  # warn if a round turn costs more than this share of the stop
STOP_WARNING = 1 / 3  # warn if one stop is more than this share of the account's drawdown
WIDE_WARNING = 1 / 2  # or if one in twenty is more than this, in the half hour of the widest stops
HALF_HOUR = 1800
NOTES_SHOWN = 20
DAYS_SHOWN, HOLES_SHOWN = 40, 6  # days with holes, and holes of one day


def decision_rows(market: Market) -> np.ndarray:
    """Return every decision bar of every session (int64)."""
    sessions = market.data.sessions
    first, last = np.asarray(sessions.first), np.asarray(sessions.last)
    return np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])


def decision_hours(market: Market, flat: np.ndarray) -> dict[str, str | None]:
    """Return the usual decision hours in the market's own time zone, HH:MM.

    Each is the most common one of all sessions.
    first: the open of the first bar at which the agent may open a position.
    last: the same of the last bar; None if it may open in no session.
    flat: when it must be flat.
    zone: the IANA name.
    flat (argument): UTC seconds, int64[N].
    """
    time, left = np.asarray(market.bars.time), np.asarray(market.data.bars_to_flat)
    begin, end = np.asarray(market.data.sessions.first), np.asarray(market.data.sessions.last)
    # An entry fills at the next open, and the bar that opens then must close by the flat time.
    opening = [
        rows[-1]
        for a, b in zip(begin, end, strict=True)
        if len(rows := a + np.flatnonzero(left[a : b + 1] >= 2))
    ]
    return {
        "first": _usual_clock(time[begin], market),
        "last": _usual_clock(time[opening], market) if opening else None,
        "flat": _usual_clock(flat, market),
        "zone": market.contract.zone,
    }


def _usual_clock(stamps: np.ndarray, market: Market) -> str:
    """Return the most common time of day of UTC stamps, HH:MM in the market's time zone."""
    return hhmm(most_common(local_seconds(stamps, market.contract.zone) % DAY))


def stop_ticks(market: Market, config: RunConfig, rows: np.ndarray) -> np.ndarray:
    """Compute max(min_stop, ceil(stop_atr * S / 14)) at the given rows (int64 ticks)."""
    total = np.asarray(market.data.tr_sum)[rows].astype(np.int64)
    least, multiple = market.contract.under(config).min_stop_ticks, config.brackets.stop_thousandths
    return np.maximum(least, -(-multiple * total // 14_000))


def ambiguous_share(market: Market, config: RunConfig, rows: np.ndarray) -> float:
    """Compute the share of decisions whose next bar touches both stop and target.

    The bracket is that of a new long or short. Such a bar does not say which came first, so
    `env.intrabar` decides. The bracket lies around the next bar's open (the ask for a long, the bid
    for a short). The position is closed on the other side of the market.
    """
    stop = stop_ticks(market, config, rows)
    target = config.brackets.target_multiple * stop
    bid, ask = (
        {name: getattr(side, name)[rows + 1].astype(np.int64) for name in ("open", "high", "low")}
        for side in market.bars.sides
    )
    long = (ask["open"] - bid["low"] >= stop) & (bid["high"] - ask["open"] >= target)
    short = (ask["high"] - bid["open"] >= stop) & (bid["open"] - ask["low"] >= target)
    return float((long | short).mean())


class RoundTurn(NamedTuple):
    """Dollars per contract over the decision bars.

    cost: commission, mean spread (two-sided bars only) and slippage, with a market or stop order on
        both sides.
    risk: the money between entry and the median stop.
    tick: the value of a tick; if profits are converted, the median.
    spread, stop: ticks, the mean and the median.
    wide: as risk, for the stop that one in twenty exceeds in the half hour of the day whose median
        stop is largest, usually that after the open.
    widest: that half hour, in words.
    """

    cost: float
    risk: float
    tick: float
    spread: float
    stop: float
    wide: float
    widest: str


def round_turn(market: Market, config: RunConfig) -> RoundTurn:
    """Compute what a round turn costs, and what it risks."""
    rows, contract = decision_rows(market), market.contract.under(config)
    stops = stop_ticks(market, config, rows)
    stop = float(np.median(stops))
    clock = local_seconds(np.asarray(market.bars.time)[rows], contract.zone) % DAY
    clock = clock // HALF_HOUR * HALF_HOUR
    begin = max(np.unique(clock).tolist(), key=lambda each: np.median(stops[clock == each]))
    wide = float(np.percentile(stops[clock == begin], 95))
    widest = f"between {hhmm(begin)} and {hhmm(begin + HALF_HOUR)}"
    # Entries fill at the opens after the decision bars.
    bid, ask = (side.open[rows + 1].astype(np.int64) for side in market.bars.sides)
    spread, tick = (
        float((ask - bid).mean()),
        dollars_per_tick(contract, market.data.tick_value, rows),
    )
    cost = 2 * contract.commission_mills / 1000 + (2 * contract.slippage_ticks + spread) * tick
    return RoundTurn(cost, stop * tick, tick, spread, stop, wide * tick, widest)


def cost_warning(cost: float, risk: float) -> str | None:
    """Return a warning if a round turn costs more than a quarter of the money at risk, else None.

    Amounts are dollars, as in `RoundTurn`.
    """
    if cost <= COST_WARNING * risk:
        return None
    return (
        f"WARNING: a round turn costs {100 * cost / risk:.0f} % of the median stop, which is more than "
        f"{100 * COST_WARNING:.0f} %; most trades must lose. Widen the stop (brackets.stop_atr, "
        "brackets.min_stop_ticks) or check the costs"
    )


def stop_warning(turn: RoundTurn, contract: Contract, config: RunConfig) -> str | None:
    """Return a warning if stops are large beside the account's drawdown, else None.

    That is a median of more than a third, or wide ones of more than half. The stop is that of an
    entry; the warning has the sizes that fit. contract: under the configuration.
    """
    allowance, quantity = resolve_account(config.account).drawdown, config.env.quantity
    # A wide stop counts as the median one that is as close to its limit.
    each = max(turn.risk, turn.wide * STOP_WARNING / WIDE_WARNING)
    risk = each * quantity
    if config.env.joint or allowance is None or risk <= STOP_WARNING * allowance:
        return None
    most, fits = STOP_WARNING * allowance, list[str]()
    if (fewer := int(most // each)) and quantity > 1:
        fits.append(f"env.quantity={fewer}")
    # Bundled bars are of few markets, and those of a set are of the markets that it names.
    is_free = config.data.source != "bundled" and not (config.data.contract or config.data.markets)
    micro = micro_of(contract) if is_free else None
    if micro is not None:
        share = micro.tick_mills / contract.tick_mills
        if each * share <= most:
            fits.append(
                f"data.market={micro.symbol} with env.quantity=1 (${turn.risk * share:,.0f}; up to "
                f"{int(most // (each * share))} contracts fit)"
            )
    narrow = int(10 * config.brackets.stop_atr * most / risk) / 10
    least = contract.min_stop_ticks * turn.tick
    if narrow and least * quantity <= most and not cost_warning(turn.cost, most / quantity):
        fits.append(f"brackets.stop_atr={narrow:g}")
    fits.append(f"an account.preset whose drawdown is ${risk / STOP_WARNING:,.0f} or more")
    usual, wide = turn.risk * quantity, turn.wide * quantity
    return (
        f"WARNING: one stop (the median, {quantity} {contract.symbol}) is ${usual:,.0f}, "
        f"{100 * usual / allowance:.0f} % of the account's drawdown of ${allowance:,.0f}; {turn.widest} "
        f"one in twenty is above ${wide:,.0f}, {100 * wide / allowance:.0f} %: a few losing trades end "
        f"the account. At most a third of it (${most:,.0f}), and half for the wide ones, fits: "
        f"{', or '.join(fits)}"
    )


def warn_of_sizes(market: Market, config: RunConfig) -> tuple[str, ...]:
    """Return warnings about costs and stops that are large beside the stop or the account."""
    turn = round_turn(market, config)
    found = (
        cost_warning(turn.cost, turn.risk),
        room_warning(config.account, turn.cost * config.env.quantity),
        stop_warning(turn, market.contract.under(config), config),
    )
    return tuple(warning for warning in found if warning)


def describe(market: Market, config: RunConfig) -> dict[str, Any]:
    """Compute metrics of a market under a configuration. Money is in dollars, shares are fractions.

    tick_value: if profits are converted, the median over the decision bars.
    cost_over_stop: the cost of a round turn divided by the money at risk at the median
        stop (`RoundTurn`).
    calendar_verified_to: the last trade date of the shipped calendar that exchange notices have
        verified; None for a calendar file or inferred hours.
    projected_sessions: the number of sessions after that date.
    decision_hours: see `decision_hours`.
    """
    rows = decision_rows(market)
    contract, sessions = market.contract.under(config), market.data.sessions
    turn = round_turn(market, config)
    schedule = schedule_of(market.bars, config.data.calendar)
    at = schedule.find(market.trade_dates)
    halts = np.clip(schedule.halts[at], None, schedule.flat[at][:, None])
    first = np.asarray(market.bars.time)[np.asarray(sessions.first)]
    due = (schedule.flat[at] - first - (halts[:, 1] - halts[:, 0])) // market.bars.bar_seconds
    found = np.asarray(sessions.last) - np.asarray(sessions.first) + 2
    return {
        "market": contract.symbol,
        "source": market.bars.source,
        "synthetic": market.synthetic,
        "bars": len(market.bars),
        "bar_seconds": market.bars.bar_seconds,
        "first_bar": iso(market.bars.time[0]),
        "last_bar": iso(market.bars.time[-1]),
        "sessions": market.num_sessions,
        "first_session": str(market.trade_dates[0]),
        "last_session": str(market.trade_dates[-1]),
        "calendar": schedule.name,
        "calendar_verified_to": (
            None if np.isnat(schedule.verified_to) else str(schedule.verified_to)
        ),
        "projected_sessions": int(schedule.is_projected[at].sum()),
        "decision_hours": decision_hours(market, schedule.flat[at]),
        "decision_bars": len(rows),
        "missing_window_bars": int(np.maximum(due - found, 0).sum()),
        "has_volume": market.has_volume,
        "two_sided": bool(market.bars.ask),
        "mean_spread_ticks": turn.spread,
        "commission_per_side": contract.commission_mills / 1000,
        "slippage_ticks": contract.slippage_ticks,
        "tick_value": turn.tick,
        "median_stop_ticks": turn.stop,
        "median_stop_money": turn.risk,
        "round_turn_cost": turn.cost,
        "cost_over_stop": turn.cost / turn.risk,
        "ambiguous_bar_share": ambiguous_share(market, config, rows),
        "fingerprint": market.fingerprint,
        "notes": list(market.notes),
    }


def describe_text(market: Market, config: RunConfig) -> str:
    """Return `describe` as text, with the warnings of `warn_of_sizes`."""
    facts = describe(market, config)
    kind = "SYNTHETIC bars" if facts["synthetic"] else "bars"
    sides = "one: buys and sells at the same prices"
    if facts["two_sided"]:
        spread = f"{facts['mean_spread_ticks']:.2f} ticks where entries fill"
        sides = f"bid and ask: mean spread {spread}; features see the mid"
    lines = [
        f"{facts['market']}: {facts['bars']} {kind} of {facts['bar_seconds']} s from {facts['source']}",
        f"  span           {facts['first_bar']} .. {facts['last_bar']} (open stamps)",
        f"  sessions       {facts['sessions']} ({facts['first_session']} .. {facts['last_session']}), "
        f"{facts['decision_bars']} decision bars, {facts['missing_window_bars']} scheduled bars missing "
        "in the decision hours",
        f"  decisions      {_hours(facts['decision_hours'])}",
        f"  calendar       {_calendar(facts)}",
        f"  volume         {'present' if facts['has_volume'] else 'absent'}",
        f"  sides          {sides}",
        f"  costs          {_costs(facts)}",
        f"  median stop    {facts['median_stop_ticks']:.0f} ticks = {facts['median_stop_money']:.2f}; a round turn "
        f"costs {100 * facts['cost_over_stop']:.1f} % of it",
        f"                 ({config.brackets.stop_atr:g} ATRs, at least "
        f"{market.contract.under(config).min_stop_ticks} ticks)",
        f"  ambiguous bars {100 * facts['ambiguous_bar_share']:.2f} % of decisions (next bar touches stop and target)",
        f"  fingerprint    {facts['fingerprint']}",
        *list_hole_days(market.bars, schedule_of(market.bars, config.data.calendar)),
    ]
    lines += [f"  {warning}" for warning in warn_of_sizes(market, config)]
    lines += _notes(facts["notes"])
    return "\n".join(lines)


def _hours(hours: dict[str, str | None]) -> str:
    if not hours["last"]:
        return f"none: no bar leaves time for a position before the flat time, {hours['flat']} {hours['zone']}"
    return (
        f"usually at bars that open {hours['first']} .. {hours['last']}, flat by {hours['flat']} "
        f"({hours['zone']})"
    )


def _costs(facts: dict[str, Any]) -> str:
    """Format commission, slippage and a round turn, money first."""
    ticks, each = facts["slippage_ticks"], facts["tick_value"]
    size = several(ticks, "tick") + ("" if ticks == 1 else f", {cost(each)} per tick")
    return (
        f"commission {cost(facts['commission_per_side'])} per side, slippage {cost(ticks * each)} per side "
        f"({size}): {cost(facts['round_turn_cost'])} per round turn and contract"
    )


def _calendar(facts: dict[str, Any]) -> str:
    if not facts["calendar_verified_to"]:
        return facts["calendar"]
    kind = (
        f"{facts['projected_sessions']} of {facts['sessions']} sessions projected by rule"
        if facts["projected_sessions"]
        else "every session verified"
    )
    return f"{facts['calendar']}, verified until {facts['calendar_verified_to']}: {kind}"


def _notes(notes: list[str]) -> list[str]:
    lines = [
        f"  {note}" if note.startswith("WARNING: ") else f"  note: {note}"
        for note in notes[:NOTES_SHOWN]
    ]
    if len(notes) > NOTES_SHOWN:
        lines.append(f"  note: ... and {len(notes) - NOTES_SHOWN} more")
    return lines


def list_hole_days(bars: Bars, schedule: Schedule) -> list[str]:
    """Return lines that list the holes by day, in exchange time, and count the shorter gaps.

    None of generated bars.
    """
    if bars.synthetic:
        return []
    days: dict[str, list[str]] = {}
    found = list_holes(bars, schedule)
    for hole in found:
        begin, end = (local(each, bars.contract.zone, "%H:%M") for each in (hole.begin, hole.end))
        days.setdefault(hole.day, []).append(f"{begin}-{end} ({hole.seconds // 60} min)")
    lines = [
        f"{day}: {', '.join(holes[:HOLES_SHOWN])}"
        + (f" and {len(holes) - HOLES_SHOWN} more" if len(holes) > HOLES_SHOWN else "")
        for day, holes in days.items()
    ]
    short = len(list_holes(bars, schedule, 0)) - len(found)
    gaps = (
        f"  short gaps     {short}, of at most {HOLE // 60} minutes, day and night; they are not listed: "
        "platforms leave out minutes without a trade"
    )
    counted = [gaps] if short else []
    if not lines:
        return counted
    head = (
        f"  holes          on {several(len(days), 'day')}, of more than {HOLE // 60} minutes, in exchange "
        "time; no decision is taken in them"
    )
    more = [f"and {len(lines) - DAYS_SHOWN} more days"] if len(lines) > DAYS_SHOWN else []
    return [head, *(f"                 {line}" for line in [*lines[:DAYS_SHOWN], *more]), *counted]


def check(file: str, config: RunConfig) -> str:
    """Read and validate one file and compare it with the calendar.

    Returns the findings as text. Raises DataError with every fault, or ConfigError for an
    unknown market.
    """
    bars = load_bars(file, contract_of(config.data), **read_keys(config, False))
    return check_text(bars, config)


def check_text(bars: Bars, config: RunConfig) -> str:
    """Return the summary and calendar findings of validated bars.

    Raises DataError if the bars contradict the calendar, or for a likely share split that is
    not stated.
    """
    schedule, noted, found = check_bars(bars, config)
    warnings = sum(line.startswith("WARNING: ") for line in (*noted, *bars.notes))
    low, high = (
        int(x) * bars.contract.tick_size for x in (bars.low.min(), bars.sides[1].high.max())
    )
    lines = [
        f"{bars.source}: {len(bars)} bars of {bars.bar_seconds} s read as {bars.contract.symbol}, "
        + (several(warnings, "warning") if warnings else "no fault"),
        f"  span           {iso(bars.time[0])} .. {iso(bars.time[-1])} (open stamps), "
        f"{len(bars.date_starts)} trade dates",
        f"  prices         {low:.{bars.contract.decimals}f} .. {high:.{bars.contract.decimals}f}",
        f"  sides          {'bid and ask' if bars.ask else 'one'}",
        f"  calendar       {schedule.name}: {len(found)} findings",
        *list_hole_days(bars, schedule),
    ]
    if not len(decision_sessions(bars, schedule, config).date):
        lines.append(
            f"  too few to train on: {history_needed(config)} bars of history are needed before a decision"
        )
    return "\n".join(lines + _notes([*noted, *bars.notes, *schedule.notes, *found]))
