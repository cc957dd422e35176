"""Observation: named slots, a small stored reference, and the vector that is rebuilt from it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.advisor.table import AdviceSeen, is_dropped, look_up
from jaxtrade.config import EnvConfig
from jaxtrade.data.features.schema import NOW, FeatureScale, feature_spec, shape_of
from jaxtrade.env.actions import Action
from jaxtrade.env.state import NO_LEVEL, EnvParams, EnvState, ObservationRef, Slot, bits_of
from jaxtrade.errors import ConfigError
from jaxtrade.parts import TASKS
from jaxtrade.text import short_repr
from jaxtrade.types import Array

# --- The block of advice about the decision bar that the policy may use


ADVICE_SLOTS = (
    *(
        Slot(f"advice_{side}", "advice", 0, f"logit of {side}, 0 without advice")
        for side in ("hold", "buy", "sell")
    ),
    Slot("advice_confidence", "advice", 0, "how sure the advisor is", 0, 1),
    Slot("advice_risk", "advice", 0, "how risky it finds the bar", 0, 1),
    Slot("advice_valid", "advice", 0, "1 if there is advice", 0, 1),
    Slot("advice_age", "advice", 0, "log(1 + age in bars)", 0),
)


def advice_seen(state: EnvState, params: EnvParams) -> AdviceSeen | None:
    """Return the advice that is visible at the bar of `state`; None (static) without an advisor."""
    view = params.advice
    if view is None:
        return None
    return look_up(
        view,
        state.row,
        view.drop_bar is not None and is_dropped(view, state.seed, state.episode, state.row),
    )


def advice_slots(seen: AdviceSeen | None) -> Array:
    """Return the values of `ADVICE_SLOTS` (float32[7]).

    Without advice all are 0, which favours no direction.
    """
    if seen is None:
        return jnp.zeros(len(ADVICE_SLOTS), jnp.float32)
    rest = jnp.stack(
        [seen.confidence, seen.risk, seen.valid.astype(jnp.float32), jnp.log1p(seen.age)]
    )
    return jnp.concatenate([seen.logits, rest])


# --- Observation: named slots, a small stored reference, and the vector that is rebuilt from it.
#
# A task chooses from the blocks of this module and may add its own. Each block is a `*_slots` and a
# `*_values` function.
#
# The slots have two scalings. `seed` reproduces the raw values of RL-Trainer, for comparison with
# it. `relative` is stationary by construction: prices in ATRs from the last close, log volume
# ratios, and time as fractions of the session.


TIME_NAMES = ("hour", "minutes_from_open", "minutes_to_close")
BARS_PER_DAY = 390.0  # scale of bars_in_position: minutes of the US cash session
POSITION = (
    Slot("position", "account", 0, "side: 1 long, -1 short, 0 flat", -1, 1),
    Slot("entry", "account", 0, "open profit in ATRs; scaling=seed: entry / close, 1 when flat"),
    Slot("stop_distance", "account", 0, "from the close to the stop in ATRs, 0 without", 0),
    Slot("target_distance", "account", 0, "from the close to the target in ATRs, 0 without", 0),
    Slot("bars_in_position", "account", 0, "bars since the entry / 390", 0),
)
FLAGS = (
    Slot("can_enter", "flag", 0, "1 if an entry is legal", 0, 1),
    Slot("can_manage", "flag", 0, "1 if a position may be managed", 0, 1),
    Slot("has_position", "flag", 0, "1 if a position is held", 0, 1),
)
POSITION_SLOTS, MANAGE_SLOTS = (tuple(slot.name for slot in part) for part in (POSITION, FLAGS))


@dataclass(frozen=True)
class ObservationSpec:
    """The observation: all slots in order. Every size is derived from it."""

    dtype: ClassVar[str] = "float32"
    slots: tuple[Slot, ...]
    scaling: str

    def __repr__(self) -> str:
        return short_repr(
            "ObservationSpec", f"{self.size} slots", f"scaling={self.scaling}", *self.names
        )

    @property
    def size(self) -> int:
        """D, the number of slots."""
        return len(self.slots)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the slots, in order."""
        return tuple(slot.name for slot in self.slots)

    @property
    def shape(self) -> tuple[int]:
        """(D,)."""
        return (self.size,)

    @property
    def minimum(self) -> np.ndarray:
        """float32[D]: a lower bound of each slot, -inf where none is known."""
        return np.array([slot.minimum for slot in self.slots], self.dtype)

    @property
    def maximum(self) -> np.ndarray:
        """float32[D]: an upper bound of each slot, inf where none is known."""
        return np.array([slot.maximum for slot in self.slots], self.dtype)


