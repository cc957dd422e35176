"""Environment steps without a policy: our compiled loop, SB3 over the NumPy twin, the twin, gymnax.

Our compiled loop is measured by number of environments, SB3's vector environments over the NumPy
twin, the twin alone, and gymnax's own rollout over our gymnax interface. Random legal actions on
every side (gymnax's rollout draws from all of them, and the environment plays an illegal one as
HOLD).

Observations: the sweep is of `WRITTEN` ones, written to memory and read by a matrix product, as a
network's first layer does; at a few sizes the loop is also run without any (`UNSEEN`), and confined
to one core. Every side of SB3 gives its observations to the caller.
"""

import os
from contextlib import ExitStack
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import yaml
from gymnax.experimental.rollout import RolloutWrapper

from jaxtrade.interop.gymnax_env import to_gymnax

from . import harness, sb3, setting
from .worker import Worker

# What becomes of the observations of a step: float32[N, D] is written and read; every slot is
# computed and enters a sum, and a compiler need not write it; none is built.
WRITTEN, SUMMED, UNSEEN = "written", "summed", "unseen"


# How much is run. steps: environment steps of ours per repeat, whatever the number of environments.
# looked_at: unseen, and on one core. dummy, subproc: numbers of environments; `_steps`: of each
# environment. gymnax: environments and steps.
SCALES = yaml.safe_load("""
full:
  sessions: 78
  steps: 1048576
  sweep: [64, 256, 1024, 4096, 16384, 65536]
  looked_at: [1024, 4096]
  dummy: [1, 4, 8, 16]
  subproc: [2, 8]
  bare_steps: 100000
  dummy_steps: 3000
  subproc_steps: 500
  gymnax: [1024, 64]
quick: {sessions: 4, steps: 65536, sweep: [1024], looked_at: [1024], dummy: [1, 16], subproc: [2],
        bare_steps: 10000, dummy_steps: 300, subproc_steps: 50, gymnax: [256, 32]}
""")


# ---------------------------------------------------------------------------------------- our loop
def look(env, refs, params, observations):
    """float32[] of all that is seen at `refs` of N environments."""
    if observations == UNSEEN:
        return jnp.float32(0)
    seen = jax.vmap(env.observe, (0, None))(refs, params)
    if observations == SUMMED:
        return jnp.sum(seen)
    weights = jnp.linspace(-1.0, 1.0, seen.shape[1])[:, None]
    return jnp.sum(seen @ weights)


def started(env, params, num_envs):
    """N environments at drawn starts."""
    keys = jax.random.split(jax.random.key(0), num_envs)
    return *jax.vmap(env.reset, (0, None))(keys, params), jax.random.key(1)


class Loop:
    """Compiled steps of the environment, with auto-reset: a call goes on where the last one ended.

    It takes `num_steps` steps of `num_envs` environments, and returns the sum of what was seen and
    paid. cost: operations and bytes per environment step, as XLA's analysis counts them (the body
    of a loop once; integer operations too; what several fusions compute again, once more each;
    bytes whether from a cache or not).
    """

    def __init__(self, env, params, num_envs, num_steps, observations):
        self._params = params
        self._carry = jax.jit(started, static_argnums=(0, 2))(env, params, num_envs)

        def run(params, carry):
            def step(carry, chances):
                states, refs, key = carry
                seen = look(env, refs, params, observations)
                actions = jax.vmap(setting.choose)(refs.mask, chances)
                states, refs, outcome = jax.vmap(env.step, (None, 0, 0, None))(
                    key, states, actions, params
                )
                return (states, refs, key), seen + jnp.sum(outcome.reward)

            states, refs, key = carry
            key, key_act = jax.random.split(key)
            chances = jax.random.uniform(key_act, (num_steps, num_envs))
            carry, sums = jax.lax.scan(step, (states, refs, key), chances)
            return carry, jnp.sum(sums)

        self._program = jax.jit(run, donate_argnums=1).lower(params, self._carry).compile()
        counted = self._program.cost_analysis()
        named = {"operations": "flops", "bytes": "bytes accessed"}
        self.cost = {name: counted[key] / num_envs for name, key in named.items()}

    def __call__(self):
        self._carry, total = self._program(self._params, self._carry)
        return total


