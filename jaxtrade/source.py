"""Another run as the beginning of a new one: its last checkpoint's learning, and what its arrays mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxtrade import checkpoint, rundir
from jaxtrade.advisor.fusion import make_fusion
from jaxtrade.config import RunConfig
from jaxtrade.data.contract_file import contract_of
from jaxtrade.env.observation import make_spec
from jaxtrade.env.tasks.base import action_names
from jaxtrade.errors import CheckpointError, ConfigError
from jaxtrade.evaluation.policy import policy_structure
from jaxtrade.networks.normalize import RunningStats
from jaxtrade.rl import transfer
from jaxtrade.rl.schedules import optimiser
from jaxtrade.rl.state import TrainState
from jaxtrade.rl.transfer import Coverage, Layout
from jaxtrade.types import PyTree


class Source(NamedTuple):
    """What a run learned: arrays as in its `TrainState` (with a leading axis of agents where it has several).

    update, total_updates: where its newest good checkpoint stands in its run.
    """

    path: Path
    config: RunConfig
    layout: Layout
    params: PyTree
    normaliser: RunningStats
    opt_state: Any
    update: int
    total_updates: int


def layout_of(config: RunConfig) -> Layout:
    """What the arrays of a configuration's policy mean."""
    spec = make_spec(config.env)
    return Layout(spec.names, action_names(config.env), spec.scaling, config.ppo)


def load_source(path: Path) -> Source:
    """The newest good checkpoint of a run.

    Raises ConfigError (not a run, nothing saved, new actions of its own not open yet) or CheckpointError (damaged).
    """
    config, manifest = rundir.read_run(path)
    layout = layout_of(config)
    agents = config.train.num_seeds
    policy = policy_structure(config.ppo, len(layout.slots), len(layout.actions),
                              fusion=make_fusion(config.advisor, config.env))
    like = {"params": policy.parameters, "normaliser": policy.normaliser,
            "opt_state": jax.eval_shape(optimiser(1.0).init, policy.parameters)}
    if agents > 1:
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((agents, *x.shape), x.dtype), like)
    like["total_updates"] = jax.ShapeDtypeStruct((agents,) if agents > 1 else (), "int32")
    if not checkpoint.list_checkpoints(path / "checkpoints"):
        raise ConfigError(f"{path}: this run has saved nothing to begin from; let it reach its first checkpoint "
                          f"(jaxtrade train --resume {path})")
    found = checkpoint.restore_part(path / "checkpoints", like)
    state, total = found.state, int(found.state["total_updates"].reshape(-1)[0])
    begun = manifest.get("source") or {}
    if begun.get("new_actions") and found.step < config.transfer.open_until * max(total - 1, 1):
        raise ConfigError(f"{path}: its checkpoint of update {found.step} lies before the end of the opening of its "
                          f"new actions (transfer.open_until={config.transfer.open_until:g} of {total} updates); "
                          "resume it first")
    return Source(path, config, layout, state["params"], state["normaliser"], state["opt_state"], found.step, total)


def adopt(config: RunConfig, source: Source) -> RunConfig:
    """The configuration of a run that begins with `source`: with the adapter that `transfer.mode` asks for.

    Raises ConfigError where the two do not fit (market, scaling, network, number of agents).
    """
    return fit(config, source.config, str(source.path))


