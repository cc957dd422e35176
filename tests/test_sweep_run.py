"""A sweep from its first line to its files: one program, own costs in training and evaluation,
resumption, groups.
"""

import json

import numpy as np
import pytest

import jaxtrade as jt
from jaxtrade.config import load_config
from jaxtrade.evaluation.evaluators import mean_reward
from jaxtrade.runs import evaluate as evaluation
from jaxtrade.runs.train import resume, run
from jaxtrade.storage.compiling import Programs
from tests.reading import read_json
from tests.resuming import cut, final_state
from tests.rl.test_train import assert_same

SMALL = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=768",
    "train.chunk_updates=2",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "split.validation_sessions=1",
    "seed=3",
)
KEYS = {"costs.slippage": [0, 2], "ppo.learning_rate": [1e-3, 1e-2]}
SWEEP = (*SMALL, f"sweep.keys={json.dumps(KEYS)}")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counted():
    """The programs of chunks that are compiled while a run trains, by their names."""
    compiled = []
    with pytest.MonkeyPatch.context() as patch:
        original = Programs.begin

        def begin(programs, name, *arguments, **options):
            if name.startswith("train chunk"):
                compiled.append("chunk")
            return original(programs, name, *arguments, **options)

        patch.setattr(Programs, "begin", begin)
        yield compiled


@pytest.fixture(scope="module")
def trained(counted, tmp_path_factory):
    result = run(load_config("quickstart", SWEEP), tmp_path_factory.mktemp("runs") / "sweep")
    assert counted == ["chunk"]
    return result


def test_costs_and_rates_are_one_program(trained):
    assert trained.training.health["recompiles"] == (True, 0)
    rows = trained.metrics
    assert np.shape(rows["learning_rate/each"].iloc[0]) == (4,)
    rates = np.array(rows["learning_rate/each"].iloc[0])
    np.testing.assert_array_equal(rates[:2], rates[2:])  # the settings count like an odometer
    assert rates[1] > 3 * rates[0]
    state = final_state(trained.path)
    np.testing.assert_array_equal(state.hparams.learning_rate, np.float32([1e-3, 1e-2, 1e-3, 1e-2]))
    assert state.update.tolist() == [6] * 4


def test_every_agent_has_its_folders(trained):
    names = [f"agent_{i:03d}" for i in range(4)]
    assert sorted(path.name for path in (trained.path / "policy").iterdir()) == names
    test = trained.path / "evaluation" / "test"
    assert sorted(path.name for path in test.iterdir()) == [
        *names,
        "digests.json",
        "sweep.json",
        "sweep.txt",
    ]
    found = read_json(trained.path / "agents.json")["agents"]
    assert [agent["overrides"] for agent in found] == [
        {"costs.slippage": cost, "ppo.learning_rate": rate}
        for cost in (0, 2)
        for rate in (1e-3, 1e-2)
    ]
    assert {agent["seed"] for agent in found} == {3}


def test_each_is_evaluated_under_its_own_costs(trained):
    ticks = [trained.evaluations[i].settings["slippage_ticks"] for i in range(4)]
    assert ticks == [0, 0, 2, 2]
    paid = [trained.evaluations[i].agent("greedy").strategy_figures["slippage"] for i in range(4)]
    assert paid[:2] == [0, 0]
    assert min(paid[2:]) > 0
    assert trained.evaluations[2].provenance["overrides"] == {
        "costs.slippage": 2,
        "ppo.learning_rate": 1e-3,
    }
    assert "costs: each agent's own" in trained.table


def test_the_table_has_a_row_per_agent_and_a_ranking_by_validation(trained):
    lines = trained.table.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("agent  seed  costs.slippage"))
    assert [line.split()[:4] for line in lines[head + 2 : head + 6]] == [
        [str(i), "3", cost, rate]
        for i, (cost, rate) in enumerate(
            (cost, rate) for cost in "02" for rate in ("0.001", "0.01")
        )
    ]
    best = int(np.argmax(trained.scores))
    assert f"  1. agent {best}: {trained.scores[best]:.6g} (" in trained.table
    summary = read_json(trained.path / "summary.json")
    assert summary["validation_scores"] == list(trained.scores)
    assert (summary["rollbacks"], summary["frozen_agents"]) == (0, [])


def test_scores_are_those_of_the_policies_under_their_own_costs(trained):
    setup, _ = evaluation.open_run(trained.path)
    symbol = next(iter(setup.symbols))
    for i in (0, 3):
        policy = jt.open_run(trained.path).policy_of(agent=i).policy
        own = setup.of_agent(i, symbol, setup.params)[1]
        assert int(own.contract.slippage) == (0, 2)[i // 2]
        score = mean_reward(setup.env, own, setup.splits["validation"], setup.algorithm, [policy])
        assert trained.scores[i] == pytest.approx(score, rel=1e-6)


def test_a_resumed_sweep_ends_in_the_same_bits(trained, tmp_path):
    path = cut(trained.path, tmp_path / "cut", 2)
    resumed = resume(path)
    assert_same(final_state(path), final_state(trained.path))
    assert resumed.scores == trained.scores
