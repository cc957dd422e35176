"""How PPO's defaults were chosen, and what they reach: a sweep over problems of known optimum.

    python -m bench.studies.defaults                     every cell that bench/studies/results/defaults.json lacks
    python -m bench.studies.defaults --part final        only one part: sweep, scales or final
    python -m bench.studies.defaults --quick --out DIR   every program, for a few updates, to see that it works

The result is written after each cell, so a sweep that was stopped goes on. A cell is computed again
where its settings, those of `bench.studies.defaults_plan`, have changed. Nothing here measures the speed of
this machine.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bench import catalogue, harness
from jaxtrade.rl.actor_critic import policy_of
from jaxtrade.rl.ppo import make_hparams, make_ppo
from jaxtrade.training.population import Stack

from . import RESULTS
from .defaults_plan import PARTS, settings_of
from .defaults_problems import PROBLEMS, config_of, world_of

RESULT = RESULTS / "defaults.json"
# Metrics of training that a cell keeps.
LAST = ("entropy", "approx_kl", "clip_fraction", "explained_variance")


def trained(cell, config, world):
    """Train every variant and seed of a cell as one program.

    The greedy policies are judged on the way.
    """
    per_update = config.rollout.num_envs * config.rollout.num_steps
    updates = max(cell.steps // per_update, cell.points)
    ends = [updates * (i + 1) // cell.points for i in range(cell.points)]
    algorithm = make_ppo(config, world.env, updates)
    agents = Stack((len(cell.variants) * cell.seeds,)).wrap(algorithm)
    seeds = jnp.arange(cell.seeds, dtype=jnp.uint32)
    keys = jnp.tile(jax.vmap(jax.random.key)(seeds), len(cell.variants))
    state = jax.jit(agents.init)(keys, world.params)
    state = state.replace(hparams=state.hparams.replace(**_floats(cell, config)))

    @jax.jit
    def advance(state, params, count):
        def update(_, now):
            state, metrics = agents.update(now[0], params, None)
            return state, {name: metrics[name] for name in LAST}

        empty = {name: jnp.zeros(keys.shape) for name in LAST}
        # a traced count: one program for all stretches
        return jax.lax.fori_loop(0, count, update, (state, empty))

    judged, metrics = [], {}
    for begin, end in itertools.pairwise([0, *ends]):
        state, metrics = advance(state, world.params, jnp.int32(end - begin))
        judged.append(world.judge(algorithm, jax.vmap(policy_of)(state)))
    shape = (len(cell.variants), cell.seeds)
    return {
        "steps_taken": [end * per_update for end in ends],
        "updates": updates,
        "minibatches": config.minibatches,
        "judged": {
            name: _rounded([found[name] for found in judged], cell.points, *shape)
            for name in judged[-1]
        },
        "metrics": {name: _rounded(values, *shape) for name, values in metrics.items()},
    }


def _floats(cell, config):
    """Every tunable float that a variant names, float32[variants * seeds]."""
    base, variants = make_hparams(config.ppo), cell.variants.values()
    found = {}
    for name in {name for floats in variants for name in floats}:
        values = [floats.get(name, float(getattr(base, name))) for floats in variants]
        found[name] = jnp.repeat(jnp.array(values, jnp.float32), cell.seeds)
    return found


def _rounded(values, *shape):
    short = np.vectorize(lambda x: float(f"{x:.5g}"), otypes=[float])
    return short(np.reshape(values, shape)).tolist()


def quick(cell):
    """Return the same program for a few updates."""
    return cell._replace(steps=1, seeds=1, points=1, variants=dict(list(cell.variants.items())[:2]))


def run(cells, out, again=False):
    """Compute the cells that the result at `out` lacks (again: all), and write it after each."""
    text = out.read_text(encoding="utf-8") if out.exists() else '{"cells": {}}'
    result = json.loads(text)
    for number, cell in enumerate(cells):
        settings, done = json.loads(json.dumps(settings_of(cell))), result["cells"].get(cell.name)
        if not again and done is not None and done["settings"] == settings:
            continue
        begun = time.process_time()
        config = config_of(PROBLEMS[cell.problem], cell.network, cell.static)
        found = trained(cell, config, world_of(PROBLEMS[cell.problem], config))
        seconds = time.process_time() - begun
        result["cells"][cell.name] = {
            **{key: getattr(cell, key) for key in ("part", "problem", "network", "label")},
            "settings": settings,
            **found,
            "commit": harness.commit(),
            "cpu_seconds": round(seconds, 1),
        }
        result["stamp"] = {"device": harness.device_name(), "versions": harness.versions()}
        total = sum(each["cpu_seconds"] for each in result["cells"].values())
        result["cpu_minutes"] = round(total / 60, 1)
        catalogue.write(result, out)
        score = np.mean(found["judged"]["score"][-1])
        said = f"{number + 1}/{len(cells)} {cell.name}: {score:.3f} ({seconds:.0f} s)"
        print(said, file=sys.stderr, flush=True)
        jax.clear_caches()  # a cell never needs the programs of another
    return result


def main(arguments=None):
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.studies.defaults", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="only this part (repeatable)"
    )
    parser.add_argument("--again", action="store_true", help="also cells that the result has")
    parser.add_argument("--quick", action="store_true", help="a few updates of each; needs --out")
    parser.add_argument(
        "--out", type=Path, help="the result, instead of bench/studies/results/defaults.json"
    )
    given = parser.parse_args(arguments)
    if given.quick and given.out is None:
        parser.error("--quick measures nothing: name its result by --out FILE")
    out = given.out or RESULT
    cells = [cell for part in given.part or PARTS for cell in PARTS[part]()]
    run([quick(cell) for cell in cells] if given.quick else cells, out, given.again)


if __name__ == "__main__":
    main()
