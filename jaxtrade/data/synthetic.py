"""Synthetic markets on the real calendar.

Each has a known answer, for tests, benchmarks and null experiments.

`bars_of_kind` makes each of them. docs/data.md describes each market and its answer.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import numpy as np

from jaxtrade.config import DataConfig
from jaxtrade.data.bars import INT32, Bars, Side
from jaxtrade.data.calendar.schedule import (
    Schedule,
    hours_of,
    local_seconds,
    table_schedule,
    thanksgiving,
)
from jaxtrade.data.contracts import Contract
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.formatting import iso

# The frame of synthetic bars: sessions of the real calendar, their minutes, and a plausible price
# level.

BAR_SECONDS = 60
# A fixed end, so that a configuration keeps its sessions when later versions of the calendar verify
# more years.
LAST = date(2026, 12, 31)


def synthetic_schedule(contract: Contract, sessions: int) -> Schedule:
    """Return `sessions` consecutive scheduled sessions.

    They start in the latest Thanksgiving week, 2023 or earlier, that is followed by enough
    sessions; if there is none, at the first date of the calendar. Raises ConfigError, naming the
    largest possible number, if that is too short.
    """
    hours = hours_of(contract)
    low = date.fromisoformat(hours.eras[0].valid_from)
    high = min(date.fromisoformat(hours.verified_to), LAST)
    mondays = [
        thanksgiving(year) - timedelta(days=3) for year in range(2023, low.year - 1, -1)
    ]  # two half days follow
    starts = [day for day in mondays if day >= low] + [low]
    found = 0
    for start in starts:
        last = min(high, start + timedelta(days=2 * sessions + 30))
        dates = table_schedule(contract, np.datetime64(start), np.datetime64(last)).dates
        if len(dates) >= sessions:
            return table_schedule(contract, np.datetime64(start), dates[sessions - 1])
        found = len(dates)
    raise ConfigError(
        f"data.synthetic_sessions = {sessions}: the calendar of {contract.symbol} holds {found} "
        "sessions; lower it"
    )


def all_minutes(schedule: Schedule) -> np.ndarray:
    """Return the open stamps of the minutes of all sessions (int64[n])."""
    return np.concatenate([session_minutes(schedule, i) for i in range(len(schedule.dates))])


def session_minutes(schedule: Schedule, index: int) -> np.ndarray:
    """Return the open stamps of the minutes of session `index` (int64[n]).

    Scheduled halts are left out.
    """
    stamps = np.arange(schedule.open[index], schedule.close[index], BAR_SECONDS)
    return stamps[(stamps < schedule.halts[index, 0]) | (stamps >= schedule.halts[index, 1])]


def start_level(contract: Contract, schedule: Schedule) -> float:
    """Return a plausible price for the schedule's first year, in ticks.

    It is the middle of the contract's range, or 10,000 if it has none.
    """
    bounds = contract.price_range(int(str(schedule.dates[0])[:4]))
    return (bounds[0] + bounds[1]) / 2 / float(contract.tick_size) if bounds else 10_000.0


def minute_bars(
    contract: Contract,
    stamps: np.ndarray,
    prices: np.ndarray,
    volume: np.ndarray,
    source: str,
    note: str,
) -> Bars:
    """Make Bars (int32 ticks) of stamps int64[n], prices [n, 4] and volume [n].

    The prices are open, high, low, close.
    """
    return Bars(
        time=stamps.astype(np.int64),
        **Side(*np.ascontiguousarray(prices.T.astype(np.int32)))._asdict(),
        volume=volume.astype(np.float64),
        bar_seconds=BAR_SECONDS,
        contract=contract,
        source=source,
        notes=(note,),
        synthetic=True,
    )


TREND_DRIFT, REVERSION_PULL = 0.05, 0.4  # used if the configuration gives none
CHAINS = ("mean_reversion", "planted")
ONLY_OF = {"synthetic_drift": ("trend",), "synthetic_pull": CHAINS}


def bars_of_kind(contract: Contract, data: DataConfig) -> Bars:
    """Generate the bars that `data.synthetic` and its keys describe, cut to data.start..end.

    Raises ConfigError for a key that belongs to another kind, too many sessions, or a market
    without bars to copy.
    """
    for key, kinds in ONLY_OF.items():
        if getattr(data, key) is not None and data.synthetic not in kinds:
            raise ConfigError(
                f"data.{key} = {getattr(data, key)} is given but data.synthetic = {data.synthetic}; it "
                f"belongs to {' and '.join(kinds)}"
            )
    count, seed = data.synthetic_sessions, data.synthetic_seed
    match data.synthetic:
        case "nq_like":
            made = synthetic_bars(contract, count, seed)
        case "martingale":
            made = walk_bars(contract, count, seed)
        case "trend":
            drift = TREND_DRIFT if data.synthetic_drift is None else data.synthetic_drift
            made = walk_bars(contract, count, seed, drift)
        case "mean_reversion":
            made = chain_bars(contract, count, seed, chain_pull(data))
        case "planted":
            real = load_bundled(contract, expiry=data.expiry, start=data.start, end=data.end)
            stamps = real.time[np.isin(real.trade_dates, np.unique(real.trade_dates)[:count])]
            made = chain_at(
                contract, stamps, float(real.close[0]), [seed, count, 2], chain_pull(data)
            )
        case "phase_randomised":
            real = load_bundled(contract, expiry=data.expiry, start=data.start, end=data.end)
            made = phase_randomised_bars(real, count, seed)
    return made.between(data.start, data.end)


def chain_pull(data: DataConfig) -> float:
    """Return the strength with which the chain is pulled to its anchor."""
    return REVERSION_PULL if data.synthetic_pull is None else data.synthetic_pull


GAPS = (36, 40, 44, 48, 46, 42, 38)  # ticks between neighbouring levels
LEVELS = np.concatenate([[0], np.cumsum(GAPS)])  # ticks above the lowest level
RANGE = 48  # high - low of every bar, in ticks
INERTIA = 0.95  # probability of keeping the direction while moving towards the anchor
FIRST_VOLUME, LAST_VOLUME = 50, 150


def level_of(state: np.ndarray | int) -> np.ndarray:
    """Return the level (0..7) of states (0..15), int[...].

    A state is 2 * level + (1 if the last move was up, else 0).
    """
    return np.asarray(state) // 2


def going_on(pull: float) -> np.ndarray:
    """Compute the probability that the next move keeps the direction, float64[16] by state.

    It is INERTIA * (1 - pull * swing). swing is 0 while the price moves towards the anchor. Away
    from it, swing grows to 1 at the outer levels, where the price always turns.
    """
    if not 0 < pull <= 1:
        raise ConfigError(
            f"data.synthetic_pull = {pull}: expected above 0 (no reversion) and at most 1"
        )
    top = len(LEVELS) - 1
    state = np.arange(2 * len(LEVELS))
    outwards = (2 * level_of(state) / top - 1) * np.where(state % 2, 1, -1)
    return np.where(outwards >= 1, 0.0, INERTIA * (1 - pull * np.maximum(outwards, 0)))


def transitions(pull: float) -> np.ndarray:
    """Compute transition probabilities (float64[16, 16]).

    Rows are states, columns are next states.
    """
    keep, top = going_on(pull), len(LEVELS) - 1
    matrix = np.zeros((len(keep), len(keep)))
    for state, chance in enumerate(keep.tolist()):
        level, up = divmod(state, 2)
        for direction, share in ((up, chance), (1 - up, 1 - chance)):
            reached = level + (1 if direction else -1)
            if 0 <= reached <= top:
                matrix[state, 2 * reached + direction] += share
            else:  # an outer level, entered from outside: such a state cannot occur
                matrix[state, 2 * level + 1 - up] += share
    return matrix


def bar_between(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return prices of bars between levels, in ticks above the lowest level.

    They are int64[..., 4] (open, high, low, close). The open is the previous close. The part of the
    range that the move does not cover is split between the two ends.
    before, after: int[...] levels (0..7).
    """
    open_, close = LEVELS[before], LEVELS[after]
    low = np.minimum(open_, close) - (RANGE - np.abs(close - open_)) // 2
    return np.stack([open_, low + RANGE, low, close], axis=-1)