def fit(config: RunConfig, mine: RunConfig, where: str) -> RunConfig:
    """`adopt`, of configurations alone. mine: the source's; where: names it in messages."""
    (symbol, made), (theirs, makes) = ((contract_of(each.data).symbol, each.data.source == "synthetic")
                                       for each in (mine, config))
    if symbol != theirs:
        raise ConfigError(f"data.market={theirs}: {where} was trained on {symbol}; go on with the same market, or "
                          "train afresh")
    if made != makes:
        real = {True: "synthetic", False: "real"}
        raise ConfigError(f"data.source={config.data.source}: {where} was trained on {real[made]} bars, and these are "
                          f"{real[makes]}; go on with such bars, or train afresh")
    if mine.train.num_seeds != config.train.num_seeds:
        raise ConfigError(f"train.num_seeds={config.train.num_seeds}: {where} has {mine.train.num_seeds} policies; "
                          "keep that number")
    layout = layout_of(mine)
    width = transfer.adapter_width(layout, config.transfer.mode)
    if config.ppo.adapter not in (0, width):
        raise ConfigError(f"ppo.adapter={config.ppo.adapter}: set by the transfer ({width} here); leave it out")
    if config.ppo.adapter_freeze and not width:
        raise ConfigError(f"ppo.adapter_freeze={config.ppo.adapter_freeze:g} needs transfer.mode=adapter; a widened "
                          "network has nothing to freeze")
    adopted = config.model_copy(update={"ppo": config.ppo.model_copy(update={"adapter": width})})
    transfer.check_layouts(layout, layout_of(adopted))
    if config.ppo.adapter_freeze and set(layout_of(adopted).actions) - set(layout.actions):
        raise ConfigError(f"ppo.adapter_freeze={config.ppo.adapter_freeze:g}: {where} has fewer actions, and new ones "
                          "could not learn while the network is frozen; leave it out, or transfer between tasks of the "
                          "same actions")
    return adopted


def require_carried(config: RunConfig, mine: RunConfig) -> None:
    """Raises ConfigError where slots or actions of the source have no place and `transfer.allow_dropped` is not set."""
    old, new = layout_of(mine), layout_of(config)
    lost = [name for name in (*old.slots, *old.actions) if name not in {*new.slots, *new.actions}]
    if lost and not config.transfer.allow_dropped:
        raise ConfigError(f"{len(lost)} slots and actions before it find no place in it ({', '.join(lost[:4])}); "
                          "choose a task that has them, or set transfer.allow_dropped=true")


def check_alone(config: RunConfig) -> None:
    """Raises ConfigError where a run without a source has settings that need one."""
    if config.ppo.adapter or config.ppo.adapter_freeze:
        key = "adapter" if config.ppo.adapter else "adapter_freeze"
        raise ConfigError(f"ppo.{key}: an adapter stands between another run's network and new slots; give that run "
                          "with --from RUN and transfer.mode=adapter, or leave it out")


def begin(config: RunConfig, source: Source, fresh: TrainState) -> tuple[TrainState, Coverage]:
    """The first state of a run and the report of its transfer. `config`: from `adopt`; `fresh`: the run's own start.

    Raises ConfigError where something of the source would be dropped and `transfer.allow_dropped` is not set.
    """
    theirs = layout_of(config)
    moments = source.opt_state if config.transfer.moments else None
    carried = transfer.transfer(source.params, source.normaliser, moments, source.layout, fresh, theirs)
    transfer.require_complete(carried.coverage, config.transfer.allow_dropped)
    return transfer.begin(fresh, carried, transfer.opening_plan(carried.coverage, theirs, config.transfer)), \
        carried.coverage


def require_same(source: Source, config: RunConfig) -> None:
    """`--continue`: raises ConfigError where slots or actions differ from the source's."""
    mine, theirs = source.layout, layout_of(config)
    parts = (("observation slots", mine.slots, theirs.slots), ("actions", mine.actions, theirs.actions))
    for what, here, there in parts:
        if here != there:
            differ = sorted(set(here) ^ set(there))
            raise ConfigError(f"--continue {source.path}: its {what} are others ({len(here)} there, {len(there)} here; "
                              f"first difference {differ[0] if differ else 'their order'}); change nothing of env that "
                              "decides them, or use --from, which widens")


def describe(source: Source, coverage: Coverage) -> dict[str, Any]:
    """What a run's manifest says of its source."""
    return {"path": str(source.path.resolve()), "update": source.update, "total_updates": source.total_updates,
            "config_sha256": source.config.digest(), "new_actions": list(coverage.new_actions)}


def open_source(path: str) -> Source:
    """`load_source` of a path that a manifest names."""
    try:
        return load_source(Path(path))
    except (ConfigError, CheckpointError) as error:
        raise type(error)(f"the run that this one began with cannot be read: {error}") from None
