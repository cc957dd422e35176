"""Whole PPO training, rollout and epochs: ours, Stable-Baselines3 and the JAX peers, with the same
mathematics.

Two networks: `small` is 64-64 tanh with 4 epochs, `large` 256-256-128 ReLU with 10, each for policy
and value; batches of 256. Observations are not normalised on either side (`sb3.arguments` says
why). At 4 and 16 environments every side does the same updates; Stable-Baselines3 also has its
whole range, and we have large batches, which are other mathematics and are compared with nobody. On
a CPU the comparison of each network runs in a process of its own, with the number of XLA's compute
threads that a trial of ours finds worth it; Stable-Baselines3 chooses torch's likewise.

`ceiling` is what the ratios would be if our side did nothing but its matrix products (`products`).

One repeat is one update; every side goes on from the state that its last update left, but for the
JAX peers, whose runs are of a few updates and begin anew; what they compute otherwise is under
`differences`.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrade.config import RunConfig
from jaxtrade.rl.ppo import make_ppo

from . import harness, peers, products, sb3, setting
from .catalogue import PUREJAXRL_COMMIT, Options
from .harness import Side
from .learning import Learning, learning_of
from .stamp import commit
from .tape import make_tape, save
from .worker import Reply, Worker

NETWORKS: dict[str, dict[str, Any]] = {
    "small": {"hidden": (64, 64), "activation": "tanh", "num_epochs": 4},
    "large": {"hidden": (256, 256, 128), "activation": "relu", "num_epochs": 10},
}
SAME: dict[str, Any] = {
    "num_shards": 1,
    "normalise_observations": False,
    "learning_rate": 3e-4,
    "learning_rate_end": 3e-4,
}
BATCH = 256
UPDATE = {"small": 4_096, "large": 2_048}  # steps of one update where the sides are compared
COMPARED = (4, 16)
PEER_UPDATES = {
    "small": 4,
    "large": 2,
}  # in one run of a peer, which begins from nothing: their start weighs less


class Own(NamedTuple):
    """One of our settings without a counterpart. slow: minutes an update on a CPU, so only
    accelerators run it.
    """

    network: str
    num_envs: int
    num_steps: int
    batch: int
    num_epochs: int
    slow: bool = False


OWN = (
    Own("small", 1_024, 32, 4_096, 4),
    Own("small", 4_096, 128, 65_536, 4),
    Own("large", 1_024, 32, 8_192, 4),
    Own(
        "large", 256, 128, 8_192, 4
    ),  # environments, steps and batch of the fork's published figure
    Own("large", 4_096, 128, 32_768, 4, slow=True),
    Own("large", 4_096, 128, 32_768, 10, slow=True),
)
QUICK_OWN = (Own("small", 256, 16, 1_024, 4),)
TRIAL_ROUNDS = 3
# Stable-Baselines3 alone: (kind, environments, steps of one update)
RANGE = (("dummy", 1, 1_024), ("dummy", 2, 2_048), ("dummy", 8, 4_096), ("subproc", 4, 2_048))

PUBLISHED = {
    "measured_here": False,
    "repository": "github.com/ipankaj18/RL-Trainer (commit a17ba1c)",
    "source": "figures that the repository states for its own JAX PPO, from its documents and run logs; other "
    "environment, hardware and network than here",
    "figures": [
        {
            "what": "PPO, phase 2, 256 environments, 100M steps",
            "device": "NVIDIA RTX 4000 Ada, 20 GB",
            "steps_per_second": 522_015,
        },
        {
            "what": "PPO, phase 1, 256 environments, 20M steps",
            "device": "NVIDIA RTX 4000 Ada, 20 GB",
            "steps_per_second": 167_601,
        },
        {
            "what": "PPO, phase 2, before a fix (recompiled in every update)",
            "device": "NVIDIA RTX 4000 Ada, 20 GB",
            "steps_per_second": 7_801,
        },
        {
            "what": "PPO, phase 1, before a fix (recompiled in every update)",
            "device": "NVIDIA RTX 4000 Ada, 20 GB",
            "steps_per_second": 10_483,
        },
    ],
}


def config_of(
    network: str, num_envs: int, num_steps: int, batch: int = BATCH, **changed: Any
) -> RunConfig:
    """The shared market and task with `network`, and minibatches of `batch` rows."""
    ppo = {
        **SAME,
        **NETWORKS[network],
        "num_envs": num_envs,
        "num_steps": num_steps,
        "num_minibatches": num_envs * num_steps // batch,
        **changed,
    }
    return setting.config(ppo=ppo)


def update_steps(config: Learning) -> int:
    """Environment steps of one update."""
    return config.num_envs * config.num_steps


class Update(NamedTuple):
    """One compiled update, which takes the state over: (state, params) -> (state, metrics); and
    what it begins with.
    """

    program: Any
    state: Any
    params: Any


def compiled_update(config: RunConfig) -> Update:
    """Compiled ahead of time, with a state of its own."""
    world = setting.world(ppo=learning_of(config).model_dump())
    algorithm = make_ppo(config, world.env, 1_000)
    step = jax.jit(lambda state, params: algorithm.update(state, params, None), donate_argnums=0)
    start = jax.jit(algorithm.init)(jax.random.key(0), world.params)
    state = jax.tree.map(jnp.copy, start)  # donated: no two leaves may share an array
    return Update(step.lower(state, world.params).compile(), state, world.params)


def side_of(update: Update, steps: int) -> Side:
    """One update of `steps` environment steps, from the state that the last one left."""
    program, state, params = update

    def work() -> Any:
        nonlocal state
        state, metrics = program(state, params)
        return state, metrics

    return harness.side(work, steps)


def ours(config: RunConfig) -> Side:
    """Updates of a configuration."""
    return side_of(compiled_update(config), update_steps(learning_of(config)))


def compared(options: Options, network: str) -> dict[int, RunConfig]:
    """Environments -> the configuration that every side trains with."""
    steps = 1_024 if options.quick else UPDATE[network]
    return {count: config_of(network, count, steps // count) for count in COMPARED}


def own(options: Options, network: str) -> tuple[dict[str, RunConfig], dict[str, str]]:
    """Our settings with large batches -> (name -> configuration, what this device leaves out and
    why).
    """
    chosen: dict[str, RunConfig] = {}
    left_out: dict[str, str] = {}
    for each in QUICK_OWN if options.quick else OWN:
        if each.network != network:
            continue
        name = f"{network}/ours/{each.num_envs}x{each.num_steps}/batch {each.batch}/{each.num_epochs} epochs"
        if each.slow and jax.devices()[0].platform == "cpu":
            left_out[name] = "minutes an update on a CPU"
        else:
            chosen[name] = config_of(
                network, each.num_envs, each.num_steps, each.batch, num_epochs=each.num_epochs
            )
    return chosen, left_out


def stable_baselines(options: Options, network: str) -> dict[str, tuple[str, RunConfig]]:
    """Name -> (kind of vector environment, configuration): the compared ones, and for `small` the
    whole range.
    """
    sides = {
        f"{network}/sb3_dummy/{count}": ("dummy", config)
        for count, config in compared(options, network).items()
    }
    if network == "small":
        sides |= {
            f"small/sb3_{kind}/{count}": (kind, config_of("small", count, steps // count))
            for kind, count, steps in (RANGE[-1:] if options.quick else RANGE)
        }
    return sides


class Children:
    """Sides that run in children, with what they reported beside their time."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._first: dict[str, Reply] = {}
        self._replies: dict[str, list[Reply]] = {}

    def add(self, name: str, kind: str, ppo: Learning, path: Path, threads: Sequence[int]) -> Side:
        """Stable-Baselines3; the number of torch threads is chosen before this returns."""
        given = {
            "ppo": ppo.model_dump(mode="json"),
            "path": str(path),
            "kind": kind,
            "threads": list(threads),
        }
        worker = self._stack.enter_context(Worker("sb3", "trainer", given, max(threads)))
        self._first[name] = worker.run()
        replies = self._replies.setdefault(name, [])

        def repeat() -> harness.Sample:
            replies.append(worker.run())
            return replies[-1].sample

        return Side(repeat, update_steps(ppo))

    def reported(self) -> dict[str, dict[str, Any]]:
        """Name -> torch threads and their trial, the rollout's share of the time, peak resident
        bytes.
        """
        return {
            name: self._first[name].answer
            | {
                "collect_share": harness.rounded(
                    statistics.median(share(reply.answer) for reply in replies[1:])
                ),
                "peak_bytes": replies[-1].peak_bytes,
            }
            for name, replies in self._replies.items()
        }


