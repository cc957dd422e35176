"""The comparison with the oracle has teeth: every seeded fault of the JAX environment is caught by it.

A mutant is a copy of `jaxtrade.env` in a temporary folder, under a name of its own, with one piece of source text
replaced. A mutation whose text is not found fails: it has to follow the source.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import jaxtrade.env
import jaxtrade.parts
from tests.oracle.agreement import Comparison, Lane, both_scalings, compare, make_rollout, stack
from tests.oracle.events import habits_of
from tests.oracle.markets import env_params, view_of
from tests.oracle.model import Settings
from tests.oracle.test_agreement import PRESETS, SLOW_UNITS, UNITS, lanes_of, markets, names_of, presets_of, scaled

SOURCE = Path(jaxtrade.env.__file__).parent
PARTS = Path(jaxtrade.parts.__file__)  # names the modules of tasks and reward terms
LANES, STEPS = 8, 150


@dataclasses.dataclass(frozen=True)
class Mutation:
    """Replace `old` by `new` in one module; `unit` is the static configuration in which it must show."""

    name: str
    module: str
    old: str
    new: str
    unit: str = "full/open/extreme"


SLIP = "side * contract.slippage"
MUTATIONS = (
    Mutation("slippage helps at order exits", "execution", f"fill = price - {SLIP}", f"fill = price + {SLIP}"),
    Mutation("slippage helps at entries", "execution", f"fill = bar.moved(price) + {SLIP}",
             f"fill = bar.moved(price) - {SLIP}"),
    Mutation("a target slips", "execution", "_exit(leg, hit, position.target,",
             f"_exit(leg, hit, position.target - {SLIP},"),
    Mutation("no commission at entry", "execution", "cash=leg.cash - commission", "cash=leg.cash"),
    Mutation("commission twice at exit", "execution", "profit - commission", "profit - 2 * commission"),
    Mutation("stop distance rounded down", "execution", "ceil_div(params.brackets.stop_atr * tr_sum, 14000)",
             "params.brackets.stop_atr * tr_sum // 14000"),
    Mutation("no minimum stop", "execution", "jnp.maximum(params.contract.min_stop, ", "jnp.maximum(1, "),
    Mutation("trail distance rounded down", "execution", "ceil_div(params.brackets.trail_atr * tr_sum, 14000)",
             "params.brackets.trail_atr * tr_sum // 14000"),
    Mutation("stop around the slipped fill", "execution", "price - side * order.stop_ticks",
             "fill - side * order.stop_ticks"),
    Mutation("target around the slipped fill", "execution", "price + side * order.target_ticks",
             "fill + side * order.target_ticks"),
    Mutation("target before stop", "execution", "stopped = held & (side * (worst - level) <= 0)",
             "stopped = held & (side * (worst - level) <= 0) & (side * (best - position.target) < 0)"),
    Mutation("a touch does not stop", "execution", "held & (side * (worst - level) <= 0)",
             "held & (side * (worst - level) < 0)"),
    Mutation("a touch does not reach the target", "execution", "hit = side * (best - leg.position.target) >= 0",
             "hit = side * (jnp.where(side > 0, bar.high, bar.low) - leg.position.target) > 0"),
    Mutation("gapless stop: fills at its level", "execution", f"_exit(leg, stopped, price - {SLIP}",
             f"_exit(leg, stopped, level - {SLIP}"),
    Mutation("gap beyond the target fills at the target", "execution", "_exit(leg, hit, price,",
             "_exit(leg, hit, leg.position.target,"),
    Mutation("a level behind the open fills at itself", "execution",
             "jnp.where(side > 0, jnp.minimum(bar.open, level), jnp.maximum(bar.open, level))", "level"),
    Mutation("a tie is a stop", "execution", "side * (level - position.stop) >= 0",
             "side * (level - position.stop) > 0"),
    Mutation("the trail loosens", "execution", "(position.trailing == 1) & (side * (level - position.stop) > 0)",
             "(position.trailing == 1)"),
    Mutation("high water beyond the target", "execution", "leg = leg.marked(best, contract)",
             "leg = leg.marked(jnp.where(side > 0, bar.high, bar.low), contract)"),
    Mutation("high water after the adverse extreme", "execution", "leg = leg.marked(best, contract)",
             "leg = leg.marked(worst, contract)"),
    Mutation("trail live one bar early", "execution", "leg = resolve(",
             "leg = leg._replace(position=ratchet(leg.position, prices.close, bar.trail))\n"
             "    leg = resolve("),
    Mutation("trail by the range at the decision", "dynamics", "trail_distance(market.tr_sum[row], params)",
             "trail_distance(market.tr_sum[state.row], params)"),
    Mutation("no mark at the open", "execution", "unrealised(position, prices.open, contract) if live_marks",
             "jnp.int32(0) if live_marks"),
    Mutation("the level ignores what the leg has realised", "settle", "balance=self.account.balance + leg.cash,",
             "balance=self.account.balance,"),
    Mutation("the level ignores the marks of the bar", "settle", "self.account.balance + leg.high, self.limits",
             "self.account.balance, self.limits"),
    Mutation("the account forgets the marks of the bar", "settle", "account.balance + marks.high, limits",
             "account.balance + jnp.int32(0), limits"),
    Mutation("the marks come on top of what the bar realised", "settle", "account.balance + marks.high, limits",
             "balance + marks.high, limits"),
    Mutation("flat bar one bar late", "dynamics", "at_flat_bar = row > market.sessions.last[session]",
             "at_flat_bar = row > market.sessions.last[session] + 1"),
    Mutation("a day is counted per fill", "settle", "(filled & ~account.traded)", "filled"),
    Mutation("fill=close fills at the open", "execution", "bar.decided.leaving(carried).close", "prices.open",
             "full/close/close"),
    Mutation("close marks forget the exit cost", "settle", "contract) - exit_cost", "contract)", "full/open/close"),
    Mutation("the floor cap is ignored", "rules", "jnp.minimum(account.high_water - rules.drawdown, rules.floor_cap)",
             "account.high_water - rules.drawdown"),
    Mutation("liquidation level rounded up", "money", "room // (size * tick_mills(contract))",
             "-((-room) // (size * tick_mills(contract)))"),
    Mutation("converted at the rate of the bar decided on", "dynamics", "contract=rules.contract_at(params, row)",
             "contract=rules.contract_at(params, state.row)", "full/path/converted"),
    Mutation("converted money rounded half up", "money", "((twice == divisor) & ((quotient & 1) == 1))",
             "(twice == divisor)", "full/path/converted"),
    Mutation("converted level not corrected downwards", "money", " - (rest < 0) + one_more) // size", " + 1) // size",
             "full/path/converted"),
    Mutation("liquidation level without the exit cost", "rules", "floor + size * contract.commission -",
             "floor -"),
    Mutation("mask without the calendar", "rules", "return in_time & warm &", "return warm &"),
    Mutation("entry one bar too late", "rules", "market.bars_to_flat[state.row] >= 2",
             "market.bars_to_flat[state.row] >= 1"),
    Mutation("the lock is ignored", "rules", "return in_time & warm & ~state.account.locked", "return in_time & warm"),
    Mutation("the lock outlives its session", "rules", "locked=no", "locked=account.locked"),
    Mutation("session equity is not reset", "rules", "session_equity=account.equity",
             "session_equity=account.session_equity"),
    Mutation("target reached with an open position", "rules", "& (position.quantity == 0)", ""),
    Mutation("minimum days ignored", "rules", "& (account.days >= rules.min_days)", ""),
    Mutation("high-water mark falls", "rules", "jnp.maximum(account.high_water, equity)", "equity"),
    Mutation("the step limit terminates", "episode", "(reason == EndReason.STEP_LIMIT) |", ""),
    Mutation("the session's end truncates", "episode", "(reason == EndReason.STEP_LIMIT)",
             "(reason == EndReason.SESSION_END) | (reason == EndReason.STEP_LIMIT)"),
    Mutation("step limit one step late", "episode", "state.time >= params.max_steps", "state.time > params.max_steps"),
    Mutation("no bust in the flat bar", "episode", "jnp.where(bust, EndReason.BUST, reason)",
             "jnp.where(bust & ~calendar.session, EndReason.BUST, reason)"),
    Mutation("a breach is below the floor", "rules", "account.equity <= drawdown_floor(account, rules)",
             "account.equity < drawdown_floor(account, rules) - 4000"),
    Mutation("one session more", "episode", "sessions_left=params.episode_sessions - 1",
             "sessions_left=params.episode_sessions"),
    Mutation("wins before costs", "record", "- 2 * jnp.abs(quantity) * contract.commission", ""),
    Mutation("break-even without room", "actions", "side * (close - breakeven) >= 1",
             "side * (close - breakeven) >= 0"),
    Mutation("trail behind any stop", "actions", "& (side * (position.stop - position.entry) >= 0)", ""),
    Mutation("break-even on the losing side", "actions", "position.entry + jnp.sign", "position.entry - jnp.sign"),
    Mutation("BUY sells", "tasks/entry", "jnp.where(action == Action.BUY, 1, -1)",
             "jnp.where(action == Action.BUY, -1, 1)"),
    Mutation("CLOSE keeps the position", "tasks/manage", "jnp.where(action == Action.CLOSE, 0, order.quantity)",
             "order.quantity"),
    Mutation("bracket by the next bar's range", "orders", "params.market.tr_sum[state.row]",
             "params.market.tr_sum[state.row + 1]"),
    Mutation("reward of realised money only", "rewards",
             "(next.account.equity - prev.account.equity).astype(jnp.float32) * (1.0 / params.account.risk_unit)",
             "(next.account.balance - prev.account.balance).astype(jnp.float32) * (1.0 / params.account.risk_unit)"),
    Mutation("bars in position one short", "observation", "state.row - position.opened + 1",
             "state.row - position.opened"),
    Mutation("the window holds the present bar", "observation", "(row - config.window) * width",
             "(row - config.window + 1) * width"),
    Mutation("entry slot without the side", "observation", "held, side * (close - price) * per_atr",
             "held, (close - price) * per_atr"),
    Mutation("ranges not against the present one", "observation", "log_per_atr * now[\"log_per_atr\"]", "0.0"),
    Mutation("nearer extreme: the farther one first", "execution", "jnp.where(best < -worst, best, 0)",
             "jnp.where(best > -worst, best, 0)", "full/nearer_extreme"),
    Mutation("nearer extreme: a tie is kind", "execution", "jnp.where(best < -worst, best, 0)",
             "jnp.where(best <= -worst, best, 0)", "full/nearer_extreme"),
    Mutation("nearer extreme: the close is left out", "execution", "side * (bar.close - bar.open))", "worst)",
             "full/nearer_extreme"),
    Mutation("walk: the target after every fall", "execution", "live = before < target",
             "live = before < target + contract.min_stop", "full/path"),
    Mutation("walk: a second may end in its target first", "execution", "live = before < target",
             "live = high < target", "full/path"),
    Mutation("walk: the mark is not capped", "execution", "turn = jnp.minimum(high, target)", "turn = high * 1",
             "full/path"),
    Mutation("walk: a touch is not enough", "execution", "meets = end <= stop", "meets = end < stop", "full/path"),
    Mutation("walk: no floors on the way", "execution", "meets |= stop_level.reached(",
             "meets |= jnp.bool_(False) & stop_level.reached(",
             "full/path"),
    Mutation("walk: the last fall that meets decides", "execution",
             "jnp.where(ends, jnp.minimum(reached, turn), reached)", "jnp.where(ends, turn, reached)", "full/path"),
    Mutation("walk: the mark of the whole bar", "execution",
             "leg = leg.marked(reached, contract)",
             "leg = leg.marked(bar.open + side * jnp.minimum(best, target), contract)",
             "full/path"),
    Mutation("walk: falls after the target count as adverse", "execution",
             "worst = jnp.where(live, jnp.minimum(worst, end), worst)",
             "worst = jnp.minimum(worst, end)", "full/path"),
    Mutation("walk: stopped at the extreme", "execution", "fill = jnp.where(stopped, trigger - side",
             "fill = jnp.where(stopped, worst - side", "full/path"),
    Mutation("walk: a target beats a stop", "execution", "fill = jnp.where(stopped,",
             "fill = jnp.where(stopped & (best < target),", "full/path"),
    Mutation("walk: breaches before the mark", "execution", "leg.marked(bar.open + side * turn, contract), bar.open",
             "leg, bar.open", "full/path"),
    Mutation("walk: breaches without the exit cost", "settle", "contract) - exit_cost", "contract)", "full/path"),
    Mutation("path: shorts read the long's falls", "execution", "(2 * row + short) * 3 * count",
             "(2 * row) * 3 * count", "full/path"),
    Mutation("path: ambiguous bars are believed", "execution", "select(ambiguous, one,",
             "select(ambiguous & ~ambiguous, one,", "full/path"),
    Mutation("path: ambiguous bars fill at a raised level", "execution",
             "return walk(leg, bar, falls, ambiguous, contract, stop_level)",
             "return walk(leg, bar, falls, jnp.bool_(False), contract, stop_level)", "full/path"),
    Mutation("path: the bar before", "execution", "(2 * row + short) * 3 * count",
             "(2 * row - 2 + short) * 3 * count", "full/path"),
    Mutation("prices against their own bar", "observation",
             "(window(view.level, view.level_windows) - level * now[\"close\"]) + x", "x"),
    Mutation("an end-of-day mark rises inside the session", "rules", "rules.trailing == Trailing.INTRADAY",
             "rules.trailing != Trailing.STATIC", "rewards"),
    Mutation("a static floor moves when a session ends", "rules", "rules.trailing == Trailing.END_OF_DAY",
             "rules.trailing != Trailing.INTRADAY", "rewards"),
    Mutation("a session's end is never marked", "rules", "jnp.maximum(account.high_water, account.equity)",
             "account.high_water", "rewards"),
    Mutation("an end-of-day mark falls", "rules", "closed = jnp.maximum(account.high_water, account.equity)",
             "closed = account.equity", "rewards"),
    Mutation("closed profit before costs", "rewards", "gross - 2 * closed * params.contract.commission", "gross",
             "rewards"),
    Mutation("an illegal act is paid", "rewards", "self.chosen(name) & ~self.illegal", "self.chosen(name)", "rewards"),
    Mutation("every close is a loss", "rewards", "_closed_trades(prev, next) - _wins(prev, next)",
             "_closed_trades(prev, next)", "rewards"),
    Mutation("any win is a win of the trail", "rewards", "jnp.where(trailed, _wins(prev, next), 0)",
             "_wins(prev, next)", "rewards"),
    Mutation("a win does not end the losses", "record", "jnp.where(close.won, 0, record.losses + 1)",
             "record.losses + 1", "advised/full"),
    Mutation("eleven recent trades", "record", "((1 << RECENT) - 1)", "((2 << RECENT) - 1)", "advised/full"),
    Mutation("the peak of equity", "record", "jnp.maximum(record.peak, balance)",
             "jnp.maximum(record.peak, next.account.equity)", "advised/full"),
    Mutation("a short's excursion is a long's", "record", "side * (position.entry - event.adverse)",
             "position.entry - event.adverse", "advised/full"),
    Mutation("the context of the bar before", "observation", "context[ref.row[0]]", "context[ref.row[0] - 1]",
             "advised/full"),
)


def load_mutant(folder: Path, mutation: Mutation | None) -> Any:
    """`TradingEnv` of a changed copy of the environment; `state` stays the package's own, so that pytrees match."""
    name = f"mutant_{abs(hash(mutation)):x}"
    package = folder / name
    package.mkdir()
    for path in (PARTS, *SOURCE.rglob("*.py")):
        inside = Path(path.name) if path == PARTS else path.relative_to(SOURCE)
        text = path.read_text(encoding="utf-8")
        if mutation and inside == Path(f"{mutation.module}.py"):
            assert text.count(mutation.old) == 1, f"'{mutation.old}' occurs {text.count(mutation.old)} times"
            text = text.replace(mutation.old, mutation.new)
        text = re.sub(r"jaxtrade\.env(?!\.state)\b", name, text).replace("jaxtrade.parts", f"{name}.parts")
        (package / inside).parent.mkdir(exist_ok=True)
        (package / inside).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(f"{name}.dynamics").TradingEnv
    finally:
        sys.path.remove(str(folder))


