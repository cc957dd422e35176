"""Programs compiled for devices that are not here: the budgets of launches, and what is left
out.
"""

import functools
import importlib.metadata
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench import accelerator, table
from bench.accelerator import DEVICES, SHAPES, Loop
from bench.catalogue import COMPILED, Options
from tests.messages import refused
from tests.reading import ROOT

measured = functools.cache(accelerator.measure)


def compiled(target, shape):
    if not accelerator.installed(DEVICES[target]):
        pytest.skip(
            f"needs the compiler for {target}: jaxtrade bench accelerator --install --target {target}"
        )
    return measured(target, shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "budget"),
    [
        (
            "reference",
            {
                "rollout_step": 22,
                "after_rollout_per_step": 3,
                "gradient_step": 45,
                "launches": 7500,
                "row_loops": 0,
                "temporaries": 330_000_000,
            },
        ),
        ("env", {"step": 12, "row_loops": 0}),
    ],
)
def test_launches_on_an_h200_stay_within_their_budgets(shape, budget):
    found = compiled("h200", shape)
    assert {name: found[name] for name in budget if found[name] > budget[name]} == {}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["h200"])
def test_a_minibatch_over_eight_devices_has_one_collective_operation(target):
    found = compiled(target, "divided")
    assert found["collectives"]["minibatch"] == 1
    assert found["collectives"]["bytes_of_minibatch"] < 1_300_000  # the gradient, and few figures
    assert found["row_loops"] == 0
    assert found["arguments"] < 25_000_000


class Text:
    """A module of given loops."""

    def __init__(self, loops):
        self.loops = lambda: iter(loops)
        self.total = lambda of, name="": 0


@pytest.mark.parametrize(
    ("inside", "launches"),
    [
        ([], 348),
        ([("minibatches", 8, 42)], 42),
        ([("levels", 20, 3), ("other levels", 20, 4)], 348),
    ],
)
def test_the_gradient_step_is_the_minibatch_inside_an_epoch_or_the_outer_loop(inside, launches):
    """An epoch of 348 launches: 8 x 42 of them are nearly all, 20 x 4 are not."""
    outer = [("rollout", 128, 16), ("advantages", 128, 3), ("epochs", 2, 348)]
    loops = [
        *(Loop(name, (), "", trips, own) for name, trips, own in outer),
        *(Loop(name, ("epochs",), "", trips, own) for name, trips, own in inside),
    ]
    found = accelerator.phases(Text(loops), 128)  # pyright: ignore[reportArgumentType]
    assert (found["rollout_step"], found["gradient_step"]) == (16, launches)
    assert found["after_rollout_per_step"] == 3


def test_a_target_without_its_compiler_is_left_out_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv(accelerator.FOLDER, str(tmp_path))
    found = accelerator.run(Options(targets=("h200", "v5e")))
    assert set(found["left_out"]) == {"h200", "v5e"}
    assert "--install" in found["left_out"]["v5e"]
    assert found["targets"] == {}


def test_only_the_compilers_processes_see_their_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(accelerator.FOLDER, str(tmp_path / "compilers"))
    monkeypatch.setenv("PYTHONPATH", "mine")
    gpu, tpu = (accelerator.environment(DEVICES[name]) for name in ("h200", "v5e"))
    assert gpu["PYTHONPATH"].split(":") == [str(tmp_path / "compilers"), "mine"]
    assert (gpu["JAX_PLATFORMS"], tpu["JAX_PLATFORMS"]) == ("cpu,cuda", "cpu")
    assert "autotune_level=0" in gpu["XLA_FLAGS"]


@pytest.mark.slow
def test_two_programs_are_compiled_for_a_tpu_at_the_same_time():
    """Two commands, or two tests: the compiler's lock on the machine's TPU is not taken."""
    if not accelerator.installed("tpu"):
        pytest.skip("needs the compiler for v5e: jaxtrade bench accelerator --install --target v5e")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: accelerator.measure("v5e", "env", quick=True), range(2)))
    assert found[0]["text_sha256"] == found[1]["text_sha256"]


def test_the_compilers_are_of_the_versions_that_jax_asks_for():
    [tpu] = accelerator.packages("tpu")
    assert re.fullmatch(r"libtpu==[\d.]+\.\*", tpu)
    assert f'{tpu}; extra == "tpu"' in (importlib.metadata.requires("jax") or ())
    assert (
        accelerator.packages("cuda")[0] == f"jax-cuda13-pjrt=={importlib.metadata.version('jax')}"
    )


@pytest.mark.slow
def test_a_failed_compilation_says_why(monkeypatch, tmp_path):
    monkeypatch.setenv(accelerator.FOLDER, str(tmp_path))
    (tmp_path / "libtpu").mkdir()  # installed, it seems
    with refused("v5e, reference: the compilation", kind=accelerator.CompilationError):
        accelerator.measure("v5e", "reference")
    found = accelerator.run(Options(targets=("v5e",), shapes=("reference",)))
    assert "failed" in found["left_out"]["v5e reference"]


def test_the_committed_result_has_every_program_of_every_device():
    result = table.read(ROOT / COMPILED / "accelerator.json")
    assert set(result["targets"]) == set(DEVICES)
    assert all(set(found) == set(SHAPES) for found in result["targets"].values())
    assert not result["quick"]
    assert not result["stamp"]["commit"].endswith("+")
