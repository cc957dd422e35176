"""The configuration of a run: typed sections, YAML files and `--set key=value`. Imports neither JAX
nor pandas.
"""

from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.config.learning import (
    AdvisorConfig,
    ControlConfig,
    EvaluationConfig,
    NetworkConfig,
    PPOConfig,
    RolloutConfig,
    StageConfig,
    TrainConfig,
    TransferConfig,
)
from jaxtrade.config.load import (
    MAX_BYTES,
    Changes,
    changed_config,
    config_path,
    dump_config,
    find_file,
    load_config,
    make_config,
    origins_of,
    overridden,
    read_values,
    shown,
    validated,
)
from jaxtrade.config.market import (
    PLACES,
    AccountConfig,
    BracketConfig,
    CostConfig,
    DataConfig,
    EnvConfig,
    EpisodeConfig,
    RewardConfig,
    Roll,
    SessionConfig,
    ShareSplit,
    SplitConfig,
)
from jaxtrade.config.q_learning import DQNConfig, PQNConfig
from jaxtrade.config.run import RunConfig, digest_of
from jaxtrade.config.running import ActorConfig, ComputeConfig, MonitorConfig, SamplerConfig
from jaxtrade.config.shared import SharedConfig
from jaxtrade.config.sweep import EvolveConfig, WalkConfig

__all__ = [
    "MAX_BYTES",
    "PLACES",
    "AccountConfig",
    "ActorConfig",
    "AdvisorConfig",
    "AllocateConfig",
    "BracketConfig",
    "Changes",
    "ComputeConfig",
    "ControlConfig",
    "CostConfig",
    "DQNConfig",
    "DataConfig",
    "EnvConfig",
    "EpisodeConfig",
    "EvaluationConfig",
    "EvolveConfig",
    "MonitorConfig",
    "NetworkConfig",
    "PPOConfig",
    "PQNConfig",
    "RewardConfig",
    "Roll",
    "RolloutConfig",
    "RunConfig",
    "SamplerConfig",
    "SessionConfig",
    "ShareSplit",
    "SharedConfig",
    "SplitConfig",
    "StageConfig",
    "TrainConfig",
    "TransferConfig",
    "WalkConfig",
    "changed_config",
    "config_path",
    "digest_of",
    "dump_config",
    "find_file",
    "load_config",
    "make_config",
    "origins_of",
    "overridden",
    "read_values",
    "shown",
    "validated",
]
