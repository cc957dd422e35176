"""The benches by name, and how one is run: the one place that writes results."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import idle

RESULTS = (
    Path("bench") / "results"
)  # below the working directory: of a checkout, the committed ones
COMPILED = Path("bench") / "compiled"  # of `accelerator`: nothing there was measured
BENCHES = {  # module -> what it measures
    "env_step": "environment steps with observations consumed, by number of environments; SB3's vector environments",
    "intrabar": "the cost of each intrabar order",
    "converted": "the cost of a step whose money is converted, and of four symbols in one market, on one core",
    "rollout": "acting and stepping, without learning",
    "ppo_update": "one update: where its time goes, and its share of the matrix-product rate",
    "ppo_train": "whole PPO training against SB3 and every JAX peer, same network, batch, epochs and minibatches",
    "time_to_reward": "environment steps and seconds until a target reward, against SB3",
    "learners": "PQN, DQN, PPO and SB3's DQN: time and steps to the same reward, and how well ours end, 5 seeds each",
    "curriculum": "steps to a target reward in the last task of a curriculum, against training it from scratch",
    "crowding": "agents in a shared market: what they earn and how alike they are, by the impact of their orders",
    "mesh": "an update divided over many devices, compiled for them: collectives, bytes, memory of one device",
    "host_devices": "the quickstart's training over two devices of this CPU against one device with two threads",
    "population": "many seeds in one program against one after the other",
    "evolution": "population-based training against random search of the same budget, on held-out sessions",
    "memory": "bytes of state, storage and compiled temporaries; peak resident memory",
    "compile": "seconds to compile a train chunk, cold and from JAX's cache; recompiles, host transfers",
    "startup": "seconds until `import jaxtrade` and `jaxtrade --help` are done, against an empty Python",
    "first_result": "seconds from `git clone` to the quickstart's table, with nothing installed and nothing cached",
    "data": "seconds and memory from a file of ten years of minute bars to a market",
    "scaling": "cost against num_envs, num_steps, bars",
    "auto_envs": "`rollout.num_envs: auto` against a grid of sizes: how near its choice is to the fastest",
    "advisor": "what an advisor costs the training loop, by transport and latency",
    "evaluation": "500 held-out sessions, six agents, both passes, after compilation; validation's share of training",
    "monitor": "what the episode monitor costs the training loop: on the device, and with its files",
    "report": "the page of a report with 60,000 bars: seconds to make it, seconds until a browser has it ready, bytes",
    "watch": "the live page: delay of a chunk, what viewers cost the training, a metrics file of 100 MB",
    "trust": "how often an advisor is trusted: without skill, and with it",
    "persistent_advice": "advice without skill that persists: how often it is trusted, and what an ablation finds",
    "ablation": "what each optimisation is worth",
    "versions": "this version against another checkout (--code): environment, training, compilation, whole commands",
    "precision_curves": "learning curves with products in float32, tf32 and bfloat16, 8 seeds each",
    "accelerator": "programs compiled for a described GPU or TPU, without one: launches, loops, memory",
    "device": "a GPU or TPU in one command: first whether it computes right, then our own sides of other benches",
}
# They measure no time of this machine: run by name alone, and on a busy machine too.
TIMELESS = (
    "accelerator",
    "crowding",
    "evolution",
    "mesh",
    "persistent_advice",
    "precision_curves",
    "trust",
)
WITH_CODE = ("versions",)  # need another checkout: run by name alone
WITH_NETWORK = ("first_result",)  # download packages: run by name alone
SUITES = (
    "device",
)  # several parts, each with a result of its own in a folder of the device; run by name alone

WITH_PUREJAXRL = ("ppo_train", "memory")  # benches that have its side
PUREJAXRL_COMMIT = "31756b197773a52db763fdbe6d635e4b46522a73"  # what was tested
FETCH_PUREJAXRL = (
    "git clone https://github.com/luchris429/purejaxrl && "
    f"git -C purejaxrl checkout {PUREJAXRL_COMMIT[:7]}"
)
NO_CHECKOUT = f"is no package: `{FETCH_PUREJAXRL}`, then add `--purejaxrl purejaxrl`"


class Options(NamedTuple):
    """What a bench is given. quick: small shapes and few repeats, to see that it works. repeats: of
    each side, 5 or more for a result that is quoted. purejaxrl: the user's own checkout of
    PureJaxRL, which is no package; its side is left out (and the result says so) where it is None.
    targets, shapes: of `accelerator`, all if empty. install: put the compilers in place first.
    code: a checkout whose package `accelerator` compiles instead of this one. parts: of
    `device`, all if empty.
    """

    quick: bool = False
    repeats: int = 7
    purejaxrl: Path | None = None
    targets: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    install: bool = False
    code: Path | None = None
    parts: tuple[str, ...] = ()


def run(name: str, options: Options, command: Sequence[str], load: float | None) -> dict[str, Any]:
    """Run bench `name`: its module's `run(options)`, with the stamp of this machine put before it.

    Args:
        command: the words that the result names.
        load: the load average when that command started (`idle.load`).
    """
    from .stamp import stamp  # JAX starts here, not for `--help`

    before = stamp(command, load)
    idle.LEDGER.worst()  # what an earlier bench of this process left
    found = importlib.import_module(f".{name}", __package__).run(options)
    about = {"bench": name, "about": BENCHES[name], "quick": options.quick}
    return about | {"stamp": before | {"steal": idle.LEDGER.worst()}} | found


def write(result: dict[str, Any], folder: Path) -> Path:
    """`folder/NAME.json`, indented, one trailing newline; whole or not at all."""
    path = folder / f"{result['bench']}.json"
    folder.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
    return path
