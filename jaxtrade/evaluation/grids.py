"""Sensitivity of a result to intrabar order, costs and latency.

The same agents run under each intrabar order, multiples of the run's costs, and latencies; these
grids and attributions are text or JSON.

Latency shows what a result owes to being fast. With a latency of k bars, what an agent decides at
the close of bar t is executed as if it had been decided at the close of bar t + k, so it fills in
bar t + k + 1. The agent itself sees every bar in time, with the position as it is then. It
does not see which of its decisions are still on their way, because it did not in training either.

What waits is the id of the action. It is decoded when it is executed, so the distances of its
bracket are those of that bar. An order of a baseline need not be an action of the task, so of a
baseline the order itself waits.

A decision is too late, and HOLD is executed in its place, if the position is no longer the one it
was made for (another quantity, or opened at another bar), or if it was legal when it was made and
no longer is: by the mask for an action, by calendar and account for an order. The queue is empty
where a session or an episode starts. What is still on its way when a session ends is
never executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxtrade.config import RunConfig
from jaxtrade.env import actions
from jaxtrade.env.dynamics import TradingEnv
from jaxtrade.env.execution import select
from jaxtrade.env.state import EnvParams, EnvState, ObservationRef, Order
from jaxtrade.env.tasks.base import HOLD
from jaxtrade.evaluation.attribution import SlotAttribution
from jaxtrade.evaluation.backtest import run_lanes
from jaxtrade.evaluation.baselines import NO_ACTION, Act, Agent, Decision, Forget, PolicyAct
from jaxtrade.evaluation.evaluate import lanes_of
from jaxtrade.evaluation.evaluators import evaluator_of
from jaxtrade.evaluation.record import EvaluationSteps
from jaxtrade.evaluation.results_table import costs_text, is_joint
from jaxtrade.evaluation.side_by_side import order_is_legal
from jaxtrade.formatting import money
from jaxtrade.text import align, json_text, several
from jaxtrade.types import Array, PyTree, SessionSet

LONGEST = 3  # bars: the length of every queue, so that one program serves all latencies
TOO_LATE = NO_ACTION - 1  # `Record.action` where a decision came too late
NO_SESSION = -1
NOTHING = np.zeros(0)


class Waiting(struct.PyTreeNode):
    """Decisions on their way, the newest first; leaves [LONGEST + 1].

    action: int32, its id.
    order: of a baseline, else None.
    legal: bool, when it was made.
    quantity, opened: int32, the position it was made for.
    session: int32, `EnvState.slot` when it was made; NO_SESSION where there is no decision.
    """

    action: Array
    order: Order | None
    legal: Array
    quantity: Array
    opened: Array
    session: Array


class Queue(struct.PyTreeNode):
    """The carry of a delayed agent.

    own: of the agent itself.
    waiting: its decisions.
    delay: int32[] bars.
    """

    own: PyTree
    waiting: Waiting
    delay: Array


@dataclass(frozen=True)
class DelayedAct:
    """An `Act` whose decisions wait in a queue.

    Carry: a `Queue`.

    decodes: the action waits, not the order.
    """

    env: TradingEnv
    act: Act
    decodes: bool

    def __call__(
        self, carry: Queue, state: EnvState, ref: ObservationRef, params: EnvParams, key: Array
    ) -> Decision:
        own, order, action = self.act(carry.own, state, ref, params, key)
        action, kept = jnp.asarray(action, jnp.int32), None if self.decodes else order
        now = Waiting(
            action,
            kept,
            self._legal(action, kept, state, ref, params),
            state.position.quantity,
            state.position.opened,
            state.slot,
        )
        waiting = jax.tree.map(
            lambda new, old: jnp.concatenate([jnp.asarray(new, old.dtype)[None], old[:-1]]),
            now,
            carry.waiting,
        )
        due = jax.tree.map(lambda x: x[carry.delay], waiting)
        return Queue(own, waiting, carry.delay), *self._execute(due, state, ref, params)

    def _legal(
        self,
        action: Array,
        order: Order | None,
        state: EnvState,
        ref: ObservationRef,
        params: EnvParams,
    ) -> Array:
        return (
            ref.mask[jnp.maximum(action, 0)] if not order else order_is_legal(state, order, params)
        )

    def _execute(
        self, due: Waiting, state: EnvState, ref: ObservationRef, params: EnvParams
    ) -> tuple[Order, Array]:
        """Return (order, action) of the decision that is due."""
        on_its_way = due.session == state.slot
        same = (due.quantity == state.position.quantity) & (due.opened == state.position.opened)
        legal = self._legal(due.action, due.order, state, ref, params)
        # What was illegal when it was made is not late: the evaluator treats it as it does without
        # a latency.
        in_time = on_its_way & same & (legal | ~due.legal)
        action = jnp.where(
            on_its_way, jnp.where(in_time | (due.action == HOLD), due.action, TOO_LATE), HOLD
        )
        if not due.order:
            return self.env.decode(
                jnp.where(in_time & legal, due.action, HOLD), state, params
            ), action
        return select(in_time, due.order, actions.hold(state)), action


@dataclass(frozen=True)
class DelayedForget:
    """Empties the queue where an episode starts, and resets the agent's own memory."""

    forget: Forget

    def __call__(self, carry: Queue, first: Array) -> Queue:
        session = jnp.where(first, NO_SESSION, carry.waiting.session)
        return carry.replace(
            own=self.forget(carry.own, first), waiting=carry.waiting.replace(session=session)
        )


