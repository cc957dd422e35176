"""Lossless transfer: a policy goes on in another task, its arrays widened by name.

The names are those of slots and actions.

Every axis of every parameter has labels: input axes the slots, the axis of the policy head the
actions, other axes their units. Numbers are copied where source and target share labels; all other
entries are zero. New inputs therefore have weight zero, and new actions have logit zero. With new
actions closed (`rl.state`), the widened policy equals the source. The normaliser's counts, means
and variances move by symbol and slot, the optimiser's moments as the parameters. Nothing is lost
silently: the report accounts for every number of the source.

In a Q-network new actions start with the weights of HOLD instead (`algorithms.Head.held`): of equal
values the lowest id is taken, so the greedy policy equals the source's at once, and nothing has to
open.

With an adapter (RL-Trainer's method, for comparison), the network keeps the source's width. A
linear layer in front of it maps the new slots to the source's slots: identity on shared slots, zero
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrade.config import NetworkConfig, TransferConfig
from jaxtrade.errors import ConfigError
from jaxtrade.networks.normalize import MIN_VARIANCE, RunningStats
from jaxtrade.rl.advice import GATE, GATE_SLOTS
from jaxtrade.rl.algorithms import OutputLayer
from jaxtrade.rl.state import UnlockPlan
from jaxtrade.rl.train_state import TrainState
from jaxtrade.types import Array, PyTree

# The report of a transfer: what became of every number of the source run's arrays.


class ArrayTransfer(NamedTuple):
    """One array of the source: what became of it, and how many of its numbers are in the target.

    Also why not all are.

    outcome: copied, widened (it has more rows or columns now), dropped (some or all of it
        found no place).
    """

    name: str
    outcome: str
    carried: int
    size: int
    why: str = ""


class Coverage(NamedTuple):
    """What a transfer did.

    parts: every array of the source.
    new_slots, new_actions: what the source did not have.
    """

    parts: tuple[ArrayTransfer, ...]
    new_slots: tuple[str, ...]
    new_actions: tuple[str, ...]

    @property
    def share(self) -> float:
        """Numbers of the source that are in the target over all of them, 0 to 1."""
        return sum(part.carried for part in self.parts) / max(
            sum(part.size for part in self.parts), 1
        )

    @property
    def complete(self) -> bool:
        """Nothing was dropped."""
        return all(part.carried == part.size for part in self.parts)


def coverage_lines(coverage: Coverage) -> list[str]:
    """Format the report: one line per array of the source, then the share and what is new."""
    width = max(len(part.name) for part in coverage.parts)
    lines = [
        f"{part.name:<{width}}  {part.outcome:<8} {part.carried:>8,} of {part.size:>8,}"
        + (f"  {part.why}" if part.why else "")
        for part in coverage.parts
    ]

    def name_columns(what: str, names: tuple[str, ...]) -> str:
        return f"new {what}: {len(names)}" + (f" ({_list_names(names, 8)})" if names else "")

    return [
        *lines,
        f"transfer coverage {percent(coverage)}; {name_columns('slots', coverage.new_slots)}; "
        f"{name_columns('actions', coverage.new_actions)}",
    ]


def _list_names(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def percent(coverage: Coverage) -> str:
    """Format the share, with "100 %" only where nothing was dropped."""
    return "100 %" if coverage.complete else f"{min(100 * coverage.share, 99.99):.2f} %"


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """Convert the report for `transfer.json`."""
    return {
        "coverage": coverage.share,
        "complete": coverage.complete,
        "parts": [part._asdict() for part in coverage.parts],
        "new_slots": list(coverage.new_slots),
        "new_actions": list(coverage.new_actions),
    }


def require_complete(coverage: Coverage, allowed: bool) -> None:
    """Raise ConfigError naming what was dropped, unless that is allowed."""
    if coverage.complete or allowed:
        return
    lost = [part for part in coverage.parts if part.carried < part.size]
    first = lost[0]
    raise ConfigError(
        f"transfer coverage {percent(coverage)}: {len(lost)} arrays of the source do not fit the "
        f"target, first {first.name} ({first.carried} of {first.size} numbers; {first.why}); keep "
        "the task, network and advisor.fusion that they belong to, or set transfer.allow_dropped=true"
    )


ADAPTER = "adapter"
# Keys of `network` that must agree, because nothing that is learned under one value means the same
# under another. `normalise_per_symbol` shows in the groups of the statistics, whose names must
# agree.
SAME = tuple(
    name for name in NetworkConfig.model_fields if name not in (ADAPTER, "normalise_per_symbol")
)


class PolicyLabels(NamedTuple):
    """Labels of a policy's arrays.

    Names of its slots and actions in order, their scaling, its network, and the layer that has one
    output for each action.

    groups: names of the groups of the observation statistics: the symbols of a
        set (`data.members.groups_of`).
    """

    slots: tuple[str, ...]
    actions: tuple[str, ...]
    scaling: str
    config: NetworkConfig
    head: OutputLayer = OutputLayer("policy_head")
    groups: tuple[str, ...] = ("",)

    @property
    def read(self) -> tuple[str, ...]:
        """Labels of what the network reads: the slots, or the adapter's outputs."""
        if not self.config.adapter:
            return self.slots
        return tuple(f"adapted {i}" for i in range(self.config.adapter))


