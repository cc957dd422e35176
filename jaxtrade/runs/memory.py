"""How much memory a training run takes, from its configuration alone.

Imports neither JAX nor NumPy.

With N = rollout.num_envs, T = rollout.num_steps, S agents (train.num_seeds, or those of a sweep), D
observations, H the sum of network.hidden, R the width of a GRU's memory (0 for an MLP) and P
parameters, the need in bytes is

    parameters    S x P x PER_PARAMETER                         parameters, both moments, gradients, step, checkpoint
    environments  S x N x PER_ENVIRONMENT                       state and reference, before and after an update
    rollout       S x N x T x (PER_STEP + 8 R + MONITORED)      stored words, advantages, targets, a GRU's memory
    gradient      S x B x 4 (4 D + 2 H + 9 R)                   activations of the B rows of one gradient
    acting        S x N x 4 (2 D + 4 H)                         observations and activations of one step
    older         S x d x P x PER_OLDER                         policies that act with a delay, d = actor.delay
    replay        S x 2 x dqn.buffer_size x bytes               only of DQN (`replay_bytes`): exact, and  in two copies
    bars          data.synthetic_sessions x PER_SESSION         only of synthetic bars: a file's length is not known;
                                                                of a set of symbols, twice the sum
                                                                over its symbols
    process       PROCESS                                       Python, JAX, compiling (not on a device)

B is a minibatch, N T / num_minibatches, but for PPO with an MLP at most ppo.gradient_rows. H counts
once for a Q-network, which has one torso; its P likewise. A test compares the estimate with the
peak memory of real runs: they agree within `FACTOR`. The formula leaves out what a user's own parts
need.
"""

from __future__ import annotations

import errno
import itertools
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from jaxtrade.config import RunConfig
from jaxtrade.config.allocate import AllocateConfig
from jaxtrade.config.learners import Q_LEARNERS
from jaxtrade.data.features.schema import context_features
from jaxtrade.errors import ConfigError, OutOfMemoryError
from jaxtrade.limits import usable_memory
from jaxtrade.training.multiprocess import process_count

# How much memory the replay of DQN takes.
#
# A transition holds two references (before and after the step), the action, the reward and both
# ends, packed into words of 32 bits, and two floats of a sum tree if the replay is prioritised. A
# test compares this with the arrays themselves.

COPIES = 2  # the state that trains, and the one to which a run can roll back
# Whole words of a reference: per position, trade record, per advice, and the account that
# `allocate` shows.
LEG_WORDS, RECORD_WORDS, ADVICE_WORDS, ACCOUNT_WORDS = 5, 6, 7, 5
WORD = 32