@functools.cache
def batch(unit: str) -> tuple[tuple[Lane, ...], Any]:
    """A few lanes of every preset, and their parameters. Other ways to trail are in the unit `rewards` alone."""
    lanes = tuple(
        lane
        for preset in presets_of(unit)
        for lane in lanes_of(preset, unit)
    ) if unit == "rewards" else tuple(
        Lane(bars, scaled(preset, **(UNITS | SLOW_UNITS)[unit]), habit)
        for preset in (PRESETS[name] for name in names_of(unit))
        for bars, habit in zip(markets(long="advised" in unit)[:LANES], habits_of(LANES), strict=True))
    return lanes, stack([both_scalings(env_params(lane.bars, lane.settings), view_of(lane.bars, lane.settings, "seed"))
                         for lane in lanes])


def outcome_of(env_class: Any, unit: str, look: bool) -> Comparison:
    lanes, params = batch(unit)
    settings: Settings = lanes[0].settings
    return compare(lanes, STEPS, 7, make_rollout(settings, env_class, look, optimise=False), params)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["rewards", *(pytest.param(unit, marks=pytest.mark.long) for unit in (
    "full/open/extreme", "full/path", "full/open/close", "full/close/close", "full/nearer_extreme"))])
def test_an_unchanged_copy_agrees(unit, tmp_path):
    assert outcome_of(load_mutant(tmp_path, None), unit, look=False).fault is None


def test_every_mutation_finds_its_place():
    for mutation in MUTATIONS:
        text = (SOURCE / f"{mutation.module}.py").read_text(encoding="utf-8")
        assert text.count(mutation.old) == 1, mutation.name
        assert mutation.new != mutation.old, mutation.name


# The mutations that CI makes: of orders, fills, money, the walk through a bar, and rewards.
IN_CI = ("BUY sells", "a touch does not reach the target", "the floor cap is ignored",
         "walk: the mark of the whole bar", "reward of realised money only")


def test_ci_makes_mutations_that_exist():
    assert set(IN_CI) <= {mutation.name for mutation in MUTATIONS}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", [
    pytest.param(mutation, id=mutation.name.replace(" ", "-"), marks=[pytest.mark.long] * (mutation.name not in IN_CI))
    for mutation in MUTATIONS])
def test_mutation_is_caught(mutation, tmp_path):
    look = mutation.module == "observation" or mutation.unit.startswith("advised")
    fault = outcome_of(load_mutant(tmp_path, mutation), mutation.unit, look).fault
    assert fault is not None, f"nobody noticed: {mutation.name}"
