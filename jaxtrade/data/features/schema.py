"""Declarations of features (name, unit, warm-up, formula) and columns of the market's float table.

This module imports neither JAX nor pandas, so that a configuration's names can be checked early.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from jaxtrade.errors import ConfigError
from jaxtrade.parts import CONTEXTS, FEATURES
from jaxtrade.text import did_you_mean

Unit = Literal[
    "price",
    "move",
    "growth",
    "range",
    "volume",
    "index",
    "negative_index",
    "score",
    "ratio",
    "share",
    "fraction",
]
TRUE_RANGES = 14  # true ranges in the sum S that brackets use
VOLUME_BARS = 20  # look-back of the mean volume, in bars
NO_VOLUME = "no volume: volume slots are constant"  # the note in runs and reports
GROWTH_BARS = 10  # look-back of `momentum` and `roc`
RSI_BARS = {
    "rsi": 14,
    "rsi_15min": 15,
    "rsi_60min": 60,
}  # RL-Trainer's names: the numbers count bars, not minutes
RANK_BARS, RANK_LEAST = 252 * 390, 100  # `vol_percentile`: a year of cash-session minutes
# Exchange minutes [from, to) of the session flags; `closed` is the rest of the day.
SESSION_MINUTES = {"morning": (570, 660), "midday": (660, 840), "afternoon": (840, 1020)}

# Columns that every market has, before the requested features:
#   close           ticks
#   atr             max(S/14, 1 tick) in ticks; 1 where S is not yet defined
#   volume_mean     mean volume of the last 20 bars of the feature window, this one included (fewer at its start)
#   hour            (exchange decimal hour of the open stamp - 9.5) / 7.48
#   from_open_seed  minutes from 09:30 on the exchange clock to the open stamp / 449
#   to_close_seed   minutes from the open stamp to 16:59 on the exchange clock / 449
#   from_open       minutes from the session's window opening to the open stamp / window length
#   to_flat         minutes from the bar's scheduled close to the session's flat time / window length
FIXED_COLUMNS: tuple[str, ...] = (
    "close",
    "atr",
    "volume_mean",
    "hour",
    "from_open_seed",
    "to_close_seed",
    "from_open",
    "to_flat",
)

TIME_COLUMNS = {  # scaling -> the three time columns that follow the features of each window bar
    "seed": ("hour", "from_open_seed", "to_close_seed"),
    "relative": ("hour", "from_open", "to_flat"),
}


@dataclass(frozen=True)
class FeatureSpec:
    """The declaration of a causal feature, which depends on one bar and the bars before it.

    unit: how the float32 table stores the feature and how the observation scales it, see `UNITS`.
    warm_up: bars of the feature window, this one included, that the feature needs before a decision
        may use it.
    period: the look-back N of a parametric feature, else 0.
    needs_volume: whether the feature is constant, and therefore reported as absent, if the bars
        have no volume.
    source: `textbook` if the formula agrees with a library's, else `own`: RL-Trainer's variant.
    """

    name: str
    unit: Unit
    warm_up: int
    formula: str
    period: int = 0
    needs_volume: bool = False
    source: Literal["textbook", "own"] = "own"


# Columns of `MarketView.now`.
NOW = ("close", "per_atr", "log_per_atr", "log_per_volume")


class FeatureScale(NamedTuple):
    """Constants of a unit in the formula of `data.device`.

    All are 0 under seed scaling, so that the slot is `value` itself.
    """

    level: int = 0
    per_atr: int = 0
    log_per_atr: int = 0
    log_per_volume: int = 0


def _rows(name: str) -> list[dict[str, str]]:
    """Read the rows of a CSV file beside this module."""
    with open(Path(__file__).with_name(name), newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


# unit -> its constants under relative scaling, its meaning, its form in the table, and its slot
# under relative scaling. Under seed scaling a slot is the feature's value.
UNITS = {row["unit"]: row for row in _rows("units.csv")}
_SHAPES = {
    unit: FeatureScale(*(int(row[name]) for name in FeatureScale._fields))
    for unit, row in UNITS.items()
}


def shape_of(unit: Unit, scaling: str) -> FeatureScale:
    """Return the constants of a unit under a scaling (`relative` or `seed`)."""
    return _SHAPES.get(unit, FeatureScale()) if scaling == "relative" else FeatureScale()


_SEED = {
    row["name"]: FeatureSpec(
        row["name"],
        cast(Unit, row["unit"]),
        int(row["warm_up"]),
        row["formula"],
        needs_volume=row["needs_volume"] == "yes",
        source="own" if row["source"] == "own" else "textbook",
    )
    for row in _rows("features.csv")
}
_GROUPS = {row["group"]: tuple(row["features"].split()) for row in _rows("groups.csv")}
# RL-Trainer's 42 columns, in its order.
SEED_FEATURES = _GROUPS["seed"]
# The features of the decision bar that the task `advised` shows, in its order.
MARKET_CONTEXT = _GROUPS["market_context"]
TIMEFRAMES = _GROUPS["timeframes"]
PATTERNS = _GROUPS["patterns"]
DUAL_FEATURES = _GROUPS["dual"]  # what `allocate` shows
CONTEXT_FEATURES: tuple[str, ...] = MARKET_CONTEXT + TIMEFRAMES + PATTERNS
_PARAMETRIC = re.compile(r"(sma|ema|rsi|atr)_([1-9][0-9]{0,3})")


def is_built_in(name: str) -> bool:
    """Return whether the package itself has a feature of that name.

    Parametric features are included.
    """
    return name in _SEED or bool(_PARAMETRIC.fullmatch(name))


def feature_spec(name: str) -> FeatureSpec:
    """Return the declaration of a feature, by name.

    Parametric features are `sma_N`, `ema_N`, `rsi_N` and `atr_N`. They use the textbook formulas of
    TA-Lib: an EMA starts with the SMA of its first N closes; RSI and ATR use Wilder's smoothing.
    Raises ConfigError, listing the known features, for an unknown name.
    """
    if name in _SEED:
        return _SEED[name]
    if name in FEATURES:
        return FEATURES[name].spec
    match = _PARAMETRIC.fullmatch(name)
    if not match:
        known = (*_SEED, *FEATURES.names)
        hint = did_you_mean(name, (*known, "sma_20", "ema_20", "rsi_14", "atr_14"))
        raise ConfigError(
            f"env.features: unknown feature '{name}' (known: {', '.join(known)}, sma_N, ema_N, rsi_N, atr_N "
            f"with N a number){hint}"
        )
    kind, period = match[1], int(match[2])
    if kind == "rsi" and period < 2:
        raise ConfigError(f"env.features: '{name}': RSI needs a period of at least 2")
    unit, warm_up, formula = {
        "sma": ("price", period, f"mean of the last {period} closes"),
        "ema": ("price", 4 * period, f"EMA with alpha 2/{period + 1}, seeded with the SMA"),
        "rsi": ("index", 4 * period + 1, f"Wilder's RSI over {period} bars"),
        "atr": ("range", 4 * period + 1, f"Wilder's ATR over {period} bars"),
    }[kind]
    return FeatureSpec(name, cast(Unit, unit), warm_up, formula, period, source="textbook")


def feature_column(name: str) -> str:
    """Return the name of a requested feature's column in the float table.

    The prefix separates `feature.close` from the fixed column `close`.
    """
    return f"feature.{name}"


def context_column(name: str) -> str:
    """Return the name of a context feature's column in the float table."""
    return f"context.{name}"


