"""Settings of this process that the programs of a run depend on, made before JAX starts.

They are compute threads, and flags for bit-identical runs on a GPU. Imports no heavy library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import metadata
from typing import Any

from jaxtrade.config import RunConfig
from jaxtrade.config.learners import AUTO_ROWS
from jaxtrade.errors import ConfigError
from jaxtrade.runs.memory import weight_count
from jaxtrade.storage.internals import backends_started
from jaxtrade.storage.programs import (
    DETERMINISTIC,
    is_deterministic,
    pin_threads,
    use_cpu_devices,
    use_determinism,
)
from jaxtrade.training.multiprocess import process_count

# Operations of a minibatch's products, forward, from which on threads are worth their cost. Found
# by timing minibatches on two cores: with fewer, the second thread saved no time. The bench
# `versions` has a shape on each side of it.
WORTH_THREADS = 100e6

# On a CPU the order in which a product adds depends on the number of threads, and JAX makes at
# least one for each device of the process. Strict sums need the same number in every layout. It is
# also the most devices of a process.
STRICT_THREADS = 8


def apply_xla_settings(
    configs: Sequence[RunConfig], env: MutableMapping[str, str] = os.environ
) -> None:
    """Set the compute threads (`NPROC`) and the flags for bit-identical runs on a GPU, unless set.

    Once JAX has started, the threads are as many as cores, and flags have no effect.

    configs: of the runs of this process, at least one. All get the threads that suit the one with
        the most work.
    """
    cores = os.cpu_count() or 1
    if backends_started():
        pin_threads(cores, env)
        return
    pin_threads(max(threads_of(config, cores) for config in configs), env)
    if (devices := max(_devices_of(config) for config in configs)) > 1:
        use_cpu_devices(devices, env)
    if all(config.compute.deterministic for config in configs):
        use_determinism(env)


def restore(
    config: RunConfig, manifest: Mapping[str, Any], env: MutableMapping[str, str] = os.environ
) -> None:
    """Set threads and flags as a run's manifest says, unless JAX has started.

    The flags are those of the manifest only if jaxlib is of the same version: another one may not
    know a flag, and XLA ends a process for that.
    """
    if not backends_started():
        if manifest["nproc"]:
            env["NPROC"] = manifest["nproc"]
        same = manifest.get("versions", {}).get("jaxlib") == metadata.version("jaxlib")
        if same and "xla_flags" in manifest:  # earlier versions did not record the flags
            env["XLA_FLAGS"] = manifest["xla_flags"]
            if _devices_of(config) > 1:
                use_cpu_devices(_devices_of(config), env)
            return
    apply_xla_settings([config], env)


def _devices_of(config: RunConfig) -> int:
    """Return as how many devices the CPU of this process counts.

    `all` and `auto` make none: they take what there is.
    """
    devices = config.parallel.devices
    return devices // process_count() if isinstance(devices, int) else 1


def threads_of(config: RunConfig, cores: int) -> int:
    """Return the compute threads for a run on a CPU with `cores` cores."""
    if config.compute.threads != "auto":
        return config.compute.threads
    if config.parallel.reduce == "strict":
        return STRICT_THREADS
    work = minibatch_work(config)
    return 1 if work is not None and work < WORTH_THREADS else cores


def check_strict(config: RunConfig, env: Mapping[str, str] = os.environ) -> None:
    """Refuse strict sums where this process has more CPU devices than threads. Raises ConfigError.

    The threads would then depend on the devices, and bits on the threads. Starts JAX.
    """
    import jax

    devices, threads = jax.local_device_count(), int(env.get("NPROC", os.cpu_count() or 1))
    if config.parallel.reduce == "strict" and jax.default_backend() == "cpu" and devices > threads:
        raise ConfigError(
            f"parallel.reduce=strict: {devices} CPU devices in this process, and {threads} compute "
            "threads (NPROC, compute.threads); set as many threads as devices or more, and the same "
            f"number in every layout ({STRICT_THREADS} if you set none), or use at most {threads} "
            "devices in a process; a resumed run keeps its threads"
        )


def minibatch_work(config: RunConfig) -> float | None:
    """Count the operations of the network's products for one minibatch of all agents, forward.

    They are multiplications and additions.

    None for a network or a learner of the user's own.
    """
    network, rollout = config.network, config.rollout
    if network.kind not in ("mlp", "gru") or config.learner is None:
        return None
    from jaxtrade.env.params import make_env

    env = make_env(config)
    outputs = env.num_actions + 1  # the logits, and the value
    weights = weight_count(config, env.observation_size, outputs)
    given = AUTO_ROWS if rollout.auto else rollout.num_envs * rollout.num_steps / config.minibatches
    rows = getattr(config.learner, "batch_size", given)
    return 2.0 * weights * rows * config.agents


def lines(config: RunConfig, env: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield what a run prints about how it computes. Starts JAX."""
    import jax

    platform, work = jax.default_backend(), minibatch_work(config)
    if platform == "cpu":
        about = (
            ""
            if work is None
            else f"; the products of a minibatch are {work / 1e6:,.0f} million operations"
        )
        yield f"compute threads: {env.get('NPROC', 'all')} (cores: {os.cpu_count()}{about})"
    may_differ = config.compute.deterministic and not is_deterministic(env.get("XLA_FLAGS", ""))
    if platform == "gpu" and may_differ:
        yield (
            "note: compute.deterministic is true, but JAX had started before, XLA_FLAGS says otherwise or XLA lacks "
            f"the options: another run may have other bits. Start Python with XLA_FLAGS='{DETERMINISTIC}'"
        )
    if config.compute.precision != "float32":
        yield f"operands of matrix products: {config.compute.precision} in training, float32 in evaluation"
