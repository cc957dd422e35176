"""The environment of the task `allocate`, and the costs and fills of all legs.

One step is one shared bar of S symbols in one account.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxtrade.config import EnvConfig
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.env import dynamics, monitor, rules
from jaxtrade.env.dynamics import MarketEnv
from jaxtrade.env.episode import (
    below,
    count_change,
    count_step,
    draw,
    drawn_row,
    end_reason,
    is_truncation,
    new_stats,
)
from jaxtrade.env.execution import Quote, quote_at, select, settle
from jaxtrade.env.observation import ObservationSpec
from jaxtrade.env.portfolio import observation
from jaxtrade.env.portfolio.state import (
    NEVER,
    CostParams,
    Legs,
    PortfolioEvent,
    PortfolioParams,
    PortfolioState,
)
from jaxtrade.env.rewards import StepEvent, total, weighted_terms
from jaxtrade.env.rules import ceil_div, money_of, muldiv
from jaxtrade.env.state import (
    Account,
    AccountParams,
    ContractParams,
    EndReason,
    EpisodeStats,
    ExitReason,
    Marks,
    ObservationRef,
    StepInfo,
)
from jaxtrade.text import short_repr
from jaxtrade.types import Array, Outcome

# --- Costs of a fill: commission, fee, a share of the notional, and an impact that grows with the
# notional's square root.
#
# All integers; docs/semantics.md, "Several symbols in one account", points 8 and 9.

PER_ONE = 1_000_000_000  # a rate of 1, in the unit of `CostParams.rate`
SHARES = 100_000_000  # a participation of 1; its square root is in units of 10^-4
MOST_BASES = 20  # the largest notional that an impact may have, in bases: 20 * SHARES fits int32


def notional(contracts: Array, price: Array, contract: ContractParams) -> Array:
    """Return the value of `contracts` (any sign) at `price` (ticks), elementwise.

    It is int32 mills >= 0.
    """
    return jnp.abs(money_of(contracts * price, contract))


def root_of(value: Array) -> Array:
    """Return floor(sqrt(value)) of int32 0 <= value <= 20 * 10^8, exactly.

    The float32 root is less than one away from the exact root, so at most one correction is needed
    on each side.
    """
    near = jnp.sqrt(value.astype(jnp.float32)).astype(jnp.int32)
    near = near - (near * near > value)
    return near + ((near + 1) * (near + 1) <= value)


def share_of(value: Array, costs: CostParams) -> Array:
    """Return the part of a notional `value` (mills) that a fill of it pays (int32 mills).

    It is rounded once, half to even.
    """
    rate = jnp.int32(0) if costs.rate is None else costs.rate
    if costs.impact is not None:
        rate = rate + costs.impact * root_of(muldiv(value, jnp.int32(SHARES), costs.base))
    if costs.rate is None and costs.impact is None:
        return jnp.zeros_like(value)
    return muldiv(value, rate, jnp.int32(PER_ONE))


def fill_cost(contracts: Array, value: Array, contract: ContractParams, costs: CostParams) -> Array:
    """Return all costs of a fill but slippage (int32 mills); 0 without contracts.

    Args:
        value: its notional (mills), elementwise.
    """
    size = jnp.abs(contracts)
    return jnp.where(size > 0, size * contract.commission + costs.fee + share_of(value, costs), 0)


# --- Fills of all legs of an account in one bar: orders at the open, joint liquidation, exits at
# the flat bar.
#
# `Book` holds what a bar has done so far, [S] for S symbols. Conventions: docs/semantics.md,
# "Several symbols in one account". The legs of one symbol (`env.execution`) open from flat only;
# these add to a position and take parts of it.


class Terms(NamedTuple):
    """What a fill of the bar costs.

    contract: leaves [S], those of this bar.
    """

    contract: ContractParams
    costs: CostParams


class Fill(NamedTuple):
    """A fill of each leg, int32[S].

    The signed change of the position, and its price in ticks; both 0 without a fill.
    """

    quantity: Array
    price: Array


class Book(NamedTuple):
    """The legs inside a bar.

    cash, cost: int32[S] mills booked in the bar.
    turnover: int32[] mills.
    """

    quantity: Array
    paid: Array
    cash: Array
    cost: Array
    turnover: Array

    @classmethod
    def of(cls, legs: Legs) -> Book:
        """Return the legs at the start of a bar."""
        zero = jnp.zeros_like(legs.quantity)
        return cls(legs.quantity, legs.paid, zero, zero, jnp.int32(0))

    @property
    def side(self) -> Array:
        """int32[S]: the sign of each position."""
        return jnp.sign(self.quantity)

    def marks(self, prices: Array, contract: ContractParams) -> Array:
        """Return the open profit (int32[S] mills) of each leg at `prices` (int32[S] ticks)."""
        return money_of(self.quantity * prices - self.paid, contract)

    def worth(self, prices: Array, contract: ContractParams) -> Array:
        """Return booked cash plus open profit of all legs (int32[] mills)."""
        return self.cash.sum() + self.marks(prices, contract).sum()


def _book(
    book: Book, fill: Fill, profit: Array, paid: Array, terms: Terms, cost: Array | None = None
) -> Book:
    value = notional(fill.quantity, fill.price, terms.contract)
    cost = (
        fill_cost(fill.quantity, value, *terms)
        if cost is None
        else jnp.where(fill.quantity != 0, cost, 0)
    )
    return Book(
        book.quantity + fill.quantity,
        paid,
        book.cash + profit - cost,
        book.cost + cost,
        book.turnover + value.sum(),
    )


def close_part(
    book: Book,
    keep: Array,
    price: Array,
    terms: Terms,
    cost: Array | None = None,
    partly: bool = False,
) -> tuple[Book, Fill]:
    """Close each leg down to `keep` contracts at `price` (both int32[S], slipped).

    Args:
        keep: of the sign of the position or 0, and not larger.
        cost: int32[S] mills instead of the fill's own costs.
        partly: static; False if each leg is closed whole or not at all, which needs no division.
    """
    change = keep - book.quantity
    when = change != 0
    taken = book.paid
    if partly:
        part = muldiv(book.paid, jnp.abs(change), jnp.maximum(jnp.abs(book.quantity), 1))
        taken = jnp.where(keep == 0, book.paid, part)
    profit = jnp.where(when, money_of(-change * price - taken, terms.contract), 0)
    fill = Fill(change, jnp.where(when, price, 0))
    return _book(
        book, fill, profit, jnp.where(when, book.paid - taken, book.paid), terms, cost
    ), fill


def open_part(book: Book, want: Array, price: Array, terms: Terms) -> tuple[Book, Fill]:
    """Open what each leg lacks of `want` contracts at `price` (both int32[S], slipped).

    No leg may have another side.
    """
    change = want - book.quantity
    fill = Fill(change, jnp.where(change != 0, price, 0))
    return _book(book, fill, jnp.zeros_like(change), book.paid + change * price, terms), fill


def orders(
    book: Book, want: Array, quote: Quote, terms: Terms, partly: bool
) -> tuple[Book, Fill, Fill]:
    """Fill the orders at the open and return (book, closed, opened).

    Legs are closed first, then opened.

    Args:
        want: int32[S] contracts.
        partly: as in `close_part`.
    """
    held, slip = book.side, terms.contract.slippage
    same = jnp.sign(want) == held
    keep = jnp.where(same, held * jnp.minimum(jnp.abs(want), jnp.abs(book.quantity)), 0)
    book, closed = close_part(
        book, keep, quote.leaving(held).open - held * slip, terms, partly=partly
    )
    wanted = jnp.sign(want)
    book, opened = open_part(book, want, quote.entering(wanted).open + wanted * slip, terms)
    return book, closed, opened


def leave(
    book: Book, when: Array, price: Array, terms: Terms, cost: Array | None = None
) -> tuple[Book, Fill]:
    """Close all legs at `price` (int32[S] ticks) less slippage, if `when` (bool[])."""
    keep = jnp.where(when, 0, book.quantity)
    return close_part(book, keep, price - book.side * terms.contract.slippage, terms, cost)


class Floors(NamedTuple):
    """The floors of the account inside a bar.

    account: that at the start of the bar.
    high: int32[] mills, the highest sum of cash and marks in the bar so far.
    """

    account: Account
    limits: AccountParams
    high: Array

    def mark(self, worth: Array) -> Floors:
        """Update the floors after a mark of all legs, cash of the bar included."""
        return self._replace(high=jnp.maximum(self.high, worth))

    def room(self, worth: Array) -> Array:
        """Return how far net equity is above the higher floor (int32[] mills).

        It is at most 0 if the floor is met. Without a floor it is positive.

        Args:
            worth: net of exit costs.
        """
        raised = rules.high_water_at(self.account, self.account.balance + self.high, self.limits)
        floor = rules.highest_floor(self.account.replace(high_water=raised), self.limits)
        return jnp.where(floor == rules.NO_FLOOR, 1, self.account.balance + worth - floor)


def _steps(
    book: Book,
    bar_open: Array,
    worst: Array,
    met: Array,
    within: Array,
    exits: Array,
    floors: Floors,
    terms: Terms,
) -> Array:
    """Return the prices of the first step at which the floor is met, where `met` (int32[S] ticks).

    Net equity never rises from one step to the next, so the step is found by halving. The loop does
    nothing in a batch without a breach, which is the usual case.
    """
    far = jnp.abs(bar_open - worst) * (book.quantity != 0)
    most = far.max()

    def at(step: Array) -> Array:
        # `params` refuses bars whose distances could pass int32 when multiplied.
        return bar_open - book.side * ceil_div(far * step, jnp.maximum(most, 1))

    def halve(bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        reached = floors.room(book.worth(at(middle), terms.contract) - exits) <= 0
        return jnp.where(reached, low, middle + 1), jnp.where(reached, middle, high)

    start = jnp.int32(0), jnp.where(met & ~within, most, 0)
    _, step = jax.lax.while_loop(lambda bounds: bounds[0] < bounds[1], halve, start)
    return at(step)


def liquidation(
    book: Book, quote: Quote, floors: Floors, terms: Terms
) -> tuple[Book, Fill, Floors]:
    """Apply the floors inside the bar, after its orders.

    Returns:
        (book, what was liquidated, floors after the favourable marks).
    """
    side = book.side
    prices = quote.leaving(side)
    held = (side != 0).any()
    value = notional(book.quantity, prices.open, terms.contract)
    each = fill_cost(book.quantity, value, *terms)
    exits = each.sum()
    opening = held & (floors.room(book.worth(prices.open, terms.contract) - exits) <= 0)
    best = jnp.where(side > 0, prices.high, prices.low)
    worst = jnp.where(side > 0, prices.low, prices.high)
    raised = floors.mark(book.worth(best, terms.contract))
    met = held & (raised.room(book.worth(worst, terms.contract) - exits) <= 0)
    level = _steps(book, prices.open, worst, met, opening, exits, raised, terms)
    level = jnp.where(opening, prices.open, level)
    after, fill = leave(book, opening | met, level, terms, each)
    # A liquidation at the open comes before any favourable price.
    high = jnp.where(opening, floors.mark(after.cash.sum()).high, raised.high)
    return after, fill, raised._replace(high=high)


def exit_reason(liquidated: Fill, flat: Fill, complete: Array) -> Array:
    """Return the `ExitReason` of the exits of a bar that no order asked for (int32[S]).

    Args:
        complete: bool[] of the session.
    """
    forced = jnp.where(complete, ExitReason.FLAT, ExitReason.END_OF_DATA)
    reason = jnp.where(flat.quantity != 0, forced, ExitReason.NONE)
    return jnp.where(liquidated.quantity != 0, ExitReason.LIQUIDATION, reason).astype(jnp.int32)


# --- The environment


def transition(
    partly: bool, state: PortfolioState, want: Array, params: PortfolioParams
) -> tuple[PortfolioState, PortfolioEvent]:
    """Advance one shared bar with all legs, without session jump or reset.

    `state.row` must be a decision bar.

    Args:
        partly: static, as in `close_part`.
        want: int32[S] contracts from the next open on.
    """
    market, row = params.market, state.row + 1
    quote, terms = quote_at(market, row), Terms(rules.contract_at(params, row), params.costs)
    session = params.sessions.ids[state.slot]
    book = Book.of(state.legs)
    opening = book.worth(quote.leaving(book.side).open, terms.contract)
    floors = Floors(state.account, params.account, opening)
    book, closed, opened = orders(book, want, quote, terms, partly)
    book, liquidated, floors = liquidation(book, quote, floors, terms)
    at_flat_bar = row > market.sessions.last[session]
    book, flattened = leave(book, at_flat_bar, quote.leaving(book.side).close, terms)
    marks = book.marks(quote.leaving(book.side).close, terms.contract)
    left = Fill(liquidated.quantity + flattened.quantity, liquidated.price + flattened.price)
    event = PortfolioEvent(
        closed.quantity,
        closed.price,
        opened.quantity,
        opened.price,
        left.quantity,
        left.price,
        exit_reason(liquidated, flattened, market.sessions.complete[session]),
        book.cash,
        book.cost,
        book.cash + marks - state.legs.mark,
        book.turnover,
        jnp.int32(0),
        jnp.bool_(False),
    )
    account, breach = settle(
        state.account,
        book.cash.sum(),
        Marks(floors.high, marks.sum()),
        event.has_fill.any(),
        params.account,
    )
    event = event.replace(floor=rules.drawdown_floor(account, params.account), breach=breach)
    legs, stats = _book_legs(state, book, marks, event, terms.contract)
    return state.replace(
        row=row, time=state.time + 1, legs=legs, account=account, stats=stats
    ), event


def _book_legs(
    state: PortfolioState, book: Book, marks: Array, event: PortfolioEvent, contract: ContractParams
) -> tuple[Legs, EpisodeStats]:
    """Return the legs after the bar, and the statistics with its fills.

    A round turn ends when a leg is flat or changes its side. It is won if all that the leg booked
    since it was flat is positive; of a flip, the costs of the new side count to the old one.
    """
    before, quantity = state.legs.quantity, book.quantity
    turned = (before != 0) & (jnp.sign(quantity) != jnp.sign(before))
    inside = (
        (before == 0) & (event.open_quantity != 0) & (quantity == 0)
    )  # opened and left in the same bar
    flipped = (event.close_quantity != 0) & (event.open_quantity != 0)
    twice = turned & flipped & (quantity == 0)  # a flip that left again
    ended = turned | inside
    net = state.legs.net + book.cash
    fresh = (before == 0) | turned
    legs = Legs(
        quantity,
        book.paid,
        marks,
        jnp.where(fresh, state.row + 1, state.legs.opened),
        jnp.where(ended, 0, net),
    )
    legs = legs.replace(opened=jnp.where(quantity != 0, legs.opened, 0))
    sides = (
        jnp.abs(event.close_quantity) + jnp.abs(event.open_quantity) + jnp.abs(event.exit_quantity)
    )
    stats = state.stats
    return legs, stats.replace(
        trades=stats.trades + ended.sum(dtype=jnp.int32) + twice.sum(dtype=jnp.int32),
        wins=stats.wins + (ended & (net > 0)).sum(dtype=jnp.int32),
        sides=stats.sides + sides.sum(dtype=jnp.int32),
        commission=stats.commission + book.cost.sum(),
        breaches=stats.breaches + event.breach.astype(jnp.int32),
        monitor=stats.monitor
        and monitor.add_traded(stats.monitor, event.turnover.astype(jnp.float32)),
    )


def next_session(state: PortfolioState, params: PortfolioParams) -> PortfolioState:
    """Return the state at the first decision bar of the next session of the split.

    The account is carried over.
    """
    following = dynamics.next_session(state, params)
    return following.replace(orders=jnp.int32(0), last_order=jnp.int32(NEVER))


@dataclass(frozen=True)
class PortfolioEnv(MarketEnv[PortfolioState]):
    """The environment of `allocate`: shared bars of several symbols, held jointly in one account.

    Static and hashable, as `TradingEnv`. symbols: in the order of the legs.

    Observation: float32[D], of each symbol in turn, then of the account (`observation_spec` has
    every slot with its bounds). `allocate.preset=dual_26` shows FEATURE[t] and position alone.

        slot                     range   meaning
        FEATURE[t].SYMBOL                the features of the symbol's own bar (docs/symbols.md)
        position.SYMBOL          -1..1   contracts, as a share of the largest position
        open_profit.SYMBOL               open profit per contract in ATRs of the symbol
        bars_in_position.SYMBOL  0..     bars since the leg was opened / 390
        profit                           equity in risk units
        room                     ..1     equity above the higher floor in risk units, 1 without
        to_flat                  0..     bars to the flat time / 390
        wait                     0..1    bars until an order is allowed / 10
        trades_left              ..1     positions that orders may still change / 10

    Action: int32[], an id in 0 .. A - 1 (`action_spec`); the names say what becomes of each symbol
    (`allocate.actions`). An illegal action changes no position and is counted.

    Reward, `terminated` and `truncated` are those of `TradingEnv`.

        >>> import jax
        >>> import jaxtrade
        >>> days = ["data.start=2014-01-02", "data.end=2014-12-31"]
        >>> config = jaxtrade.load_config("fx_allocate", days)
        >>> market = jaxtrade.load_markets(config)
        >>> sessions = jaxtrade.split_sessions(market, config.split)["train"]
        >>> env, params = jaxtrade.make_env(config), jaxtrade.make_params(market, sessions, config)
        >>> state, ref = env.reset(jax.random.key(0), params)
        >>> env.observe(ref, params).shape == env.observation_spec.shape
        True
        >>> action = jax.numpy.int32(env.num_actions - 1)
        >>> env.action_spec.names[-1]
        'SHORT_EURUSD_SHORT_USDJPY'
        >>> state, ref, outcome = jax.jit(env.step)(jax.random.key(1), state, action, params)
        >>> state.legs.quantity.tolist()
        [-1, -1]
    """

    config: EnvConfig
    allocate: AllocateConfig
    symbols: tuple[str, ...]
    has_brackets: ClassVar[bool] = False

    def __repr__(self) -> str:
        return short_repr(
            "PortfolioEnv",
            *self.symbols,
            f"{self.observation_size} observations",
            f"actions: {', '.join(self.actions)}",
        )

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the A actions, in the order of their ids."""
        return observation.action_names(self.allocate, self.symbols)

    @property
    def observation_spec(self) -> ObservationSpec:
        """The slots of the observation."""
        return observation.make_spec(self.config, self.allocate, self.symbols)

    @property
    def title(self) -> str:
        """The task in words."""
        return f"{self.config.task} ({self.allocate.actions})"

    @property
    def sections(self) -> dict[str, Any]:
        """The sections of the configuration that it is made of, besides `env`."""
        return {"allocate": self.allocate.model_dump(mode="json")}

    def reset_at(
        self,
        params: PortfolioParams,
        slot: Array | int,
        row: Array | int,
        seed: Array | int = 0,
        episode: Array | int = 0,
    ) -> PortfolioState:
        """Open a new account, flat, at the close of shared bar `row`.

        The bar lies in session `slot` of the split.
        """
        return PortfolioState(
            row=jnp.int32(row),
            slot=jnp.int32(slot),
            sessions_left=params.episode_sessions - 1,
            time=jnp.int32(0),
            legs=Legs.flat(len(self.symbols)),
            account=Account.new(),
            stats=new_stats(params),
            seed=jnp.uint32(seed),
            episode=jnp.int32(episode),
            last_order=jnp.int32(NEVER),
            orders=jnp.int32(0),
        )

    def _begin(self, seed: Array, episode: Array, params: PortfolioParams) -> PortfolioState:
        slot = below(draw(seed, episode, 1), params.sessions.count)
        row = drawn_row(params, slot, seed, episode, self.config.random_start)
        return self.reset_at(params, slot, row, seed, episode)

    def mask(self, state: PortfolioState, params: PortfolioParams) -> Array:
        """Return the legal actions at `state` (bool[A])."""
        return observation.choices(self.allocate, state, params).legal

    def ref(self, state: PortfolioState, params: PortfolioParams) -> ObservationRef:
        """Return the stored form of the observation at `state`."""
        return observation.make_ref(self.allocate, state, self.mask(state, params), params)

    def observe(self, ref: ObservationRef, params: PortfolioParams) -> Array:
        """Return the observation of a reference (float32[D])."""
        values = observation.observe(self.config, self.allocate, ref, params)
        chex.assert_shape(values, (self.observation_size,))
        return values

    def transition(
        self, state: PortfolioState, want: Array, params: PortfolioParams
    ) -> tuple[PortfolioState, PortfolioEvent]:
        """Advance one shared bar with the wanted contracts int32[S]; see `dynamics.transition`."""
        return transition(observation.may_close_part(self.allocate), state, want, params)

    def place_order(
        self, state: PortfolioState, action: Array, params: PortfolioParams
    ) -> tuple[PortfolioState, Array, Array]:
        """Decode an action to an order.

        Returns:
            (state with the order counted, wanted contracts int32[S], bool[] whether the
            action is illegal).
        """
        known = observation.choices(self.allocate, state, params)
        chosen = jnp.arange(self.num_actions) == action
        legal = (known.legal & chosen).any()
        want = jnp.where(legal, (known.quantity * chosen[:, None]).sum(axis=0), state.legs.quantity)
        changed = jnp.where(legal, (known.changed * chosen).sum(), 0)
        return self.count_order(state, changed), want.astype(jnp.int32), ~legal

    @staticmethod
    def count_order(state: PortfolioState, changed: Array) -> PortfolioState:
        """Count an order that changes `changed` legs (int32[]; 0 is no order) in the state."""
        return state.replace(
            orders=state.orders + changed.astype(jnp.int32),
            last_order=jnp.where(changed > 0, state.row, state.last_order),
        )

    def advance(
        self, state: PortfolioState, action: Array, params: PortfolioParams
    ) -> tuple[PortfolioState, Outcome[ObservationRef]]:
        """Decode an action (int32[]) and advance one shared bar, without auto-reset.

        At the end of a session it jumps to the next one.
        """
        chex.assert_rank(action, 0)
        chex.assert_type(action, int)
        before, want, illegal = self.place_order(state, action, params)
        moved, event = self.transition(before, want, params)
        end = end_reason(moved, params)
        step = StepEvent(action, illegal, event, self.actions)
        terms = weighted_terms(state, moved, step, params)
        stats = count_step(moved.stats, moved.account.equity, terms, illegal)
        moved = moved.replace(
            stats=count_change(stats, moved.account.equity - state.account.equity)
        )
        done = end != EndReason.NONE
        over = moved.row > params.market.sessions.last[params.sessions.ids[moved.slot]]
        going_on = select(over & ~done, next_session(moved, params), moved)
        truncated = is_truncation(end)
        return going_on, Outcome(
            final_ref=self.ref(going_on, params),
            reward=total(terms),
            terminated=done & ~truncated,
            truncated=truncated,
            info=StepInfo(event, moved.stats, moved.account.equity, end, terms, illegal),
        )
