"""The layers of the networks: matrix products, torsos, and the memory of a recurrent policy.

Products have a stated precision; torsos have their first weights.

A carry is float32[..., H], or None for a network without memory. It is zero before the first
observation of an episode. The code that runs episodes resets it there (`forget`), so the network
needs no information about episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from jaxtrade.config.running import Precision
from jaxtrade.types import Array, PyTree

# --- Matrix products in a stated precision, the same on every platform.
#
# Without a statement, JAX lets the platform choose: a GPU computes float32 products in TF32 and a
# TPU in bfloat16. A precision says to how many bits the operands of a product are rounded. Sums and
# results are always float32.


EXPONENT = 8  # bits of the exponent in float32, bfloat16 and TF32
MANTISSA = {"tf32": 10, "bfloat16": 7}  # bits, the leading 1 not counted
UNITS = {  # precision -> platforms whose products can round their operands, and what XLA calls such a product
    "tf32": (("gpu", "cuda"), lax.DotAlgorithmPreset.TF32_TF32_F32),
    "bfloat16": (("gpu", "cuda", "rocm", "tpu"), lax.DotAlgorithmPreset.BF16_BF16_F32),
}


@dataclass(frozen=True)
class DotGeneral:
    """`jax.lax.dot_general` with operands of one precision.

    It is for `product`, or an argument of `flax.linen.Dense`.

    algorithm: how XLA computes the product.
    mantissa: bits to which operands are rounded before it, in the forward and in the backward pass;
        None: they are not.
    """

    algorithm: lax.Precision | lax.DotAlgorithmPreset = lax.Precision.HIGHEST
    mantissa: int | None = None

    def __call__(
        self,
        lhs: Array,
        rhs: Array,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
    ) -> Array:
        """Arguments as `jax.lax.dot_general`; `precision` is not used."""
        del precision
        if self.mantissa is None:
            return lax.dot_general(
                lhs, rhs, dimension_numbers, self.algorithm, preferred_element_type
            )
        result = lax.dot_general(
            _round_mantissa(self.mantissa, lhs),
            _round_mantissa(self.mantissa, rhs),
            dimension_numbers,
            self.algorithm,
            preferred_element_type,
        )
        return _rounded_gradient(self.mantissa, result)


FLOAT32 = DotGeneral()


def dot_general_of(precision: Precision, platform: str | None = None) -> DotGeneral:
    """Return the products of a precision.

    platform: where the program will run, such as "cpu", "gpu" or "tpu". Default: that of this
        process. Where a platform has no such products, operands are rounded and a float32 product
        follows: the same result up to the order of sums, slower than float32.
    """
    if precision == "float32":
        return FLOAT32
    platforms, algorithm = UNITS[precision]
    if (platform or jax.default_backend()) in platforms:
        return DotGeneral(algorithm)
    return DotGeneral(mantissa=MANTISSA[precision])


def product(dot_general: DotGeneral, x: Array, kernel: Array) -> Array:
    """Compute x @ kernel: float32[..., I] and float32[I, O] -> float32[..., O]."""
    return dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))


def products(dot_general: DotGeneral, x: Array, kernels: Array) -> Array:
    """Compute N products: float32[N, I] and float32[N, I, O] -> float32[N, O]."""
    return dot_general(x, kernels, (((1,), (1,)), ((0,), (0,))))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _round_mantissa(mantissa: int, x: Array) -> Array:
    """Round `x` to a mantissa of so many bits, half to even. Its gradient is not rounded."""
    return lax.reduce_precision(x, EXPONENT, mantissa)


_round_mantissa.defvjp(
    lambda mantissa, x: (_round_mantissa(mantissa, x), None), lambda mantissa, kept, given: (given,)
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded_gradient(mantissa: int, x: Array) -> Array:
    """Return `x`, with a rounded gradient, which is an operand of the backward pass's products."""
    del mantissa
    return x


_rounded_gradient.defvjp(
    lambda mantissa, x: (x, None),
    lambda mantissa, kept, given: (lax.reduce_precision(given, EXPONENT, mantissa),),
)


# --- Torsos: the layers that compute features from an observation


