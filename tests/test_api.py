"""The public API: these names, each loading on first use."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import jaxtrade
from tests.messages import refused
from tests.reading import ROOT

# Adding a name is a decision; removing or renaming one breaks users. Change this list only on
# purpose.
PUBLIC = {
    "Bars",
    "CheckpointError",
    "ConfigError",
    "Contract",
    "DataError",
    "EnvParams",
    "EvaluationResult",
    "JaxtradeError",
    "LoadedPolicy",
    "Market",
    "MarketSet",
    "RunConfig",
    "RunResult",
    "SetResult",
    "StoredEvaluation",
    "StoredRun",
    "TradingEnv",
    "TrainResult",
    "Trainer",
    "agent",
    "build_market",
    "evaluate",
    "export_policy",
    "from_frame",
    "from_gymnasium",
    "from_gymnax",
    "get_contract",
    "load_bars",
    "load_config",
    "load_market",
    "load_markets",
    "load_policy",
    "make_algorithm",
    "make_env",
    "make_params",
    "make_dqn",
    "make_ppo",
    "make_pqn",
    "open_run",
    "open_stream",
    "performance_info",
    "plan_run",
    "register_envs",
    "register_network",
    "run",
    "split_sessions",
    "standard_agents",
    "synthetic_bars",
    "to_gymnasium",
    "to_gymnasium_vec",
    "to_gymnax",
    "to_sb3",
    "train",
}


def test_the_public_names_are_these():
    assert set(jaxtrade.__all__) == PUBLIC
    assert sorted(jaxtrade.__all__) == jaxtrade.__all__, "kept in order"
    assert set(dir(jaxtrade)) == PUBLIC | {"__version__"}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_loads_and_is_documented(name):
    value = getattr(jaxtrade, name)
    assert value.__name__ == name
    assert inspect.getdoc(value)
    home = importlib.import_module(jaxtrade._HOME[name])
    assert getattr(home, name) is value


def test_a_type_checker_reads_the_same_names_as_the_package():
    tree = ast.parse(Path(str(jaxtrade.__file__)).with_suffix(".pyi").read_text())
    typed = {
        alias.asname: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == jaxtrade._HOME


def test_an_unknown_name_is_an_attribute_error():
    with refused("no attribute 'trian'", kind=AttributeError):
        jaxtrade.trian  # noqa: B018
    assert not hasattr(jaxtrade, "pandas")


def test_the_version_is_the_packages():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{jaxtrade.__version__}"' in text


@pytest.mark.parametrize(
    ("home", "name"),
    [
        ("data.market_set", "MarketSet"),
        ("evaluation.evaluate_set", "evaluate"),
        ("runs.python", "run"),
        ("runs.stored", "open_run"),
        ("runs.performance", "performance_info"),
        ("training.plan", "plan_run"),
    ],
)
def test_a_public_name_is_found_where_it_was(home, name):
    module = importlib.import_module(f"jaxtrade.{home}")
    with pytest.warns(DeprecationWarning, match=f"from jaxtrade import {name}"):
        assert getattr(module, name) is getattr(jaxtrade, name)
    with pytest.warns(DeprecationWarning, match="nothing"), pytest.raises(AttributeError):
        module.nothing  # noqa: B018


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("jaxtrade.runs.nothing")
