"""Programs that are compiled side by side: what fails is told, and nothing is left running."""

import threading

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.storage.compiling import Pending, Programs
from jaxtrade.text import FORECAST
from jaxtrade.training.loop import Chunk
from tests.messages import refused


class Lowered:
    """A lowered program that fails to compile, or waits."""

    def __init__(self, wait=None):
        self.wait, self.out_info = wait, None

    def compile(self):
        if self.wait is not None:
            self.wait.wait(60)
            return None
        raise MemoryError("too large")

    def lower(self, *args):
        return self


@pytest.fixture
def compiling():
    """Tells the compiling threads that have come since; other tests may keep theirs."""
    before = set(threading.enumerate())
    return lambda: [
        thread
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("jaxtrade-compile")
    ]


def test_an_error_of_a_compilation_is_raised_where_the_program_is_needed(compiling):
    with Programs() as programs:
        pending = programs.begin("fails", Lowered(), ())
        with refused("too large", kind=MemoryError):
            pending.wait()
    with Programs() as programs:
        programs.begin("fails and is never needed", Lowered(), ())
    assert not compiling()


def test_nothing_is_left_running_after_an_interrupt(compiling):
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


def test_a_program_that_cannot_be_traced_never_began():
    broken, args = jax.jit(lambda tree: tree["absent"]), ({"a": jnp.ones(3)},)
    with Programs() as programs:
        with pytest.raises(KeyError):
            programs.begin("broken", broken, args)
        assert programs.find(broken, args) is None
        total = jax.jit(lambda tree: tree["a"].sum())
        assert programs.begin("total", total, args, later=True).wait()(*args) == 3.0
        assert programs.find(total, args) is not None


def test_an_error_of_a_task_that_nobody_waits_for_is_printed(capsys):
    with Programs() as programs:
        programs.run_after(lambda: 1 / 0)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_how_long_a_program_compiles_is_told_once():
    gate = threading.Event()
    with Programs() as programs:
        pending = programs.begin("waits", Lowered(gate), ())
        pending.lowering = 30.0
        assert pending.forecast().startswith(f"{FORECAST}about 2 min")
        assert not pending.forecast()
        gate.set()
    assert not Pending.ready(len, None).forecast()
