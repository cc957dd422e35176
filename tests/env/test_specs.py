"""The specifications of observation and action: true bounds, and the tables of the docstrings."""

import doctest
import inspect
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade
from jaxtrade.config import EnvConfig, load_config
from jaxtrade.env import dynamics
from jaxtrade.env.portfolio import dynamics as joint
from jaxtrade.interop.world import load_world
from tests.interop import interfaces

DAYS = ("data.start=2014-01-02", "data.end=2014-12-31")
ALLOCATE = ("fx_allocate", (*DAYS, "allocate.preset=full"))


def table(env_class):
    """name -> (range, meaning), of the rows of a docstring's table."""
    rows = re.findall(
        r"^ {4}(\w+)(?:\.SYMBOL)? {2,}(\S*\.\.\S*)? *(\S.*)$",
        inspect.getdoc(env_class),
        re.MULTILINE,
    )
    return {name: (bounds, meaning) for name, bounds, meaning in rows if name != "slot"}


def bounds(slot):
    """The range of a slot as the tables write it."""
    low, high = (
        "" if math.isinf(bound) else f"{bound:g}" for bound in (slot.minimum, slot.maximum)
    )
    return f"{low}..{high}" if low or high else ""


@pytest.mark.parametrize("task", ["advised", "allocate"])
def test_the_tables_of_the_docstrings_are_those_of_the_specifications(task):
    """Every slot that is not of a bar has a row, with its range and meaning, and every row a slot."""
    config = load_config("fx_allocate" if task == "allocate" else "quickstart")
    if task == "advised":
        env = dynamics.TradingEnv(EnvConfig(task=task, advice=True))
    else:
        env = jaxtrade.make_env(
            config.model_copy(
                update={"allocate": config.allocate.model_copy(update={"preset": "full"})}
            )
        )
    slots = [slot for slot in env.observation_spec.slots if "[" not in slot.name]
    expected = {slot.name.partition(".")[0]: (bounds(slot), slot.meaning) for slot in slots}
    assert table(type(env)) == expected


@pytest.mark.parametrize("module", [dynamics, joint])
def test_the_examples_of_the_docstrings_run(module):
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 10) == (0, True)


def walked(env, params, steps=400, seed=0):
    """float32[steps, D] and the masks, under random legal actions."""

    def step(carry, key):
        state, ref = carry
        action = jax.random.categorical(key, jnp.where(env.action_mask(ref), 0.0, -jnp.inf))
        state, ref, _ = env.step(key, state, action.astype(jnp.int32), params)
        return (state, ref), env.observe(ref, params)

    @jax.jit
    def run(params):
        start = env.reset(jax.random.key(seed), params)
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(seed + 1), steps))[1]

    return np.asarray(run(params))


@pytest.mark.parametrize("kind", ["manage", "allocate"])
def test_no_value_passes_its_bounds(kind):
    env, params = (
        load_world(*ALLOCATE) if kind == "allocate" else (interfaces.ENV, interfaces.PARAMS)
    )
    spec, seen = env.observation_spec, walked(env, params)
    assert spec.shape == seen.shape[1:] == (env.observation_size,)
    assert spec.dtype == str(seen.dtype)
    assert (seen >= spec.minimum).all()
    assert (seen <= spec.maximum).all()
    side = spec.names.index("position.EURUSD" if kind == "allocate" else "position")
    assert (seen[:, side].min(), seen[:, side].max()) == (spec.minimum[side], spec.maximum[side])


def test_an_action_is_the_place_of_its_name():
    env = dynamics.TradingEnv(EnvConfig(task="entry"))
    spec = env.action_spec
    assert (spec.names, spec.minimum, spec.maximum) == (("HOLD", "BUY", "SELL"), 0, 2)
    assert (spec.shape, spec.dtype) == ((), "int32")
