"""Successive halving: who stops, what is spent, and that a survivor trains as it would have
alone.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxtrade.config import TrainConfig
from jaxtrade.errors import ConfigError
from jaxtrade.training.halving import successive_halving, survivors
from jaxtrade.training.loop import train
from tests.messages import missing
from tests.rl.probes import Probe, probe_params
from tests.rl.toy import make_toy

TRAIN = TrainConfig(total_timesteps=4 * 8 * 8, chunk_updates=2)  # eight updates
TOY = make_toy(Probe((lambda ref, action: ref.cue * action,)), 8)
PARAMS, KEY = probe_params(length=5), jax.random.key(0)


def test_the_better_half_goes_on_in_its_order() -> None:
    assert survivors([3.0, 1.0, 4.0, 2.0]) == [0, 2]
    assert survivors([1.0, 1.0, 1.0, 1.0]) == [0, 1]  # ties by index
    assert survivors([1.0, float("nan"), 0.0]) == [
        0,
        2,
    ]  # rounded up; what is not finite stops first
    assert survivors([float("nan"), 5.0]) == [1]


@pytest.mark.parametrize(
    ("rungs", "agents", "message"),
    [
        ([3], 4, "of train.chunk_updates"),
        ([4, 2], 4, "rising"),
        ([8], 4, "below the run's 8 updates"),
        ([2, 4, 6], 4, "3 halvings need at least 8"),
    ],
)
def test_rungs_that_do_not_fit_are_refused(rungs: list[int], agents: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        successive_halving(
            TOY,
            PARAMS,
            config=TRAIN,
            key=KEY,
            agents=agents,
            rungs=rungs,
            score=lambda state: np.zeros(agents),
        )


@pytest.mark.slow
def test_each_rung_is_a_smaller_program_and_a_survivor_trains_as_alone() -> None:
    """Eight updates in chunks of two. Four agents until update 2, two until update 4, one until the
    end.
    """
    seen, lines = [], []

    def score(state) -> np.ndarray:
        seen.append(state.update.shape)
        return (
            -np.arange(state.update.size, dtype=np.float32)
            if len(seen) == 2
            else np.array([0.0, 3.0, 1.0, 2.0])
        )

    found = successive_halving(
        TOY, PARAMS, config=TRAIN, key=KEY, agents=4, rungs=[2, 4], score=score, tell=lines.append
    )
    assert seen == [(4,), (2,)]
    assert [(rung.update, rung.agents, rung.kept) for rung in found.rungs] == [
        (2, (0, 1, 2, 3), (1, 3)),
        (4, (1, 3), (1,)),
    ]
    assert found.agents == (1,)
    assert found.agent_updates == 4 * 2 + 2 * 2 + 1 * 4 < 4 * 8
    assert not missing(lines[0], "update 2", "2 agents of 4", "1, 3")
    alone = train(TOY, PARAMS, config=TRAIN, key=jax.random.fold_in(KEY, 1)).state
    assert found.state.update.tolist() == [8]
    np.testing.assert_allclose(found.state.logits[0], alone.logits, rtol=1e-6)
