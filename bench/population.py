"""Many seeds in one program against the same number of runs one after the other.

`steady`: start-up and compilation excluded. N agents as one compiled program, against one agent's
compiled program; N runs in turn with it take N times as long as one, so they have the same steps
per second. `fresh`: everything included. A process starts, makes the market, compiles, trains and
ends; N runs in turn are N such processes, so one is measured and counted N times. The runs in turn
may load their programs from a persistent cache that an earlier one has filled (`cached`, what
`jaxtrade train` does) or must compile (`cold`); the one program always compiles.
"""

import tempfile
from collections import namedtuple
from functools import partial

import jax

from jaxtrade.config import TrainConfig
from jaxtrade.training.loop import train
from jaxtrade.training.population import Stack

from . import harness, setting
from .device import NO_CACHE, SIZES, kept_in
from .worker import once

SEEDS = (1, 16, 64)
UPDATES = 5  # 10,240 steps of each seed


# Some agents as one program. init: (keys, params) -> state; update: (state, params) -> (state,
# metrics), and it is compiled.
Agents = namedtuple("Agents", "stack init update params")


def agents_of(num_seeds, ppo, sessions):
    """`num_seeds` agents whose update is compiled."""
    world = setting.world(sessions, ppo=ppo)
    stack = Stack.of(num_seeds)
    agents = stack.wrap(setting.learner(world, 100))
    init = jax.jit(agents.init)
    like = jax.eval_shape(init, stack.keys(0), world.params)
    update = jax.jit(lambda state, params: agents.update(state, params, None))
    return Agents(stack, init, update.lower(like, world.params).compile(), world.params)


def on_device(counts, ppo, sessions, repeats):
    """Measure updates of each number of agents as one program, and their ratios over one agent.

    The part of `device`, too.
    """

    def side(count):
        agents = agents_of(count, ppo, sessions)
        state = agents.init(agents.stack.keys(0), agents.params)
        steps = count * ppo["num_envs"] * ppo["num_steps"]
        return harness.side(lambda: agents.update(state, agents.params), steps)

    one, *others = names = {f"steady together@{n}": n for n in counts}
    found = harness.compare({name: side(n) for name, n in names.items()}, repeats)
    what = "together/in turn, start-up and compilation excluded"
    ratios = {f"{names[name]} {what}": harness.ratio(found, name, one) for name in others}
    return {"sides": found, "ratios": ratios}


def trainer(num_seeds, ppo, sessions, updates):
    """Train `num_seeds` agents in a child, as `jaxtrade train` does but for its files.

    Returns environment steps per second.
    """
    world = setting.world(sessions, ppo=ppo)
    steps = updates * ppo["num_envs"] * ppo["num_steps"]
    config = TrainConfig(total_timesteps=steps, num_seeds=num_seeds, chunk_updates=updates)
    learner, key = setting.learner(world, updates), Stack.of(num_seeds).keys(0)
    return train(learner, world.params, config=config, key=key).steps_per_second


def fresh(cache=None, **given):
    """Time a process from start to end, by this process's clock; CPU seconds are its own."""
    variables = kept_in(cache) if cache else NO_CACHE
    return harness.of_children(once, "population.trainer", given, variables=variables)[0]


def run(options):
    counts, ppo, updates, sessions = (
        ((1, 4), SIZES["tiny"], 2, 8)
        if options.quick
        else (SEEDS, SIZES["seeds"], UPDATES, setting.SESSIONS)
    )
    found = on_device(counts, ppo, sessions, options.repeats)
    _, *many = counts
    given = {"ppo": ppo, "sessions": sessions, "updates": updates}
    with tempfile.TemporaryDirectory() as cache:
        work = {f"together@{n}": partial(fresh, num_seeds=n, **given) for n in many}
        work["one cold"] = alone = partial(fresh, num_seeds=1, **given)
        work["one cached"] = cached = partial(alone, cache=cache)
        cached()  # fills the cache
        whole = harness.timed(work, options.repeats)
    ratios = {
        f"{n} together/in turn {kind}, all included": harness.sooner(
            whole[f"together@{n}"], whole[f"one {kind}"], n
        )
        for n in many
        for kind in ("cold", "cached")
    }
    return {
        "config": {
            "seeds": list(counts),
            "steps_of_each_seed": updates * ppo["num_envs"] * ppo["num_steps"],
            "repeats": options.repeats,
            "threads": harness.cores(),
            **given,
        },
        "sides": found["sides"],
        "ratios": found["ratios"] | ratios,
        "fresh_seconds": whole,
    }
