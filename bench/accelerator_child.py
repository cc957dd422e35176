"""Compile a program for a described device and write its figures: `accelerator_child.py TARGET
SHAPE OUT [FLAGS]`.

FLAGS: `quick` compiles a small shape, `code` uses the benches of the checkout that is compiled.

A process of its own, because the environment variables of each platform must be set before JAX
starts. It uses of jaxtrade only what earlier versions have too, so that `--code` can compile those.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REFERENCE = {"num_envs": 4096, "num_steps": 128, "num_minibatches": 16, "hidden": (256, 256, 128)}
SHAPES: dict[str, dict[str, Any]] = {
    "reference": REFERENCE,
    "tf32": REFERENCE,
    "bfloat16": REFERENCE,
    "default": {"num_envs": 256, "num_steps": 128, "num_minibatches": 8},
    "gru": {"num_envs": 1024, "num_steps": 128, "num_minibatches": 8, "kind": "gru"},
    "env": {"num_envs": 4096, "num_steps": 128},
    "evaluation": {"num_envs": 256, "num_steps": 128},
}
Q_SHAPES: dict[str, dict[str, Any]] = {  # one update of a Q-learner, on the work of `default`
    "dqn": {"dqn": {"buffer_size": 1_048_576, "batch_size": 4096}},
    "dqn_prioritised": {
        "dqn": {"buffer_size": 1_048_576, "batch_size": 4096, "replay": "prioritised"}
    },
    "pqn": {"pqn": {"num_minibatches": 8}},
}
Q_ROLLOUT = {"num_envs": 256, "num_steps": 128}
LEARNING = ("reference", "tf32", "bfloat16", "default", "gru")
PRECISIONS = (
    "tf32",
    "bfloat16",
)  # shapes that are called by their precision; all others are float32
QUICK = {"num_steps": 4, "num_minibatches": 2}
SESSIONS = 8  # of the market: its length is in no count, and a table of windows takes memory


class Work(NamedTuple):
    """A function, shapes of its arguments, the environment steps of one run, and which argument it
    may overwrite.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    steps: int
    donated: tuple[int, ...] = ()


def own(name: str) -> Any:
    """A module of this folder, also where the package that is compiled is another version."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"jaxtrade_accelerator_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def benches(name: str) -> Any:
    """A module of the benches that belong to the package that is compiled: with `--code` those of
    that checkout.
    """
    return importlib.import_module(
        f"{'bench' if 'code' in sys.argv[4:] else 'jaxtrade.bench'}.{name}"
    )


def learner(world: Any, platform: str) -> Any:
    """PPO as `jaxtrade train` makes it."""
    make = benches("programs").learner
    told = {"platform": platform} if "platform" in inspect.signature(make).parameters else {}
    return make(world, 100, **told)


def update(world: Any, platform: str, steps: int) -> Work:
    """One update of PPO as `jaxtrade train` makes it."""
    import jax

    algorithm = learner(world, platform)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    return Work(
        lambda state, params: algorithm.update(state, params, None),
        (state, world.params),
        steps,
        (0,),
    )


def q_world(shape: str, quick: bool) -> tuple[Any, dict[str, int]]:
    """The world of a Q-learner's shape, and its rollout."""
    setting, rollout = benches("setting"), Q_ROLLOUT | ({"num_steps": 4} if quick else {})
    algorithm = shape.partition("_")[0]
    sections = {name: dict(values) for name, values in Q_SHAPES[shape].items()}
    if quick and algorithm == "dqn":
        sections["dqn"] |= {"batch_size": 128, "buffer_size": 65_536}
    config = setting.learner_config(algorithm, SESSIONS, rollout=rollout, **sections)
    return setting.world_of(config, SESSIONS), rollout


def q_update(world: Any, platform: str) -> Work:
    """One update of a Q-learner as `jaxtrade train` makes it."""
    import jax

    from jaxtrade.env.summary import summarise
    from jaxtrade.parts import LEARNERS

    algorithm = LEARNERS[world.config.algorithm].make(
        world.config, world.env, 100, summarise=summarise, platform=platform
    )
    state = jax.eval_shape(algorithm.init, jax.random.key(0), world.params)
    return Work(
        lambda state, params: algorithm.update(state, params, None),
        (state, world.params),
        algorithm.steps_per_update,
        (0,),
    )


