"""Whole PPO training, rollout and epochs, of the same mathematics: ours, SB3's and the JAX peers'.

Two networks: `small` is 64-64 tanh with 4 epochs, `large` 256-256-128 ReLU with 10, each for policy
and value; batches of 256, 4 and 16 environments. Observations are not normalised on either side
(`sb3.arguments` says why). Every side does the same updates. On a CPU the comparison of each network
runs in a process of its own, with the number of XLA's compute threads that `jaxtrade train` chooses;
Stable-Baselines3 has the number of torch's that a trial finds worth it.

One repeat is one update; every side goes on from the state that its last update left, but for the
JAX peers, whose runs are of a few updates and begin anew; what they compute otherwise is under
`differences`.
"""

import itertools
import typing
from contextlib import ExitStack
from pathlib import Path

import jax
import yaml

from jaxtrade.config.running import Precision
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.xla_settings import threads_of

from . import harness, peers, sb3, setting
from .catalogue import PUREJAXRL_COMMIT, Options
from .device import side_name
from .harness import commit
from .learning import learning_of
from .worker import Worker, once

NETWORKS = yaml.safe_load("""
small: {hidden: [64, 64], activation: tanh, num_epochs: 4}
large: {hidden: [256, 256, 128], activation: relu, num_epochs: 10}
""")
SAME = yaml.safe_load("""
{num_shards: 1, normalise_observations: false, learning_rate: 0.0003, learning_rate_end: 0.0003}
""")
BATCH = 256
UPDATE = {"small": 4_096, "large": 2_048}  # steps of one update
COMPARED = (4, 16)
# Updates in one run of a peer, which begins from nothing: their start weighs less.
PEER_UPDATES = {"small": 4, "large": 2}


