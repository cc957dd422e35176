"""Torsos: the layers that compute features from an observation; initial weights."""

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
from jaxtrade.types import Array

# Matrix products in a stated precision, the same on every platform.
#
# Without a statement, JAX lets the platform choose: a GPU computes float32 products in TF32 and a
# TPU
# in bfloat16. A precision says to how many bits the operands of a product are rounded. Sums and
# results are always float32.

EXPONENT = 8  # bits of the exponent in float32, bfloat16 and TF32
MANTISSA = {"tf32": 10, "bfloat16": 7}  # bits, the leading 1 not counted
UNITS = {  # precision -> platforms whose products can round their operands, and what XLA calls such a product
    "tf32": (("gpu", "cuda"), lax.DotAlgorithmPreset.TF32_TF32_F32),
    "bfloat16": (("gpu", "cuda", "rocm", "tpu"), lax.DotAlgorithmPreset.BF16_BF16_F32),
}


@dataclass(frozen=True)
class DotGeneral:
    """`jax.lax.dot_general` with operands of one precision: for `product`, or an argument of
    `flax.linen.Dense`.

    algorithm: how XLA computes the product. mantissa: bits to which operands are rounded before it,
        in the forward and
    in the backward pass; None: they are not.
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
            _rounded(self.mantissa, lhs),
            _rounded(self.mantissa, rhs),
            dimension_numbers,
            self.algorithm,
            preferred_element_type,
        )
        return _rounded_gradient(self.mantissa, result)


FLOAT32 = DotGeneral()


def dot_general_of(precision: Precision, platform: str | None = None) -> DotGeneral:
    """The products of a precision.

    platform: where the program will run, such as "cpu", "gpu" or "tpu". Default: that of this
        process. Where a platform
    has no such products, operands are rounded and a float32 product follows: the same result up to
    the order of sums, slower than float32.
    """
    if precision == "float32":
        return FLOAT32
    platforms, algorithm = UNITS[precision]
    if (platform or jax.default_backend()) in platforms:
        return DotGeneral(algorithm)
    return DotGeneral(mantissa=MANTISSA[precision])


def product(dot_general: DotGeneral, x: Array, kernel: Array) -> Array:
    """x @ kernel: float32[..., I] and float32[I, O] -> float32[..., O]."""
    return dot_general(x, kernel, (((x.ndim - 1,), (0,)), ((), ())))


def products(dot_general: DotGeneral, x: Array, kernels: Array) -> Array:
    """N products: float32[N, I] and float32[N, I, O] -> float32[N, O]."""
    return dot_general(x, kernels, (((1,), (1,)), ((0,), (0,))))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded(mantissa: int, x: Array) -> Array:
    """`x` rounded to a mantissa of so many bits, half to even. Its gradient is not rounded."""
    return lax.reduce_precision(x, EXPONENT, mantissa)


_rounded.defvjp(
    lambda mantissa, x: (_rounded(mantissa, x), None), lambda mantissa, kept, given: (given,)
)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rounded_gradient(mantissa: int, x: Array) -> Array:
    """`x` itself. Its gradient is rounded, because it is an operand of the backward pass's
    products.
    """
    del mantissa
    return x


_rounded_gradient.defvjp(
    lambda mantissa, x: (x, None),
    lambda mantissa, kept, given: (lax.reduce_precision(given, EXPONENT, mantissa),),
)


def orthogonal(gain: float = 1.0) -> Any:
    """Orthogonal initialisation (Saxe et al. 2014): (key, shape, dtype) -> matrix W with W^T W =
    gain^2 I (or W W^T).

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
    dot_general: computes its products, in a stated precision (`networks.torso`). layer_norm:
        each layer's outputs
    are normalised over its units before the activation (Ba, Kiros & Hinton 2016), with a learned
    scale and offset.
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
