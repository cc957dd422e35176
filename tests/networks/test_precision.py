"""Products of a stated precision: rounded by hand in NumPy, on every platform, in every product of
an update.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxtrade.config import load_config
from jaxtrade.networks.torso import (
    FLOAT32,
    MANTISSA,
    DotGeneral,
    dot_general_of,
    product,
    products,
)
from jaxtrade.rl.advice import start_advice
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.setup import prepare
from tests.networks.test_initializers import equations

SMALL = (
    "rollout.num_envs=16",
    "rollout.num_steps=32",
    "ppo.num_minibatches=4",
    "ppo.num_epochs=2",
    "network.hidden=[16,8]",
)
GATED = ("env.task=advised", "advisor.kind=none", "advisor.fusion=gate")
HIGHEST = (lax.Precision.HIGHEST, lax.Precision.HIGHEST)
PRESETS = {
    "tf32": lax.DotAlgorithmPreset.TF32_TF32_F32,
    "bfloat16": lax.DotAlgorithmPreset.BF16_BF16_F32,
}


@functools.cache
def setup(*overrides):
    return prepare(load_config("quickstart", (*SMALL, *overrides)))


def rounded(x, mantissa):
    """`x` float32 with so many bits after the leading one, half to even."""
    mantissas, exponents = np.frexp(np.asarray(x, np.float64))
    scale = 2.0 ** (mantissa + 1)
    return np.ldexp(np.rint(mantissas * scale) / scale, exponents)


@pytest.mark.parametrize(
    ("value", "tf32", "bfloat16"),
    [
        (1 + 2.0**-7, 1 + 2.0**-7, 1 + 2.0**-7),
        (1 + 2.0**-10, 1 + 2.0**-10, 1.0),
        (1 + 2.0**-8, 1 + 2.0**-8, 1.0),  # half way: to even
        (1 + 3 * 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-6),
        (-3 * (1 + 2.0**-12), -3.0, -3.0),
    ],
)
def test_operands_are_rounded(value, tf32, bfloat16):
    one = jnp.ones((1, 1))
    for precision, expected in (("float32", value), ("tf32", tf32), ("bfloat16", bfloat16)):
        dot_general = dot_general_of(precision, "cpu")
        assert product(dot_general, jnp.float32([value]), one)[0] == expected


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_sums_are_float32_and_gradients_use_rounded_operands(precision):
    rng, bits = np.random.default_rng(0), MANTISSA[precision]
    x, kernel, given = (
        rng.normal(size=shape).astype(np.float32) for shape in ((5, 7), (7, 3), (5, 3))
    )
    dot_general = dot_general_of(precision, "cpu")
    result, back = jax.vjp(
        lambda x, kernel: jax.vmap(lambda row: product(dot_general, row, kernel))(x),
        jnp.asarray(x),
        jnp.asarray(kernel),
    )
    for_x, for_kernel = back(jnp.asarray(given))
    x, kernel, given = (rounded(each, bits) for each in (x, kernel, given))
    np.testing.assert_allclose(result, x @ kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(for_x, given @ kernel.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(for_kernel, x.T @ given, rtol=1e-5, atol=1e-6)
    assert result.dtype == for_x.dtype == for_kernel.dtype == jnp.float32


def test_products_are_one_product_for_each():
    rng = np.random.default_rng(0)
    x, kernels = (
        rng.normal(size=(2, 4)).astype(np.float32),
        rng.normal(size=(2, 4, 3)).astype(np.float32),
    )
    np.testing.assert_allclose(
        products(FLOAT32, jnp.asarray(x), jnp.asarray(kernels)),
        np.einsum("ti,tij->tj", x, kernels),
        rtol=1e-6,
    )


def test_a_platform_with_such_products_uses_them():
    for platform in ("gpu", "cuda", "tpu", "cpu"):
        assert dot_general_of("float32", platform) == DotGeneral(lax.Precision.HIGHEST)
    assert dot_general_of("tf32", "cuda") == DotGeneral(PRESETS["tf32"])
    assert (
        dot_general_of("tf32", "tpu") == dot_general_of("tf32", "rocm") == DotGeneral(mantissa=10)
    )
    for platform in ("gpu", "tpu", "rocm"):
        assert dot_general_of("bfloat16", platform) == DotGeneral(PRESETS["bfloat16"])
    assert dot_general_of("bfloat16", "cpu") == DotGeneral(mantissa=7)


def advice_of(made):
    bars, config = len(made.market.bars), made.config.advisor
    return start_advice(
        made.params.advice, jnp.zeros(bars, jnp.int8), jnp.zeros(bars, bool), config
    )


def algorithms_of(jaxpr):
    """The precision of every matrix product in a traced function, also inside loops and calls."""
    return [
        equation.params["precision"]
        for equation in equations(jaxpr)
        if equation.primitive.name == "dot_general"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "kind"),
    [
        ("float32", ()),
        ("tf32", ("network.kind=gru", "ppo.num_minibatches=2")),
        ("bfloat16", GATED),
    ],
)
def test_every_product_of_an_update_has_the_precision(precision, kind):
    """Traced for a GPU. A product without a precision would be TF32 there."""
    made = setup(f"compute.precision={precision}", *kind)
    algorithm = make_ppo(made.config, made.env, 4, fusion=made.fusion, platform="gpu")
    state = jax.eval_shape(algorithm.init, jax.random.key(0), made.params)
    inputs = None if made.fusion is None else jax.eval_shape(functools.partial(advice_of, made))
    jaxpr = jax.make_jaxpr(algorithm.update)(state, made.params, inputs).jaxpr
    expected = HIGHEST if precision == "float32" else PRESETS[precision]
    found = algorithms_of(jaxpr)
    assert len(found) > 10
    assert set(found) == {expected}


def test_the_limit_of_the_ratio_error_follows_the_precision():
    row = {"learning_rate": 1e-3, "approx_kl": 1e-3, "param_delta": 1.0, "ratio_error": 1e-3}
    passed = {}
    for precision in ("float32", "tf32", "bfloat16"):
        made = setup(f"compute.precision={precision}")
        (check,) = (
            each
            for each in make_ppo(made.config, made.env, 4).info.health
            if each.name == "ratio_error"
        )
        passed[precision] = check.passed(check.measure([row, row | {"ratio_error": 1e-6}]))
    assert passed == {"float32": False, "tf32": True, "bfloat16": True}


def test_evaluation_does_not_round():
    """What acts outside of training is float32, whatever the precision of training."""
    made = setup("compute.precision=bfloat16")
    algorithm = make_ppo(made.config, made.env, 4, platform="gpu")
    state = jax.eval_shape(algorithm.init, jax.random.key(0), made.params)
    _, ref = jax.eval_shape(made.env.reset, jax.random.key(0), made.params)

    def acting(state, ref):
        policy = algorithm.policy(state)
        return algorithm.act(policy, algorithm.carry, ref, made.params, None, False)

    assert set(algorithms_of(jax.make_jaxpr(acting)(state, ref).jaxpr)) == {HIGHEST}
