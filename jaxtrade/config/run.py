"""The whole configuration of a run: its sections, and what must hold between them."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from jaxtrade.config import learners
from jaxtrade.config.allocate import AllocateConfig, check_allocate
from jaxtrade.config.base import Names, Section
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
    name_in,
)
from jaxtrade.config.market import (
    AccountConfig,
    BracketConfig,
    CostConfig,
    DataConfig,
    EnvConfig,
    EpisodeConfig,
    RewardConfig,
    SessionConfig,
    SplitConfig,
)
from jaxtrade.config.q_learning import DQNConfig, PQNConfig
from jaxtrade.config.running import (
    ActorConfig,
    ComputeConfig,
    MonitorConfig,
    ParallelConfig,
    SamplerConfig,
    check_actor,
    divided,
)
from jaxtrade.config.shared import SharedConfig, check_shared
from jaxtrade.config.sweep import EvolveConfig, SweepConfig, check_evolve, check_sweep
from jaxtrade.config.walk import WalkConfig, check_walk
from jaxtrade.parts import LEARNERS
from jaxtrade.text import short_repr

_SHORT = reprlib.Repr()  # shortens values in a configuration's own text
_SHORT.maxstring = _SHORT.maxother = 80


class RunConfig(Section, frozen=True):
    """The whole configuration of a run."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    """seed of everything random: first parameters, episode starts, drawn actions"""
    data: DataConfig = DataConfig()
    sampler: SamplerConfig = SamplerConfig()
    session: SessionConfig = SessionConfig()
    split: SplitConfig = SplitConfig()
    env: EnvConfig = EnvConfig()
    account: AccountConfig = AccountConfig()
    costs: CostConfig = CostConfig()
    brackets: BracketConfig = BracketConfig()
    allocate: AllocateConfig = AllocateConfig()
    episode: EpisodeConfig = EpisodeConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: Annotated[str, name_in(LEARNERS)] = "ppo"
    """the learner"""
    network: NetworkConfig = NetworkConfig()
    rollout: RolloutConfig = RolloutConfig()
    actor: ActorConfig = ActorConfig()
    ppo: PPOConfig = PPOConfig()
    dqn: DQNConfig = DQNConfig()
    pqn: PQNConfig = PQNConfig()
    compute: ComputeConfig = ComputeConfig()
    parallel: ParallelConfig = ParallelConfig()
    stages: StageConfig = StageConfig()
    train: TrainConfig = TrainConfig()
    sweep: SweepConfig = SweepConfig()
    shared: SharedConfig = SharedConfig()
    monitor: MonitorConfig = MonitorConfig()
    advisor: AdvisorConfig = AdvisorConfig()
    transfer: TransferConfig = TransferConfig()
    control: ControlConfig = ControlConfig()
    evolve: EvolveConfig = EvolveConfig()
    walk: WalkConfig = WalkConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    imports: Names = Field(default=(), examples=["[my_module]"])
    """modules that register parts of your own (--import): tasks, reward terms, features, networks,
    learners, advisors, report sections
    """

    @model_validator(mode="after")
    def _fits_together(self) -> RunConfig:
        why = self.split.without_validation
        if self.control.evaluate_every and why:
            raise ValueError(
                f"control.evaluate_every ({self.control.evaluate_every}) evaluates on the validation "
                f"sessions, and {why}: hold some out, e.g. split.validation_sessions=1"
            )
        check_allocate(self)
        check_shared(self)
        advisor = self.advisor
        if advisor.on and advisor.fusion == "slots" and not self.env.advice:
            raise ValueError(
                "advisor.fusion=slots shows advice in the observation: set env.task=advised and "
                "env.advice=true, or choose advisor.fusion=trust"
            )
        if advisor.on and advisor.transport == "callback" and self.agents > 1:
            raise ValueError(
                f"advisor.transport=callback serves one agent, and this run has {self.agents} "
                "(train.num_seeds, sweep): set advisor.transport=exchange"
            )
        check_sweep(self.sweep, self.train.num_seeds)
        if advisor.on and len(self.data.markets) > 1:
            raise ValueError(
                f"advisor.kind={advisor.kind[:60]} advises on one symbol, and data.markets names "
                f"{len(self.data.markets)}: set advisor.kind=off, or train on one symbol (data.market)"
            )
        if isinstance(self.parallel.devices, int) and not self.rollout.auto and not self.sweep.on:
            divided(self.parallel.devices, self.train.num_seeds, self.rollout.shards)
        learners.check(self)
        check_actor(self)
        check_evolve(self)
        check_walk(self)
        return self

    @property
    def learner(self) -> Section | None:
        """The section of the chosen learner; None for a learner of the user's own."""
        return getattr(self, self.algorithm) if self.algorithm in learners.SECTIONS else None

    @property
    def agents(self) -> int:
        """How many agents the run trains side by side: of a sweep settings times seeds, of Optuna
        those of a batch, of a walk-forward those of one fold (the number of folds follows from the
        data)."""
        if self.walk.on:
            return self.walk.seeds
        return self.sweep.count * self.sweep.seeds if self.lists_agents else self.train.num_seeds

    @property
    def lists_agents(self) -> bool:
        """Whether the section `sweep` says which agents there are. Without it `train.num_seeds`
        does.
        """
        return self.sweep.on and not self.sweep.optuna

    @property
    def minibatches(self) -> int:
        """Minibatches per epoch (`learners.minibatches`)."""
        return learners.minibatches(self)

    def __repr__(self) -> str:
        """The keys whose values are not the defaults."""
        return short_repr("RunConfig", *_unusual(self, type(self)()))

    __str__ = __repr__

    def digest(self) -> str:
        """sha256 of the resolved configuration (hex)."""
        return digest_of(self.model_dump(mode="json"))


def _unusual(section: BaseModel, default: BaseModel, prefix: str = "") -> Iterator[str]:
    """`key=value` of each value that differs from the default."""
    for name, value in section:
        usual = getattr(default, name)
        if isinstance(value, BaseModel):
            yield from _unusual(value, usual, f"{prefix}{name}.")
        elif value != usual:
            yield f"{prefix}{name}={_SHORT.repr(value)}"


def digest_of(values: Mapping[str, Any]) -> str:
    """sha256 (hex) of nested plain values, such as those of a run's `config.yaml`. The order of
    keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
