"""Shared by all tests: compiled programs are kept between runs in pytest's cache folder."""

from __future__ import annotations

import jax
import pytest


def pytest_configure(config: pytest.Config) -> None:
    if config.cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(config.cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session", autouse=True)
def _no_silent_rank_promotion() -> None:
    """A scalar may meet a vector; a [B] array that meets a [B, D] one by accident is an error."""
    jax.config.update("jax_numpy_rank_promotion", "warn")
