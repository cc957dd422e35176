"""The actions of `allocate`, which of them are legal, and its observation.

The observation is features of the decision bar and the position of each symbol, and the account.

A symbol's features are those of its own bars, computed by `data.features` and shown at the shared
bar's close.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.config import EnvConfig
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.data.features.schema import NOW, context_features
from jaxtrade.env import rules
from jaxtrade.env.observation import BARS_PER_DAY, ObservationSpec, feature_slot
from jaxtrade.env.portfolio.state import PortfolioParams, PortfolioState
from jaxtrade.env.rules import ceil_div
from jaxtrade.env.state import NO_LEVEL, ObservationRef, Slot, bits_of
from jaxtrade.errors import ConfigError
from jaxtrade.types import Array, MarketView

# --- The action tables of the task `allocate`: names, and the units that an action wants.
#
# docs/semantics.md, "Several symbols in one account", points 16 to 18. Names contain the symbols,
# because a transfer between runs matches actions by name.

SIDES = (0, 1, -1)  # flat first, so that id 0 of a target table is all flat
WORDS = {0: "FLAT", 1: "LONG", -1: "SHORT"}


def action_names(config: AllocateConfig, symbols: tuple[str, ...]) -> tuple[str, ...]:
    """List the names of the A actions, in the order of their ids."""
    if config.actions == "increment":
        return ("HOLD", *(f"{word}_{symbol}" for symbol in symbols for word in ("BUY", "SELL")))
    if config.actions == "table":
        return tuple(WORDS[side] for side in SIDES)
    return tuple(
        "_".join(f"{WORDS[side]}_{symbol}" for side, symbol in zip(sides, symbols, strict=True))
        for sides in itertools.product(SIDES, repeat=len(symbols))
    )


def _moves(config: AllocateConfig, count: int) -> np.ndarray:
    """Return the units that an action adds (`increment`) or its targets' sign (int32[A, S])."""
    if config.actions == "increment":
        moves = np.zeros((2 * count + 1, count), np.int32)
        for s in range(count):
            moves[2 * s + 1, s], moves[2 * s + 2, s] = 1, -1
        return moves
    if config.actions == "table":
        return np.repeat(np.array(SIDES, np.int32)[:, None], count, axis=1)
    return np.array(list(itertools.product(SIDES, repeat=count)), np.int32)


def list_targets(config: AllocateConfig, units: Array, max_units: Array) -> Array:
    """Return the units of each symbol after each action (int32[A, S]).

    Args:
        units: int32[S], those held.
        max_units: int32[].
    """
    moves = jnp.asarray(_moves(config, units.shape[-1]))
    return units + moves if config.actions == "increment" else moves * max_units


def may_close_part(config: AllocateConfig) -> bool:
    """Return whether an order may close a part of a leg.

    Then the price paid for the part needs a division.
    """
    return config.actions == "increment" and config.max_units > 1


# --- Which actions are legal: permissions to trade, and caps on the positions after an action


class Choices(NamedTuple):
    """What each action would do.

    quantity: int32[A, S] contracts.
    changed: int32[A] legs.
    legal: bool[A].
    """

    quantity: Array
    changed: Array
    legal: Array


def bars_until_order(state: PortfolioState, params: PortfolioParams) -> Array:
    """Return the bars until `cooldown` and `gate` allow an order; 0 if they do now (int32[])."""
    limits, first = params.limits, params.market.sessions.first[params.sessions.ids[state.slot]]
    cool = jnp.maximum(state.last_order + limits.cooldown + 1 - state.row, 0)
    return cool + (first - state.row - cool) % limits.gate


def trades_left(state: PortfolioState, params: PortfolioParams) -> Array:
    """Return the number of legs that orders may still change in this session (int32[])."""
    return params.limits.trades - state.orders


