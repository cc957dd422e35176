"""The public names, one a line, and where each is.

Type checkers read this file, and `__init__.py` does too.
"""

from jaxtrade.config import RunConfig as RunConfig
from jaxtrade.config import load_config as load_config
from jaxtrade.data.contracts import Contract as Contract
from jaxtrade.data.contracts import get_contract as get_contract
from jaxtrade.data.market import Market as Market
from jaxtrade.data.market import build_market as build_market
from jaxtrade.data.market import load_market as load_market
from jaxtrade.data.markets import MarketSet as MarketSet
from jaxtrade.data.markets import load_markets as load_markets
from jaxtrade.data.read.bars import Bars as Bars
from jaxtrade.data.read.bars import from_frame as from_frame
from jaxtrade.data.read.bars import load_bars as load_bars
from jaxtrade.data.splits import split_sessions as split_sessions
from jaxtrade.data.synthetic import synthetic_bars as synthetic_bars
from jaxtrade.env.dynamics import TradingEnv as TradingEnv
from jaxtrade.env.params import make_env as make_env
from jaxtrade.env.params import make_params as make_params
from jaxtrade.env.state import EnvParams as EnvParams
from jaxtrade.errors import CheckpointError as CheckpointError
from jaxtrade.errors import ConfigError as ConfigError
from jaxtrade.errors import DataError as DataError
from jaxtrade.errors import JaxtradeError as JaxtradeError
from jaxtrade.evaluation.baselines import agent as agent
from jaxtrade.evaluation.evaluate import standard_agents as standard_agents
from jaxtrade.evaluation.evaluators import evaluate as evaluate
from jaxtrade.evaluation.policy import LoadedPolicy as LoadedPolicy
from jaxtrade.evaluation.policy import load_policy as load_policy
from jaxtrade.evaluation.result import EvaluationResult as EvaluationResult
from jaxtrade.evaluation.result import SetResult as SetResult
from jaxtrade.export.make import export_policy as export_policy
from jaxtrade.interop.gymnasium_env import to_gymnasium as to_gymnasium
from jaxtrade.interop.gymnasium_env import to_gymnasium_vec as to_gymnasium_vec
from jaxtrade.interop.gymnax_adapter import from_gymnasium as from_gymnasium
from jaxtrade.interop.gymnax_adapter import from_gymnax as from_gymnax
from jaxtrade.interop.gymnax_env import to_gymnax as to_gymnax
from jaxtrade.interop.registration import register_envs as register_envs
from jaxtrade.interop.registration import to_sb3 as to_sb3
from jaxtrade.networks.plain import register_network as register_network
from jaxtrade.rl.algorithms import make_algorithm as make_algorithm
from jaxtrade.rl.dqn import make_dqn as make_dqn
from jaxtrade.rl.ppo import make_ppo as make_ppo
from jaxtrade.rl.pqn import make_pqn as make_pqn
from jaxtrade.runs.stored_run import StoredEvaluation as StoredEvaluation
from jaxtrade.runs.stored_run import StoredRun as StoredRun
from jaxtrade.runs.stored_run import open_run as open_run
from jaxtrade.runs.train import RunResult as RunResult
from jaxtrade.runs.trainer import Trainer as Trainer
from jaxtrade.runs.trainer import performance_info as performance_info
from jaxtrade.runs.trainer import run as run
from jaxtrade.training.loop import TrainResult as TrainResult
from jaxtrade.training.loop import plan_run as plan_run
from jaxtrade.training.loop import train as train
from jaxtrade.version import __version__ as __version__
