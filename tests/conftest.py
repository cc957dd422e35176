"""Shared by all tests: compiled programs are kept between runs in pytest's cache folder, few of
them in memory; most files compile without XLA's optimisations; Ctrl-C is heard."""

import gc
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import pytest
from hypothesis import HealthCheck, settings

import jaxtrade  # noqa: F401  # it adds to XLA_FLAGS, before XLA reads them
from jaxtrade import parts
from jaxtrade.registry import Registry
from jaxtrade.runs.rundir import PLACES
from jaxtrade.storage.programs import cache_folder
from tests.compiling import Compilation, flags

MAPS = Path("/proc/self/maps")
MOST_MAPS = 15_000
# Python looks through all its objects for garbage again and again, and here they are millions.
SELDOM = (100_000, 50, 1_000)  # see gc.set_threshold

# Files that compile without most of XLA's optimisations, and with plain loops too
# (`compiling.PLAIN_LOOPS`): compiling is most of what they do. What they check does not depend on
# it. Left out are files that read compiled programs or ask two of them for the same bits, that
# measure speed or memory, or that run long. Folders end in "/".
LIGHTLY_COMPILED = (
    "test_advice_log.py",
    "test_advisor_refused.py",
    "test_advisor_run.py",
    "test_auto_envs.py",
    "test_checkpoint.py",
    "test_cli.py",
    "test_evolving_run.py",
    "test_experiment.py",
    "test_export.py",
    "test_guards.py",
    "test_interop_docs.py",
    "test_new_bars.py",
    "test_nulls_run.py",
    "test_old_run.py",
    "test_optuna_search.py",
    "test_panel_run.py",
    "test_places.py",
    "test_protocol.py",
    "test_python.py",
    "test_q_run.py",
    "test_readme.py",
    "test_run_doors.py",
    "test_seams.py",
    "test_set_run.py",
    "test_shared_run.py",
    "test_site.py",
    "test_source.py",
    "test_sweep_run.py",
    "test_trainer.py",
    "test_trials_run.py",
    "test_user_parts.py",
    "test_trackers.py",
    "test_walk_nulls.py",
    "test_walkforward.py",
    "test_without_torch.py",
    "ablation/test_command.py",
    "ablation/test_matrix.py",
    "advisor/test_advising.py",
    "advisor/test_bridge_in_training.py",
    "advisor/test_fusion.py",
    "advisor/test_outcomes.py",
    "advisor/test_table.py",
    "bench/test_inside.py",
    "bench/test_peers.py",
    "cli/test_runs.py",
    "curriculum/",
    "differential/",
    "env/",
    "evaluation/",
    "golden/",
    "interop/",
    "interrupt/",
    "networks/",
    "oracle/",
    "progress/",
    "paper/test_command.py",
    "paper/test_feed.py",
    "paper/test_rails.py",
    "paper/test_recovery.py",
    "rl/test_agents.py",
    "rl/test_control.py",
    "rl/test_delay.py",
    "rl/test_dqn.py",
    "rl/test_eager.py",
    "rl/test_form.py",
    "rl/test_losses.py",
    "rl/test_minibatches.py",
    "rl/test_observing.py",
    "rl/test_opening.py",
    "rl/test_packing.py",
    "rl/test_population.py",
    "rl/test_ppo.py",
    "rl/test_ppo_trading.py",
    "rl/test_pqn.py",
    "rl/test_probes.py",
    "rl/test_q.py",
    "rl/test_recurrent.py",
    "rl/test_reductions.py",
    "rl/test_replacement.py",
    "rl/test_returns.py",
    "rl/test_rollback.py",
    "rl/test_rollout.py",
    "rl/test_schedules.py",
    "rl/test_stages.py",
    "rl/test_symbols.py",
    "rl/test_toy.py",
    "rl/test_train.py",
    "rl/test_transfer.py",
    "rl/test_update_by_numpy.py",
    "studies/test_crowding.py",
    "studies/test_defaults.py",
    "stream/",
)
# Of these, files whose programs run longer than they compile: with plain loops they would take
# several times as long.
FUSED = (
    "differential/test_real_bars.py",
    "differential/test_seconds.py",
    "env/test_properties.py",
    "evaluation/test_challenge_paths.py",
    "evaluation/test_converted.py",
    "evaluation/test_null_runs.py",
    "evaluation/test_passes.py",
    "evaluation/test_side_by_side.py",
    "oracle/test_agreement.py",
    "oracle/test_orders.py",
    "oracle/test_real_bars.py",
    "test_site.py",
)
TESTS = Path(__file__).parent
FLAGS = os.environ.get("XLA_FLAGS", "")
STATE = TemporaryDirectory(
    prefix="jaxtrade-state-"
)  # the user's own list of trusted modules stays as it is
LIGHT = "JAX_DISABLE_MOST_OPTIMIZATIONS"  # read by JAX in child processes

