"""Configuration: what is accepted, and that every fault is one clear message which names the
key.
"""

import re
import time
from pathlib import Path

import pytest
import yaml

from jaxtrade.config import RunConfig, config_path, dump_config, load, load_config, make_config
from jaxtrade.config.load import all_keys, locate
from jaxtrade.errors import ConfigError
from tests.messages import missing, refused
from tests.reading import ROOT

SHIPPED = sorted((ROOT / "configs").glob("*.yaml"))
CONFIGS = [
    path for path in SHIPPED if "\nphases:" not in path.read_text()
]  # the rest are curricula


def load_text(folder, text, overrides=()):
    path = folder / "run.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(str(path), overrides)


def message(folder, text, overrides=()):
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, overrides)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


FAULTS = {  # text of the file -> what the message has to say
    # unknown keys
    "rollout: {num_env: 3}": ["unknown key 'rollout.num_env'", "'rollout.num_envs'?"],
    "ppo: {num_envs: 3}": ["'ppo.num_envs': ", "rollout.num_envs now"],
    "ppo: {network: gru, hidden: [8]}": [
        "'ppo.network': it is network.kind now",
        "'ppo.hidden': it is network.hidden now",
    ],
    "algorithm: dqm": [
        "'algorithm' = 'dqm'",
        "(known: ppo",
        "--import MODULE",
    ],
    "network: {kind: grus}": ["'network.kind' = 'grus'", "did you mean 'gru'?"],
    "observation: {features: [close]}": [
        "unknown key 'observation.features'",
        "'env.features'?",
    ],
    "ppo: {lr: 1}": ["unknown key 'ppo.lr'", "ppo.learning_rate"],
    "env: {tasks: manage}": ["unknown key 'env.tasks'", "'env.task'?"],
    "data: {columns: {time: {a: 1}}}": ["data.columns.time", "text"],
    # duplicate keys and broken YAML
    "seed: 1\nppo:\n  gamma: 0.9\n  gamma: 0.8": ["run.yaml, line 4", "key 'gamma' appears twice"],
    "ppo: [": ["not valid YAML", "run.yaml", "line 1"],
    "seed: 1\n---\nseed: 2": ["not valid YAML", "single document"],
    "- seed": ["found list"],
    "? [1, 2]\n: 3": ["run.yaml, line 1", "where a key is expected"],
    "1: 2": ["'1'", "strings"],
    "<<: {seed: 3}": ["unknown key '<<'"],
    "[" * 3_000: ["nested too deeply"],
    "seed: " + "9" * 5_000: ["run.yaml, line 1", "5000 digits"],
    "seed: \x00": ["not valid YAML", "#x0000"],
    b"seed: 1 # \xff": ["not UTF-8", "byte 10"],
    "# " + "x" * 1_000_001: ["1,000,003 bytes", "data.file"],
    'seed: !!python/object/apply:os.system ["true"]': ["not valid YAML", "python/object"],
    # wrong types: nothing is coerced
    'ppo: {learning_rate: "0.1"}': ["'ppo.learning_rate' = '0.1'", "expected a number"],
    "seed: true": ["'seed' = True", "expected a whole number"],
    "seed: 017": ["'seed' = '017'", "expected a whole number"],
    "session: {overnight: yes}": ["'session.overnight' = 'yes'", "expected true or false"],
    "network: {hidden: {a: 64}}": ["'network.hidden'", "a list"],
    "network: {hidden: '64,x'}": ["'network.hidden.1' = 'x'", "expected a whole number"],
    "rollout: {num_steps: 0.0001k}": [
        "'rollout.num_steps' = '0.0001k'",
        "0.1000 is not a whole number",
    ],
    "data: {time_zone: 5}": ["'data.time_zone' = 5", "text"],
    "ppo:": ["'ppo' = None", "expected a section of keys"],
    # not numbers
    "ppo: {learning_rate: .nan}": ["'ppo.learning_rate' = nan", "finite"],
    # ranges
    "ppo: {gamma: 1.01}": ["'ppo.gamma' = 1.01", "or equal to 1"],
    "seed: -1": ["'seed' = -1", "greater than or equal to 0"],
    "episode: {max_steps: 3e9}": ["'episode.max_steps' = 3000000000", "less than 2147483648"],
    "brackets: {stop_atr: 1500}": [
        "'brackets.stop_atr' = 1500",
        "write 1.5",
    ],
    "brackets: {stop_atr: 500}": ["'brackets.stop_atr' = 500", "ATRs (at most 100)", "write 0.5"],
    "brackets: {trail_atr: 1_000_000}": [
        "'brackets.trail_atr' = 1000000",
        "ATRs (at most 100)",
        "lower it",
    ],
    "brackets: {stop_atr: 1.2345}": [
        "'brackets.stop_atr' = 1.2345",
        "write 1.234",
    ],
    "stages: {commission_start: 1.5}": [
        "'stages.commission_start' = 1.5",
        "less than or equal to 1",
    ],
    "env: {task: trade}": [
        "'env.task' = 'trade'",
        "(known: entry, manage, advised, allocate)",
    ],
    "env: {advice: true}": ["env.advice=true", "env.task=advised, found manage"],
    "account: {drawdown: hello}": [
        "'account.drawdown' = 'hello'",
        "a number",
        "'off'",
    ],
    # contradictions
    "env: {fill: close}": ["fill=close ", "set env.mark=close"],
    "rollout: {num_envs: 10}": ["rollout.num_envs (10)", "rollout.num_shards (8)"],
    "{rollout: {num_envs: 32}, network: {kind: gru}, ppo: {num_minibatches: 8}}": [
        "network.kind=gru: rollout.num_envs/rollout.num_shards (4)"
    ],
    "ppo: {num_minibatches: 7}": ["ppo.num_minibatches (7)"],
    "stages: {commission_start: 0.1}": [
        "stages.commission_start = 0.1",
        "stages.commission_until (for example 0.5)",
    ],
    "stages: {commission_until: 0.5}": [
        "stages.commission_until = 0.5",
        "stages.commission_start = 1",
    ],
    "stages: {forced_start_until: 0.5}": [
        "stages.forced_start_until = 0.5",
        "stages.forced_start_end",
        "are 0",
    ],
    "evaluation: {sma_fast: 50, sma_slow: 10}": ["sma_fast (50)", "sma_slow (10)"],
    "control: {evaluate_every: 2}": [
        "control.evaluate_every (2)",
        "split.validation_sessions is not given",
    ],
    "{control: {evaluate_every: 2}, split: {test_sessions: 3}}": [
        "control.evaluate_every (2)",
        "another key of split",
    ],
    "control: {plateau_patience: 3}": [
        "control.plateau_patience (3)",
        "set control.evaluate_every",
    ],
    "control: {evaluate_every: 1, patience: 3, plateau_patience: 3}": [
        "control.plateau_patience (3)",
        "control.patience (3)",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("text", list(FAULTS), ids=[repr(text[:40]) for text in FAULTS])
def test_a_fault_names_file_key_value_and_expectation(text, tmp_path):
    found = message(tmp_path, text)
    assert "run.yaml" in found
    assert not missing(found, *FAULTS[text])


def test_every_fault_is_listed_at_once(tmp_path):
    found = message(tmp_path, "seed: x\nppo: {gamma: 2}\nrollout: {num_env: 1}\nenv: {window: 0}")
    assert len(found.splitlines()) == 4
    for key in ("'seed'", "'ppo.gamma'", "'rollout.num_env'", "'env.window'"):
        assert key in found


def test_a_fault_says_whether_it_came_from_the_file_or_an_override(tmp_path):
    found = message(tmp_path, "ppo: {gamma: 2}", ("seed=x", "rollot.num_envs=3", "ppo.lr=1"))
    assert [line.partition(": ")[0] for line in sorted(found.splitlines())] == [
        "--set",
        "--set",
        "--set",
        str(tmp_path / "run.yaml"),
    ]
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", ["seed", "=3", "ppo.gamma=["])
    assert [
        line.split(":")[0] for line in str(caught.value).splitlines() if line.startswith("--set")
    ] == ["--set seed", "--set =3", "--set ppo.gamma=["]


def test_a_shipped_configuration_is_named_without_its_folder(monkeypatch, tmp_path):
    (tmp_path / "quickstart.yaml").write_text("seed: x\n")
    monkeypatch.setattr(load, "_shipped_configs", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"^quickstart: 'seed' = 'x': "):
        load_config("quickstart")


def test_an_alias_bomb_answers_fast_and_short(tmp_path):
    """Ten levels of ten aliases: 10^10 elements if anything walks them."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefghi", "bcdefghij", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    began = time.perf_counter()
    found = message(tmp_path, "\n".join([*lines, "seed: *j", "network: {hidden: *j}"]))
    assert time.perf_counter() - began < 15  # on a busy machine
    assert "'seed'" in found
    assert len(found) < 10_000


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("ppo.max_grad_norm", "1e-3", 1e-3),
        ("ppo.max_grad_norm", "1E-3", 1e-3),
        ("ppo.max_grad_norm", "1.0e-3", 1e-3),
        ("ppo.max_grad_norm", ".001", 1e-3),
        ("ppo.max_grad_norm", "+1e-3", 1e-3),
        ("ppo.max_grad_norm", "1", 1.0),
        ("ppo.max_grad_norm", "1_0.5", 10.5),
        ("train.total_timesteps", "1M", 1_000_000),
        ("train.total_timesteps", "1m", 1_000_000),
        ("train.total_timesteps", "1.5M", 1_500_000),
        ("train.total_timesteps", "2_000k", 2_000_000),
        ("train.total_timesteps", "1G", 10**9),
        ("train.total_timesteps", "1B", 10**9),
        ("train.total_timesteps", "1e6", 1_000_000),
        ("train.total_timesteps", "1_000_000", 1_000_000),
        ("network.hidden", "256, 1_024", (256, 1024)),
        ("network.hidden", "64", (64,)),
        ("network.hidden", "[256,256]", (256, 256)),
        ("network.hidden", "1k,2k", (1000, 2000)),
    ],
)
def test_values_as_people_write_them(key, text, value, tmp_path):
    """YAML 1.1 reads 1e-3 as a string; here it is a number, in a file and in an override."""
    section, name = key.split(".")
    in_file = load_text(tmp_path, f"{section}:\n  {name}: {text}")
    for config in (in_file, load_config(None, [f"{key}={text}"])):
        found = getattr(getattr(config, section), name)
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1.5", 1500),
        ("1", 1000),
        ("0.001", 1),
        ("2.345", 2345),
        ("100", 100_000),
        ("0.29", 290),
        ("1.001", 1001),
    ],
)
def test_atrs_are_exact_thousandths(text, thousandths):
    brackets = load_config(
        None, [f"brackets.stop_atr={text}", f"brackets.trail_atr={text}"]
    ).brackets
    assert (brackets.stop_thousandths, brackets.trail_thousandths) == (thousandths, thousandths)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{a: 1}", "[1, {}]", "", "x", "-.5"])
def test_no_message_shows_words_of_the_validator(text):
    """Each fault of each key names that key, or one right below it, and nothing of pydantic."""
    foreign = re.compile(
        r"Input|should|required|instance|dictionary|Tuple|function-|constrained|functools"
    )
    for key in set(all_keys()) - {"imports"}:
        try:
            load_config(None, [f"{key}={text}"])
        except ConfigError as error:
            for line in str(error).splitlines():
                assert not foreign.search(line), line
                named = re.match(r"[\w-]+: (?:unknown key )?'([^']*)'", line)
                assert (
                    named is None
                    or named[1] == key.rpartition(".")[0]
                    or re.fullmatch(re.escape(key) + r"(\.a|\.\d+(\.\w+)?)?", named[1])
                ), line


@pytest.mark.parametrize(
    ("override", "facts"),
    [
        (
            "ppo.num_minibatches=x",
            ("'ppo.num_minibatches' = 'x': ", "a whole number", "'auto'"),
        ),
        (
            "compute.threads=0",
            ("'compute.threads' = 0: ", "equal to 1", "'auto'"),
        ),
        (
            "algorithm.name=ppo",
            ("'algorithm.name': ", "'algorithm' is one value", "expected text"),
        ),
        (
            "account.drawdown.most=1",
            ("'account.drawdown.most': ", "one value", "a number", "'off'"),
        ),
        ("advisor.latency=[]", ("'advisor.latency' = []: ", "at least 1")),
        (
            "account.balance=1",
            ("'account.balance': ", "account.preset"),
        ),
        (
            "account.initial_balance=1",
            ("'account.initial_balance': ", "account.preset"),
        ),
        (
            "account.start=1",
            ("'account.start': ", "account.preset"),
        ),
        ("account.nonsense=1", ("'account.nonsense'; ", ": account.preset, ")),
        (
            "session.entry_start=1",
            ("'session.entry_start'; ", ": session.overnight"),
        ),
        ("phases.a=1", ("unknown key 'phases.a'",)),
        ("seed=", ("'seed' = None: ", "a whole number")),
        ("data.splits=[{date: 2020-08-31}]", ("'data.splits.0.ratio': missing",)),
    ],
)
def test_a_fault_says_what_is_expected(override, facts):
    with pytest.raises(ConfigError) as caught:
        load_config("quickstart", [override])
    assert not missing(str(caught.value), *facts)
    assert str(caught.value).startswith("--set: ")
    assert len(str(caught.value).splitlines()) == 1


def test_off_and_dates_are_text(tmp_path):
    """YAML 1.1 makes `off` False and 2013-10-07 a date object."""
    config = load_text(
        tmp_path,
        "account: {drawdown: off, profit_target: 'off'}\ndata: {start: 2013-10-07}",
        ("account.daily_loss=off", "data.end=2013-10-11"),
    )
    assert (config.account.drawdown, config.account.profit_target, config.account.daily_loss) == (
        "off",
    ) * 3
    assert (config.data.start, config.data.end) == ("2013-10-07", "2013-10-11")


def test_a_byte_order_mark_is_fine(tmp_path):
    assert load_text(tmp_path, b"\xef\xbb\xbfseed: 4").seed == 4


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "---\n", "null"])
def test_an_empty_file_is_refused(text, tmp_path):
    assert "run.yaml: is empty" in message(tmp_path, text)


# ---- overrides


def test_overrides_win_over_the_file_and_the_last_one_wins(tmp_path):
    config = load_text(
        tmp_path,
        "seed: 1\nppo: {gamma: 0.5}\nrollout: {num_steps: 16}",
        ("ppo.gamma=0.6", "seed=2", "ppo.gamma=0.7"),
    )
    assert (config.seed, config.ppo.gamma, config.rollout.num_steps) == (2, 0.7, 16)


def test_an_override_below_a_plain_value_is_refused(tmp_path):
    assert "'seed' is a value" in message(tmp_path, "seed: 1", ("seed.x=2",))


# ---- files


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path):
    assert load_config(str(path)) == load_config(path.stem)


def test_a_missing_file_names_what_is_shipped(tmp_path):
    with refused("'quickstrt'", ": ", "quickstart", " 'quickstart'?"):
        load_config("quickstrt")
    with refused("no such file"):
        load_config(str(tmp_path / "absent.yaml"))
    with refused("a folder"):
        config_path(str(tmp_path))


def test_a_folder_does_not_hide_a_shipped_configuration(tmp_path, monkeypatch):
    (tmp_path / "quickstart").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_config("quickstart") == load_config("quickstart.yaml")


# ---- round trip


@pytest.mark.parametrize("name", [None, *(path.stem for path in CONFIGS)])
def test_dump_and_load_give_the_same_configuration(name, tmp_path):
    overrides = [
        "account.drawdown=off",
        "data.start=2013-10-07",
        "learner.learning_rate=1e-5",
        "learner.learning_rate_end=1e-6",
        "network.hidden=[8]",
        "data.columns={time: 'on', open: '1e3'}",
        "data.expiry='201312'",
        "account.daily_loss=250.5",
    ]
    config = load_config(name, overrides)
    text = dump_config(config)
    again = load_text(tmp_path, text)
    assert again == config
    assert again.digest() == config.digest()
    assert dump_config(again) == text
    assert hash(again.env) == hash(config.env)
    written = yaml.safe_load(text)
    assert set(written) == set(RunConfig.model_fields)
    assert all(
        set(written[name])
        == set(getattr(config, name).__class__.model_fields) - {"guards"}  # left out while off
        for name in written
        if name not in ("seed", "algorithm", "imports")
    )


def test_the_digest_tells_configurations_apart():
    changes = ("seed=1", "ppo.gamma=0.98", "env.task=entry", "account.drawdown=off", "seed=0")
    digests = [load_config(None, [change]).digest() for change in changes]
    assert len({*digests}) == 5
    assert digests[-1] == make_config({}).digest()


def test_the_models_are_frozen_and_hashable():
    config = make_config({})
    with refused("frozen", kind=ValueError):
        config.seed = 3  # type: ignore[misc]
    assert not config.env.optimistic
    assert make_config({"env": {"mark": "close", "fill": "close"}}).env.optimistic


# ---- minibatches


@pytest.mark.parametrize(
    ("overrides", "count"),
    [
        ((), 4),  # 64 x 32 rows: four times 512
        (("rollout.num_envs=16",), 1),
        (("rollout.num_envs=3",), 1),
        (("rollout.num_envs=1024",), 32),  # not 64: there are at most 32
        (("rollout.num_envs=1024", "rollout.num_steps=128"), 32),
        (("rollout.num_envs=40", "rollout.num_steps=65"), 5),  # 2600 rows; a group has 5 x 65
        (("rollout.num_envs=256", "network.kind=gru"), 16),
        (
            ("rollout.num_envs=16", "rollout.num_steps=512", "network.kind=gru"),
            2,
        ),  # each group has 2 environments
        (("ppo.num_minibatches=8",), 8),
    ],
)
def test_minibatches(overrides, count):
    assert load_config(None, overrides).minibatches == count


def test_paths_of_bars_lie_beside_the_configuration_or_in_the_working_directory(tmp_path):
    """Also in the phases of a curriculum. What lies nowhere stays as it was typed."""
    for name in ("bars.csv", "table", "NQ"):
        (tmp_path / name).mkdir() if name == "NQ" else (tmp_path / name).touch()
    data = {"file": "bars.csv", "quotes": "none.csv", "contract": "NQ", "folder": "NQ"}
    own = {"market": "bars.csv", "columns": {"time": "bars.csv"}}
    beside = {"file": str(tmp_path / "bars.csv"), "folder": str(tmp_path / "NQ")}
    values = {"base": {"data": data | own}, "env": {"file": "bars.csv"}}
    found = locate(values, tmp_path)
    assert found == {"base": {"data": data | own | beside}, "env": {"file": "bars.csv"}}
    assert locate({"data": {"file": "./bars.csv"}}, Path())["data"]["file"] == "./bars.csv"
    member = {"data": {"per_market": {"NQ": {"file": "bars.csv"}}}}
    assert locate(member, tmp_path)["data"]["per_market"]["NQ"]["file"] == beside["file"]