def share(answer: Mapping[str, float]) -> float:
    """Of an iteration's seconds, those of the rollout."""
    return answer["collect"] / (answer["collect"] + answer["update"])


def trial(network: str, quick: bool) -> Callable[[], None]:
    """For `Worker`: one update of ours with the most environments, to see what threads are
    worth.
    """
    side = ours(list(compared(Options(quick=quick), network).values())[-1])

    def work() -> None:
        side.run()

    return work


def choose_threads(options: Options, network: str) -> tuple[int, dict[str, float]]:
    """XLA's number of compute threads for a network's comparison, and the trial's seconds by
    number.
    """
    counts = [1] if options.quick else sorted({1, harness.cores()})
    with ExitStack() as stack:
        workers = {
            count: stack.enter_context(
                Worker(
                    "ppo_train",
                    "trial",
                    {"network": network, "quick": options.quick},
                    variables={"NPROC": str(count)},
                )
            )
            for count in counts
        }
        for worker in workers.values():
            worker.run()
        return sb3.fastest(
            lambda count: workers[count].run().sample.wall, counts, TRIAL_ROUNDS, sb3.WORTH
        )


def comparison(network: str, quick: bool, repeats: int, checkout: str | None) -> Callable[[], Any]:
    """For `Worker`: `measure`."""
    options = Options(quick, repeats, Path(checkout) if checkout else None)
    return lambda: measure(options, network)


