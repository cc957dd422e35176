"""What an advisor costs the training loop: off, silent, answering at once, slowly and never, over
both transports.

A repeat is a compiled chunk of PPO updates with what stands between chunks: the advice that became
known goes in, the bars most wanted come out. `off` has no advice in its program, `none` the same
program with an empty table. The live sides ask a mock that takes 0.1 ms, 3 s or for ever, through
the whole service (queue, workers, limits, statistics, journal); answering costs it nothing,
handling its answers is in the times. Every side is a process of its own, as a run is, and sides
take turns of a second or so: a machine that others use too changes its speed over longer ones. All
are started anew several times, since one and the same program may be some percent slower in one
process than in another.
`pairs` are ratios of neighbouring repeats: their median and its 90 % bootstrap interval, over launches and their pairs.
`loop`: milliseconds that a call from the training thread takes, `none` and live, where chunks
    follow each other as in a
run, each side's after all turns.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrade.advisor.table import empty_table
from jaxtrade.config import RunConfig
from jaxtrade.env.summary import summarise
from jaxtrade.rl.listening.fusion import make_fusion
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.advice import TrainingAdvisor, view_of
from jaxtrade.storage.compiling import Programs
from jaxtrade.training.chunk import compile_chunk

from . import harness, setting
from .catalogue import Options
from .harness import Sample, Side
from .learning import learning_of
from .worker import Worker

PAIRS = 40  # at least, whatever --repeats says
LAUNCHES = 4  # of all processes; each has its share of the pairs and of the stretch
STRETCH = 200  # chunks of a side, one after the other but for launches, whose calls `loop` tells
UPDATES = 5  # of a chunk, the default of train.chunk_updates
PPO = {"num_envs": 256, "num_steps": 64}  # as the shipped quickstart
QUICK_PPO = {"num_envs": 16, "num_steps": 16, "num_minibatches": 2, "hidden": [8]}
SESSIONS_QUICK = 2
LIVE = {
    "0.1 ms": "mock:slow:0.0001/mock:random",
    "3 s": "mock:slow:3/mock:random",
    "hung": "mock:slow:inf/mock:random",
}
SIDES = {
    "exchange": {"none": "none", **LIVE},
    "callback": {"none": "none", "0.1 ms": LIVE["0.1 ms"]},
}
KINDS = {
    "off": ("off", "exchange"),
    **{
        f"{transport} {name}": (kind, transport)
        for transport, names in SIDES.items()
        for name, kind in names.items()
    },
}
ALONE = [f"exchange {name}" for name in SIDES["exchange"]]
LEVEL = 0.9


class Loop:
    """One side: its program, its state, and its advisor where it has one. Calling it is one
    repeat.
    """

    def __init__(self, kind: str, transport: str, quick: bool, folder: Path) -> None:
        config = config_of(kind, transport, quick)
        world, chosen = (
            setting.world(SESSIONS_QUICK if quick else setting.SESSIONS, ppo=ppo_of(quick)),
            config.advisor,
        )
        params = world.params
        self.advisor: TrainingAdvisor | None = None
        algorithm = make_ppo(
            config, world.env, 100_000, summarise=summarise, fusion=make_fusion(chosen, config.env)
        )
        if chosen.on:
            table = empty_table(len(world.market.bars))
            params = params.replace(advice=view_of(chosen, params.market.sessions, table, True))
            self.advisor = TrainingAdvisor(
                config, world.market, world.sessions, folder, lambda line: None
            )
            algorithm = self.advisor.exchange.wrap(algorithm)
        self.exchange = None if self.advisor is None else self.advisor.exchange
        self.params, self.done = params, 0
        self.state = jax.jit(algorithm.init)(jax.random.key(0), params)
        with Programs() as programs:
            self.chunk = compile_chunk(
                programs, algorithm, UPDATES, self.state, params, self._inputs(), self.exchange
            )

    def _inputs(self) -> Any:
        return None if self.exchange is None else self.exchange.inputs(self.done, UPDATES)

    def __call__(self) -> dict[str, Any]:
        began = time.perf_counter()
        inputs = self._inputs()
        spent = [time.perf_counter() - began]
        self.state, _, news = self.chunk(self.state, self.params, inputs)
        self.done += UPDATES
        began = time.perf_counter()
        if self.exchange is not None:
            self.exchange.receive(self.done, news)
        spent.append(time.perf_counter() - began)
        found = {} if self.advisor is None else self.advisor.bridge.statistics()
        return {
            "calls_ms": [1e3 * seconds for seconds in spent],
            "updates": self.done,
            **{name: int(found.get(name, 0)) for name in ("exchanges", "asked", "rows_handed_out")},
        }

    def close(self) -> None:
        if self.advisor is not None:
            self.advisor.close()


def loop(kind: str, transport: str, quick: bool, folder: str) -> Loop:
    """For `Worker`."""
    Path(folder).mkdir()
    return Loop(kind, transport, quick, Path(folder))


Launches = list[
    dict[str, list[Any]]
]  # of each launch: side -> its repeats, or what it said in each of a stretch


def paired(launches: Launches, ours: str, theirs: str) -> dict[str, Any]:
    """How many times as fast `ours` was in each pair of neighbours: median, and its interval by a
    bootstrap that draws launches, then pairs within each."""
    ratios = np.array(
        [
            [b.wall / a.wall for a, b in zip(each[ours], each[theirs], strict=True)]
            for each in launches
        ]
    )
    rng, (count, pairs) = np.random.default_rng(0), ratios.shape
    chosen = (
        rng.integers(count, size=(10_000, count, 1)),
        rng.integers(pairs, size=(10_000, count, pairs)),
    )
    low, high = np.quantile(
        np.median(ratios[chosen], axis=(1, 2)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    )
    return {
        "median": harness.rounded(float(np.median(ratios))),
        "pairs": ratios.size,
        "interval": [harness.rounded(float(low)), harness.rounded(float(high))],
    }


def calls(launches: Launches, name: str) -> dict[str, Any]:
    """Of chunks that follow each other: what the calls took, and what was asked until the last."""
    times = np.concatenate([answer["calls_ms"] for said in launches for answer in said[name]])
    total = {
        key: sum(said[name][-1][key] for said in launches)
        for key in ("exchanges", "updates", "asked", "rows_handed_out")
    }
    return {
        "calls": len(times),
        **{
            f"ms_p{share}": harness.rounded(float(np.quantile(times, share / 100)))
            for share in (50, 99)
        },
        "ms_longest": harness.rounded(float(times.max())),
        "exchanges_per_update": harness.rounded(total["exchanges"] / total["updates"]),
        "asked": total["asked"],
        "visible": total["rows_handed_out"],
    }


def ppo_of(quick: bool) -> dict[str, Any]:
    return QUICK_PPO if quick else PPO


def config_of(kind: str, transport: str, quick: bool) -> RunConfig:
    return setting.config(
        SESSIONS_QUICK if quick else setting.SESSIONS,
        ppo=ppo_of(quick),
        train={"chunk_updates": UPDATES},
        advisor={"kind": kind, "transport": transport, "fusion": "trust"},
    )


def launch(
    quick: bool, repeats: int, stretch: int
) -> tuple[dict[str, list[Sample]], dict[str, list[dict[str, Any]]]]:
    """New processes of all sides -> their repeats in turns, and what the loop's calls were in a
    stretch of each.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = {
            name: stack.enter_context(
                Worker(
                    "advisor",
                    "loop",
                    {
                        "kind": kind,
                        "transport": transport,
                        "quick": quick,
                        "folder": str(folder / name),
                    },
                )
            )
            for name, (kind, transport) in KINDS.items()
        }

        def repeat(worker: Worker) -> Sample:
            return worker.run().sample

        samples = harness.interleave(
            {name: Side(partial(repeat, worker), 0) for name, worker in workers.items()}, repeats
        )
        # The first chunk finds the caches full of the other sides.
        said = {
            name: [workers[name].run().answer for _ in range(1 + stretch)][1:] for name in ALONE
        }
        return samples, said


