"""A walk-forward from its command to its files: kill and resume, figures, other commands."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import jaxtrade as jt
from jaxtrade.config import load_config
from jaxtrade.data.splits import sessions_of
from jaxtrade.errors import DataError
from jaxtrade.evaluation.evaluators import evaluate
from jaxtrade.evaluation.run_days import WalkDays, read_walk_days, write_walk_days
from jaxtrade.runs import evaluate as evaluation
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import run
from jaxtrade.runs.trial_log import UNCOUNTED
from jaxtrade.runs.walk_document import walk_table
from jaxtrade.runs.walkforward import bundle_path, resume_walk, walk_forward
from jaxtrade.storage.trials import TRIALS, read_trials
from tests.messages import missing, refused, refuses
from tests.reading import read_json
from tests.resuming import cut
from tests.rl.test_train import assert_same

SMALL = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "env.task=entry",
    "env.window=4",
    "env.features=[close, rsi]",
    "train.total_timesteps=512",
    "train.chunk_updates=1",
    "train.checkpoint_every=1",
    "train.tensorboard=false",
    "seed=3",
)
WALK = ("walk.on=true", "walk.train=2", "walk.test=1", "walk.seeds=2")


def configured(*overrides):
    return load_config("quickstart", [*SMALL, *WALK, *overrides])


# --- before anything is trained --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "fragment"),
    [
        (
            ["advisor.kind=mock"],
            ("advisor.kind=mock: ",),
        ),
        (
            ["env.task=allocate", "data.markets=[ES, NQ]", "data.source=synthetic"],
            ("env.task=allocate",),
        ),
        (["data.markets=[ES, NQ]", "data.source=synthetic"], ("data.markets names 2 symbols",)),
        (
            ["sweep.keys={ppo.gamma: [0.9, 0.99]}"],
            ("sweep: a walk-forward",),
        ),
        (["evolve.keys={ppo.gamma: [0.9, 0.99]}"], ("evolve: a walk-forward",)),
        (["train.num_seeds=2"], ("num_seeds=2: ", " walk.seeds")),
        (["shared.on=true", "train.num_seeds=2"], ("train.num_seeds=2",)),
        (["rollout.num_envs=auto"], ("rollout.num_envs=auto",)),
        (
            ["control.evaluate_every=1", "split.validation_sessions=1"],
            ("control.evaluate_every=1",),
        ),
        (["control.keep=best"], ("control.keep=best",)),
        (["parallel.devices=2"], ("parallel.devices=2",)),
        (
            ["walk.mode=cpcv", "walk.groups=3", "walk.test_groups=3"],
            ("walk.test_groups=3 ",),
        ),
        (["walk.mode=cpcv", "walk.groups=20", "walk.test_groups=10"], ("184,756 folds x 2 seeds",)),
        (["walk.embargo=soon"], ("walk.embargo",)),
    ],
)
def test_what_a_walk_forward_cannot_do_is_refused_by_its_key(overrides, fragment):
    with refused(*fragment):
        configured(*overrides)


def test_one_file_serves_train_and_walkforward():
    config = load_config("quickstart", ["walk.train=40", "walk.seeds=3", "train.num_seeds=2"])
    assert (config.walk.on, config.walk.train, config.agents) == (False, 40, 2)


def test_more_agents_than_a_run_may_have_are_refused():
    with refused("walk.seeds=1024", "--seeds", "2 folds", "1,024"):
        prepare(configured("walk.seeds=1024"))


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (
            ["--train", "60"],
            ("walk.train=60 (--train)", "walk.test=10 (--test)", "71 sessions", "at most 5"),
        ),
        (["--test", "0"], ("argument --test: '0' ", "at least 1")),
        (["--embargo", "-1"], ("argument --embargo: ",)),
        (["--mode", "blocked"], ("invalid choice: 'blocked'",)),
        (["--set", "walk.mode=blocked"], ("walk.mode",)),
        (
            ["--resume", "nowhere", "--train", "3", "--seeds", "2", "--seed", "1"],
            ("drop --train, --seeds, --seed",),
        ),
        (["--resume", "nowhere"], ("nowhere: not a run directory",)),
    ],
)
def test_wrong_flags_are_told_before_jax_loads(argv, facts, capsys):
    refuses(capsys, ["walkforward", *argv], *facts)


def test_train_refuses_a_walk_forward():
    with refused("walk.on=true: "):
        run(configured())
    with refused("walk.on=false"):
        walk_forward(load_config("quickstart"))


# --- daily.npz -------------------------------------------------------------------------------------------------------


def made_days():
    """Two seeds; fold 0 tests days 10 and 11, fold 1 days 11 and 12."""
    net = np.array([[1.0, 2.0, 4.0, 6.0], [3.0, 4.0, 8.0, 10.0]])
    return WalkDays(
        date=np.array([10, 11, 11, 12]),
        fold=np.array([0, 0, 1, 1], np.int32),
        net=net,
        day_bars=np.array(["a", "b", "b", "c"]),
        account_net=net / 2,
        baselines=np.array(["flat"]),
        baseline_net=np.zeros((1, 4)),
        in_sample_net=np.array([[5.0, 7.0], [9.0, 11.0]]),
        seeds=np.array([3, 4]),
    )


def test_a_day_of_several_folds_has_the_weight_of_one():
    days = made_days()
    assert days.independent == 3
    np.testing.assert_array_equal(days.per_fold(days.net), [[1.5, 5.0], [3.5, 9.0]])
    np.testing.assert_allclose(days.pool(days.net), [(1 + 3 + 6) / 3, (3 + 6 + 10) / 3])
    assert days.by_date(days.net)[1] is None
    forward = replace(days, date=np.array([12, 13, 10, 11]))
    net, fold = forward.by_date(forward.net)
    np.testing.assert_array_equal(net, days.net[:, [2, 3, 0, 1]])
    np.testing.assert_array_equal(fold, [1, 1, 0, 0])


def test_days_are_written_and_read(tmp_path):
    days, file = made_days(), tmp_path / "daily.npz"
    write_walk_days(days, file)
    found = read_walk_days(file)
    for name, value in vars(days).items():
        np.testing.assert_array_equal(getattr(found, name), value)
    write_walk_days(replace(days, fold=days.fold[:3]), file)
    with refused("fold has shape (3,), expected (4,)", kind=DataError):
        read_walk_days(file)
    file.write_bytes(b"PK")
    with refused("cannot be read", kind=DataError):
        read_walk_days(file)
    with refused("has not ended", kind=DataError):
        read_walk_days(tmp_path / "none.npz")


# --- a run -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    return walk_forward(configured(), tmp_path_factory.mktemp("runs") / "walk")


@pytest.mark.slow
def test_days_are_those_of_the_evaluator(walked):
    """Each policy, evaluated by itself on the test days of its fold, and the baselines on the same
    days.
    """
    setup, _ = evaluation.open_run(walked.path)
    days = read_walk_days(walked.path / "daily.npz")
    assert days.seeds.tolist() == [3, 4]
    assert [str(day) for day in days.date.astype("datetime64[D]")] == ["2013-10-10", "2013-10-11"]
    assert days.fold.tolist() == [0, 1]
    assert days.baselines.tolist() == ["flat", "random", "buy_hold", "sma_cross"]
    agents = read_json(walked.path / "agents.json")["agents"]
    policies = [jt.load_policy(walked.path / agent["policy"]).policy for agent in agents]

    def evaluated(number, ids):
        return evaluate(
            setup.env,
            setup.params,
            setup.single,
            sessions_of(setup.single, ids),
            setup.config,
            algorithm=setup.algorithm,
            policy=policies[number],
        )

    for number, fold, seed in ((1, 0, 1), (2, 1, 0)):
        result = evaluated(number, setup.folds[fold].test)
        assert result.agents[0].strategy_figures["net_profit"] == days.net[seed, fold]
        assert result.agents[0].account_figures["net_profit"] == days.account_net[seed, fold]
        nets = [result.agent(name).strategy_figures["net_profit"] for name in days.baselines]
        assert nets == days.baseline_net[:, fold].tolist()
        shown = evaluated(number, setup.folds[fold].train[-1:])
        assert shown.agents[0].strategy_figures["net_profit"] == days.in_sample_net[seed, fold]


@pytest.mark.slow
def test_the_files_have_the_figures(walked):
    document, days = read_json(walked.path / "walkforward.json"), walked.days
    assert document == json.loads(json.dumps(walked.document))
    first = document["folds"][0]
    assert first["train"]["runs"] == [["2013-10-07", "2013-10-08"]]
    assert (first["embargoed"], first["purged"], first["test"]["first"]) == (
        ["2013-10-09"],
        [],
        "2013-10-10",
    )
    assert first["net_per_day"]["by_seed"] == days.net[:, 0].tolist()
    pooled = document["pooled"]
    assert pooled["independent_days"] == 2
    np.testing.assert_allclose(pooled["net_per_day"]["by_seed"], days.net.mean(axis=1))
    interval = pooled["iqm_per_day"]
    assert not missing(interval["why"], "5 days", "are 2")
    assert (interval["value"], interval["low"]) == (pytest.approx(days.net.mean()), None)
    assert pooled["spa"]["why"] == pooled["psr"]["of_mean"]["why"]
    assert sorted(pooled["improvement"]) == sorted(document["baselines"])
    with (walked.path / "folds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["buy_hold_net_per_day"]) for row in rows] == days.baseline_net[2].tolist()
    assert [int(row["train_sessions"]) for row in rows] == [2, 2]
    assert "2 independent days" in walk_table(document)


@pytest.mark.slow
def test_the_tested_days_are_entered_in_the_trial_log_once(walked):
    [opening] = read_trials(walked.path.parent).looks
    assert (opening.kind, opening.run, opening.split) == ("walkforward", "walk", "test")
    assert opening.dates == ("2013-10-10", "2013-10-11") == (opening.first, opening.last)
    assert opening.net == {
        str(seed): tuple(np.round(net, 3))
        for seed, net in zip((3, 4), walked.days.net, strict=True)
    }
    trials = read_json(walked.path / "walkforward.json")["trials"]
    assert (trials["opened"], trials["trials"], trials["counted"], trials["whole"]) == (
        1,
        2,
        True,
        2,
    )
    assert not missing(trials["by_seed"]["4"]["dsr"]["why"], "5 days", "are 2")
    said = "looked at 1 time (2 distinct trials)"
    assert said in walked.table
    again = resume_walk(walked.path)
    assert said in again.table, "a finished walk-forward shows nothing new"
    assert len(read_trials(walked.path.parent).looks) == 1


@pytest.mark.slow
def test_a_log_that_cannot_be_written_fails_no_walk_forward_and_is_said(walked, tmp_path):
    path = Path(shutil.copytree(walked.path, tmp_path / "walk"))
    (tmp_path / TRIALS).mkdir()  # a file that cannot be opened, for root too
    result = resume_walk(path)
    assert f"NOTE: {UNCOUNTED}" in result.table
    document = read_json(path / "walkforward.json")
    assert document["labels"][0].startswith(UNCOUNTED)
    assert document["trials"]["counted"] is False


@pytest.mark.slow
def test_other_commands_say_what_the_folder_is(walked, capsys):
    said = "`jaxtrade walkforward`"
    for argv in (
        ["evaluate", str(walked.path)],
        ["replay", str(walked.path), "--session", "2013-10-10"],
        ["train", "--resume", str(walked.path)],
    ):
        refuses(capsys, argv, said)
    with refused(said):
        _ = jt.open_run(walked.path).policy
    assert len(jt.open_run(walked.path).metrics) == 4


@pytest.mark.slow
def test_resumed_it_ends_in_the_same_bits(walked, tmp_path):
    """State, policies and days are those of the run that never stopped."""
    path = cut(walked.path, tmp_path / "cut", 2)
    for name in ("walkforward.json", "daily.npz"):
        (path / name).unlink()
    again = resume_walk(path)
    assert len(again.training.history) == 2  # it went on after the checkpoint
    assert_same(again.training.state, walked.training.state)
    found = read_walk_days(path / "daily.npz")
    for name, value in vars(walked.days).items():
        np.testing.assert_array_equal(getattr(found, name), value)
    policies = [bundle_path(each, 1, 4) / "policy.npz" for each in (path, walked.path)]
    assert policies[0].read_bytes() == policies[1].read_bytes()


@pytest.mark.slow
def test_cpcv_tests_every_day_once_per_path(tmp_path):
    walk = (
        "walk.mode=cpcv",
        "walk.groups=4",
        "walk.test_groups=2",
        "walk.embargo=0",
        "walk.seeds=1",
        "train.total_timesteps=128",
        "split.test_sessions=1",
    )
    result = walk_forward(configured(*walk), tmp_path / "cpcv")
    document, days = result.document, result.days
    assert (days.folds, days.independent, days.net.shape) == (6, 5, (1, 15))
    assert len(document["paths"]) == 3
    assert all(path["days"] == 5 for path in document["paths"])
    mean = np.mean([path["net_per_day"]["mean"] for path in document["paths"]])
    assert mean == pytest.approx(document["pooled"]["net_per_day"]["mean"])
    assert read_json(result.path / "manifest.json")["seed"] == 3
    assert load_config(str(result.path / "config.yaml")).split.automatic
    [opening] = read_trials(tmp_path).looks
    of_day = [
        days.net[0, days.date.astype("datetime64[D]") == np.datetime64(day)]
        for day in opening.dates
    ]
    assert [len(each) for each in of_day] == [3] * 5
    np.testing.assert_allclose(
        opening.net["3"], [each.mean() for each in of_day], atol=5e-4
    )  # mills
