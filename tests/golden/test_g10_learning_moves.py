"""G10. Updates that were computed and thrown away, and a loss that was logged as a constant, went
unnoticed for months. Here each update changes the parameters, the loss is no constant, and the
target network follows when it should."""

import itertools

import jax
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.rl.algorithms import make_algorithm
from tests.rl.probes import probe_params
from tests.rl.test_probes import ASKED, ENV

UPDATES = 6
# 16 x 8 steps an update, learning from the first one on; the steps cross a multiple of 256 in every
# second update.
DQN = """
dqn.buffer_size=2048 dqn.batch_size=64 dqn.replay_ratio=1 dqn.learning_starts=0 dqn.target_every=256
"""


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "loss", "keys"),
    [("dqn", "td_loss", DQN), ("pqn", "td_loss", ""), ("ppo", "value_loss", "")],
)
def test_an_update_is_no_empty_work(learner, loss, keys):
    words = (
        f"algorithm={learner} rollout.num_envs=16 rollout.num_steps=8 network.hidden=[16] {keys}"
    )
    config = load_config(None, words.split())
    algorithm, params = make_algorithm(config, ENV, UPDATES), probe_params(ASKED)
    update = jax.jit(lambda state: algorithm.update(state, params, None))
    states, losses = [algorithm.init(jax.random.key(0), params)], []
    for _ in range(UPDATES):
        state, metrics = update(states[-1])
        states.append(state)
        losses.append(float(metrics[loss]))
    parameters = [flat(state.params) for state in states]
    assert all((before != after).any() for before, after in itertools.pairwise(parameters))
    assert len(set(losses)) == UPDATES
    if learner == "dqn":
        targets = [flat(state.own.target) for state in states]
        moved = [bool((before != after).any()) for before, after in itertools.pairwise(targets)]
        assert moved == [False, True] * (UPDATES // 2)
        assert (targets[2] != parameters[0]).any()
