"""The callback transport: thousands of calls in compiled programs, with bugs behind it, on one core
and on four devices. Each in its own process, as what fails here hangs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.advisor.bridge import MOST_BYTES, Bridge, exchange
from jaxtrade.advisor.host.service import AdviceSource
from jaxtrade.errors import ConfigError
from tests.advisor.bridge_parts import HandSource, M, T, plain, row

ROOT = Path(__file__).parents[2]
HANG_S = 150  # some seconds are enough; a hang has no end


def child(calls, *raises, cores="", flags="", **env):
    command = [sys.executable, "-m", "tests.advisor.callback_child", str(calls), *map(str, raises)]
    if cores and shutil.which("taskset"):
        command = ["taskset", "-c", cores, *command]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, **env},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr  # nor at exit
    return json.loads(done.stdout)


def first_core():
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system cannot bind a process to a core")
    return str(min(os.sched_getaffinity(0)))


def sound(found, calls):
    assert found["calls"] == calls
    assert found["version"] == found["newest"] > 0
    assert found["same"]
    assert found["held"] > 1000
    assert found["compiled"] == 1


@pytest.mark.slow
def test_thousands_of_calls_on_one_core_with_a_bug_at_the_first_and_the_thousandth():
    found = child(2000, 1, 1000, cores=first_core())
    sound(found, 2000)
    assert found["contained"] == {"callback SystemExit": 1, "callback RuntimeError": 1}
    assert len(found["reported"]) == 2
    if shutil.which("taskset"):
        assert found["cores"] == 1


@pytest.mark.slow
def test_four_devices_and_synchronous_dispatch():
    four = "--xla_force_host_platform_device_count=4"
    found = child(6000, 1, 3000, flags=four, JAX_CPU_ENABLE_ASYNC_DISPATCH="false")
    sound(found, 6000)
    assert found["devices"] == 4


def test_a_delta_reaches_the_program():
    bridge = Bridge(source := HandSource([row(7, 0.5)]), T, M)
    ask = jax.jit(exchange(bridge))
    got = ask(jnp.int32(0), jnp.array([3, 4], jnp.int32), jnp.array([1.0, 0.0]))
    assert plain(got) == (1, {7: [*row(7, 0.5).values]})
    assert source.wants == [[(3, 1.0)]]
    assert plain(ask(jnp.int32(1), jnp.array([3, 4], jnp.int32), jnp.zeros(2))) == (0, {})
    bridge.wait_for_answers()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_no_exception_leaves_it(monkeypatch, error):
    reported = []
    bridge = Bridge(HandSource([row(1)]), T, M, log=reported.append)
    ask = jax.jit(exchange(bridge))
    arguments = jnp.zeros(1, jnp.int32), jnp.zeros(1)

    def raises(*_):
        raise error("sk-CANARY")

    with monkeypatch.context() as patched:
        patched.setattr(bridge, "request", raises)
        for update in range(3):
            assert plain(ask(jnp.int32(update), *arguments)) == (0, {})
    assert plain(ask(jnp.int32(3), *arguments))[0] == 1  # and goes on
    assert bridge.statistics()["contained"] == {f"callback {error.__name__}": 3}
    assert len(reported) == 1
    assert "CANARY" not in reported[0]


def test_more_than_64_kib_is_refused_when_traced():
    bridge = Bridge(AdviceSource(), 100_000, 1024)
    ask = jax.jit(exchange(bridge))
    fits = (MOST_BYTES - 1024 * 28 - 8) // 8
    ask.lower(jnp.int32(0), jnp.zeros(fits, jnp.int32), jnp.zeros(fits))
    with pytest.raises(ConfigError, match=r"advisor.rows = 1024 .* = 4608: "):
        ask.lower(jnp.int32(0), jnp.zeros(fits + 1, jnp.int32), jnp.zeros(fits + 1))


def test_it_is_refused_under_vmap_by_name():
    """JAX would call it once per environment."""
    ask = exchange(Bridge(AdviceSource(), T, M))
    with pytest.raises(ConfigError, match=r"3 agents .* set advisor\.transport"):
        jax.jit(jax.vmap(ask, (0, None, None)))(
            jnp.arange(3), jnp.zeros(1, jnp.int32), jnp.zeros(1)
        )


def test_settling_never_raises(monkeypatch):
    reported = []
    bridge = Bridge(AdviceSource(), T, M, log=reported.append)

    def broken():
        raise jax.errors.JaxRuntimeError("of the test")

    monkeypatch.setattr(jax, "effects_barrier", broken)
    bridge.wait_for_answers()
    assert bridge.statistics()["contained"] == {"effects_barrier JaxRuntimeError": 1}
    assert len(reported) == 1
