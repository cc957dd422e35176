"""Digests of programs: equal for a rename, different for another constant."""

import json

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from tests.children import run_python
from tests.reference_runs.capture import digest, passing_through
from tests.reference_runs.digests import CAPTURE, compare


def program(name, helper, constant):
    """A jitted function of this name that calls another one."""

    def inner(x):
        return jnp.sort(x) * constant

    def outer(x):
        return {f"of {name}": jax.jit(inner)(x) + 1.0}

    inner.__name__, outer.__name__ = helper, name
    return jax.jit(outer)


def digest_of(name, helper, constant):
    return digest(program(name, helper, constant).lower(jnp.zeros(4)).as_text())


def test_a_rename_keeps_the_digest_and_another_constant_does_not():
    found = digest_of("update", "loss", 0.5)
    assert digest_of("learn", "objective", 0.5) == found
    assert digest_of("update", "loss", 0.25) != found


def test_a_chunk_that_passes_through_returns_its_state():
    lowered = jax.jit(lambda x, n: (n + 1, x * 2, x > 0), donate_argnums=0).lower(jnp.zeros(3), 1)
    module = lowered.compiler_ir("stablehlo")
    assert isinstance(module, ir.Module)
    text = str(passing_through(module))
    assert "return %arg1, %arg0, %" in text
    assert "dense<true>" in text
    assert "multiply" not in text


def test_what_differs_is_counted(capsys):
    assert compare({"a": ["1"], "b": ["2", "3"], "c": []}, {"a": ["1"], "b": ["2"], "c": []}) == 2
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 of 3 ")


@pytest.mark.slow
def test_a_command_leaves_the_digests_of_its_programs(tmp_path):
    out = tmp_path / "found.json"
    run_python(str(CAPTURE), str(out), "config", "show", "quickstart", check=True)
    assert json.loads(out.read_text()) == []
