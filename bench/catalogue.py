"""The benches by name, and how one is run: the one place that writes results."""

import importlib
import json
from pathlib import Path
from typing import NamedTuple

import yaml

from . import idle

# Below the working directory: of a checkout, the committed ones.
RESULTS = Path("bench") / "results"
COMPILED = Path("bench") / "compiled"  # of `accelerator`: nothing there was measured
# Module -> what it measures.
BENCHES = yaml.safe_load("""
env_step: environment steps with observations consumed, by number of environments; SB3's vector
  environments
ppo_train: whole PPO training against SB3 and every JAX peer, same network, batch, epochs and
  minibatches
time_to_reward: environment steps and seconds until a target reward, against SB3's MaskablePPO
learners: "PQN, DQN, PPO and SB3's DQN: time and environment steps to the same reward, 5 seeds
  each"
population: many seeds in one program against one after the other
advisor: what an advisor costs the training loop, by transport and latency
compile: seconds to compile a train chunk, cold and from JAX's cache; recompiles, host transfers
startup: seconds until `import jaxtrade` and `jaxtrade --help` are done, against an empty Python
first_result: seconds from `git clone` to the end of the README's first command, with nothing installed and
  nothing cached
data: seconds and memory from a file of ten years of minute bars to a market
memory: bytes of state, storage and compiled temporaries; peak resident memory
versions: "this version against another checkout (--code): environment, training, whole commands"
accelerator: "programs compiled for a described GPU or TPU, without one: launches, loops, memory,
  collectives"
device: "a GPU or TPU in one command: first whether it computes right, then our own sides of other
  benches"
""")
TIMELESS = ("accelerator",)  # measures no time of this machine: also on a busy one
# Run by name alone: they need another checkout, download packages, or have several results.
BY_NAME = (*TIMELESS, "versions", "first_result", "device")
WITH_PUREJAXRL = ("ppo_train", "memory")  # benches that have its side
PUREJAXRL_COMMIT = "31756b197773a52db763fdbe6d635e4b46522a73"  # what was tested
FETCH_PUREJAXRL = (
    "git clone https://github.com/luchris429/purejaxrl && "
    f"git -C purejaxrl checkout {PUREJAXRL_COMMIT[:7]}"
)
NO_CHECKOUT = f"is no package: `{FETCH_PUREJAXRL}`, then add `--purejaxrl purejaxrl`"


class Options(NamedTuple):
    """What a bench is given, by the names of the command's flags.

    quick: small shapes and few repeats, to see that it works. repeats: of each side, 5 or more for
    a result that is quoted. purejaxrl: the user's own checkout of PureJaxRL, which is no package;
    its side is left out (and the result says so) where it is None. targets, shapes: of
    `accelerator`, all if empty. install: put the compilers in place first. code: the other checkout
    of `versions`. parts: of `device`, all if empty; again: also those that are measured already.
    compare: an earlier result, or a folder of them. force: write although the machine is not idle.
    """

    quick: bool = False
    repeats: int = 7
    purejaxrl: Path | None = None
    targets: tuple = ()
    shapes: tuple = ()
    install: bool = False
    code: Path | None = None
    parts: tuple = ()
    again: bool = False
    names: tuple = ()
    out: Path = RESULTS
    compare: Path | None = None
    force: bool = False


def run(name, options, command, load):
    """Run bench `name`: its module's `run(options)`, with the stamp of this machine put before it.

    Args:
        command: the words that the result names.
        load: the load average when that command started (`idle.load`).
    """
    from .harness import stamp  # JAX starts here, not for `--help`

    before = stamp(command, load)
    idle.LEDGER.worst()  # what an earlier bench of this process left
    found = importlib.import_module(f".{name}", __package__).run(options)
    about = {"bench": name, "about": BENCHES[name], "quick": options.quick}
    return about | {"stamp": before | {"steal": idle.LEDGER.worst()}} | found


def write(result, path):
    """Indented, one trailing newline; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
