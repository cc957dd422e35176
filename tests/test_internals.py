"""What no release of JAX and XLA promises: asked for before it is used, in one place each; told
where it is missing.
"""

import ast
import os
import sys

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.errors import JaxtradeError
from jaxtrade.storage import internals, programs
from jaxtrade.storage.programs import DETERMINISTIC, FUSION
from jaxtrade.training import multiprocess
from tests.children import run_python
from tests.messages import refused
from tests.reading import ROOT

# What may be private: the modules that `PARTS` names, the tests' compilation, and the stand-in,
# which patches by name.
PRIVATE = {"jaxtrade/storage/internals.py", "tests/compiling.py"}

# They read programs in any commit, so they use nothing of the package's own.
STAND_ALONE = ("tests/reference_runs/capture.py", "tests/reference_runs/test_capture.py")


@pytest.fixture(autouse=True)
def nothing_lost(monkeypatch):
    asked = internals._try_flags
    monkeypatch.setattr(internals, "_lost", {})
    asked.cache_clear()
    yield
    asked.cache_clear()


def untried(monkeypatch):
    monkeypatch.setattr(internals, "jaxlib_version", lambda: "99.1")


def private_imports(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import | ast.ImportFrom)
            else []
        )
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        found += [name for name in names if name.startswith(("jax._src", "jaxlib"))]
    return found


@pytest.mark.slow
def test_private_names_are_imported_in_one_place_each():
    files = [path for top in ("jaxtrade", "bench", "tests") for path in (ROOT / top).rglob("*.py")]
    assert len(files) > 700
    found = {
        path.relative_to(ROOT).as_posix(): names
        for path in files
        if (names := private_imports(path))
    }
    found.pop("tests/test_internals.py", None)
    for name in STAND_ALONE:
        del found[name]
    assert set(found) <= PRIVATE
    named = [name for names in found.values() for name in names]
    assert len(named) == len(set(named))


def test_each_part_is_on_the_page_of_checks():
    page = (ROOT / "docs" / "checks.md").read_text()
    for part in internals.PARTS.values():
        names = ", ".join(f"`{name}`" for name in part.name.split(", "))
        assert f"| {names} | `{part.place}` | {part.without} |" in page


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert internals.jaxlib_version() == version("jaxlib")


# --- options of XLA ---------------------------------------------------------------------------------------------------


def test_a_tried_release_is_not_asked(monkeypatch):
    monkeypatch.setattr(internals, "_try_flags", None)
    monkeypatch.setattr(internals, "TRIED", ("0.11.",))
    monkeypatch.setattr(internals, "jaxlib_version", lambda: "0.11.2")
    assert internals.supports_xla_flags(FUSION)


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "known"), [(FUSION, True), ("--xla_no_such_option=1", False)])
def test_xla_of_another_release_is_asked(monkeypatch, flag, known):
    untried(monkeypatch)
    environment = dict(os.environ)
    # The stand-in for a future XLA (tests/future) knows none.
    assert internals.supports_xla_flags(flag) is (
        known and "future" not in environment.get("PYTHONPATH", "")
    )
    assert dict(os.environ) == environment


def test_a_process_that_cannot_start_knows_nothing(monkeypatch):
    untried(monkeypatch)
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert not internals.supports_xla_flags(FUSION)


def test_options_that_xla_does_not_know_are_left_out_and_logged(monkeypatch):
    monkeypatch.setattr(internals, "supports_xla_flags", lambda flags: False)
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: True)
    env = {"XLA_FLAGS": "--mine"}
    programs.use_fusion(env)
    programs.use_determinism(env)
    assert env == {"XLA_FLAGS": "--mine"}
    told = internals.list_lost()
    assert len(told) == 2
    assert FUSION in told[0]
    assert DETERMINISTIC in told[1]


@pytest.mark.slow
def test_the_stand_in_for_a_future_xla_refuses_what_it_should():
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("tests/future", ".")),
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    code = (
        "import jaxtrade, jax, os; from jaxtrade.storage import internals; from tests import compiling;"
        "print(len(internals.list_lost()), 'xla_backend' in os.environ.get('XLA_FLAGS', ''), compiling.fast())"
    )
    done = run_python("-c", code, env=env | {"XLA_FLAGS": ""}, timeout=300, check=True)
    assert done.stdout.split() == ["1", "False", "{}"]
    flagged = run_python(
        "-c", "import jax; jax.devices()", env=env | {"XLA_FLAGS": FUSION}, timeout=300
    )
    assert flagged.returncode != 0


# --- private names ----------------------------------------------------------------------------------------------------


def test_without_the_private_name_a_loaded_jax_counts_as_started(monkeypatch):
    jnp.ones(1)
    assert internals.backends_started()
    assert internals.list_lost() == []
    monkeypatch.delattr("jax._src.xla_bridge.backends_are_initialized")
    assert internals.backends_started()
    assert [internals.PARTS["started"].without in line for line in internals.list_lost()] == [True]


def test_without_the_coordination_service_one_process_still_runs(monkeypatch):
    assert (multiprocess.process_index(), multiprocess.process_count()) == (0, 1)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.delattr("jax._src.distributed.global_state")
    with refused("coordination service", kind=JaxtradeError):
        multiprocess.process_count()
