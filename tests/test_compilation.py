"""How programs are compiled; where they are kept, and that a command keeps them."""

import os
import stat
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.storage import internals
from jaxtrade.storage.programs import FUSION, VARIABLE, cache_folder, use_fusion, written_by_others
from tests.children import run_python
from tests.reading import ROOT

CODE = """
import jax, jax.numpy as jnp
from jaxtrade.storage.programs import use_cache
print(use_cache() or "kept")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.jit(lambda x: jnp.sin(x) + 1)(jnp.ones(3))
print(jax.config.jax_compilation_cache_dir)
"""


def run(**env):
    own = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = run_python("-c", CODE, env=own | env, check=True, cwd=ROOT, timeout=120)
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
@pytest.mark.parametrize(
    ("mode", "named", "used"),
    [
        (0o775, True, True),
        (0o775, False, False),
        (0o777, True, False),
    ],
)
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, mode, named, used):
    """A folder that the user named, and only his own group can write to, is used with a warning."""
    own, home = tmp_path / "programs", tmp_path / "cache"
    folder = own if named else home / "jaxtrade" / "programs"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    said, *_, last = run(**{"XDG_CACHE_HOME": str(home)} | ({VARIABLE: str(own)} if named else {}))
    assert last == (str(folder) if used else "None")
    assert list(folder.iterdir()) == [] or used
    assert "chmod go-w" in said


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
@pytest.mark.parametrize("open_one", ["programs", "."])
def test_the_folder_and_what_it_is_in_count(tmp_path, open_one):
    (tmp_path / "programs").mkdir()
    tmp_path.chmod(0o755)
    assert written_by_others(tmp_path / "programs", named=True) == ("", True)
    (tmp_path / open_one).chmod(0o777)
    said, used = written_by_others(tmp_path / "programs", named=True)
    assert not used
    assert str((tmp_path / open_one).resolve()) in said
    tmp_path.chmod(0o1777)
    assert written_by_others(tmp_path / "programs", named=True)[1] == (
        open_one == "."
    )  # as /tmp, a folder for all


def test_the_folder_follows_each_systems_custom(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    end = Path("jaxtrade") / "programs"
    assert cache_folder({}, "Linux") == tmp_path / ".cache" / end
    assert cache_folder({"XDG_CACHE_HOME": "/c"}, "Linux") == Path("/c") / end
    assert cache_folder({}, "Darwin") == tmp_path / "Library" / "Caches" / end
    assert cache_folder({"LOCALAPPDATA": "/l"}, "Windows") == Path("/l") / end
    assert cache_folder({VARIABLE: "/mine"}, "Linux") == Path("/mine")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="XDG_CACHE_HOME and mode bits are POSIX")
def test_programs_are_kept_in_a_folder_of_this_user_alone(tmp_path):
    said, folder = run(XDG_CACHE_HOME=str(tmp_path))
    assert (said, Path(folder)) == ("kept", tmp_path / "jaxtrade" / "programs")
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert any(Path(folder).iterdir())


@pytest.mark.slow
def test_what_jax_was_reported_stays(tmp_path):
    assert run(**{VARIABLE: str(tmp_path)}) == ["kept", str(tmp_path)]
    assert run(JAX_ENABLE_COMPILATION_CACHE="0", XDG_CACHE_HOME=str(tmp_path)) == ["kept", "None"]
    assert not (tmp_path / "jaxtrade").exists()
    (tmp_path / "file").touch()
    said, folder = run(XDG_CACHE_HOME=str(tmp_path / "file"))  # where none can be made
    assert folder == "None"
    assert VARIABLE in said


def test_fusion_is_asked_for_once_and_never_against_the_user(
    monkeypatch,
):
    monkeypatch.setattr(internals, "supports_xla_flags", lambda flags: True)
    for given, wanted in (
        ("", FUSION),
        ("--a=b", f"--a=b {FUSION}"),
        (FUSION, FUSION),
        ("--xla_backend_extra_options=c", "--xla_backend_extra_options=c"),
    ):
        env = {"XLA_FLAGS": given}
        use_fusion(env)
        assert env == {"XLA_FLAGS": wanted}
    off = {"JAXTRADE_XLA_DEFAULTS": "1"}
    use_fusion(off)
    assert off == {"JAXTRADE_XLA_DEFAULTS": "1"}


def test_leaves_that_share_their_inputs_are_computed_together():
    """What the option is for, on this version of XLA: a shared chain stands in the program once."""

    def chain(x):
        for _ in range(12):
            x = jnp.where(x > 3, x - 7, x * 5 + 1)
        return x + 1, x - 1, jnp.maximum(x, 0)

    if internals.list_lost():
        pytest.skip(internals.list_lost()[0])
    text = jax.jit(chain).lower(jnp.arange(64)).compile().as_text()
    assert FUSION in os.environ["XLA_FLAGS"]
    assert text.count(" select(") == 12
