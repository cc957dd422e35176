"""Random second bars inside given bars, and the falls that they hold, in plain Python.

Shared by the tests of the environment and of the oracle; shares no code with
`jaxtrade.data.intrabar`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxtrade.types import IntrabarPath

FALLS = 8
Fall = tuple[int, int, int]  # running high before the second of its low, and with it, and that low


class Inside(NamedTuple):
    """What was traded inside one bar: (high, low) of each second in ticks; known: whether their
    order is known.
    """

    seconds: tuple[tuple[int, int], ...]
    known: bool = True


def falls(open_, inside, side):
    """The falls from the running high, each deeper than all before it, in ticks from the open; of
    the bar upside down for side -1. Of falls from one high that stood before, only the deepest."""
    found = []
    top = 0
    for high, low in inside.seconds:
        best, worst = (high - open_, low - open_) if side > 0 else (open_ - low, open_ - high)
        before, top = top, max(top, best)
        if top - worst > max((turn - end for _, turn, end in found), default=0):
            if found and found[-1][:2] == (before, top):
                found.pop()
            found.append((before, top, worst))
    return found


def path_arrays(
    opens,
    paths,
    ask_opens=(),
    ask_paths=(),
):
    """Paths as the environment holds them, a short's on the ask where there is one; None where
    there are none.
    """
    if not paths:
        return None
    out, ambiguous = np.zeros((len(paths), 2, 3, FALLS), np.int32), np.zeros((len(paths), 2), bool)
    short = (ask_opens, ask_paths) if ask_paths else (opens, paths)
    for i, (side, at, insides) in enumerate([(1, opens, paths), (-1, *short)]):
        for row, (open_, inside) in enumerate(zip(at, insides, strict=True)):
            ambiguous[row, i] = not inside.known
            for k, fall in enumerate(falls(int(open_), inside, side)):
                out[row, i, :, k] = fall
    return IntrabarPath(jnp.asarray(out), jnp.asarray(ambiguous))


def random_inside(rng, open_, high, low, close):
    """Prices that touch high and low somewhere on the way and end at the close, one to three a
    second; one bar in ten is not known. Most bars climb (or sink) with deep retraces that make no
    new extreme."""
    while True:
        inner = rng.integers(low, high + 1, int(rng.integers(0, 12))).tolist()
        for extreme in (high, low):
            inner.insert(int(rng.integers(0, len(inner) + 1)), extreme)
        if rng.random() < 0.7:
            inner = _ladder(rng, open_, high, low)
        prices = [open_, *inner, close]
        cuts = np.flatnonzero(rng.random(len(prices) - 1) < rng.choice([0.4, 1.0])) + 1
        seconds = tuple(
            (int(part.max()), int(part.min())) for part in np.split(np.array(prices), cuts)
        )
        inside = Inside(seconds, bool(rng.random() >= 0.1))
        if all(len(falls(open_, inside, side)) <= FALLS for side in (1, -1)):
            return inside


def _ladder(rng, open_, high, low):
    """New highs, each followed by a fall that stays above the open, then the low; or that upside
    down.
    """
    up = rng.random() < 0.5
    far, near = (high, low) if up else (low, high)
    steps = np.sort(rng.random(int(rng.integers(1, 5))))
    out = []
    for share in [*steps.tolist(), 1.0]:
        turn = open_ + round(share * (far - open_))
        out += [turn, turn + round(rng.beta(5, 1) * (open_ - turn))]
    return [*out, near]


def random_paths(seed, *prices):
    """One path per bar of open, high, low and close columns."""
    rng = np.random.default_rng(seed)
    return tuple(random_inside(rng, *(int(x) for x in row)) for row in zip(*prices, strict=True))


def mirrored(paths, around=20_000):
    """The same paths upside down."""
    return tuple(
        Inside(tuple((2 * around - low, 2 * around - high) for high, low in p.seconds), p.known)
        for p in paths
    )
