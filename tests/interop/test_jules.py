"""`jaxtrade.interop.jules`: the quick start of IntradayJules, its YAML, and the fate of each of its
keys.
"""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxtrade.cli.entry import main
from jaxtrade.config import load_config, make_config
from jaxtrade.config.load import all_keys
from jaxtrade.config.sb3 import PARAMETERS
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.interop import jules, jules_config
from jaxtrade.interop.jules import TrainerAgent, build_vec_env, get_optimal_n_envs
from jaxtrade.interop.jules_config import convert_config
from tests.messages import missing, refused, refuses

SNIPPET = """
training:
  vectorized_training:
    enabled: true
    n_envs: null  # Auto-detect
    use_shared_memory: false  # Use SubprocVecEnv
    symbols:
      - "EURUSD"
      - "GBPUSD"
      - "USDJPY"
      - "USDCHF"
    data_dir: "data/forex"
"""
SCHEMA = """
training:
  algorithm: LEARNER
  vectorized_training:
    enabled: true
    n_envs: 12
    max_envs: 16
    monitor: {enabled: true, log_path: logs/vec_monitor, info_keywords: [drawdown, turnover]}
  total_timesteps: 500000
  log_interval: 1000
  algo_params:
    {learning_rate: 0.0001, buffer_size: 100000, learning_starts: 10000, batch_size: 32, tau: 1.0, gamma: 0.98,
     train_freq: 4, gradient_steps: 1, target_update_interval: 1000, exploration_fraction: 0.1,
     exploration_initial_eps: 1.0, exploration_final_eps: 0.05, max_grad_norm: 10, tensorboard_log: logs/tensorboard}
environment:
  {observation_feature_cols: [rsi_14, ema_10, vwap_20, hour_sin, day_of_week_cos], include_market_impact_features: true,
   initial_balance: 100000, transaction_cost: 0.001, lookback_window: 3, max_steps: 1000, reward_type: pnl,
   action_type: discrete, reward_scaling: 1.0, risk_penalty: 0.1, transaction_penalty: 0.001}
feature_engineering: {features: [RSI], rsi: {window: 14}}
risk: {enabled: true, calculators: {drawdown: {max_drawdown: 0.05}}, callbacks: {early_stopping: {patience: 10000}}}
data: {enhance_with_order_book: true, order_book_simulation: {num_levels: 5}}
logging: {level: INFO}
monitoring: {metrics: [{name: throughput, type: gauge}]}
hardware: {cpu: {affinity: null, torch_threads: 2}, memory: {shm_size: 2g}}
requirements: {min_cpu_cores: 4}
benchmarks: {single_threaded: {steps_per_second: 45000}}
"""
SYMBOLS = ("EURUSD", "GBPUSD", "USDJPY", "USDCHF")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with `data/forex`; no key has been explained yet."""
    folder = tmp_path / "data" / "forex"
    folder.mkdir(parents=True)
    for symbol in SYMBOLS:
        (folder / f"{symbol}_H1.csv").write_text("time,open,high,low,close\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jules, "_TOLD", set())
    return tmp_path


def test_the_number_of_environments_is_auto_and_keys_are_explained_once(here):
    config = {"algorithm": "PPO", "training": {"log_interval": 1000}}
    with pytest.warns(UserWarning, match="has no meaning here") as told:
        env = build_vec_env(
            ["EURUSD", "USDJPY"],
            Path("data/forex"),
            config,
            use_shared_memory=True,
            monitor_path="logs/vec_monitor",
        )
    [said] = [str(each.message) for each in told]
    for key in ("training.log_interval", "use_shared_memory", "monitor_path"):
        assert f"  {key}: has no meaning here: " in said
    assert (env.num_envs, env.symbols, env.config.rollout.auto) == (
        None,
        ("EURUSD", "USDJPY"),
        True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            build_vec_env(["EURUSD"], "data/forex", config, 8, use_shared_memory=True).num_envs == 8
        )


def test_the_recommended_number_is_measured(here, monkeypatch):
    def measure(config, *_):
        envs = 64 * len(config.data.markets)
        return SimpleNamespace(
            setup=SimpleNamespace(config=config.replace(rollout={"num_envs": envs}))
        )

    monkeypatch.setattr(jules, "prepare_sized", measure)
    assert get_optimal_n_envs(["EURUSD", "GBPUSD"]) == 128
    agent = TrainerAgent({"algorithm": "PPO"})
    assert agent.get_recommended_n_envs(list(SYMBOLS), Path("data/forex")) == 256
    info = agent.trainer_core.get_training_performance_info()
    assert (info["num_workers"], info["expected_speedup"]) == (None, None)


def test_the_run_of_a_policy_is_found(tmp_path):
    for name in ("run/config.yaml", "run/manifest.json", "run/policy/manifest.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert (
        jules._run_of(tmp_path / "run" / "policy")
        == jules._run_of(tmp_path / "run")
        == tmp_path / "run"
    )


def test_an_environment_is_needed_and_must_be_ours():
    agent = TrainerAgent({"algorithm": "PPO"})
    with pytest.raises(ConfigError, match=r"call create_vectorized_env"):
        agent.train()
    with pytest.raises(ConfigError, match="got <object>"):
        agent.set_env(object())  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="neither a run"):
        jules._run_of(Path("nowhere"))


# --- its YAML


@pytest.mark.parametrize("learner", ["PPO", "PQN", "RecurrentPPO", "DQN"])
def test_every_key_of_the_schema_has_a_fate(learner):
    values = parse_yaml(SCHEMA.replace("LEARNER", learner), "schema")
    keys = [*(key for key, _ in flat(values)), "held-out sessions"]
    assert [fate.key for fate in convert_config(values).fates] == keys
    found = convert_config(values, targets=False)
    assert [fate.key for fate in found.fates] == keys
    config = found.config()
    assert config.split.automatic, "so the default protocol holds out, and uses, validation days"
    assert (config.rollout.num_envs, config.rollout.num_shards) == (12, 4)
    assert (config.env.window, config.episode.max_steps, config.compute.threads) == (3, 1000, 2)
    assert config.env.features == ("rsi_14", "ema_10", "vwap")
    assert config.learner.model_dump()["gamma"] == 0.98
    kinds = {fate.key: fate.kind for fate in found.fates}
    assert (
        kinds["environment.transaction_cost"]
        == kinds["risk.calculators.drawdown.max_drawdown"]
        == "not supported:"
    )
    assert kinds["benchmarks.single_threaded.steps_per_second"] == "has no meaning here:"
    assert config.account.drawdown == "off"
    assert config.network.kind == ("gru" if learner == "RecurrentPPO" else "mlp")


def test_numbered_actions_are_target_positions_and_costs_are_basis_points():
    found = convert_config(parse_yaml(SCHEMA.replace("LEARNER", "PPO"), "schema"))
    config, kinds = found.config(), {fate.key: fate.kind for fate in found.fates}
    assert (config.env.task, config.allocate.actions) == ("allocate", "product")
    assert config.allocate.cost_bp == 10.0, "0.001 of the traded value"
    assert config.reward.preset == "jules_net"
    for name in ("observation_feature_cols", "lookback_window"):
        assert kinds[f"environment.{name}"] == "not supported:"


@pytest.mark.parametrize(
    ("environment", "task"),
    [
        ("{action_type: discrete}", "allocate"),
        ("{transaction_cost: 0.0005}", "allocate"),
        ("{observation_feature_cols: [rsi_14]}", "manage"),
    ],
)
def test_the_task_is_the_one_that_the_configuration_means(environment, task):
    assert (
        convert_config({"environment": parse_yaml(environment, "jules")}).config().env.task == task
    )


@pytest.mark.parametrize("changes", [["env.task=entry"], {"env.task": "entry"}])
def test_a_task_of_the_users_own_choice_keeps_the_features(here, changes):
    given = {"environment": {"action_type": "discrete", "observation_feature_cols": ["rsi_14"]}}
    with pytest.warns(UserWarning, match="environment.action_type: has no meaning"):
        env = build_vec_env(["EURUSD"], "data/forex", given, 8, set=changes)
    assert (env.config.env.task, env.config.env.features) == ("entry", ("rsi_14",))


@pytest.mark.parametrize(("symbols", "actions"), [(5, "product"), (6, "increment")])
def test_many_symbols_have_actions_that_change_one_position(symbols, actions):
    names = ["EURUSD", "GBPUSD", "USDJPY", "USDCHF", "ES", "NQ"][:symbols]
    vector = {"vectorized_training": {"symbols": names}}
    given = {"environment": {"action_type": "discrete"}, "training": vector}
    assert convert_config(given).values.get("allocate.actions", "product") == actions


def test_a_task_may_be_named_in_a_section():
    given = {"environment": {"action_type": "discrete", "transaction_cost": 0.0001}}
    env = build_vec_env(["EURUSD"], None, given, 8, set={"env": {"task": "entry"}})
    assert env.config.env.task == "entry"


def flat(values, prefix=""):
    found = []
    for name, value in values.items():
        own = prefix + name
        found += flat(value, f"{own}.") if isinstance(value, dict) else [(own, value)]
    return found


def test_a_balance_that_is_not_given_means_no_rules_too():
    found = convert_config({"algorithm": "PPO", "training": {"seed": 2}})
    account = found.config().account
    assert (account.drawdown, account.profit_target, account.freeze, account.min_days) == (
        "off",
        "off",
        "never",
        0,
    )
    assert not missing(
        str(found.fates[-2]), "environment.initial_balance", "not given", "account.drawdown=off"
    )


@pytest.mark.parametrize("on", ["true", "false"])
def test_the_monitor_can_be_turned_off(on):
    text = f"{{training: {{vectorized_training: {{monitor: {{enabled: {on}}}}}}}}}"
    assert convert_config(parse_yaml(text, "jules")).config().monitor.on is (on == "true")


def test_the_replay_ratio_of_sb3_is_samples_per_environment_step():
    given = "{algorithm: DQN, training: {algo_params: {train_freq: 4, gradient_steps: 2, batch_size: 64}}}"
    ratio = convert_config(parse_yaml(given, "jules")).values["dqn.replay_ratio"]
    assert ratio == 32.0, "2 steps of 64 samples every 4 steps"
    with pytest.raises(ConfigError, match=r"train_freq = 0: .*at least 1"):
        convert_config(parse_yaml(given.replace("train_freq: 4", "train_freq: 0"), "jules"))


def test_priorities_are_taken_only_where_draws_are_prioritised():
    given = "{algorithm: DQN, training: {algo_params: {prioritized_replay_alpha: 0.7MORE}}}"
    off, on = (
        convert_config(parse_yaml(given.replace("MORE", more), "jules"))
        for more in ("", ", prioritized_replay: true")
    )
    assert off.config().dqn.priority_alpha == 0.6
    assert "prioritized_replay is off" in str(
        next(fate for fate in off.fates if "alpha" in fate.key)
    )
    assert (on.config().dqn.replay, on.config().dqn.priority_alpha) == ("prioritised", 0.7)


def test_each_key_of_the_tables_has_one_fate_and_a_plain_one_is_ours():
    parameters = {f"training.algo_params.{name}" for name in jules_config.PARAMETER_NAMES}
    keys = jules_config.KEYS
    tables = [
        set(keys["plain"]),
        {"algorithm", "training.algorithm", *jules_config.MADE},
        parameters,
        set(keys["no_meaning"]),
        set(keys["unsupported"]),
    ]
    assert sum(map(len, tables)) == len(set().union(*tables))
    ours = [*keys["plain"].values()] + [
        f"{learner}.{name}" for learner, names in PARAMETERS.items() for name in names.values()
    ]
    assert set(ours) <= set(all_keys())


WRONG = [
    ("{algorithm: SAC}", r"algorithm = SAC: not supported; expected one of DQN"),
    ("{algorithm: DQM}", r"did you mean 'DQN'\?"),
    ("{algorithm: DQN, training: {algorithm: PPO}}", "give one of the two"),
    (
        "{algorithm: DQN, seed: 1, training: {seed: 2}}",
        "seed and training.seed both set seed: to 1 and to 2; give one of the two",
    ),
    ("{environment: {action_type: continuous}}", "expected discrete"),
    ("{environment: {transaction_cost: 0.3}}", "from 0 to 0.1"),
    ("{environment: {transaction_cost: 0.0000123}}", "hundredths of a basis point"),
    ("{environment: {transaction_cost: 1bp}}", "transaction_cost = '1bp': expected"),
    ("{environment: {initial_balance: 12345}}", r"accounts begin with 25,000"),
    ("{environment: {observation_feature_cols: [rsi_14, rsj]}}", "unknown feature 'rsj'"),
    ("{training: {vectorized_training: {n_envs: 0}}}", "n_envs = 0: expected a whole number"),
    ("{training: {vectorized_training: {symbols: EURUSD}}}", "expected a list of symbols"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_value_that_cannot_be_used_fails(text, said):
    with pytest.raises(ConfigError, match=said):
        convert_config(parse_yaml(text, "jules"))


def test_the_command_writes_ours_and_says_what_became_of_each_key(tmp_path, capsys):
    file, out = tmp_path / "jules.yaml", tmp_path / "ours.yaml"
    file.write_text("algorithm: PPO\n" + SNIPPET)
    command = ["config", "import", str(file)]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert make_config(parse_yaml(printed.out, "ours")).data.folder == "data/forex"
    [line] = [line for line in printed.err.splitlines() if "vectorized_training.n_envs " in line]
    assert line.split()[0] == "training.vectorized_training.n_envs"
    assert line.endswith(" rollout.num_envs=auto")
    assert main([*command, "-o", str(out)]) == 0
    assert load_config(out).data.markets == SYMBOLS
    refuses(capsys, [*command, "-o", str(out)], "exists")
    refuses(capsys, ["config", "import", str(tmp_path / "none.yaml")], "no such file")


def test_a_folder_that_is_missing_is_named_with_what_was_expected(here):
    facts = ("data_dir (data.folder)", "'data/fx'", here, "EURUSD.csv", "data_dir=None")
    with refused(*facts, "(EURUSD*{.csv,.csv.gz,", kind=DataError):
        build_vec_env(["EURUSD"], "data/fx", {"algorithm": "DQN"})


def test_a_file_that_is_missing_is_named_with_its_pattern(here):
    forex = here / "data" / "forex"
    (forex / "GBPUSD_H1.csv").rename(forex / "cable.csv")
    found = [path.name for path in forex.iterdir()]
    with refused("after GBPUSD", "data_dir (data.folder)", *found, "GBPUSD*{", kind=DataError):
        build_vec_env(["EURUSD", "GBPUSD"], "data/forex", {"algorithm": "DQN"})
