"""The forms of PPO's program for a CPU and for a GPU or TPU compute the same update, up to
rounding.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.config import load_config
from jaxtrade.data.device import table_bytes, with_tables
from jaxtrade.env.monitor import summarise
from jaxtrade.errors import ConfigError
from jaxtrade.networks import distributions
from jaxtrade.networks.accelerators import (
    CPU,
    DEVICE,
    PAIR,
    form_of,
    make_vector_layout,
    pack,
    unpack,
)
from jaxtrade.networks.heads import ActorCritic
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.setup import prepare
from tests.rl.test_train import assert_close

SMALL = (
    "rollout.num_envs=16",
    "rollout.num_steps=32",
    "ppo.num_minibatches=4",
    "ppo.num_epochs=2",
    "network.hidden=[16,8]",
    "episode.max_steps=25",
)
KINDS = {
    "mlp": (),
    "gru": ("network.kind=gru", "network.rnn_width=8", "ppo.num_minibatches=2"),
    "table": ("data.windows=table",),
    "seed scaling": ("env.scaling=seed",),
}


@functools.cache
def setup(kind):
    return prepare(load_config("quickstart", (*SMALL, *KINDS[kind])))


@pytest.mark.slow
def test_an_update_is_the_same_in_both_forms():
    """The rollout is the same, and every parameter within 1e-6 of the largest of its array."""
    found = []
    for platform in ("cpu", "gpu"):
        made = setup("gru")
        algorithm = make_ppo(made.config, made.env, 4, summarise=summarise, platform=platform)
        state = jax.jit(algorithm.init)(jax.random.key(0), made.params)
        found.append(jax.jit(algorithm.update)(state, made.params, None))
    (one, metrics), (other, others) = found
    np.testing.assert_array_equal(one.env_state.row, other.env_state.row)
    assert jax.tree.structure(one) == jax.tree.structure(other)
    learnt = [jax.tree.leaves((each.params, each.opt_state)) for each in (one, other)]
    for a, b in zip(*learnt, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * max(np.abs(a).max(), 1e-2))
    assert_close(others, metrics, rtol=1e-3, atol=1e-5)


def test_the_platform_decides():
    assert form_of("cpu") is CPU
    assert form_of("cuda") is form_of("tpu") is form_of("gpu") is DEVICE
    assert form_of() is (CPU if jax.default_backend() == "cpu" else DEVICE)


@pytest.mark.parametrize(
    "hidden", [(6, 5), *(pytest.param(each, marks=pytest.mark.slow) for each in ((4,), (4,) * 11))]
)
def test_a_pair_gives_both_networks_outputs(hidden):
    """Its layers in their order: as text, Dense_10 comes before Dense_2, and so JAX orders the keys
    of what training works on.
    """
    network = ActorCritic(3, hidden)
    rng = np.random.default_rng(0)
    parameters = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32),
        jax.eval_shape(network.init, jax.random.key(0), None, jnp.zeros(7))["params"],
    )
    x = jnp.asarray(rng.normal(size=(5, 7)), jnp.float32)
    layout = make_vector_layout(pack(parameters))
    packed = layout.tree(layout.flat(pack(parameters)))
    assert set(packed) == {PAIR}

    @functools.partial(jax.jit, static_argnums=1)
    def outputs(parameters, method):
        return jax.vmap(lambda x: network.apply({"params": parameters}, None, x, method=method))(x)

    logits, value = outputs(parameters, "heads")
    found = (*outputs(packed, "heads"), outputs(packed, "value"))
    for one, other in zip((logits, value, value), found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
    back = unpack(packed, parameters)
    assert jax.tree.structure(back) == jax.tree.structure(parameters)
    jax.tree.map(np.testing.assert_array_equal, back, parameters)


def test_no_gradient_reaches_the_zeros_of_a_pair():
    network = ActorCritic(3, (4,))
    packed = pack(jax.jit(network.init)(jax.random.key(0), None, jnp.zeros(5))["params"])

    def loss(packed):
        logits, value = network.apply({"params": packed}, None, jnp.ones(5), method="heads")
        return jnp.square(logits).sum() + value

    head = jax.jit(jax.grad(loss))(packed)[PAIR]["policy_head"]
    assert not head["kernel"][1, :, 1:].any()
    assert not head["bias"][1, 1:].any()
    assert head["bias"][1, 0] == 1.0


def test_both_ways_to_a_log_probability_and_an_entropy_and_their_gradients():
    rng = np.random.default_rng(0)
    logits = jnp.asarray(
        rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-2, 3, (200, 1)), jnp.float32
    )
    mask = jnp.asarray(rng.random((200, 7)) < 0.5).at[:, 0].set(True)
    action = distributions.mode(logits, mask)

    def with_gradient(of):
        def total(x):
            chosen, entropy = of(x)
            return (chosen + 3 * entropy).sum(), (chosen, entropy)

        return jax.jit(jax.grad(total, has_aux=True))(logits)

    gradient, found = with_gradient(lambda x: DEVICE.log_prob_and_entropy(x, mask, action))
    plain = with_gradient(lambda x: CPU.log_prob_and_entropy(x, mask, action))
    assert_close((gradient, found), plain, rtol=1e-4, atol=1e-5)
    assert not gradient[~mask].any()


# --- windows as tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mlp", pytest.param("seed scaling", marks=pytest.mark.slow)])
def test_a_table_gives_the_same_observations(kind):
    """Bit by bit, at every row that an environment may stand at."""
    env, params = setup(kind).env, setup(kind).params
    view = params.market.view
    tabled = params.replace(market=params.market.replace(view=with_tables(view, env.config.window)))
    _, ref = jax.jit(env.reset)(jax.random.key(0), params)
    rows = jnp.arange(env.config.window, view.value.shape[0], 7, dtype=jnp.int32)
    refs = jax.vmap(lambda row: ref.replace(row=row[None]))(rows)
    slices, table = (
        jax.jit(jax.vmap(env.observe, (0, None)))(refs, each) for each in (params, tabled)
    )
    np.testing.assert_array_equal(table, slices)
    width = view.value.shape[1] * env.config.window
    assert tabled.market.view.windows.shape == (view.value.shape[0], width)
    assert (tabled.market.view.level_windows is None) == (view.level is None)


def test_a_table_is_made_where_the_configuration_asks():
    assert setup("table").params.market.view.windows is not None
    assert setup("mlp").params.market.view.windows is None


def test_a_table_that_does_not_fit_is_refused_with_its_size():
    class Full:
        def memory_stats(self):
            return {"bytes_limit": 3_000_000, "bytes_in_use": 1_000_000}

    view = setup("mlp").params.market.view
    # two tables (values and levels) of 20 bars x 11 numbers, padded from 220 to 256, of 4 bytes
    assert table_bytes(view, 20) == view.value.shape[0] * 256 * 4 * 2
    with pytest.raises(ConfigError, match=r"data\.windows=table .* 0\.0 GB"):
        with_tables(view, 20, Full())


def test_a_table_of_other_windows_is_refused():
    env, params = setup("mlp").env, setup("mlp").params
    wrong = params.replace(market=params.market.replace(view=with_tables(params.market.view, 3)))
    _, ref = jax.eval_shape(env.reset, jax.random.key(0), params)
    with pytest.raises(ConfigError, match="windows of 3 bars"):
        jax.eval_shape(env.observe, ref, wrong)
