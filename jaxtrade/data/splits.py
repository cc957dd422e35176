"""Split a market's sessions in time order. Splits are traced data, so walk-forward training never recompiles."""

from __future__ import annotations

import numpy as np

from jaxtrade.config import SplitConfig
from jaxtrade.data.expected import check_split
from jaxtrade.data.market import Market
from jaxtrade.types import SessionSet


def session_set(ids: np.ndarray, size: int) -> SessionSet:
    """A SessionSet of rows of the session table, padded to `size` (the market's number of sessions)."""
    import jax.numpy as jnp

    padded = np.full(size, ids[0] if len(ids) else 0, np.int32)
    padded[:len(ids)] = ids
    return SessionSet(ids=jnp.asarray(padded), count=jnp.int32(len(ids)))


def split_ids(sessions: int, config: SplitConfig) -> dict[str, np.ndarray]:
    """Session rows of `train`, `validation`, `test` and `all`, int64 each.

    Held-out blocks are counted from the end. The `embargo_sessions` before each held-out block belong to no split.
    Raises ConfigError if no training session is left.
    """
    check_split(sessions, config)
    held = [("test", config.test_sessions), ("validation", config.validation_sessions)]
    ids, end = {}, sessions
    for name, count in held:
        ids[name] = np.arange(max(end - count, 0), end)
        end -= count + (config.embargo_sessions if count else 0)
    return {"train": np.arange(end), "validation": ids["validation"], "test": ids["test"], "all": np.arange(sessions)}


def split_sessions(market: Market, config: SplitConfig) -> dict[str, SessionSet]:
    """SessionSets `train`, `validation`, `test` and `all` of a market, in time order.

    Raises ConfigError as `split_ids` does.
    """
    ids = split_ids(market.num_sessions, config)
    return {name: session_set(rows, market.num_sessions) for name, rows in ids.items()}
