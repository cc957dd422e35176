"""G8: an unknown configuration key fails, with a suggestion, through every door; it is never
ignored.
"""

import pytest

import jaxtrade as jt
from jaxtrade.config import make_config
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.interop.jules import TrainerAgent, build_vec_env
from tests.messages import refused, refuses

TYPOS = [
    ("{algoritm: DQN}", "unknown key 'algoritm'; did you mean 'algorithm'?"),
    ("{training: {total_timestep: 5}}", "did you mean 'training.total_timesteps'?"),
    (
        "{training: {vectorized_training: {n_env: 4}}}",
        "did you mean 'training.vectorized_training.n_envs'?",
    ),
    ("{environment: {inital_balance: 5}}", "did you mean 'environment.initial_balance'?"),
    (
        "{training: {algo_params: {bufer_size: 5}}}",
        "did you mean 'training.algo_params.buffer_size'?",
    ),
    ("{unheard_of: {of: 1}}", "unknown key 'unheard_of.of'"),
]


@pytest.mark.parametrize(("text", "said"), TYPOS)
def test_through_the_adapter(text, said):
    for door in (TrainerAgent, lambda config: build_vec_env(["EURUSD"], None, config)):
        with refused(said):
            door(parse_yaml(text, "test"))


def test_all_typos_are_told_at_once():
    with pytest.raises(jt.ConfigError) as caught:
        TrainerAgent({"training": {"total_timestep": 5, "log_intervall": 3}})
    assert len(str(caught.value).splitlines()) == 2


def test_through_the_commands_and_python(tmp_path, capsys):
    foreign, ours = tmp_path / "foreign.yaml", tmp_path / "ours.yaml"
    foreign.write_text("training: {total_timestep: 5}\n")
    ours.write_text("train: {total_timestep: 5}\n")
    meant = "did you mean 'train.total_timesteps'"
    refuses(capsys, ["config", "import", str(foreign)], "did you mean 'training.total_timesteps'")
    refuses(capsys, ["train", str(ours)], meant)
    refuses(capsys, ["train", "--set", "train.total_timestep=5"], meant)
    with pytest.raises(jt.ConfigError, match="'total_timesteps'"):
        jt.Trainer("quickstart", total_timestep=5)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("{allocate: {cooldwn: 3}}", "allocate.cooldown"),
        ("{allocate: {costs_bp: 1}}", "allocate.cost_bp"),
        ("{alocate: {}}", "allocate"),
        ("{env: {tasks: allocate}}", "env.task"),
        ("{dqn: {buffer: 1}}", ""),
    ],
)
def test_in_our_own_configuration(text, near):
    with refused("unknown key", near):
        make_config(parse_yaml(text, "test"), "test")