def env_loop(world: Any, num_envs: int, num_steps: int) -> Work:
    """The environment alone, every slot of every observation summed."""
    import jax

    stepping = benches("programs").stepping(world.env, num_envs, num_steps)
    return Work(stepping, (world.params, jax.random.key(0)), num_envs * num_steps)


def evaluation(world: Any, platform: str) -> Work:
    """The greedy policy on all sessions, one bar after the other, as an evaluation plays them."""
    import jax
    import jax.numpy as jnp

    from jaxtrade.evaluation import agents, backtest

    algorithm = learner(world, platform)
    policy = jax.eval_shape(
        lambda: algorithm.policy(algorithm.init(jax.random.key(0), world.params))
    )
    agent, decisions = (
        agents.greedy(algorithm, policy, world.env),
        backtest.decision_bars(world.params.market, world.sessions),
    )
    bars = len(decisions.rows)
    if hasattr(backtest, "plan_of"):
        lane = backtest.Lane(
            agent, world.params.replace(sessions=world.sessions), decisions, jax.random.key(0)
        )
        plan = backtest.plan_of(world.env, [lane], "account")
        inputs = (
            plan.parts[0] if hasattr(plan, "parts") else plan.inputs
        )  # of an earlier version (`--code`)
        return Work(lambda inputs: backtest.step_all(plan.shape, inputs), (inputs,), bars)

    def run(carry: Any, params: Any, key: Any, renew: Any) -> Any:
        return backtest._scan(  # of an earlier version (`--code`)
            world.env, agent.act, agent.forget, bars, False, carry, params, key, renew
        )

    return Work(run, (agent.carry, world.params, jax.random.key(0), jnp.bool_(False)), bars)


def _with_tables(world: Any, platform: str) -> Any:
    """The world with its windows as a table, as on a TPU, if the package knows such tables."""
    if platform != "tpu" or not importlib.util.find_spec("jaxtrade.data.windows"):
        return world
    from jaxtrade.data.windows import with_tables

    market = world.params.market
    view = with_tables(market.view, world.config.env.window)
    return world._replace(params=world.params.replace(market=market.replace(view=view)))


def work_of(shape: str, platform: str, quick: bool) -> tuple[Work, dict[str, Any]]:
    """The program of a shape, and its configuration."""
    if shape in Q_SHAPES:
        world, chosen = q_world(shape, quick)
        return q_update(_with_tables(world, platform), platform), chosen
    chosen = SHAPES[shape] | (QUICK if quick else {})
    precision = {"compute": {"precision": shape}} if shape in PRECISIONS else {}
    world = _with_tables(benches("setting").world(SESSIONS, ppo=chosen, **precision), platform)
    if shape in LEARNING:
        return update(world, platform, chosen["num_envs"] * chosen["num_steps"]), chosen
    if shape == "env":
        return env_loop(world, chosen["num_envs"], chosen["num_steps"]), chosen
    return evaluation(world, platform), chosen


def topology(device: Any) -> Any:
    """The described device as JAX's compiler takes it."""
    from jax.experimental import topologies

    if device.platform == "tpu":
        return topologies.get_topology_desc(platform="tpu", topology_name=device.topology)
    return topologies.get_topology_desc(
        topology_name="1x1x1", platform="cuda", topology="1x1x1", target_config=device.target
    )


def phases(module: Any, chosen: dict[str, Any]) -> dict[str, int | float]:
    """Launches of the parts of an update: of one rollout step, of one minibatch, and of all loops
    between rollout and epochs, per time step. The rollout is the loop of its length with the most
    launches; the epochs are the loop that has the most."""
    outer = [loop for loop in module.loops() if not loop.path]
    rollout = max(
        (loop for loop in outer if loop.trips == chosen["num_steps"]), key=lambda loop: loop.own
    )
    epochs = max(outer, key=lambda loop: loop.own * (loop.trips or 1) * (loop.name != rollout.name))
    inner = max(
        (loop for loop in module.loops() if loop.path == (epochs.name,)), key=lambda loop: loop.own
    )
    after = sum(
        loop.own * (loop.trips or 1)
        for loop in outer
        if loop.name not in (rollout.name, epochs.name)
    )
    return {
        "rollout_step": rollout.own,
        "minibatch": inner.own,
        "after_rollout_per_step": round(after / chosen["num_steps"], 2),
    }