def orthogonal(gain: float = 1.0) -> Any:
    """Make an orthogonal initialiser (Saxe et al. 2014).

    It maps (key, shape, dtype) to a matrix W with W^T W = gain^2 I (or W W^T).

    It is `flax.linen.initializers.orthogonal(gain)`, but under `vmap` (several agents, several
    gates) it computes one matrix after the other. jaxlib 0.10 computes a batch of QR decompositions
    inside a worker of the CPU's thread pool, and waits there for other workers. Two such calls on
    two cores then wait for each other forever (a deadlock).
    """
    init = nn.initializers.orthogonal(gain)

    def make(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.custom_batching.sequential_vmap(lambda key: init(key, shape, dtype))(key)

    return make


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class MLP(nn.Module):
    """Dense layers with an activation after each: float32[..., D] -> float32[..., widths[-1]].

    Weights are orthogonal with gain sqrt(2), biases are 0, as in Stable-Baselines3 (see
    Andrychowicz et al. 2021).

    dot_general: computes its products, in a stated precision (`networks.torso`).
    layer_norm: each layer's outputs are normalised over its units before the activation (Ba, Kiros
        & Hinton 2016), with a learned scale and offset.
    """

    widths: Sequence[int]
    activation: str = "tanh"
    dot_general: DotGeneral = FLOAT32
    layer_norm: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for width in self.widths:
            x = nn.Dense(width, kernel_init=orthogonal(2.0**0.5), dot_general=self.dot_general)(x)
            if self.layer_norm:
                x = nn.LayerNorm(use_fast_variance=False)(x)
            x = ACTIVATIONS[self.activation](x)
        return x


# --- Memory


UNROLL = 4  # steps per round of a loop: a device starts fewer programs, and the program takes longer to compile


def orthogonal_gates(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Draw one orthogonal H x H matrix per gate, side by side: float[H, 3 H].

    Arguments as a flax initialiser.
    """
    width, gates = shape[0], shape[1] // shape[0]
    init = orthogonal()
    matrices = jax.vmap(lambda key: init(key, (width, width), dtype))(jax.random.split(key, gates))
    return jnp.concatenate(list(matrices), axis=1)


def forget(carry: PyTree, first: Array) -> PyTree:
    """Reset the memory `carry` [..., H] to zero where `first` bool[...], at an episode's start."""
    return jax.tree.map(lambda x: jnp.where(first[..., None], 0.0, x), carry)


def cell(own: Array, gates: Array, carry: Array) -> Array:
    """Compute the next carry float32[..., H].

    own, gates: the carry's and the input's part of the gates, float32[..., 3 H].
    """
    _, update, new = _gates(own, gates)
    return (1.0 - update) * new + update * carry


def _gates(own: Array, gates: Array) -> tuple[Array, Array, Array]:
    read_r, read_z, read_n = jnp.split(gates, 3, axis=-1)
    own_r, own_z, own_n = jnp.split(own, 3, axis=-1)
    reset, update = nn.sigmoid(read_r + own_r), nn.sigmoid(read_z + own_z)
    return reset, update, jnp.tanh(read_n + reset * own_n)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def run_gru(
    dot_general: DotGeneral, weights: tuple[Array, Array], carry: Array, gates: Array, first: Array
) -> Array:
    """Compute the carry after each of L steps of S sequences, float32[L, S, H].

    The gradient is written by hand: inside the loop it only follows the carry from step to step.
    What it needs of each step, and what the weights get from it, are products over all steps at
    once. jax.grad would repeat them in the loop.

    Args:
        dot_general: as of `networks.torso.MLP`.
        weights: U float32[H, 3 H] and its bias float32[3 H].
        carry: float32[S, H] before the first step.
        gates: the input's part of the gates, float32[L, S, 3 H].
        first: bool[L, S], True where an episode starts: the carry is zero before it.
    """
    kernel, bias = weights

    def step(carry: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        gates, first = now
        carry = forget(carry, first)
        carry = cell(product(dot_general, carry, kernel) + bias, gates, carry)
        return carry, carry

    return jax.lax.scan(step, carry, (gates, first), unroll=min(UNROLL, len(gates)))[1]


def _run_forward(
    dot_general: DotGeneral, weights: tuple[Array, Array], carry: Array, gates: Array, first: Array
) -> Any:
    carries = run_gru(dot_general, weights, carry, gates, first)
    return carries, (weights, carry, gates, first, carries)


def _run_backward(dot_general: DotGeneral, kept: Any, given: Array) -> Any:
    (kernel, bias), carry, gates, first, carries = kept
    before = forget(jnp.concatenate([carry[None], carries[:-1]]), first)
    own = product(dot_general, before, kernel) + bias
    reset, update, new = _gates(own, gates)
    # Factors of the carry's gradient d: d by each gate before its activation, and by the carry's
    # own part of it.
    by_new = (1.0 - update) * (1.0 - jnp.square(new))
    by_reset = by_new * jnp.split(own, 3, axis=-1)[2] * reset * (1.0 - reset)
    by_update = (before - new) * update * (1.0 - update)
    by_own = jnp.stack([by_reset, by_update, by_new * reset], axis=-2)

    def step(later: Array, now: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
        given, by_own, update, first = now
        d = given + later
        through = (d[:, None] * by_own).reshape(d.shape[0], -1)
        return forget(d * update + product(dot_general, through, kernel.T), first), d

    start, d = jax.lax.scan(
        step,
        jnp.zeros_like(carry),
        (given, by_own, update, first),
        reverse=True,
        unroll=min(UNROLL, len(gates)),
    )
    through = (d[..., None, :] * by_own).reshape(-1, gates.shape[-1])
    for_kernel = product(dot_general, before.reshape(-1, before.shape[-1]).T, through)
    for_gates = jnp.concatenate([d * by_reset, d * by_update, d * by_new], axis=-1)
    return (for_kernel, through.sum(axis=0)), start, for_gates, None


run_gru.defvjp(_run_forward, _run_backward)


class GRU(nn.Module):
    """Gated recurrent unit: carry h float32[..., H] -> h'.

    It is that of Cho et al. 2014, in the form of cuDNN and PyTorch.

        r, z = sigmoid(W x + U h + b)        n = tanh(W_n x + b_n + r * (U_n h + c_n))        h' = (1 - z) n + z h

    `read` computes the part of the three gates that depends on the input x alone. It does not need
    the carry, so one matrix product reads a whole sequence. flax's GRUCell does not offer this
    split.

    dot_general: as of `MLP`.
    """

    width: int
    dot_general: DotGeneral = FLOAT32

    def setup(self) -> None:
        self.input = nn.Dense(3 * self.width, dot_general=self.dot_general)
        self.recurrent = nn.Dense(
            3 * self.width, kernel_init=orthogonal_gates, dot_general=self.dot_general
        )

    def __call__(self, carry: Array, observation: Array) -> Array:
        return self.step(carry, self.read(observation))

    def read(self, observation: Array) -> Array:
        """Compute the input part W x + b of the gates: float32[..., D] -> float32[..., 3 H]."""
        return self.input(observation)

    def step(self, carry: Array, gates: Array) -> Array:
        """Compute the next carry float32[..., H].

        gates: float32[..., 3 H] from `read`.
        """
        return cell(self.recurrent(carry), gates, carry)

    def run(self, carry: Array, gates: Array, first: Array) -> Array:
        """Compute the carry after each step of a sequence (`run_gru`)."""
        weights = self.recurrent.variables["params"]
        return run_gru(self.dot_general, (weights["kernel"], weights["bias"]), carry, gates, first)


def recall(
    network: Any, parameters: PyTree, carry: PyTree, observations: Array, first: Array
) -> PyTree:
    """Compute the carry after each observation of S sequences, as if acting step by step.

    Args:
        network: has `read`, and `run` or `step`, as `GRU`; not used if the carry is None.
        carry: float32[S, H] before the first row of each sequence, not yet reset where an episode
            starts there.
        observations, first: float32[L * S, D] and bool[L * S]. Row `l * S + s` is step l of
            sequence s.

    Returns:
        float32[L * S, H], or None.
    """
    if carry is None:
        return None
    variables = {"params": parameters}

    def by_step(rows: Array) -> Array:
        return rows.reshape(-1, carry.shape[0], *rows.shape[1:])

    def step(carry: Array, now: tuple[Array, Array]) -> tuple[Any, Any]:
        gates, first = now
        carry = network.apply(variables, forget(carry, first), gates, method="step")  # pyright: ignore
        return carry, carry

    gates: Any = network.apply(variables, observations, method="read")
    inputs: Any = (by_step(gates), by_step(first))
    carries = (
        network.apply(variables, carry, *inputs, method="run")
        if hasattr(network, "run")
        else jax.lax.scan(step, carry, inputs)[1]
    )
    return carries.reshape(-1, carries.shape[-1])


class Remembering(nn.Module):
    """The base of our networks: an adapter and a memory, before what the subclass makes of them.

    memory: width H of a GRU that reads the observations. Both torsos then read its carry
        float32[..., H] together with the observation. With 0 there is no GRU, and the carry
        is None.
    adapter_width: K > 0 adds a first linear layer float32[..., D] -> float32[..., K]. All other
        parts then read its output instead of the observation.
    hidden, activation: of the torsos (`torso.MLP`).
    dot_general: computes the products.
    """

    num_actions: int
    hidden: Sequence[int]
    activation: str = "tanh"
    dot_general: DotGeneral = FLOAT32
    memory: int = 0
    adapter_width: int = 0

    def setup(self) -> None:
        if self.adapter_width:
            self.adapter = nn.Dense(self.adapter_width, dot_general=self.dot_general)
        if self.memory:
            self.gru = GRU(self.memory, self.dot_general)

    def first_carry(self) -> PyTree:
        """Return the carry before the first observation of an episode.

        It is float32[H] of zeros, or None without a memory.
        """
        return jnp.zeros(self.memory) if self.memory else None

    def remember(self, carry: PyTree, observation: Array) -> PyTree:
        """Compute the carry after the network has read `observation`."""
        return self.gru(carry, self._adapt(observation)) if self.memory else carry

    def read(self, observation: Array) -> Array:
        """Do as `GRU.read`."""
        return self.gru.read(self._adapt(observation))

    def step(self, carry: Array, gates: Array) -> Array:
        """Do as `GRU.step`."""
        return self.gru.step(carry, gates)

    def run(self, carry: Array, gates: Array, first: Array) -> Array:
        """Do as `GRU.run`."""
        return self.gru.run(carry, gates, first)

    def _adapt(self, observation: Array) -> Array:
        return self.adapter(observation) if self.adapter_width else observation

    def _features(self, carry: PyTree, observation: Array) -> Array:
        observation = self._adapt(observation)
        return jnp.concatenate([observation, carry], axis=-1) if self.memory else observation
