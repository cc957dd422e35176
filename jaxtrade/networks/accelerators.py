"""The form of a learner's program for a platform: the same mathematics, in operations fast there.

Who trains on a CPU need not read this.

On a GPU or a TPU the time of an update goes into starting programs, so few and large operations
are fast. On a CPU it goes into the operations themselves, so those that read memory in order are
fast. The forms agree up to rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from jaxtrade.networks.distributions import ILLEGAL, check, log_prob_and_entropy
from jaxtrade.networks.torso import FLOAT32, DotGeneral, product, products
from jaxtrade.types import Array, PyTree

# --- Log-probability and entropy from one array for each action


def log_prob_and_entropy_by_columns(
    logits: Array, mask: Array, action: Array
) -> tuple[Array, Array]:
    """Compute `distributions.log_prob_and_entropy` up to rounding, from one array for each action.

    Both are float32[...].

    A GPU or TPU computes both and their gradients in one program. On a CPU, reading single columns
    is slow.
    """
    check(logits, mask)
    chex.assert_type(action, int)
    legal, x = _columns(mask), [jnp.clip(x, ILLEGAL / 4, -ILLEGAL / 4) for x in _columns(logits)]
    every = list(zip(legal, x, strict=True))
    largest = jax.lax.stop_gradient(
        functools.reduce(jnp.maximum, [jnp.where(m, x, ILLEGAL) for m, x in every])
    )
    shifted = [jnp.where(m, x - largest, 0.0) for m, x in every]
    powers = [jnp.where(m, jnp.exp(x), 0.0) for m, x in zip(legal, shifted, strict=True)]
    total = functools.reduce(jnp.add, powers)
    log_total = jnp.log(total)
    chosen = functools.reduce(
        jnp.add,
        [
            jnp.where(action == i, jnp.where(m, x - log_total, ILLEGAL), 0.0)
            for i, (m, x) in enumerate(zip(legal, shifted, strict=True))
        ],
    )
    # -sum p log p = log total - sum p x
    mean = functools.reduce(jnp.add, [p * x for p, x in zip(powers, shifted, strict=True)]) / total
    return chosen, log_total - mean


def _columns(x: Array) -> list[Array]:
    return [x[..., i] for i in range(x.shape[-1])]


# --- Two networks of equal widths on the same input, computed together.
#
# A product of a batch of two matrices is one program of a device, as is a product of one. Training
# therefore packs the layers of both networks in pairs, and unpacks them at the end of an update.
# The public parameters are never packed.


PAIR = "pair"  # key of the packed layers in the parameters
TORSOS, HEADS = ("policy_torso", "value_torso"), ("policy_head", "value_head")
_PARTS = {*TORSOS, *HEADS}


def pack(parameters: PyTree) -> PyTree:
    """Replace both torsos and heads of an `ActorCritic`'s parameters by `pair`.

    Networks without hidden layers stay as they are.

    pair: by layer {"kernel", "bias"}. The first layers stand side by side, float32[D, 2 O] and
        float32[2 O], the policy's first. The later ones are stacked, float32[2, I, O] and
        float32[2, O]. The last layer has as many outputs as there are actions; zeros fill those
        that the value does not have, and no gradient reaches them.
    """
    if TORSOS[0] not in parameters:
        return parameters
    first, *later = _layers(parameters).items()
    pair = {first[0]: jax.tree.map(lambda *both: jnp.concatenate(both, axis=-1), *first[1])}
    pair |= {name: jax.tree.map(_stack_layers, *both) for name, both in later}
    return {name: part for name, part in parameters.items() if name not in _PARTS} | {PAIR: pair}


def unpack(packed: PyTree, like: PyTree) -> PyTree:
    """Invert `pack`.

    like: parameters, or their shapes, as `pack` was given.
    """
    if PAIR not in packed:
        return packed
    parameters = {name: part for name, part in packed.items() if name != PAIR} | {
        name: {} for name in _PARTS
    }
    for name, shapes in _layers(like).items():
        layers = _split_layer(packed[PAIR][name], shapes)
        for torso, head, layer in zip(TORSOS, HEADS, layers, strict=True):
            if name == HEADS[0]:
                parameters[head] = layer
            else:
                parameters[torso][name] = layer
    return {name: parameters[name] for name in like}


def apply_pair(
    pair: PyTree, x: Array, activation: Callable[[Array], Array], dot_general: DotGeneral = FLOAT32
) -> Array:
    """Compute the outputs of both networks, float32[2, A].

    Args:
        pair: as `pack` makes it.
        x: float32[D], input of both.
        activation: after each layer but the last.
        dot_general: as of `networks.torso.MLP`.
    """
    first, *middle, last = _in_order(pair)
    x = activation(product(dot_general, x, first["kernel"]) + first["bias"]).reshape(2, -1)
    for layer in middle:
        x = activation(products(dot_general, x, layer["kernel"]) + layer["bias"])
    return products(dot_general, x, last["kernel"]) + last["bias"]


def apply_value(
    pair: PyTree, x: Array, activation: Callable[[Array], Array], dot_general: DotGeneral = FLOAT32
) -> Array:
    """Compute the value alone, float32[]. Arguments as `apply_pair`."""
    first, *later = _in_order(pair)
    width = first["bias"].shape[0] // 2
    x = product(dot_general, x, first["kernel"][:, width:]) + first["bias"][width:]
    for layer in later:
        x = product(dot_general, activation(x), layer["kernel"][1]) + layer["bias"][1]
    return x[0]


def _in_order(pair: PyTree) -> list[PyTree]:
    """Sort the layers, first layer first.

    JAX sorts keys as text, where Dense_10 stands before Dense_2.
    """
    return [*(pair[f"Dense_{i}"] for i in range(len(pair) - 1)), pair[HEADS[0]]]


def _layers(parameters: PyTree) -> dict[str, tuple[PyTree, PyTree]]:
    """Map each name to (layer of the policy, layer of the value), first layer first."""
    policy, value = (parameters[name] for name in TORSOS)
    torso = {f"Dense_{i}": (policy[f"Dense_{i}"], value[f"Dense_{i}"]) for i in range(len(policy))}
    return torso | {HEADS[0]: (parameters[HEADS[0]], parameters[HEADS[1]])}


def _stack_layers(policy: Array, value: Array) -> Array:
    missing = policy.shape[-1] - value.shape[-1]
    return jnp.stack([policy, jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, missing)])])


def _split_layer(layer: PyTree, shapes: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
    """Split a layer into those of the policy and of the value, of the sizes in `shapes`."""

    def policy(x: Array, like: Array) -> Array:
        return x[..., : like.shape[-1]] if x.ndim == like.ndim else x[0]

    def value(x: Array, like: Array) -> Array:
        return x[..., -like.shape[-1] :] if x.ndim == like.ndim else x[1, ..., : like.shape[-1]]

    return jax.tree.map(policy, layer, shapes[0]), jax.tree.map(value, layer, shapes[1])


# --- The parameters of a network and their moments as vectors, while gradient steps change them.
#
# One step of an optimiser on a tree runs a program of a device for each array of the tree, and for
# each of its moments. On vectors it runs one. The public state stays a tree: the vectors live
# inside one update. On a CPU the tree is faster: there the copies into vectors and out of them cost
# more than the programs that they save.

SMALL = 4096  # numbers in an array that a consumer reads in place


class VectorLayout(NamedTuple):
    """Where the arrays of a tree lie in a vector. All arrays are float32.

    shapes: in the order of `jax.tree.leaves`.
    order: numbers of the arrays as they follow in the vector, small ones first.
    """

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]

    def flat(self, tree: PyTree) -> Array:
        """Flatten a tree of this layout to its numbers (float32[P])."""
        leaves = self.treedef.flatten_up_to(tree)
        return jnp.concatenate([leaves[i].reshape(-1) for i in self.order])

    def tree(self, vector: Array) -> PyTree:
        """Rebuild the tree from a vector float32[P]."""
        sizes = [math.prod(self.shapes[i]) for i in self.order]
        count = sum(size for size in sizes if size <= SMALL)
        # XLA copies each small array that it takes from a long vector. From a short one its
        # consumers read in place.
        parts = [jax.lax.optimization_barrier(vector[:count]), vector[count:]]
        leaves: list[Any] = [None] * len(self.order)
        start = 0
        for i, size in zip(self.order, sizes, strict=True):
            part, first = (parts[0], start) if size <= SMALL else (parts[1], start - count)
            leaves[i] = jax.lax.slice_in_dim(part, first, first + size).reshape(self.shapes[i])
            start += size
        return jax.tree.unflatten(self.treedef, leaves)


class Unchanged(NamedTuple):
    """Stands for a `VectorLayout` where the steps work on the tree itself."""

    def flat(self, tree: PyTree) -> PyTree:
        return tree

    def tree(self, vector: PyTree) -> PyTree:
        return vector


def make_vector_layout(parameters: PyTree) -> VectorLayout:
    """Make the layout of a tree of float32 arrays, at least one of them."""
    leaves, treedef = jax.tree.flatten(parameters)
    chex.assert_type(leaves, jnp.float32)
    order = sorted(range(len(leaves)), key=lambda i: leaves[i].size > SMALL)
    return VectorLayout(treedef, tuple(leaf.shape for leaf in leaves), tuple(order))


def map_parts(
    function: Callable[..., PyTree], tree: PyTree, parameters: PyTree, *others: PyTree
) -> PyTree:
    """Apply `function` to each part of `tree` that has the structure of `parameters`.

    Such parts are the moments in the state of an optimiser. `others` are trees like `tree`, in
    which anything may stand for such a part; the function gets their parts too.
    """
    structure = jax.tree.structure(parameters)

    def fits(part: PyTree) -> bool:
        return jax.tree.structure(part) == structure

    parts, treedef = jax.tree.flatten(tree, is_leaf=fits)
    rest = [treedef.flatten_up_to(other) for other in others]
    return jax.tree.unflatten(
        treedef,
        [
            function(part, *more) if fits(part) else (more[0] if more else part)
            for part, *more in zip(parts, *rest, strict=True)
        ],
    )


# --- Which form a platform has


class NetworkForm(NamedTuple):
    """pair: policy and value network are computed as a pair (`pack`).

    vectors: gradient steps change the parameters and moments as vectors (`VectorLayout`).
    log_prob_and_entropy: of the policy.
    gradient_rows: largest number of rows whose gradient is computed at once, where
        `ppo.gradient_rows` is auto.
    statistics_rows: number of observations that enter the statistics at once; on a CPU they stay in
        its cache.
    agents: of a population that are computed side by side; None: all.
    """

    pair: bool
    vectors: bool
    log_prob_and_entropy: Callable[[Array, Array, Array], tuple[Array, Array]]
    gradient_rows: int
    statistics_rows: int
    agents: int | None

    def rows_at_once(self, stated: int | str) -> int:
        """Return the largest number of rows whose gradient is computed at once.

        stated: `ppo.gradient_rows`.
        """
        return self.gradient_rows if isinstance(stated, str) else stated


CPU = NetworkForm(False, False, log_prob_and_entropy, 16384, 512, 8)
DEVICE = NetworkForm(True, True, log_prob_and_entropy_by_columns, 65536, 16384, None)


def form_of(platform: str | None = None) -> NetworkForm:
    """Return the form for a platform of JAX ("cpu", "gpu", "cuda", "rocm", "tpu").

    Default: that of this process.
    """
    return CPU if (platform or jax.default_backend()) == "cpu" else DEVICE


def pack_parameters(network: Any, form: NetworkForm, parameters: PyTree) -> PyTree:
    """Convert the parameters to the form that training uses.

    This is by `network.pack` if the form is a pair and the network has it.
    """
    pack = getattr(network, "pack", None) if form.pair else None
    return parameters if pack is None else pack(parameters)


class SteppedTree(NamedTuple):
    """A network's parameters and moments while gradient steps change them.

    They are in the form for the platform.

    parameters: as they are outside of an update, arrays or shapes.
    """

    network: Any
    form: NetworkForm
    parameters: PyTree
    layout: VectorLayout | Unchanged

    @classmethod
    def of(cls, network: Any, form: NetworkForm, parameters: PyTree) -> SteppedTree:
        """Make the stepped tree of parameters."""
        layout = (
            make_vector_layout(pack_parameters(network, form, parameters))
            if form.vectors
            else Unchanged()
        )
        return cls(network, form, parameters, layout)

    def enter(self, tree: PyTree) -> PyTree:
        """Convert a tree like the parameters to the form."""
        return self.layout.flat(pack_parameters(self.network, self.form, tree))

    def leave(self, formed: PyTree) -> PyTree:
        """Invert `enter`."""
        unpack = getattr(self.network, "unpack", None) if self.form.pair else None
        tree = self.layout.tree(formed)
        return tree if unpack is None else unpack(tree, self.parameters)

    def enter_moments(self, opt_state: PyTree) -> PyTree:
        """Convert the moments in the state of an optimiser to the form."""
        return map_parts(self.enter, opt_state, self.parameters)

    def leave_moments(self, opt_state: PyTree, formed: PyTree) -> PyTree:
        """Invert `enter_moments`.

        opt_state: as it was before.
        """
        return map_parts(lambda _, new: self.leave(new), opt_state, self.parameters, formed)
