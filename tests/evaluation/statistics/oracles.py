"""Matrices on which other packages were asked, and their answers: oracles.json holds these with the
versions.

    pip install -e ".[statistics-test]" && python -m tests.evaluation.statistics.oracles

writes the file again. The packages are large, so the quick tests compare with the file; a slow test
asks them again.
"""

import importlib.metadata
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_name("oracles.json")
SPA_DRAWS = 5000


class Shape(NamedTuple):
    """A matrix of daily figures: trials that share a part of each day, whose means differ by
    `skill`.
    """

    days: int
    trials: int
    splits: int = 8
    skill: float = 0.0


# Even and odd numbers of trials, days that do not divide into blocks, skill, and one with 12,870
# ways of halving.
PBO = (
    Shape(240, 20),
    Shape(240, 20, 8, 0.1),
    Shape(101, 11),
    Shape(125, 10, 10),
    Shape(60, 24),
    Shape(250, 13, 10, 0.2),
    Shape(400, 12, 6),
    Shape(77, 15, 8, 0.05),
    Shape(90, 30, 10, 0.3),
    Shape(330, 24, 16),
)
SPA = (
    Shape(250, 1, skill=0.1),
    Shape(250, 5),
    Shape(500, 10),
    Shape(500, 10, skill=0.06),
    Shape(120, 3),
    Shape(1000, 24),
    Shape(300, 8, skill=0.1),
    Shape(200, 6),
)


def matrix(shape, number):
    """float64[D, N] of unit variance beside the part that all share. In every third one, a trial
    never trades.
    """
    generator = np.random.default_rng([19, number, shape.days, shape.trials])
    net = generator.standard_normal((shape.days, shape.trials)) + generator.standard_normal(
        (shape.days, 1)
    )
    net += shape.skill * np.linspace(-1, 1, shape.trials)
    if number % 3 == 2:
        net[:, 1] = 0.0
    return net


def races(shape, number):
    """float64[D, K] of policies and float64[D] of a baseline. In all differences, means of `block`
    days in a row spread by 1 / sqrt(block): `ask_arch` says why."""
    generator = np.random.default_rng([23, number, shape.days, shape.trials])
    baseline = generator.standard_normal(shape.days)
    noise = generator.standard_normal((shape.days, shape.trials))
    noise -= noise.mean(axis=0)
    rows = np.mean([np.roll(noise, -day, axis=0) for day in range(block(shape))], axis=0)
    noise /= rows.std(axis=0) * block(shape) ** 0.5
    return baseline[:, None] + noise + generator.standard_normal(
        shape.trials
    ) / shape.days**0.5 + shape.skill, baseline


def block(shape):
    """Days per block in both tests of superior ability."""
    return max(1, round(shape.days ** (1 / 3)))


def ask_purgedcv():
    """PBO by purgedcv for each of `PBO`. It takes trials x days, and accepts the transpose without
    a word.
    """
    from purgedcv import probability_of_backtest_overfitting

    return [
        float(probability_of_backtest_overfitting(matrix(shape, i).T, n_splits=shape.splits).pbo)
        for i, shape in enumerate(PBO)
    ]


def ask_arch():
    """lower, consistent and upper p by arch for each of `SPA`. It takes losses, and divides by no
    standard deviation whatever `studentize` says, which makes no difference where all are the
    same."""
    from arch.bootstrap import SPA as Test  # noqa: N811

    found = []
    for i, shape in enumerate(SPA):
        policies, baseline = races(shape, i)
        test = Test(
            -baseline,
            -policies,
            block_size=block(shape),
            reps=SPA_DRAWS,
            bootstrap="circular",
            seed=i,
        )
        test.compute()
        found.append({name: float(p) for name, p in test.pvalues.items()})
    return found


def main():
    """Write the answers, with the versions that gave them."""
    answers = {
        "versions": {name: importlib.metadata.version(name) for name in ("arch", "purgedcv")},
        "pbo": ask_purgedcv(),
        "spa": ask_arch(),
    }
    FILE.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