def config_of(network, num_envs, num_steps, batch=BATCH, precision="float32", **changed):
    """Return the shared market and task with `network`, and minibatches of `batch` rows."""
    ppo = SAME | NETWORKS[network] | {"num_envs": num_envs, "num_steps": num_steps} | changed
    ppo |= {"num_minibatches": num_envs * num_steps // batch}
    return setting.config(ppo=ppo, compute={"precision": precision})


def update_steps(config):
    """Environment steps of one update."""
    return config.num_envs * config.num_steps


def update_of(config):
    """One compiled update of a configuration."""
    world = setting.world_of(config)
    return setting.Update(make_ppo(world.config, world.env, 1_000), world.params)


def compared(quick, network):
    """Environments -> the configuration that every side trains with."""
    steps = 1_024 if quick else UPDATE[network]
    return {count: config_of(network, count, steps // count) for count in COMPARED}


def measured_apart(options, network):
    """Call `measure` in a process with the number of compute threads that `jaxtrade train` chooses.

    On an accelerator, it runs in this process.
    """
    checkout = str(options.purejaxrl.resolve()) if options.purejaxrl else None
    given = {"network": network, "quick": options.quick}
    given |= {"repeats": options.repeats, "checkout": checkout}
    if jax.devices()[0].platform != "cpu":
        return measure(**given)
    threads = threads_of(compared(options.quick, network)[COMPARED[-1]], harness.cores())
    return once("ppo_train.measure", given, variables={"NPROC": str(threads)})


def measure(network, quick, repeats, checkout):
    """Measure the compared sides with one network, interleaved -> `sides`, `ratios`, `left_out`."""
    options = Options(quick, repeats, checkout and Path(checkout))
    sides, left_out, told = {}, {}, {}
    threads = [1] if quick else sorted({1, harness.cores()})
    lacking = sb3.missing("sb3_contrib")
    with ExitStack() as stack:
        world = setting.world()
        path = stack.enter_context(sb3.taped(world.env.config, world.params))
        same = compared(quick, network)
        for count, config in same.items():
            sides[f"{network}/ours/{count}"] = harness.side(update_of(config))
            found, missing = peers.sides(config, world, PEER_UPDATES[network], options, stack)
            sides |= {f"{network}/{name}/{count}": side for name, side in found.items()}
            left_out |= {f"{network}/{name}/{count}": reason for name, reason in missing.items()}
            for side in found.values():  # a child starts with its first repeat: not in the trial
                side.run()
        for count, config in same.items():
            name, ppo = f"{network}/sb3_dummy/{count}", learning_of(config)
            if lacking:
                left_out[name] = lacking
                continue
            given = {"ppo": ppo.model_dump(mode="json"), "path": path, "threads": threads}
            worker = stack.enter_context(Worker("sb3", "trainer", given, threads[-1]))
            told[name] = worker.run().answer  # the number of its threads is chosen now
            sides[name] = harness.side(worker, update_steps(ppo))
        results = harness.compare(sides, repeats)
    for name, each in told.items():
        results[name] |= each
    return {"sides": results, "ratios": ratios(results), "left_out": left_out}


def ratios(results):
    """Return ours over every other side with the same network, by that side's name.

    The number of environments is also the same.
    """
    found = {}
    for name in results:
        network, side, count = name.split("/")
        if side != "ours":
            found[name] = harness.ratio(results, f"{network}/ours/{count}", name)
    return found


def run(options):
    """Sides are named network/side/environments."""
    small, large = (measured_apart(options, network) for network in NETWORKS)
    checkout = None if options.purejaxrl is None else commit(options.purejaxrl)
    config = {
        "networks": NETWORKS,
        "same": SAME,
        "batch": BATCH,
        "market": setting.config().data.market,
        "sessions": setting.SESSIONS,
        "task": setting.config().env.task,
        "purejaxrl": {"commit": checkout, "tested": PUREJAXRL_COMMIT[:7]},
    }
    merged = {key: small[key] | large[key] for key in small}
    differences = {"sb3": sb3.DIFFERENCES, **peers.DIFFERENCES}
    told = {name: list(listed) for name, listed in differences.items()}
    return {"config": config, **merged, "differences": told}


# ---------------------------------------------------------------------------- parts of `device`
def updates_of(shape, precision="float32"):
    """Return the update of a shape of `device`, with products of a precision."""
    *counts, num_epochs = shape
    return update_of(config_of(*counts, precision, num_epochs=num_epochs))


def on_device(shapes, repeats):
    """Whole updates of each shape."""
    sides = {side_name(shape): harness.side(updates_of(shape)) for shape in shapes}
    return {"sides": harness.compare(sides, repeats)}


def by_precision(shapes, repeats):
    """Measure whole updates by the precision of products.

    `distance`: of the first update from that in float32.
    """
    float32, *others = typing.get_args(Precision)
    sides, firsts = {}, {}
    for shape, name in itertools.product(shapes, (float32, *others)):
        side, update = f"{side_name(shape)}/{name}", updates_of(shape, name)
        before = harness.row_of(update.state.params)
        update()
        firsts[side] = harness.row_of(update.state.params) - before
        sides[side] = harness.side(update)
    results = harness.compare(sides, repeats)
    ratios, distances = {}, {}
    for shape, name in itertools.product(map(side_name, shapes), others):
        own, exact = f"{shape}/{name}", f"{shape}/{float32}"
        ratios[f"{shape}: {name}/{float32}"] = harness.ratio(results, own, exact)
        distances[f"{shape}: {name}"] = harness.distance(0.0, firsts[own], firsts[exact])
    return {"sides": results, "ratios": ratios, "distance": distances}


def memory_of(shape):
    """Return the memory of one update, alone in the process.

    It is the temporaries of the compiled program, and the device's own count of its greatest use.
    """
    update = updates_of(shape)
    jax.block_until_ready(update())
    found = setting.temporary_bytes(update.program, update.steps)
    counted = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in counted:
        found["peak_device_bytes"] = counted["peak_bytes_in_use"]
    return found