# The same examples every time, however slow the machine: a change must not fail by an example that
# has nothing to do with it. `python -m tests.fresh_examples` draws new ones.
settings.register_profile(
    "repeatable",
    derandomize=not os.environ.get("JAXTRADE_NEW_EXAMPLES"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")


COMPILATION = Compilation()


def pytest_configure(config):
    # A shell that starts the tests in the background has them ignore SIGINT, and their children
    # too.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Where Python is set to keep no compiled modules, each of many child processes would compile
    # the package again.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["XDG_STATE_HOME"] = STATE.name
    for (
        name
    ) in PLACES:  # git sets them for hooks: the repositories that tests make would be that one
        os.environ.pop(name, None)
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    if cache is not None:
        # Child processes find there what was compiled here, and the other way round.
        os.environ["XDG_CACHE_HOME"] = str(cache.mkdir("programs"))
        folder = cache_folder(system="Linux")  # elsewhere child processes have another one
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    gc.set_threshold(*SELDOM)
    config.option.loadscopereorder = (
        False  # xdist would put files with many tests first, whatever their kind
    )
    COMPILATION.install()
    jax.jit(lambda x: x + 1)(
        0
    )  # XLA reads its flags now, and never again: `compilation` sets those of child processes


def name_of(path):
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""


def lightly_compiled(path):
    return name_of(path).startswith(LIGHTLY_COMPILED)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not ask for
def pytest_collection_modifyitems(items):
    """Lightly compiled files first: programs that several kinds use are compiled once for each
    kind, not at each turn."""
    items.sort(key=lambda item: (not lightly_compiled(item.path), name_of(item.path) in FUSED))
    gc.freeze()  # all that is here stays until the end


@pytest.fixture(scope="module", autouse=True)
def compilation(request):
    """Each file's programs are compiled its own way, here and in child processes. JAX does not look
    at the settings when it looks for a program that it has compiled, so none is left from a file of
    another kind."""
    light, name = lightly_compiled(request.path), name_of(request.path)
    plain = light and name not in FUSED
    if (light, plain) != (os.environ.get(LIGHT) == "1", COMPILATION.plain):
        jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", light)
    os.environ[LIGHT], COMPILATION.plain = "1" if light else "0", plain
    os.environ["XLA_FLAGS"] = flags(FLAGS, plain)


@pytest.fixture(autouse=True)
def own_parts_are_forgotten():
    """What a test registers is gone after it: which files share a process is chance."""
    with pytest.MonkeyPatch.context() as patch:
        for table in (found for found in vars(parts).values() if isinstance(found, Registry)):
            for name in ("_added", "homes"):
                patch.setattr(table, name, dict(getattr(table, name)))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """A process that keeps thousands of compiled programs comes to the most memory mappings that
    Linux allows it (65,530 by default; each compiled operation takes three) and crashes in the next
    compilation. They are let go between files only: within one, tests count the compilations of
    programs they share."""
    result = yield
    last_of_file = nextitem is None or nextitem.path != item.path
    if last_of_file and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
    return result


@pytest.fixture(scope="session")
def shared():
    """The folder of shared reference data; tests that need it skip where it is absent."""
    root = Path(os.environ.get("JAXTRADE_SHARED", Path(__file__).parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip(f"no shared data at {root} (set JAXTRADE_SHARED)")
    return root