def chain_states(generator: np.random.Generator, count: int, pull: float) -> np.ndarray:
    """Draw the states visited (int64[count + 1]).

    The first one is the lower anchor level, moving up.
    """
    matrix = transitions(pull)
    after = [np.flatnonzero(row).tolist() for row in matrix]
    first = [float(row[nodes[0]]) for row, nodes in zip(matrix, after, strict=True)]
    state = 2 * ((len(LEVELS) - 1) // 2) + 1
    path = [state]
    for draw in generator.random(count).tolist():
        state = after[state][0 if draw < first[state] else -1]
        path.append(state)
    return np.array(path)


def chain_bars(contract: Contract, sessions: int, seed: int, pull: float) -> Bars:
    """Generate bars of `sessions` sessions of the chain.

    Raises ConfigError for a pull outside (0, 1] or too many sessions.
    """
    schedule = synthetic_schedule(contract, sessions)
    return chain_at(
        contract, all_minutes(schedule), start_level(contract, schedule), [seed, sessions, 2], pull
    )


def chain_at(
    contract: Contract, stamps: np.ndarray, level: float, seed: list[int], pull: float
) -> Bars:
    """Make bars of the chain at given stamps, around a level in ticks.

    Raises ConfigError for a pull outside (0, 1].
    """
    generator = np.random.default_rng(seed)
    levels = level_of(chain_states(generator, len(stamps), pull))
    base = max(round(level) - LEVELS[-1] // 2, RANGE)
    volume = generator.integers(FIRST_VOLUME, LAST_VOLUME + 1, len(stamps))
    return minute_bars(
        contract,
        stamps,
        base + bar_between(levels[:-1], levels[1:]),
        volume,
        f"synthetic mean reversion {contract.symbol}, seed {seed[0]}",
        f"the bars are synthetic: a mean-reverting chain of {len(LEVELS)} price levels (pull {pull})",
    )


# A walk of one tick per minute: a martingale without drift, a trend with drift. Its answers are
# exact.
#
# Every bar opens at the previous close and moves one tick up or down; it touches no other price.
# The levels of brackets, break-even stops and trails are all on the grid of closes. So no bar
# contains both a stop and a target, no fill is between two closes, and an exit at a level is an
# exit at a close. Without drift, every policy's expected result before costs is therefore exactly
# zero, under every intrabar order. With drift d, a position held for n bars has an expected result
# of d * n ticks.

SAFETY = 8.0  # a falling walk must stay this many standard deviations above zero


def walk_bars(contract: Contract, sessions: int, seed: int, drift: float = 0.0) -> Bars:
    """Generate `sessions` sessions of the walk.

    It rises one tick a minute with probability (1 + drift) / 2, else it falls one tick.

    Args:
        drift: expected ticks per bar, between -1 and 1; 0 gives the martingale.

    Raises:
        ConfigError: a drift outside that range, a drift that may lead to prices below zero, or too
            many sessions.
    """
    if not -1 < drift < 1:
        raise ConfigError(
            f"data.synthetic_drift = {drift}: a bar moves one tick, so its mean lies between -1 and 1"
        )
    schedule = synthetic_schedule(contract, sessions)
    stamps = all_minutes(schedule)
    level = round(start_level(contract, schedule))
    lowest = level + min(drift, 0.0) * len(stamps) - SAFETY * np.sqrt(len(stamps))
    if lowest < 1:
        raise ConfigError(
            f"data.synthetic_sessions = {sessions}: {len(stamps):,} bars of drift {drift} from "
            f"{level:,} ticks could fall below zero; lower it, or data.synthetic_drift"
        )
    generator = np.random.default_rng([seed, sessions, 1])
    steps = np.where(generator.random(len(stamps)) < (1 + drift) / 2, 1, -1)
    close = level + np.cumsum(steps)
    before = close - steps
    prices = np.stack([before, np.maximum(before, close), np.minimum(before, close), close], axis=1)
    volume = generator.integers(FIRST_VOLUME, LAST_VOLUME + 1, len(stamps))
    name = "martingale" if drift == 0 else "trend"
    note = (
        "the bars are synthetic: a martingale of one-tick steps, every policy expects to lose exactly its costs"
        if drift == 0
        else f"the bars are synthetic: a walk that drifts by {drift} ticks a bar"
    )
    return minute_bars(
        contract, stamps, prices, volume, f"synthetic {name} {contract.symbol}, seed {seed}", note
    )


# Synthetic minute bars on the real calendar: for tests, benchmarks and markets without bundled
# data.
#
# The price is a martingale that looks like an index future: U-shaped volatility and volume, quiet
# nights, calm and volatile days, jumps, the tick grid, half days, and night minutes without a
# trade.
# The direction of the price cannot be predicted, so no policy should earn more than its costs.

SUBSTEPS = 8  # moves inside a minute; they give a bar its range
DAILY_VOLATILITY = {"future": 0.012, "fx": 0.005, "equity": 0.012}
TEMPER_MEMORY = 0.9  # how much of a day's volatility carries over to the next day
JUMPS_PER_SESSION = 0.7
JUMP_SIZE = 8.0  # in standard deviations of a minute
SILENT_NIGHT_MINUTES = 0.01  # share of minutes without a trade outside 09:30-16:00
# Relative volatility by exchange minute of the day: London at 03:00, the cash open, noon, the cash
# close, the evening.
CLOCK = (0, 180, 200, 480, 565, 570, 600, 720, 840, 930, 960, 975, 1080, 1100, 1440)
SHAPE = (0.35, 0.45, 0.75, 0.60, 0.80, 2.60, 1.80, 1.05, 1.10, 1.50, 1.70, 0.70, 0.60, 0.40, 0.35)


def synthetic_bars(contract: Contract, sessions: int = 40, seed: int = 0) -> Bars:
    """Generate `sessions` sessions of one-minute bars. The same arguments give the same bytes.

    Returns Bars with `synthetic=True`. Raises ConfigError if the calendar has fewer sessions.
    """
    schedule = synthetic_schedule(contract, sessions)
    generator = np.random.default_rng([seed, sessions])
    level, temper, parts = start_level(contract, schedule), 0.0, []
    for i in range(sessions):
        temper = TEMPER_MEMORY * temper + 0.15 * generator.standard_normal()
        bars = _session(
            generator, session_minutes(schedule, i), level, max(0.3, 1 + temper), contract
        )
        level = float(bars[-1, 4])
        parts.append(bars)
    rows = np.concatenate(parts)
    return minute_bars(
        contract,
        rows[:, 0],
        rows[:, 1:5],
        rows[:, 5],
        f"synthetic {contract.symbol}, seed {seed}",
        "the bars are synthetic: a martingale, no policy should earn more than its costs",
    )


def _session(
    generator: np.random.Generator,
    stamps: np.ndarray,
    level: float,
    temper: float,
    contract: Contract,
) -> np.ndarray:
    """Generate the bars of one session (float64[n, 6]).

    The columns are time, open, high, low, close (ticks), volume.
    level: the previous close.
    """
    minute = local_seconds(stamps, contract.zone) % 86_400 / 60
    shape = np.interp(minute, CLOCK, SHAPE)
    day = DAILY_VOLATILITY[contract.kind] * level * temper
    sigma = (
        day * shape / np.sqrt((np.interp(np.arange(1440.0), CLOCK, SHAPE) ** 2).sum())
    )  # ticks per minute
    moves = (
        generator.standard_normal((len(stamps), SUBSTEPS)) * (sigma / np.sqrt(SUBSTEPS))[:, None]
    )
    jumps = generator.random(len(stamps)) < JUMPS_PER_SESSION / len(stamps)
    moves[:, 0] += jumps * generator.standard_normal(len(stamps)) * JUMP_SIZE * sigma
    path = np.maximum(np.rint(level + np.cumsum(moves).reshape(moves.shape)), 1.0)
    activity = 400 * shape * shape * (0.3 + 0.7 * generator.standard_exponential(len(stamps)))
    volume = np.maximum(np.rint(activity * np.sqrt(temper)), 1.0)
    night = (minute < 570) | (minute >= 960)
    silent = night & (generator.random(len(stamps)) < SILENT_NIGHT_MINUTES)
    silent[[0, -1]] = False
    bars = np.column_stack(
        [stamps, path[:, 0], path.max(axis=1), path.min(axis=1), path[:, -1], volume]
    )
    return bars[~silent]


# A phase-randomised copy of real bars. It keeps their spectrum and variance, but no higher-order
# structure.
#
# The close-to-close log returns are Fourier transformed. Every phase, except those of the mean and
# of the Nyquist frequency, is replaced by a uniform draw. The new returns are summed up from the
# first close. This keeps the periodogram exactly, and with it variance and linear autocorrelation;
# then prices are rounded to ticks. It removes fat tails, volatility clusters, the intraday shape of
# close-to-close volatility and everything that a non-linear model could predict.
#
# Gaps and wicks are those of the real bars, in ticks: open' = last close' + (open - last close),
# high' = max(open', close') + (high - max(open, close)), and the low likewise. For two-sided bars
# this gives the bid, and the ask keeps the real spread above it. Stamps and volume are the real
# ones, so the intraday shape of wicks and volume remains.
#
# Source: Schreiber and Schmitz, "Surrogate time series", Physica D 142, 2000.

LEAST = 3  # bars of a copy


def phase_randomised_values(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Generate a series with the mean and periodogram of `values` (float64[n]).

    Its phases are uniformly random.
    """
    spectrum = np.fft.rfft(values)
    turned = np.abs(spectrum) * np.exp(2j * np.pi * generator.random(len(spectrum)))
    turned[0] = spectrum[0]
    if len(values) % 2 == 0:
        turned[-1] = spectrum[-1]  # the Nyquist coefficient must stay real
    return np.fft.irfft(turned, len(values))


def phase_randomised_prices(bars: Bars, generator: np.random.Generator) -> np.ndarray:
    """Generate open, high, low and close of a copy of one-sided bars (of the bid).

    They are int64[4, T] ticks. Raises DataError if there are fewer than LEAST bars.
    """
    if len(bars) < LEAST:
        raise DataError(
            f"{bars.source}: {len(bars)} bars of one contract are too few for a phase-randomised copy "
            f"({LEAST} are needed). Fix: give more of them, leave that contract out (data.start, "
            "data.end), or use nulls of the kind sign"
        )
    real = bars.close.astype(np.float64)
    moves = phase_randomised_values(np.diff(np.log(real)), generator)
    close = np.rint(real[0] * np.exp(np.concatenate([[0.0], np.cumsum(moves)]))).astype(np.int64)
    gap = np.concatenate([[0], bars.open[1:].astype(np.int64) - bars.close[:-1]])
    open_ = np.concatenate([bars.open[:1].astype(np.int64), close[:-1]]) + gap
    high = np.maximum(open_, close) + (bars.high - np.maximum(bars.open, bars.close))
    low = np.minimum(open_, close) - (np.minimum(bars.open, bars.close) - bars.low)
    return np.stack([open_, high, low, close])


def with_prices(bars: Bars, bid: np.ndarray, ask: np.ndarray | None = None) -> Bars:
    """Return the bars with other prices, int64[4, T], as int32.

    ask: where bars have two sides; None keeps the real spread above the bid, with high and low
        widened to include open and close.
    Raises DataError, naming the first bar, if a price is below one tick or above what int32 holds.
    """
    sides = [bid]
    if bars.ask and ask is None:
        first, second = (np.stack(side).astype(np.int64) for side in bars.quotes)
        open_, high, low, close = bid + second - first
        high = np.maximum(high, np.maximum(open_, close))
        ask = np.stack([open_, high, np.minimum(low, np.minimum(open_, close)), close])
    if ask is not None and bars.ask:
        sides.append(ask)
    for _, high, low, _ in sides:
        bad = np.flatnonzero((low < 1) | (high >= INT32))
        if len(bad):
            row = int(bad[0])
            raise DataError(
                f"{bars.source}: the made prices run from {int(low[row])} to {int(high[row])} ticks in the "
                f"bar of {iso(bars.time[row])}, the first of {len(bad)} outside 1 .. {INT32 - 1}. Fix: leave "
                "out the years in which prices were low (data.start), give synthetic bars fewer sessions "
                "(data.synthetic_sessions), or choose nulls of the kind sessions or phase, whose returns "
                "are relative. Another seed is no fix for nulls: it would choose them by their result"
            )
    return bars.with_quotes(*(Side(*side.astype(np.int32)) for side in sides))


def phase_randomised_bars(bars: Bars, sessions: int, seed: int) -> Bars:
    """Make a phase-randomised copy of the first `sessions` trade dates of `bars`.

    It takes all if there are fewer. Raises DataError if fewer than three bars are left, or if a
    price of the copy falls below one tick.
    """
    dates = bars.trade_dates
    bars = bars.rows(np.isin(dates, np.unique(dates)[:sessions]))
    made = phase_randomised_prices(bars, np.random.default_rng([seed, len(bars), 3]))
    note = "the bars are synthetic: a phase-randomised copy of real ones (spectrum kept, nothing else to predict)"
    return replace(
        with_prices(bars, made),
        synthetic=True,
        notes=(*bars.notes, note),
        source=f"phase-randomised copy, seed {seed}, of {bars.source}",
    )
