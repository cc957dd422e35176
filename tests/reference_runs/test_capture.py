"""Digests of programs: equal for a rename, different for another constant."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jaxlib.mlir import ir

from tests.reference_runs.capture import digest, passing_through
from tests.reference_runs.digests import CAPTURE, commands, compare


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


def test_every_task_learner_and_network_is_among_the_configurations():
    from jaxtrade.config import RunConfig

    words = {word for command in commands().values() for word in command}
    assert len(commands()) >= 40
    for key, names in {
        "env.task": ("entry", "manage", "advised", "allocate"),
        "algorithm": ("dqn", "pqn"),
        "network.kind": ("gru",),
        "advisor.fusion": ("trust", "slots", "gate", "rules", "none"),
    }.items():
        assert key.partition(".")[0] in RunConfig.model_fields
        assert not [name for name in names if f"{key}={name}" not in words]


@pytest.mark.slow
def test_a_command_leaves_the_digests_of_its_programs(tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(CAPTURE), str(out), "config", "show", "quickstart"]
    subprocess.run(command, env=os.environ, capture_output=True, check=True)
    assert json.loads(out.read_text()) == []
