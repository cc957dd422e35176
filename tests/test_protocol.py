"""The default protocol: what is held out and which policy is kept where the configuration does not
say.
"""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.config import SplitConfig, load_config, make_config
from jaxtrade.config.run import (
    ENOUGH,
    count_evaluations,
    scores_by_default,
    split_note,
    split_of,
    with_control,
    with_split,
)
from jaxtrade.data.splits import split_ids
from jaxtrade.evaluation.metrics import days_note
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.runs.agents import require_own
from jaxtrade.runs.evaluate import Request, evaluate_run
from jaxtrade.runs.plan import check
from jaxtrade.runs.rundir import create_run
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.train import run
from tests.messages import missing, refused
from tests.reading import read_json


def numbers(split):
    return split.validation_sessions, split.test_sessions, split.embargo_sessions


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [(2, (0, 1, 0)), (99, (0, 1, 0)), (100, (10, 20, 1)), (259, (25, 51, 1)), (2500, (40, 500, 1))],
)
def test_split_by_number_of_sessions(sessions, expected):
    assert numbers(split_of(SplitConfig(), sessions)) == expected


@pytest.mark.parametrize(
    ("given_keys", "expected"),
    [
        ({"test_sessions": 60}, (0, 60, 0)),
        ({"validation_sessions": 5}, (5, 1, 0)),
        ({"test_sessions": 0}, (0, 0, 0)),
        ({"embargo_sessions": 2}, (0, 1, 2)),
        ({"validation_sessions": 0, "test_sessions": 3, "embargo_sessions": 1}, (0, 3, 1)),
    ],
)
def test_a_given_number_switches_the_protocol_off(given_keys, expected):
    assert numbers(split_of(SplitConfig(**given_keys), 1000)) == expected


@pytest.mark.parametrize(
    ("given_keys", "sessions", "facts"),
    [
        ({}, 1000, ()),
        ({"validation_sessions": 5}, 99, ()),
        ({"validation_sessions": 10, "test_sessions": 20, "embargo_sessions": 0}, 100, ()),
        (
            {"validation_sessions": 30, "test_sessions": 60},
            100,
            (
                "validation_sessions and test",
                "100 sessions",
                "embargo_sessions is 0 (by",
            ),
        ),
        (
            {"validation_sessions": 5},
            2500,
            (
                "validation_sessions alone",
                "2,500 sessions",
                "test_sessions is 1 (",
                "embargo_sessions is 0 (by",
            ),
        ),
    ],
)
def test_a_given_number_that_switches_the_protocol_off_is_no_secret(given_keys, sessions, facts):
    note = split_note(SplitConfig(**given_keys), sessions)
    assert (note is None) == (not facts)
    assert not missing(note or "", *facts)


@given(st.integers(2, 3000))
def test_parts_are_in_time_order_and_apart(sessions):
    ids = split_ids(sessions, SplitConfig())
    train, validation, test = ids["train"], ids["validation"], ids["test"]
    assert len(train) >= len(test) >= 1
    assert test[-1] == sessions - 1
    if sessions < ENOUGH:
        assert not len(validation)
        assert train[-1] + 1 == test[0]
    else:  # one session lies between two parts
        assert train[-1] + 2 == validation[0]
        assert validation[-1] + 2 == test[0]
        assert len(test) >= 20
        assert len(train) >= 0.65 * sessions


@pytest.mark.parametrize(
    "keys",
    [
        ["advisor.kind=mock"],
        ["train.num_seeds=2", "evolve.keys={ppo.learning_rate: [0.001, 0.01]}"],
        ["sweep.keys={ppo.learning_rate: [0.001, 0.01]}"],
        ["train.num_seeds=2", "shared.on=true"],
    ],
)
def test_agents_that_are_compared_in_other_ways_keep_their_last_policy(keys):
    asked = load_config("quickstart", keys)
    config = with_split(asked, 200)
    assert numbers(config.split) == (20, 40, 1)
    assert not scores_by_default(asked, config)
    control = with_control(config, 40, 0).control
    assert (control.evaluate_every, control.keep) == (0, "last")


@pytest.mark.parametrize(
    ("steps", "bars", "expected"),
    [
        (1_000_000, 3_900, 7),
        (1_000_000, 15_600, 3),
        (50_000_000, 15_600, 10),
        (1_000_000, 3_000, 10),
    ],
)
def test_evaluations_cost_a_small_share_of_the_training(steps, bars, expected):
    assert (
        count_evaluations(steps, bars) == expected
    )  # 3 % of the steps over the bars, from 3 to 10


