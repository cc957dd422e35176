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

- The numbered features are RL-Trainer's 42 columns, under its names. The others come from its third phase and from
  `allocate` (`return_N` ..). `sma_N`, `ema_N`, `rsi_N`, `atr_N` take any N up to 9999.
- S is the sum of the last 14 true ranges.
- A value reads only its own and earlier bars of the same feature window. Decisions start after the longest warm-up.
- `textbook`: a library (TA-Lib) agrees, or the name says it all. `own`: RL-Trainer's variant, checked against
  hand-worked numbers.
- "The note" is all that survives of some formulas of the third phase. The feature says how it is read here.

| | name | formula | unit | warm-up (bars) | source |
|---|---|---|---|---|---|"""
_MIDDLE = """
Without volume these features are constant or meaningless, and are marked absent: {absent}.

For the decision bar, the task `advised` shows these features, in this order: {context}.

### Units and scaling

With `env.scaling=seed` the observation shows the value itself, with prices in points. With `env.scaling=relative` it
shows the last column of this table: t is the decision bar, x and close belong to the feature's own bar, and
ATR[t] = max(S[t]/14, 1 tick).

| unit | what | stored (float32) | relative |
|---|---|---|---|"""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
