"""The tables of docs/accounts.md and docs/rewards.md say what the presets are, those of
docs/training.md the keys, that of docs/benchmarks.md the benches.
"""

from __future__ import annotations

from pathlib import Path

from bench.catalogue import BENCHES
from jaxtrade.config import (
    ActorConfig,
    ComputeConfig,
    ControlConfig,
    DataConfig,
    DQNConfig,
    EvolveConfig,
    MonitorConfig,
    PQNConfig,
    RunConfig,
    SharedConfig,
    WalkConfig,
)
from jaxtrade.config.accounts import PRESETS
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.config.running import ParallelConfig
from jaxtrade.config.sweep import SweepConfig
from jaxtrade.env.reward_presets import REWARDS
from jaxtrade.evaluation.joint_result import FILL_COLUMNS
from jaxtrade.interop.jules_config import imported
from jaxtrade.parts import REWARD_TERMS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def rows(page, header):
    """First cell (without backticks) -> the other cells, of the table whose first header cell is
    `header`.
    """
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {header} |"))
    table = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *rest = [cell.strip() for cell in line.strip("|").split(" | ")]
        table[first.strip("`")] = rest
    return table


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
    assert rows("accounts.md", "preset") == {
        name: account_row(preset) for name, preset in PRESETS.items()
    }


def test_reward_presets():
    weights = {
        name: ", ".join(f"{term} {weight:g}" for term, weight in preset.items())
        for name, preset in REWARDS.items()
    }
    assert {name: cells[0] for name, cells in rows("rewards.md", "preset").items()} == weights


def test_control_keys():
    written = {
        name: None if cells[0] == "none" else float(cells[0])
        for name, cells in rows("training.md", "key").items()
    }
    assert written == {
        f"control.{name}": value for name, value in ControlConfig().model_dump().items()
    }


def test_learner_keys():
    config = RunConfig().model_dump(mode="json")
    values = {"algorithm": config["algorithm"]} | {
        f"{section}.{name}": value
        for section in ("network", "rollout", "ppo")
        for name, value in config[section].items()
    }
    written = {name: cells[0] for name, cells in rows("training.md", "learner key").items()}
    assert written == {
        name: "none" if value is None else str(value).lower() for name, value in values.items()
    }


def test_pqn_keys():
    written = {name: cells[0] for name, cells in rows("learners.md", "pqn key").items()}
    assert written == {
        f"pqn.{name}": str(value).lower() for name, value in PQNConfig().model_dump().items()
    }


def test_dqn_keys():
    written = {name: cells[0] for name, cells in rows("learners.md", "dqn key").items()}
    assert written == {
        f"dqn.{name}": str(value).lower() for name, value in DQNConfig().model_dump().items()
    }


def test_sweep_keys():
    written = {name: cells[0] for name, cells in rows("agents.md", "sweep key").items()}
    assert written == {
        f"sweep.{name}": str(value) for name, value in SweepConfig().model_dump(mode="json").items()
    }


def test_actor_keys():
    written = {name: cells[0] for name, cells in rows("learners.md", "actor key").items()}
    assert written == {
        f"actor.{name}": str(value) for name, value in ActorConfig().model_dump().items()
    }


def test_evolve_keys():
    written = {name: cells[0] for name, cells in rows("populations.md", "evolve key").items()}
    assert written == {
        f"evolve.{name}": str(value) for name, value in EvolveConfig().model_dump().items()
    }


def test_walk_keys():
    written = {name: cells[0] for name, cells in rows("walkforward.md", "walk key").items()}
    assert written == {
        f"walk.{name}": str(value).lower() for name, value in WalkConfig().model_dump().items()
    }


def test_monitor_keys():
    written = {name: cells[0] for name, cells in rows("training.md", "monitor key").items()}
    assert written == {
        f"monitor.{name}": str(value).lower()
        for name, value in MonitorConfig().model_dump().items()
    }


def test_compute_keys():
    written = {name: cells[0] for name, cells in rows("training.md", "compute key").items()}
    assert written == {
        f"compute.{name}": str(value).lower()
        for name, value in ComputeConfig().model_dump().items()
    }


def test_parallel_keys():
    written = {name: cells[0] for name, cells in rows("devices.md", "parallel key").items()}
    assert written == {
        f"parallel.{name}": str(value) for name, value in ParallelConfig().model_dump().items()
    }


def test_keys_of_data():
    values = DataConfig().model_dump(mode="json")
    written = {name: cells[0] for name, cells in rows("data.md", "data key").items()}
    assert written == {
        f"data.{name}": str(values[name]).lower()
        for name in ("splits", "allow_jumps", "seconds_tolerance", "quotes_tolerance")
    }


def test_reward_terms():
    assert list(rows("rewards.md", "term")) == list(REWARD_TERMS.names)


def test_every_bench_has_its_row():
    assert set(rows("benchmarks.md", "bench")) == set(BENCHES)


def test_keys_of_allocate():
    written = {name: cells[0] for name, cells in rows("allocate.md", "allocate key").items()}
    assert written == {
        f"allocate.{name}": "none" if value is None else str(value)
        for name, value in AllocateConfig().model_dump(mode="json").items()
    }


def test_keys_of_shared():
    written = {name: cells[0] for name, cells in rows("shared_market.md", "shared key").items()}
    assert written == {
        f"shared.{name}": str(value).lower() for name, value in SharedConfig().model_dump().items()
    }


def test_columns_of_the_fills():
    assert tuple(rows("allocate.md", "column")) == FILL_COLUMNS


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
    found = imported({"algorithm": "DQN", "training": {"algo_params": values}}).config().dqn
    table = rows("learners.md", "SB3 keyword")
    assert {word.strip(" `") for first in table for word in first.split(",")} == set(values)
    for first, (keys, _) in table.items():
        name, *more = (word.strip(" `") for word in first.split(","))
        own = 3 * 64 / 2 if more else values[name]  # gradient steps x batch size / frequency
        for key in keys.split(", "):
            assert getattr(found, key.strip("`").removeprefix("dqn.")) == own, key
    plain = (DOCS / "learners.md").read_text(encoding="utf-8").rpartition("For its plain DQN")[2]
    for name, value in (
        ("n_steps", 1),
        ("double", False),
        ("dueling", False),
        ("normalise_rewards", False),
    ):
        assert f"`dqn.{name}={str(value).lower()}`" in plain
        assert getattr(DQNConfig(), name) != value