def transition_bytes(config: RunConfig) -> int:
    """Count the bytes of one transition.

    This is for the shipped tasks; a task of the user's own may store more or less.
    """
    symbols = max(len(config.data.markets), 1) if config.env.joint else 1
    words, bits = (
        symbols * (1 + LEG_WORDS),
        8,
    )  # rows and positions; the mask of up to eight actions
    if config.env.joint:
        bits = -(-action_count(config.allocate, symbols) // 8) * 8
        words += ACCOUNT_WORDS if config.allocate.preset == "full" else 0
    if config.env.task == "advised":
        words, bits = words + RECORD_WORDS, bits + 16
    if config.advisor.on:
        members = len(config.advisor.panel)
        words += ADVICE_WORDS * (1 + members)
    stored = (
        2 * words + 1 + -(-(2 * bits + 8 + 2) // WORD)
    )  # both references, reward, small numbers
    return 4 * stored + (8 if config.dqn.replay == "prioritised" else 0)


def action_count(allocate: AllocateConfig, symbols: int) -> int:
    """Count the actions of the task `allocate` with so many symbols."""
    return {"product": 3**symbols, "increment": 2 * symbols + 1, "table": 3}[allocate.actions]


def replay_bytes(config: RunConfig) -> int:
    """Count the bytes of the replays of all agents, in all copies; 0 for another learner than DQN.

    Also 0 as long as the number of environments is not known (`rollout.num_envs=auto` measures each
    size whole).
    """
    if config.algorithm != "dqn" or config.rollout.auto:
        return 0
    rows = config.dqn.rows(config.rollout)
    return COPIES * config.agents * rows * config.rollout.num_envs * transition_bytes(config)


def largest_buffer(config: RunConfig, available: float) -> int:
    """Find the largest `dqn.buffer_size` whose replays fit into `available` bytes; else 0."""
    per_rollout = config.rollout.num_envs * config.rollout.num_steps
    most = (
        int(available / (COPIES * config.agents * transition_bytes(config)))
        // per_rollout
        * per_rollout
    )
    try:
        config.dqn.model_copy(update={"buffer_size": max(most, 0)}).rows(config.rollout)
    except ValueError:
        return 0
    return most


FACTOR = 1.5  # the estimate is at most this many times too high or too low
PROCESS = 1_000_000_000
PER_PARAMETER, PER_ENVIRONMENT, PER_STEP, PER_SESSION = 52, 600, 220, 1_000_000
PER_OLDER = 12  # bytes of a parameter: before and after an update, and in the checkpoint
MONITORED = 24  # bytes of a step that the episode monitor keeps: six numbers
OTHER_SLOTS, ACTIONS = (
    20,
    8,
)  # slots besides the windows and the context; actions of the shipped tasks, at most
ROWS = {"cpu": 16_384, "device": 65_536}  # `ppo.gradient_rows: auto`, as in `networks.accelerators`
MOST_ROWS = 1 << 31  # rows of a rollout are numbered in int32


class MemoryPart(NamedTuple):
    """A part of the need.

    keys: the keys that decide it, the one to lower first.
    """

    name: str
    bytes: int
    keys: tuple[str, ...]


def observation_slots(config: RunConfig) -> int:
    """Count the slots of the shipped tasks: D, or a little more."""
    context = len(context_features(config.env.task))
    if config.env.joint:
        return max(len(config.data.markets), 1) * (context + 3) + OTHER_SLOTS
    return config.env.window * (len(config.env.features) + 3) + context + OTHER_SLOTS


def weight_count(config: RunConfig, inputs: int, outputs: int) -> int:
    """Count the weights of the networks `mlp` and `gru`.

    PPO's policy and value have one torso each, a Q-network has one.
    """
    network, width, count = config.network, inputs, 0
    if network.adapter:
        count, width = width * network.adapter, network.adapter
    if network.kind == "gru":
        count += 3 * network.rnn_width * (width + network.rnn_width)
        width += network.rnn_width
    widths = (width, *network.hidden)
    torsos = 1 if config.algorithm in Q_LEARNERS else 2
    return count + torsos * sum(a * b for a, b in itertools.pairwise(widths)) + widths[-1] * outputs


def parameter_count(config: RunConfig) -> int:
    """Count the parameters P of the networks `mlp` and `gru`."""
    return weight_count(config, observation_slots(config), ACTIONS + 1)


def memory_parts(config: RunConfig, device: bool = False) -> list[MemoryPart]:
    """List the parts of a run's need, the largest first.

    device: of a GPU or TPU, not of the process on the host.
    """
    envs, steps, seeds = config.rollout.num_envs, config.rollout.num_steps, config.agents
    memory = config.network.rnn_width if config.network.kind == "gru" else 0
    slots, units = observation_slots(config), sum(config.network.hidden)
    rows = (
        config.dqn.batch_size if config.algorithm == "dqn" else envs * steps // config.minibatches
    )
    if not memory and config.algorithm not in Q_LEARNERS:
        most = config.ppo.gradient_rows
        rows = min(rows, ROWS["device" if device else "cpu"] if most == "auto" else most)
    gradient = {"dqn": "dqn.batch_size", "pqn": "rollout.num_envs"}.get(
        config.algorithm, "ppo.gradient_rows"
    )
    several = (
        ()
        if seeds == 1 or config.lists_agents
        else ("walk.seeds" if config.walk.on else "train.num_seeds",)
    )
    widths = ("network.hidden", *(("network.rnn_width",) if memory else ()))
    found = [
        MemoryPart(
            "parameters", seeds * parameter_count(config) * PER_PARAMETER, (*widths, *several)
        ),
        MemoryPart("environments", seeds * envs * PER_ENVIRONMENT, ("rollout.num_envs", *several)),
        MemoryPart(
            "rollout",
            seeds * envs * steps * (PER_STEP + 8 * memory + MONITORED * config.monitor.on),
            ("rollout.num_envs", "rollout.num_steps", *several),
        ),
        MemoryPart(
            "gradient",
            seeds * rows * 4 * (4 * slots + 2 * units + 9 * memory),
            (gradient, *widths, "env.window", *several),
        ),
        MemoryPart(
            "acting",
            seeds * envs * 4 * (2 * slots + 4 * units),
            ("rollout.num_envs", *widths, *several),
        ),
        MemoryPart(
            "older policies",
            seeds * config.actor.delay * parameter_count(config) * PER_OLDER,
            ("actor.delay", *widths, *several),
        ),
        MemoryPart("replay", replay_bytes(config), ("dqn.buffer_size", *several)),
    ]
    if not device:
        bars = _synthetic_sessions(config) * PER_SESSION
        found.append(MemoryPart("bars", bars, ("data.synthetic_sessions",)))
        found.append(MemoryPart("process", PROCESS, ()))
    return sorted((part for part in found if part.bytes), key=lambda part: -part.bytes)


def _synthetic_sessions(config: RunConfig) -> int:
    """Count the generated sessions of all symbols.

    A set holds them twice: its members', and those of the whole.
    """
    data = config.data
    if data.source != "synthetic":
        return 0
    if len(data.markets) < 2:
        return data.synthetic_sessions
    own = [data.per_market.get(symbol, {}).get("synthetic_sessions") for symbol in data.markets]
    return 2 * sum(data.synthetic_sessions if type(count) is not int else count for count in own)


def estimate_memory(config: RunConfig, device: bool = False) -> int:
    """Estimate the need in bytes."""
    return sum(part.bytes for part in memory_parts(config, device))


def check(config: RunConfig, limit: int, where: str, device: bool = False) -> None:
    """Refuse a run that cannot fit.

    limit: bytes.
    where: whose they are ("this machine").

    Raises ConfigError if even a `FACTOR`-th of the estimate is above the limit, or a rollout has
    too many rows. What a replay takes is known exactly, so it counts in full; the message names the
    largest that fits.
    """
    need, replay = estimate_memory(config, device), replay_bytes(config)
    rest = (need - replay) / FACTOR
    if rest + replay > limit:
        most = largest_buffer(config, limit - rest) if replay else 0
        smaller = f"The largest replay that fits is dqn.buffer_size={most}. " if most else ""
        raise ConfigError(
            f"memory: the run needs about {size(need)}, and {where} has {size(limit)}. "
            f"{smaller}{_fewer(config, limit, device)}{made_of(config, device)}"
        )
    rows = config.rollout.num_envs * config.rollout.num_steps
    if rows >= MOST_ROWS:
        raise ConfigError(
            f"rollout.num_envs x rollout.num_steps = {rows:,}: a rollout has fewer than {MOST_ROWS:,} "
            "rows (int32); lower one of them"
        )


def largest_population(config: RunConfig, limit: float, device: bool = False) -> int:
    """Return how many of the run's agents `limit` bytes hold, by the rule of `check`.

    The result is 0 if not even one fits.

    Every part but the bars and the process is in proportion to the number of agents.
    """
    shared = sum(
        part.bytes for part in memory_parts(config, device) if part.name in ("bars", "process")
    )
    replay = replay_bytes(config)
    each = ((estimate_memory(config, device) - replay - shared) / FACTOR + replay) / config.agents
    return max(0, int((limit - shared / FACTOR) / each))


def _fewer(config: RunConfig, limit: float, device: bool) -> str:
    """Write a sentence about the largest population that fits; nothing for a single agent."""
    if config.agents == 1:
        return ""
    most = largest_population(config, limit, device)
    if not most:
        return f"It has {config.agents} agents, and not even one of them fits. "
    how = (
        "--sweep with fewer values, --random or --seeds"
        if config.lists_agents
        else "--seeds, or fewer folds"
        if config.walk.on
        else f"--population {most}"
    )
    return f"The largest population that fits is {most} of its {config.agents} agents ({how}). "


def note(config: RunConfig, limit: int, where: str, device: bool = False) -> Iterator[str]:
    """Yield one line about a run that may not fit.

    The estimate is above the limit, but not surely.
    """
    if estimate_memory(config, device) > limit:
        yield (
            f"note: the run may need about {size(estimate_memory(config, device))} of memory, and {where} has "
            f"{size(limit)}. {made_of(config, device)}"
        )


def made_of(config: RunConfig, device: bool = False) -> str:
    """Write what the need is made of, and which keys to lower, as a sentence."""
    whole = memory_parts(config, device)
    values = {
        key: getattr(getattr(config, section), name)
        for part in whole
        for key in part.keys
        for section, _, name in [key.partition(".")]
    }
    large = [part for part in whole if part.bytes >= whole[0].bytes / 20]
    listed = ", ".join(f"{part.name} {size(part.bytes)}" for part in large)
    lower = " or ".join(f"{key} ({_format_value(values[key])})" for key in whole[0].keys)
    return f"Made of: {listed}. " + (
        f"Lower {lower}" if lower else "Free some memory, or take another machine"
    )


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return f"{value:,}" if isinstance(value, int) else str(value)


def size(count: float) -> str:
    """Format bytes for people, in powers of 1000: "12 GB"."""
    for unit in ("MB", "GB", "TB", "PB"):
        count /= 1000 if unit != "MB" else 1_000_000
        if count < 1000:
            break
    return f"{count:,.2g} {unit}" if count < 10 else f"{count:,.0f} {unit}"


def is_exhausted(error: BaseException) -> bool:
    """Return whether an exception says that memory ran out.

    It is Python's own, XLA's (jaxlib need not be loaded to ask), or that of a library that finds no
    room while it is loaded (`ulimit -v`).
    """
    xla = type(error).__name__ in ("XlaRuntimeError", "JaxRuntimeError")
    loading = isinstance(error, ImportError | RuntimeError) and any(
        said in str(error).lower()
        for said in ("failed to map segment", "cannot allocate memory", "can't start new thread")
    )
    system = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return (
        isinstance(error, MemoryError)
        or loading
        or system
        or (xla and str(error).startswith(("RESOURCE_EXHAUSTED", "Out of memory")))
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type's name if it has none."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


@contextmanager
def explain_memory(config: RunConfig) -> Iterator[None]:
    """Turn the end of memory inside into an OutOfMemoryError.

    The error says what the run's memory is made of.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # XLA's errors are RuntimeErrors
        if not is_exhausted(error):
            raise
        raise OutOfMemoryError(
            f"memory ran out ({first_line(error)}). {made_of(config)}"
        ) from error


# Whose memory it is, and whether it is enough.

# Where a machine has an accelerator, its memory is known once JAX has started (`check_device`).
# Until then only needs above that of any are refused.
LARGEST_DEVICE = 4 * 10**12
ACCELERATORS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/accel0", "/dev/vfio")


def check_memory(configs: Sequence[RunConfig], env: Mapping[str, str] = os.environ) -> None:
    """Refuse runs that this machine cannot hold, one after the other.

    Raises ConfigError (`check`).
    """
    limit, where = memory_limit(env)
    for config in configs:
        if limit is not None:
            check(config, limit, where)


def memory_limit(env: Mapping[str, str] = os.environ) -> tuple[int | None, str]:
    """Return (bytes, whose they are) of the memory in which a run will train.

    It is as far as that is known before JAX starts.
    """
    if env.get("JAX_PLATFORMS", "") != "cpu" and any(
        Path(device).exists() for device in ACCELERATORS
    ):
        return LARGEST_DEVICE, "the largest accelerator"
    return usable_memory(platform.system()), "this machine"


def device_memory(config: RunConfig) -> tuple[int, str] | None:
    """Return (bytes, name) of the memory of the accelerators that a run divides its work over.

    None on a CPU, or where JAX does not report it. Starts JAX.
    """
    import jax

    device = jax.local_devices()[0]
    limit = None if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return None
    count = device_count(config)
    return int(
        limit
    ) * count, f"the {device.device_kind}" if count == 1 else f"{count} x {device.device_kind}"


def device_count(config: RunConfig) -> int:
    """Count the devices a run trains on, over all of its processes. Starts JAX."""
    import jax

    count = config.parallel.devices
    if isinstance(count, int):
        return count
    return jax.device_count() if count == "all" or process_count() > 1 else 1


def check_device(config: RunConfig) -> None:
    """Refuse a run that this process's accelerator cannot hold, before anything is compiled.

    Starts JAX.

    Raises ConfigError.
    """
    if (known := device_memory(config)) is not None:
        check(config, *known, device=True)


def memory_notes(config: RunConfig) -> Iterator[str]:
    """Yield a line for a run that may not fit. Starts JAX."""
    known = device_memory(config)
    limit, where = memory_limit() if known is None else known
    if limit is not None:
        yield from note(config, limit, where, device=known is not None)
