"""Monte-Carlo p-values of a result against null markets.

For a statistic T of the real market and of B null markets, the p-value is

    p = (1 + #{null >= real}) / (B + 1),    never below its floor 1 / (B + 1)

(Davison and Hinkley 1997, section 4.2). If the real market is exchangeable with the nulls, p <= a
has a probability of at most a, exactly, for any statistic. Besag and Clifford 1991, "Sequential
Monte Carlo p-values", stop as soon as h nulls reach the real value, after l draws; then p = h / l,
which has the same property. A clear "no" thus costs few draws, and a small p-value still takes all
of them.

A test makes null markets one after the other, measures each, and stops when all is decided.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import RunConfig
from jaxtrade.data.market import Market
from jaxtrade.data.nulls.market import name_null_errors, null_markets
from jaxtrade.data.nulls.spec import NullKind, NullSpec
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.params import make_params
from jaxtrade.env.state import EnvParams
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.backtest import run_lanes
from jaxtrade.evaluation.baselines import Agent
from jaxtrade.evaluation.evaluate import lanes_of, standard_agents
from jaxtrade.evaluation.metrics import session_pnl
from jaxtrade.evaluation.record import EvaluationSteps, Record
from jaxtrade.evaluation.statistics.resampling import iqm
from jaxtrade.storage.sinks import read_rows
from jaxtrade.text import Log, align, short_repr
from jaxtrade.types import SessionSet

# `nulls.jsonl`: the statistics of finished null markets, so that a test that was killed goes on.
#
# The first line says what the draws belong to, every further line is one draw. A line is on the
# disk before the next draw begins. A last line that is cut off was being written when the process
# was killed: it is dropped, and its draw is made again.

NULLS = "nulls.jsonl"
FORMAT = 1


class NullJournal:
    """The journal of one test.

    `known[i]` holds the statistics of draw i by name, for all draws that are finished.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        """Open the journal, or begin it.

        Raises ConfigError if the file belongs to other facts, and DataError if it is damaged before
        its last line.

        facts: what the draws depend on, besides their number: kind, seed, digests of configuration
            and data; JSON values.
        """
        self.path, facts = path, {"format": FORMAT, **facts}
        self.known: list[dict[str, float]] = []
        rows = read_rows(path) if path.is_file() else []
        wanted, found = json.loads(json.dumps(facts)), rows[0] if rows else {}
        differ = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
        if rows and differ:
            parts = "; ".join(
                f"{name}: found {found.get(name)}, expected {wanted.get(name)}" for name in differ
            )
            raise ConfigError(
                f"{path}: holds the null markets of another test ({parts}). Fix: ask for that test "
                "again, or move the file away to begin this one"
            )
        for number, row in enumerate(rows[1:], start=2):
            match row:
                case {"draw": draw, "statistics": dict(known)} if draw == len(self.known):
                    self.known.append(known)
                case _:
                    raise DataError(
                        f"{path}: line {number}: expected draw {len(self.known)} and its statistics, "
                        f"found {row}. Fix: remove that line and all after it; their draws are then "
                        "made again"
                    )
        if rows:
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._write(facts)

    def append(self, statistics: Mapping[str, float]) -> None:
        """Record the next draw. On return it is on the disk."""
        self._write({"draw": len(self.known), "statistics": dict(statistics)})
        self.known.append(dict(statistics))

    def _write(self, row: Mapping[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


EXCEEDANCES = 10  # h
USUAL_LEVEL = 0.05
KEPT: dict[NullKind, str] = {
    "sign": "each bar, with its gap, up or down at random; stamps, volume, spread and true ranges are the real ones",
    "sessions": "the real sessions in another order, among those of equal hours",
    "phase": "the real returns with random phases; the shape of volatility over the day is gone",
    "martingale": "a martingale with the real volatility of each minute of the day",
}


class NullResult(NamedTuple):
    """A result against null markets, as the files have it.

    name: whose result it is.
    real: the statistic on the real market.
    p, floor: see above; the floor is that of the draws asked for.
    draws_asked: B.
    draws_made: fewer after an early stop.
    exceedances: how many nulls reach the real value.
    seed: of the draws.
    stop_at_exceedances: h; None if every draw was to be made.
    nulls: the statistic of each null market, in the order of the draws.
    """

    name: str
    kind: NullKind
    real: float
    p: float
    floor: float
    draws_asked: int
    draws_made: int
    exceedances: int
    seed: int
    stop_at_exceedances: int | None
    nulls: tuple[float, ...]

    def __repr__(self) -> str:
        return short_repr(
            "NullResult",
            self.name,
            f"{self.kind}:{self.draws_asked}",
            f"p {self.p:.4f}",
            f"floor {self.floor:.4f}",
            f"{self.draws_made} draws",
        )


def pooled_statistic(net: np.ndarray) -> float:
    """Return the IQM over seeds of the mean out-of-sample net of a day, in the unit of `net`.

    With fewer than four seeds it is the mean over seeds. Raises DataError if there are no seeds or
    days, or a value is not finite.

    net: [S, D], the net of each seed and day; days of several folds are pooled.
    """
    net = np.asarray(net, np.float64)
    if net.ndim != 2 or not net.size:
        raise DataError(
            f"null test: daily net of shape {net.shape}; expected [seeds, days], at least one of each"
        )
    if not np.isfinite(net).all():
        seed, day = np.argwhere(~np.isfinite(net))[0]
        raise DataError(
            f"null test: the net of seed {seed}, day {day} is {net[seed, day]}; every day needs a number"
        )
    return float(iqm(net.mean(axis=1)))


def is_decided(real: float, nulls: Sequence[float], stop: int | None = EXCEEDANCES) -> bool:
    """Return whether `stop` nulls have reached the real value: no further draw is needed."""
    return bool(stop) and sum(null >= real for null in nulls) >= stop


def null_test(
    name: str,
    real: float,
    nulls: Sequence[float],
    spec: NullSpec,
    seed: int,
    stop: int | None = EXCEEDANCES,
) -> NullResult:
    """Compute the p-value of a statistic.

    Args:
        nulls: the statistics of null markets 0, 1, ...; those after the early stop, or beyond
            `spec.draws`, are ignored.
        stop: h, the exceedances after which to stop. None: make every draw.

    Raises:
        DataError: a statistic is not finite, or draws are missing.
    """
    if not math.isfinite(real):
        raise DataError(
            f"null test of {name}: its statistic on the real market is {real}; it needs a number"
        )
    reached = 0
    for made, null in enumerate(nulls[: spec.draws], start=1):
        if not math.isfinite(null):
            raise DataError(
                f"null test of {name}: the statistic of null market {made - 1} is {null}; every null needs "
                "a number"
            )
        reached += null >= real
        if stopped := bool(stop) and reached >= stop:
            break
    else:
        made, stopped = spec.draws, False
    if len(nulls) < made:
        raise DataError(
            f"null test of {name}: {len(nulls)} of {spec.draws} null markets are there, and the test is "
            "not decided; make the rest"
        )
    return NullResult(
        name,
        spec.kind,
        real,
        reached / made if stopped else (1 + reached) / (spec.draws + 1),
        spec.floor,
        spec.draws,
        made,
        reached,
        seed,
        stop,
        tuple(nulls[:made]),
    )


def p_text(result: NullResult) -> str:
    """Format the p-value with its limit: `0.0100 (its floor)`, `0.7143 (10 of 14, stopped)`."""
    stop = result.stop_at_exceedances
    if stop and result.exceedances >= stop:
        return f"{result.p:.4f} ({result.exceedances} of {result.draws_made}, stopped)"
    return f"{result.p:.4f}{' (its floor)' if result.exceedances == 0 else ''}"


def null_document(
    results: Mapping[str, NullResult], notes: Sequence[str], **facts: Any
) -> dict[str, Any]:
    """Return the content of `nulls.json`.

    facts: further JSON values, such as digests of configuration and data.
    """
    return {
        "format": 1,
        **facts,
        "notes": list(notes),
        "results": {name: each._asdict() for name, each in results.items()},
    }


def null_table(results: Sequence[NullResult], notes: Sequence[str] = ()) -> str:
    """Format the results of one kind and number of draws as text. Statistics are dollars a day."""
    first = results[0]
    rows = [
        ["net per day ($)", "real", "median null", "largest null", "nulls >= real", "draws", "p"]
    ]
    rows += [
        [
            f"  {each.name}",
            f"{each.real:,.2f}",
            f"{float(np.median(each.nulls)):,.2f}",
            f"{max(each.nulls):,.2f}",
            f"{each.exceedances}",
            f"{each.draws_made}",
            p_text(each),
        ]
        for each in results
    ]
    lines = [
        f"null markets {first.kind}:{first.draws_asked}, seed {first.seed}: {KEPT[first.kind]}",
        "",
        *align(rows),
        "",
        f"p = (1 + nulls >= real) / ({first.draws_asked} + 1), at least {first.floor:.4f}"
        + (
            f"; after {first.stop_at_exceedances} nulls >= real it stops, and p = {first.stop_at_exceedances} / draws"
            if first.stop_at_exceedances
            else ""
        ),
    ]
    if first.floor > USUAL_LEVEL:
        lines.append(
            f"NOTE: no p-value below {USUAL_LEVEL} is possible with {first.draws_asked} draws; give at least 19"
        )
    return "\n".join([*lines, *(f"NOTE: {note}" for note in notes)])


Statistics = Mapping[str, float]  # by the name of the agent, larger is better
Measure = Callable[[Market], Statistics]  # what was done on the real market, done on another one
AgentsOf = Callable[[Market], Sequence[Agent]]


def _silent(text: str) -> None:
    del text


def run_nulls(
    measure: Measure,
    markets: Callable[[int], Market],
    real: Statistics,
    spec: NullSpec,
    seed: int,
    journal: NullJournal | None = None,
    stop: int | None = EXCEEDANCES,
    step: Log = _silent,
) -> dict[str, NullResult]:
    """Test the real statistics against null markets.

    Args:
        measure: null market -> statistics with the names of `real`. For a trained policy it trains
            again, by the executable that trained it: the market is a traced argument.
        markets: number of the draw -> null market (`data.nulls.market.NullMarkets`).
        real: the statistics on the real market.
        seed: of the draws, for the results.
        journal: holds finished draws, and receives each new one. None: nothing is kept.
        stop: end when each agent has that many nulls that reach its real value. None: make
            every draw.
        step: receives a line before each draw.

    Raises:
        DataError: a null market cannot be used, or `measure` refuses it (ConfigError or DataError).
        ConfigError: the journal has statistics of other names.
        ValueError: `measure` returns other names than those of `real`.
    """
    found = [dict(each) for each in journal.known] if journal else []
    for draw, each in enumerate(found):
        if set(each) != set(real):
            assert journal
            raise ConfigError(
                f"{journal.path}: null market {draw} has statistics of {', '.join(sorted(each))}, and "
                f"those of {', '.join(sorted(real))} are tested. Fix: move the file away to begin again"
            )
    while len(found) < spec.draws:
        if all(
            is_decided(value, [each[name] for each in found], stop) for name, value in real.items()
        ):
            break
        draw = len(found)
        step(f"null market {draw + 1} of at most {spec.draws} ({spec.kind})")
        market = markets(draw)
        with name_null_errors(spec.kind, seed, draw):
            statistics = {name: float(value) for name, value in measure(market).items()}
        if set(statistics) != set(real):
            raise ValueError(
                f"measure returned {sorted(statistics)}, and the real statistics are {sorted(real)}"
            )
        found.append(statistics)
        if journal:
            journal.append(statistics)
    return {
        name: null_test(name, value, [each[name] for each in found], spec, seed, stop)
        for name, value in real.items()
    }


def rule_agents(env: TradingEnv, config: RunConfig) -> AgentsOf:
    """Return the rule-based agents of an evaluation, made for each market anew.

    One of them reads the closes beforehand.
    """
    return lambda market: standard_agents(env, market, config)


def with_market(
    params: EnvParams, market: Market, sessions: SessionSet, config: RunConfig
) -> EnvParams:
    """Return the parameters on a null market: its bars, and everything else as it was.

    The limits of int32 money are checked as for a real market, and larger orders are cut to what
    int32 mills can hold there; `rule_nulls` refuses a null on which that happened. Entries of
    `env.quantity` contracts are never cut. Raises ConfigError if the quantity of an entry cannot be
    held, or an episode could overflow.
    """
    checked = make_params(market, sessions, config)
    cap = jnp.minimum(checked.account.max_contracts, params.account.max_contracts)
    return params.replace(
        market=market.data, sessions=sessions, account=params.account.replace(max_contracts=cap)
    )


def daily_net(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    agents: Sequence[Agent],
    steps: EvaluationSteps | None = None,
    largest: int | None = None,
) -> dict[str, np.ndarray]:
    """Return each agent's dollars by session in the strategy pass, account rules off, by name.

    float64[D] each. They are those of `evaluation.evaluate`: the same program, keys and costs.
    Raises DataError if an order was cut to fewer contracts here, because its profit could not
    be compared.

    Args:
        params: on this market.
        largest: the most contracts of an entry on the real market; None if this is it.
    """
    lanes = lanes_of(agents, params, market, sessions, config, steps)
    found = {}
    for lane, record in zip(lanes, run_lanes(env, lanes, "strategy"), strict=True):
        if largest:
            _check_uncut(lane.agent.name, record, int(params.account.max_contracts), largest)
        found[lane.agent.name] = session_pnl(record.equity, lane.decisions.last) / 1000
    return found


def _check_uncut(name: str, record: Record, cap: int, largest: int) -> None:
    """Check that no order was cut to fewer contracts than the real market allows.

    A record marks an order beyond the cap as illegal; of illegal orders, those alone open
    a position.
    """
    if cap < largest and np.any(
        ~np.asarray(record.legal) & (np.asarray(record.event.entry_quantity) != 0)
    ):
        raise DataError(
            f"agent {name}: an order was cut to {cap:,} contracts, the most whose money int32 mills can "
            f"hold on this market, and the real one allows {largest:,}; order fewer, or set "
            f"account.max_contracts to {cap:,} or less"
        )


def rule_nulls(
    env: TradingEnv,
    params: EnvParams,
    market: Market,
    sessions: SessionSet,
    config: RunConfig,
    spec: NullSpec,
    seed: int,
    *,
    agents: AgentsOf | None = None,
    pool: Callable[[str], str] = str,
    after: int = 0,
    steps: EvaluationSteps | None = None,
    stop: int | None = EXCEEDANCES,
    step: Log = _silent,
) -> dict[str, NullResult]:
    """Test agents that need no training against null markets.

    The statistic is `pooled_statistic`, in dollars a day. Every null market passes through the
    executable of the real one: only the first call compiles.

    Args:
        params, sessions, steps: as in `evaluate`.
        seed: of the draws.
        agents: market -> agents, with the same names for every market. Default: the rule-based
            ones. A policy may be among them if `after` leaves the bars that it was trained on as
            they are.
        pool: name of an agent -> name of its result. Agents of one result are the seeds of one
            policy. Default: each agent has a result of its own.
        after: rows before it stay real.
        stop, step: as in `run_nulls`.

    Raises:
        ConfigError: this kind of null does not fit the configuration.
        DataError: a null market cannot be used, or does not hold the orders of an agent.
    """
    largest = int(params.account.max_contracts)
    made = agents or rule_agents(env, config)
    nulls = null_markets(market, config, spec.kind, seed, after)

    def measure(each: Market, shown: EnvParams) -> dict[str, float]:
        pools: dict[str, list[np.ndarray]] = {}
        for name, net in daily_net(
            env, shown, each, sessions, config, made(each), steps, largest
        ).items():
            pools.setdefault(pool(name), []).append(net)
        return {name: pooled_statistic(np.stack(nets)) for name, nets in pools.items()}

    return run_nulls(
        lambda each: measure(each, with_market(params, each, sessions, config)),
        nulls,
        measure(market, params),
        spec,
        seed,
        stop=stop,
        step=step,
    )
