"""How a run computes: threads by the size of its minibatches, flags for the same bits, what its
manifest tells.
"""

import os

import jax
import pytest

from jaxtrade.config import load_config
from jaxtrade.runs import rundir, xla_settings
from jaxtrade.storage import internals, programs
from tests.children import run_python
from tests.messages import missing, refused

DETERMINISTIC, TUNE = "--xla_gpu_deterministic_ops", "--xla_gpu_autotune_level"
FLAGS = f"{DETERMINISTIC}=true {TUNE}=0"


SMALL = ("rollout.num_envs=16", "rollout.num_steps=64", "ppo.num_minibatches=4")


def config(*overrides):
    return load_config("quickstart", overrides)


def test_operations_of_a_minibatch_are_counted_by_hand():
    """228 slots, 7 actions. Two networks of 228 x 64 + 64 x 64 weights, heads of 64 x 7 and 64 x
    1.
    """
    small = config(*SMALL)
    weights = 2 * (228 * 64 + 64 * 64) + 64 * 8
    assert xla_settings.minibatch_work(small) == 2 * weights * 256
    seeds = config(*SMALL, "train.num_seeds=3")
    assert xla_settings.minibatch_work(seeds) == 3 * 2 * weights * 256
    memory = config(
        *SMALL,
        "network.kind=gru",
        "rollout.num_shards=1",
        "network.rnn_width=32",
        "network.hidden=[8]",
    )
    assert xla_settings.minibatch_work(memory) == 2 * 256 * (
        3 * 32 * (228 + 32) + 2 * 260 * 8 + 8 * 8
    )
    adapted = config(
        *SMALL,
        "network.adapter=10",
        "network.hidden=[8]",
    )
    assert xla_settings.minibatch_work(adapted) == 2 * 256 * (228 * 10 + 2 * 10 * 8 + 8 * 8)


@pytest.mark.parametrize(
    ("overrides", "threads"),
    [
        (
            SMALL,
            1,
        ),  # 19 million operations
        (
            (
                *SMALL,
                "train.num_seeds=8",
            ),
            6,
        ),
        (
            (
                *SMALL,
                "network.hidden=[256,256,128]",
            ),
            6,
        ),
        ((), 1),
        (("rollout.num_envs=2048",), 6),
        (("compute.threads=3",), 3),
        (("compute.threads=1",), 1),
    ],
)
def test_small_minibatches_get_one_thread(overrides, threads):
    assert xla_settings.threads_of(config(*overrides), 6) == threads


def test_a_network_of_the_users_own_gets_all_cores():
    mine = config().model_copy(update={"algorithm": "mine"})
    assert xla_settings.minibatch_work(mine) is None
    assert xla_settings.threads_of(mine, 6) == 6


def test_settings_are_made_before_jax_starts_and_never_over_the_users_own(monkeypatch):
    monkeypatch.setattr(xla_settings, "backends_started", lambda: False)
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: True)
    monkeypatch.setattr(internals, "supports_xla_flags", lambda flags: True)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    small = config(*SMALL)
    env = {"XLA_FLAGS": "--other"}
    xla_settings.apply_xla_settings([small], env)
    assert env == {"NPROC": "1", "XLA_FLAGS": f"--other {FLAGS}"}
    xla_settings.apply_xla_settings([config()], env)  # the process has its settings
    assert env == {"NPROC": "1", "XLA_FLAGS": f"--other {FLAGS}"}
    own = {"NPROC": "4", "XLA_FLAGS": "--xla_gpu_autotune_level=4"}
    xla_settings.apply_xla_settings([small], own)
    assert own == {"NPROC": "4", "XLA_FLAGS": "--xla_gpu_autotune_level=4"}
    fastest = {}
    other = config(*SMALL, "compute.deterministic=false", "compute.threads=5")
    xla_settings.apply_xla_settings([small, other], fastest)
    assert fastest == {"NPROC": "5"}
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: False)
    without = {}
    xla_settings.apply_xla_settings([small], without)
    assert without == {"NPROC": "1"}


def test_strict_sums_have_as_many_threads_in_every_layout(monkeypatch):
    monkeypatch.setattr(xla_settings, "backends_started", lambda: False)
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: False)
    monkeypatch.setattr(xla_settings, "use_cpu_devices", lambda count, env: None)
    for devices in (1, 4):
        env = {}
        xla_settings.apply_xla_settings(
            [config("parallel.reduce=strict", f"parallel.devices={devices}")], env
        )
        assert env == {"NPROC": "8"}
    own = {}
    xla_settings.apply_xla_settings([config("parallel.reduce=strict", "compute.threads=3")], own)
    assert own == {"NPROC": "3"}


