"""A user's own task and reward term, registered from outside the package, play and train as the
built-in ones do.
"""

import importlib
import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtrade
from jaxtrade.config import EnvConfig
from jaxtrade.env.rewards import register_term
from jaxtrade.env.tasks.base import MANAGE, ManageTask, register_task
from jaxtrade.errors import ConfigError
from jaxtrade.parts import REWARD_TERMS, TASKS
from jaxtrade.rl.advice import advised_action, exposure, side_after
from jaxtrade.runs.evaluate import Request, history, replay_run
from tests.env import worlds
from tests.messages import missing, refused
from tests.reading import read_json

OVERRIDES = [
    "env.task=product",
    "reward.weights.entries=-0.01",
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=384",
    "train.tensorboard=false",
]
ACTIONS = (
    "HOLD",
    "HOLD_TRAIL",
    "HOLD_NO_TRAIL",
    "LONG",
    "LONG_TRAIL",
    "LONG_NO_TRAIL",
    "SHORT",
    "SHORT_TRAIL",
    "SHORT_NO_TRAIL",
)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The user's module is imported; what it registers is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for table in (TASKS, REWARD_TERMS):
            patch.setattr(table, "_added", {})
        patch.delitem(sys.modules, "tests.user_parts", raising=False)
        importlib.import_module("tests.user_parts")
        yield
        del sys.modules["tests.user_parts"]


def played():
    """Random legal actions, leaves [steps, N]."""
    config = jaxtrade.load_config("quickstart", OVERRIDES)
    market = jaxtrade.load_market(config)
    params = jaxtrade.make_params(
        market, jaxtrade.split_sessions(market, config.split)["train"], config
    )
    env = jaxtrade.make_env(config)
    trace = worlds.run_random(env, params, 0, 8, 400)
    observe = jax.jit(jax.vmap(jax.vmap(env.observe, (0, None)), (0, None)))
    steps = {"row": trace.ref.row[..., 0], "seen": observe(trace.ref, params)}
    return env, params, jax.tree.map(np.asarray, steps | {"outcome": trace.outcome})


@pytest.mark.slow
def test_it_sees_its_own_slots_and_its_reward_term_is_paid():
    """The context that the market prepared for it, and its record, which begins again with each
    episode.
    """
    env, params, steps = played()
    assert env.spec.names[-3:] == ("spread[t]", "adx[t]", "entries")
    assert steps["seen"].shape[-1] == env.observation_size == len(env.spec.names)
    context = np.asarray(params.market.view.context)
    assert context.shape[-1] == 2
    np.testing.assert_array_equal(steps["seen"][..., -3:-1], context[steps["row"]])
    ended = steps["outcome"].terminated | steps["outcome"].truncated
    count = np.zeros(8)
    for t in range(400):
        np.testing.assert_array_equal(steps["seen"][t, :, -1], count)
        count = np.where(ended[t], 0, count + (steps["outcome"].info.event.entry_quantity[t] != 0))
    assert ended.any()
    assert steps["seen"][..., -1].max() > 1

    info = steps["outcome"].info
    assert set(info.terms) == {"equity_change", "entries"}
    paid = np.where(info.event.entry_quantity != 0, np.float32(-0.01), np.float32(0))
    np.testing.assert_array_equal(info.terms["entries"], paid)
    np.testing.assert_array_equal(
        steps["outcome"].reward, info.terms["entries"] + info.terms["equity_change"]
    )
    assert (paid < 0).sum() > 10


def test_advice_is_understood_by_what_its_actions_open():
    env = EnvConfig(task="product")
    assert exposure(env, jnp.int32(-1)).tolist() == [-1, -1, -1, 1, 1, 1, -1, -1, -1]
    assert side_after(env, jnp.arange(9), jnp.int32(0)).tolist() == [0, 0, 0, 1, 1, 1, -1, -1, -1]
    assert int(advised_action(env, jnp.int32(1), jnp.int32(0))) == ACTIONS.index("LONG")
    assert int(advised_action(env, jnp.int32(-1), jnp.int32(0))) == ACTIONS.index("SHORT")
    assert int(advised_action(env, jnp.int32(-1), jnp.int32(1))) == ACTIONS.index("HOLD"), (
        "it cannot close"
    )


@pytest.mark.slow
def test_a_whole_run_trains_evaluates_and_replays_it(tmp_path):
    path = tmp_path / "run"
    assert jaxtrade.run(jaxtrade.load_config("quickstart", OVERRIDES), path).exit_code == 0
    rows = history(path)
    assert all(np.isfinite(row["param_delta"]) and row["param_delta"] > 0 for row in rows)
    assert tuple(rows[-1]["action_share"]) == ACTIONS
    assert any(row["reward_entries"] is not None and row["reward_entries"] < 0 for row in rows)
    assert jaxtrade.load_policy(path).action_names == list(ACTIONS)
    agents = read_json(path / "evaluation/test/evaluation.json")["agents"]
    assert {"greedy", "random", "buy_hold", "sma_cross"} <= set(agents)
    passes = [figures[which] for figures in agents.values() for which in ("strategy", "account")]
    assert {figures["illegal_actions"] for figures in passes} == {0}
    header, *_, last = replay_run(Request(path), "2013-10-11")
    assert not missing(header, "H=HOLD ", "1=HOLD_TRAIL ", "2=HOLD_NO_TRAIL ", "3=LONG ")
    assert " H" in last


def test_a_name_that_nobody_registered_is_refused_with_those_that_are():
    known = r"'env.task' = 'produkt': .*: entry, manage, advised, allocate, product.*'product'"
    with pytest.raises(ConfigError, match=known):
        jaxtrade.load_config(None, ["env.task=produkt"])
    with refused("task 'manage' exists already"):
        register_task("manage", ManageTask())
    with refused("an instance of a class", kind=TypeError):
        register_task("mine", ManageTask)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Unmasked(ManageTask):
    def actions(self, config):
        return (*super().actions(config), "REVERSE")

    def mask(self, config, state, params):
        return MANAGE.mask(config, state, params)


@dataclass(frozen=True)
class Unseen(ManageTask):
    def slots(self, config):
        return super().slots(config)[:-1]


@pytest.mark.parametrize(
    ("task", "facts"),
    [
        (Unmasked(), ("task 'unmasked'", "`mask`", "`actions`")),
        (Unseen(), ("task 'unseen'", "`observe`", "`slots`")),
    ],
)
def test_a_task_that_contradicts_itself_is_found_at_once(task, facts):
    name = type(task).__name__.lower()
    register_task(name, task)
    env = jaxtrade.make_env(EnvConfig(task=name))
    params = worlds.make_params(worlds.walk_market(0, sessions=2))
    with refused(*facts, kind=AssertionError):
        env.observe(env.reset(jax.random.key(0), params)[1], params)


def test_a_term_must_be_one_float32():
    @register_term
    def held(prev, next, step, params):
        return next.position.quantity

    env, params = (
        jaxtrade.make_env(EnvConfig()),
        worlds.make_params(worlds.walk_market(0, sessions=2)),
    )
    params = params.replace(reward_weights={"held": jnp.float32(1)})
    state, _ = env.reset(jax.random.key(0), params)
    with refused("reward term 'held'", kind=AssertionError):
        env.step(jax.random.key(0), state, jnp.int32(0), params)
