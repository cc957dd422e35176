"""How a policy learns.

Learners, network, rollout, transfer, stages, training, advisor, control and evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from jaxtrade.config.base import (
    AUTO,
    AutoCount,
    Count,
    CountFromOne,
    FromOne,
    FromZero,
    NotNegative,
    Part,
    Positive,
    Seconds,
    Section,
    Share,
    Widths,
    accept_list,
    declare_bounds,
    name_in,
    parse_whole,
)
from jaxtrade.config.learners import AUTO_MOST, AUTO_ROWS
from jaxtrade.config.service import ContextConfig, ServiceOptions, apply_shortcut
from jaxtrade.errors import ConfigError
from jaxtrade.parts import NETWORKS


class NetworkConfig(Section, frozen=True):
    """The network of a policy. All learners share these keys."""

    kind: Annotated[str, name_in(NETWORKS)] = "mlp"
    """mlp; gru: the policy remembers its episode; or one of your own"""
    hidden: Widths = (64, 64)
    """widths of the hidden layers, of the policy and of the value network"""
    activation: Literal["tanh", "relu"] = "tanh"
    """of the hidden layers"""
    rnn_width: Count = declare_bounds(64, 1)
    """gru: size of its memory (hidden units)"""
    adapter: FromZero = 0
    """width of a linear layer in front of the network; set by a transfer with
    transfer.mode=adapter, 0 otherwise
    """
    normalise_observations: bool = True
    """shift and scale every slot by its running mean and deviation"""
    normalise_per_symbol: bool = True
    """several symbols: each has its own mean and deviation of every slot; false: common ones, which
    also fit a symbol not trained on
    """


class RolloutConfig(Section, frozen=True):
    """The rollout (static): environments in parallel, and their steps between two updates."""

    num_envs: AutoCount = 64
    """environments in parallel; auto: as many as train fastest here, measured before the run, which
    writes the number into its config.yaml
    """
    num_steps: Count = declare_bounds(32, 1)
    """steps of each environment between two updates"""
    num_shards: FromOne = 8
    """fixed groups of environments; minibatches are shuffled inside each group"""

    @model_validator(mode="after")
    def _equal_groups(self) -> Self:
        if not self.auto and self.shards > 1 and self.num_envs % self.shards:
            raise ValueError(
                f"rollout.num_envs ({self.num_envs}) must be a multiple of rollout.num_shards "
                f"({self.shards})"
            )
        return self

    @property
    def auto(self) -> bool:
        """Whether `num_envs` is still to be measured; it is `AUTO`, 0, until then."""
        return self.num_envs == AUTO

    @property
    def shards(self) -> int:
        """The number of environment groups: `num_shards`, or 1 if environments are fewer."""
        return self.num_shards if self.num_envs >= self.num_shards else 1


class PPOConfig(Section, frozen=True):
    """PPO with action masks.

    Counts are static. Floats become leaves of the train state, so one vmap runs a sweep.
    """

    num_minibatches: CountFromOne | Literal["auto"] = Field(
        default="auto",
        description="per epoch; gru: each holds whole rollouts of some envs; auto: as many as leave "
        f"{AUTO_ROWS} rows or more to each, at most {AUTO_MOST}",
    )
    num_epochs: FromOne = 4
    """passes over a rollout in each update"""
    gradient_rows: FromOne | Literal["auto"] = "auto"
    """mlp: a larger minibatch computes its gradient in equal blocks, if it divides: less memory,
    another order of float sums; auto: 16384 on a CPU, 65536 on a GPU or TPU
    """
    adapter_freeze: NotNegative = 0.0
    """share of the run, below 1, in which only the adapter learns"""
    normalise_advantages: bool = True
    """in each minibatch: mean 0, deviation 1"""
    normalise_rewards: bool = True
    """divide rewards by the running standard deviation of the discounted return"""
    learning_rate: Positive = 1.0e-3
    """of Adam, at the first update; it changes linearly"""
    learning_rate_end: Positive = 1.0e-4
    """reached at the last update"""
    gamma: Share = 0.99
    """discount of rewards per step"""
    gae_lambda: Share = 0.95
    """weight of longer returns in the advantages (GAE)"""
    clip_eps: Positive = 0.2
    """the policy's ratio is clipped to 1 - this and 1 + this"""
    vf_clip_eps: NotNegative = 0.0
    """0: no value clipping"""
    ent_coef: NotNegative = 0.01
    """weight of the entropy bonus in the loss"""
    ent_coef_end: float | None = declare_bounds(None, 0)
    """entropy bonus at the end of training; None: constant"""
    vf_coef: NotNegative = 0.5
    """weight of the value loss"""
    max_grad_norm: Positive = 0.5
    """gradients of a larger norm are scaled down to it"""
    target_kl: NotNegative = 0.0
    """0: off; else epochs stop once KL passes it"""

    @model_validator(mode="after")
    def _thaws(self) -> Self:
        if self.adapter_freeze >= 1:
            raise ValueError(
                f"ppo.adapter_freeze ({self.adapter_freeze:g}) is a share of the run and must be below 1: "
                "the network behind the adapter would never learn"
            )
        return self


