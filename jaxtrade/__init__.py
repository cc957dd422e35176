"""Intraday-trading reinforcement learning in JAX.

The public API is `__all__`; names load on first use (PEP 562), so `import jaxtrade` costs nothing.
It adds one option to `XLA_FLAGS` (`jaxtrade.storage.programs.use_fusion`): import it before the
process first computes with JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxtrade.storage.programs import use_fusion
from jaxtrade.version import __version__ as __version__

if TYPE_CHECKING:
    from jaxtrade.config import RunConfig, load_config
    from jaxtrade.data.contracts import Contract, get_contract
    from jaxtrade.data.market import Market, build_market, load_market
    from jaxtrade.data.market_set import MarketSet, load_markets
    from jaxtrade.data.read.bars import Bars, from_frame, load_bars
    from jaxtrade.data.splits import split_sessions
    from jaxtrade.data.synthetic import synthetic_bars
    from jaxtrade.env.dynamics import TradingEnv
    from jaxtrade.env.params import make_params
    from jaxtrade.env.state import EnvParams
    from jaxtrade.errors import CheckpointError, ConfigError, DataError, JaxtradeError
    from jaxtrade.evaluation.evaluate import standard_agents
    from jaxtrade.evaluation.evaluate_set import evaluate
    from jaxtrade.evaluation.policy import LoadedPolicy, load_policy
    from jaxtrade.evaluation.report import EvaluationResult
    from jaxtrade.evaluation.set_report import SetResult
    from jaxtrade.interop.gymnasium_env import to_gymnasium, to_gymnasium_vec
    from jaxtrade.interop.gymnax_adapter import from_gymnax
    from jaxtrade.interop.gymnax_env import to_gymnax
    from jaxtrade.interop.registration import register_envs, to_sb3
    from jaxtrade.rl.algorithms import make_algorithm
    from jaxtrade.rl.dqn import make_dqn
    from jaxtrade.rl.ppo import make_ppo
    from jaxtrade.rl.pqn import make_pqn
    from jaxtrade.runs.performance import performance_info
    from jaxtrade.runs.python import run
    from jaxtrade.runs.setup import make_env
    from jaxtrade.runs.stored import StoredEvaluation, StoredRun, open_run
    from jaxtrade.runs.train import RunResult
    from jaxtrade.runs.trainer import Trainer
    from jaxtrade.training.loop import TrainResult, train
    from jaxtrade.training.plan import plan_run


use_fusion()

_HOME = {
    "Bars": "data.read.bars",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "Contract": "data.contracts",
    "DataError": "errors",
    "EnvParams": "env.state",
    "EvaluationResult": "evaluation.report",
    "JaxtradeError": "errors",
    "LoadedPolicy": "evaluation.policy",
    "Market": "data.market",
    "MarketSet": "data.market_set",
    "RunConfig": "config",
    "RunResult": "runs.train",
    "SetResult": "evaluation.set_report",
    "StoredEvaluation": "runs.stored",
    "StoredRun": "runs.stored",
    "TradingEnv": "env.dynamics",
    "TrainResult": "training.loop",
    "Trainer": "runs.trainer",
    "build_market": "data.market",
    "evaluate": "evaluation.evaluate_set",
    "from_frame": "data.read.bars",
    "from_gymnax": "interop.gymnax_adapter",
    "get_contract": "data.contracts",
    "load_bars": "data.read.bars",
    "load_config": "config",
    "load_market": "data.market",
    "load_markets": "data.market_set",
    "load_policy": "evaluation.policy",
    "make_algorithm": "rl.algorithms",
    "make_dqn": "rl.dqn",
    "make_env": "runs.setup",
    "make_params": "env.params",
    "make_ppo": "rl.ppo",
    "make_pqn": "rl.pqn",
    "open_run": "runs.stored",
    "performance_info": "runs.performance",
    "plan_run": "training.plan",
    "register_envs": "interop.registration",
    "run": "runs.python",
    "split_sessions": "data.splits",
    "standard_agents": "evaluation.evaluate",
    "synthetic_bars": "data.synthetic",
    "to_gymnasium": "interop.gymnasium_env",
    "to_gymnasium_vec": "interop.gymnasium_env",
    "to_gymnax": "interop.gymnax_env",
    "to_sb3": "interop.registration",
    "train": "training.loop",
}

__all__ = [
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
    "build_market",
    "evaluate",
    "from_frame",
    "from_gymnax",
    "get_contract",
    "load_bars",
    "load_config",
    "load_market",
    "load_markets",
    "load_policy",
    "make_algorithm",
    "make_dqn",
    "make_env",
    "make_params",
    "make_ppo",
    "make_pqn",
    "open_run",
    "performance_info",
    "plan_run",
    "register_envs",
    "run",
    "split_sessions",
    "standard_agents",
    "synthetic_bars",
    "to_gymnasium",
    "to_gymnasium_vec",
    "to_gymnax",
    "to_sb3",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxtrade' has no attribute '{name}'")
    return getattr(importlib.import_module(f"jaxtrade.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
