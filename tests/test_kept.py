"""Programs that are kept as files: what finds them, what does not, and what happens to a bad
file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrade.rl.state import EpisodeTotals, Policy
from jaxtrade.storage import executable, kept
from jaxtrade.storage.compiling import THREADS, Programs
from jaxtrade.storage.kept import KEY, PROGRAM, Store
from jaxtrade.storage.source import read_source
from tests.compiling import accepted

pytestmark = pytest.mark.skipif(
    not accepted(kept.APART), reason=f"this XLA does not know {', '.join(kept.APART)}"
)
SOURCE = read_source()
ARGS = {"a": jnp.ones((3, 2)), "b": jnp.int32(4)}


class Pair(NamedTuple):
    a: jax.Array
    b: jax.Array


def jaxtrade_state():
    return Policy({"layer": EpisodeTotals(jnp.zeros(2), jnp.zeros(2))}, None)


def double(tree):
    return {"sum": jnp.sum(tree["a"]) * tree["b"], "twice": 2 * tree["a"]}


def program():
    return jax.jit(double)


def store(folder, said=None, **keywords):
    assert SOURCE is not None
    return Store(folder, SOURCE, [].append if said is None else said.append, **keywords)


def begun(folder, name="double", args=(ARGS,), said=None, made=None, facts=None, keep=True):
    """Compile or read `double` as a start of a command does -> (the program, whether it was
    read).
    """
    with Programs(store(Path(folder), said), facts) as programs:
        pending = programs.begin(name, made or program(), args, keep=keep)
        return pending.wait(), pending.kept


def names(folder, suffix):
    return (
        sorted(path.name for path in Path(folder).glob(f"*{suffix}"))
        if Path(folder).exists()
        else []
    )


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_second_start_reads_what_the_first_compiled(tmp_path):
    first, was_kept = begun(tmp_path)
    assert not was_kept
    assert (len(names(tmp_path, PROGRAM)), len(names(tmp_path, KEY))) == (1, 1)
    again, was_kept = begun(tmp_path)
    assert was_kept
    for one, other in zip(jax.tree.leaves(first(ARGS)), jax.tree.leaves(again(ARGS)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert again(ARGS).keys() == {"sum", "twice"}
    assert again.out_info["twice"].shape == (3, 2)


def test_the_shapes_of_a_kept_program_are_known_before_it_is_read(tmp_path):
    begun(tmp_path)
    gate = threading.Event()
    with Programs(store(tmp_path)) as programs:
        for _ in range(THREADS):
            programs.also(gate.wait)  # no thread can read
        try:
            pending = programs.begin("double", program(), (ARGS,))
            found = pending.result_like
            assert not pending._future.done()
        finally:
            gate.set()
        pending.wait()
        assert pending.kept
    assert found == {
        "sum": jax.ShapeDtypeStruct((), jnp.float32),
        "twice": jax.ShapeDtypeStruct((3, 2), jnp.float32),
    }
    assert found == jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), pending.wait().out_info
    )


def test_the_shapes_of_a_damaged_program_are_those_of_the_one_compiled_instead(tmp_path):
    begun(tmp_path)
    path = tmp_path / names(tmp_path, PROGRAM)[0]
    path.write_bytes(path.read_bytes()[:-1])
    said = []
    with Programs(store(tmp_path, said)) as programs:
        assert programs.begin("double", program(), (ARGS,)).result_like["twice"].shape == (3, 2)
    assert len(said) == 1
    assert "checksum" in said[0]


def test_a_second_start_does_not_trace(tmp_path):
    traced = []

    def counted(tree):
        traced.append(1)
        return double(tree)

    assert not begun(tmp_path, made=jax.jit(counted))[1]
    assert begun(tmp_path, made=jax.jit(counted))[1]
    assert traced == [1]


def test_an_edit_that_changes_no_program_compiles_none(tmp_path):
    """Other facts, the same lowered text: the program is read after tracing, and found at once next
    time.
    """
    begun(tmp_path)
    assert begun(tmp_path, facts={"edited": True})[1]
    assert (len(names(tmp_path, PROGRAM)), len(names(tmp_path, KEY))) == (1, 2)


def test_an_edit_that_changes_the_program_compiles_it(tmp_path):
    begun(tmp_path)
    other = jax.jit(lambda tree: {"sum": jnp.sum(tree["a"]) * tree["b"], "twice": 3 * tree["a"]})
    made, was_kept = begun(tmp_path, facts={"edited": True}, made=other)
    assert not was_kept
    assert float(made(ARGS)["twice"][0, 0]) == 3.0


def test_an_edit_that_reads_another_argument_compiles_it(tmp_path):
    """JAX leaves out what is not used, so both programs have the same text, and take another
    argument.
    """
    arguments = {"a": jnp.float32(1), "b": jnp.float32(10)}
    begun(tmp_path, args=(arguments,), made=jax.jit(lambda tree: tree["a"] * 2))
    made, was_kept = begun(
        tmp_path, args=(arguments,), made=jax.jit(lambda tree: tree["b"] * 2), facts={"edited": 1}
    )
    assert not was_kept
    assert float(made(arguments)) == 20.0


def test_other_names_of_the_same_figures_are_another_program(tmp_path):
    begun(tmp_path)
    renamed = jax.jit(
        lambda tree: {"total": jnp.sum(tree["a"]) * tree["b"], "twice": 2 * tree["a"]}
    )
    assert begun(tmp_path, facts={"edited": True}, made=renamed)[0](ARGS).keys() == {
        "total",
        "twice",
    }


def test_donated_arguments_stay_donated(tmp_path):
    made = jax.jit(lambda x: x + 1, donate_argnums=0)
    begun(tmp_path, args=(jnp.zeros(4),), made=made)
    again, was_kept = begun(tmp_path, args=(jnp.zeros(4),), made=made)
    given = jnp.zeros(4)
    np.testing.assert_array_equal(again(given), np.ones(4))
    assert was_kept
    assert given.is_deleted()


def test_arguments_of_another_shape_are_refused(tmp_path):
    begun(tmp_path)
    again, _ = begun(tmp_path)
    with pytest.raises(TypeError):
        again(ARGS | {"a": jnp.ones((4, 2))})


def test_random_keys_and_named_tuples_come_back(tmp_path):
    def split(key):
        return Pair(*jax.random.split(key))

    made = jax.jit(split)
    given = jax.random.key(3)
    first, _ = begun(tmp_path, args=(given,), made=made)
    # `Pair` is no class of this package, so the structure of the result cannot be read.
    assert not begun(tmp_path, args=(given,), made=made)[1]
    tupled = jax.jit(lambda key: tuple(split(key)))
    begun(tmp_path, "tuple", (given,), made=tupled)
    again, was_kept = begun(tmp_path, "tuple", (given,), made=tupled)
    assert was_kept
    assert (jax.random.key_data(again(given)[1]) == jax.random.key_data(first(given).b)).all()


@pytest.mark.slow
def test_another_process_reads_a_program_that_calls_lapack(tmp_path):
    """LAPACK is loaded when a program is lowered. A process that only reads one must load it too,
    or it crashes.
    """
    code = (
        "import sys, jax, jax.numpy as jnp\n"
        "from tests.test_kept import begun\n"
        "made = jax.jit(lambda x: jnp.linalg.qr(x)[1])\n"
        "run, was_kept = begun(sys.argv[1], args=(jnp.eye(3) * 2,), made=made)\n"
        "print(was_kept, abs(float(run(jnp.eye(3) * 2)[0, 0])))\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[1],
            env=os.environ,
            timeout=300,
        ).stdout.split()
        for _ in range(2)
    ]
    assert found == [["False", "2.0"], ["True", "2.0"]]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:-9] + b"x" + data[-8:],
        lambda data: data.replace(b"program 1", b"program 0"),
    ],
)
def test_a_damaged_program_is_said_and_compiled_again(tmp_path, damage):
    begun(tmp_path)
    path = tmp_path / names(tmp_path, PROGRAM)[0]
    path.write_bytes(damage(path.read_bytes()))
    said = []
    again, was_kept = begun(tmp_path, said=said)
    assert not was_kept
    assert float(again(ARGS)["sum"]) == 24.0
    assert len(said) == 1
    assert str(path) in said[0]
    assert begun(tmp_path)[1]


def test_a_damaged_key_is_a_miss(tmp_path):
    begun(tmp_path)
    (tmp_path / names(tmp_path, KEY)[0]).write_bytes(b"\xff" * 64)
    assert begun(tmp_path)[1]  # by its text, after tracing
    (tmp_path / names(tmp_path, KEY)[0]).write_text("../" + "a" * 61)
    assert begun(tmp_path)[1]


def test_a_key_whose_program_was_removed_is_a_miss(tmp_path):
    begun(tmp_path)
    (tmp_path / names(tmp_path, PROGRAM)[0]).unlink()
    assert not begun(tmp_path)[1]
    assert begun(tmp_path)[1]


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "jaxtrade.errors:ConfigError",
        "jaxtrade.none:None",
        "tests.test_kept:Pair",
        "numpy:ndarray",
    ],
)
def test_a_result_has_nodes_of_known_classes_only(name):
    with pytest.raises(ValueError, match=f"{name} is no node of a result"):
        executable._tree_of([name, "NoneType", None, []])


@pytest.mark.parametrize(
    "value",
    [
        3,
        None,
        (1, [2, {"b": 3, "a": (4,)}]),
        jaxtrade_state(),
        optax.adam(1e-3).init({"w": jnp.ones(2)}),
    ],
    ids=["leaf", "none", "nested", "state", "optimiser"],
)
def test_the_structure_of_a_result_comes_back(value):
    structure = jax.tree.structure(value)
    described = json.loads(json.dumps(executable._tree(structure)))
    assert executable._tree_of(described) == structure


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "file").touch()
    said = []
    with Programs(store(tmp_path / "file", said)) as programs:
        for name in ("one", "two"):
            programs.begin(name, jax.jit(double), (ARGS,)).wait()
    assert len(said) == 1
    assert "not kept for the next start" in said[0]


def test_a_folder_that_can_only_be_read_still_serves(tmp_path, monkeypatch):
    begun(tmp_path)

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", refused)
    assert begun(tmp_path)[1]


def test_a_damaged_program_that_cannot_be_removed_is_compiled_again(tmp_path, monkeypatch):
    begun(tmp_path)
    [path] = tmp_path.glob(f"*{PROGRAM}")
    path.write_bytes(b"damaged")

    def refused(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    said = []
    monkeypatch.setattr(Path, "unlink", refused)
    made, was_kept = begun(tmp_path, said=said)
    assert not was_kept
    assert float(made(ARGS)["twice"][0, 0]) == 2.0
    assert "cannot be used" in said[0]


def test_a_key_that_finds_a_program_is_used_too(tmp_path):
    begun(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    assert begun(tmp_path)[1]
    assert all(path.stat().st_mtime > 1 for path in tmp_path.iterdir())


def test_a_program_that_cannot_be_traced_never_began(tmp_path):
    broken = jax.jit(lambda tree: tree["absent"])
    with Programs(store(tmp_path)) as programs:
        with pytest.raises(KeyError):
            programs.begin("broken", broken, (ARGS,))
        assert programs.begun(broken, (ARGS,)) is None
        assert programs.begin("double", program(), (ARGS,), later=True).wait()(ARGS)["sum"] == 24.0


def test_an_error_of_a_task_that_nobody_waits_for_is_printed(capsys):
    with Programs() as programs:
        programs.also(lambda: 1 / 0)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_files_are_the_users_alone(tmp_path):
    begun(tmp_path / "new")
    if os.name != "nt":
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}


def test_the_oldest_programs_go_first(tmp_path):
    for at, width in enumerate((3, 4, 5)):
        begun(tmp_path, args=(ARGS | {"a": jnp.ones((width, 2))},))
        for path in tmp_path.iterdir():
            if path.stat().st_mtime > 1000:
                os.utime(path, (at + 1, at + 1))
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert len(sizes) == 6
    small = store(tmp_path, most_bytes=sum(sizes.values()) - 1)
    small._evict()
    assert len(names(tmp_path, PROGRAM) + names(tmp_path, KEY)) in (4, 5)
    assert begun(tmp_path, args=(ARGS | {"a": jnp.ones((5, 2))},))[1]


# --- what is not kept -------------------------------------------------------------------------------------------------


def test_a_program_that_calls_the_host_is_not_kept(tmp_path):
    def called(tree):
        jax.debug.callback(lambda x: None, tree["b"])
        return double(tree)

    said = []
    made, _ = begun(tmp_path, said=said, made=jax.jit(called))
    made(ARGS)
    assert names(tmp_path, PROGRAM) == names(tmp_path, KEY) == []
    assert said == ["the program 'double' is not kept for the next start: it calls the host"]


def test_a_program_that_is_not_to_be_kept_is_not(tmp_path):
    assert not begun(tmp_path, keep=False)[1]
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


def test_source_that_changed_while_the_process_runs_neither_leaves_nor_takes_a_program(
    tmp_path, monkeypatch
):
    begun(tmp_path / "kept")
    monkeypatch.setattr(kept, "unchanged", lambda source: False)
    begun(tmp_path / "new")
    assert names(tmp_path / "new", KEY) == []
    traced = []
    begun(tmp_path / "kept", made=jax.jit(lambda tree: (traced.append(1), double(tree))[1]))
    assert traced == [1]
