"""The memory of DQN's replay: bytes of a transition, as estimated, as allocated and as compiled;
what is refused.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError
from jaxtrade.rl.dqn import first_own, make_ring
from jaxtrade.rl.q import q_contexts
from jaxtrade.rl.replay import add
from jaxtrade.runs import memory
from jaxtrade.runs.memory import COPIES, transition_bytes
from jaxtrade.runs.setup import prepare
from jaxtrade.types import Transition
from tests.messages import missing, refused

MILLION = 1_048_576  # 512 rollouts of 64 x 32 transitions
SETS = ("algorithm=dqn", f"dqn.buffer_size={MILLION}", "dqn.replay=prioritised")


def dqn_config(*sets):
    return load_config("quickstart", [*SETS, *sets])


def shapes_of(config):
    """(the static part of the replay, shapes of `Own`, shapes of the references) of a run. Nothing
    is allocated.
    """
    setup = prepare(config)
    ctx = q_contexts(config, setup.env, 1, summarise=None, stage=None, fusion=None)[1]
    refs = jax.eval_shape(setup.algorithm.init, jax.random.key(0), setup.params).ref
    return make_ring(ctx, refs), jax.eval_shape(lambda refs: first_own(ctx, {}, refs), refs), refs


def size_of(tree):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


ALLOCATE = (
    "env.task=allocate",
    "data.source=synthetic",
    "data.synthetic_sessions=5",
    "env.window=2",
    "data.markets=[MES,MNQ]",
)
FOUR = (*ALLOCATE, "data.markets=[MES,MNQ,MYM,M2K]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sets", "promised"),
    [
        (["env.task=manage"], 64),
        (["env.task=advised"], 116),
        (["env.task=entry"], 64),
        (["dqn.replay=uniform"], 56),
        ([*ALLOCATE, "allocate.preset=dual_26"], 116),
        (ALLOCATE, 156),
        ([*FOUR, "allocate.actions=increment"], 252),
        (FOUR, 268),
    ],
)
def test_a_transition_takes_as_many_bytes_as_promised(sets, promised):
    """With the priorities; the tree has a node more where a level is odd, and a row four bytes for
    its version. Account and mask of `allocate` grow with the preset and the number of actions.
    """
    config = load_config(None, [*SETS, *sets])
    _, own, _ = shapes_of(config)
    found = size_of((own.replay.rows, own.priorities))
    assert found / MILLION == pytest.approx(promised, abs=0.01)
    assert transition_bytes(config) == promised
    assert size_of(own.replay.version) == 4 * MILLION // 64


def test_a_million_transitions_are_64_compiled_megabytes():
    """Arguments and results of the compiled `add`, the replay donated: it is written in place."""
    of, own, refs = shapes_of(dqn_config("env.task=manage", "dqn.replay=uniform"))

    def stacked(x):
        return jax.ShapeDtypeStruct((of.num_steps, *x.shape), x.dtype)

    number = {
        name: jax.ShapeDtypeStruct((of.num_steps, of.num_envs), kind)
        for name, kind in (
            ("first", bool),
            ("action", jnp.int32),
            ("reward", jnp.float32),
            ("terminated", bool),
            ("truncated", bool),
        )
    }
    seen = Transition(
        ref=jax.tree.map(stacked, refs), final_ref=jax.tree.map(stacked, refs), info=None, **number
    )
    program = jax.jit(lambda replay, seen: add(of, replay, seen, jnp.int32(0)), donate_argnums=0)
    used = program.lower(own.replay, seen).compile().memory_analysis()
    rollout = size_of(seen)
    assert (used.argument_size_in_bytes - rollout) / MILLION == pytest.approx(56, abs=0.5)
    assert used.alias_size_in_bytes >= 56 * MILLION
    assert used.temp_size_in_bytes < 2 * rollout


def test_a_million_transitions_under_eight_agents_are_refused_with_the_size_that_fits():
    """8 agents x 2 copies x 64 bytes x 1,048,576: 1.07 GB. The machine has 1.5 GB, of which the
    rest takes most.
    """
    config = dqn_config("train.num_seeds=8", "env.task=manage")
    with pytest.raises(ConfigError) as caught:
        memory.check(config, 1_500_000_000, "this machine")
    assert not missing(
        str(caught.value),
        "replay 1.1 GB",
        "this machine has 1.5 GB",
        "dqn.buffer_size (1,048,576)",
        "its 8 agents",
        "train.num_seeds",
    )
    found = re.search(r"dqn\.buffer_size=(\d+)", str(caught.value))
    assert found is not None
    largest = int(found[1])
    assert largest % 2048 == 0
    memory.check(
        dqn_config("train.num_seeds=8", "env.task=manage", f"dqn.buffer_size={largest}"),
        1_500_000_000,
        "it",
    )
    with refused("the run needs"):
        memory.check(
            dqn_config("train.num_seeds=8", "env.task=manage", f"dqn.buffer_size={largest + 2048}"),
            1_500_000_000,
            "it",
        )


def test_where_no_replay_fits_the_message_names_what_to_lower():
    config = dqn_config("rollout.num_envs=4096", "train.num_seeds=8", "dqn.batch_size=4096")
    rest = (memory.estimate_memory(config) - COPIES * 8 * MILLION * 64) / memory.FACTOR
    with refused("replay", "dqn.buffer_size", "train.num_seeds") as caught:
        memory.check(config, int(rest) + 1000, "this machine")
    assert "dqn.buffer_size=" not in str(caught.value)
