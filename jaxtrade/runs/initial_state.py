"""How a run begins: from its seed, from its own newest checkpoint, or from a source run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.config import RunConfig
from jaxtrade.config.learners import SECTIONS
from jaxtrade.data.members import groups_of, symbols_of
from jaxtrade.env.params import make_env
from jaxtrade.errors import CheckpointError, ConfigError
from jaxtrade.evaluation.policy import policy_structure
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl import transfer
from jaxtrade.rl.advice import AdviceState, make_fusion, start_advice
from jaxtrade.rl.algorithms import LEARNERS, LearnerKind
from jaxtrade.rl.state import UnlockPlan
from jaxtrade.rl.train_state import TrainState, init_scale, optimiser
from jaxtrade.rl.transfer import Coverage, PolicyLabels, coverage_lines, require_complete
from jaxtrade.runs import files, rundir
from jaxtrade.runs.setup import Setup
from jaxtrade.storage import checkpoint
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.hooks import set_hparams
from jaxtrade.training.population import Stack
from jaxtrade.types import PyTree

# A source run, from which a new run begins: the state in its newest checkpoint, and what its
# arrays mean.

SHAPES = (
    "dueling",
    "layer_norm",
)  # keys of a learner's section that decide the network, besides those of `network`


class Source(NamedTuple):
    """What a source run learned.

    The arrays are those of its `TrainState`, with a leading axis of agents if it has several.

    config_sha256: digest of its `config.yaml`.
    update, total_updates: the update of its newest good checkpoint, and the length of the run.
    returns: the moments by which it scaled its rewards; None without `normalise_rewards` of
        the learner.
    """

    path: Path
    config: RunConfig
    config_sha256: str
    layout: PolicyLabels
    params: PyTree
    normaliser: RunningStats
    opt_state: Any
    update: int
    total_updates: int
    returns: RunningStats | None = None


def label_policy(config: RunConfig) -> PolicyLabels:
    """Label what the arrays of a configuration's policy mean.

    Raises ConfigError for a learner whose arrays it does not know.
    """
    learner: LearnerKind = LEARNERS[config.algorithm]
    if learner.head is None:
        able = ", ".join(name for name in SECTIONS if name in LEARNERS)
        raise ConfigError(
            f"algorithm={config.algorithm}: no other run can go on with what this learner has learned; "
            f"train afresh, or set algorithm to one of {able}"
        )
    env = make_env(config)
    return PolicyLabels(
        env.observation_spec.names,
        env.actions,
        env.observation_spec.scaling,
        config.network,
        learner.head,
        groups_of(config),
    )


def load_source(path: Path) -> Source:
    """Load the newest good checkpoint of a run.

    Raises ConfigError (not a run, no checkpoint, or actions that the run itself added are not open
    yet) or CheckpointError (damaged).
    """
    config, manifest = rundir.read_run(path)
    try:
        layout = label_policy(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    stack = Stack.of(config.agents)
    policy = policy_structure(
        config,
        len(layout.slots),
        len(layout.actions),
        fusion=make_fusion(config.advisor, config.env),
        groups=len(layout.groups),
    )
    like = {
        "params": policy.parameters,
        "normaliser": policy.normaliser,
        "opt_state": jax.eval_shape(optimiser().init, policy.parameters),
    }
    if getattr(config.learner, "normalise_rewards", False):
        like["rewards"] = jax.eval_shape(lambda: init_scale(config.rollout.num_envs))
    like = stack.like(like | {"total_updates": jax.ShapeDtypeStruct((), "int32")})
    if not checkpoint.list_checkpoints(path / "checkpoints"):
        raise ConfigError(
            f"{path}: this run has saved nothing to begin from; let it reach its first checkpoint "
            f"(jaxtrade train --resume {path})"
        )
    found = checkpoint.restore_part(path / "checkpoints", like)
    state, total = found.state, stack.first(found.state["total_updates"])
    begun = manifest.get("source") or {}
    opens = begun.get("new_actions") and not layout.head.held
    if opens and found.step < config.transfer.open_until * max(total - 1, 1):
        raise ConfigError(
            f"{path}: its checkpoint of update {found.step} lies before the end of the opening of its "
            f"new actions (transfer.open_until={config.transfer.open_until:g} of {total} updates); "
            "resume it first"
        )
    return Source(
        path,
        config,
        rundir.config_digest(path),
        layout,
        state["params"],
        state["normaliser"],
        state["opt_state"],
        found.step,
        total,
        state["rewards"].stats if "rewards" in state else None,
    )


def adopt(config: RunConfig, source: Source) -> RunConfig:
    """Configure a run that begins from `source`, with the adapter that `transfer.mode` asks for.

    Raises ConfigError if the two do not fit (market, scaling, network, number of agents).
    """
    return fit(config, source.config, str(source.path))


def fit(config: RunConfig, trained: RunConfig, where: str) -> RunConfig:
    """Do as `adopt`, for configurations alone.

    trained: the source's configuration.
    where: its name in error messages.
    """
    _check_symbols(symbols_of(config), symbols_of(trained), where)
    synthetic, own_synthetic = (each.data.source == "synthetic" for each in (trained, config))
    if synthetic != own_synthetic:
        kind = {True: "synthetic", False: "real"}
        raise ConfigError(
            f"data.source={config.data.source}: {where} was trained on {kind[synthetic]} bars, and "
            f"these are {kind[own_synthetic]}; go on with such bars, or train afresh"
        )
    if trained.agents != config.agents:
        raise ConfigError(
            f"train.num_seeds={config.agents}: {where} has {trained.agents} policies; keep that number"
            if not config.sweep.on
            else f"sweep of {config.agents} agents: {where} has {trained.agents} policies; agent i begins "
            "with policy i, so keep that number"
        )
    if config.algorithm != trained.algorithm:
        raise ConfigError(
            f"algorithm={config.algorithm}: {where} was trained by {trained.algorithm}; set "
            f"algorithm={trained.algorithm}"
        )
    for key in SHAPES:
        here, there = getattr(config.learner, key, None), getattr(trained.learner, key, None)
        if here != there:
            raise ConfigError(
                f"{config.algorithm}.{key}={here}: {where} has {there}; a transfer widens inputs and "
                f"actions only, so set {config.algorithm}.{key}={there}"
            )
    layout, freeze = label_policy(trained), getattr(config.learner, "adapter_freeze", 0.0)
    width = transfer.adapter_width(layout, config.transfer.mode)
    if config.network.adapter not in (0, width):
        raise ConfigError(
            f"network.adapter={config.network.adapter}: set by the transfer ({width} here); leave it out"
        )
    if freeze and not width:
        raise ConfigError(
            f"{config.algorithm}.adapter_freeze={freeze:g} needs transfer.mode=adapter; a widened "
            "network has nothing to freeze"
        )
    adopted = config.model_copy(
        update={"network": config.network.model_copy(update={"adapter": width})}
    )
    transfer.check_labels(layout, label_policy(adopted))
    if freeze and set(label_policy(adopted).actions) - set(layout.actions):
        raise ConfigError(
            f"{config.algorithm}.adapter_freeze={freeze:g}: {where} has fewer actions, and new ones "
            "could not learn while the network is frozen; leave it out, or transfer between tasks of the "
            "same actions"
        )
    return adopted


def _check_symbols(own: tuple[str, ...], trained: tuple[str, ...], where: str) -> None:
    """Raise ConfigError unless a run goes on with every symbol of its source.

    It may add symbols.
    """
    if len(own) == len(trained) == 1 and own != trained:
        raise ConfigError(
            f"data.market={own[0]}: {where} was trained on {trained[0]}; go on with the same market, or "
            "train afresh"
        )
    if missing := [symbol for symbol in trained if symbol not in own]:
        raise ConfigError(
            f"data.markets: {where} was trained on {', '.join(trained)}, and {', '.join(missing)} is "
            f"missing in {', '.join(own)}; go on with the same symbols or more, or train afresh"
        )


def require_carried(config: RunConfig, trained: RunConfig) -> None:
    """Raise ConfigError if slots or actions of the source would be dropped.

    They may be where `transfer.allow_dropped` is set.
    """
    old, new = label_policy(trained), label_policy(config)
    lost = [name for name in (*old.slots, *old.actions) if name not in {*new.slots, *new.actions}]
    if lost and not config.transfer.allow_dropped:
        raise ConfigError(
            f"{len(lost)} slots and actions of the source do not exist in this task "
            f"({', '.join(lost[:4])}); choose a task that has them, or set transfer.allow_dropped=true"
        )


def begin(config: RunConfig, source: Source, fresh: TrainState) -> tuple[TrainState, Coverage]:
    """Make the first state of a run that begins from `source`, and report the transfer.

    config: from `adopt`.
    fresh: the state that the run would have without a source.

    Raises ConfigError if part of the source would be dropped and `transfer.allow_dropped` is
    not set.
    """
    layout = label_policy(config)
    moments = source.opt_state if config.transfer.moments else None
    carried = transfer.transfer(
        source.params, source.normaliser, moments, source.layout, fresh, layout
    )
    require_complete(carried.coverage, config.transfer.allow_dropped)
    begun = transfer.begin(
        fresh, carried, transfer.plan_unlock(carried.coverage, layout, config.transfer)
    )
    if (
        begun.rewards is not None and source.returns is not None
    ):  # the carried values are in units of this scale
        begun = begun.replace(rewards=begun.rewards.replace(stats=source.returns))
    learner: LearnerKind = LEARNERS[config.algorithm]
    return learner.begun(begun), carried.coverage


def require_same(source: Source, config: RunConfig) -> None:
    """Raise ConfigError if slots or actions differ from the source's: the check of `--continue`."""
    before, after = source.layout, label_policy(config)
    parts = (
        ("observation slots", before.slots, after.slots),
        ("actions", before.actions, after.actions),
    )
    for what, here, there in parts:
        if here != there:
            differ = sorted(set(here) ^ set(there))
            raise ConfigError(
                f"source {source.path} (--continue): its {what} differ ({len(here)} there, {len(there)} "
                f"here; first difference {differ[0] if differ else 'their order'}); change nothing of "
                "env that decides them, or begin from its policy (--from), which widens"
            )


