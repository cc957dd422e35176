"""The environment for host programs: where it runs."""

import jax
import pytest

from jaxtrade.errors import ConfigError
from jaxtrade.interop.host import HostEnv
from tests.interop.interfaces import ENV, PARAMS


def test_without_a_cpu_backend_the_fix_is_named(monkeypatch):
    """What JAX does under JAX_PLATFORMS=cuda."""

    def only_cuda(backend=None):
        raise RuntimeError(f"Unknown backend {backend}. Available backends are ['cuda']")

    monkeypatch.setattr(jax, "devices", only_cuda)
    with pytest.raises(
        ConfigError,
        match=r"\['cuda'\].*PLATFORMS=cuda,cpu",
    ):
        HostEnv(ENV, PARAMS)