@dataclass(frozen=True)
class ActionSpec:
    """The action: an id in minimum .. maximum.

    names: of all ids, in order.
    """

    dtype: ClassVar[str] = "int32"
    shape: ClassVar[tuple[()]] = ()
    minimum: ClassVar[int] = 0
    names: tuple[str, ...]

    @property
    def maximum(self) -> int:
        """A - 1, the last id."""
        return len(self.names) - 1


@functools.lru_cache(maxsize=64)
def make_spec(config: EnvConfig) -> ObservationSpec:
    """List the slots of the configured task, followed by those of advice if `config.advice`."""
    advice = ADVICE_SLOTS if config.advice else ()
    return ObservationSpec((*TASKS[config.task].slots(config), *advice), config.scaling)


def feature_slot(name: str, place: str) -> Slot:
    """Return the slot of a feature at a place, as in close[t-1]."""
    spec = feature_spec(name)
    return Slot(f"{name}{place}", spec.unit, spec.warm_up, spec.formula)


def make_ref(task: Any, state: EnvState, mask: Array, params: EnvParams) -> ObservationRef:
    """Build the reference of the observation at `state`.

    Args:
        task: the `Task` of the environment.
        mask: bool[A] of the same state.
    """
    position = state.position
    bars = jnp.where(position.quantity != 0, state.row - position.opened + 1, 0)
    leg = jnp.stack([position.quantity, position.entry, position.stop, position.target, bars])
    return ObservationRef(
        row=state.row[None],
        legs=leg[None],
        account=task.record.seen(state),
        legal=bits_of(mask),
        aux=advice_seen(state, params),
        num_actions=mask.shape[-1],
    )


def observe(config: EnvConfig, ref: ObservationRef, params: EnvParams) -> Array:
    """Compute the values of the task's slots, then those of advice (float32[D]).

    It reads only the reference, the float `MarketView` at rows <= t, and constant units of the
    account's rules. Later bars can therefore not leak into it. Raises ConfigError if the market was
    built for another configuration.
    """
    chex.assert_rank([ref.row, ref.legs], [1, 2])
    view = params.market.view
    if (view.scaling, view.features) != (config.scaling, config.features):
        raise ConfigError(
            f"the market was made for env.scaling={view.scaling} and features {list(view.features)}, the "
            f"environment for {config.scaling} and {list(config.features)}; make both from one "
            "configuration"
        )
    parts = [*TASKS[config.task].observe(config, ref, params)]
    if config.advice:
        parts.append(advice_slots(ref.aux))
    values = jnp.concatenate(parts)
    chex.assert_shape(
        values,
        (make_spec(config).size,),
        custom_message=f"task '{config.task}': `observe` gives another number of values than `slots`",
    )
    return values


def _now(ref: ObservationRef, params: EnvParams) -> dict[str, Array]:
    """Return the values `NOW` of the decision bar by name, float32[] each.

    They scale the window and the position.
    """
    return dict(zip(NOW, params.market.view.now[ref.row[0]], strict=True))


# --- the window of bars -----------------------------------------------------------------------------------------------


def window_slots(config: EnvConfig) -> tuple[Slot, ...]:
    """List the W (F + 3) slots for a window of W bars.

    Each bar, oldest first, has its F features and three time values.
    """
    slots = []
    for back in range(config.window, 0, -1):
        slots += [feature_slot(name, f"[t-{back}]") for name in config.features]
        slots += [Slot(f"{name}[t-{back}]", "fraction", 0) for name in TIME_NAMES]
    return tuple(slots)


def _pattern(config: EnvConfig) -> np.ndarray:
    """Return the `FeatureScale` (scaling) of every window slot (float32[4, W * (F + 3)]).

    They are constants of the program.
    """
    columns = [shape_of(feature_spec(name).unit, config.scaling) for name in config.features]
    columns += [FeatureScale()] * len(TIME_NAMES)
    return np.tile(np.array(columns, np.float32).T, config.window)