def delay_agent(agent: Agent, env: TradingEnv, bars: int) -> Agent:
    """Delay the decisions of an agent by a number of bars.

    Agents with one `act` share one program, for any latency. Raises ValueError unless 0 <= bars
    <= LONGEST.
    """
    if not 0 <= bars <= LONGEST:
        raise ValueError(f"latency of {bars} bars: expected 0 .. {LONGEST}")
    decodes, zero = isinstance(agent.act, PolicyAct), jnp.zeros(LONGEST + 1, jnp.int32)
    order = None if decodes else Order(*[zero] * 5)
    nothing = Waiting(zero, order, zero.astype(bool), zero, zero, zero + NO_SESSION)
    return agent._replace(
        act=DelayedAct(env, agent.act, decodes),
        forget=DelayedForget(agent.forget),
        carry=Queue(agent.carry, nothing, jnp.int32(bars)),
    )


COMMISSION_TIMES = (0, 1, 2)
FEES = ("fee", "rate", "impact")  # of `allocate`, beside commission and slippage
SLIPPAGE_TIMES = (0, 1, 2, 4)  # ticks, for a run without slippage
RANGE = "largest less smallest"
MODES: tuple[Literal["stop_first", "nearer_extreme", "path"], ...] = (
    "stop_first",
    "nearer_extreme",
    "path",
)