def describe(source: Source, coverage: Coverage, folder: Path) -> dict[str, Any]:
    """Make the entry about the source in the manifest of the run in `folder`."""
    places = files.path_forms(source.path, folder)
    return {
        "path": places.pop("absolute"),
        **places,
        "update": source.update,
        "total_updates": source.total_updates,
        "config_sha256": source.config_sha256,
        "new_actions": list(coverage.new_actions),
    }


METRICS = "metrics.jsonl"  # in the run folder


@dataclass(frozen=True)
class InitialState:
    """How a run begins: from its seed (`InitialState()`), from a source run, or from a checkpoint.

    state: to train from; None if it is to be drawn from the seed.
    coverage: the report of a transfer, or None.
    resume_update: rows of metrics up to this update, written by an earlier process, are kept (0: it
        saved no checkpoint); None if there are none.
    restored: the run's own newest good checkpoint, from which it goes on; None if it has none.
    """

    state: Any = None
    coverage: Coverage | None = None
    resume_update: int | None = None
    restored: checkpoint.RestoredState | None = None

    @property
    def update(self) -> int:
        """The number of updates done so far."""
        return 0 if self.restored is None else self.restored.step

    def memory(self, hook: str) -> dict[str, Any] | None:
        """Return what a hook saved in the checkpoint, or None."""
        return None if self.restored is None else self.restored.metadata["hooks"][hook]

    def arguments(self, setup: Setup, advice: AdviceState | None) -> dict[str, PyTree]:
        """Make the argument of `training.loop.train`.

        It is one key per agent, and in a sweep its tunable floats (the learner's `init` adds the
        advice), or a state. A saved state has its own advice and floats; a transferred one gets
        them here.
        """
        if self.state is None:
            return {"key": setup.stack.keys(setup.config.seed), "hparams": setup.agents.hparams}
        if self.restored is not None:
            return {"state": self.state}
        state = set_hparams(self.state, setup.agents.hparams)
        return {"state": state if advice is None else state.replace(advice=advice)}

    def lines(self) -> Iterator[str]:
        """Yield what the run prints about its beginning."""
        if self.restored is not None:
            yield from (f"passed over: {problem}" for problem in self.restored.problems)
            yield f"resumed after update {self.update}"
        elif self.resume_update is not None:
            yield "no checkpoint had been written: starting again from the beginning"
        if self.coverage is not None:
            yield from coverage_lines(self.coverage)


