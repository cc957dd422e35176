"""Settings proposed by Optuna: what it is asked for, resumption, and one program for all
batches.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.errors import DivergedError
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import agents
from jaxtrade.runs import sweeps as searching
from jaxtrade.runs.plan import plan_new, plan_resumed
from jaxtrade.runs.train import resume, run
from jaxtrade.storage.compiling import Programs
from tests import uncounted
from tests.messages import refused

optuna = pytest.importorskip("optuna", reason='needs the extra: pip install "jaxtrade[optuna]"')

SMALL = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=512",
    "train.chunk_updates=2",
    "train.tensorboard=false",
    "seed=3",
    "split.validation_sessions=1",
    "train.num_seeds=4",
    "sweep.optuna=8",
)
KEYS = {
    "ppo.learning_rate": ["log:1e-4..1e-2"],
    "brackets.target_multiple": ["1..4"],
    "ppo.ent_coef": [0.0, 0.01],
}


def config(*more, keys=KEYS):
    return load_config("quickstart", [*SMALL, f"sweep.keys={json.dumps(keys)}", *more])


def test_ranges_and_lists_are_distributions():
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found = searching._distributions(config(keys=KEYS | {"sampler.kind": ["uniform"]}).sweep)
    assert found == {
        "ppo.learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
        "brackets.target_multiple": IntDistribution(1, 4),
        "ppo.ent_coef": CategoricalDistribution([0.0, 0.01]),
        "sampler.kind": CategoricalDistribution(["uniform"]),
    }
    lists = config(keys={"network.hidden": [[8], [16, 16]]}).sweep
    assert searching._setting(lists, {"network.hidden": "[16, 16]"}) == {"network.hidden": [16, 16]}


@pytest.mark.parametrize(
    ("more", "keys", "message"),
    [
        (("split.validation_sessions=0",), KEYS, ("scored on validation sessions",)),
        ((), {"ppo.num_epochs": [1, 2]} | KEYS, ("ppo.num_epochs ", "compiled")),
        ((), {"ppo.gamma": ["0.9..0.99", 0.999]}, ("a range beside other values",)),
        (
            ("env.task=advised", "advisor.kind=mock:skilled:0.6"),
            {"ppo.gamma": [0.9, 0.99]},
            ("set advisor.kind=off",),
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(more, keys, message):
    with refused(*message):
        agents.check_search(config(*more, keys=keys))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(agents.importlib.util, "find_spec", lambda name: None)
    with refused('pip install "jaxtrade[optuna]"'):
        agents.check_search(config())


class StopError(Exception):
    pass


@pytest.fixture
def scored(monkeypatch):
    """Batches that are scored by their learning rates alone, and the settings that were trained."""
    batches = []

    def trained(setup, path, programs, screen):
        batches.append([dict(agent.overrides) for agent in setup.stack.swept])
        return tuple(-abs(np.log(each["ppo.learning_rate"] / 1e-3)) for each in batches[-1])

    monkeypatch.setattr(searching, "_train_batch", trained)
    return batches


def searched(path):
    """What is trained at the end of a search that begins, or goes on if it has begun."""
    plan = plan_resumed(path) if path.exists() else plan_new(config(), path)
    return searching.search(plan, Screen(), lambda best, screen: best.config)


def test_whole_batches_are_asked_and_the_best_is_trained_alone(scored, tmp_path):
    best = searched(tmp_path / "search")
    assert [len(batch) for batch in scored] == [4, 4]
    every = [each for batch in scored for each in batch]
    assert all(
        1e-4 <= each["ppo.learning_rate"] <= 1e-2
        and each["brackets.target_multiple"] in (1, 2, 3, 4)
        for each in every
    )
    assert best.ppo.learning_rate == min(
        (each["ppo.learning_rate"] for each in every), key=lambda rate: abs(np.log(rate / 1e-3))
    )
    assert (best.seed, best.agents, best.sweep.on) == (3, 1, False)


@pytest.mark.slow
def test_a_search_goes_on_after_its_last_batch(scored, tmp_path, monkeypatch):
    searched(tmp_path / "whole")
    whole, trained = list(scored), searching._train_batch
    scored.clear()

    def stops(setup, path, programs, screen):
        if scored:
            raise StopError
        return trained(setup, path, programs, screen)

    monkeypatch.setattr(searching, "_train_batch", stops)
    with pytest.raises(StopError):
        searched(tmp_path / "cut")
    monkeypatch.setattr(searching, "_train_batch", trained)
    again = searched(tmp_path / "cut")
    assert scored[0] == whole[0]  # the first batch depends on the seed alone
    assert [len(batch) for batch in scored] == [4, 4]
    study = searching._study(tmp_path / "cut")
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE"] * 4 + ["FAIL"] * 4 + ["COMPLETE"] * 4
    assert again == searched(tmp_path / "cut")
    assert len(scored) == 2  # nothing was left to train


def test_a_setting_that_diverges_fails_and_a_batch_of_them_ends_the_search(tmp_path, monkeypatch):
    given = iter([(1.0, float("nan"), 2.0, 0.5), (float("nan"),) * 4])
    monkeypatch.setattr(searching, "_train_batch", lambda *_: next(given))
    with refused("narrow the ranges", kind=DivergedError):
        searched(tmp_path / "search")
    states = [trial.state.name for trial in searching._study(tmp_path / "search").trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"] + ["FAIL"] * 4


def test_an_agent_that_was_put_back_has_no_score(tmp_path, monkeypatch):
    """It trained with other changes than the setting alone."""
    state = SimpleNamespace(rollbacks=np.array([0, 1, 0, 3]))
    monkeypatch.setattr(searching.loop, "train", lambda *_, **__: SimpleNamespace(state=state))
    monkeypatch.setattr(searching, "policies_of", lambda *_: [])
    monkeypatch.setattr(searching, "rank_agents", lambda *_: (1.0, 2.0, 3.0, 4.0))
    monkeypatch.setattr(searching, "InitialState", lambda: SimpleNamespace(arguments=lambda *_: {}))
    setup = SimpleNamespace(
        config=config(), algorithm=None, agents=SimpleNamespace(params=None), stack=None
    )
    scores = searching._train_batch(setup, tmp_path, None, Screen())  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(scores, [1.0, np.nan, 3.0, np.nan])


@pytest.mark.slow
def test_all_batches_are_one_program(tmp_path, monkeypatch):
    begun = []
    original = Programs.begin

    def begin(self, name, *arguments, **keywords):
        begun.append(name)
        return original(self, name, *arguments, **keywords)

    monkeypatch.setattr(Programs, "begin", begin)
    result = run(config(), tmp_path / "search")
    assert (
        begun.count("train chunk of 2 updates") == 2
    )  # of all batches together, and of the best setting alone
    assert result.path == tmp_path / "search" / "best"
    study = searching._study(tmp_path / "search")
    assert len({trial.value for trial in study.trials}) > 4
    assert uncounted.table(resume(tmp_path / "search").table) == uncounted.table(result.table)
