"""Checkpoints: whole, or named and refused."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxtrade.errors import CheckpointError
from jaxtrade.storage import checkpoint
from tests.messages import missing, refused


class Inner(struct.PyTreeNode):
    weights: jax.Array
    half: jax.Array


def make_state(value=1.0):
    return {
        "inner": Inner(jnp.full((3, 2), value, jnp.float32), jnp.full(4, value, jnp.bfloat16)),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(8), 3),
        "flags": jnp.array([True, False]),
        "count": jnp.int32(5),
        "list": (jnp.uint32(1), [jnp.zeros((0, 3))]),
    }


def bits(x):
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return str(x.dtype), x.shape, np.asarray(jax.random.key_data(x) if is_key else x).tobytes()


def assert_same(a, b):
    assert jax.tree.map(bits, a) == jax.tree.map(bits, b)


def test_round_trip_is_exact(tmp_path):
    state = make_state(0.1)
    path = checkpoint.save(tmp_path, 12, state, {"config": "abc", "steps": 2**40})
    assert path.name == "update-00000012"
    like = jax.eval_shape(lambda: make_state(0.0))
    restored = checkpoint.restore_latest(tmp_path, like)
    assert_same(restored.state, state)
    assert (restored.step, restored.metadata, restored.problems) == (
        12,
        {"config": "abc", "steps": 2**40},
        [],
    )


def test_keeps_the_newest_and_leaves_no_temporary_files(tmp_path):
    (tmp_path / ".update-00000003.new").mkdir()  # a writer was killed here
    for step in range(1, 6):
        checkpoint.save(tmp_path, step, make_state(step), {}, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["update-00000004", "update-00000005"]


def test_later_checkpoints_of_an_abandoned_history_are_set_aside(tmp_path):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, step, make_state(step), {})
    (tmp_path / "update-00000003" / "state.npz").unlink()
    checkpoint.save(tmp_path, 2, make_state(20), {})
    restored = checkpoint.restore_latest(tmp_path, make_state())
    assert (restored.step, restored.problems) == (2, [])
    assert_same(restored.state, make_state(20))
    assert (tmp_path / "update-00000003.stale").is_dir()


def damaged(data, kind, at):
    """With a flipped bit, cut, or with zeros at the end."""
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
    return data[:at] + (b"" if kind == "cut" else bytes(len(data) - at))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.npz", "manifest.json"])
@pytest.mark.parametrize("kind", ["flip", "cut", "zero", "delete"])
def test_no_damage_is_ever_loaded(tmp_path, name, kind):
    """Each of ten random faults is named, and the older checkpoint is used."""
    for step in (1, 2):
        checkpoint.save(tmp_path, step, make_state(step), {"n": step})
    path = tmp_path / "update-00000002" / name
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(len(whole) // 2, size=10):
        if kind == "delete":
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(damaged(whole, kind, at))
        restored = checkpoint.restore_latest(tmp_path, make_state())
        assert (restored.step, len(restored.problems)) == (1, 1)
        assert not missing(restored.problems[0], "update-00000002", name)
        assert_same(restored.state, make_state(1))


def test_swapped_directories_are_detected(tmp_path):
    checkpoint.save(tmp_path, 1, make_state(1), {})
    checkpoint.save(tmp_path, 2, make_state(2), {})
    (tmp_path / "update-00000001").rename(tmp_path / "x")
    (tmp_path / "update-00000002").rename(tmp_path / "update-00000001")
    (tmp_path / "x").rename(tmp_path / "update-00000002")
    with refused("no checkpoint is readable", kind=CheckpointError):
        checkpoint.restore_latest(tmp_path, make_state())


def test_none_good_and_none_at_all(tmp_path):
    with refused("no checkpoint found", kind=CheckpointError):
        checkpoint.restore_latest(tmp_path / "absent", make_state())
    path = checkpoint.save(tmp_path, 1, make_state(), {})
    (path / "manifest.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"\n.*manifest\.json: damaged"):
        checkpoint.restore_latest(tmp_path, make_state())


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (
            lambda s: s | {"count": jnp.float32(5)},
            ("'count'", "int32[]", "expected float32[]"),
        ),
        (
            lambda s: s | {"flags": jnp.ones(3, bool)},
            ("'flags'", "bool[2]", "expected bool[3]"),
        ),
        (lambda s: s | {"new": jnp.ones(3)}, ("'new' is missing",)),
        (
            lambda s: {k: v for k, v in s.items() if k != "count"},
            ("'count' is not part",),
        ),
    ],
)
def test_another_structure_names_the_leaf(tmp_path, change, facts):
    checkpoint.save(tmp_path, 1, make_state(), {})
    with refused(*facts, kind=CheckpointError):
        checkpoint.restore_latest(tmp_path, change(make_state()))


def test_objects_are_refused(tmp_path):
    with refused("'a' is a str", kind=TypeError):
        checkpoint.save(tmp_path, 1, {"a": "text"}, {})
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_older_checkpoint_and_no_litter(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, make_state(1), {})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with refused("No space", kind=OSError):
        checkpoint.save(tmp_path, 2, make_state(2), {})
    assert os.listdir(tmp_path) == ["update-00000001"]
    assert checkpoint.restore_latest(tmp_path, make_state()).step == 1


def test_every_file_is_synced_before_the_rename(tmp_path, monkeypatch):
    events = []
    real_fsync, real_rename = os.fsync, checkpoint.Path.rename

    def fsync(descriptor):
        events.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real_fsync(descriptor)

    def rename(self, target):
        events.append(f"rename {self.name} {target.name}")
        return real_rename(self, target)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc to name file descriptors")
    monkeypatch.setattr(checkpoint.os, "fsync", fsync)
    monkeypatch.setattr(checkpoint.Path, "rename", rename)
    checkpoint.save(tmp_path / "run", 1, make_state(), {})
    first, *events = events  # the directory that the run's own was made in
    assert events == [
        "state.npz",
        "manifest.json",
        ".update-00000001.new",
        "rename .update-00000001.new update-00000001",
        "run",
    ]
    assert first == tmp_path.name


def test_policy_bundle(tmp_path):
    policy = {"parameters": jnp.arange(3.0), "normaliser": jnp.ones((1, 2))}
    schema = {"actions": ["HOLD", "BUY"], "observation": [{"name": "close", "warm_up": 1}]}
    path = checkpoint.save_policy(tmp_path / "policy", policy, schema)
    assert checkpoint.read_schema(path) == schema
    loaded, found = checkpoint.load_policy(path, jax.tree.map(jnp.zeros_like, policy))
    assert_same(loaded, policy)
    assert found == schema
    with refused("'normaliser/x' is missing", kind=CheckpointError):
        checkpoint.load_policy(
            path, {"parameters": jnp.arange(3.0)} | {"normaliser": {"x": jnp.ones(1)}}
        )


@pytest.mark.parametrize("name", ["policy.npz", "schema.json", "manifest.json"])
def test_damaged_policy_bundle_is_refused(tmp_path, name):
    path = checkpoint.save_policy(tmp_path / "policy", {"a": jnp.arange(3.0)}, {"x": 1})
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 4
    (path / name).write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        checkpoint.load_policy(path, {"a": jnp.arange(3.0)})
