"""This version against another checkout: who computes with how many threads, what is refused, one
quick run.
"""

from pathlib import Path

import pytest

from bench import harness, versions
from bench.command import request
from jaxtrade.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def test_each_version_has_the_threads_that_it_chooses(monkeypatch):
    monkeypatch.setattr(harness, "cores", lambda: 6)
    chosen = {
        name: (versions.threads(shape, True), versions.threads(shape, False))
        for name, shape in versions.SHAPES.items()
    }
    assert chosen == {"env": (6, 6), "small": (1, 6), "large": (6, 6), "default": (6, 6)}


def test_another_checkout_is_required(tmp_path):
    with pytest.raises(ConfigError, match="another checkout"):
        request(names=["versions"], code=tmp_path)
    assert request(names=["versions"], code=ROOT).code == ROOT