class TransferResult(NamedTuple):
    """What a source gives a new run.

    Parameters, normaliser, moments (None: the run's own) and the report.
    """

    params: PyTree
    normaliser: RunningStats
    opt_state: Any
    coverage: Coverage


# --- names of axes ---------------------------------------------------------------------------------------------------


def _units(count: int) -> tuple[str, ...]:
    return tuple(f"unit {i}" for i in range(count))


def axis_labels(
    path: str, shape: Sequence[int], layout: PolicyLabels
) -> tuple[tuple[str, ...], ...]:
    """Return labels of each axis of the parameter at `path` (as `policy_torso/Dense_0/kernel`).

    Args:
        shape: its own axes; those before them (agents) have no labels.
    """
    names = path.split("/")
    memory = (
        tuple(f"memory {i}" for i in range(layout.config.rnn_width))
        if layout.config.kind == "gru"
        else ()
    )
    last, kernel = _units(shape[-1]), names[-1] == "kernel"
    if names[0] == ADAPTER:
        return (layout.slots, layout.read) if kernel else (layout.read,)
    if names[0] == layout.head.name:
        last = layout.actions
    if not kernel:
        return (last,)
    if names[:2] == ["gru", "input"]:
        return layout.read, last
    if names[:2] == [GATE, "Dense_0"]:
        return (*layout.slots, *GATE_SLOTS), last
    if names[0].endswith("_torso") and names[1] == "Dense_0":
        return (*layout.read, *memory), last
    return _units(shape[-2]), last


def _flat(tree: PyTree) -> dict[str, Any]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def _unflat(flat: Mapping[str, Any], like: PyTree) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(like), [flat[name] for name in _flat(like)])


# --- arrays ----------------------------------------------------------------------------------------------------------


