"""The training loop: chunks, checkpoints, hooks, stops, health."""

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.learning import Learning
from jaxtrade import interrupt
from jaxtrade.config import TrainConfig
from jaxtrade.errors import (
    ConfigError,
    InterruptedRunError,
    PreemptedError,
    StorageError,
)
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import Pending, Programs
from jaxtrade.storage.sinks import MetricSink
from jaxtrade.text import FORECAST
from jaxtrade.training.health import learning_health
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import plan_run, train
from tests.messages import missing
from tests.rl.probes import Probe, probe_params

CONFIG = Learning(
    num_envs=8, num_steps=8, num_minibatches=2, num_epochs=2, hidden=(8,), learning_rate=1e-2
)
TRAIN = TrainConfig(
    total_timesteps=8 * 8 * 8, chunk_updates=2, checkpoint_every=2, keep_checkpoints=9
)
UNEVEN = TRAIN.model_copy(update={"chunk_updates": 3})
TOTAL = plan_run(TRAIN, 8, 8).total_updates
ENV = Probe(
    (
        lambda ref, action: ref.cue * action,
        lambda ref, action: jnp.where(ref.time > 3, jnp.nan, 1.0),
    )
)
PPO = make_ppo(CONFIG.run, ENV, TOTAL)
PARAMS = probe_params(length=5)
KEY = jax.random.key(0)


class Recorder(MetricSink):
    """A sink that remembers."""

    def __init__(self):
        self.rows, self.messages = [], []

    def write(self, rows):
        self.rows.append(list(rows))

    def message(self, text):
        self.messages.append(text)

    def close(self):
        pass


def assert_same(a, b, what=""):
    for (path, x), y in zip(
        jax.tree_util.tree_flatten_with_path(a)[0], jax.tree.leaves(b), strict=True
    ):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y, err_msg=f"{what} {jax.tree_util.keystr(path)}")


def assert_close(a, b, rtol=1e-6, atol=1e-6):
    """Floats within the tolerance, all else exactly."""
    for (path, x), y in zip(
        jax.tree_util.tree_flatten_with_path(a)[0], jax.tree.leaves(b), strict=True
    ):
        if jnp.issubdtype(y.dtype, jnp.floating):
            np.testing.assert_allclose(x, y, rtol, atol, err_msg=jax.tree_util.keystr(path))
        else:
            assert_same(x, y)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory, sink = tmp_path_factory.mktemp("whole"), Recorder()
    result = train(
        PPO,
        PARAMS,
        config=TRAIN,
        key=KEY,
        sinks=[sink],
        checkpoint_dir=directory,
        metadata={"run": "a"},
    )
    return result, sink, directory


def timeless(rows):
    """The rows of metrics without what the clock says."""
    clock = {"seconds", "steps_per_second", "eta_seconds"}
    return [{name: row[name] for name in row if name not in clock} for row in rows]


def like():
    return jax.eval_shape(PPO.init, KEY, PARAMS)


def test_plan_rounds_up_and_says_so():
    assert plan_run(TRAIN, 8, 8) == (8, 4, 64, "")
    plan = plan_run(TrainConfig(total_timesteps=1000, chunk_updates=3), 8, 8)
    assert (plan.total_updates, plan.chunks, plan.total_steps) == (18, 6, 1152)
    assert not missing(
        plan.message, "1,000 steps", "1,152", "6 chunks of 3 updates", "8 environments x 8 steps"
    )
    assert not missing(
        plan_run(TrainConfig(total_timesteps=10, chunk_updates=3), 8, 8).message,
        "192",
        "1 chunk of 3 updates",
    )
    # Python integers: no overflow at 2^31
    assert (
        plan_run(TrainConfig(total_timesteps=10**11, chunk_updates=1), 4096, 128).total_steps
        >= 10**11
    )


@pytest.mark.slow
def test_rows_arrive_per_chunk_and_per_update(whole):
    result, sink, _ = whole
    assert [[row["update"] for row in rows] for rows in sink.rows] == [
        [1, 2],
        [3, 4],
        [5, 6],
        [7, 8],
    ]
    assert result.history == [row for rows in sink.rows for row in rows]
    last = result.history[-1]
    assert (last["steps"], last["total_updates"], last["eta_seconds"]) == (512, 8, 0.0)
    assert last["learning_rate"] == pytest.approx(CONFIG.learning_rate_end)
    assert isinstance(last["illegal"], int)
    assert len(last["action_share"]) == 4
    assert (result.updates, result.steps, result.stopped) == (8, 512, False)
    assert int(result.state.update) == 8


def test_compilation_is_reported_apart_from_speed(whole):
    result, sink, _ = whole
    assert result.compile_seconds > 0
    [message] = sink.messages
    assert message.startswith(FORECAST)
    assert result.steps_per_second == pytest.approx(512 / result.history[-1]["seconds"])


def test_health_is_measured(whole):
    result = whole[0]
    assert all(passed for passed, _ in result.health.values())
    assert result.health["recompiles"] == (True, 0)
    assert result.health["illegal"] == (True, 0)
    sick = [
        row
        | {
            "learning_rate": 0.0,
            "approx_kl": 0.0,
            "illegal": 3,
            "param_delta": 0.0,
            "ratio_error": 1.0,
            "entropy": 0.0,
            "value_loss": 1e9,
        }
        for row in result.history
    ]
    assert not any(passed for passed, _ in learning_health(sick, 1, PPO.info.health).values())


