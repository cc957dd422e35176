"""What an advisor costs the training loop: off, silent, at once, slow, never; both transports.

A repeat is a compiled chunk of PPO updates with what stands between chunks: the advice that became
known goes in, the bars most wanted come out. `off` has no advice in its program, `none` the same
program with an empty table. The live sides ask a mock that takes 0.1 ms, 3 s or for ever, through
the whole service (queue, workers, limits, statistics, journal). Every side is a process of its own,
as a run is, and sides take turns. One and the same program may be some percent slower in one process
than in another. Each ratio has a 90 % interval, of the repeats of both sides that stood side by side.
"""

import itertools
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import jax
import yaml

from jaxtrade.advisor.table import empty_table
from jaxtrade.env.monitor import summarise
from jaxtrade.rl.advice import make_fusion
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.advice import TrainingAdvisor, view_of
from jaxtrade.storage.host_arrays import to_host
from jaxtrade.training.loop import chunk_program

from . import harness, setting
from .worker import Worker

LEAST = 40  # repeats, whatever --repeats says: what is looked for is small
UPDATES = 5  # of a chunk, the default of train.chunk_updates
PPO = {"num_envs": 256, "num_steps": 64}  # as the shipped quickstart
QUICK_PPO = {"num_envs": 16, "num_steps": 16, "num_minibatches": 2, "hidden": [8]}
# Name -> kind, transport, and the side that it is compared with.
SIDES = yaml.safe_load("""
"off": ["off", exchange, ""]
exchange none: [none, exchange, "off"]
exchange 0.1 ms: [mock:slow:0.0001/mock:random, exchange, exchange none]
exchange 3 s: [mock:slow:3/mock:random, exchange, exchange none]
exchange hung: [mock:slow:inf/mock:random, exchange, exchange none]
callback none: [none, callback, "off"]
callback 0.1 ms: [mock:slow:0.0001/mock:random, callback, callback none]
""")


def repeated(kind, transport, ppo, folder):
    """For `Worker`: a side with its program, its state, and its advisor where it has one."""
    Path(folder).mkdir()
    advisor = {"kind": kind, "transport": transport, "fusion": "trust"}
    world = setting.world(ppo=ppo, train={"chunk_updates": UPDATES}, advisor=advisor)
    config, params, chosen = world.config, world.params, world.config.advisor
    fusion, exchange = make_fusion(chosen, config.env), None
    algorithm = make_ppo(config, world.env, 100_000, summarise=summarise, fusion=fusion)
    with ExitStack() as stack:
        if chosen.on:
            table = empty_table(len(world.market.bars))
            params = params.replace(advice=view_of(chosen, params.market.sessions, table, True))
            given = config, world.market, world.sessions, Path(folder), lambda line: None
            exchange = stack.enter_context(closing(TrainingAdvisor(*given))).exchange
            algorithm = exchange.wrap(algorithm)
        inputs = exchange.inputs if exchange else lambda done, updates: None
        state = jax.jit(algorithm.init)(jax.random.key(0), params)
        program = chunk_program(algorithm, UPDATES, exchange)
        chunk = program.lower(state, params, inputs(0, UPDATES)).compile()
        for done in itertools.count(UPDATES, UPDATES):
            yield
            state, metrics, news = chunk(state, params, inputs(done - UPDATES, UPDATES))
            jax.block_until_ready(state)
            _, news = to_host((metrics, news))
            if exchange:
                exchange.receive(done, news)


def run(options):
    ppo = QUICK_PPO if options.quick else PPO
    steps = UPDATES * ppo["num_envs"] * ppo["num_steps"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sides = {}
        for name, (kind, transport, _) in SIDES.items():
            given = {"kind": kind, "transport": transport, "ppo": ppo}
            given |= {"folder": f"{folder}/{name}"}
            worker = stack.enter_context(Worker("advisor", "repeated", given))
            sides[name] = harness.side(worker, steps)
        repeats = max(options.repeats, 2 if options.quick else LEAST)
        taken = harness.interleave(sides, repeats)
    found = {name: harness.summary(samples, steps) for name, samples in taken.items()}
    ratios = {
        f"{a}/{b}": harness.ratio(found, a, b) | harness.paired(taken[a], taken[b])
        for a, (_, _, b) in SIDES.items()
        if b
    }
    return {
        "config": ppo | {"chunk_updates": UPDATES, "repeats": repeats, "threads": harness.cores()},
        "sides": found,
        "ratios": ratios,
    }
