"""p-values that are read together."""

from __future__ import annotations

import numpy as np


def holm(p: np.ndarray) -> np.ndarray:
    """float64[n]: Holm's adjusted p-values of float[n] (Scandinavian Journal of Statistics 6,
    1979).

    With p sorted upwards, the i-th of n is max over j <= i of min(1, (n - j + 1) p_j). To reject
    where the adjusted p is at most alpha keeps the chance of any false rejection at or below alpha,
    however the tests depend on each other. Raises ValueError where a p is not from 0 to 1.
    """
    values = np.asarray(p, np.float64)
    if values.ndim != 1 or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p-values are a vector of numbers from 0 to 1, got {values}")
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
