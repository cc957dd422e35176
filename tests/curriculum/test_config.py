"""Curriculum files: phases over a base, overrides, and what is refused."""

import hashlib
import json

import pytest

from jaxtrade.config import make_config
from jaxtrade.config.faults import IN_THOUSANDTHS, MOVED
from jaxtrade.config.yaml12 import dump_yaml, parse_yaml
from jaxtrade.curriculum.config import (
    dump_curriculum,
    load_curriculum,
    read_curriculum,
    written_digest,
)
from jaxtrade.errors import ConfigError
from jaxtrade.parts import LEARNERS
from tests.messages import refused, refuses

TEXT = """
base: {split: {validation_sessions: 1}, rollout: {num_envs: 16}, ppo: {learning_rate: 0.001}}
phases:
  first: {run: {env: {task: entry}}, gate: {min_trades: 3}}
  second: {run: {env: {task: manage}, ppo: {learning_rate: 0.0005}}}
"""


def resolve(sections, where):
    return make_config(sections, where)


def load(tmp_path, text=TEXT, *overrides):
    path = tmp_path / "course.yaml"
    path.write_text(text)
    return load_curriculum(str(path), overrides, (), resolve)


def test_phases_stand_over_the_base(tmp_path):
    first, second = load(tmp_path).phases
    assert (first.name, first.config.env.task, first.gate.min_trades) == ("first", "entry", 3)
    assert (first.config.ppo.learning_rate, second.config.ppo.learning_rate) == (0.001, 0.0005)
    assert first.config.rollout.num_envs == second.config.rollout.num_envs == 16


def test_set_reaches_every_phase_or_one(tmp_path):
    course = load(
        tmp_path,
        TEXT,
        "rollout.num_envs=32",
        "phases.second.run.rollout.num_steps=8",
        "phases.first.gate.min_kl=0.1",
        "enforce_gates=false",
    )
    assert [phase.config.rollout.num_envs for phase in course.phases] == [32, 32]
    assert [phase.config.rollout.num_steps for phase in course.phases] == [32, 8]
    assert course.phases[0].gate.min_kl == 0.1
    assert not course.enforce_gates


def test_written_out_it_is_the_same(tmp_path):
    course = load(tmp_path)
    assert load(tmp_path, dump_curriculum(course)).digest() == course.digest()


def old_keys(sections):
    """A run's sections as versions wrote them before `network` and `rollout` were sections of their
    own, and stops were in ATRs."""
    for old, new in MOVED.items():
        target, _, name = new.partition(".")
        section, _, key = old.partition(".")
        sections[section][key] = sections[target].pop(name)
    for key in IN_THOUSANDTHS:
        sections["brackets"][key] = round(1000 * sections["brackets"][key])
    return {
        key: value
        for key, value in sections.items()
        if key not in ("network", "rollout", "algorithm")
    }


def test_a_folder_of_an_earlier_version_is_read_and_its_digest_is_that_of_its_file(
    tmp_path,
):
    course = load(tmp_path)
    values = parse_yaml(dump_curriculum(course), "course", exact=True)
    (tmp_path / "curriculum.yaml").write_text(dump_yaml(values))
    assert written_digest(tmp_path) == course.digest()
    for phase in values["phases"].values():
        phase["run"] = old_keys(phase["run"])
    (tmp_path / "curriculum.yaml").write_text(dump_yaml(values))
    old = {
        "enforce_gates": True,
        "phases": [
            {"name": name, "config": phase["run"], "gate": phase["gate"]}
            for name, phase in values["phases"].items()
        ],
    }
    assert (
        written_digest(tmp_path)
        == hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()
    )
    assert read_curriculum(tmp_path).digest() == course.digest()
    written = written_digest(tmp_path)
    del values["phases"]["first"]["gate"], values["enforce_gates"]
    (tmp_path / "curriculum.yaml").write_text(dump_yaml(values))
    assert written_digest(tmp_path) != written


def test_every_phase_is_trained_by_a_learner_that_can_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(LEARNERS, "_added", {"own": object()})
    with refused("phase second: algorithm=own"):
        load(tmp_path, TEXT.replace("env: {task: manage}", "algorithm: own"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1", "no 'phases'"),
        ("phases: {}", "'phases' is empty"),
        (TEXT.replace("min_trades", "min_trade"), r"first\.gate\.min_trade'"),
        (
            TEXT.replace("learning_rate: 0.0005", "learning_rat: 0.0005"),
            r"second.*ppo\.learning_rat\b",
        ),
        (TEXT.replace("first:", "First Phase:"), "lower-case"),
        (
            TEXT.replace("validation_sessions: 1", "validation_sessions: 0"),
            r"split\.validation_sessions is 0",
        ),
        (
            TEXT.replace("base: {", "base: {train: {num_seeds: 2}, "),
            r"train\.num_seeds=2",
        ),
    ],
)
def test_faults_name_the_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["curriculum", "--from", "nowhere"], "nowhere: not a run directory"),
        (
            ["curriculum", "--phase", "manage"],
            "(--from RUN)",
        ),
        (["curriculum", "--phase", "mange"], "entry, manage, advised"),
        (["curriculum", "--resume", "nowhere"], "(--resume): no curriculum.yaml"),
        (["curriculum", "--resume", "x", "--test"], "drop --test"),
        (["curriculum", "quickstart"], "no 'phases'"),
        (["curriculum", "--set", "split.validation_sessions=0"], "gate cannot be evaluated"),
        (["curriculum", "--set", "ppo.adapter_freeze=2"], "must be below 1"),
        (
            ["curriculum", "--set", "phases.manage.run.network.hidden=[8]"],
            "hidden=(8,): the source has (64, 64)",
        ),
        (
            ["curriculum", "--set", "phases.advised.run.env.actions=seed6"],
            "advised: 1 slots and actions",
        ),
    ],
)
def test_the_command_refuses_with_the_fix(
    argv,
    fragment,
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(tmp_path)
    refuses(capsys, argv, fragment)
    assert list(tmp_path.iterdir()) == []