class TransferConfig(Section, frozen=True):
    """How a run begins from the policy of a source run."""

    mode: Literal["widen", "adapter"] = "widen"
    """widen: new slots and actions are new rows and columns; adapter: a linear layer maps the slots
    to the source's
    """
    moments: bool = False
    """also carry over the optimiser's moments"""
    open_probability: float = Field(default=0.01, gt=0, le=0.5)
    """p: in the first update, each of n new actions has probability p / (1 + n p)"""
    open_until: Part = 0.1
    """share of the run after which new actions are open"""
    allow_dropped: bool = False
    """train even if some of the source's parameters are dropped"""


class StageConfig(Section, frozen=True):
    """Aids that make training easier early in a run.

    Such as lower commissions or episodes that start in a position.

    Keys that end in `_until` are fractions of the run. Evaluation uses no stage.
    """

    commission_start: Share = 1.0
    """share of the commission charged in the first update; it rises linearly"""
    commission_until: Share = 0.0
    """fraction of the run from which the whole commission is charged"""
    forced_start: Share = 0.0
    """probability that an episode of the first update starts in a position"""
    forced_start_end: Share = 0.0
    """that probability from forced_start_until on; it changes linearly until then"""
    forced_start_until: Part = 1.0
    """fraction of the run at which forced_start_end is reached"""

    @model_validator(mode="after")
    def _whole_schedules(self) -> StageConfig:
        start, until = self.commission_start, self.commission_until
        if start < 1 and until == 0:
            raise ValueError(
                f"stages.commission_start = {start:g} needs the fraction of the run at which the ramp "
                "ends; set stages.commission_until (for example 0.5), or leave both out"
            )
        if start == 1 and until > 0:
            raise ValueError(
                f"stages.commission_until = {until:g} ends a ramp that stages.commission_start = 1 does "
                "not begin; lower commission_start, or leave both out"
            )
        if not self.forces_starts and self.forced_start_until < 1:
            raise ValueError(
                f"stages.forced_start_until = {self.forced_start_until:g}: both probabilities, "
                "stages.forced_start and stages.forced_start_end, are 0; raise one, or leave it out"
            )
        return self

    @property
    def ramps_commission(self) -> bool:
        """Whether some updates charge less than the full commission."""
        return self.commission_start < 1

    @property
    def forces_starts(self) -> bool:
        """Whether some episodes may start in a position."""
        return self.forced_start > 0 or self.forced_start_end > 0


class PanelMember(Section, frozen=True):
    """One advisor of a panel. In a list of members, its kind alone is enough."""

    kind: str = Field()
    """as advisor.kind: rules; mock:KIND[:NUMBER]; recorded:FILE; the URL of a server; table:FILE"""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """options of this member, besides those of advisor.options that its kind takes"""


