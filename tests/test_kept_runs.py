"""Runs whose programs are compiled side by side and kept: the same bits, nothing traced again,
nothing left running.
"""

from __future__ import annotations

import functools
import shutil
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxtrade as jt
from jaxtrade.cli import entry
from jaxtrade.runs.compiled import programs_of
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import resume, run
from jaxtrade.storage import internals
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.kept import PROGRAM, Store
from jaxtrade.storage.source import read_source
from jaxtrade.training.chunk import Chunk
from tests.reference_runs.__main__ import digests
from tests.reference_runs.runs import TINY

CONFIG = jt.load_config("quickstart", [*TINY, "env.task=entry"])


class Traced:
    """Names of the functions that JAX traces or lowers."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.on = False
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs
        if self.on and event in (
            "/jax/core/compile/jaxpr_trace_duration",
            "/jax/core/compile/jaxpr_to_mlir_module_duration",
        ):
            self.names.append(str(kwargs.get("fun_name")))


@functools.cache
def traced():
    return Traced()


def store(folder: Path, said: list[str]) -> Store:
    source = read_source()
    assert source is not None
    return Store(folder, source, said.append)


# Whole runs, one after the other. `.ci/run` makes them with the oldest Python, whose JAX keeps
# programs.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not internals.can_keep(), reason="this JAX keeps no programs"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """folder -> digests, of the same run: with an empty store, with a full one, and without any."""
    root = tmp_path_factory.mktemp("runs")
    said: list[str] = []
    heard, names = traced(), {}
    for name in ("cold", "warm", "off"):
        heard.on, heard.names = True, []
        run(CONFIG, root / name, store=None if name == "off" else store(root / "kept", said))
        heard.on, names[name] = False, set(heard.names)
    return root, {name: digests(root / name) for name in names}, names, said


def test_cold_warm_and_off_give_the_same_bits(runs):
    _, found, _, said = runs
    assert found["cold"] == found["warm"] == found["off"]
    assert said == []


def test_a_second_start_traces_and_lowers_no_large_program(runs):
    root, _, names, _ = runs
    large = {"init", "run", "step_all"}
    assert large <= names["cold"]
    assert not large & names["warm"]
    # init, chunk, validation; on one session both passes of the evaluation are one program
    assert len(list((root / "kept").glob(f"*{PROGRAM}"))) == 4
    assert "ready, as an earlier start compiled it, in" in (root / "warm" / "run.log").read_text()
    assert " compiled in " in (root / "cold" / "run.log").read_text()


@pytest.mark.parametrize(
    "kept", [*(pytest.param(each, marks=pytest.mark.long) for each in ("kept", None)), "new"]
)
def test_a_run_resumes_to_the_same_bits_whatever_is_kept(runs, tmp_path, kept):
    root, found, _, _ = runs
    again = tmp_path / "again"
    shutil.copytree(root / "cold", again)
    last = sorted((again / "checkpoints").glob("update-*"))[-1]
    for path in (
        last,
        again / "policy",
        again / "evaluation",
        again / "summary.json",
        again / "best",
        again / "policy_best",
    ):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(root / "cold" / "best", again / "best")
    folder = None if kept is None else root / "kept" if kept == "kept" else tmp_path / "kept"
    resume(again, None if folder is None else store(folder, []))
    mine = digests(again)
    shared = [name for name in mine if name.startswith(("checkpoints", "evaluation"))]
    assert len(shared) > 4
    assert {name: mine[name] for name in shared} == {name: found["cold"][name] for name in shared}


@pytest.mark.parametrize(
    "setting",
    [
        "ppo.learning_rate=1e-4",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                "network.hidden=[8]",
                "evaluation.policy_samples=2",
                "data.source=synthetic",
                "costs.commission=9",
            )
        ),
    ],
)
def test_other_settings_are_other_facts(setting):
    other = jt.load_config("quickstart", [*TINY, "env.task=entry", setting])
    assert prepare(other).facts != prepare(CONFIG).facts


def test_a_seed_is_an_argument_of_the_same_programs():
    other = prepare(jt.load_config("quickstart", [*TINY, "env.task=entry", "seed=5"]))
    assert other.facts == prepare(CONFIG).facts
    first, second = (
        jax.jit(setup.algorithm.init)
        .lower(jax.random.key(setup.config.seed), setup.params)
        .as_text()
        for setup in (prepare(CONFIG), other)
    )
    assert first == second


def test_programs_with_parts_of_the_users_own_are_not_kept(tmp_path):
    """A part may read anything when it is traced, so an edit of it could not be noticed."""
    own = CONFIG.model_copy(update={"imports": ("tests.user_parts",)})
    setup = prepare(CONFIG)
    with programs_of(setup, store(tmp_path, [])) as programs:
        assert programs._store is not None
    object.__setattr__(setup, "config", own)
    with programs_of(setup, store(tmp_path, [])) as programs:
        assert programs._store is None


def test_code_that_calls_the_command_keeps_no_whole_programs(monkeypatch):
    """It may have changed any part of the package."""
    seen = []
    monkeypatch.setitem(
        entry.COMMANDS, "evaluate", lambda args: seen.append(args.source_files) or 0
    )
    entry.main(["evaluate", "folder"])
    monkeypatch.setattr("sys.argv", ["jaxtrade", "evaluate", "folder"])
    entry.main()
    assert seen[0] is None
    assert seen[1] is not None


# --- threads ----------------------------------------------------------------------------------------------------------


class Lowered:
    """A lowered program that fails to compile, or waits."""

    def __init__(self, wait: threading.Event | None = None) -> None:
        self.wait, self.out_info = wait, None

    def compile(self):
        if self.wait is not None:
            self.wait.wait(60)
            return None
        raise MemoryError("too large")

    def lower(self, *args):
        return self


def compiling():
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("jaxtrade-compile")
    ]


def test_an_error_of_a_compilation_is_raised_where_the_program_is_needed():
    with Programs() as programs:
        pending = programs.begin("fails", Lowered(), ())
        with pytest.raises(MemoryError, match="too large"):
            pending.wait()
    with Programs() as programs:
        programs.begin("fails and is never needed", Lowered(), ())
    assert not compiling()


def test_nothing_is_left_running_after_an_interrupt():
    gate = threading.Event()
    waiting = []

    def interrupted():
        with Programs() as programs:
            waiting.extend(programs.begin(str(i), Lowered(gate), (jnp.zeros(i),)) for i in range(5))
            threading.Timer(0.2, gate.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not compiling()
    assert waiting[-1]._future.cancelled()


def test_a_program_that_another_thread_compiles_is_no_recompile():
    def program(state, params, inputs):
        other = threading.Thread(target=lambda: jax.jit(lambda x: x * 3 + 1)(jnp.zeros(7)))
        other.start()
        other.join()
        return state, {}, None

    def recompiling(state, params, inputs):
        jax.jit(lambda x: x * 5 + 1)(jnp.zeros(9))
        return state, {}, None

    for function, least in ((program, 0), (recompiling, 1)):
        with Programs() as programs:
            pending = programs.begin("ready", jax.jit(lambda: 0), ())
            pending.wait()
            pending.wait = lambda function=function: function
            chunk = Chunk(pending)
            chunk(jnp.zeros(2), None)
        assert (chunk.recompiles >= 1) == (least == 1)