def begin_from(
    setup: Setup, source: Source, programs: Programs | None = None, resume_update: int | None = None
) -> InitialState:
    """Begin a run from `source`.

    setup: made from a configuration that `adopt` returned.
    programs: where `init` is compiled. Default: here.

    Raises ConfigError.
    """
    init = jax.jit(setup.stack.wrap(setup.algorithm).init)
    args = (setup.stack.keys(setup.config.seed), setup.agents.params)
    fresh = init(*args) if programs is None else programs.begin("init", init, args).wait()(*args)
    return InitialState(*begin(setup.config, source, fresh), resume_update)


def resume_beginning(
    setup: Setup, path: Path, manifest: dict[str, Any], programs: Programs | None = None
) -> InitialState:
    """Continue the run at `path` from its newest good checkpoint.

    If it saved none, it continues from its beginning.

    programs: as in `begin_from`.

    Raises CheckpointError (every checkpoint is damaged) or ConfigError (its source run
    has changed).
    """
    if checkpoint.list_checkpoints(path / "checkpoints"):
        found = checkpoint.restore_latest(path / "checkpoints", _state_like(setup, manifest))
        return InitialState(found.state, None, found.step, found)
    again = 0 if (path / METRICS).exists() else None
    if manifest.get("source"):
        return begin_from(setup, source_again(path, manifest["source"]), programs, again)
    return InitialState(resume_update=again)