def _places(source: Sequence[str], target: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Find the shared labels in the source and in the target, in the target's order."""
    at = {name: i for i, name in enumerate(source)}
    shared = [(at[name], i) for i, name in enumerate(target) if name in at]
    return np.array([i for i, _ in shared], int), np.array([i for _, i in shared], int)


def widen(
    source: Array,
    fill: Array | np.ndarray,
    source_axes: Sequence[Sequence[str]],
    target_axes: Sequence[Sequence[str]],
) -> Array:
    """Fill `fill` with the source's numbers where labels are shared.

    Axes before the labelled ones (agents) stay. Concrete arrays only.
    """
    places = [
        _places(before, after) for before, after in zip(source_axes, target_axes, strict=True)
    ]
    widened = np.array(
        fill
    )  # on the host: every pair of shapes would otherwise be a program of its own
    read, written = (np.ix_(*each) for each in zip(*places, strict=True))
    widened[(..., *written)] = np.asarray(source)[(..., *read)]
    return jnp.asarray(widened)


def _account(
    path: str, source_axes: Sequence[Sequence[str]], target_axes: Sequence[Sequence[str]]
) -> ArrayTransfer:
    """Record what becomes of one array of one agent."""
    axes = [(before, set(after)) for before, after in zip(source_axes, target_axes, strict=True)]
    size = math.prod(len(before) for before, _ in axes)
    carried = math.prod(sum(name in after for name in before) for before, after in axes)
    if carried < size:
        lost = [name for before, after in axes for name in before if name not in after]
        return ArrayTransfer(
            path, "dropped", carried, size, f"the target has no {_list_names(lost, 4)}"
        )
    grown = [f"{len(before)} -> {len(after)}" for before, after in axes if len(after) > len(before)]
    return ArrayTransfer(path, "widened" if grown else "copied", carried, size, ", ".join(grown))


def _carry(
    params: PyTree,
    like: PyTree,
    source: PolicyLabels,
    target: PolicyLabels,
    fill: Mapping[str, Array],
) -> tuple[PyTree, list[ArrayTransfer]]:
    """Carry a parameter tree of the source over to the structure of `like`.

    Behind a new adapter, the network keeps the source's input labels.

    Args:
        fill: target arrays that the source lacks.
    """
    found, wanted = _flat(params), _flat(like)
    behind = (
        target
        if target.config.adapter == source.config.adapter
        else target._replace(
            slots=source.slots,
            config=target.config.model_copy(update={"adapter": source.config.adapter}),
        )
    )

    carried, parts = {}, []
    for path, leaf in found.items():
        if path not in wanted:
            why = "the target has no such parameter"
            parts.append(ArrayTransfer(path, "dropped", 0, leaf.size, why))
            continue
        # A gate reads the observation itself, not what an adapter makes of it.
        reads = target if path.startswith(f"{GATE}/") else behind
        axes = axis_labels(path, leaf.shape, source), axis_labels(path, wanted[path].shape, reads)
        parts.append(_account(path, *axes))
        carried[path] = widen(leaf, np.zeros(wanted[path].shape, wanted[path].dtype), *axes)
    return _unflat(
        {path: carried.get(path, fill.get(path, leaf)) for path, leaf in wanted.items()}, like
    ), parts


def identity_adapter(like: PyTree, source: PolicyLabels, target: PolicyLabels) -> dict[str, Array]:
    """Return parameters of an adapter from the target's slots to the source's.

    They are 1 where the names agree, 0 elsewhere.
    """
    kernel = (np.array(target.slots)[:, None] == np.array(source.slots)[None, :]).astype(np.float32)
    leaves = _flat(like)
    return {
        f"{ADAPTER}/kernel": jnp.broadcast_to(
            jnp.asarray(kernel), leaves[f"{ADAPTER}/kernel"].shape
        ),
        f"{ADAPTER}/bias": jnp.zeros_like(leaves[f"{ADAPTER}/bias"]),
    }


# --- the transfer ----------------------------------------------------------------------------------------------------


def copy_hold_weights(
    carried: PyTree, params: PyTree, source: PolicyLabels, target: PolicyLabels
) -> PyTree:
    """Give the new actions of a carried Q-network the weights of the first action (HOLD).

    With a dueling network, the value layer takes up the change of the mean over actions. All layers
    behind the torso are linear, so the Q values of the source's actions stay the same,
    up to rounding.
    """
    before, after, head = _flat(params), _flat(carried), target.head
    new = np.array([name not in set(source.actions) for name in target.actions])
    hold = target.actions.index(source.actions[0])
    for part in ("kernel", "bias"):
        own = np.array(after[f"{head.name}/{part}"])
        own[..., new] = own[..., hold : hold + 1]
        after[f"{head.name}/{part}"] = jnp.asarray(own)
        if (value := f"{head.value}/{part}") in after:
            shift = own.mean(-1, keepdims=True) - np.asarray(before[f"{head.name}/{part}"]).mean(
                -1, keepdims=True
            )
            after[value] = after[value] + jnp.asarray(shift)
    return _unflat(after, carried)


def check_labels(source: PolicyLabels, target: PolicyLabels) -> None:
    """Raise ConfigError where the source's numbers would mean something else in the target."""
    if source.scaling != target.scaling:
        raise ConfigError(
            f"env.scaling={target.scaling}: the source was trained with {source.scaling}, so its inputs "
            f"mean something else; set env.scaling={source.scaling}"
        )
    for key in SAME:
        if key == "rnn_width" and target.config.kind != "gru":
            continue
        here, there = getattr(source.config, key), getattr(target.config, key)
        if here != there:
            raise ConfigError(
                f"network.{key}={there}: the source has {here}; a transfer widens inputs and actions only"
                f", so set network.{key} to the source's"
            )
    if not set(source.slots) & set(target.slots):
        raise ConfigError(
            "source and target share no observation slot; transfer between tasks that do, or train "
            "afresh"
        )
    if source.actions[0] not in target.actions or target.actions[0] not in source.actions:
        raise ConfigError(
            f"source and target do not have the first action of each other ({source.actions[0]}, "
            f"{target.actions[0]}); train afresh"
        )
    if source.config.adapter and not target.config.adapter:
        raise ConfigError("the source has an adapter; set transfer.mode=adapter to keep it")


def adapter_width(source: PolicyLabels, mode: str) -> int:
    """Return `network.adapter` of a run that begins with this source.

    It is that of its adapter, or its number of slots.
    """
    return 0 if mode == "widen" else source.config.adapter or len(source.slots)


def transfer(
    params: PyTree,
    normaliser: RunningStats,
    opt_state: Any,
    source: PolicyLabels,
    fresh: TrainState,
    target: PolicyLabels,
) -> TransferResult:
    """Copy what the source learned into the shapes of the target's fresh state.

    Args:
        params, normaliser: the source's.
        opt_state: its optimiser's state, or None to leave the moments behind.
        source, target: the two layouts, checked (`check_labels`).
        fresh: the target's first state: structure, and the statistics of slots that the source did
            not have.
    """
    new_adapter = bool(target.config.adapter) and not source.config.adapter
    fill = identity_adapter(fresh.params, source, target) if new_adapter else {}
    carried, parts = _carry(params, fresh.params, source, target, fill)
    if target.head.held:
        carried = copy_hold_weights(carried, params, source, target)
    axes = ((source.groups, source.slots), (target.groups, target.slots))
    stats = jax.tree.map(lambda own, new: widen(own, new, *axes), normaliser, fresh.normaliser)
    parts += [_account(f"normaliser/{name}", *axes) for name in _flat(stats)]
    moments = None
    if opt_state is not None:
        moments, more = _moments(opt_state, fresh.opt_state, params, fresh.params, source, target)
        parts += more
    return TransferResult(
        carried,
        stats,
        moments,
        Coverage(
            tuple(parts),
            tuple(name for name in target.slots if name not in set(source.slots)),
            tuple(name for name in target.actions if name not in set(source.actions)),
        ),
    )


def _moments(
    opt_state: Any,
    fresh: Any,
    params: PyTree,
    fresh_params: PyTree,
    source: PolicyLabels,
    target: PolicyLabels,
) -> tuple[Any, list[ArrayTransfer]]:
    """Carry over the optimiser's state.

    Parts shaped like the parameters are carried as these are, others unchanged.
    """
    structure, parts = jax.tree.structure(params), []

    def like_params(node: Any) -> bool:
        return jax.tree.structure(node) == structure

    target_structure = jax.tree.structure(fresh_params)
    nodes = jax.tree_util.tree_flatten_with_path(opt_state, is_leaf=like_params)[0]
    fresh_nodes, tree = jax.tree.flatten(
        fresh, is_leaf=lambda node: jax.tree.structure(node) == target_structure
    )
    moments = []
    for (path, node), fresh_node in zip(nodes, fresh_nodes, strict=True):
        if like_params(node):
            node, more = _carry(node, fresh_node, source, target, {})
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            parts += [part._replace(name=f"opt_state/{name}/{part.name}") for part in more]
        moments.append(node)
    return jax.tree.unflatten(tree, moments), parts


def plan_unlock(
    coverage: Coverage, target: PolicyLabels, config: TransferConfig
) -> UnlockPlan | None:
    """Plan how new actions open; None where there are none, or where they need not open."""
    if not coverage.new_actions or target.head.held:
        return None
    new = np.isin(np.array(target.actions), np.array(coverage.new_actions))
    return UnlockPlan(
        jnp.asarray(new), jnp.float32(config.open_probability), jnp.float32(config.open_until)
    )


def begin(fresh: TrainState, carried: TransferResult, opening: UnlockPlan | None) -> TrainState:
    """Build the first state of a run that begins with a source."""
    opt_state = fresh.opt_state if carried.opt_state is None else carried.opt_state
    lead = fresh.update.shape  # (agents,) of a population
    opening = jax.tree.map(lambda x: jnp.broadcast_to(x, (*lead, *x.shape)), opening)
    return fresh.replace(
        params=carried.params, normaliser=carried.normaliser, opt_state=opt_state, opening=opening
    )


def list_moved_groups(
    before: PyTree, after: PyTree, layout: PolicyLabels, normaliser: RunningStats
) -> dict[str, list[str]]:
    """List which groups of parameters have moved in training.

    A group is the weights of one input slot in every layer that reads it, those of one action, and
    any other array as a whole.

    Args:
        before, after: parameters of one agent.
        normaliser: as training left it.

    Returns:
        moved, still: names of groups.
        constant: slots ("input constant") that never varied, so that nothing could move.
    """
    flat_before, flat_after = _flat(before), _flat(after)
    changed: dict[str, bool] = {}
    for path, old in flat_before.items():
        delta = np.asarray(flat_after[path]) != np.asarray(old)
        axes = axis_labels(path, old.shape, layout)
        named = [i for i, names in enumerate(axes) if set(names) & {*layout.slots, *layout.actions}]
        if not named:
            changed[path] = bool(delta.any())
            continue
        for i in named:
            others = tuple(axis for axis in range(delta.ndim) if axis != i)
            for name, any_of in zip(axes[i], delta.any(axis=others), strict=True):
                changed[name] = changed.get(name, False) or bool(any_of)
    varied = np.asarray(normaliser.variance).max(axis=0) > MIN_VARIANCE  # in any group
    still_slots = {name for name, varies in zip(layout.slots, varied, strict=True) if not varies}
    found: dict[str, list[str]] = {"moved": [], "still": [], "constant": []}
    for name, is_moved in changed.items():
        found["moved" if is_moved else "constant" if name in still_slots else "still"].append(name)
    return found
