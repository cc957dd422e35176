"""The configuration of a run: typed sections, YAML files and `--set key=value`.

Imports neither JAX nor pandas.
"""

from jaxtrade.config.allocate import SharedConfig
from jaxtrade.config.learning import (
    AdvisorConfig,
    ControlConfig,
    DQNConfig,
    NetworkConfig,
    PPOConfig,
    RolloutConfig,
    StageConfig,
    TrainConfig,
    TransferConfig,
)
from jaxtrade.config.load import (
    Changes,
    apply_overrides,
    changed_config,
    config_path,
    dump_config,
    find_file,
    load_config,
    make_config,
    name_config,
    origins_of,
    read_values,
    validate,
)
from jaxtrade.config.market import (
    PLACES,
    AccountConfig,
    DataConfig,
    EnvConfig,
    RewardConfig,
    Roll,
    ShareSplit,
    SplitConfig,
)
from jaxtrade.config.run import RunConfig, digest_of
from jaxtrade.config.running import ActorConfig, SamplerConfig
from jaxtrade.config.sweep import WalkConfig

__all__ = [
    "PLACES",
    "AccountConfig",
    "ActorConfig",
    "AdvisorConfig",
    "Changes",
    "ControlConfig",
    "DQNConfig",
    "DataConfig",
    "EnvConfig",
    "NetworkConfig",
    "PPOConfig",
    "RewardConfig",
    "Roll",
    "RolloutConfig",
    "RunConfig",
    "SamplerConfig",
    "ShareSplit",
    "SharedConfig",
    "SplitConfig",
    "StageConfig",
    "TrainConfig",
    "TransferConfig",
    "WalkConfig",
    "apply_overrides",
    "changed_config",
    "config_path",
    "digest_of",
    "dump_config",
    "find_file",
    "load_config",
    "make_config",
    "name_config",
    "origins_of",
    "read_values",
    "validate",
]