def choices(config: AllocateConfig, state: PortfolioState, params: PortfolioParams) -> Choices:
    """Return the actions at the close of `state.row`. It reads no later bar."""
    limits, held = params.limits, state.legs.quantity
    units = list_targets(config, held // limits.size, limits.max_units)
    quantity = units * limits.size
    differs = quantity != held
    changed = differs.sum(axis=-1)
    opens = (differs & ((jnp.abs(quantity) > jnp.abs(held)) | (quantity * held < 0))).any(axis=-1)
    sizes = jnp.abs(units)
    within = (
        (sizes.max(axis=-1) <= limits.max_units)
        & (sizes.sum(axis=-1) <= limits.max_total)
        & (jnp.abs(quantity).sum(axis=-1) <= params.account.max_contracts)
    )
    permitted = (bars_until_order(state, params) == 0) & (changed <= trades_left(state, params))
    legal = (changed == 0) | (permitted & (~opens | (within & rules.may_open(state, params))))
    return Choices(quantity, changed, legal)


LEG = (  # `.SYMBOL` is added to the names
    Slot("position", "account", 0, "contracts, as a share of the largest position", -1, 1),
    Slot("open_profit", "account", 0, "open profit per contract in ATRs of the symbol"),
    Slot("bars_in_position", "account", 0, "bars since the leg was opened / 390", 0),
)
ACCOUNT = (
    Slot("profit", "account", 0, "equity in risk units"),
    Slot("room", "account", 0, "equity above the higher floor in risk units, 1 without", maximum=1),
    Slot("to_flat", "account", 0, "bars to the flat time / 390", 0),
    Slot("wait", "account", 0, "bars until an order is allowed / 10", 0, 1),
    Slot("trades_left", "account", 0, "positions that orders may still change / 10", maximum=1),
)
MOST_WAITING = 10.0  # bars and trades are shown in tens, at most 1


class AccountNow(NamedTuple):
    """The visible part of the account, int32[].

    Equity, room above the higher floor (mills; `NO_LEVEL` without one), bars to the flat time, bars
    until an order is allowed, legs that orders may still change.
    """

    equity: Array
    room: Array
    to_flat: Array
    wait: Array
    left: Array


def make_spec(
    config: EnvConfig, allocate: AllocateConfig, symbols: tuple[str, ...]
) -> ObservationSpec:
    """List the slots: of each symbol in turn, then of the account (`preset: full`)."""
    slots, full = [], allocate.preset == "full"
    for symbol in symbols:
        slots += [feature_slot(name, f"[t].{symbol}") for name in context_features(config.task)]
        slots += [
            replace(slot, name=f"{slot.name}.{symbol}") for slot in (LEG if full else LEG[:1])
        ]
    return ObservationSpec((*slots, *(ACCOUNT if full else ())), config.scaling)


def make_ref(
    allocate: AllocateConfig, state: PortfolioState, mask: Array, params: PortfolioParams
) -> ObservationRef:
    """Build the reference of the observation at `state`.

    The entry of a leg is the mean price paid, rounded up to whole ticks.

    Args:
        mask: bool[A] of the same state.
    """
    legs, market = state.legs, params.market
    size, side = jnp.abs(legs.quantity), jnp.sign(legs.quantity)
    entry = ceil_div(side * legs.paid, jnp.maximum(size, 1))
    bars = jnp.where(size > 0, state.row - legs.opened + 1, 0)
    none = side * NO_LEVEL
    account = None
    if allocate.preset == "full":
        floor = rules.highest_floor(state.account, params.account)
        room = jnp.where(floor == rules.NO_FLOOR, NO_LEVEL, state.account.equity - floor)
        account = AccountNow(
            state.account.equity,
            room,
            market.bars_to_flat[state.row],
            bars_until_order(state, params),
            trades_left(state, params),
        )
    shown = jnp.stack([legs.quantity, entry, -none, none, bars], axis=-1)
    return ObservationRef(
        row=market.rows[state.row],
        legs=shown,
        account=account,
        legal=bits_of(mask),
        aux=None,
        num_actions=mask.shape[-1],
    )


def observe(
    config: EnvConfig, allocate: AllocateConfig, ref: ObservationRef, params: PortfolioParams
) -> Array:
    """Compute the observation (float32[D]).

    It reads the reference, the views of the symbols at their rows, and constants of `params`.

    Raises ConfigError if the market was made for another task or scaling.
    """
    parts, count = [], len(context_features(config.task))
    for s, view in enumerate(params.market.views):
        if (
            view.context is None
            or view.context.shape[-1] != count
            or view.scaling != config.scaling
        ):
            raise ConfigError(
                f"the markets were made for another task or env.scaling={view.scaling}, the environment "
                f"for {config.task} and {config.scaling}; make both from one configuration"
            )
        row, leg = ref.row[s], ref.legs[s]
        parts += [view.context[row], _leg(allocate, leg, s, params)]
        if allocate.preset == "full":
            parts.append(_open(leg, view, row))
    if allocate.preset == "full":
        parts.append(_account(ref.account, params))
    return jnp.concatenate(parts)


def _leg(allocate: AllocateConfig, leg: Array, s: int, params: PortfolioParams) -> Array:
    """Return the position as a share of the largest one (float32[1])."""
    most = params.limits.size[s] * params.limits.max_units
    return leg[:1].astype(jnp.float32) * (1.0 / most.astype(jnp.float32))


def _open(leg: Array, view: MarketView, row: Array) -> Array:
    """Return the open profit and the holding time of a leg (float32[2]).

    The profit is per contract in ATRs of the symbol, the time in bars / 390.
    """
    now = dict(zip(NOW, view.now[row], strict=True))
    base, quantity, entry, bars = view.base, leg[0], leg[1], leg[4]
    side = jnp.sign(quantity).astype(jnp.float32)
    paid = (entry if base is None else entry - base).astype(jnp.float32)
    profit = jnp.where(quantity != 0, side * (now["close"] - paid) * now["per_atr"], 0.0)
    return jnp.stack([profit, bars.astype(jnp.float32) * (1.0 / BARS_PER_DAY)])


def _account(seen: AccountNow, params: PortfolioParams) -> Array:
    """Compute the values of `ACCOUNT` (float32[5])."""
    unit, ten = 1.0 / params.account.risk_unit, 1.0 / MOST_WAITING
    equity, room, to_flat, waiting, left = (x.astype(jnp.float32) for x in seen)
    return jnp.stack(
        [
            equity * unit,
            jnp.minimum(room * unit, 1.0),
            to_flat * (1.0 / BARS_PER_DAY),
            jnp.minimum(waiting * ten, 1.0),
            jnp.minimum(left * ten, 1.0),
        ]
    )