def source_again(path: Path, named: dict[str, Any]) -> Source:
    """Load the source of a run that stopped before its first checkpoint.

    It is beside the run or where it was then.

    Raises ConfigError if the source has changed.
    """
    beside = (
        path / named["relative"] if "relative" in named else None
    )  # runs of earlier versions lack it
    try:
        source = load_source(beside if beside and beside.is_dir() else Path(named["path"]))
    except (ConfigError, CheckpointError) as error:
        raise type(error)(f"the run that this one began with cannot be read: {error}") from None
    if (source.update, source.config_sha256) != (named["update"], named["config_sha256"]):
        raise ConfigError(
            f"{path}: began with update {named['update']} of {named['path']}, whose newest checkpoint is "
            f"now of update {source.update}; nothing of this run was saved, so train a new one"
        )
    return source


def _state_like(setup: Setup, manifest: dict[str, Any]) -> PyTree:
    """Describe the structure of the run's state: shapes and dtypes only, nothing is computed."""
    stack = setup.stack
    state = jax.eval_shape(
        stack.wrap(setup.algorithm).init, stack.keys(setup.config.seed), setup.agents.params
    )
    if (view := setup.params.advice) is not None:
        size = setup.market.num_bars
        state = state.replace(
            advice=jax.eval_shape(
                lambda: start_advice(
                    view, jnp.zeros(size, jnp.int8), jnp.zeros(size, bool), setup.config.advisor
                )
            )
        )
    opens = (manifest.get("source") or {}).get("new_actions") and not label_policy(
        setup.config
    ).head.held
    if not opens:
        return state
    plan = jax.eval_shape(
        lambda: UnlockPlan(jnp.zeros(setup.env.num_actions, bool), jnp.float32(0), jnp.float32(0))
    )
    return state.replace(opening=stack.like(plan))
