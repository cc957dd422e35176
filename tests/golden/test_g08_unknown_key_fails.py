"""G8: an unknown configuration key fails, with a suggestion, through every door; it is never
ignored.
"""

from __future__ import annotations

from typing import Any

import pytest

import jaxtrade as jt
from jaxtrade.cli.entry import main
from jaxtrade.config import make_config
from jaxtrade.interop.jules import TrainerAgent, build_vec_env

TYPOS: list[tuple[dict[str, Any], str]] = [
    ({"algoritm": "DQN"}, "unknown key 'algoritm'; did you mean 'algorithm'?"),
    ({"training": {"total_timestep": 5}}, "did you mean 'training.total_timesteps'?"),
    (
        {"training": {"vectorized_training": {"n_env": 4}}},
        "did you mean 'training.vectorized_training.n_envs'?",
    ),
    ({"environment": {"inital_balance": 5}}, "did you mean 'environment.initial_balance'?"),
    (
        {"training": {"algo_params": {"bufer_size": 5}}},
        "did you mean 'training.algo_params.buffer_size'?",
    ),
    ({"unheard_of": {"of": 1}}, "unknown key 'unheard_of.of'"),
]


@pytest.mark.parametrize(("config", "said"), TYPOS)
def test_through_the_adapter(config, said):
    for door in (TrainerAgent, lambda config: build_vec_env(["EURUSD"], None, config)):
        with pytest.raises(jt.ConfigError) as caught:
            door(config)
        assert said in str(caught.value)


def test_all_typos_are_told_at_once():
    with pytest.raises(jt.ConfigError) as caught:
        TrainerAgent({"training": {"total_timestep": 5, "log_intervall": 3}})
    assert len(str(caught.value).splitlines()) == 2


def test_through_the_commands_and_python(tmp_path, capsys):
    foreign, ours = tmp_path / "foreign.yaml", tmp_path / "ours.yaml"
    foreign.write_text("training: {total_timestep: 5}\n")
    ours.write_text("train: {total_timestep: 5}\n")
    for command, said in (
        (["config", "import", str(foreign)], "'training.total_timesteps'"),
        (["train", str(ours)], "'train.total_timesteps'"),
        (["train", "--set", "train.total_timestep=5"], "'train.total_timesteps'"),
    ):
        assert main(command) == 2
        assert f"did you mean {said}" in capsys.readouterr().err
    with pytest.raises(jt.ConfigError, match="'total_timesteps'"):
        jt.Trainer("quickstart", total_timestep=5)


@pytest.mark.parametrize(
    ("values", "near"),
    [
        ({"allocate": {"cooldwn": 3}}, "allocate.cooldown"),
        ({"allocate": {"costs_bp": 1}}, "allocate.cost_bp"),
        ({"alocate": {}}, "allocate"),
        ({"env": {"tasks": "allocate"}}, "env.task"),
        ({"dqn": {"buffer": 1}}, ""),
    ],
)
def test_in_our_own_configuration(values, near):
    with pytest.raises(jt.ConfigError, match="unknown key") as raised:
        make_config(values, "test")
    assert near in str(raised.value)
