"""Observation (contract C3): named slots, a small stored reference, and the vector rebuilt from it.

Two scalings of the same slots. `seed` reproduces the old system's raw values (parity). `relative` is stationary by
construction: prices in ATRs from the last close, log volume ratios, time as fractions of the session.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from jaxtrade.config import EnvConfig
from jaxtrade.data.schema import feature_column, feature_spec, table_columns
from jaxtrade.env.actions import Action
from jaxtrade.env.state import NO_LEVEL, EnvParams, EnvState
from jaxtrade.types import Array

TIME_NAMES = ("hour", "minutes_from_open", "minutes_to_close")
TIME_SLOTS = {  # the table columns behind them
    "seed": ("hour", "from_open_seed", "to_close_seed"),
    "relative": ("hour", "from_open", "to_flat"),
}
POSITION_SLOTS = ("position", "entry", "stop_distance", "target_distance", "bars_in_position")
MANAGE_SLOTS = ("can_enter", "can_manage", "has_position")
BARS_PER_DAY = 390.0  # scale of bars_in_position, the cash session in minutes


class ObservationRef(struct.PyTreeNode):
    """What a rollout stores instead of the observation.

    row: int32[S]. legs: int32[S, 5] quantity, entry, stop, target, bars in position. mask: bool[A].
    account, aux: empty for `entry` and `manage` (tasks that show account statistics or advice put them there).
    """

    row: Array
    legs: Array
    account: Any
    mask: Array
    aux: Any


@dataclass(frozen=True)
class Slot:
    """One entry of the observation vector."""

    name: str
    unit: str
    warm_up: int


@dataclass(frozen=True)
class ObservationSpec:
    """Every slot in order; sizes are derived from it, never typed."""

    slots: tuple[Slot, ...]
    scaling: str

    @property
    def size(self) -> int:
        return len(self.slots)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)


@functools.lru_cache(maxsize=64)
def make_spec(config: EnvConfig) -> ObservationSpec:
    """Slots of a task: `window` bars times (features, three time values), position slots, and `manage` flags."""
    slots = []
    for back in range(config.window, 0, -1):
        slots += [Slot(f"{name}[t-{back}]", feature_spec(name).unit, feature_spec(name).warm_up)
                  for name in config.features]
        slots += [Slot(f"{name}[t-{back}]", "fraction", 0) for name in TIME_NAMES]
    slots += [Slot(name, "account", 0) for name in POSITION_SLOTS]
    if config.task == "manage":
        slots += [Slot(name, "flag", 0) for name in MANAGE_SLOTS]
    return ObservationSpec(tuple(slots), config.scaling)


def make_ref(state: EnvState, mask: Array) -> ObservationRef:
    """The reference of what is seen at `state`; mask: bool[A] of the same state."""
    position = state.position
    bars = jnp.where(position.quantity != 0, state.row - position.opened + 1, 0)
    leg = jnp.stack([position.quantity, position.entry, position.stop, position.target, bars])
    return ObservationRef(row=state.row[None], legs=leg[None], account=(), mask=mask, aux=())


def _decision_bar(row: Array, columns: tuple[str, ...]) -> dict[str, Array]:
    """`close` (ticks), `per_atr` (1 / ticks) and `per_volume` (1 / (mean volume + 1)) at the decision bar, float32[].

    Reciprocals, because a compiler may turn the division of a window by a scalar into a product, or may not: written
    out, the bits are the same in a batch and alone.
    """
    close, atr, volume = (row[columns.index(name)] for name in ("close", "atr", "volume_mean"))
    return {"close": close, "per_atr": 1.0 / atr, "per_volume": 1.0 / (volume + 1.0)}


def _scale(unit: str, scaling: str, x: Array, close: Array, now: dict[str, Array], tick: Array) -> Array:
    """One feature column of the window, float32[W], from its stored form (`data.schema`: prices in ticks).

    close: float32[W] closes of the same bars. now: figures of the decision bar, see `_decision_bar`.
    """
    if scaling == "seed":
        match unit:
            case "price":
                return (x + close) * tick
            case "move" | "range":
                return x * tick
            case "growth":
                return close / (close - x)
            case _:
                return x
    match unit:
        case "price":
            return (x + (close - now["close"])) * now["per_atr"]
        case "move" | "growth":
            return x * now["per_atr"]
        case "range":
            return jnp.log(jnp.maximum(x, 1.0) * now["per_atr"])
        case "volume":
            return jnp.log((x + 1.0) * now["per_volume"])
        case "index":
            return (x - 50.0) / 50.0
        case "negative_index":
            return (x + 50.0) / 50.0
        case "score":
            return x / 100.0
        case "ratio":
            return x - 1.0
        case "share":
            return x * (close * now["per_atr"])
        case _:
            return x


def _window_slots(config: EnvConfig, window: Array, now: dict[str, Array], tick: Array) -> Array:
    """float32[W * (F + 3)], bar-major, oldest bar first."""
    columns = table_columns(config.features)

    def column(name: str) -> Array:
        return window[:, columns.index(name)]

    close = column("close")
    values = [
        _scale(feature_spec(name).unit, config.scaling, column(feature_column(name)), close, now, tick)
        for name in config.features
    ]
    values += [column(name) for name in TIME_SLOTS[config.scaling]]
    return jnp.stack(values, axis=1).reshape(-1)


def _position_slots(config: EnvConfig, leg: Array, now: dict[str, Array]) -> Array:
    """float32[5]: side, entry against the close, stop and target distance in ATRs (0: none), time held."""
    quantity, entry, stop, target, bars = leg
    side = jnp.sign(quantity).astype(jnp.float32)
    held = quantity != 0
    close, per_atr = now["close"], now["per_atr"]

    def distance(level: Array) -> Array:
        exists = held & (jnp.abs(level) < NO_LEVEL)
        return jnp.where(exists, jnp.abs(level.astype(jnp.float32) - close) * per_atr, 0.0)

    price = entry.astype(jnp.float32)
    if config.scaling == "seed":
        against = jnp.where(held, price / close, 1.0)
    else:
        against = jnp.where(held, side * (close - price) * per_atr, 0.0)
    return jnp.stack([side, against, distance(stop), distance(target), bars.astype(jnp.float32) / BARS_PER_DAY])


def observe(config: EnvConfig, ref: ObservationRef, params: EnvParams) -> Array:
    """float32[D]: window slots from bars [t - window, t - 1], then position slots at t, then task flags.

    Reads the reference and the float `MarketView` only, at rows <= t.
    """
    table, row = params.market.view.table, ref.row[0]
    columns = table_columns(config.features)
    rows = jax.lax.dynamic_slice_in_dim(table, row - config.window, config.window + 1)
    now = _decision_bar(rows[-1], columns)
    parts = [
        _window_slots(config, rows[:-1], now, params.contract.tick_size),
        _position_slots(config, ref.legs[0], now),
    ]
    if config.task == "manage":
        held = ref.legs[0, 0] != 0
        parts.append(jnp.stack([ref.mask[Action.BUY], held, held]).astype(jnp.float32))
    return jnp.concatenate(parts)
