"""This version against another checkout: who computes with how many threads, what is refused, one
quick run.
"""

from __future__ import annotations

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
    for code in (None, tmp_path):
        with pytest.raises(ConfigError, match="give another checkout of jaxtrade"):
            request(names=["versions"], code=code)
    with pytest.raises(ConfigError, match="--code: of `jaxtrade bench versions`"):
        request(names=["env_step"], code=ROOT)
    assert request(names=["versions"], code=ROOT).code == ROOT
    assert "versions" not in request(quick=True).names