@pytest.mark.slow
def test_a_program_compiled_while_chunks_run_is_counted(monkeypatch):
    """A chunk that compiles when called, instead of ahead of time, fails the check."""

    begin = Programs.begin

    def not_ahead(programs, name, program, *arguments, **options):
        if not name.startswith("train chunk"):
            return begin(programs, name, program, *arguments, **options)
        pending = Pending(None)
        pending._future.set_result(program)
        return pending

    monkeypatch.setattr(Programs, "begin", not_ahead)
    result = train(PPO, PARAMS, config=TRAIN, key=KEY)
    passed, count = result.health["recompiles"]
    assert not passed
    assert count >= 1


def test_illegal_actions_that_the_environment_found_count_too(whole):
    rows = [row | {"illegal_executed": 2} for row in whole[0].history]
    assert learning_health(rows, 0)["illegal"] == (False, 2 * len(rows))


def test_checkpoints_every_n_chunks_and_at_the_end(whole):
    result, _, directory = whole
    assert [update for update, _ in checkpoint.list_checkpoints(directory)] == [4, 8]
    restored = checkpoint.restore_latest(directory, like())
    assert_same(restored.state, result.state)
    assert restored.metadata == {"run": "a", "steps": 512}


@pytest.mark.slow
def test_resuming_gives_the_same_bits(whole, tmp_path):
    result, _, directory = whole
    restored = checkpoint.restore(directory / "update-00000004", like())
    resumed = train(PPO, PARAMS, config=TRAIN, state=restored.state, checkpoint_dir=tmp_path)
    assert_same(resumed.state, result.state)
    assert [row["update"] for row in resumed.history] == [5, 6, 7, 8]
    assert timeless(resumed.history) == timeless(result.history[4:])
    assert int(restored.state.update) == 4  # the caller's state was not taken over
    done = train(PPO, PARAMS, config=TRAIN, state=resumed.state)
    assert (done.history, done.updates) == ([], 8)


@pytest.mark.slow
def test_a_hook_may_stop_and_set_floats(whole, tmp_path):
    seen = []

    def hook(state, update):
        seen.append((update, float(state.hparams.gamma)))
        return Change(stop=update == 4, hparams={"gamma": 0.5})

    result = train(PPO, PARAMS, config=TRAIN, key=KEY, hooks=[hook], checkpoint_dir=tmp_path)
    assert seen == [(2, pytest.approx(0.99)), (4, 0.5)]
    assert (result.updates, result.stopped) == (4, True)
    assert result.health["recompiles"] == (True, 0)
    assert float(checkpoint.restore_latest(tmp_path, like()).state.hparams.gamma) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "error", "code"),
    [
        (signal.SIGTERM, PreemptedError, 75),
        (signal.SIGINT, InterruptedRunError, 130),
    ],
)
def test_signals_save_at_the_border_and_resume_to_the_same_bits(
    whole, tmp_path, number, error, code
):
    def hook(state, update):
        if update == 2:
            os.kill(os.getpid(), number)
        return Change()

    before = signal.getsignal(number)
    with (
        interrupt.hint(lambda: "go on so"),
        pytest.raises(error, match=r"update 2\b.*go on so") as raised,
    ):
        train(PPO, PARAMS, config=TRAIN, key=KEY, hooks=[hook], checkpoint_dir=tmp_path)
    assert raised.value.exit_code == code
    assert signal.getsignal(number) is before
    restored = checkpoint.restore_latest(tmp_path, like())
    assert restored.step == 2
    assert_same(train(PPO, PARAMS, config=TRAIN, state=restored.state).state, whole[0].state)


@pytest.mark.slow
def test_a_second_interrupt_does_not_wait():
    def hook(state, update):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return Change()

    with pytest.raises(KeyboardInterrupt):
        train(PPO, PARAMS, config=TRAIN, key=KEY, hooks=[hook])


@pytest.mark.slow
def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    with pytest.raises(StorageError, match=r"update 4 .*No space") as raised:
        train(PPO, PARAMS, config=TRAIN, key=KEY, checkpoint_dir=tmp_path)
    assert raised.value.exit_code == 74


def hook_of(**floats):
    return [lambda state, update: Change(hparams=floats)]


@pytest.mark.parametrize(
    ("error", "match", "given"),
    [
        (ConfigError, "chunk_updates=3", {"key": KEY, "config": UNEVEN}),
        (ConfigError, r"'gama' .*gamma", {"key": KEY, "hooks": hook_of(gama=0.5)}),
        (ValueError, "either key", {}),
        (ValueError, "metadata", {"key": KEY, "metadata": {"run": "a"}}),
        (ValueError, "a state has", {"state": 0, "hparams": {"learning_rate": 1e-3}}),
    ],
)
def test_what_it_could_not_use_is_refused(error, match, given):
    if "state" in given:
        given = given | {"state": like()}
    with pytest.raises(error, match=match):
        train(PPO, PARAMS, **({"config": TRAIN} | given))
