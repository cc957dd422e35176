"""What the episode monitor costs the training loop: nothing of it, counted on the device, with its
files as well.

A repeat is a compiled chunk of PPO updates with what the loop does after it: rows of metrics go to
`metrics.jsonl`.
`off` does no more. `counted` has the monitor in its program, and its means among the metrics. `files` writes
`monitor.csv` and TensorBoard's event files too, all that a run does by default. Every side is a process of its own, as
a run is, and sides take turns; all are started anew several times, since one and the same program may be some percent
slower in one process than in another. `pairs` are ratios of neighbouring repeats: their median and its 90 % bootstrap
interval, over launches and their pairs.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax

from jaxtrade.config import RunConfig
from jaxtrade.rl.ppo import make_ppo
from jaxtrade.runs.monitoring import monitor_sink, summary_of
from jaxtrade.storage.compiling import Programs
from jaxtrade.storage.monitor import ROWS, ended_episodes
from jaxtrade.storage.sinks import JsonlSink, MetricSink, TensorBoardSink
from jaxtrade.training.chunk import compile_chunk
from jaxtrade.training.population import Stack
from jaxtrade.training.run_io import RunIO

from . import harness, setting
from .advisor import LEVEL, paired
from .catalogue import Options
from .harness import Sample, Side
from .learning import learning_of
from .worker import Worker

SIDES = ("off", "counted", "files")
PAIRS = 40  # at least, whatever --repeats says
LAUNCHES = 4  # of all processes; each has its share of the pairs
UPDATES = 5  # of a chunk
PPO = {"num_envs": 256, "num_steps": 64}  # as the shipped quickstart
QUICK_PPO = {"num_envs": 16, "num_steps": 16, "num_minibatches": 2, "hidden": [8]}
SESSIONS_QUICK = 2


def config_of(side: str, quick: bool) -> RunConfig:
    """The shared configuration. Episodes start anywhere in a session, so some end in every
    update.
    """
    return setting.config(
        SESSIONS_QUICK if quick else setting.SESSIONS,
        ppo=QUICK_PPO if quick else PPO,
        train={"chunk_updates": UPDATES},
        monitor={"on": side != "off", "csv": side == "files"},
    )


class Loop:
    """One side: its program, its state and its sinks. Calling it is one repeat."""

    def __init__(self, side: str, quick: bool, folder: Path) -> None:
        config = config_of(side, quick)
        world = setting.world(
            SESSIONS_QUICK if quick else setting.SESSIONS, ppo=QUICK_PPO if quick else PPO
        )
        self.params = world.params.replace(monitor=config.monitor.on)
        algorithm = make_ppo(config, world.env, 100_000, summarise=summary_of(config, world.market))
        sinks: list[MetricSink] = [JsonlSink(folder / "metrics.jsonl")]
        if side == "files":
            sinks += [
                TensorBoardSink(folder / "tensorboard"),
                monitor_sink(folder, config, world.market, None),
            ]
        self.io, self.done, self.stack, self.rows = RunIO(sinks), 0, Stack(), 0
        self.state = jax.jit(algorithm.init)(jax.random.key(0), self.params)
        with Programs() as programs:
            self.chunk = compile_chunk(programs, algorithm, UPDATES, self.state, self.params)

    def __call__(self) -> dict[str, Any]:
        self.state, metrics, _ = self.chunk(self.state, self.params)
        ended = ended_episodes(metrics.pop(ROWS, None), self.done, 1)
        self.io.write(
            [
                {
                    "update": self.done + i + 1,
                    "steps": self.done + i + 1,
                    **self.stack.row({name: values[i] for name, values in metrics.items()}),
                }
                for i in range(UPDATES)
            ]
        )
        self.io.episodes(ended)
        self.done += UPDATES
        self.rows += sum(len(each.rows) for each in ended)
        return {"rows": self.rows, "updates": self.done}

    def close(self) -> None:
        for sink in self.io.sinks:
            sink.close()


def loop(side: str, quick: bool, folder: str) -> Loop:
    """For `Worker`."""
    Path(folder).mkdir()
    return Loop(side, quick, Path(folder))


def launch(quick: bool, repeats: int) -> tuple[dict[str, list[Sample]], dict[str, Any]]:
    """New processes of all sides -> their repeats in turns, and what `files` has written."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workers = {
            side: stack.enter_context(
                Worker(
                    "monitor", "loop", {"side": side, "quick": quick, "folder": str(folder / side)}
                )
            )
            for side in SIDES
        }

        def repeat(worker: Worker) -> Sample:
            return worker.run().sample

        samples = harness.interleave(
            {name: Side(partial(repeat, worker), 0) for name, worker in workers.items()}, repeats
        )
        return samples, workers["files"].run().answer


def run(options: Options) -> dict[str, Any]:
    launches = 1 if options.quick else LAUNCHES
    repeats = -(-(options.repeats if options.quick else max(options.repeats, PAIRS)) // launches)
    ppo = learning_of(config_of("off", options.quick))
    samples, written = map(
        list, zip(*(launch(options.quick, repeats) for _ in range(launches)), strict=True)
    )
    steps = UPDATES * ppo.num_envs * ppo.num_steps
    summaries = {
        name: harness.summary([sample for taken in samples for sample in taken[name]], steps)
        for name in SIDES
    }
    return {
        "config": ppo.model_dump(
            include={"num_envs", "num_steps", "num_minibatches", "num_epochs", "hidden"},
            mode="json",
        )
        | {
            "sessions": config_of("off", options.quick).data.synthetic_sessions,
            "chunk_updates": UPDATES,
            "launches": launches,
            "repeats": repeats * launches,
            "threads": harness.cores(),
            "episodes_per_update": harness.rounded(
                sum(each["rows"] for each in written) / sum(each["updates"] for each in written)
            ),
            "interval": f"{LEVEL:.0%} bootstrap of the median of ratios of neighbours, by launch",
        },
        "sides": summaries,
        "ratios": {f"{name}/off": harness.ratio(summaries, name, "off") for name in SIDES[1:]},
        "pairs": {f"{name}/off": paired(samples, name, "off") for name in SIDES[1:]},
    }
