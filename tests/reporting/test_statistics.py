"""The statistics of a report: from the daily profit in the run's records, and from the trial log as
it is by now.
"""

import itertools
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from jaxtrade.cli.parser import build_parser
from jaxtrade.evaluation.run_days import evaluated_records
from jaxtrade.evaluation.statistics import iqm_estimate, selection
from jaxtrade.reporting import collect, make, studies
from jaxtrade.reporting.schema import OPTIONAL, command, report_command
from jaxtrade.storage.trials import HEAD, TRIALS, read_trials
from tests.messages import missing
from tests.reporting.made import AGENTS, logged, made_run

DAYS, SEEDS, OTHERS = 40, 5, 11


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    run = made_run(
        tmp_path_factory.mktemp("runs") / "made", sessions=DAYS, each=30, trades=2, seeds=SEEDS
    )
    return logged(run, times=2, others=OTHERS)


@pytest.fixture
def alone(tmp_path):
    """A run of one policy over some days, without a log."""
    return made_run(tmp_path / "runs" / "made", sessions=8, each=30, trades=2)


def data_of(run, **choice):
    return collect.collect(collect.choose(run, **choice)).data


# --- the figures -----------------------------------------------------------------------------------------------------


def net_of(run):
    """float64[S, A, D], from the files."""
    return np.stack([each.daily_net for each in evaluated_records(run).values()])


@pytest.mark.slow
def test_the_figures_are_those_of_their_formulas(kept):
    """Of the third seed: what each is computed from. The formulas have tests of their own."""
    found, net = data_of(kept, seed=2)["statistics"], net_of(kept)
    assert (found["days"], found["seeds"], found["trials"]) == (DAYS, SEEDS, SEEDS + OTHERS)
    for i, name in enumerate(AGENTS):
        assert found["agents"][name]["value"] == pytest.approx(
            stats.trim_mean(net[:, i].mean(axis=1), 0.25)
        )
    assert found["daily"] == found["agents"]["greedy"]
    assert found["daily"]["low"] < found["daily"]["value"] < found["daily"]["high"]
    means = net.mean(axis=2)
    assert {name: each["value"] for name, each in found["improvement"].items()} == {
        name: float((means[:, 0] > means[0, i]).mean()) for i, name in enumerate(AGENTS) if i > 1
    }

    trials = [
        profit for opening in read_trials(kept.parent).looks[1:] for profit in opening.net.values()
    ]
    assert len(trials) == SEEDS + OTHERS
    variance = selection.trial_variance(np.array(trials).T)
    assert found["psr"]["value"] == pytest.approx(selection.psr(net[2, 0]).value)
    picked = selection.dsr(net[2, 0], len(trials), variance)
    assert found["dsr"]["value"] == pytest.approx(picked.value, abs=1e-6)


@pytest.mark.slow
def test_what_the_overfitting_and_the_baselines_say_is_that_of_the_trials_and_of_all_seeds(kept):
    """Other seeds: the same test of all policies, and the same trials, but a Sharpe ratio of their
    own.
    """
    first, third = (data_of(kept, seed=seed)["statistics"] for seed in (0, 2))
    assert 0 < first["spa"]["value"] <= 1
    assert 0 <= first["null_low"] < first["null_high"] <= 1
    assert 0 <= first["pbo"]["value"] <= 1
    same = ("spa", "pbo", "null_low", "null_high", "daily", "improvement")
    assert [first[name] for name in same] == [third[name] for name in same]
    assert first["psr"] != third["psr"]


def test_the_interval_of_one_policy_is_of_the_days_alone(alone):
    found = data_of(logged(alone))["statistics"]
    net = net_of(alone)[:, 0]
    assert found["daily"] == found["agents"]["greedy"] == iqm_estimate(net, rule=True)._asdict()
    assert found["daily"]["low"] < found["daily"]["value"] < found["daily"]["high"]
    assert found["daily"]["value"] == pytest.approx(net_of(alone)[0, 0].mean())
    assert found["agents"]["random"]["low"] < found["agents"]["random"]["value"], (
        "no training changes a rule"
    )
    assert {each["why"] for each in found["improvement"].values()} == {studies.ONE_POLICY}
    assert not missing(found["pbo"]["why"], "10 trials and 32 days", "1 and 8")
    assert found["dsr"]["value"] == pytest.approx(found["psr"]["value"]), "one trial is not picked"


@pytest.mark.slow
def test_policies_of_different_settings_are_not_pooled(kept):
    choice = collect.choose(kept, seed=2)
    apart = studies.read_days(choice, alike=False)
    assert apart.net.shape == (1, len(AGENTS), DAYS)
    assert np.array_equal(apart.record, net_of(kept)[2, 0])
    config = choice.config.model_copy(
        update={
            "evolve": choice.config.evolve.model_copy(
                update={"keys": {"ppo.learning_rate": (1e-4, 1e-3)}}
            )
        }
    )
    assert config.evolve.on
    assert collect.collect(replace(choice, config=config)).data["statistics"]["seeds"] == 1


