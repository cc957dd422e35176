"""Everything about a run that can be checked before JAX is loaded: names, files, contradictions,
sessions, memory; and the settings of this process that must be made before JAX starts.

All faults are reported at once, one line each. Imports no heavy library.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from jaxtrade.advisor.host.prompts import check_context
from jaxtrade.advisor.host.registry import PANEL, check_kind, members_of
from jaxtrade.config import DataConfig, RunConfig
from jaxtrade.config.accounts import check_account, check_quantity, resolve_account
from jaxtrade.config.learners import AUTO_ROWS
from jaxtrade.config.load import Agent, config_of
from jaxtrade.config.sweep import examples_of, settings_of
from jaxtrade.data.contracts import contract_of, require_bundled
from jaxtrade.data.features.schema import table_columns
from jaxtrade.data.members import (
    bundled_dates,
    bundled_expiry,
    check_split,
    check_walk_length,
    date_range,
    member_configs,
    most_sessions,
    weekdays,
)
from jaxtrade.env.reward_presets import resolve_reward
from jaxtrade.errors import ConfigError, ConfigFaultsError, DataError
from jaxtrade.runs import memory
from jaxtrade.runs.agents import check_search
from jaxtrade.runs.limits import usable_memory
from jaxtrade.runs.memory import weight_count
from jaxtrade.storage.internals import backends_started
from jaxtrade.storage.programs import (
    DETERMINISTIC,
    is_deterministic,
    pin_threads,
    use_cpu_devices,
    use_determinism,
)
from jaxtrade.storage.trackers import check_tracker
from jaxtrade.training.together import process_count

Check = Callable[[], object]
# Where a machine has an accelerator, its memory is known once JAX has started (`check_device`).
# Until then only needs above that of any are refused.
LARGEST_DEVICE = 4 * 10**12
ACCELERATORS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd", "/dev/accel0", "/dev/vfio")


def check_names(config: RunConfig, own_files: bool = False) -> None:
    """Check that market, account preset, reward, features, advisor and files exist.

    own_files: whether the command reads its own files instead of the bars that the configuration
        names. Raises
    ConfigError for unknown names, DataError if a file is missing, ConfigFaultsError for several of
    them.
    """
    run_all(_names(config, own_files))


def check(config: RunConfig, training: bool = True) -> None:
    """Check a new run: its names, and that its rules do not contradict each other and its sessions
    suffice.

    Each setting of a sweep is checked too. training: whether the account and the sessions matter,
    as they do to all but a look at the data. Raises as `check_names`.
    """
    _check_alone(config, training)
    sweep = config.sweep
    settings = (
        ()
        if not sweep.on
        else examples_of(sweep)
        if sweep.optuna
        else settings_of(sweep, config.seed)
    )
    agents = [
        Agent(number, config.seed, number, setting) for number, setting in enumerate(settings)
    ]
    told = set[str]()
    run_all([lambda agent=agent: _check_setting(config, agent, training, told) for agent in agents])
    if sweep.optuna and training:
        check_search(config)


def _check_alone(config: RunConfig, training: bool) -> None:
    run_all([*_names(config, False), *(_rules(config) if training else [])])


def _check_setting(config: RunConfig, agent: Agent, training: bool, told: set[str]) -> None:
    """Check a setting of a sweep as a run of its own. told: the faults of settings before it, which
    are not told again: most are those of a key that all settings have."""
    try:
        _check_alone(config_of(config, agent), training)
    except (ConfigError, DataError) as error:
        where = f"sweep, setting {agent.setting} ({agent.text}): "
        fault = str(error).removeprefix(where)
        if fault not in told:
            told.add(fault)
            raise ConfigError(where + fault) from None


def check_memory(configs: Sequence[RunConfig], env: Mapping[str, str] = os.environ) -> None:
    """Refuse runs that this machine cannot hold, one after the other. Raises ConfigError, see
    `runs.memory`.
    """
    limit, where = memory_limit(env)
    for config in configs:
        if limit is not None:
            memory.check(config, limit, where)


def memory_limit(env: Mapping[str, str] = os.environ) -> tuple[int | None, str]:
    """(bytes, whose they are) of the memory in which a run will train, as far as that is known
    before JAX starts.
    """
    if env.get("JAX_PLATFORMS", "") != "cpu" and any(
        Path(device).exists() for device in ACCELERATORS
    ):
        return LARGEST_DEVICE, "the largest accelerator"
    return usable_memory(platform.system()), "this machine"


def device_memory(config: RunConfig | None = None) -> tuple[int, str] | None:
    """(bytes, name) of the memory of the accelerators that a run divides its work over; default: of
    one of them.

    None on a CPU, or where JAX does not tell. Starts JAX.
    """
    import jax

    device = jax.local_devices()[0]
    limit = None if device.platform == "cpu" else (device.memory_stats() or {}).get("bytes_limit")
    if limit is None:
        return None
    count = 1 if config is None else device_count(config)
    return int(
        limit
    ) * count, f"the {device.device_kind}" if count == 1 else f"{count} x {device.device_kind}"


def device_count(config: RunConfig) -> int:
    """How many devices a run trains on, over all of its processes. Starts JAX."""
    import jax

    count = config.parallel.devices
    if isinstance(count, int):
        return count
    return jax.device_count() if count == "all" or process_count() > 1 else 1


def check_device(config: RunConfig) -> None:
    """Refuse a run that this process's accelerator cannot hold, before anything is compiled. Starts
    JAX.

    Raises ConfigError.
    """
    if (known := device_memory(config)) is not None:
        memory.check(config, *known, device=True)


def memory_notes(config: RunConfig) -> Iterator[str]:
    """A line for a run that may not fit. Starts JAX."""
    known = device_memory(config)
    limit, where = memory_limit() if known is None else known
    if limit is not None:
        yield from memory.note(config, limit, where, device=known is not None)


def _names(config: RunConfig, own_files: bool) -> list[Check]:
    checks: list[Check] = [
        lambda: resolve_account(config.account),
        lambda: resolve_reward(config.reward),
        lambda: table_columns(config.env.features),
        lambda: _check_advisor(config),
        lambda: check_context(config.advisor),
        lambda: member_configs(config),
        lambda: check_tracker(config.train.tracker, config.train.tracker_online),
    ]
    return checks + [
        check for member in _members(config) for check in _member_names(member, own_files)
    ]


def _members(config: RunConfig) -> tuple[RunConfig, ...]:
    """The configurations of the symbols; none if one of them is at fault, which another check
    reports.
    """
    try:
        return member_configs(config)
    except (ConfigError, DataError):
        return ()


def _member_names(config: RunConfig, own_files: bool) -> list[Check]:
    data = config.data
    named = (
        ("--data", "data.file", data.file if data.source == "file" else None),
        ("--seconds", "data.seconds", data.seconds),
        ("--quotes", "data.quotes", data.quotes),
        ("--set", "data.conversion", data.conversion),
    )
    checks: list[Check] = [lambda: _check_market(config, own_files)]
    return checks + [
        lambda flag=flag, key=key, path=path: _check_file(flag, key, path)
        for flag, key, path in named
        if path is not None
    ]


def _check_advisor(config: RunConfig) -> None:
    for number, member in enumerate(members_of(config)):
        kind = member.advisor.kind
        shown = (
            f"advisor.panel.{number} = {kind[:60]}"
            if config.advisor.kind == PANEL
            else (f"advisor.kind = {kind[:60]} (--advisor)")
        )
        try:
            check_kind(kind, member.advisor.options)
        except ConfigError as error:  # it names the part of the kind that is wrong; where the kind stands is known here
            text = str(error)
            for own in ("advisor ", f"advisor.kind = {kind}: ", f"{kind}: ", f"{kind!r}: "):
                text = text.removeprefix(own)
            raise ConfigError(f"{shown}: {text}") from None


def _check_market(config: RunConfig, own_files: bool) -> None:
    symbol = contract_of(config.data).symbol
    if config.data.source == "bundled" and not own_files:
        require_bundled(symbol)


def _check_file(flag: str, key: str, path: str) -> None:
    if not Path(path).exists():
        raise DataError(f"{path}: there is no such file; check {key} ({flag})")
    if Path(path).is_dir():
        raise DataError(f"{path}: is a folder; name one file in {key} ({flag})")


def _rules(config: RunConfig) -> list[Check]:
    members = _members(config)
    checks: list[Check] = [lambda: check_account(config.account), lambda: _check_length(config)]
    for member in members:
        checks += [
            lambda member=member: _check_quantity(member),
            lambda member=member: _check_sessions(member),
        ]
    return checks + ([lambda: _check_shared(members, config)] if len(members) > 1 else [])


def _check_length(config: RunConfig) -> None:
    """Raises ConfigError if DQN ends before it learns. The length for `rollout.num_envs: auto` is
    not known yet.
    """
    rollout = config.rollout
    if config.algorithm == "dqn" and not rollout.auto:
        per_update = rollout.num_envs * rollout.num_steps
        config.dqn.check_length(
            config.train.chunks(per_update) * config.train.chunk_updates * per_update
        )


def _check_quantity(config: RunConfig) -> None:
    contract, preset = contract_of(config.data), resolve_account(config.account)
    check_quantity(
        config.env.quantity, preset, config.account.preset, contract.symbol, contract.micro
    )


def _check_sessions(config: RunConfig) -> None:
    data, symbol = config.data, contract_of(config.data).symbol
    most = most_sessions(data, symbol)
    if most == 0:
        given = [
            f"data.{name} = {day}"
            for name, day in (("start", data.start), ("end", data.end))
            if day
        ]
        where = "between them" if len(given) == 2 else "after it" if data.start else "before it"
        raise ConfigError(
            f"{', '.join(given)}: no session lies {where}{_bundled_range(data, symbol)}; choose others"
        )
    if most is not None and config.walk.on:
        check_walk_length(most, config.walk, config.episode.sessions)
    elif most is not None:
        check_split(most, config.split, at_most=True)


def _check_shared(members: Sequence[RunConfig], config: RunConfig) -> None:
    """Raises ConfigError if the dates that all symbols can have are too few for the splits."""
    ranges = [date_range(member.data, contract_of(member.data).symbol) for member in members]
    known = [dates for dates in ranges if dates is not None]
    if not known:
        return
    first, last = max(first for first, _ in known), min(last for _, last in known)
    if first > last:
        listed = ", ".join(
            f"{member.data.market} {dates[0]}..{dates[1]}"
            for member, dates in zip(members, ranges, strict=True)
            if dates is not None
        )
        raise ConfigError(
            f"data.markets: no trade date is common to all symbols ({listed}), and splits are made of "
            "such dates; choose other symbols, data.start or data.end"
        )
    check_split(
        weekdays(date.fromisoformat(first), date.fromisoformat(last)), config.split, at_most=True
    )


def _bundled_range(data: DataConfig, symbol: str) -> str:
    """The dates of the bundled bars that `data` selects, as part of a message. Nothing where all
    bars are generated.
    """
    if data.source != "bundled" and data.synthetic != "phase_randomised":
        return ""
    (first, last), expiry = bundled_dates(symbol, data), bundled_expiry(symbol, data)
    those = f"whose contract {expiry} is" if expiry else "which are"
    return f" in the bundled bars of {symbol}, {those} of {first}..{last}"


def run_all(checks: Sequence[Check]) -> list[Any]:
    """Run all checks, and return their results. Raises the error of the one that fails, or
    ConfigFaultsError with the lines of all that do."""
    errors, results = list[ConfigError | DataError](), list[Any]()
    for each in checks:
        try:
            results.append(each())
        except (ConfigError, DataError) as error:
            errors.append(error)
    lines = dict.fromkeys(
        ("", str(error)) for error in errors
    )  # an unknown market fails several checks alike
    if len(lines) == 1:
        raise errors[0]
    if lines:
        raise ConfigFaultsError(list(lines))
    return results


# Settings of this process that a run's programs depend on, and that must be made before JAX
# starts.

# Operations of a minibatch's products, forward, from which on threads are worth their cost. Found
# by timing minibatches on two cores: with fewer, the second thread saved no time. The bench
# `versions` has a shape on each side of it.
WORTH_THREADS = 100e6

# On a CPU the order in which a product adds depends on the number of threads, and JAX makes at
# least one for each device of the process. Strict sums need the same number in every layout. It is
# also the most devices of a process.
STRICT_THREADS = 8


def settle(configs: Sequence[RunConfig], env: MutableMapping[str, str] = os.environ) -> None:
    """Set the number of compute threads (`NPROC`) and the flags for the same bits on a GPU, unless
    they are set.

    Once JAX has started, the threads are as many as cores, and flags have no effect. configs: of
    the runs of this process, at least one. All get the threads that suit the one with the most
    work.
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
    settle([config], env)


def _devices_of(config: RunConfig) -> int:
    """As how many devices the CPU of this process counts. `all` and `auto` make none: they take
    what there is.
    """
    devices = config.parallel.devices
    return devices // process_count() if isinstance(devices, int) else 1


def threads_of(config: RunConfig, cores: int) -> int:
    """Compute threads for a run on a CPU with `cores` cores."""
    if config.compute.threads != "auto":
        return config.compute.threads
    if config.parallel.reduce == "strict":
        return STRICT_THREADS
    work = minibatch_work(config)
    return 1 if work is not None and work < WORTH_THREADS else cores


def check_strict(config: RunConfig, env: Mapping[str, str] = os.environ) -> None:
    """Refuse strict sums where this process has more CPU devices than threads: the threads would
    then depend on the devices, and bits on the threads. Starts JAX. Raises ConfigError."""
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
    """Operations (multiplications and additions) of the network's products for one minibatch of all
    agents, forward.

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
    """What a run prints about how it computes. Starts JAX."""
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
