"""Shared by all tests: compiled programs are kept between runs in pytest's cache folder, few of them in memory;
Ctrl-C is heard."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

MAPS = Path("/proc/self/maps")
MOST_MAPS = 15_000

settings.register_profile("ci", derandomize=True)  # the same examples every time; at home new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has them ignore SIGINT, and their children too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[object]:
    """A process that keeps thousands of compiled programs comes to the most memory mappings that Linux allows it
    (65,530 by default; each compiled operation takes three) and crashes in the next compilation. They are let go
    between files only: within one, tests count the compilations of programs they share."""
    result = yield
    last_of_file = nextitem is None or nextitem.path != item.path
    if last_of_file and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
    return result


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared reference data; tests that need it skip where it is absent."""
    root = Path(os.environ.get("JAXTRADE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip(f"no shared data at {root} (set JAXTRADE_SHARED)")
    return root
