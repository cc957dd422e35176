"""Several agents as one program: rows of a stacked state, over shared environment parameters.

Agent i is the agent that the algorithm trains alone from the same key (within the order of float sums: another
program). With one agent nothing is stacked, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.metrics import EACH
from jaxtrade.types import Algorithm, Array, PyTree


def population(algorithm: Algorithm, num_seeds: int) -> Algorithm:
    """`init` and `update` over stacked keys [N] and states [N, ...]; `act` stays that of one agent."""
    if num_seeds == 1:
        return algorithm
    return algorithm._replace(init=jax.vmap(algorithm.init, (0, None)),
                              update=jax.vmap(algorithm.update, (0, None, None)))


def seed_keys(seed: int, num_seeds: int) -> Array:
    """Typed keys of the seeds `seed`, `seed + 1`, ...: key[N], or one key for one agent."""
    if num_seeds == 1:
        return jax.random.key(seed)
    return jax.vmap(jax.random.key)(jnp.arange(num_seeds, dtype=jnp.uint32) + jnp.uint32(seed))


def agent(tree: PyTree, i: int, num_seeds: int) -> PyTree:
    """Agent i's part of a stacked state or policy."""
    return tree if num_seeds == 1 else jax.tree.map(lambda x: x[i], tree)


def mean_and_each(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Metrics of one update, [N, ...] -> `name`: the mean over agents (of those where it is defined; for flags: all of
    them), `name/each`: a list by agent."""
    row: dict[str, Any] = {}
    for name, value in values.items():
        row[name] = bool(value.all()) if value.dtype == np.bool_ else _mean(value).tolist()
        row[name + EACH] = value.tolist()
    return row


def _mean(value: np.ndarray) -> np.ndarray:
    defined = ~np.isnan(value)
    count = defined.sum(axis=0)
    total = np.where(defined, value, 0).sum(axis=0, dtype=np.float64)
    return np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)


def agent_rows(rows: Sequence[Mapping[str, Any]], i: int) -> list[dict[str, Any]]:
    """Rows as agent i alone would have written them, without what the clock says."""
    return [{name.removesuffix(EACH): value[i] for name, value in row.items() if name.endswith(EACH)} for row in rows]