def context_features(task: str) -> tuple[str, ...]:
    """List the features of the decision bar itself that a task (`env.task`) shows.

    Does not import the task.
    """
    return CONTEXTS[task] if task in CONTEXTS else ()  # noqa: SIM401  # a registry has no get


def table_columns(features: tuple[str, ...], context: tuple[str, ...] = ()) -> tuple[str, ...]:
    """List the names of the float table's columns.

    These are the fixed ones, one per requested feature, one per context feature. Both groups of
    features keep their order. Raises ConfigError for an unknown or repeated feature.
    """
    for i, name in enumerate(features):
        feature_spec(name)
        if name in features[:i]:
            raise ConfigError(f"env.features: '{name}' appears twice; keep one")
    return (
        FIXED_COLUMNS + tuple(map(feature_column, features)) + tuple(map(context_column, context))
    )


def longest_warm_up(features: tuple[str, ...]) -> int:
    """Return the largest warm-up of the features, in bars."""
    return max((feature_spec(name).warm_up for name in features), default=1)


def absent_features(features: tuple[str, ...]) -> tuple[str, ...]:
    """List the features that carry no information about volume if the bars have none.

    Most are constant then. `vwap` is not constant, but it is then a plain mean of prices.
    """
    return tuple(name for name in features if feature_spec(name).needs_volume)
