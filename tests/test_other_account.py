"""`--account`: a finished run under the rules of other accounts, without training again."""

import json

import numpy as np
import pytest

from jaxtrade.cli import main
from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError
from jaxtrade.evaluation.account_draws import AccountDraws
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import evaluate, rundir, studies
from jaxtrade.runs.evaluate import Request, evaluate_run, folder_of, replace_advisor, under_account
from jaxtrade.runs.setup import prepare
from jaxtrade.runs.studies import study_run
from jaxtrade.runs.train import run
from jaxtrade.storage.trials import read_trials
from tests.messages import refuses
from tests.reading import read_json
from tests.test_run_doors import TINY

OWN, OTHER = "apex_like_50k_2025", "apex_like_100k_static_2025"


def prepared(*overrides):
    return prepare(load_config("quickstart", ["rollout.num_envs=8", *overrides]))


def test_the_rules_are_those_of_the_preset_and_nothing_else_changes():
    """Changes of the run's own account do not survive: they were made to another one."""
    before = prepared("account.drawdown=1000")
    after, trained = under_account(before, OTHER), prepared(f"account.preset={OTHER}")
    assert after.config == trained.config
    for name in ("account", "contract"):
        found, expected = (vars(getattr(each.params, name)) for each in (after, trained))
        assert {key: np.asarray(value).tolist() for key, value in found.items()} == {
            key: np.asarray(value).tolist() for key, value in expected.items()
        }
    assert after.params.market is before.params.market
    assert after.algorithm is before.algorithm


def test_a_file_changes_the_rules_of_a_preset(tmp_path):
    """Its keys may lie in a section, as in a configuration."""
    own = tmp_path / "own.yaml"
    for text in (
        "drawdown: 2000\ndaily_loss: 900\n",
        "account: {drawdown: 2000, daily_loss: 900}\n",
    ):
        own.write_text(text)
        after = under_account(prepared(), str(own))
        trained = prepared("account.drawdown=2000", "account.daily_loss=900")
        assert after.config == trained.config
        assert int(after.params.account.drawdown) == 2_000_000
    assert folder_of(tmp_path, "test", False, str(own)).name == "test-own"


def test_a_wrong_file_and_a_changed_rule_are_refused(capsys, tmp_path):
    own = tmp_path / "own.yaml"
    command = ["evaluate", str(tmp_path), "--account"]
    refuses(capsys, [*command, str(own)], "own.yaml")
    own.write_text("drawdwn: 2000\n")
    refuses(capsys, [*command, str(own)], "'drawdown'?")
    own.write_text("preset: rules_off_50k\non_target: continue\n")
    refuses(capsys, [*command, str(own)], "account.on_target")
    refuses(capsys, [*command, "apex"], "a YAML file with account keys")
    with pytest.raises(ConfigError, match="--account FILE"):
        replace_advisor(prepared(), tmp_path, None, ["account.drawdown=2000"], print)


def test_a_sweep_has_the_rules_for_all_its_agents():
    swept = prepared("sweep.keys={account.drawdown: [1000, 2000]}")
    after = under_account(swept, OTHER)
    for number in (0, 1):
        config, params = after.of_agent(number, "ES", after.params)
        assert config.account.preset == OTHER
        assert int(params.account.drawdown) == 625_000


def test_a_policy_that_sees_its_account_is_refused():
    with pytest.raises(ConfigError, match=r"--account .*env\.task=advised"):
        under_account(prepared("env.task=advised"), OTHER)


def test_the_orders_of_the_run_must_be_allowed():
    with pytest.raises(ConfigError, match=r"env\.quantity = 3"):
        under_account(prepared("env.quantity=3"), OTHER)


def test_each_account_has_a_folder_of_its_own(tmp_path):
    known = [
        folder_of(tmp_path, "test", other, account).name
        for other in (False, True)
        for account in (None, OTHER)
    ]
    assert known == ["test", f"test-{OTHER}", "test-advised", f"test-advised-{OTHER}"]


def test_unknown_accounts_and_null_markets_are_refused_before_jax(capsys, tmp_path):
    refuses(capsys, ["evaluate", str(tmp_path), "--account", f"{OWN},apex"], "--account apex")
    refuses(
        capsys, ["evaluate", str(tmp_path), "--account", OWN, "--nulls", "sign:99"], "--account"
    )


def test_a_stop_too_large_for_the_account_is_told_before_it_is_evaluated(monkeypatch, tmp_path):
    """The median stop of the bundled week is 20 ticks, $250; the static account lets $625 go."""
    monkeypatch.setattr(evaluate, "open_run", lambda *_: (prepared(), {}))
    told = []
    monkeypatch.setattr(Screen, "message", lambda self, line: told.append(line))
    for account in (None, OTHER):
        Request(tmp_path, account=account).open()
    assert [line.split()[0] for line in told] == ["WARNING:"]
    assert "$625" in told[0]


def test_several_accounts_are_answered_by_name(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(rundir, "read_run", lambda path: None)
    monkeypatch.setattr(
        studies, "study_run", lambda request, *_: json.dumps({"account": request.account})
    )
    command = ["evaluate", str(tmp_path), "--pass-probability", "--json", "--account"]
    assert main([*command, f"{OWN},{OTHER}"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        OWN: {"account": OWN},
        OTHER: {"account": OTHER},
    }


@pytest.mark.slow
def test_evaluations_under_other_accounts_lie_beside_the_runs_own(tmp_path, capsys):
    split = ("split.test_sessions=2", "data.synthetic_sessions=6", "train.total_timesteps=256")
    path = run(load_config(None, [*TINY, *split]), tmp_path / "first").path
    own = path / "evaluation" / "test" / "evaluation.json"
    before = own.read_bytes()
    evaluate_run(Request(path, account=OTHER))
    document = read_json(path / "evaluation" / f"test-{OTHER}" / "evaluation.json")
    assert document["settings"]["account"] == OTHER
    assert document["settings"]["rules"]["drawdown"] == 625
    assert any(OTHER in label for label in document["labels"])
    strategy = [each["agents"]["greedy"]["strategy"] for each in (document, json.loads(before))]
    assert strategy[0]["net_profit"] == strategy[1]["net_profit"]
    draws = AccountDraws(draws=100, accounts=50)
    found = json.loads(study_run(Request(path, as_json=True, account=OTHER), draws, False))
    assert found["account"] == OTHER
    assert "$625" in found["pass_probability"]["rules"]
    assert not (own.parent / "challenge.json").exists()
    assert own.read_bytes() == before
    [trial] = {(each.config, each.data) for each in read_trials(path.parent).looks}
    assert trial[0] == read_json(path / "manifest.json")["config_sha256"]
