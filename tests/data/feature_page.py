"""The list of all features in docs/features.md: `python -m tests.data.feature_page` writes it."""

from pathlib import Path

from jaxtrade.data.features.schema import (
    _SEED,
    CONTEXT_FEATURES,
    SEED_FEATURES,
    UNITS,
    absent_features,
    feature_spec,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "features.md"
BEGIN, END = "<!-- features:begin -->\n", "<!-- features:end -->\n"


def generated():
    parametric = ("sma_20", "ema_20", "rsi_14", "atr_14")
    extra = [name for name in (*_SEED, *parametric) if name not in SEED_FEATURES]
    numbered = [*enumerate(SEED_FEATURES, 1), *(("", name) for name in extra)]
    rows = [
        f"| {number} | `{spec.name}` | {spec.formula} | {spec.unit} | {spec.warm_up} | {spec.source} |"
        for number, spec in ((number, feature_spec(name)) for number, name in numbered)
    ]
    units = [
        f"| {unit} | {row['meaning']} | {row['stored']} | {row['relative']} |"
        for unit, row in UNITS.items()
    ]
    absent = ", ".join(f"`{name}`" for name in absent_features(tuple(_SEED)))
    context = ", ".join(f"`{name}`" for name in CONTEXT_FEATURES)
    return "\n".join([_HEAD, *rows, _MIDDLE.format(absent=absent, context=context), *units, "", ""])


def page(text):
    """The page with its generated part replaced."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{generated()}{END}{tail}"


_HEAD = """
## Features

`env.features: [close, volume, rsi, ...]` chooses the features, in the order that the observation should have.

- The numbered features are RL-Trainer's 42 columns, under its names. The others are what its third phase had besides,
  and what `allocate` shows (`return_N` ..). `sma_N`, `ema_N`, `rsi_N`, `atr_N` take any N up to 9999 (at the end).
- S is the sum of the last 14 true ranges.
- A value reads its own bar and earlier bars of the same feature window. Nothing is filled forward or back. Decisions
  start after the longest warm-up.
- `textbook`: a library (TA-Lib) agrees, or the name says it all. `own`: RL-Trainer's variant, checked against
  hand-worked numbers.
- For some formulas of the third phase only a note survives. The feature then says what the note leaves open, and how it
  is read here.

| | name | formula | unit | warm-up (bars) | source |
|---|---|---|---|---|---|"""
_MIDDLE = """
If a quotient is 0/0, the formula names the value (RL-Trainer filled such places from a neighbour). Without volume these
features are constant or without meaning, and are marked absent: {absent}.

For the decision bar, the task `advised` shows these features, in this order: {context}.
Two pairs have equal values: `price_momentum_60` and `price_change_60min`, `volume_regime` and `volume_ratio_20min`.

### Units and scaling

With `env.scaling=seed` the observation shows the value itself, with prices in points. With `env.scaling=relative` it
shows the last column of this table: t is the decision bar, x and close belong to the feature's own bar, and
ATR[t] = max(S[t]/14, 1 tick).

| unit | what | stored (float32) | relative |
|---|---|---|---|"""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