def device_bytes(tree: Any, where: Any) -> int:
    """Bytes of a tree's arrays as a device lays them out, with its padding. where: sharding."""
    import jax

    placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), tree)
    same = jax.jit(lambda tree: tree, donate_argnums=0, keep_unused=True)
    used: Any = same.lower(placed).compile().memory_analysis()
    return used.argument_size_in_bytes


def q_loops(loops: Sequence[Any], num_steps: int) -> tuple[Any, Any]:
    """(the loop over the rollout's steps, the loop over gradient steps) of `hlo.Module.loops`.

    The rollout is the outer loop of its length with the most launches. The gradient steps are the
    outer loop that has the most of all others, or the loop inside it that has nearly all of those
    (the minibatches of an epoch).
    """
    outer = [loop for loop in loops if not loop.path]
    rollout = max((loop for loop in outer if loop.trips == num_steps), key=lambda loop: loop.own)
    most = max(
        (loop for loop in outer if loop.name != rollout.name),
        key=lambda loop: loop.own * (loop.trips or 1),
    )
    inside = (
        loop
        for loop in loops
        if loop.path == (most.name,) and loop.own * (loop.trips or 1) >= 0.8 * most.own
    )
    return rollout, next(inside, most)


def q_phases(module: Any, chosen: dict[str, int], state: Any, where: Any) -> dict[str, int]:
    """Launches of a rollout step and of a gradient step, loops inside it included, and bytes of
    replay and priorities on the device."""
    rollout, step = q_loops(list(module.loops()), chosen["num_steps"])
    replay = (
        0 if state.own is None else device_bytes((state.own.replay, state.own.priorities), where)
    )
    return {"rollout_step": rollout.own, "gradient_step": step.own, "replay_bytes": replay}


def report(target: str, shape: str, quick: bool) -> dict[str, Any]:
    """Figures of the compiled program.

    launches: of one run; a loop whose length depends on the data counts as one round. row_loops:
        loops that the
    compiler made of look-ups, one round for each row. bytes: that the launches move. product_flops:
    of all matrix products as traced. temporaries: bytes beside arguments, results and the scratch
    of cuBLAS. cycles: the compiler's estimate, 0 for none. text_sha256: of the program's text.
    unread: in place of what this text says, why this version of JAX cannot read it.
    """
    import jax

    hlo, device = own("hlo"), own("described").DEVICES[target]
    work, chosen = work_of(shape, device.platform, quick)
    where = jax.sharding.SingleDeviceSharding(topology(device).devices[0])
    arguments = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), work.arguments
    )
    start = time.perf_counter()
    program = jax.jit(work.function, donate_argnums=work.donated).lower(*arguments).compile()
    seconds = time.perf_counter() - start
    found = {
        "steps": work.steps,
        "precision": shape if shape in PRECISIONS else "float32",
        "product_flops": benches("programs").matmul_flops(work.function, *work.arguments),
        "temporaries": program.memory_analysis().temp_size_in_bytes,
        "compile_seconds": round(seconds, 1),
    }
    try:
        text = program.as_text()
        module = hlo.parse(text)
    except (
        jax.errors.JaxRuntimeError
    ) as error:  # a compiler may know operations that this version of JAX does not
        return found | {"unread": str(error).splitlines()[0]}
    found["temporaries"] -= hlo.scratch(text)
    if shape in Q_SHAPES:
        found |= q_phases(module, chosen, work.arguments[0], where)
    else:
        found |= (
            phases(module, chosen)
            if shape in LEARNING
            else {"step": max(loop.own for loop in module.loops())}
        )
    return found | {
        "text_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "launches": module.launches(),
        "bytes": module.bytes(),
        "cycles": module.cycles(),
        "row_loops": sum(not loop.scope.endswith("while") for loop in module.loops()),
        "unknown_loops": sum(loop.trips is None for loop in module.loops()),
    }


if __name__ == "__main__":
    result = report(sys.argv[1], sys.argv[2], "quick" in sys.argv[4:])
    Path(sys.argv[3]).write_text(json.dumps(result), encoding="utf-8")
