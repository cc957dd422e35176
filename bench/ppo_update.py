"""One PPO update: where its time goes, and its share of the matrix-product rate of the same run.

Four settings, minibatches of 256 and large ones, of the small and of the big network. All programs
start from the same state and take turns. `learn` is the time of one more pass over the epochs: the
update with twice as many epochs less the update itself, both whole and as trained, shuffling and
gathering included. Parts that stand alone are compiled
apart: `rollout` (acting and stepping), `normaliser` (its update), `shuffle` (permuting and
    gathering for all epochs).
`rest` is what remains: advantages, values of what follows, metrics.

The learn phase's matrix products are counted from the network's shapes (forward, and backward twice
as much less the first layers' input gradient, which nobody needs) and from the traced update; both
must agree. The rates they are compared with are chains of products without anything between them:
of the minibatch's own first-layer shape, and of large squares.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.rl.form import form_of
from jaxtrade.rl.minibatches import minibatch_rows
from jaxtrade.rl.observing import update_statistics
from jaxtrade.rl.ppo.loss import Batch, rows_of
from jaxtrade.rl.ppo.network import make_network
from jaxtrade.types import Array

from . import harness, programs, setting
from .catalogue import Options
from .harness import Sample, Side, rounded
from .learning import Learning, learning_of
from .products import chain, learn_flops

SMALL = {"hidden": (64, 64), "activation": "tanh", "num_epochs": 4}
BIG = {"hidden": (256, 256, 128), "activation": "relu", "num_epochs": 10}
SETTINGS: dict[str, dict[str, Any]] = {
    "small_256": SMALL | {"num_envs": 16, "num_steps": 1024, "num_minibatches": 64},
    "small_4096": SMALL | {"num_envs": 256, "num_steps": 64, "num_minibatches": 4},
    "big_256": BIG | {"num_envs": 16, "num_steps": 256, "num_minibatches": 16},
    "big_4096": BIG | {"num_envs": 256, "num_steps": 32, "num_minibatches": 2},
}
QUICK = {"small_256": SMALL | {"num_envs": 8, "num_steps": 64, "num_minibatches": 2}}


def _shuffle(config: Learning) -> Callable[[Array, Batch], Array]:
    """Permute and gather all minibatches of all epochs; every value enters the sum that comes
    out.
    """

    def gather(key: Array, batch: Batch) -> Array:
        every = rows_of(batch)

        def minibatch(total: Array, rows: Array) -> tuple[Array, None]:
            return total + every.packed.words[rows].sum(dtype=jnp.float32), None

        def epoch(total: Array, key: Array) -> tuple[Array, None]:
            rows = minibatch_rows(
                key,
                config.num_steps,
                config.num_envs,
                config.shards,
                config.num_minibatches,
                config.sequence,
            )
            return jax.lax.scan(minibatch, total, rows)[0], None

        return jax.lax.scan(epoch, jnp.float32(0), jax.random.split(key, config.num_epochs))[0]

    return gather


def gradient_flops(config: Learning, observation_size: int, num_actions: int) -> dict[str, float]:
    """One minibatch through the network and back: its matrix products from shapes, and XLA's own
    count of the compiled program, which has elementwise operations too."""
    network = make_network(config, num_actions)
    rows = config.num_envs * config.num_steps // config.num_minibatches
    parameters: Any = jax.eval_shape(
        network.init, jax.random.key(0), None, jnp.zeros(observation_size)
    )
    seen = jax.ShapeDtypeStruct((rows, observation_size), jnp.float32)

    def loss(parameters: Any, seen: Array) -> Array:
        made: Any = network.apply(parameters, None, seen)
        _, logits, value = made
        return jnp.square(logits).mean() + jnp.square(value).mean()

    passes = config.num_epochs * config.num_minibatches
    counted = programs.xla_flops(programs.compiled(jax.grad(loss), parameters, seen).program)
    return {
        "from_shapes": learn_flops(config, observation_size, num_actions) // passes,
        "xla": counted,
    }


class Setting(NamedTuple):
    """Programs of one setting by name, and what is known of them without running."""

    config: Learning
    sides: dict[str, Side]
    known: dict[str, Any]


def _sides(chosen: dict[str, Any], sessions: int) -> tuple[Setting, int]:
    """The setting and the observation's size."""
    world = setting.world(sessions, ppo=chosen)
    config, env, params = learning_of(world.config), world.env, world.params
    twice = setting.config(sessions, ppo=chosen | {"num_epochs": 2 * config.num_epochs})
    algorithm = programs.learner(world, 100)
    double = programs.learner(world._replace(config=twice), 100)
    steps = config.num_envs * config.num_steps
    state, key = jax.jit(algorithm.init)(jax.random.key(0), params), jax.random.key(1)

    def whole(algorithm: Any) -> Callable[..., Any]:
        return lambda state, params: algorithm.update(state, params, None)

    traced = [programs.matmul_flops(whole(each), state, params) for each in (algorithm, double)]
    update = programs.compiled(whole(algorithm), state, params)
    update_twice = programs.compiled(whole(double), state, params).program
    rollout = programs.compiled(
        programs.acting(algorithm, config.num_steps), state, params, key
    ).program
    seen = rollout(state, params, key)[1]
    log_prob, value, _ = seen.extras
    batch = Batch(None, seen.ref, seen.first, None, seen.action, log_prob, value, value, value)
    statistics_of = programs.compiled(
        lambda stats, refs, params: update_statistics(env, stats, refs, params),
        state.normaliser,
        seen.ref,
        params,
    ).program
    shuffle = programs.compiled(_shuffle(config), key, batch).program
    sides = {
        "update": harness.side(lambda: update.program(state, params), steps),
        "update_twice": harness.side(lambda: update_twice(state, params), steps),
        "rollout": harness.side(lambda: rollout(state, params, key), steps),
        "normaliser": harness.side(
            lambda: statistics_of(state.normaliser, seen.ref, params), steps
        ),
        "shuffle": harness.side(lambda: shuffle(key, batch), steps),
    }
    from_shapes = learn_flops(config, env.observation_size, env.num_actions)
    # As a pair, the value's head is filled with zeros up to the policy's (`networks.pair`). That
    # work is of no use.
    filled = (
        6 * (env.num_actions - 1) * config.hidden[-1] * config.num_epochs * steps
        if form_of().pair
        else 0
    )
    run = from_shapes + filled
    if traced[1] - traced[0] != run:
        raise ValueError(
            f"the traced epochs have {traced[1] - traced[0]:,} floating-point operations in matrix "
            f"products, the network's shapes say {run:,}; bring products.layers() up to date"
        )
    kept = programs.stored(algorithm, state, params, config.num_steps)
    return Setting(
        config,
        sides,
        {
            "learn_flops": from_shapes,
            "learn_flops_per_step": from_shapes // steps,
            "minibatch_flops": gradient_flops(config, env.observation_size, env.num_actions),
            "stored_bytes_per_step": sum(kept.values()),
            "temporary_bytes_per_step": rounded(programs.temporaries(update.program) / steps),
        },
    ), env.observation_size


