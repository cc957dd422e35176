"""Studies: what a choice of the package rests on, or whether a method helps. They time nothing.

    python -m bench.studies.trust            (in a checkout; minutes to hours)
    python -m bench.studies.trust --quick    small, to see that it works; writes nothing

Each prints its result as JSON and writes `bench/studies/results/NAME.json`, which the pages of docs/
quote.
"""

import argparse
import json
from pathlib import Path

import jax
from scipy import stats

from bench import catalogue
from bench.harness import stamp
from bench.table import shortened

RESULTS = Path(__file__).parent / "results"
LEVEL, DRAWS = 0.9, 10_000


def interval(statistic, *samples):
    """Return the percentile interval of a statistic of samples, each drawn anew (Efron 1979)."""
    given = {"n_resamples": DRAWS, "confidence_level": LEVEL, "method": "percentile", "rng": 0}
    return list(stats.bootstrap(samples, statistic, **given).confidence_interval)


def training(algorithm, updates, names=()):
    """Return a function (state, params) -> (state, metrics) of these updates.

    The state is that after them; the metrics are those of these names, [updates, ...].
    """

    def train(state, params):
        def update(state, _):
            state, metrics = algorithm.update(state, params, None)
            return state, {name: metrics[name] for name in names}

        return jax.lax.scan(update, state, None, length=updates)

    return train


def main(name, about, run):
    """Run the command of a study. run: (quick) -> its result."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.studies.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help="small; writes nothing")
    quick = parser.parse_args().quick
    told = stamp(["python", "-m", f"bench.studies.{name}"], None)
    title = about.split("\n\n")[0].replace("\n", " ")
    result = {"bench": name, "about": title, "quick": quick, "stamp": told} | shortened(run(quick))
    print(json.dumps(result))
    if not quick:
        catalogue.write(result, RESULTS / f"{name}.json")