def run(options: Options) -> dict[str, Any]:
    launches = 1 if options.quick else LAUNCHES
    repeats = -(-(options.repeats if options.quick else max(options.repeats, PAIRS)) // launches)
    stretch = options.repeats if options.quick else STRETCH // LAUNCHES
    ppo = learning_of(config_of("off", "exchange", options.quick))
    samples, said = map(
        list, zip(*(launch(options.quick, repeats, stretch) for _ in range(launches)), strict=True)
    )
    pairs = {
        f"{transport} none/off": paired(samples, f"{transport} none", "off") for transport in SIDES
    }
    pairs |= {
        f"{transport} {name}/{transport} none": paired(
            samples, f"{transport} {name}", f"{transport} none"
        )
        for transport, names in SIDES.items()
        for name in names
        if name != "none"
    }
    loops = {name: calls(said, name) for name in ALONE}
    steps = UPDATES * ppo.num_envs * ppo.num_steps
    summaries = {
        name: harness.summary([sample for taken in samples for sample in taken[name]], steps)
        for name in KINDS
    }
    chosen = config_of("none", "exchange", options.quick)
    return {
        "config": ppo.model_dump(
            include={"num_envs", "num_steps", "num_minibatches", "num_epochs", "hidden"},
            mode="json",
        )
        | {
            "sessions": chosen.data.synthetic_sessions,
            "chunk_updates": UPDATES,
            "launches": launches,
            "stretch": stretch * launches,
            "demand": chosen.advisor.demand,
            "rows": chosen.advisor.rows,
            "workers": chosen.advisor.service.workers,
            "repeats": repeats * launches,
            "threads": harness.cores(),
            "interval": f"{LEVEL:.0%} bootstrap of the median of ratios of neighbours, by launch",
        },
        "sides": summaries,
        "ratios": {
            f"{name}/off": harness.ratio(summaries, name, "off")
            for name in summaries
            if name != "off"
        },
        "pairs": pairs,
        "loop": loops,
        "worst": {
            "ms_p99 of exchange": max(
                loops[f"exchange {name}"]["ms_p99"] for name in SIDES["exchange"] if name != "none"
            )
        },
    }
