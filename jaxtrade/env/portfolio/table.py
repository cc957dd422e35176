"""The action tables of the task `allocate`: names, and the units that an action wants.

docs/semantics.md, "Several symbols in one account", points 16 to 18. Names contain the symbols,
because a transfer between runs matches actions by name.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np

from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.types import Array

SIDES = (0, 1, -1)  # flat first, so that id 0 of a target table is all flat
WORDS = {0: "FLAT", 1: "LONG", -1: "SHORT"}


def names(config: AllocateConfig, symbols: tuple[str, ...]) -> tuple[str, ...]:
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