def measured_apart(options: Options, network: str) -> dict[str, dict[str, Any]]:
    """`measure` in a process with the number of threads that suits it; on an accelerator, in this
    one.
    """
    if jax.devices()[0].platform != "cpu":
        return measure(options, network) | {"threads": {}}
    threads, seconds = choose_threads(options, network)
    given = {
        "network": network,
        "quick": options.quick,
        "repeats": options.repeats,
        "checkout": str(options.purejaxrl.resolve()) if options.purejaxrl else None,
    }
    with Worker("ppo_train", "comparison", given, variables={"NPROC": str(threads)}) as worker:
        return worker.run().answer | {
            "threads": {network: {"chosen": threads, "trial_seconds": seconds}}
        }


def alone(options: Options, network: str) -> dict[str, dict[str, Any]]:
    """Our settings that nobody else has, with all cores."""
    chosen, left_out = own(options, network)
    return {
        "sides": harness.compare(
            {name: ours(config) for name, config in chosen.items()}, options.repeats
        ),
        "ratios": {},
        "left_out": left_out,
        "threads": {},
        "ceiling": {},
    }


def measure(options: Options, network: str) -> dict[str, dict[str, Any]]:
    """The compared sides with one network and the minibatch's products, interleaved -> `sides`,
    `ratios`, `left_out`,
    `ceiling`."""
    same, left_out = compared(options, network), {}
    ours_by_count = {f"{network}/ours/{count}": config for count, config in same.items()}
    threads = [1] if options.quick else sorted({1, harness.cores()})
    with ExitStack() as stack:
        children = Children(stack)
        world = setting.world()
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tape.npz"
        save(make_tape(world.env.config, world.params), path)
        sides = {name: ours(config) for name, config in ours_by_count.items()}
        for count, config in same.items():
            found, missing = peers.sides(config, world, PEER_UPDATES[network], options, stack)
            sides |= {f"{network}/{name}/{count}": side for name, side in found.items()}
            left_out |= {f"{network}/{name}/{count}": reason for name, reason in missing.items()}
            for side in (
                found.values()
            ):  # a child starts with its first repeat: not while threads are tried
                side.run()
        for name, (kind, config) in stable_baselines(options, network).items():
            if importlib.util.find_spec("sb3_contrib") is None:
                left_out[name] = sb3.MISSING
            else:
                sides[name] = children.add(name, kind, learning_of(config), path, threads)
        chains = products.chains(
            learning_of(next(iter(same.values()))), world.env.observation_size, options.quick
        )
        samples = harness.interleave(
            sides | {f"products/{name}": chain.side for name, chain in chains.items()},
            options.repeats,
        )
        results = {name: harness.summary(samples[name], side.steps) for name, side in sides.items()}
        for name, reported in children.reported().items():
            results[name].update(reported)
    rates = products.rates(
        {name: samples[f"products/{name}"] for name in chains},
        {name: chain.flops for name, chain in chains.items()},
    )
    return {
        "sides": results,
        "ratios": ratios(results),
        "left_out": left_out,
        "ceiling": {network: ceiling(same, world, rates, results)},
    }


def ceiling(
    same: Mapping[int, RunConfig],
    world: setting.World,
    rates: Mapping[str, Any],
    results: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """`products.ceiling` over every side that has a ratio; a step of every compared setting needs
    the same.
    """
    first = learning_of(next(iter(same.values())))
    needed = products.step_products(first, world.env.observation_size, world.env.num_actions)
    return products.ceiling(needed, rates, {name: results[name] for name in ratios(results)})


def ratios(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Ours over every other side with the same network and number of environments, by that side's
    name.
    """
    pairs = {
        name: f"{network}/ours/{count}"
        for name in results
        for network, side, count, *_ in [name.split("/")]
        if side != "ours"
    }
    return {
        name: harness.ratio(results, own, name) for name, own in pairs.items() if own in results
    }


def run(options: Options) -> dict[str, Any]:
    """Sides are named network/side/environments."""
    parts = [part(options, network) for network in NETWORKS for part in (measured_apart, alone)]
    merged = {
        key: {name: value for part in parts for name, value in part[key].items()}
        for key in ("sides", "ratios", "left_out", "threads", "ceiling")
    }
    config = {
        "networks": NETWORKS,
        "same": SAME,
        "batch": BATCH,
        "market": setting.config().data.market,
        "sessions": setting.SESSIONS,
        "task": setting.config().env.task,
    }
    differences = {
        name: list(listed) for name, listed in {"sb3": sb3.DIFFERENCES, **peers.DIFFERENCES}.items()
    }
    checkout = None if options.purejaxrl is None else commit(options.purejaxrl)
    config["purejaxrl"] = {"commit": checkout, "tested": PUREJAXRL_COMMIT[:7]}
    return {"config": config, **merged, "differences": differences, "published": PUBLISHED}
