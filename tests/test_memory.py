"""The estimate of a run's memory: its arithmetic, what is refused, and real peaks."""

import os
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.config import RunConfig, load_config, make_config
from jaxtrade.env.observation import make_spec
from jaxtrade.env.tasks.guards import task_of
from jaxtrade.errors import ConfigError, OutOfMemoryError
from jaxtrade.limits import usable_memory
from jaxtrade.networks.heads import make_actor_critic
from jaxtrade.runs import memory
from tests.children import run_python, sets
from tests.messages import missing, refused

GB = 10**9
CGROUP = "/sys/fs/cgroup"


def test_the_parts_by_hand():
    """One feature and a window of ten: D = 10 (1 + 3) + 20. 64 x 32 rows in 4 minibatches of
    512.
    """
    config = make_config(
        {
            "env": {"window": 10, "features": ["close"]},
            "network": {"hidden": [16, 8]},
            "rollout": {"num_envs": 64, "num_steps": 32},
            "ppo": {"num_minibatches": 4},
            "train": {"num_seeds": 3},
        }
    )
    assert memory.observation_slots(config) == 60
    assert memory.parameter_count(config) == 2 * (60 * 16 + 16 * 8) + 8 * 9
    assert {part.name: part.bytes for part in memory.memory_parts(config)} == {
        "process": 1_000_000_000,
        "parameters": 3 * 2248 * 52,
        "environments": 3 * 64 * 600,
        "rollout": 3 * 2048 * (220 + 24),
        "gradient": 3 * 512 * 4 * (240 + 48),
        "acting": 3 * 64 * 4 * (120 + 96),
    }
    assert (
        memory.estimate_memory(config) - memory.estimate_memory(config, device=True)
        == 1_000_000_000
    )


def test_each_update_of_delay_takes_the_memory_of_a_policy():
    """Three copies of float32, for each of two agents."""
    config = make_config({"actor": {"delay": 5}, "train": {"num_seeds": 2}})
    older = next(part for part in memory.memory_parts(config) if part.name == "older policies")
    assert older.bytes == 2 * 5 * memory.parameter_count(config) * 3 * 4
    assert older.keys[0] == "actor.delay"


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ({"num_minibatches": 8}, 16_384),
        ({"gradient_rows": 1000}, 1000),
        ({"num_minibatches": 1024}, 4096 * 128 // 1024),
        ({}, 4096 * 128 // 32),  # auto: at most 32 minibatches
    ],
)
def test_a_gradient_has_no_more_rows_than_are_computed_at_once(values, rows):
    config = make_config({"rollout": {"num_envs": 4096, "num_steps": 128}, "ppo": values})
    per_row = 4 * (4 * memory.observation_slots(config) + 2 * 128)
    assert {part.name: part.bytes for part in memory.memory_parts(config)}[
        "gradient"
    ] == rows * per_row


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["env.task=entry"],
        ["env.task=advised", "env.advice=true"],
        ["network.kind=gru", "network.rnn_width=96"],
        ["network.hidden=300,20,10"],
    ],
)
def test_slots_and_parameters_are_those_of_the_network(overrides):
    config = load_config("quickstart", overrides)
    slots, actions = make_spec(config.env).size, len(task_of(config.env).actions(config.env))
    assert slots <= memory.observation_slots(config) <= slots + memory.OTHER_SLOTS
    network = make_actor_critic(config.network, actions)
    shapes = jax.eval_shape(
        network.init, jax.random.key(0), network.first_carry(), jnp.zeros(slots)
    )
    real = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert real * 0.95 <= memory.parameter_count(config) <= real * 1.15


def test_what_cannot_fit_is_refused_with_the_number_and_the_key_to_lower():
    config = load_config("quickstart", ["rollout.num_envs=1M", "train.num_seeds=4"])
    need = memory.estimate_memory(config)
    memory.check(config, int(need / memory.FACTOR) + 1, "this machine")
    with pytest.raises(ConfigError) as caught:
        memory.check(config, int(need / memory.FACTOR) - 1, "this machine")
    assert str(caught.value).startswith("memory: ")
    assert not missing(
        str(caught.value),
        memory.size(need),
        "this machine has ",
        "Made of: rollout",
        "Lower rollout.num_envs (1,000,000)",
        "rollout.num_steps (32)",
        "train.num_seeds (4)",
    )
    assert list(memory.note(config, need, "this machine")) == []
    (line,) = memory.note(config, need - 1, "this machine")
    assert line.startswith("note: ")
    assert memory.size(need) in line


def test_a_rollout_has_rows_that_int32_can_count():
    config = load_config(None, ["rollout.num_envs=16777216", "rollout.num_steps=128"])
    with refused("2,147,483,648: a rollout has fewer"):
        memory.check(config, 10**18, "this machine")


