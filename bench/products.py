"""Matrix products: how many a learner needs, how fast this machine makes them, and the ceiling that
follows.

The ceiling of a comparison is what its ratio would be if our side did nothing but the network's
matrix products, each at the rate that was measured for its shape: in the same run, with the same
number of threads, on as many rows as a minibatch has. Every environment step needs the network
forward once (policy and value, to act), and in each epoch forward and back. Back takes two products
for each forward one, less the first layers' input gradient, which nobody needs. The ceiling is none
too low: of each shape the fastest repeat counts, acting has the rate of a whole minibatch, the
narrow heads have the best rate of all shapes, and products that are needed once a rollout are left
out.

The other side's speed is as measured. A target above the ceiling asks for more than the machine
has.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.types import Array

from . import harness, programs
from .harness import Sample, Side, rounded
from .learning import Learning

CHAIN_FLOPS, ACCELERATOR_CHAIN_FLOPS, QUICK_CHAIN_FLOPS = (
    1 << 30,
    1 << 37,
    1 << 24,
)  # of one repeat, about


class Product(NamedTuple):
    """[rows, inner] x [inner, outer]."""

    rows: int
    inner: int
    outer: int

    @property
    def name(self) -> str:
        return "x".join(map(str, self))


class Chain(NamedTuple):
    """A side that runs one product and its way back many times, and the floating-point operations
    of a repeat.
    """

    side: Side
    flops: int


def layers(config: Learning, observation_size: int, num_actions: int) -> list[tuple[int, int]]:
    """(inputs, outputs) of every dense layer: policy torso and head, then value torso and head."""
    widths = (observation_size, *config.hidden)
    torso = list(itertools.pairwise(widths))
    return [*torso, (widths[-1], num_actions), *torso, (widths[-1], 1)]


def forward_flops(config: Learning, observation_size: int, num_actions: int) -> int:
    """Of the matrix products of one observation through policy and value network."""
    return sum(
        2 * inputs * outputs for inputs, outputs in layers(config, observation_size, num_actions)
    )


def epoch_flops(config: Learning, observation_size: int, num_actions: int) -> int:
    """Of one observation in one epoch: forward, and back twice as much less the input gradient of
    both first layers.
    """
    first = 2 * (2 * observation_size * config.hidden[0])
    return 3 * forward_flops(config, observation_size, num_actions) - first


def learn_flops(config: Learning, observation_size: int, num_actions: int) -> int:
    """Of the matrix products of all epochs over one rollout, counted from shapes."""
    steps = config.num_envs * config.num_steps
    return epoch_flops(config, observation_size, num_actions) * config.num_epochs * steps


def step_flops(config: Learning, observation_size: int, num_actions: int) -> int:
    """Of the matrix products that one environment step needs: acting on it and all epochs over
    it.
    """
    return forward_flops(config, observation_size, num_actions) + config.num_epochs * epoch_flops(
        config, observation_size, num_actions
    )


def step_products(
    config: Learning, observation_size: int, num_actions: int
) -> dict[str | None, int]:
    """Shape of `shapes` -> floating-point operations of it that one environment step needs; of the
    heads under None. Their sum is `step_flops`."""
    rows, epochs = config.num_envs * config.num_steps // config.num_minibatches, config.num_epochs
    found: dict[str | None, int] = {
        None: 2 * config.hidden[-1] * (num_actions + 1) * (1 + 3 * epochs)
    }
    for i, (inputs, outputs) in enumerate(itertools.pairwise((observation_size, *config.hidden))):
        one = 2 * 2 * inputs * outputs  # in policy and value network
        through, weights = Product(rows, inputs, outputs).name, Product(inputs, rows, outputs).name
        found[through] = found.get(through, 0) + one * (1 + epochs + (epochs if i else 0))
        found[weights] = found.get(weights, 0) + one * epochs
    return found


def chain(rows: int, inner: int, outer: int, length: int) -> tuple[Callable[[], Any], int]:
    """(work, its floating-point operations): `length` times [rows, inner] x [inner, outer] and
    back, each product's result the next one's input. The matrix is part of a reflection, so that
    values neither grow nor fade."""
    normal = jax.random.normal(jax.random.key(0), (max(inner, outer),))
    reflection = jnp.eye(len(normal)) - 2.0 * jnp.outer(normal, normal) / jnp.dot(normal, normal)
    there = reflection[:inner, :outer]
    back = jnp.array(there.T)

    def run(x: Array, there: Array, back: Array) -> Array:
        return jax.lax.scan(lambda x, _: ((x @ there) @ back, None), x, None, length=length)[0]

    x = jax.random.normal(jax.random.key(1), (rows, inner))
    program = programs.compiled(run, x, there, back).program
    return lambda: program(x, there, back), length * 4 * rows * inner * outer


def shapes(config: Learning, observation_size: int) -> list[Product]:
    """Of a minibatch in the hidden layers: forward (its way back is the input gradient's shape),
    and the weights' gradient. The heads are too narrow to show a machine's rate."""
    rows = config.num_envs * config.num_steps // config.num_minibatches
    torso = list(itertools.pairwise((observation_size, *config.hidden)))
    found = [
        product
        for inputs, outputs in torso
        for product in (Product(rows, inputs, outputs), Product(inputs, rows, outputs))
    ]
    return list(dict.fromkeys(found))


def chains(config: Learning, observation_size: int, quick: bool) -> dict[str, Chain]:
    """A product's shape -> its chain, compiled."""
    full = CHAIN_FLOPS if jax.devices()[0].platform == "cpu" else ACCELERATOR_CHAIN_FLOPS
    wanted = QUICK_CHAIN_FLOPS if quick else full
    made = {}
    for product in shapes(config, observation_size):
        work, flops = chain(
            *product, length=max(1, wanted // (4 * product.rows * product.inner * product.outer))
        )
        made[product.name] = Chain(harness.side(work, 1), flops)
    return made


def rates(
    samples: Mapping[str, Sequence[Sample]], flops: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Shape -> billions of floating-point operations per wall and per CPU second: median, and
    range.
    """
    found = {}
    for name, taken in samples.items():
        by_wall = [flops[name] / 1e9 / sample.wall for sample in taken]
        by_cpu = [flops[name] / 1e9 / sample.cpu for sample in taken]
        found[name] = {
            "gflops": rounded(statistics.median(by_wall)),
            "gflops_range": [rounded(min(by_wall)), rounded(max(by_wall))],
            "gflops_per_cpu_second": rounded(statistics.median(by_cpu)),
            "gflops_per_cpu_second_range": [rounded(min(by_cpu)), rounded(max(by_cpu))],
        }
    return found


def ceiling(
    needed: Mapping[str | None, int],
    measured: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The speed that products alone would allow, and its ratio to each other side.

    Args:
        needed: `step_products`.
        measured: `rates`.
        others: side -> `harness.summary`.
    """
    per_second, per_cpu_second = (
        _steps(needed, {name: rate[key][1] for name, rate in measured.items()})
        for key in ("gflops_range", "gflops_per_cpu_second_range")
    )
    return {
        "flops_per_step": sum(needed.values()),
        "products": dict(measured),
        "most_steps_per_second": rounded(per_second),
        "most_steps_per_cpu_second": rounded(per_cpu_second),
        "ratios": {
            name: {
                "wall": rounded(per_second / side["steps_per_second"]),
                "cpu": rounded(per_cpu_second / side["steps_per_cpu_second"]),
            }
            for name, side in others.items()
        },
    }


def _steps(needed: Mapping[str | None, int], gflops: Mapping[str, float]) -> float:
    """Steps per second where each shape's products run at its own rate, and others at the best of
    all.
    """
    best = max(gflops.values())
    return 1e9 / sum(
        flops / (best if name is None else gflops[name]) for name, flops in needed.items()
    )