def test_days_that_were_trained_on_prove_nothing(tmp_path):
    label = "in sample: the policy was trained on 2 of these 8 sessions"
    run = made_run(tmp_path / "made", sessions=8, labels=(label,))
    found = data_of(logged(run))["statistics"]
    names = ("daily", "psr", "dsr", "min_trl", "spa", "pbo")
    assert [found[name] for name in names] == [{"value": None, "why": studies.TRAINED}] * len(names)
    assert "agents" not in found


def test_one_symbol_of_several_has_no_trials_of_its_own(alone):
    """The log holds the profit of the whole set."""
    choice = collect.choose(logged(alone))
    days = studies.read_days(choice, alike=True)
    found = studies.history_now(replace(choice, symbol="NQ"), "0", days)
    assert found is not None
    assert (found.opened, found.dsr.why, found.pbo.why) == (1, studies.OF_SET, studies.OF_SET)
    assert found.psr.value is not None


# --- the trial log ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_looks_are_counted_when_the_report_is_made_and_it_is_none(alone):
    log = logged(alone).parent / TRIALS
    before = log.read_bytes()
    assert (data_of(alone)["trials"]["opened"], data_of(alone)["trials"]["opened"]) == (1, 1)
    assert log.read_bytes() == before
    again = data_of(logged(alone, times=2, others=1))
    assert (
        again["trials"]["opened"],
        again["trials"]["at_evaluation"],
        again["trials"]["trials"],
    ) == (4, 1, 2)
    openings = read_trials(alone.parent).looks
    assert (again["trials"]["first"], again["trials"]["last"]) == (
        openings[0].utc,
        openings[-1].utc,
    )


def change(log):
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0].replace(b'"agent":"greedy"', b'"agent":"other"') + b"".join(lines[1:]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (
            lambda log: [each.unlink() for each in (log, log.parent / HEAD)],
            "no trial log (trials",
        ),
        (lambda log: log.unlink(), "jsonl: line 1: was removed"),
        (change, "jsonl: line 1: was changed"),
    ],
)
def test_a_log_that_cannot_tell_is_no_zero(alone, harm, why):
    harm(logged(alone, times=2).parent / TRIALS)
    data = data_of(alone)
    assert (data["trials"]["opened"], data["trials"]["trials"]) == (None, None)
    assert why in data["trials"]["fault"]
    assert (data["statistics"]["dsr"]["why"], data["statistics"]["trials"]) == (
        studies.NO_COUNT,
        None,
    )
    assert data["statistics"]["psr"]["value"] is not None, "it needs no log"
    assert str(alone.parent) not in make.make(collect.collect(collect.choose(alone))).html


def test_a_log_of_others_does_not_speak_for_this_run(alone):
    """A run that was copied beside other runs: their log does not know of its own opening."""
    logged(alone, times=0, others=4)
    assert not missing(data_of(alone)["trials"]["fault"], "trials.jsonl", "4 looks", "not the one")


def test_sessions_outside_the_test_split_are_not_counted(alone):
    logged(alone)
    (alone / "evaluation" / "test").rename(alone / "evaluation" / "validation")
    data = data_of(alone, split="validation")
    assert data["trials"] is None
    assert data["statistics"]["dsr"]["why"] == studies.NOT_TEST
    assert data["statistics"]["psr"]["value"] is not None


# --- the commands that it prints -------------------------------------------------------------------------------------


def parses(line):
    program, *words = shlex.split(line)
    assert program == "jaxtrade"
    build_parser().parse_args(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "number"),
    list(itertools.product(("test", "validation", "train", "all"), (None, "seed_3", "agent_002"))),
)
def test_every_command_is_one_of_the_command_line(split, number):
    for section in OPTIONAL:
        parses(command(section, {"split": split, "number": number, "folder": "runs/a"}))


@pytest.mark.slow
def test_the_commands_of_a_page_name_its_split_and_its_policy(kept):
    data = collect.collect(collect.choose(kept, seed=3))
    printed = re.findall("<code>(jaxtrade .*?)</code>", make.make(data).html)
    for line in printed:
        parses(line)
    title = data.data["title"]
    again = report_command(title)
    assert set(printed) == {again, *(command(section, title) for section in OPTIONAL)}
    assert any(line.endswith(f"{title['folder']} --seed 3 --cost-grid") for line in printed)
    assert any(line.endswith(f"{title['folder']} --nulls sign:99") for line in printed), (
        "the seeds are pooled"
    )
    of_agent = command("costs", {"split": "validation", "number": "agent_002", "folder": "runs/a"})
    assert of_agent.split()[3:] == ["--split", "validation", "--agent", "2", "--cost-grid"]
