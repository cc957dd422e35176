"""Runs of earlier versions: their old keys become today's, and their digest is that of what their
file says.
"""

import json

import pytest

from jaxtrade.config import RunConfig, digest_of, dump_config, load_config, make_config
from jaxtrade.config.faults import MOVED, migrate, migrated_network
from jaxtrade.config.yaml12 import dump_yaml, parse_yaml
from jaxtrade.runs import rundir

OLD = {
    "seed": 3,
    "ppo": {
        "network": "gru",
        "rnn_width": 8,
        "hidden": [8, 16],
        "activation": "relu",
        "adapter": 0,
        "normalise_observations": False,
        "num_envs": 16,
        "num_steps": 4,
        "num_shards": 2,
        "num_minibatches": 4,
        "learning_rate": 1e-05,
        "learning_rate_end": 1e-06,
    },
}


def test_every_moved_key_finds_its_place():
    config = make_config(migrate(OLD))
    assert config.network.model_dump() == {
        "kind": "gru",
        "hidden": (8, 16),
        "activation": "relu",
        "rnn_width": 8,
        "adapter": 0,
        "normalise_observations": False,
        "normalise_per_symbol": True,
    }
    assert config.rollout.model_dump() == {"num_envs": 16, "num_steps": 4, "num_shards": 2}
    assert (config.ppo.num_minibatches, config.ppo.learning_rate, config.seed) == (4, 1e-5, 3)
    assert {f"ppo.{key}" for key in OLD["ppo"]} - set(MOVED) == {
        "ppo.num_minibatches",
        "ppo.learning_rate",
        "ppo.learning_rate_end",
    }


def test_migration_is_pure_and_leaves_todays_keys_alone():
    before = json.dumps(OLD)
    today = migrate(OLD)
    assert json.dumps(OLD) == before
    assert migrate(today) == today
    whole = RunConfig().model_dump(mode="json")
    assert migrate(whole) == {
        key: value for key, value in whole.items() if key not in ("dqn", "pqn")
    }
    assert make_config(migrate(whole)) == RunConfig()


def test_what_a_run_holds_about_other_learners_is_left_out():
    """Its values were the defaults of its time; a default that has changed since must not look like
    a changed key.
    """
    old = {"algorithm": "pqn", "ppo": {"gamma": 0.5}, "pqn": {"gamma": 0.9}, "seed": 1}
    assert migrate(old).items() >= {"algorithm": "pqn", "pqn": {"gamma": 0.9}, "seed": 1}.items()
    assert not migrate(old).keys() & {"ppo", "dqn"}
    kept = migrate({"ppo": {"gamma": 0.5}, "dqn": {"gamma": 0.4}})
    assert kept["ppo"]["gamma"] == 0.5
    assert "dqn" not in kept
    own = {"algorithm": "my_learner", "ppo": {"gamma": 0.5}, "dqn": {}}
    assert migrate(own).keys() >= own.keys()


@pytest.mark.parametrize(
    ("old", "new"), [(1500, 1.5), (1, 0.001), (3, 0.003), (1_000_000, 1000.0), (300_000, 300.0)]
)
def test_thousandths_of_an_old_run_are_atrs_today(old, new, tmp_path):
    """Whatever an old file says, the market computes with the same whole thousandths, also once it
    is written again.
    """
    (tmp_path / "config.yaml").write_text(f"brackets: {{stop_atr: {old}, trail_atr: {old}}}")
    for _ in range(2):
        brackets = make_config(rundir.written_values(tmp_path)).brackets
        assert (brackets.stop_atr, brackets.stop_thousandths, brackets.trail_thousandths) == (
            new,
            old,
            old,
        )
        (tmp_path / "config.yaml").write_text(dump_config(RunConfig(brackets=brackets)))


def test_a_month_alone_was_its_first_day():
    data = make_config(migrate({"data": {"start": "2013-10", "end": "2013-11-05"}})).data
    assert (data.start, data.end) == ("2013-10-01", "2013-11-05")


def test_a_run_from_before_rewards_were_scaled_goes_on_without():
    assert RunConfig().ppo.normalise_rewards
    assert make_config(migrate(OLD)).ppo.normalise_rewards is False
    assert (
        make_config(migrate({"seed": 3, "ppo": {"normalise_rewards": True}})).ppo.normalise_rewards
        is True
    )


def test_the_network_of_an_old_bundle():
    assert migrated_network({"network": "gru", "rnn_width": 8}) == {"kind": "gru", "rnn_width": 8}
    assert migrated_network({"kind": "mlp"}) == {"kind": "mlp"}


@pytest.mark.parametrize("name", ["quickstart", "advised", "advisor_ablation", None])
def test_the_digest_of_a_file_is_that_of_the_configuration_it_was_written_from(
    name,
):
    rates = ["ppo.learning_rate=1e-7", "ppo.learning_rate_end=1e-7"]
    config = load_config(name, [*rates, "data.start=2013-10-07"])
    assert digest_of(parse_yaml(dump_config(config), "config.yaml", exact=True)) == config.digest()


def test_an_old_run_is_read_as_it_was_written(tmp_path):
    """Neither the moved keys nor keys that this version adds change its digest."""
    (tmp_path / "config.yaml").write_text(dump_yaml(OLD))
    said = {"config_sha256": digest_of(OLD), "data_sha256": "", "nproc": ""}
    (tmp_path / "manifest.json").write_text(json.dumps(said))
    config, manifest = rundir.read_run(tmp_path)
    assert config == make_config(migrate(OLD))
    assert rundir.config_digest(tmp_path) == manifest["config_sha256"] != config.digest()