def _members(value: Any) -> Any:
    """Turn members that are named by their kind alone into members."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        return value
    members = [{"kind": each.strip()} if isinstance(each, str) else each for each in listed]
    return [apply_shortcut(each) if isinstance(each, Mapping) else each for each in members]


class AdvisorConfig(Section, frozen=True):
    """The advisor, and how the policy uses its advice.

    Latency is counted in bars, not in seconds.
    """

    kind: str = "off"
    """off: not compiled; none: compiled, without answers; rules; mock:KIND[:NUMBER]; recorded:FILE;
    the URL of an OpenAI-compatible server, or ollama:NAME, openai:NAME, vllm:URL; table:FILE,
    written by advise precompute; replay:JOURNAL of an earlier run; panel: the advisors of
    advisor.panel
    """
    panel: Annotated[
        tuple[PanelMember, ...], Field(strict=False, max_length=8), BeforeValidator(_members)
    ] = ()
    """advisors that are asked about the same bars, each with its own trust: a list of kinds, or of
    {kind, options}; needs advisor.kind=panel
    """
    fusion: Literal["trust", "slots", "gate", "rules", "none"] = "trust"
    """how the policy uses advice: trust, by its measured hit rate; slots, in the observation; gate,
    a learned share of trust; rules, RL-Trainer's; none, not at all (outcomes are counted)
    """
    transport: Literal["exchange", "callback"] = "exchange"
    """exchange: between compiled chunks; callback: by one host callback per update"""
    horizon: int = declare_bounds(30, 1, 390)
    """bars after which advice is scored"""
    latency: Annotated[
        tuple[Annotated[int, Field(ge=0, le=100_000)], ...],
        Field(strict=False, min_length=1),
        accept_list(parse_whole),
    ] = (1,)
    """bars from a bar's close until its advice is known: one number, or several equally likely
    ones, drawn per bar
    """
    latency_seed: int = Field(default=0, ge=0, lt=2**31)
    """seed of the drawn latencies"""
    max_age: FromZero = 30
    """age in bars up to which advice is used"""
    bins: int = declare_bounds(5, 1, 100)
    """equal ranges of confidence, each with its own hit rate"""
    memory: Count = declare_bounds(2000, 10)
    """outcomes over which a hit rate fades (exponentially)"""
    prior: Positive = 10.0
    """prior outcomes added per range, half of them hits"""
    evidence: Literal["blocks", "answers"] = "blocks"
    """how the evidence for trust is counted: blocks, outcomes of nearby bars as dependent and the
    market's drift as no skill; answers, every outcome as independent, as in earlier versions
    """
    abstain: NotNegative = 2.5
    """standard errors from one half within which a hit rate gives no trust; 0: every hit rate does
    """
    cap: Positive = 2.0
    """largest log-odds that trust can have"""
    weight: Share = 0.3
    """rules: weight of the advisor's confidence"""
    gate_cost: NotNegative = 0.001
    """gate: weight of its mean opening in the loss"""
    veto: NotNegative = 2.0
    """entries are illegal if the advised risk is at least this; risk is at most 1, so 2 means never
    """
    drop_episode: Share = 0.1
    """share of training episodes without advice"""
    drop_bar: Share = 0.1
    """share of training bars without advice"""
    demand: int = declare_bounds(64, 1, 1024)
    """bars asked about per update at most"""
    demand_per: Literal["update", "chunk"] = "update"
    """exchange: what advisor.demand counts for; chunk, as in runs of earlier versions, asks less"""
    rows: int = declare_bounds(256, 1, 1024)
    """answers that become visible per update at most"""
    template: str = "v1"
    """the prompt: v1 (bar), no_volume, anonymous, pipe, window, desk, or a file of your own (.txt,
    .md)
    """
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """options of this kind: model, key_env, seed, ..."""
    evaluation_wait_s: NotNegative = 60.0
    """seconds that an evaluation waits for answers"""
    service: ServiceOptions = ServiceOptions()
    context: ContextConfig = ContextConfig()

    @model_validator(mode="after")
    def _panel_has_members(self) -> Self:
        head = self.kind.partition(":")[0]
        if head == "panel" and len(self.panel) < 2:
            raise ValueError(
                f"advisor.kind=panel has {len(self.panel)} members, expected at least 2: set "
                "advisor.panel=[rules,mock:skilled:0.6]"
            )
        if self.panel and head not in ("panel", "off", "none", "replay"):
            raise ValueError(
                f"advisor.kind={self.kind} is one advisor, and advisor.panel has {len(self.panel)}: set "
                "advisor.kind=panel, or advisor.panel=[]"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        """Resolve the short name of a server.

        Everything after the configuration then sees a URL.
        """
        return apply_shortcut(values) if isinstance(values, Mapping) else values

    @property
    def on(self) -> bool:
        """Whether the compiled program contains advice."""
        return self.kind != "off"

    @property
    def advisors(self) -> int:
        """How many advisors the compiled program holds advice of."""
        return max(1, len(self.panel))


class TrainConfig(Section, frozen=True):
    """How long to train, in environment steps of all environments, and what to write meanwhile."""

    total_timesteps: Count = declare_bounds(1_000_000, 1, 10**15)
    """environment steps to train, over all environments, rounded up to whole chunks"""
    num_seeds: Count = declare_bounds(1, 1, 1024)
    """agents trained side by side as one program, from seed, seed+1, ...; each for total_timesteps
    """
    chunk_updates: FromOne = 20
    """updates per compiled call; part of the run's identity"""
    checkpoint_every: FromOne = 10
    """chunks between checkpoints; the last has one"""
    keep_checkpoints: FromOne = 3
    """newest checkpoints that stay on disk"""
    tensorboard: bool = True
    """write event files for TensorBoard"""
    tracker: Literal["none", "wandb", "trackio", "mlflow"] = "none"
    """also log to this experiment tracker, offline unless tracker_online or a variable of the
    tracker, such as WANDB_MODE, says where to send (needs the extra of its name)
    """
    tracker_online: bool = False
    """the tracker may send what it logs, and the run's whole configuration, over the network"""

    def chunks(self, steps_per_update: int) -> int:
        """Count the chunks of the run: `total_timesteps` rounded up to whole ones.

        steps_per_update: over all environments.
        """
        return -(-self.total_timesteps // (steps_per_update * self.chunk_updates))


class ControlConfig(Section, frozen=True):
    """Decisions between chunks: validation evaluations, early stop, plateaus, rollbacks."""

    evaluate_every: FromZero | None = None
    """chunks between evaluations of the greedy policy on the validation sessions; 0: never; null: a
    few times in the run if the default protocol holds validation sessions out, else never
    """
    keep: Literal["best", "last"] | None = None
    """the policy that is saved and evaluated at the end: the best on the validation sessions, or
    the last; null: the best where evaluate_every is null and there is one, else the last
    """
    patience: FromZero = 0
    """evaluations without a new best before the run stops early; 0: it never does"""
    min_evaluations: FromZero = 0
    """evaluations before the run may stop early"""
    improvement: NotNegative = 0.0
    """a score is a new best if it is higher by more than this, in mean reward per session"""
    plateau_patience: FromZero = 0
    """evaluations without a new best before learning rate and entropy bonus are adjusted; 0: never
    """
    plateau_lr_factor: float = Field(default=0.5, gt=0, lt=1)
    """learning rate (and its end) times this"""
    plateau_lr_min: Positive = 1.0e-5
    """adjustments lower no learning rate below this"""
    plateau_ent_factor: float = declare_bounds(2.0, 1)
    """entropy bonus, or a Q-learner's epsilon (and its end), times this"""
    plateau_ent_max: NotNegative = 0.1
    """adjustments raise no entropy bonus and no epsilon above this"""
    plateau_cooldown: FromZero = 0
    """evaluations after an adjustment that do not count towards the next"""
    wall_clock: Seconds = None
    """ends the run after the first chunk that passes this time, as 90s, 15m or 2h, compilation
    included; it is saved and can be resumed, each resume with the whole time again, or with another
    limit; null: no limit
    """
    max_rollbacks: int = declare_bounds(2, 0, 1000)
    """how often a run may go back to its last checkpoint after a loss or gradient that is not
    finite; 0: it ends at once
    """

    @model_validator(mode="after")
    def _possible(self) -> ControlConfig:
        for name in ("patience", "plateau_patience"):
            if getattr(self, name) and not self.evaluate_every:
                raise ValueError(
                    f"control.{name} ({getattr(self, name)}) counts evaluations, and there are none: "
                    "set control.evaluate_every"
                )
        if self.keep == "best" and self.evaluate_every == 0:
            raise ValueError(
                "control.keep=best needs evaluations on validation sessions, and there are none: set "
                "control.evaluate_every and split.validation_sessions, or control.keep=last"
            )
        if self.patience and self.plateau_patience >= self.patience:
            raise ValueError(
                f"control.plateau_patience ({self.plateau_patience}) must be below control.patience "
                f"({self.patience}), or the run stops before anything is adjusted"
            )
        return self


class EvaluationConfig(Section, frozen=True):
    """Agents that are evaluated besides the greedy policy.

    `sma_*` are look-backs of the moving-average baseline, in bars.
    """

    policy_samples: FromOne = 1
    """sampled-policy passes beside the greedy one"""
    sma_fast: FromOne = 10
    """bars of the faster average"""
    sma_slow: int = declare_bounds(50, 2)
    """bars of the slower average"""

    @model_validator(mode="after")
    def _check_order(self) -> EvaluationConfig:
        if self.sma_fast >= self.sma_slow:
            raise ValueError(f"sma_fast ({self.sma_fast}) must be below sma_slow ({self.sma_slow})")
        return self


# Keys of the Q-learners: those that all share, of DQN and of PQN.


class QLearningConfig(Section, frozen=True):
    """Keys of every Q-learner.

    Floats become leaves of the train state, so one vmap runs a sweep.
    """

    layer_norm: bool = False
    """normalise the outputs of each hidden layer over its units, before the activation"""
    dueling: bool = False
    """Q is a value plus the advantages of the actions minus their mean over all actions"""
    normalise_rewards: bool = True
    """divide rewards by the running standard deviation of the discounted return"""
    learning_rate: Positive = 1.0e-3
    """of Adam, at the first update; it changes linearly"""
    learning_rate_end: Positive = 1.0e-4
    """reached at the last update"""
    gamma: Share = 0.99
    """discount of rewards per step"""
    max_grad_norm: Positive = 10.0
    """gradients of a larger norm are scaled down to it"""
    epsilon: Share = 1.0
    """probability of a random legal action, at the first update; it falls linearly"""
    epsilon_end: Share = 0.05
    """that probability from epsilon_until on; a sampled evaluation uses it too"""
    epsilon_until: Part = 0.5
    """share of the run after which epsilon_end is reached"""


# --- The section `dqn` of a configuration


MOST = 2**31  # rows and steps are counted in int32


class DQNConfig(QLearningConfig, frozen=True):
    """DQN with action masks and a replay on the device (Mnih et al. 2015).

    The loss is Huber's with delta 1.
    """

    buffer_size: Count = Field(default=200_000, ge=1, lt=MOST)
    """transitions of the replay of one agent; rounded down to whole rollouts"""
    batch_size: Count = declare_bounds(256, 1)
    """samples of a gradient step; a multiple of rollout.num_shards"""
    replay_ratio: Positive = 1.0
    """samples trained per environment step; gradient steps of an update = this * rollout.num_envs *
    rollout.num_steps / dqn.batch_size
    """
    learning_starts: Count = Field(default=10_000, ge=0, lt=MOST)
    """environment steps before the first gradient step"""
    n_steps: int = declare_bounds(3, 1, 64)
    """rewards of a sample before Q bootstraps it; fewer where the episode ends"""
    double: bool = True
    """the online network chooses the action that the target network values (double DQN)"""
    dueling: bool = True
    """Q is a value plus the advantages of the actions minus their mean over all actions"""
    target_every: Count = declare_bounds(2_000, 1)
    """with tau=0: the target network becomes the online one whenever the environment steps cross a
    multiple of this
    """
    tau: Share = 0.0
    """above 0: each gradient step moves the target network by this share, and target_every is not
    used
    """
    replay: Literal["uniform", "prioritised"] = "uniform"
    """which transitions are drawn: all alike, or more often those of a large error"""
    priority_alpha: Share = 0.6
    """prioritised: power of the error; 0 draws all alike"""
    priority_beta: Share = 0.4
    """prioritised: power of the importance weights at the first update; it changes linearly"""
    priority_beta_end: Share = 1.0
    """that power at the last update"""

    def gradient_steps(self, rollout: RolloutConfig) -> int:
        """Return the gradient steps of an update.

        Raises ValueError if they are not whole; it names the nearest values that work.
        """
        steps = rollout.num_envs * rollout.num_steps
        exact = self.replay_ratio * steps / self.batch_size
        if round(exact) >= 1 and math.isclose(exact, round(exact), rel_tol=1e-9):
            return round(exact)
        near = [
            f"{count * self.batch_size / steps!r} ({count:,})"
            for count in (math.floor(exact), math.ceil(exact))
            if count >= 1
        ]
        raise ValueError(
            f"dqn.replay_ratio ({self.replay_ratio!r}) * rollout.num_envs * rollout.num_steps ({steps:,}) "
            f"/ dqn.batch_size ({self.batch_size:,}) is {exact:g} gradient steps in an update, and they "
            f"must be whole: set dqn.replay_ratio={' or '.join(near)}, or another batch size"
        )

    def rows(self, rollout: RolloutConfig) -> int:
        """Return the time rows of the replay: as many whole rollouts as `buffer_size` holds.

        Raises ValueError if those are too few for one rollout and a sample of `n_steps`.
        """
        per_rollout = rollout.num_envs * rollout.num_steps
        found = self.buffer_size // per_rollout * rollout.num_steps
        least = -(-(rollout.num_steps + self.n_steps - 1) // rollout.num_steps)
        if found < least * rollout.num_steps:
            raise ValueError(
                f"dqn.buffer_size ({self.buffer_size:,}) holds {found // rollout.num_steps} rollouts of "
                f"{per_rollout:,} transitions (rollout.num_envs * rollout.num_steps), and samples of "
                f"dqn.n_steps ({self.n_steps}) need {least}: set dqn.buffer_size={least * per_rollout} or "
                "more"
            )
        return found

    def check_priorities(self) -> None:
        """Raise ValueError if a key of prioritised draws is set and draws are uniform."""
        changed = self.list_changed("priority_alpha", "priority_beta", "priority_beta_end")
        if changed and self.replay != "prioritised":
            raise ValueError(
                f"dqn.{', dqn.'.join(changed)}: no effect with dqn.replay=uniform, which draws all "
                "transitions alike: set dqn.replay=prioritised, or leave "
                f"{'it' if len(changed) == 1 else 'them'} out"
            )

    def check_length(self, steps: int) -> None:
        """Raise ConfigError if a run of `steps` environment steps ends before it learns anything."""
        if self.learning_starts > steps:
            raise ConfigError(
                f"dqn.learning_starts ({self.learning_starts:,}) is beyond the run's {steps:,} "
                "environment steps (train.total_timesteps, in whole chunks): it would never learn; set "
                f"dqn.learning_starts={steps // 10} (a tenth), or raise train.total_timesteps"
            )

    def check(self, rollout: RolloutConfig) -> None:
        """Raise ValueError unless the counts fit those of the rollout."""
        steps, gradient_steps = rollout.num_envs * rollout.num_steps, self.gradient_steps(rollout)
        self.rows(rollout)
        if self.batch_size % rollout.shards:
            near = max(round(self.batch_size / rollout.shards), 1) * rollout.shards
            raise ValueError(
                f"dqn.batch_size ({self.batch_size}) must be a multiple of rollout.num_shards "
                f"({rollout.shards}), whose groups give equal shares: set dqn.batch_size={near}"
            )
        if self.target_every * gradient_steps + steps >= MOST:
            raise ValueError(
                f"dqn.target_every ({self.target_every:,}) * the gradient steps of an update "
                f"({gradient_steps:,}) must stay below {MOST - steps:,}: lower dqn.target_every"
            )


# --- The section `pqn` of a configuration


class PQNConfig(QLearningConfig, frozen=True):
    """PQN: Q(lambda) without a replay and without a target network (Gallici et al. 2024)."""

    num_minibatches: CountFromOne | Literal["auto"] = "auto"
    """per epoch; gru: each holds whole rollouts of some envs; auto: as many as leave 512 rows or
    more to each, at most 32
    """
    num_epochs: FromOne = 2
    """passes over a rollout in each update"""
    layer_norm: bool = True
    """normalise the outputs of each hidden layer over its units, before the activation; without it
    PQN may diverge
    """
    q_lambda: Share = 0.65
    """weight of longer returns in the targets"""
