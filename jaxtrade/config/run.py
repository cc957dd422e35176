"""A run's whole configuration: sections, what must hold between them, the default protocol."""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from jaxtrade.config import learners
from jaxtrade.config.allocate import AllocateConfig, SharedConfig, check_allocate, check_shared
from jaxtrade.config.base import Names, Section, name_in
from jaxtrade.config.learning import (
    AdvisorConfig,
    ControlConfig,
    DQNConfig,
    EvaluationConfig,
    NetworkConfig,
    PPOConfig,
    PQNConfig,
    RolloutConfig,
    StageConfig,
    TrainConfig,
    TransferConfig,
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
from jaxtrade.config.running import (
    ActorConfig,
    ComputeConfig,
    MonitorConfig,
    ParallelConfig,
    SamplerConfig,
    check_actor,
    divide_devices,
)
from jaxtrade.config.sweep import (
    EvolveConfig,
    SweepConfig,
    WalkConfig,
    check_evolve,
    check_sweep,
    check_walk,
)
from jaxtrade.errors import ConfigError
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
    imports: Names = ()
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
            divide_devices(self.parallel.devices, self.train.num_seeds, self.rollout.shards)
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
        """How many agents the run trains side by side.

        Of a sweep settings times seeds, of Optuna those of a batch, of a walk-forward those of one
        fold (the number of folds follows from the data).
        """
        if self.walk.on:
            return self.walk.seeds
        return self.sweep.count * self.sweep.seeds if self.lists_agents else self.train.num_seeds

    @property
    def lists_agents(self) -> bool:
        """Whether the section `sweep` says which agents there are.

        Without it `train.num_seeds` does.
        """
        return self.sweep.on and not self.sweep.optuna

    @property
    def minibatches(self) -> int:
        """Minibatches per epoch (`learners.minibatches`)."""
        return learners.minibatches(self)

    def __repr__(self) -> str:
        """List the keys whose values are not the defaults."""
        return short_repr("RunConfig", *_unusual(self, type(self)()))

    __str__ = __repr__

    def digest(self) -> str:
        """Return the sha256 of the resolved configuration (hex)."""
        return digest_of(self.model_dump(mode="json"))


def _unusual(section: BaseModel, default: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield `key=value` of each value that differs from the default."""
    for name, value in section:
        usual = getattr(default, name)
        if isinstance(value, BaseModel):
            yield from _unusual(value, usual, f"{prefix}{name}.")
        elif value != usual:
            yield f"{prefix}{name}={_SHORT.repr(value)}"


def digest_of(values: Mapping[str, Any]) -> str:
    """Return the sha256 (hex) of nested plain values, such as those of a run's `config.yaml`.

    The order of keys does not matter.
    """
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# The default protocol: which sessions are held out, and which policy is kept, where the
# configuration does not say.
#
# With enough sessions a run trains on the oldest ones, chooses its policy on validation sessions
# after them, and tests it on the newest ones, which nothing has seen. With fewer, a run holds out
# its last session and chooses nothing: the parts would be too small to say anything.
#
# Imports neither JAX nor NumPy.

ENOUGH = (
    100  # sessions from which three parts are made; a fifth of them is a test of at least 20 days
)
TEST_SHARE, VALIDATION_SHARE = 5, 10  # one session in so many
# The sessions dropped before each held-out part. No episode and no label reaches past its own part,
# so one is enough to keep the first day of a part from being the day after one that the policy was
# fitted to.
PURGE = 1
VALIDATION_MOST = 40  # sessions: more cost training time, and choose little better
# Evaluations on the validation sessions in a whole run: as many as keep their bars below a share of
# the training steps, since a bar of the evaluation, in both of its passes, takes about as long as a
# step of training (`jaxtrade bench evaluation`), but not outside of these limits. The least number
# can cost a short run more than that share.
FEWEST, MOST, SHARE = 3, 10, 0.03


def split_of(split: SplitConfig, sessions: int) -> SplitConfig:
    """Return the split with every number known.

    If one of its numbers is given, the others are 1 test session and 0 for the rest. If none is,
    they follow from the number of sessions, as this module says.
    """
    given = {name: value for name, value in split if value is not None}
    if given or sessions < ENOUGH:
        known = {"validation_sessions": 0, "test_sessions": 1, "embargo_sessions": 0} | given
    else:
        known = {
            "validation_sessions": min(sessions // VALIDATION_SHARE, VALIDATION_MOST),
            "test_sessions": sessions // TEST_SHARE,
            "embargo_sessions": PURGE,
        }
    return split.replace(**known)


def split_note(split: SplitConfig, sessions: int) -> str | None:
    """Say what a split that names only some of its numbers gives up of the default protocol.

    Returns None if it gives up nothing. The numbers that are not named keep their small values, so
    that a run whose split names one of them stays what it was; a user who wants the rest of the
    protocol has to know that it is off.
    """
    given = [name for name, value in split if value is not None]
    if not given or sessions < ENOUGH:
        return None
    usual = dict(split_of(SplitConfig(), sessions))
    changed = [
        f"{name} is {value} (by default {usual[name]})"
        for name, value in split_of(split, sessions)
        if name not in given and value != usual[name]
    ]
    if not changed:
        return None
    return (
        f"split names {' and '.join(given)} alone, so the default split of {sessions:,} sessions is off: "
        f"{', '.join(changed)}; give {'this number' if len(changed) == 1 else 'these numbers'} too, or leave the "
        "section split out"
    )


def with_split(config: RunConfig, sessions: int) -> RunConfig:
    """Return the configuration with every number of its split known.

    This sets up the validation where the configuration left the choice open.

    sessions: of the market; of several symbols, the trade dates that all of them share.
    """
    return config.replace(split=split_of(config.split, sessions))


def scores_by_default(asked: RunConfig, config: RunConfig) -> bool:
    """Return whether the run scores its policy on validation sessions without being asked to.

    It does so if the default protocol has found them (`asked` names no split, `config` has one),
    unless an advisor would have to be asked about them, the agents meet in one market, or they are
    compared with each other anyway.
    """
    own = asked.split.automatic and bool(config.split.validation_sessions)
    return own and not (asked.advisor.on or asked.shared.on or asked.sweep.on or asked.evolve.on)


def refuse_best(asked: RunConfig, sessions: int | None) -> None:
    """Check that a run which keeps its best policy scores policies.

    asked: the configuration as it was given.
    sessions: of the market, or an upper limit; None: not known, so that there may be enough.

    Raises ConfigError.
    """
    control, found = asked.control, with_split(asked, ENOUGH if sessions is None else sessions)
    if (
        control.keep != "best"
        or control.evaluate_every is not None
        or scores_by_default(asked, found)
    ):
        return
    more = "" if asked.split.validation_sessions else " and split.validation_sessions=1"
    raise ConfigError(
        "control.keep=best needs evaluations on validation sessions, and this run has none by default: "
        f"set control.evaluate_every=N{more}, or control.keep=last"
    )


def count_evaluations(steps: int, bars: int) -> int:
    """Return how often a run scores its policy.

    steps: of its training.
    bars: decision bars of the validation sessions.
    """
    return min(max(int(SHARE * steps / bars), FEWEST), MOST)


def with_control(config: RunConfig, chunks: int, times: int) -> RunConfig:
    """Return the configuration with `control.evaluate_every` and `control.keep` known.

    A value that is given stays.

    chunks: of the whole run.
    times: how often the policy is scored, spread over them; the best is then kept. 0: never.
    """
    control = config.control
    every, keep = control.evaluate_every, control.keep
    if every is None:
        every = -(-chunks // times) if times else 0
        keep = keep or ("best" if every else "last")
    return config.replace(control={"evaluate_every": every, "keep": keep or "last"})