def test_a_small_run_on_a_small_machine_says_so():
    with refused("process 1 GB. Free"):
        memory.check(RunConfig(), GB // 4, "this machine")


def test_sizes_in_words():
    assert [memory.size(count) for count in (1_000, 12_400_000, 2_400_000_000, 8.8e20)] == [
        "0.001 MB",
        "12 MB",
        "2.4 GB",
        "880,000 PB",
    ]


@pytest.mark.parametrize(
    ("total", "group", "limit", "expected"),
    [
        (1000, "", {}, 1_024_000),
        (1000, "0::/a", {f"{CGROUP}/a/memory.max": "5000"}, 5000),
        (1, "0::/a", {f"{CGROUP}/a/memory.max": "5000"}, 1024),
    ],
)
def test_the_machine_has_what_its_control_group_allows(total, group, limit, expected):
    files = {"/proc/meminfo": f"MemTotal: {total} kB", "/proc/self/cgroup": group, **limit}
    assert usable_memory("Linux", files.get) == expected


def test_an_accelerator_is_asked_once_jax_has_started(monkeypatch, tmp_path):
    """Before that only what no device could hold is refused, because the machine's memory says
    nothing about it.
    """
    monkeypatch.setattr(memory, "ACCELERATORS", (str(tmp_path),))
    assert memory.memory_limit({}) == (memory.LARGEST_DEVICE, "the largest accelerator")
    assert memory.memory_limit({"JAX_PLATFORMS": "cpu"})[1] == "this machine"
    with refused("largest accelerator has 4 TB"):
        memory.check_memory([load_config(None, ["rollout.num_envs=1e12"])], {})
    memory.check_memory([load_config(None, ["rollout.num_envs=4M"])], {})
    device = SimpleNamespace(
        platform="gpu", device_kind="NVIDIA H100", memory_stats=lambda: {"bytes_limit": 80 * GB}
    )
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    memory.check_device(RunConfig())
    with refused("NVIDIA H100 has 80 GB. ", ": rollout"):
        memory.check_device(load_config(None, ["rollout.num_envs=8M", "rollout.num_steps=128"]))
    assert list(memory.memory_notes(RunConfig())) == []


def test_the_end_of_memory_in_xla_is_explained():
    """A real one: no machine has 2^60 bytes."""
    with (
        refused("(RESOURCE_EXHAUSTED", ": process", kind=OutOfMemoryError),
        memory.explain_memory(RunConfig()),
    ):
        jax.block_until_ready(jax.jit(lambda: jnp.zeros(1 << 58, jnp.float32))())
    with pytest.raises(RuntimeError, match=r"^another fault$"), memory.explain_memory(RunConfig()):
        raise RuntimeError("another fault")


PEAKS = {
    "a large minibatch": (
        "rollout.num_envs=1024",
        "rollout.num_steps=64",
        "ppo.num_minibatches=1",
        "ppo.num_epochs=1",
        "network.hidden=512,512",
        "ppo.gradient_rows=65536",
    ),
    "a long memory": (
        "rollout.num_envs=1024",
        "rollout.num_steps=64",
        "ppo.num_epochs=1",
        "network.kind=gru",
        "network.rnn_width=256",
    ),
}
CHILD = """
import sys
from jaxtrade.cli import main
code = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("PEAK", code, peak.split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("name", list(PEAKS))
def test_the_estimate_is_near_the_peak_of_a_real_run(name, tmp_path):
    """Two updates of each, and its evaluation, compiled anew: the resident peak of the process is
    within `FACTOR`.

    A process that finds its programs compiled needs about half a gigabyte less.
    """
    config = load_config("quickstart", PEAKS[name])
    steps = 2 * config.rollout.num_envs * config.rollout.num_steps
    keys = (
        *PEAKS[name],
        f"train.total_timesteps={steps}",
        "train.chunk_updates=1",
        "train.checkpoint_every=1",
        "evaluation.policy_samples=1",
    )
    done = run_python(
        "-c",
        CHILD,
        "train",
        "--run-dir",
        str(tmp_path / "run"),
        *sets(*keys),
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")},
        timeout=800,
        check=True,
    )
    *_, (_, code, peak) = (
        line.split() for line in done.stdout.splitlines() if line.startswith("PEAK")
    )
    assert code in ("0", "1"), done.stderr  # 1: two updates may fail a health check
    ratio = memory.estimate_memory(config) / (1024 * int(peak))
    assert 1 / memory.FACTOR < ratio < memory.FACTOR, f"{name}: estimate over peak is {ratio:.2f}"


def test_generated_bars_of_a_set_count_for_each_symbol_and_once_more_for_the_whole():
    data = {
        "source": "synthetic",
        "synthetic_sessions": 10,
        "markets": ["NQ", "ES"],
        "per_market": {"ES": {"synthetic_sessions": 4}},
    }
    bars = {part.name: part.bytes for part in memory.memory_parts(make_config({"data": data}))}[
        "bars"
    ]
    assert bars == 2 * (10 + 4) * memory.PER_SESSION
