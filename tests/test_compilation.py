"""Where compiled programs are kept, and that a command keeps them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtrade.compilation import VARIABLE, cache_folder

CODE = """
import jax, jax.numpy as jnp
from jaxtrade.compilation import use_cache
print(use_cache() or "kept")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: jnp.sin(x) + 1)(jnp.ones(3))
print(jax.config.jax_compilation_cache_dir)
"""


def run(**env: str) -> list[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run([sys.executable, "-c", CODE], env=own | env, capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parents[1], timeout=120)
    return done.stdout.splitlines()


def test_the_folder_follows_each_systems_custom(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    end = Path("jaxtrade") / "programs"
    assert cache_folder({}, "Linux") == tmp_path / ".cache" / end
    assert cache_folder({"XDG_CACHE_HOME": "/c"}, "Linux") == Path("/c") / end
    assert cache_folder({}, "Darwin") == tmp_path / "Library" / "Caches" / end
    assert cache_folder({"LOCALAPPDATA": "/l"}, "Windows") == Path("/l") / end
    assert cache_folder({VARIABLE: "/mine"}, "Linux") == Path("/mine")


@pytest.mark.skipif(os.name == "nt", reason="XDG_CACHE_HOME and mode bits are POSIX")
def test_programs_are_kept_in_a_folder_of_this_user_alone(tmp_path):
    said, folder = run(XDG_CACHE_HOME=str(tmp_path))
    assert (said, Path(folder)) == ("kept", tmp_path / "jaxtrade" / "programs")
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert any(Path(folder).iterdir())


def test_what_jax_was_told_stays(tmp_path):
    assert run(**{VARIABLE: str(tmp_path)}) == ["kept", str(tmp_path)]
    assert run(JAX_ENABLE_COMPILATION_CACHE="0", XDG_CACHE_HOME=str(tmp_path)) == ["kept", "None"]
    assert not (tmp_path / "jaxtrade").exists()


@pytest.mark.skipif(os.name == "nt", reason="XDG_CACHE_HOME is POSIX")
def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    said, folder = run(XDG_CACHE_HOME=str(tmp_path / "file"))
    assert folder == "None"
    assert said.startswith("compiled programs are not kept for the next run")
    assert VARIABLE in said
