"""Shared by all tests: compiled programs are kept between runs in pytest's cache folder."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True)  # the same examples every time; at home new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared reference data; tests that need it skip where it is absent."""
    root = Path(os.environ.get("JAXTRADE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip(f"no shared data at {root} (set JAXTRADE_SHARED)")
    return root