def one_core(sessions, num_envs, num_steps):
    """For `Worker`: a `Loop` in a process that may use one core and one compute thread."""
    core = min(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    os.environ["NPROC"] = "1"  # XLA's own count of threads, read when JAX starts
    world = setting.world(sessions)
    work = Loop(world.env, world.params, num_envs, num_steps, WRITTEN)
    yield 0.0
    while True:
        yield work().item()


def loop_side(world, steps, num_envs, mode, kind):
    """Return the side of `steps` environment steps of ours in a repeat, and what it is.

    `steps` is the same whatever the number of environments.
    """
    num_steps = steps // num_envs
    work = Loop(world.env, world.params, num_envs, num_steps, mode)
    about = {"kind": kind, "num_envs": num_envs, "num_steps": num_steps, "observations": mode}
    return harness.side(work, num_envs * num_steps), about | {"per_env_step": work.cost}


def on_device(sizes, steps, sessions, repeats):
    """Measure the environment alone by number of environments: the part of `device`.

    Observations are written and summed.
    """
    world = setting.world(sessions)
    found = {
        f"{kind}_{size}": loop_side(world, steps, size, mode, kind)
        for mode, kind in ((WRITTEN, "ours"), (SUMMED, "ours_summed"))
        for size in sizes
    }
    return compared(found, repeats)


def compared(found, repeats):
    """Return `sides`, and the best of our sweep.

    cores_used: what shows that a side confined to one core was. found: name -> side, and what it
    is.
    """
    speeds = harness.compare({name: side for name, (side, _) in found.items()}, repeats)
    sides = {}
    for name, (_, about) in found.items():
        wall, cpu = (speeds[name][f"steps_per_{key}"] for key in ("second", "cpu_second"))
        sides[name] = about | speeds[name] | {"cores_used": wall / cpu}
    ours = [name for name in sides if sides[name]["kind"] == "ours"]
    return {"sides": sides, "best": max(ours, key=lambda name: sides[name]["steps_per_second"])}


# ------------------------------------------------------------------------------------- the bench
def run(options):
    """See `catalogue`. Ratios are of the best of the sweep, by wall seconds."""
    scale = SimpleNamespace(**SCALES["quick" if options.quick else "full"])
    world, steps = setting.world(scale.sessions), scale.steps
    found = {f"ours_{n}": loop_side(world, steps, n, WRITTEN, "ours") for n in scale.sweep}
    for n in scale.looked_at:
        found[f"ours_unseen_{n}"] = loop_side(world, steps, n, UNSEEN, "ours_unseen")
    num_envs, num_steps = scale.gymnax
    wrapper = RolloutWrapper(env=to_gymnax(world.env, world.params), num_env_steps=num_steps)
    keys = jax.random.split(jax.random.key(0), num_envs)
    found[f"gymnax_rollout_{num_envs}"] = (
        harness.side(lambda: wrapper.batch_rollout(keys, None), num_envs * num_steps),
        {"kind": "gymnax", "num_envs": num_envs, "num_steps": num_steps, "observations": WRITTEN},
    )
    with ExitStack() as stack:
        others, left_out = in_children(world, scale, stack)
        result = compared(found | others, options.repeats)
    best, sides = result["best"], result["sides"]
    return result | {
        "config": {
            "task": "manage, relative scaling",
            "observation_size": world.env.observation_size,
            "sessions": scale.sessions,
            "repeats": options.repeats,
        },
        "ratios": {
            f"{best} / {name}": harness.ratio(sides, best, name)
            for name in sides
            if not sides[name]["kind"].startswith("ours")
        },
        "left_out": left_out,
    }


def in_children(world, scale, stack):
    """Measure our loop on one core, SB3's vector environments over the twin, and the twin alone.

    Our loop runs in processes that may use one core. Also returns what is left out, with its
    reason.
    """
    path = stack.enter_context(sb3.taped(world.config.env, world.params))
    found, left_out = {}, {}

    def add(name, work, missing, about, **given):
        if missing:
            left_out[name] = missing
        else:
            worker = stack.enter_context(Worker(*work.split("."), given, threads=1))
            found[name] = harness.side(worker, about["num_envs"] * about["num_steps"]), about

    for num_envs in scale.looked_at:
        given = {"num_envs": num_envs, "num_steps": scale.steps // 2 // num_envs}
        about = {"kind": "ours_one_core", "observations": WRITTEN, **given}
        given |= {"sessions": scale.sessions}
        name = f"ours_one_core_{WRITTEN}_{num_envs}"
        add(name, "env_step.one_core", not_confined(), about, **given)
    about = {"kind": "bare", "num_envs": 1, "num_steps": scale.bare_steps}
    add("twin", "sb3.bare", sb3.missing("psutil"), about, path=path, num_steps=scale.bare_steps)
    missing = sb3.missing("stable_baselines3", "sb3_contrib", "psutil")
    for kind, sizes, num_steps in (
        ("dummy", scale.dummy, scale.dummy_steps),
        ("subproc", scale.subproc, scale.subproc_steps),
    ):
        for num_envs in sizes:
            about = {"kind": kind, "num_envs": num_envs, "num_steps": num_steps}
            add(f"sb3_{kind}_{num_envs}", "sb3.stepped", missing, about, path=path, **about)
    return found, left_out


def not_confined():
    """Why a side cannot be confined to one core; empty where it can."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system cannot confine a process to a core (no sched_setaffinity)"
    platform = jax.default_backend()
    return "" if platform == "cpu" else f"the environment runs on {platform}, not on a core"
