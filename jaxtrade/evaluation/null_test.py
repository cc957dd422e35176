"""Monte-Carlo p-values of a result against null markets.

For a statistic T of the real market and of B null markets, the p-value is

    p = (1 + #{null >= real}) / (B + 1),    never below its floor 1 / (B + 1)

(Davison and Hinkley 1997, section 4.2). If the real market is exchangeable with the nulls, p <= a
has a probability of at most a, exactly, for any statistic. Besag and Clifford 1991, "Sequential
Monte Carlo p-values", stop as soon as h nulls reach the real value, after l draws; then p = h / l,
which has the same property. A clear "no" thus costs few draws, and a small p-value still takes all
of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrade.data.nulls.spec import NullKind, NullSpec
from jaxtrade.errors import DataError
from jaxtrade.evaluation.statistics.aggregate import iqm
from jaxtrade.text import aligned, short_repr

EXCEEDANCES = 10  # h
USUAL_LEVEL = 0.05
KEPT: dict[NullKind, str] = {
    "sign": "each bar, with its gap, up or down at random; stamps, volume, spread and true ranges are the real ones",
    "sessions": "the real sessions in another order, among those of equal hours",
    "phase": "the real returns with random phases; the shape of volatility over the day is gone",
    "martingale": "a martingale with the real volatility of each minute of the day",
}


@dataclass(frozen=True)
class NullResult:
    """A result against null markets.

    name: whose result it is. real: the statistic on the real market. nulls: that of each null
        market, in the order of
    the draws. asked: B, the draws asked for. made: the draws made, which are fewer after an early
    stop. exceedances: how many nulls reach the real value. p, floor: see above; the floor is that
    of the draws asked for. seed: of the draws. stop: h; None if every draw was to be made.
    """

    name: str
    kind: NullKind
    real: float
    nulls: tuple[float, ...]
    asked: int
    made: int
    exceedances: int
    p: float
    floor: float
    seed: int
    stop: int | None

    @property
    def stopped_early(self) -> bool:
        """Whether fewer draws were made than asked for."""
        return self.made < self.asked

    def __repr__(self) -> str:
        return short_repr(
            "NullResult",
            self.name,
            f"{self.kind}:{self.asked}",
            f"p {self.p:.4f}",
            f"floor {self.floor:.4f}",
            f"{self.made} draws",
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; statistics as they are."""
        return {
            "name": self.name,
            "kind": self.kind,
            "real": self.real,
            "p": self.p,
            "floor": self.floor,
            "draws_asked": self.asked,
            "draws_made": self.made,
            "exceedances": self.exceedances,
            "seed": self.seed,
            "stop_at_exceedances": self.stop,
            "nulls": list(self.nulls),
        }


def pooled_statistic(net: np.ndarray) -> float:
    """IQM over seeds of the mean out-of-sample net of a day, in the unit of `net`.

    net: [S, D], the net of each seed and day; days of several folds are pooled. With fewer than
        four seeds it is the
    mean over seeds. Raises DataError if there are no seeds or days, or a value is not finite.
    """
    net = np.asarray(net, np.float64)
    if net.ndim != 2 or not net.size:
        raise DataError(
            f"null test: daily net of shape {net.shape}; expected [seeds, days], at least one of each"
        )
    if not np.isfinite(net).all():
        seed, day = np.argwhere(~np.isfinite(net))[0]
        raise DataError(
            f"null test: the net of seed {seed}, day {day} is {net[seed, day]}; every day needs a number"
        )
    return float(iqm(net.mean(axis=1)))


def is_decided(real: float, nulls: Sequence[float], stop: int | None = EXCEEDANCES) -> bool:
    """Whether `stop` nulls have reached the real value, so that no further draw is needed."""
    return stop is not None and sum(null >= real for null in nulls) >= stop


def null_test(
    name: str,
    real: float,
    nulls: Sequence[float],
    spec: NullSpec,
    seed: int,
    stop: int | None = EXCEEDANCES,
) -> NullResult:
    """The p-value of a statistic.

    Args:
        nulls: the statistics of null markets 0, 1, ...; those after the early stop, or beyond
            `spec.draws`, are ignored.
        stop: h, the exceedances after which to stop. None: make every draw.
    Raises:
        DataError: a statistic is not finite, or draws are missing.
    """
    if not math.isfinite(real):
        raise DataError(
            f"null test of {name}: its statistic on the real market is {real}; it needs a number"
        )
    count = 0
    for made, null in enumerate(nulls[: spec.draws], start=1):
        if not math.isfinite(null):
            raise DataError(
                f"null test of {name}: the statistic of null market {made - 1} is {null}; every null needs "
                "a number"
            )
        count += null >= real
        if stop is not None and count >= stop:
            return NullResult(
                name,
                spec.kind,
                real,
                tuple(nulls[:made]),
                spec.draws,
                made,
                count,
                count / made,
                spec.floor,
                seed,
                stop,
            )
    if len(nulls) < spec.draws:
        raise DataError(
            f"null test of {name}: {len(nulls)} of {spec.draws} null markets are there, and the test is "
            "not decided; make the rest"
        )
    return NullResult(
        name,
        spec.kind,
        real,
        tuple(nulls[: spec.draws]),
        spec.draws,
        spec.draws,
        count,
        (1 + count) / (spec.draws + 1),
        spec.floor,
        seed,
        stop,
    )


def p_text(result: NullResult) -> str:
    """The p-value with what limits it: `0.0100 (its floor)`, `0.7143 (10 of 14, stopped)`."""
    if result.stop is not None and result.exceedances >= result.stop:
        return f"{result.p:.4f} ({result.exceedances} of {result.made}, stopped)"
    return f"{result.p:.4f}{' (its floor)' if result.exceedances == 0 else ''}"


def null_document(
    results: Mapping[str, NullResult], notes: Sequence[str], **facts: Any
) -> dict[str, Any]:
    """The content of `nulls.json`. facts: further JSON values, such as digests of configuration and
    data.
    """
    return {
        "format": 1,
        **facts,
        "notes": list(notes),
        "results": {name: each.to_json() for name, each in results.items()},
    }


def null_table(results: Sequence[NullResult], notes: Sequence[str] = ()) -> str:
    """The results of one kind and number of draws as text. Statistics are dollars a day."""
    first = results[0]
    rows = [
        ["net per day ($)", "real", "median null", "largest null", "nulls >= real", "draws", "p"]
    ]
    rows += [
        [
            f"  {each.name}",
            f"{each.real:,.2f}",
            f"{float(np.median(each.nulls)):,.2f}",
            f"{max(each.nulls):,.2f}",
            f"{each.exceedances}",
            f"{each.made}",
            p_text(each),
        ]
        for each in results
    ]
    lines = [
        f"null markets {first.kind}:{first.asked}, seed {first.seed}: {KEPT[first.kind]}",
        "",
        *aligned(rows),
        "",
        f"p = (1 + nulls >= real) / ({first.asked} + 1), at least {first.floor:.4f}"
        + (
            ""
            if first.stop is None
            else f"; after {first.stop} nulls >= real it stops, and p = {first.stop} / draws"
        ),
    ]
    if first.floor > USUAL_LEVEL:
        lines.append(
            f"NOTE: no p-value below {USUAL_LEVEL} is possible with {first.asked} draws; give at least 19"
        )
    return "\n".join([*lines, *(f"NOTE: {note}" for note in notes)])