def window_values(config: EnvConfig, ref: ObservationRef, params: EnvParams) -> Array:
    """Compute the values of bars [t - window, t - 1], oldest first (float32[W * (F + 3)]).

    The formula: `jaxtrade.data.device`.
    """
    view, row, now = params.market.view, ref.row[0], _now(ref, params)
    level, per_atr, log_per_atr, log_per_volume = _pattern(config)
    width = len(config.features) + len(TIME_NAMES)

    def window(column: Array, table: Array | None) -> Array:
        if table is not None:
            return table[row]
        # Rows are contiguous in memory, so the window is a single slice.
        return jax.lax.dynamic_slice_in_dim(
            column.reshape(-1), (row - config.window) * width, config.window * width
        )

    if view.windows is not None and view.windows.shape[-1] != config.window * width:
        raise ConfigError(
            f"the market has tables of windows of {view.windows.shape[-1] // width} bars, the "
            f"environment env.window={config.window}; make both from one configuration"
        )
    x = window(view.value, view.windows)
    if view.level is not None:
        x = (window(view.level, view.level_windows) - level * now["close"]) + x
    return x * (per_atr * now["per_atr"] + (1.0 - per_atr)) + (
        log_per_atr * now["log_per_atr"] + log_per_volume * now["log_per_volume"]
    )


# --- the position -----------------------------------------------------------------------------------------------------


def position_slots() -> tuple[Slot, ...]:
    """List the five slots of `position_values`."""
    return POSITION


def position_values(config: EnvConfig, ref: ObservationRef, params: EnvParams) -> Array:
    """Compute the values of `POSITION` (float32[5])."""
    quantity, entry, stop, target, bars = ref.legs[0]
    now = _now(ref, params)
    side = jnp.sign(quantity).astype(jnp.float32)
    held = quantity != 0
    close, per_atr, base = now["close"], now["per_atr"], _base(ref, params)

    def relative(ticks: Array) -> Array:
        return (ticks if base is None else ticks - base).astype(jnp.float32)

    def distance(level: Array) -> Array:
        exists = held & (jnp.abs(level) < NO_LEVEL)
        return jnp.where(exists, jnp.abs(relative(level) - close) * per_atr, 0.0)

    price = relative(entry)
    if config.scaling == "seed":
        against = jnp.where(
            held, price / close if base is None else (price + base) / (close + base), 1.0
        )
    else:
        against = jnp.where(held, side * (close - price) * per_atr, 0.0)
    return jnp.stack(
        [side, against, distance(stop), distance(target), bars.astype(jnp.float32) / BARS_PER_DAY]
    )


def _base(ref: ObservationRef, params: EnvParams) -> Array | None:
    """Return the ticks that the view's prices are relative to (int32[]; None for 0).

    They are those of the symbol of the decision bar.
    """
    base, symbol = params.market.view.base, params.market.symbol
    if base is None or symbol is None:
        return base
    return base[symbol[ref.row[0]].astype(jnp.int32)]


def flag_slots() -> tuple[Slot, ...]:
    """List the three slots of `flag_values`."""
    return FLAGS


def flag_values(ref: ObservationRef) -> Array:
    """Compute the values of `FLAGS`, of which the last two are always equal (float32[3]).

    Only for tasks whose action BUY has the id of `Action.BUY`.
    """
    held = ref.legs[0, 0] != 0
    return jnp.stack([ref.allows(Action.BUY), held, held]).astype(jnp.float32)


# --- the decision bar -------------------------------------------------------------------------------------------------


def context_slots(features: tuple[str, ...]) -> tuple[Slot, ...]:
    """List one slot for each context feature of the decision bar.

    Args:
        features: `Task.context`.
    """
    return tuple(feature_slot(name, "[t]") for name in features)


def context_values(
    config: EnvConfig, features: tuple[str, ...], ref: ObservationRef, params: EnvParams
) -> Array:
    """Return the values of the context slots (float32[len(features)]).

    Raises ConfigError if the market was built for a task with another number of context features.
    """
    context = params.market.view.context
    found = 0 if context is None else context.shape[-1]
    if context is None or found != len(features):
        raise ConfigError(
            f"the market was made for a task with {found or 'no'} features of context, the environment "
            f"for env.task={config.task}, which has {len(features)}; make both from one configuration"
        )
    return context[ref.row[0]]
