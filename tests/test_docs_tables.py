"""The tables of docs/semantics.md and docs/features.md say what the presets are, those of
docs/training.md the keys, that of docs/benchmarks.md the benches, those of docs/sb3.md the names of
SB3's parameters.
"""

import re

import pytest

from bench.catalogue import BENCHES
from jaxtrade.config import DQNConfig, RunConfig
from jaxtrade.config.accounts import PRESETS
from jaxtrade.config.market import GuardsConfig
from jaxtrade.config.sb3 import ANY_LEARNER, PARAMETERS, RELATED, translate_sb3_name
from jaxtrade.env.reward_presets import REWARDS
from jaxtrade.evaluation.frames import FILL_COLUMNS
from jaxtrade.interop.jules_config import convert_config
from jaxtrade.parts import REWARD_TERMS
from tests.reading import ROOT

DOCS = ROOT / "docs"


def rows(page, header):
    """First cell (without backticks) -> the other cells, of the table whose first header cell is
    `header`.
    """
    text = (DOCS / page).read_text()
    found = re.search(rf"^\| {header} \|.*\n.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    cells = [line.strip("|").split(" | ") for line in found[1].splitlines()]
    return {first.strip(" `"): [cell.strip() for cell in rest] for first, *rest in cells}


def dollars(value):
    return "off" if value is None else f"{value:,.0f}"


def account_row(preset):
    daily = dollars(preset.daily_loss)
    return [
        dollars(preset.start_balance),
        dollars(preset.profit_target),
        dollars(preset.drawdown),
        preset.trailing if preset.drawdown else "-",
        preset.freeze,
        f"{daily}, {preset.on_daily_loss}" if preset.daily_loss else daily,
        str(preset.max_contracts),
    ]


def test_account_presets():
    assert rows("semantics.md", "preset") == {
        name: account_row(preset) for name, preset in PRESETS.items()
    }


def test_reward_presets():
    weights = {
        name: ", ".join(f"{term} {weight:g}" for term, weight in preset.items())
        for name, preset in REWARDS.items()
    }
    assert {name: cells[0] for name, cells in rows("features.md", "preset").items()} == weights


def plain(value):
    """A number, or text as the pages write it."""
    try:
        return float(value)
    except ValueError:
        return value.lower()


@pytest.mark.parametrize(
    ("page", "header", "sections"),
    [
        ("training.md", "key", "control"),
        ("training.md", "learner key", "network rollout ppo"),
        ("training.md", "monitor key", "monitor"),
        ("training.md", "compute key", "compute"),
        ("learners.md", "pqn key", "pqn"),
        ("learners.md", "dqn key", "dqn"),
        ("learners.md", "actor key", "actor"),
        ("agents.md", "sweep key", "sweep"),
        ("agents.md", "evolve key", "evolve"),
        ("believe.md", "walk key", "walk"),
        ("scale.md", "parallel key", "parallel"),
        ("symbols.md", "allocate key", "allocate"),
        ("agents.md", "shared key", "shared"),
        ("data.md", "data key", "data"),
    ],
)
def test_keys_and_their_defaults(page, header, sections):
    """Those of a whole section; of `data` some."""
    config = RunConfig().model_dump(mode="json")
    written = {name: plain(cells[0]) for name, cells in rows(page, header).items()}
    assert written.pop("algorithm", config["algorithm"]) == config["algorithm"]
    known = {
        f"{section}.{name}": plain(str(value))
        for section in sections.split()
        for name, value in config[section].items()
    }
    assert written.items() <= known.items()
    assert len(written) == (4 if sections == "data" else len(known))


def test_keys_of_guards():
    written = {name: plain(cells[0]) for name, cells in rows("training.md", "guards key").items()}
    assert written == {f"env.guards.{name}": value for name, value in GuardsConfig()}


def test_reward_terms():
    assert list(rows("features.md", "term")) == list(REWARD_TERMS.names)


def test_every_bench_has_its_row():
    assert set(rows("benchmarks.md", "bench")) == set(BENCHES)


def test_columns_of_the_fills():
    assert tuple(rows("symbols.md", "column")) == FILL_COLUMNS


def test_keywords_of_sb3_are_those_that_the_import_takes():
    """Each keyword with a value that is no default: the import sets the keys of its row."""
    values = {
        "learning_rate": 0.02,
        "buffer_size": 70_000,
        "learning_starts": 77,
        "batch_size": 64,
        "train_freq": 2,
        "gradient_steps": 3,
        "target_update_interval": 777,
        "tau": 0.3,
        "gamma": 0.77,
        "exploration_initial_eps": 0.7,
        "exploration_final_eps": 0.07,
        "exploration_fraction": 0.17,
        "max_grad_norm": 7.0,
    }
    found = convert_config({"algorithm": "DQN", "training": {"algo_params": values}}).config().dqn
    table = rows("learners.md", "SB3 keyword")
    assert {word.strip(" `") for first in table for word in first.split(",")} == set(values)
    for first, (keys, _) in table.items():
        name, *more = (word.strip(" `") for word in first.split(","))
        own = 3 * 64 / 2 if more else values[name]  # gradient steps x batch size / frequency
        for key in keys.split(", "):
            assert getattr(found, key.strip("`").removeprefix("dqn.")) == own, key
    plain = (DOCS / "learners.md").read_text().rpartition("For its plain DQN")[2]
    for name, value in (
        ("n_steps", 1),
        ("double", False),
        ("dueling", False),
        ("normalise_rewards", False),
    ):
        assert f"`dqn.{name}={str(value).lower()}`" in plain
        assert getattr(DQNConfig(), name) != value


@pytest.mark.parametrize("learner", ["ppo", "dqn"])
def test_names_of_stable_baselines3(learner):
    """Each row of docs/sb3.md is what an unknown key is answered with; PPO's table has them all."""
    table = rows("sb3.md", f"SB3's {learner.upper()}")
    named = {name: cells[0].strip(" `|") for name, cells in table.items()}
    same = {name: f"{learner}.{name}" for name in ("learning_rate", "tau")}
    assert named == {name: translate_sb3_name(name, learner) or same[name] for name in named}
    if learner == "ppo":
        known = {*PARAMETERS["ppo"], *RELATED["ppo"], *ANY_LEARNER, "learning_rate"}
        assert set(named) == known - {"lr"}
