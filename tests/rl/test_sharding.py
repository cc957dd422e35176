"""Which devices hold what: layouts, the configuration of a part, and how the arrays of a state
divide.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade as jt
from jaxtrade.config import make_config
from jaxtrade.config.running import divide_devices
from jaxtrade.rl.algorithms import make_algorithm
from jaxtrade.rl.sharding import MeshDevices, MeshShape, mesh_of, plan_mesh
from jaxtrade.rl.train_state import Kind, kinds_of, part_of
from jaxtrade.runs import memory
from jaxtrade.training.population import Stack
from tests.rl.probes import Probe, probe_params

ENV = Probe((lambda ref, action: ref.cue * action,))


def config(**sections):
    return make_config(
        {
            "algorithm": "dqn",
            "network": {"hidden": [4]},
            "rollout": {"num_envs": 16, "num_steps": 4, "num_shards": 8},
            "dqn": {
                "buffer_size": 256,
                "batch_size": 16,
                "learning_starts": 0,
                "replay": "prioritised",
                "replay_ratio": 1.0,
            },
        }
        | sections
    )


@pytest.mark.parametrize(
    ("devices", "agents", "groups", "found"),
    [
        (1, 1, 8, (1, 1)),
        (8, 1, 8, (1, 8)),
        (8, 8, 1, (8, 1)),
        (8, 2, 8, (2, 4)),
        (6, 4, 3, (2, 3)),
        (4, 64, 1, (4, 1)),
    ],
)
def test_agents_come_first(devices, agents, groups, found):
    assert divide_devices(devices, agents, groups) == found


def test_groups_that_do_not_divide_are_refused_with_what_fits():
    with pytest.raises(
        jt.ConfigError,
        match=r"devices=6: .*8 groups.*4 or 8",
    ):
        jt.load_config("quickstart", ["parallel.devices=6"])
    with pytest.raises(
        jt.ConfigError,
        match=r"8 groups.*use 8, .*num_envs.* 999",
    ):
        jt.load_config("quickstart", ["parallel.devices=999"])
    with pytest.raises(jt.ConfigError, match=r"JAX sees \d+ \(cpu\)"):
        mesh_of(MeshShape(1, 64))


def test_no_process_is_left_without_work(monkeypatch):
    monkeypatch.setattr(
        jax, "devices", lambda: [SimpleNamespace(platform="cpu", id=i) for i in range(16)]
    )
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(jt.ConfigError, match=r"devices=8: .*2 processes .*16 devices"):
        mesh_of(MeshShape(1, 8))


def test_a_part_has_its_share_of_every_count():
    whole = config()
    part = part_of(whole, 4)
    assert (part.rollout.num_envs, part.rollout.num_shards) == (4, 2)
    assert (part.dqn.batch_size, part.dqn.buffer_size) == (4, 64)
    assert part.dqn.gradient_steps(part.rollout) == whole.dqn.gradient_steps(whole.rollout)
    assert part.dqn.rows(part.rollout) == whole.dqn.rows(whole.rollout)
    ppo = jt.load_config("quickstart", ["rollout.num_envs=64"])
    assert part_of(ppo, 8).minibatches == ppo.minibatches
    assert part_of(ppo, 1) is ppo


@pytest.mark.slow
def test_what_divides_and_that_a_checkpoint_has_one_form():
    whole, params = make_algorithm(config(), ENV, 4), probe_params()
    state = jax.jit(whole.init)(jax.random.key(0), params)
    kinds = kinds_of(state)
    assert set(
        jax.tree.leaves((kinds.params, kinds.opt_state, kinds.normaliser, kinds.hparams))
    ) == {Kind.WHOLE}
    assert set(jax.tree.leaves((kinds.env_state, kinds.ref, kinds.first))) == {Kind.LANES}
    assert set(jax.tree.leaves(kinds.own.replay.rows)) == {Kind.RING}
    assert set(jax.tree.leaves(kinds.own.priorities.trees)) == {Kind.LANES}
    assert (kinds.rewards.running, kinds.own.replay.version) == (Kind.LANES, Kind.WHOLE)
    layout = plan_mesh(1, 1, 8, strict=True)
    spread = MeshDevices(
        layout,
        mesh_of(layout),
        make_algorithm(part_of(config(), 8), ENV, 4, reduce=layout.reduce),
        Stack(),
        16,
    )
    numbered = jax.tree.map(
        lambda x: (
            x
            if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
            else jnp.arange(x.size).reshape(x.shape).astype(x.dtype)
        ),
        state,
    )
    lying = spread.put(numbered)
    assert lying.own.replay.rows.words.shape[:2] == (16, 16)  # rows of time, environments
    inside = spread._inside(lying, numbered)
    words = np.asarray(numbered.own.replay.rows.words).reshape(16, 16, -1)
    np.testing.assert_array_equal(
        inside.own.replay.rows.words[3], words[:, 6:8].reshape(32, -1)
    )  # of part 3
    for found in (spread._outside(inside, numbered), lying):
        jax.tree.map(
            np.testing.assert_array_equal,
            jax.random.key_data(found.key),
            jax.random.key_data(numbered.key),
        )
        jax.tree.map(
            np.testing.assert_array_equal,
            spread.gather(found).replace(key=None),
            numbered.replace(key=None),
        )


def test_several_accelerators_have_their_memory_together(monkeypatch):
    device = SimpleNamespace(
        platform="gpu", device_kind="H200", memory_stats=lambda: {"bytes_limit": 100}
    )
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    whole = jt.load_config("quickstart")
    assert memory.device_memory(whole) == (100, "the H200")
    assert memory.device_memory(jt.load_config("quickstart", ["parallel.devices=4"])) == (
        400,
        "4 x H200",
    )
