"""What a kept program is found by: everything that could change it is in its key, and values are
not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.storage import internals, source
from jaxtrade.storage.programs import KEEP, kept_programs
from jaxtrade.storage.source import program_key, read_source, unchanged

SOURCE = read_source()
ARGS = {"a": jnp.ones((3, 2)), "b": jnp.int32(4)}


def key(name="n", facts=None, args=(ARGS,), files=SOURCE):
    assert files is not None
    return program_key(name, facts or {"config": {"x": 1}}, args, files)


class Pair(NamedTuple):
    a: jax.Array
    b: jax.Array


@pytest.mark.parametrize(
    "other",
    [
        {"name": "m"},
        {"facts": {"config": {"x": 2}}},
        {"args": (ARGS | {"a": jnp.ones((2, 3))},)},
        {"args": (ARGS | {"a": jnp.ones((3, 2), jnp.int32)},)},
        {"args": (Pair(**ARGS),)},
        {"args": (ARGS, None)},
        {"args": (ARGS | {"b": jax.ShapeDtypeStruct((), jnp.int32, weak_type=True)},)},
        {"files": source.Source("0" * 64, ())},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_a_program_is_made_of_is_in_its_key(other):
    assert key() == key()
    assert key() != key(**other)


def test_values_are_not_in_the_key():
    assert key() == key(
        args=({"a": np.zeros((3, 2), np.float32), "b": jax.ShapeDtypeStruct((), jnp.int32)},)
    )


@pytest.mark.parametrize("variable", ["XLA_FLAGS", "NPROC", "LIBTPU_INIT_ARGS"])
def test_variables_that_xla_reads_are_in_the_key(monkeypatch, variable):
    before = key()
    monkeypatch.setenv(variable, "7")
    assert key() != before


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("jax_default_matmul_precision", "bfloat16"),
        ("jax_default_prng_impl", "rbg"),
        ("jax_debug_nans", True),
        ("jax_disable_most_optimizations", None),
        ("jax_threefry_partitionable", None),
    ],
)
def test_settings_of_jax_are_in_the_key(setting, value):
    before, was = key(), jax.config.values[setting]
    jax.config.update(setting, not was if value is None else value)
    try:
        assert key() != before
    finally:
        jax.config.update(setting, was)
    assert key() == before


def test_where_jax_keeps_its_own_programs_is_not_in_the_key(tmp_path):
    before, was = key(), jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert key() == before
    finally:
        jax.config.update("jax_compilation_cache_dir", was)


@pytest.mark.parametrize("part", ["_versions", "_processor"])
def test_versions_and_processor_are_in_the_key(monkeypatch, part):
    before = key()
    monkeypatch.setattr(source, part, lambda: {"jax": "0.0"})
    assert key() != before


def test_the_source_is_every_file_by_name_and_content(tmp_path):
    package = tmp_path / "package"
    (package / "storage").mkdir(parents=True)
    (package / "storage" / "source.py").write_text("a = 1\n")
    first = read_source(package)
    assert first is not None
    assert read_source(package) == first
    assert unchanged(first, package)

    (package / "storage" / "source.py").write_text("a = 2\n")
    edited = read_source(package)
    assert edited is not None
    assert edited.digest != first.digest
    assert not unchanged(first, package)

    (package / "more.py").write_text("")
    added = read_source(package)
    assert added is not None
    assert added.digest not in (first.digest, edited.digest)
    (package / "more.py").rename(package / "most.py")
    renamed = read_source(package)
    assert renamed is not None
    assert renamed.digest != added.digest


def test_files_of_an_editor_are_no_source(tmp_path):
    """Emacs keeps a lock beside a changed file: a link that leads nowhere, and ends in .py."""
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "source.py").write_text("a = 1\n")
    first = read_source(tmp_path)
    assert first is not None
    (tmp_path / "storage" / ".#source.py").symlink_to("user@host.1234")
    assert read_source(tmp_path) == first
    assert unchanged(first, tmp_path)


def test_a_file_that_vanishes_while_it_is_read_ends_nothing(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "source.py").write_text("a = 1\n")
    first = read_source(tmp_path)
    assert first is not None
    (tmp_path / "gone.py").symlink_to("nowhere")  # listed, and not there
    assert read_source(tmp_path) is None
    assert not unchanged(first, tmp_path)


def test_without_source_files_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "jaxtrade.so").touch()
    assert read_source(tmp_path) is None
    monkeypatch.setitem(jax.config.values, "jax_compilation_cache_dir", str(tmp_path))
    assert kept_programs(None, print) is None


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setattr(internals, "can_keep", lambda: True)
    assert kept_programs(SOURCE, print, {}) is not None  # the tests have a cache folder
    assert kept_programs(SOURCE, print, {KEEP: "0"}) is None


def test_it_is_off_with_a_release_whose_programs_cannot_be_kept(monkeypatch):
    monkeypatch.setattr(internals, "jaxlib_version", lambda: "0.11.2")
    assert kept_programs(SOURCE, print, {}) is None