@dataclass(frozen=True)
class Grid:
    """Net profit of the strategy pass (account rules off), in dollars.

    profit: float64[len(rows), len(agents)], exact to a mill.
    notes: what the rows mean, and which are missing and why.
    too_late: int64[len(rows), len(agents)] decisions that were no longer possible when they were
        due; empty where none can be late.
    """

    title: str
    rows: tuple[str, ...]
    agents: tuple[str, ...]
    profit: np.ndarray
    notes: tuple[str, ...] = ()
    too_late: np.ndarray = field(default_factory=lambda: NOTHING)

    @property
    def spread(self) -> np.ndarray:
        """Largest minus smallest profit of each agent, float64[len(agents)] dollars."""
        return self.profit.max(axis=0) - self.profit.min(axis=0)

    def table(self) -> str:
        """Format the grid as text, with agents as columns.

        The last row is the largest profit of each less the smallest. Decisions that came too late
        have rows of their own.
        """
        cells = [[f"net profit ($) by {self.title}", *self.agents]]
        for name, profit in [*zip(self.rows, self.profit, strict=True), (RANGE, self.spread)]:
            cells.append([f"  {name}", *(f"{value:,.2f}" for value in profit)])
        if self.too_late.size:
            cells.append(["decisions that came too late (HOLD instead)"])
            cells += [
                [f"  {name}", *(f"{count:,}" for count in counts)]
                for name, counts in zip(self.rows, self.too_late, strict=True)
            ]
        return "\n".join([*align(cells), *(f"NOTE: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """Return the grid as JSON values: dollars per row and agent.

        spread: largest less smallest profit.
        too_late: counts per row and agent, where the grid has them.
        """
        late = {"too_late": self._by_agent(self.too_late)} if self.too_late.size else {}
        return {
            "rows": self._by_agent(self.profit),
            "spread": dict(zip(self.agents, self.spread.tolist(), strict=True)),
            "notes": list(self.notes),
            **late,
        }

    def _by_agent(self, values: np.ndarray) -> dict[str, dict[str, Any]]:
        return {
            name: dict(zip(self.agents, row.tolist(), strict=True))
            for name, row in zip(self.rows, values, strict=True)
        }


def _cost_rows(params: Any) -> Iterator[tuple[str, Any]]:
    """Yield (label, params) of each row.

    A cost that is 0 has no multiples: slippage is then counted in ticks. Of `allocate` the fees,
    the rate and the impact are multiplied as the commission is.
    """
    commission, slippage = params.contract.commission, params.contract.slippage
    others = getattr(params, "costs", None)
    charged = {name: each for name in FEES if (each := getattr(others, name, None)) is not None}
    any_cost = any(np.any(each) for each in (commission, *charged.values()))
    what = "costs" if others else "commission"
    for side in COMMISSION_TIMES if any_cost else (0,):
        for fill in SLIPPAGE_TIMES:
            ticks = (
                fill * np.asarray(slippage) if np.any(slippage) else np.full_like(slippage, fill)
            )
            contract = params.contract.replace(
                commission=jnp.int32(side * np.asarray(commission)), slippage=jnp.int32(ticks)
            )
            priced = params.replace(contract=contract)
            if others:
                multiplied = {name: jnp.int32(side * each) for name, each in charged.items()}
                priced = priced.replace(costs=others.replace(**multiplied))
            name = f"{fill}x" if np.any(slippage) else several(fill, "tick")
            yield f"{what} {f'{side}x' if any_cost else 'none'}, slippage {name}", priced


def _charges(params: Any) -> tuple[Any, Any]:
    return params.contract, getattr(params, "costs", None)


def _cost_notes(settings: dict[str, Any]) -> Iterator[str]:
    """Explain what the rows mean. settings: of an evaluation under the run's own costs."""
    if is_joint(settings):
        yield f"1x is the run's own: {settings['costs'].removeprefix('costs: ')}"
        return
    yield f"1x is the run's own: {costs_text(settings)}"
    if not settings["slippage_ticks"]:
        yield f"the run has no slippage to multiply, so its rows are in ticks of {money(settings['tick_value'])}"
    if settings["two_sided"]:
        yield "the spread is in the bars: every row pays it once"


def make_grid(
    kind: Literal["intrabar order", "costs", "latency"],
    env: Any,
    params: Any,
    agents: Sequence[Any],
    market: Any,
    sessions: SessionSet,
    config: RunConfig,
    steps: EvaluationSteps | None = None,
) -> Grid:
    """Compute net profit over one kind of assumption.

    Arguments as `evaluate`, or for `costs` as `joint.evaluate_joint`.

    intrabar order: under each order; `path` needs second bars.
    costs: at 0, 1 and 2 times the commission of the run, each with 0, 1, 2 and 4 times its
    slippage. A run without slippage is shown with 0, 1, 2 and 4 ticks of it; a run without
    commission has no rows for it. Costs are traced, so one compiled program serves all rows. The
    agents see their entry price, so they may trade otherwise where fills cost more: profits need
    not fall in even steps.
    latency: if every decision is executed 0 to `LONGEST` bars late (see above).
    """
    late, notes = [], ()
    if kind == "latency":
        delays = range(LONGEST + 1)
        rows = tuple(several(bars, "bar") for bars in delays)
        waiting = [delay_agent(agent, env, bars) for bars in delays for agent in agents]
        lanes = lanes_of(waiting, params, market, sessions, config, steps)
        records = run_lanes(env, lanes, "strategy")
        profit = [int(record.equity[-1]) / 1000 for record in records]
        late = [int(np.sum(record.action == TOO_LATE)) for record in records]
        notes = (
            f"{several(0, 'bar')}: executed at the next bar, as in training and in the evaluation",
            "an agent does not see its decisions on their way, so it may repeat one; the repeat comes too late",
        )
    else:
        if kind == "costs":
            variants = {name: (env, priced) for name, priced in _cost_rows(params)}
        else:
            modes = MODES if params.market.path else MODES[:2]
            variants = {
                mode: (TradingEnv(env.config.model_copy(update={"intrabar": mode})), params)
                for mode in modes
            }
        rows = tuple(variants)
        run = evaluator_of(env).evaluate
        results = [
            run(*of, market, sessions, config, agents, steps=steps) for of in variants.values()
        ]
        profit = [
            agent.strategy_figures["net_profit"] for result in results for agent in result.agents
        ]
        if kind == "costs":
            own = next(
                result.settings
                for (_, priced), result in zip(variants.values(), results, strict=True)
                if jax.tree.all(jax.tree.map(np.array_equal, _charges(priced), _charges(params)))
            )
            notes = tuple(_cost_notes(own))
        elif len(rows) < len(MODES):
            notes = ("path: this run has no second bars (--seconds FILE)",)
    shape = len(rows), len(agents)
    return Grid(
        kind,
        rows,
        tuple(agent.name for agent in agents),
        np.reshape(profit, shape),
        notes,
        np.reshape(late, shape) if late else NOTHING,
    )


def format_results(found: Mapping[str, Sequence[Grid | SlotAttribution]], as_json: bool) -> str:
    """Format the results of each symbol as JSON or text.

    That of a single symbol stands for itself.
    """
    if as_json:
        documents = documents_of(found)
        return json_text(documents if len(found) > 1 else next(iter(documents.values())))
    texts = {symbol: "\n\n".join(each.table() for each in own) for symbol, own in found.items()}
    return "\n\n".join(
        f"{symbol}\n{text}" if len(texts) > 1 else text for symbol, text in texts.items()
    )


def documents_of(
    found: Mapping[str, Sequence[Grid | SlotAttribution]],
) -> dict[str, dict[str, Any]]:
    """Return the results as plain data: symbol -> title -> data."""
    return {symbol: {each.title: each.to_json() for each in own} for symbol, own in found.items()}