def test_fewer_threads_than_devices_are_refused_with_strict_sums(monkeypatch):
    strict = config("parallel.reduce=strict")
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    xla_settings.check_strict(strict, {"NPROC": "4"})
    xla_settings.check_strict(config(), {"NPROC": "1"})
    with refused("reduce=strict: 4 CPU devices", " 3 "):
        xla_settings.check_strict(strict, {"NPROC": "3"})
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    xla_settings.check_strict(strict, {"NPROC": "3"})


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        (FLAGS, True),
        (f"{DETERMINISTIC} {TUNE}=0", True),
        ("", False),
        (f"{DETERMINISTIC}=true", False),
        (f"{DETERMINISTIC}=false {TUNE}=0", False),
        (f"{FLAGS} {TUNE}=4", False),
    ],
)
def test_flags_for_the_same_bits(flags, asked):
    assert programs.is_deterministic(flags) is asked


def test_half_of_the_flags_is_completed_unless_it_says_otherwise(monkeypatch):
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: True)
    monkeypatch.setattr(internals, "supports_xla_flags", lambda flags: True)
    for given, after in (
        ("--xla_gpu_deterministic_ops=true", FLAGS),
        ("--xla_gpu_deterministic_ops=false", "--xla_gpu_deterministic_ops=false"),
    ):
        env = {"XLA_FLAGS": given}
        programs.use_determinism(env)
        assert env["XLA_FLAGS"] == after


def test_settings_of_a_started_process_stay(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    jax.block_until_ready(jax.numpy.ones(1))
    assert xla_settings.backends_started()
    env = {}
    xla_settings.apply_xla_settings([config("compute.threads=2")], env)
    assert env == {"NPROC": "6"}
    xla_settings.restore(config(), {"nproc": "2", "xla_flags": FLAGS}, env)
    assert env == {"NPROC": "6"}


def test_a_resumed_run_gets_its_settings_back(monkeypatch):
    monkeypatch.setattr(xla_settings, "backends_started", lambda: False)
    env = {"NPROC": "8", "XLA_FLAGS": "--other"}
    now = rundir.facts()["versions"]
    xla_settings.restore(config(), {"nproc": "2", "xla_flags": FLAGS, "versions": now}, env)
    assert env == {"NPROC": "2", "XLA_FLAGS": FLAGS}
    xla_settings.restore(config(), {"nproc": None}, env)  # of an earlier version
    assert env == {"NPROC": "2", "XLA_FLAGS": FLAGS}
    env["XLA_FLAGS"] = (
        "--mine"  # flags of another jaxlib may be unknown to this one, and XLA ends a process for that
    )
    xla_settings.restore(
        config(), {"nproc": "3", "xla_flags": FLAGS, "versions": now | {"jaxlib": "0.1"}}, env
    )
    assert env == {"NPROC": "3", "XLA_FLAGS": "--mine"}


@pytest.mark.slow
def test_importing_jax_is_not_starting_it():
    code = (
        "import jax; from jaxtrade.storage.internals import backends_started; assert not backends_started(); "
        "jax.numpy.ones(1); assert backends_started()"
    )
    assert run_python("-c", code).returncode == 0


def test_the_driver_is_read_from_its_module(tmp_path):
    assert rundir.driver(tmp_path / "absent") is None
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    assert rundir.driver(tmp_path / "version") == "580.95.05"
    (tmp_path / "version").write_text("something else\n")
    assert rundir.driver(tmp_path / "version") is None


def test_a_manifest_tells_what_differs_later():
    now = rundir.facts()
    assert list(rundir.differences(now, now)) == []
    device = now["device"] | {"kind": "NVIDIA H100", "driver": "580.1", "count": 8}
    then = now | {
        "versions": now["versions"] | {"jaxlib": "0.9.0", "jaxtrade": "0.0.1"},
        "device": device,
        "nproc": "3",
        "xla_flags": FLAGS,
    }
    assert sorted(rundir.differences(then, now | {"nproc": "2", "xla_flags": "--other"})) == sorted(
        [
            f"version jaxlib: 0.9.0, now {now['versions']['jaxlib']}",
            f"device kind: NVIDIA H100, now {now['device']['kind']}",
            "device driver: 580.1, now None",
            "compute threads (NPROC): 3, now 2",
            f"XLA_FLAGS: {FLAGS}, now --other",
        ]
    )
    old = {
        "versions": {"jax": now["versions"]["jax"]},
        "nproc": now["nproc"],
    }  # an earlier version recorded less
    assert list(rundir.differences(old, now)) == []


def test_a_run_says_how_it_computes(monkeypatch):
    small = config(
        *SMALL,
        "compute.precision=tf32",
    )
    threads, operands = xla_settings.lines(small, {"NPROC": "1"})
    assert not missing(threads, "threads: 1", f"cores: {os.cpu_count()};", "19 million")
    assert not missing(operands, "tf32 in training", "float32 in evaluation")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert list(xla_settings.lines(config(), {"XLA_FLAGS": FLAGS})) == []
    assert list(xla_settings.lines(config("compute.deterministic=false"), {})) == []
    (note,) = xla_settings.lines(config(), {})
    assert FLAGS in note