@pytest.mark.parametrize(
    ("values", "times", "expected"),
    [
        ({}, 10, (4, "best")),
        ({}, 0, (0, "last")),
        ({"evaluate_every": 3}, 10, (3, "last")),
        ({"evaluate_every": 0}, 10, (0, "last")),
        ({"keep": "last"}, 10, (4, "last")),
        ({"evaluate_every": 3, "keep": "best"}, 0, (3, "best")),
    ],
)
def test_given_keys_of_control_stay(values, times, expected):
    config = make_config({"control": values, "split": {"validation_sessions": 5}}, "test")
    control = with_control(config, 31, times).control
    assert (control.evaluate_every, control.keep) == expected


def test_keeping_the_best_needs_scores():
    with refused("control.keep=best "):
        make_config({"control": {"evaluate_every": 0, "keep": "best"}}, "test")


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ([], ("evaluate_every", "split.validation_sessions=1")),
        (["split.validation_sessions=1"], ("evaluate_every",)),
        (
            ["data.source=synthetic", "data.synthetic_sessions=200", "advisor.kind=mock"],
            ("evaluate_every", "split.validation_sessions=1"),
        ),
    ],
)
def test_keeping_the_best_without_scores_is_refused_before_the_data_are_read(keys, facts):
    config = load_config("quickstart", ["control.keep=best", *keys])
    with refused("control.keep=best ", *facts):
        check(config)
    with refused("control.keep=best ", *facts):
        prepare(config)


def test_keeping_the_best_is_accepted_where_the_default_protocol_scores():
    check(load_config("quickstart", ["control.keep=best", *SMALL]))
    check(load_config(None, ["control.keep=best", "data.source=file", f"data.file={__file__}"]))


def test_a_run_that_could_not_be_read_again_is_not_created(tmp_path):
    config = load_config("quickstart").replace(control={"keep": "best", "evaluate_every": 0})
    with refused("control.keep=best "):
        create_run(tmp_path / "run", config, {})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("note", "facts"),
    [
        (
            days_note(1, 4),
            ("one day proves nothing", "trained on 4 days"),
        ),
        (
            days_note(19, 60, 9),
            (
                "rests on 19 days",
                "too few",
                "trained on 60 days",
                "chosen on 9 other days",
            ),
        ),
        (
            days_note(20, 69, 10),
            ("rests on 20 independent days", "trained on 69 days", "chosen on 10 other days"),
        ),
        (
            days_note(30, 69, 1, symbols=4),
            (
                "rests on 30 independent days",
                "4 symbols on one date",
                "trained on 69 days",
                "chosen on 1 other day",
            ),
        ),
        (
            days_note(20, 69, 20, same=True),
            ("rests on 20 independent days", "these very days", "flatter it"),
        ),
    ],
)
def test_the_report_says_on_how_many_days_it_rests(note, facts):
    assert not missing(note, *facts)


SMALL = (
    "data.source=synthetic",
    "data.synthetic_sessions=100",
    "rollout.num_envs=16",
    "rollout.num_steps=16",
    "network.hidden=[8]",
    "ppo.num_minibatches=2",
    "train.total_timesteps=5120",
    "train.chunk_updates=2",
    "train.tensorboard=false",
    "env.window=2",
)


@pytest.fixture(scope="module")
def asked():
    return load_config("quickstart", SMALL)


@pytest.fixture(scope="module")
def trained(asked, tmp_path_factory):
    return run(asked, tmp_path_factory.mktemp("protocol") / "run").path


@pytest.mark.slow
def test_a_run_without_split_keys_keeps_its_best_policy(asked, trained):
    config = load_config(str(trained / "config.yaml"))
    assert numbers(config.split) == (10, 20, 1)
    assert (config.control.evaluate_every, config.control.keep) == (
        4,
        "best",
    )  # 10 chunks, 3 evaluations
    summary = read_json(trained / "summary.json")
    assert [update for update, _ in summary["validation"]["scores"]] == [8, 16, 20]
    setup = prepare(config)
    kept, last = (
        [np.asarray(leaf) for leaf in jax.tree.leaves(load_policy(trained / folder).policy)]
        for folder in ("policy", "policy_last")
    )
    same = all(np.array_equal(a, b) for a, b in zip(kept, last, strict=True))
    assert same == (summary["validation"]["best_update"] == setup.plan.total_updates)
    assert not (trained / "policy_best").exists()
    require_own(asked, trained)  # --auto-resume compares the numbers that were given alone


@pytest.mark.slow
def test_its_report_counts_the_days(trained):
    text = (trained / "evaluation/test/evaluation.txt").read_text()
    note = next(line for line in text.splitlines() if "rests on 20 independent days" in line)
    assert not missing(note, "trained on 68 days", "chosen on 10 other days")
    assert "these very days" in evaluate_run(Request(trained, "validation"))
