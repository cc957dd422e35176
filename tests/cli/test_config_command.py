"""`jaxtrade config`: where each value is from, and that every key is explained and has an example
that works.
"""

import shlex
from pathlib import Path

import pytest
from pydantic import BaseModel

from jaxtrade.cli import config_command, main, shared
from jaxtrade.cli.parser import build_parser
from jaxtrade.config import RunConfig, load_config, make_config
from jaxtrade.config.load import all_keys, format_yaml, sections
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.runs import rundir
from tests.messages import refuses

ROOT = Path(__file__).resolve().parents[2]


def leaves(model, prefix=""):
    """Dotted keys of a model, found without JSON schema."""
    found = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        found += (
            leaves(inner, f"{prefix}{name}.")
            if isinstance(inner, type) and issubclass(inner, BaseModel)
            else [prefix + name]
        )
    return found


def shown(capsys, *argv):
    """Key -> origin, of what `config show ARGV` prints."""
    assert main(["config", "show", *argv]) == 0
    path = []
    found = {}
    for line in capsys.readouterr().out.splitlines()[1:]:
        text, _, origin = line.partition("  # ")
        name, _, value = text.strip().partition(":")
        depth = (len(text) - len(text.lstrip())) // 2
        path = [*path[:depth], name]
        if origin:
            found[".".join(path)] = origin
        else:
            assert value == ""
    return found


def test_all_keys_are_listed_once():
    assert list(all_keys()) == leaves(RunConfig)


def test_what_show_prints_is_the_configuration(capsys):
    argv = [
        "--market",
        "NQ",
        "--test",
        "--envs",
        "16",
        "--set",
        "reward.weights.win=0.5",
        "--set",
        "data.roll=off",
    ]
    assert main(["config", "show", *argv]) == 0
    printed = capsys.readouterr().out
    expected = shared.resolve(build_parser().parse_args(["train", *argv]))
    assert make_config(parse_yaml(printed, "printed")) == expected


def test_every_value_says_where_it_is_from(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "seed: 3\nrollout: {num_envs: 128, num_steps: 32}\nreward: {weights: {win: 0.5}}\n"
        "network: {kind: gru, hidden: [8]}\n",
        encoding="utf-8",
    )
    bars = tmp_path / "bars.csv"
    bars.write_text("time\n", encoding="utf-8")
    origins = shown(
        capsys,
        str(file),
        "--test",
        "--data",
        str(bars),
        "--envs",
        "32",
        "--set",
        "ppo.gamma=0.9",
        "--set",
        "reward.weights.loss=-1",
        "--set",
        "network={hidden: [16]}",
    )
    assert list(origins) == list(all_keys())
    assert {name: origin for name, origin in origins.items() if origin != "default"} == {
        "seed": "file",
        "rollout.num_envs": "--envs",
        "rollout.num_steps": "--test",
        "ppo.num_minibatches": "--test",
        "pqn.num_minibatches": "--test",
        "train.total_timesteps": "--test",
        "train.chunk_updates": "--test",
        "data.synthetic_sessions": "--test",
        "data.source": "--data",
        "data.file": "--data",
        "ppo.gamma": "--set",
        "reward.weights": "--set",
        "network.hidden": "--set",
    }  # the whole section was replaced: network.kind has its default again


def test_changed_keys_alone(capsys):
    origins = shown(capsys, "--changed", "--seed", "1", "--account", "rules_off_50k")
    assert origins["seed"] == "--seed"
    assert origins["account.preset"] == "--account"
    assert "ppo.gamma" not in origins
    assert "default" not in origins.values()


@pytest.mark.parametrize(
    ("argv", "fragment"),
    [
        (["show", "curriculum"], "curriculum: "),
        (["show", "nowhere"], "no such file"),
        (["show", "--set", "ppo.gama=1"], "'ppo.gamma'"),
        (["explain", "ppo.gama"], "'ppo.gamma'"),
        (["explain", "kind"], "sampler.kind or network.kind or "),
        (["explain", "ppo.num_envs"], "rollout.num_envs now"),
        (["explain", "xyzzy"], "'xyzzy'"),
        (["keys", "rolout"], "rollout?"),
    ],
)
def test_wrong_names_are_refused_with_a_hint(argv, fragment, capsys):
    refuses(capsys, ["config", *argv], fragment)


