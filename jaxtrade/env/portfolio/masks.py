"""Which actions of `allocate` are legal: permissions to trade, and caps on the positions after an
action.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.env import rules
from jaxtrade.env.portfolio.state import PortfolioParams, PortfolioState
from jaxtrade.types import Array

# The action tables of the task `allocate`: names, and the units that an action wants.
#
# docs/semantics.md, "Several symbols in one account", points 16 to 18. Names contain the symbols,
# because a transfer between runs matches actions by name.

SIDES = (0, 1, -1)  # flat first, so that id 0 of a target table is all flat
WORDS = {0: "FLAT", 1: "LONG", -1: "SHORT"}


def action_names(config: AllocateConfig, symbols: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the A actions, in the order of their ids."""
    if config.actions == "increment":
        return ("HOLD", *(f"{word}_{symbol}" for symbol in symbols for word in ("BUY", "SELL")))
    if config.actions == "table":
        return tuple(WORDS[side] for side in SIDES)
    return tuple(
        "_".join(f"{WORDS[side]}_{symbol}" for side, symbol in zip(sides, symbols, strict=True))
        for sides in itertools.product(SIDES, repeat=len(symbols))
    )


def _moves(config: AllocateConfig, count: int) -> np.ndarray:
    """int32[A, S]: units that an action adds (`increment`), or the sign of its targets."""
    if config.actions == "increment":
        moves = np.zeros((2 * count + 1, count), np.int32)
        for s in range(count):
            moves[2 * s + 1, s], moves[2 * s + 2, s] = 1, -1
        return moves
    if config.actions == "table":
        return np.repeat(np.array(SIDES, np.int32)[:, None], count, axis=1)
    return np.array(list(itertools.product(SIDES, repeat=count)), np.int32)


def wanted(config: AllocateConfig, units: Array, max_units: Array) -> Array:
    """int32[A, S]: units of each symbol after each action. units: int32[S], those held. max_units:
    int32[].
    """
    moves = jnp.asarray(_moves(config, units.shape[-1]))
    return units + moves if config.actions == "increment" else moves * max_units


def partly(config: AllocateConfig) -> bool:
    """Whether an order may close a part of a leg. Then the price paid for the part needs a
    division.
    """
    return config.actions == "increment" and config.max_units > 1


class Choices(NamedTuple):
    """What each action would do. quantity: int32[A, S] contracts. changed: int32[A] legs. legal:
    bool[A].
    """

    quantity: Array
    changed: Array
    legal: Array


def wait(state: PortfolioState, params: PortfolioParams) -> Array:
    """int32[]: bars until an order is allowed by `cooldown` and `gate`; 0 if one is allowed now."""
    limits, first = params.limits, params.market.sessions.first[params.sessions.ids[state.slot]]
    cool = jnp.maximum(state.last_order + limits.cooldown + 1 - state.row, 0)
    return cool + (first - state.row - cool) % limits.gate


def trades_left(state: PortfolioState, params: PortfolioParams) -> Array:
    """int32[]: legs that orders may still change in this session."""
    return params.limits.trades - state.orders


def choices(config: AllocateConfig, state: PortfolioState, params: PortfolioParams) -> Choices:
    """The actions at the close of `state.row`. It reads no later bar."""
    limits, held = params.limits, state.legs.quantity
    units = wanted(config, held // limits.size, limits.max_units)
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
    market: Any = params  # `may_open` reads the row, the lock, `bars_to_flat` and `tr_sum`, which both kinds have
    opening: Any = state
    permitted = (wait(state, params) == 0) & (changed <= trades_left(state, params))
    legal = (changed == 0) | (permitted & (~opens | (within & rules.may_open(opening, market))))
    return Choices(quantity, changed, legal)
