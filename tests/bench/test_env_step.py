"""The env_step bench: its loop does what it says, and sides that cannot run are named."""

import itertools
import json
from contextlib import ExitStack, closing
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench import env_step, sb3, setting
from bench.catalogue import Options
from tests.extras import needed


@pytest.fixture(scope="module")
def world():
    return setting.world(4)


def test_every_legal_action_is_equally_likely():
    mask = jnp.array([True, False, False, True, False, True, True])
    chances = (jnp.arange(400) + 0.5) / 400
    chosen = np.asarray(jax.vmap(lambda chance: setting.choose(mask, chance))(chances))
    np.testing.assert_array_equal(np.bincount(chosen, minlength=7), 100 * np.asarray(mask))


def test_what_is_not_installed_is_left_out_and_named(world, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(env_step, "not_confined", lambda: "this system cannot")
    scale = SimpleNamespace(**env_step.SCALES["full"])
    with ExitStack() as stack:
        found, left_out = env_step.in_children(world, scale, stack)
    assert found == {}
    assert len(left_out) == len(scale.looked_at) + 1 + len(scale.dummy) + len(scale.subproc)
    for name, reason in left_out.items():
        expected = "this system cannot" if "one_core" in name else sb3.INSTALL
        assert expected in reason, name


@pytest.mark.parametrize("kind", ["dummy", pytest.param("subproc", marks=pytest.mark.slow)])
def test_stable_baselines_steps_the_twin(world, kind):
    for name in ("stable_baselines3", "sb3_contrib"):
        needed(name)
    with (
        sb3.taped(world.config.env, world.params) as path,
        closing(sb3.stepped(path, kind, 2, 500)) as work,
    ):
        assert sum(itertools.islice(work, 2)) >= 1


@pytest.mark.slow
def test_all_slots_are_consumed_in_each_way(world):
    """A sum, a product with one weight a slot, and nothing; each call of a loop goes on."""
    _, refs, _ = jax.jit(env_step.started, static_argnums=(0, 2))(world.env, world.params, 32)
    observations = np.asarray(
        jax.vmap(world.env.observe, (0, None))(refs, world.params), np.float64
    )
    weights = np.linspace(-1.0, 1.0, observations.shape[1])
    for mode, expected in (
        (env_step.SUMMED, observations.sum()),
        (env_step.WRITTEN, (observations @ weights).sum()),
        (env_step.UNSEEN, 0.0),
    ):
        seen = jax.jit(env_step.look, static_argnums=(0, 3))(world.env, refs, world.params, mode)
        np.testing.assert_allclose(seen, expected, rtol=1e-3, atol=1e-3, err_msg=mode)
        work = env_step.Loop(world.env, world.params, 32, 20, mode)
        assert float(work()) != float(work()), mode


@pytest.mark.slow
def test_a_quick_run_has_every_side_or_its_reason():
    result = env_step.run(Options(quick=True))
    scale = SimpleNamespace(**env_step.SCALES["quick"])
    kinds = {side["kind"] for side in result["sides"].values()}
    assert {"ours", "ours_unseen", "gymnax"} <= kinds
    assert len(result["sides"]) + len(result["left_out"]) == (
        len(scale.sweep)
        + 2 * len(scale.looked_at)
        + len(["gymnax", "twin"])
        + len(scale.dummy)
        + len(scale.subproc)
    )
    best = result["sides"][result["best"]]
    assert best["kind"] == "ours"
    bytes_of = {
        side["kind"]: side["per_env_step"]["bytes"]
        for side in result["sides"].values()
        if "per_env_step" in side
    }
    assert bytes_of["ours"] - bytes_of["ours_unseen"] > 4 * result["config"]["observation_size"]
    for name, side in result["sides"].items():
        if side["kind"] == "ours_one_core":
            assert side["cores_used"] <= 1.05, name
    json.dumps(result)


def test_xlas_analysis_counts_the_body_of_a_loop_once():
    """What `Loop.cost` divides by."""
    program = jax.jit(lambda x: jax.lax.scan(lambda x, _: (x + 1, None), x, length=50)[0]).lower(
        jnp.ones(1_000)
    )
    counted = program.compile().cost_analysis()
    assert 1_000 <= counted["flops"] < 2_000