def _medians(samples: Sequence[Sample]) -> Sample:
    return Sample(*(statistics.median(values) for values in zip(*samples, strict=True)))


def parts(samples: dict[str, list[Sample]]) -> dict[str, dict[str, float]]:
    """Part of the update -> median seconds by both clocks, and its share of the whole update's wall
    seconds.
    """
    medians = {name: _medians(taken) for name, taken in samples.items()}
    whole, twice = medians.pop("update"), medians.pop("update_twice")
    medians["learn"] = Sample(twice.wall - whole.wall, twice.cpu - whole.cpu)
    within = [medians[name] for name in ("rollout", "normaliser", "learn")]
    medians["rest"] = Sample(
        whole.wall - sum(part.wall for part in within), whole.cpu - sum(part.cpu for part in within)
    )
    return {
        name: {
            "seconds": rounded(part.wall),
            "cpu_seconds": rounded(part.cpu),
            "share": rounded(part.wall / whole.wall),
        }
        for name, part in medians.items()
    }


def peaks(
    config: Learning, observation_size: int, square: int
) -> dict[str, tuple[tuple[int, int, int], Side, int]]:
    """Name -> (rows, inner, outer) of the product, a side that runs a chain of it, and that chain's
    operations.
    """
    rows = config.num_envs * config.num_steps // config.num_minibatches
    shapes = {
        "layer": ((rows, observation_size, config.hidden[0]), 64),
        "square": ((square, square, square), 1),
    }
    found = {}
    for name, (shape, length) in shapes.items():
        work, flops = chain(*shape, length=length)
        found[name] = (shape, harness.side(work, 1), flops)
    return found


def measure(
    chosen: dict[str, Any], sessions: int, square: int, repeats: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(summary of the whole update, everything else) of one setting."""
    made, observation_size = _sides(chosen, sessions)
    rates = peaks(made.config, observation_size, square)
    samples = harness.interleave(
        made.sides | {f"peak {name}": side for name, (_, side, _) in rates.items()}, repeats
    )
    phases = parts({name: samples[name] for name in made.sides})
    learn = made.known["learn_flops"] / 1e9 / phases["learn"]["seconds"]
    matmul = {}
    for name, (shape, _, flops) in rates.items():
        measured = [flops / 1e9 / sample.wall for sample in samples[f"peak {name}"]]
        matmul[name] = {
            "shape": shape,
            "gflops": rounded(statistics.median(measured)),
            "gflops_range": [rounded(min(measured)), rounded(max(measured))],
            "learn_share": rounded(learn / statistics.median(measured)),
        }
    return harness.summary(samples["update"], made.sides["update"].steps), made.known | {
        "parts": phases,
        "learn_gflops": rounded(learn),
        "matmul": matmul,
    }


def run(options: Options) -> dict[str, Any]:
    sessions = 8 if options.quick else setting.SESSIONS
    chosen = QUICK if options.quick else SETTINGS
    square = 512 if options.quick else (8192 if jax.default_backend() == "gpu" else 2048)
    summaries, found = {}, {}
    for name, each in chosen.items():
        summaries[name], found[name] = measure(each, sessions, square, options.repeats)
    return {
        "config": {
            "settings": chosen,
            "sessions": sessions,
            "square": square,
            "repeats": options.repeats,
            "threads": harness.cores(),
            "precision": setting.config().compute.precision,
        },
        "sides": summaries,
        "ratios": {
            f"{name}: learn phase over {kind} products": {"wall": rate["learn_share"]}
            for name, each in found.items()
            for kind, rate in each["matmul"].items()
        },
        "settings": found,
    }
