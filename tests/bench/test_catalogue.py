"""Every bench that the command offers is there."""

from __future__ import annotations

import importlib
import inspect

import pytest

from bench import catalogue


@pytest.mark.parametrize("name", list(catalogue.BENCHES))
def test_every_bench_is_a_module_that_runs(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    expected = ["asked", "load", "parts", "probe"] if name in catalogue.SUITES else ["options"]
    assert list(inspect.signature(module.run).parameters) == expected
    assert module.__doc__
