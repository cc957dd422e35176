"""One of several agents diverges: it alone goes back, the others keep their bits; without a
rollback left it is frozen.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.errors import DivergedError
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import RepeatedPrograms
from jaxtrade.training.hooks import Change
from jaxtrade.training.loop import train
from jaxtrade.training.population import Axes, Stack
from jaxtrade.training.replacement import find_frozen, frozen_agents_lines, summary
from tests.messages import missing
from tests.rl.test_train import PARAMS, PPO, TRAIN, Recorder, assert_same

N, NEVER = 3, 99
STACK = Stack((N,), (Axes(params=(None, 0, 0)),))
KEYS = STACK.keys(0)
PROGRAMS = RepeatedPrograms()  # all runs of this file are the same program


def update(state, params, inputs=None):
    """The reward of an agent is NaN from its update `at` on (counted from 0), while it has gone
    back less than `times` times. params: (parameters, at, times)."""
    inner, at, times = params
    bad = (state.update >= at) & (state.rollbacks < times)
    return PPO.update(state, inner.replace(scale=jnp.where(bad, jnp.nan, inner.scale)), inputs)


BROKEN = PPO._replace(init=lambda key, params: PPO.init(key, params[0]), update=update)


def run(at, times, directory=None, **keywords):
    """A run in which agent i diverges from update at[i] on, times[i] times. Checkpoints are after
    updates 4 and 8.
    """
    start = {} if "state" in keywords else {"key": KEYS}
    params = (PARAMS, jnp.int32(at), jnp.int32(times))
    return train(
        BROKEN,
        params,
        config=TRAIN,
        num_seeds=STACK,
        checkpoint_dir=directory,
        programs=PROGRAMS,
        **{"max_rollbacks": 2} | start | keywords,
    )


def agent(result, i):
    return STACK.agent(result.state, i)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The run in which nobody diverges, and its state after update 4."""
    directory = tmp_path_factory.mktemp("sound")
    result = run([NEVER] * N, [0] * N, directory)
    saved = checkpoint.restore(
        directory / "update-00000004", jax.eval_shape(lambda: result.state)
    ).state
    return result, saved


def test_what_a_finished_run_says_of_rollbacks():
    assert summary(np.int32(2), 2) == {"rollbacks": 2}
    assert summary(np.array([0, 1, 3]), 2) == {
        "rollbacks": 2,
        "rollbacks_by_agent": [0, 1, 2],
        "frozen_agents": [2],
    }
    assert (
        frozen_agents_lines(np.int32(2), 2)
        == frozen_agents_lines(np.array([0, 2]), 2)
        == frozen_agents_lines(np.array([0, 0]), 0)
        == []
    )
    [line] = frozen_agents_lines(np.array([3, 0, 3]), 2)
    assert line.endswith("last finite state): 0, 2")


@pytest.mark.slow
def test_only_the_agent_that_diverged_goes_back(sound, tmp_path):
    whole, saved = sound
    sink = Recorder()
    result = run(
        [NEVER, 5, NEVER], [0, 1, 0], tmp_path, sinks=[sink]
    )  # in the sixth update, of the third chunk
    for i in (0, 2):
        assert_same(agent(result, i), agent(whole, i))
    assert result.state.rollbacks.tolist() == [0, 1, 0]
    assert result.state.update.tolist() == [8] * N
    own, before = agent(result, 1), STACK.agent(saved, 1)
    assert_same(own.key, jax.random.fold_in(before.key, 1))
    np.testing.assert_array_equal(own.hparams.learning_rate, before.hparams.learning_rate / 2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(own.params))
    [line] = [text for text in sink.messages if "goes back" in text]
    assert line.startswith("agent 1, update 6: ")
    assert not missing(
        line,
        "not finite",
        "learning rate 0.00",
        "update 4",
        "rollback 1 of at most 2",
        "half the learning rate",
    )
    assert [row["undone/each"] for row in result.history if "undone/each" in row] == [
        [False, True, False]
    ] * 2
    assert result.history[5]["finite/each"] == [True, False, True]
    assert [row["update"] for row in result.history] == list(range(1, 9))
    assert result.health["recompiles"] == (True, 0)
    assert all(passed for passed, _ in result.health.values())  # what was undone does not count


@pytest.mark.slow
def test_it_learns_on_from_the_rollback_point(sound):
    """In the last chunk the agent is at update 7 with what it was at update 4: the same step from
    the saved state, with its new key and rate, gives its result."""
    _, saved = sound
    result = run([NEVER, 4, NEVER], [0, 1, 0])
    own = STACK.agent(saved, 1)
    state = own.replace(
        update=jnp.int32(6),
        key=jax.random.fold_in(own.key, 1),
        rollbacks=jnp.int32(1),
        hparams=PPO.info.retry(own.hparams, 1),
    )
    whole = saved.replace(update=jnp.full(N, 6, jnp.int32))
    stacked = jax.tree.map(lambda every, one: every.at[1].set(one), whole, state)
    after = run([NEVER] * N, [0] * N, state=stacked)
    assert_same(agent(after, 1), agent(result, 1))


@pytest.mark.slow
def test_without_a_rollback_left_it_is_frozen(sound, tmp_path):
    whole, saved = sound
    sink = Recorder()
    result = run([NEVER, 4, NEVER], [0, NEVER, 0], tmp_path, sinks=[sink], max_rollbacks=1)
    for i in (0, 2):
        assert_same(agent(result, i), agent(whole, i))
    assert result.state.rollbacks.tolist() == [0, 2, 0]
    assert find_frozen(np.asarray(result.state.rollbacks), 1) == [1]
    assert_same(agent(result, 1).params, STACK.agent(saved, 1).params)
    [line] = [text for text in sink.messages if "frozen" in text]
    assert line.startswith("agent 1, update 7: ")
    assert not missing(line, "after 1 rollback", "frozen", "update 4")
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.state.params))


@pytest.mark.slow
def test_a_resumed_run_knows_who_is_frozen(tmp_path):
    """From the first update on: gone back to the start, frozen there, and again after the
    checkpoint of update 4.
    """
    at, times = [NEVER, 0, NEVER], [0, NEVER, 0]
    whole = run(at, times, tmp_path / "whole", max_rollbacks=1)
    run(
        at,
        times,
        tmp_path / "cut",
        max_rollbacks=1,
        hooks=[lambda state, update: Change(stop=update == 4)],
    )
    restored = checkpoint.restore_latest(tmp_path / "cut", jax.eval_shape(lambda: whole.state))
    assert restored.state.rollbacks.tolist() == [0, 2, 0]
    resumed = run(at, times, tmp_path / "cut", state=restored.state, max_rollbacks=1)
    assert_same(resumed.state, whole.state)
    assert_same(agent(whole, 1).params, PPO.init(KEYS[1], PARAMS).params)


def test_two_faults_from_one_checkpoint_leave_a_quarter_of_the_rate(sound):
    _, saved = sound
    result = run([4, NEVER, NEVER], [2, 0, 0])
    own = agent(result, 0)
    np.testing.assert_array_equal(
        own.hparams.learning_rate, STACK.agent(saved, 0).hparams.learning_rate / 4
    )
    assert int(own.rollbacks) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "times", "allowed"), [([0, 0, 0], [NEVER] * N, 1), ([NEVER, 0, NEVER], [0, 1, 0], 0)]
)
def test_the_run_ends_when_nobody_is_left_or_none_may_go_back(at, times, allowed, tmp_path):
    with pytest.raises(DivergedError, match=r"gradient of agent [01]\b"):
        run(at, times, tmp_path, max_rollbacks=allowed)
