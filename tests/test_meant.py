"""A suggestion for an unknown key is a key that the same configuration accepts."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxtrade as jt
from jaxtrade.config import RunConfig
from jaxtrade.config.faults import explain_unknown
from jaxtrade.config.learners import SECTIONS
from jaxtrade.config.load import all_keys, changed_config, lookup
from jaxtrade.config.sb3 import ANY_LEARNER, INSTEAD, PARAMETERS, RELATED, REMARKS
from tests.messages import missing, refused, refuses

FOREIGN = [
    (learner, name)
    for learner in SECTIONS
    for table in (PARAMETERS[learner], RELATED[learner], ANY_LEARNER)
    for name in table
    if f"{learner}.{name}" not in all_keys()
]


def message(*changes):
    with pytest.raises(jt.ConfigError) as raised:
        jt.load_config(None, changes)
    return str(raised.value)


def follow(said, *changes):
    """Set what a message suggests, to its default. Returns the key."""
    found = re.search(r"did you mean '([\w.]+)'.*?( with algorithm=(\w+))?\?", said)
    assert found, said
    key, algorithm = found[1], found[3]
    value = lookup(jt.load_config().model_dump(mode="json"), key)[1]
    jt.load_config(
        None, [*changes, *([f"algorithm={algorithm}"] if algorithm else [])], **{key: value}
    )
    return key


@pytest.mark.parametrize(("learner", "name"), FOREIGN)
def test_names_of_stable_baselines_lead_to_a_key_that_is_accepted(learner, name):
    for section in (f"{learner}.", "learner.", ""):
        chosen = f"algorithm={learner}"
        said = message(chosen, f"{section}{name}=1")
        key = follow(said, chosen)
        assert key in ANY_LEARNER.values() or key.partition(".")[0] in (learner, "rollout")
    if f"dqn.{name}" not in all_keys():
        follow(message(f"{learner}.{name}=1"))  # algorithm is ppo, and the message adds the learner


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("exploration_fraction", "epsilon_until"),
        ("buffer_sise", "buffer_size"),
        ("exploration_initial_eps", "epsilon"),
        ("train_freq", "replay_ratio"),
        ("exploration_final_eps", "epsilon_end"),
        ("gradient_steps", "replay_ratio"),
        ("target_update_interval", "target_every"),
        ("Tau", "tau"),
    ],
)
def test_the_key_that_is_meant(name, key):
    assert f"'{key}'" in message("algorithm=dqn", f"dqn.{name}=1").replace("dqn.", "").replace(
        "rollout.", ""
    )
    with refused(f"did you mean '{key}'"):
        jt.load_config(None, ["algorithm=dqn"], **dict[str, Any]({name: 1}))


@pytest.mark.parametrize(
    ("algorithm", "name", "key"),
    [
        ("ppo", "n_steps", "rollout.num_steps"),  # a key of DQN, which is not what is meant
        ("ppo", "batch_size", "ppo.num_minibatches"),
        ("pqn", "batch_size", "pqn.num_minibatches"),
        ("ppo", "lr", "ppo.learning_rate"),
        ("ppo", "eval_freq", "control.evaluate_every"),
    ],
)
def test_a_keyword_of_stable_baselines(algorithm, name, key):
    with refused(f"{name}=", f"'{key.partition('.')[2]}' (", REMARKS.get(key, "")):
        jt.load_config(algorithm=algorithm, **dict[str, Any]({name: 256}))


@pytest.mark.parametrize(("name", "key"), [("policy", "network.kind"), ("trian", "walk.train")])
def test_a_keyword_that_is_ambiguous_is_written_with_its_section(name, key):
    with refused(f"did you mean '{key}'"):
        jt.load_config(**dict[str, Any]({name: 256}))


def test_a_keyword_of_another_learner_comes_with_it():
    with refused("'replay_ratio' (", " with algorithm=dqn"):
        jt.load_config(**dict[str, Any](gradient_steps=2))
    assert not missing(message("dqn.batch_size=64"), "ppo.num_minibatches", "algorithm=dqn")
    assert jt.load_config(algorithm="dqn", n_steps=5).dqn.n_steps == 5


def test_what_a_remark_says_stands_for_the_description():
    said = message("ppo.batch_size=64")
    assert not missing(said, "'ppo.num_minibatches'", REMARKS["ppo.num_minibatches"])


@pytest.mark.parametrize("name", INSTEAD)
def test_a_name_without_a_key(name, capsys):
    with refused(f"{name}=", INSTEAD[name]):
        jt.load_config(**dict[str, Any]({name: 1}))
    said = message(f"{name}=1")
    assert INSTEAD[name] in said
    assert "did you mean" not in said
    refuses(capsys, ["train", f"--{name.replace('_', '-')}", "1"], INSTEAD[name])


def test_all_unknown_names_are_told_at_once():
    """Those of `set` too."""
    with refused("n_steps=", "callback=", "'ppo.batch_size'", "'train.sede'"):
        jt.load_config(
            None, ["ppo.batch_size=64", "train.sede=1"], **dict[str, Any](n_steps=256, callback=1)
        )


@pytest.mark.parametrize("learner", SECTIONS)
def test_a_rate_that_would_rise_is_refused(learner, tmp_path):
    """Unless both of its ends are given."""
    rate, chosen = f"{learner}.learning_rate", f"algorithm={learner}"
    assert not missing(message(chosen, f"{rate}=5e-5"), f"'{rate}' = 5e-05", f"{rate}_end=5e-05")
    message(chosen, "learner.learning_rate=5e-5")
    message(chosen, f"{rate}_end=0.1")
    with refused(f"{rate}_end=5e-05"):
        jt.load_config(algorithm=learner, learning_rate=5e-5)
    (tmp_path / "own.yaml").write_text(f"{learner}: {{learning_rate: 5.0e-5}}")
    with refused(f"{rate}_end=5e-05"):
        jt.load_config(tmp_path / "own.yaml", [chosen])
    ends = {"learning_rate": 5e-5, "learning_rate_end": 1e-4}
    both = jt.load_config(algorithm=learner, **dict[str, Any](ends))
    with refused(f"{rate}_end=1e-05"):
        changed_config(both, learning_rate=1e-5)
    assert changed_config(both, gamma=0.9) == both.replace(**{learner: {"gamma": 0.9}})
    jt.load_config(algorithm=learner, learning_rate=1e-4)  # constant


@given(
    st.sampled_from(SECTIONS), st.sampled_from(list(all_keys())), st.integers(0, 30), st.booleans()
)
def test_no_suggestion_is_of_a_learner_that_is_not_chosen(chosen, key, cut, own):
    section, _, name = key.rpartition(".")
    word = f"{chosen if own and section else section}.{name[: cut % len(name)]}{name[cut % len(name) + 1 :]}".lstrip(
        "."
    )
    if word in all_keys():
        return
    said = explain_unknown(word, all_keys(), chosen, RunConfig)
    found = re.search(r"did you mean '([\w.]+)'.*?( with algorithm=(\w+))?\?$", said)
    if found and (section := found[1].partition(".")[0]) in SECTIONS:
        assert (found[3] or chosen) == section


def test_a_key_of_another_learner_is_named_as_such():
    said = message("algorithm=dqn", "dqn.clip_eps=0.1")
    assert not missing(said, "'dqn.clip_eps': ", "key of ppo", "algorithm is dqn", ": dqn.")
    assert "did you mean" not in said
    assert "ppo." not in said.replace("a key of ppo", "")


def test_capital_letters():
    assert "did you mean 'dqn'?" in message("algorithm=DQN")
    assert "'dqn.gamma'?" in message("algorithm=dqn", "DQN.gamma=1")


@pytest.mark.parametrize(
    ("flag", "facts"),
    [
        ("--exploration-fraction", ("learner.epsilon_until=VALUE",)),
        ("--buffer-size=5", ("dqn.buffer_size=VALUE",)),
        ("--gamma", ("--set learner.gamma=VALUE",)),
        ("--n-steps", ("dqn.n_steps=VALUE", "rollout.num_steps=VALUE")),
        ("--Algorithm", ("mean --algorithm?",)),
    ],
)
def test_a_flag_that_is_a_key(flag, facts, capsys):
    refuses(capsys, ["train", flag, "1"], *facts)


def test_explain_knows_them(capsys):
    refuses(
        capsys,
        ["config", "explain", "exploration_fraction"],
        "dqn.epsilon_until",
        "pqn.epsilon_until?",
    )
