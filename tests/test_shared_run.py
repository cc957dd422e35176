"""Independent learners in a shared market: one update of each learner, permuted agents, a run and
its resumption.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import RunConfig, load_config
from jaxtrade.runs.result import RunResult
from jaxtrade.runs.setup import Setup, prepare
from jaxtrade.runs.train import resume, run
from jaxtrade.training.population import Stack
from tests.messages import missing

AGENTS = 3
SMALL = (
    "shared.on=true",
    f"train.num_seeds={AGENTS}",
    "shared.kappa=900",
    "shared.eta=800",
    "network.hidden=[8]",
    "rollout.num_envs=8",
    "rollout.num_steps=32",
    "train.total_timesteps=1024",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
)
LEARNERS = {
    "ppo": ("ppo.num_minibatches=2", "ppo.num_epochs=2"),
    "dqn": (
        "algorithm=dqn",
        "dqn.buffer_size=2048",
        "dqn.learning_starts=256",
        "dqn.batch_size=32",
    ),
    "pqn": ("algorithm=pqn", "pqn.num_minibatches=2"),
}
OWN = ("crowding_profit", "impact_paid")
FIGURES = (
    *OWN,
    "crowding_return_spread",
    "crowding_position_correlation",
    "maker_profit",
    "offset_low",
    "offset_high",
)
ORDER = np.array([2, 0, 1])


def config(learner: str, *more: str) -> RunConfig:
    return load_config("quickstart", (*SMALL, *LEARNERS[learner], *more))


def updated(setup: Setup, keys: jax.Array) -> tuple[Any, dict[str, np.ndarray]]:
    """All agents after two updates, and the metrics of the second."""
    algorithm = setup.stack.wrap(setup.algorithm)

    def both(state: Any, params: Any) -> Any:
        state, _ = algorithm.update(state, params, None)
        return algorithm.update(state, params, None)

    init, update = jax.jit(algorithm.init), jax.jit(both)
    first = init(keys, setup.params), init(keys[ORDER], setup.params)
    return tuple(jax.device_get(update(state, setup.params)) for state in first)


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner", [pytest.param(name, marks=[pytest.mark.long] * (name != "ppo")) for name in LEARNERS]
)
def test_permuted_agents_give_permuted_results(learner: str) -> None:
    """Everything of the market and every count exactly, floats to 1e-6. Rewards stay those of the
    same agents.
    """
    setup = prepare(config(learner))
    (state, metrics), (other, others) = updated(setup, setup.stack.keys(0))
    for (path, a), b in zip(
        jax.tree_util.tree_flatten_with_path(state)[0], jax.tree.leaves(other), strict=True
    ):
        where = jax.tree_util.keystr(path)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = (np.asarray(jax.random.key_data(x)) for x in (a, b))
        if np.issubdtype(a.dtype, np.floating):
            np.testing.assert_allclose(a[ORDER], b, rtol=1e-6, atol=1e-6, err_msg=where)
        else:
            np.testing.assert_array_equal(a[ORDER], b, err_msg=where)
    for name, value in metrics.items():
        np.testing.assert_allclose(value[ORDER], others[name], rtol=1e-4, atol=1e-6, err_msg=name)
    world = state.env_state.world
    assert all(
        (leaf == leaf[:1]).all()
        for leaf in jax.tree.leaves((world, state.env_state.row, state.env_state.seed))
    )
    for name in FIGURES:
        assert metrics[name].shape == (AGENTS,), name
        assert name in OWN or (metrics[name] == metrics[name][0]).all(), name
    np.testing.assert_allclose(
        metrics["crowding_profit"].std(), metrics["crowding_return_spread"][0], rtol=1e-4
    )
    assert -1 <= metrics["crowding_position_correlation"][0] <= 1
    assert metrics["offset_low"][0] < 0 < metrics["offset_high"][0]
    assert (metrics["impact_paid"] > 0).any()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(config("ppo"), tmp_path_factory.mktemp("runs") / "shared")


@pytest.mark.slow
@pytest.mark.long
def test_a_run_reports_crowding_and_evaluates_each_policy_alone(whole: RunResult) -> None:
    log = (whole.path / "run.log").read_text()
    line = next(line for line in log.splitlines() if "shared market: " in line)
    assert "0.9 ticks" in line
    line = next(line for line in whole.table.splitlines() if "alone: " in line)
    assert not missing(line, "shared market", "by itself", "historical bars")
    rows = [json.loads(line) for line in (whole.path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    for name in FIGURES:
        assert len(rows[-1][f"{name}/each"]) == AGENTS
    assert {path.name for path in (whole.path / "policy").iterdir()} == {
        "seed_0",
        "seed_1",
        "seed_2",
    }


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_same_bits(whole: RunResult, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    shutil.copytree(whole.path, stopped)
    shutil.rmtree(stopped / "checkpoints" / "update-00000004")
    again = resume(stopped)
    for a, b in zip(
        jax.tree.leaves(whole.training.state), jax.tree.leaves(again.training.state), strict=True
    ):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def test_agents_meet_only_if_they_share_a_market() -> None:
    assert Stack.of_run(load_config("quickstart", ["train.num_seeds=3"])) == Stack((3,))
    assert Stack.of_run(config("ppo")) != Stack((3,))