def test_explain_says_all_of_a_key(capsys):
    assert main(["config", "explain", "rollout.num_envs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "rollout.num_envs",
        "  environments in parallel; auto: as many as train fastest here, measured before the run, which writes the "
        "number into its config.yaml",
        "  type        whole number, at least 1 or auto",
        "  default     64",
        "  shipped     256 in fx_allocate",
        "  flag        --envs",
        "  documented  docs/training.md",
        "  example     jaxtrade train --set rollout.num_envs=512",
        "  in a file   rollout:",
        "                num_envs: 512",
    ]


def test_explain_names_shipped_configurations_with_another_value(
    capsys,
):
    assert main(["config", "explain", "stop_atr"]) == 0
    assert (
        "  shipped     6 in advised, 6 in curriculum, 10 in proof, 6 in quickstart"
        in capsys.readouterr().out.splitlines()
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ppo.gamma", "number, at least 0, at most 1"),
        ("control.plateau_lr_factor", "number, above 0, below 1"),
        (
            "brackets.stop_atr",
            "number, at least 0.001, at most 100",
        ),  # the limit that the refusal of 500 names
        ("brackets.trail_atr", "number, at least 0.001, at most 100"),
        ("compute.threads", "whole number, at least 1, at most 4,096 or auto"),
        ("network.hidden", "list, each item: whole number, at least 1"),
        ("data.stamp", "open | close | null"),
        ("account.drawdown", "number or off or null"),
        ("data.roll", "off, volume, or a mapping expiry: first trade date"),
        ("train.tensorboard", "true or false"),
        ("reward.weights", "mapping of text to number"),
    ],
)
def test_types_and_ranges_in_words(name, kind):
    assert all_keys()[name].kind == kind


def test_explain_a_section_lists_its_keys(capsys):
    assert main(["config", "explain", "split"]) == 0
    printed = capsys.readouterr().out
    assert sections()["split"] in printed
    assert [line.split()[0] for line in printed.splitlines()[4:]] == [
        "split.validation_sessions",
        "split.test_sessions",
        "split.embargo_sessions",
    ]


def test_every_key_has_a_description_a_type_and_a_page():
    assert [name for name, key in all_keys().items() if not key.description] == []
    assert [name for name, key in all_keys().items() if "any value" in key.kind] == []
    pages = {
        name: (ROOT / config_command.page_of(name)).read_text(encoding="utf-8")
        for name in all_keys()
    }
    assert [
        name
        for name, text in pages.items()
        if name.partition(".")[0] not in text.lower() and name.rpartition(".")[2] not in text
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(all_keys()))
def test_every_example_works(name):
    """As it is printed, quotes and all: the words that a shell makes of it are accepted, and set
    the key.
    """
    words, started = (
        shlex.split(" ".join(config_command.example_words(all_keys()[name]))),
        "quickstart",
    )
    if words[0] != "--set":
        started, *words = words
    overrides = words[1::2]
    assert words[::2] == ["--set"] * len(overrides)
    assert overrides[0].partition("=")[0] == name
    if name == "imports":
        overrides = ["imports=[json]"]  # the example's module is the user's
    load_config(started, overrides)


def test_a_table_fits_its_width():
    keys = config_command.chosen_keys("advisor.")
    lines = config_command.key_table(keys, 80)
    assert len(lines) == 1 + len(keys)
    assert max(len(line) for line in lines) == 80
    assert [line.split()[0] for line in lines[1:]] == [key.name for key in keys]
    assert sum(line.endswith("...") for line in lines) > 5


@pytest.mark.parametrize(
    "value",
    [
        "off",
        "a b",
        "x, y",
        "1e3",
        "",
        "null",
        "it's",
        0.1,
        3,
        True,
        None,
        [1, 2],
        ["off", "a,b"],
        {"win": 0.5},
        "http://127.0.0.1:8080/v1",
        "a: b",
        "# no",
    ],
)
def test_a_written_value_is_read_back(value):
    assert parse_yaml(f"key: {format_yaml(value)}", "written") == {"key": value}
    assert "\n" not in format_yaml(value)


def test_show_takes_a_runs_folder(tmp_path, capsys):
    """Every key is written there, so those that are not the default are the changed ones."""
    run = tmp_path / "run"
    config = load_config("quickstart", ["seed=3", "reward.weights.win=0.5"])
    facts = {"config_sha256": config.digest(), "data_sha256": "", "nproc": ""}
    rundir.create_run(run, config, facts)
    found = shown(capsys, str(run), "--changed")
    assert set(found.values()) == {"run"}
    assert {"seed", "reward.weights", "brackets.stop_atr"} <= found.keys()
    assert not {"data.source", "imports", "ppo.gamma"} & found.keys()
    assert len(shown(capsys, str(run))) == len(all_keys())
    refuses(capsys, ["config", "show", str(run), "--set", "seed=4"], "drop --set")
    (run / "config.yaml").write_text("seed: 4\n")
    refuses(capsys, ["config", "show", str(run)], "sha256")
