"""`rollout.num_envs: auto`: the search with made-up machines, and one real run that measures
itself.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.config import load_config, read_values
from jaxtrade.errors import ConfigError, OutOfMemoryError
from jaxtrade.limits import available_memory
from jaxtrade.progress.screen import Screen
from jaxtrade.runs import auto_envs, rundir
from jaxtrade.runs import train as training
from jaxtrade.runs.auto_envs import (
    Choice,
    SizedSetup,
    SizeMeasurement,
    measure_update,
    prepare_sized,
    search,
    set_num_envs,
    shrink_setup,
    sizes,
)
from jaxtrade.runs.setup import prepare
from tests.messages import missing, refused
from tests.reading import read_json

TINY = (
    "data.source=synthetic",
    "data.synthetic_sessions=4",
    "network.hidden=[8]",
    "rollout.num_steps=16",
    "train.total_timesteps=51200",
    "train.chunk_updates=2",
    "train.tensorboard=false",
    "ppo.num_epochs=1",
)
CGROUP = "/sys/fs/cgroup"


def config(*overrides):
    return load_config("quickstart", [*TINY, "rollout.num_envs=auto", *overrides])


class Told(Screen):
    """Remembers messages and phases."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def message(self, text):
        self.lines.append(text)


def machine(
    speeds,
    bytes_per_env=1,
    limit=None,
    dies_at=None,
):
    """A measurement by table, which runs out of memory from `dies_at` on."""

    def measure(number):
        if dies_at is not None and number >= dies_at:
            raise MemoryError("no room")
        needed = number * bytes_per_env
        if limit is not None and needed > limit:
            raise MemoryError(f"{needed} of {limit}")
        return SizeMeasurement(number, speeds[number], needed, 1.0)

    return measure


# --- the search


def test_doublings_end_where_two_of_them_gain_less_than_three_percent():
    speeds = {8: 100, 16: 190, 32: 300, 64: 308, 128: 305, 256: 900}
    choice = search(speeds, machine(speeds))
    assert choice.num_envs == 32, (
        "64 is 2.7 % faster, and the smallest that is about as fast is chosen"
    )
    assert [each.num_envs for each in choice.measured] == [8, 16, 32, 64, 128]
    assert not missing(choice.reason, "64", "128", "3%", "32")
    small = {8: 100, 16: 102, 32: 104, 64: 106, 128: 108, 256: 108, 512: 108}
    choice = search(small, machine(small))
    assert [each.num_envs for each in choice.measured] == [8, 16, 32, 64, 128, 256], (
        "2 % a time is 4 % in two"
    )
    assert choice.num_envs == 32, "108 * 0.95 = 102.6"


def test_a_slow_moment_of_the_machine_does_not_end_the_search():
    """The first measurements of 32 and 64 take four times as long as they should; both are measured
    again.
    """
    speeds, seen = {8: 100.0, 16: 190.0, 32: 300.0, 64: 500.0, 128: 500.0, 256: 500.0}, []
    usual = machine(speeds)

    def measure(number):
        now, slow = usual(number), number in (32, 64) and number not in seen
        seen.append(number)
        return now._replace(steps_per_second=speeds[number] / 4) if slow else now

    choice = search(speeds, measure)
    assert seen == [8, 16, 32, 64, 32, 64, 128, 256, 128, 256]
    assert choice.num_envs == 64
    assert {each.num_envs: each.steps_per_second for each in choice.measured} == speeds
    assert search([8, 16, 32], machine({8: 100, 16: 190, 32: 206})).num_envs == 32, (
        "8 % faster is faster"
    )


@pytest.mark.parametrize(
    ("limit", "dies_at", "chosen", "said"),
    [
        (500, None, 32, ("64", "640 of 500")),
        (None, 64, 32, ("64", "no room")),
        (None, None, 128, ("50 updates",)),
    ],
)
def test_the_end_of_memory_or_of_the_run_ends_the_search(limit, dies_at, chosen, said):
    speeds = {number: float(number) for number in (16, 32, 64, 128)}
    choice = search(speeds, machine(speeds, 10, limit, dies_at))
    assert choice.num_envs == chosen
    assert not missing(choice.reason, *said)


def test_a_first_size_that_does_not_fit_is_an_error_and_no_silent_number():
    for kind in (machine({16: 1.0}, 10, 50), machine({16: 1.0}, dies_at=1)):
        with refused("rollout.num_envs=auto", "rollout.num_steps", kind=OutOfMemoryError):
            search([16], kind)


def test_other_keys_that_refuse_a_size_end_the_search_and_not_the_run():
    """As a replay that is too short for the rollouts of so many environments."""
    measured = machine({8: 100.0, 16: 190.0, 32: 300.0})

    def measure(number):
        if number > 16:
            raise ConfigError("dqn.buffer_size (3,000) holds 1 rollouts")
        return measured(number)

    choice = search([8, 16, 32], measure)
    assert choice.num_envs == 16
    assert not missing(choice.reason, "32", "dqn.buffer_size (3,000)")
    with refused("dqn.buffer_size"):
        search([32], measure)


def test_an_error_that_is_not_of_memory_is_not_swallowed():
    def broken(number):
        raise RuntimeError(f"a bug with {number}")

    with refused("a bug with 16", kind=RuntimeError):
        search([16, 32], broken)


@given(st.lists(st.floats(1.0, 4.0), min_size=1, max_size=12))
def test_the_choice_is_near_the_fastest_that_was_measured(gains):
    """Every choice has at least `NEAR` of the fastest measured speed, and no smaller size has."""
    numbers = [8 << i for i in range(len(gains))]
    speeds = dict(
        zip(numbers, itertools.accumulate(gains, lambda speed, gain: speed * gain), strict=True)
    )
    choice = search(numbers, machine(speeds))
    fastest = max(speeds[each.num_envs] for each in choice.measured)
    good = [
        each.num_envs
        for each in choice.measured
        if speeds[each.num_envs] >= auto_envs.NEAR * fastest
    ]
    assert choice.num_envs == min(good)


@pytest.mark.parametrize(
    ("steps", "measured", "said"),
    [
        (
            199,
            [8],
            ("2.0 s", "16"),
        ),
        (200, [8, 16], ("1.0 s", "32")),
        (399, [8, 16], ("2.0 s", "32")),
        (400, [8, 16, 32, 64], ("32", "64", "0%", "16")),
    ],
)
def test_a_doubling_that_cannot_pay_for_its_compilation_is_not_measured(steps, measured, said):
    """A compilation takes 1 s, and the run must take 2 s or more for a doubling to save that."""
    choice = search([8, 16, 32, 64], machine({8: 100, 16: 200, 32: 200.0, 64: 200.0}), steps)
    assert [each.num_envs for each in choice.measured] == measured
    assert choice.num_envs == min(16, measured[-1])
    assert not missing(choice.reason, *said)


# --- which sizes


def test_minibatches_keep_their_rows():
    counts = {
        number: set_num_envs(config(), number).ppo.num_minibatches
        for number in (32, 64, 1024, 4096)
    }
    assert counts == {32: 1, 64: 2, 1024: 32, 4096: 128}, (
        "512 rows each, with no limit of 32 minibatches"
    )
    assert set_num_envs(config("ppo.num_minibatches=4"), 64).ppo.num_minibatches == 4, (
        "a number that was given stays"
    )


def test_the_first_size_fits_groups_and_minibatches_and_the_last_leaves_updates():
    assert list(sizes(config())) == [32, 64], "51,200 steps / 50 updates / 16 steps = 64"
    assert next(iter(sizes(config("ppo.num_minibatches=24", "rollout.num_shards=5")))) == 45, (
        "5 groups, 512 rows or more, and 16 x 9 rows of each group are 24 x 6"
    )
    assert next(iter(sizes(config("train.total_timesteps=1")))) == 32, (
        "a short run still has a size"
    )


def test_what_fits_nothing_is_refused_with_its_reason():
    with refused("rollout.num_envs=auto", "num_minibatches"):
        list(sizes(config("ppo.num_minibatches=1000003")))


# --- memory that is free


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\n"}, 60 * 1024),
        (
            {
                "/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\n",
                "/proc/self/cgroup": "0::/\n",
                f"{CGROUP}/memory.max": "50000\n",
                f"{CGROUP}/memory.current": "30000\n",
                f"{CGROUP}/memory.stat": "anon 1\ninactive_file 1000\n",
            },
            21_000,
        ),
        ({"/proc/meminfo": "MemTotal: 100 kB\n"}, 100 * 1024),
    ],
)
def test_free_memory_is_the_least_of_what_kernel_and_control_group_leave(files, expected):
    assert available_memory("Linux", files.get) == expected


# --- a run that measures itself


def at_once(setup, limit):
    """Measures nothing: twice the environments are twice as fast, up to 64."""
    del limit
    number = setup.config.rollout.num_envs
    return SizeMeasurement(number, float(min(number, 64)), 10 * number, 0.0)


@pytest.mark.slow
def test_what_was_chosen_is_said_in_one_line():
    told = Told()
    found = prepare_sized(config(), told, at_once, lambda: None)
    assert found.setup.config.rollout.num_envs == 64
    [said] = told.lines
    assert not missing(
        said, "rollout.num_envs: ", "auto is 64", "1,024 steps", "32: 32, 64: 64", "50 updates"
    )
    assert [phase.about for phase in told.phases] == ["64 environments"]

    def within(setup, limit):
        found = at_once(setup, limit)
        if found.bytes > limit:
            raise MemoryError
        return found

    left = prepare_sized(config(), Told(), within, lambda: 500)
    assert left.setup.config.rollout.num_envs == 32, "64 need 640 bytes, and 80 % of 500 are 400"


def test_a_size_that_needs_more_than_a_run_may_take_does_not_fit():
    setup = prepare(config("rollout.num_envs=8"))
    with pytest.raises(MemoryError, match="may take 1 MB"):
        measure_update(setup, 1_000_000)


def test_a_single_size_is_not_measured():
    def refuse(setup, limit):
        raise AssertionError(f"measured {setup.config.rollout.num_envs} within {limit}")

    told = Told()
    found = prepare_sized(config("train.total_timesteps=2000"), told, refuse, lambda: None)
    assert found.setup.config.rollout.num_envs == 32
    [said] = told.lines
    assert not missing(said, "rollout.num_envs", "auto is 32", "512 steps", "50 updates")
    assert not told.phases


def test_an_advisor_is_refused():
    overrides = ("advisor.kind=rules", "advisor.fusion=trust")
    with refused("auto with advisor.kind"):
        prepare_sized(config(*overrides), Told(), at_once, lambda: None)
    with refused("measured by `jaxtrade train`"):
        prepare(config())


@pytest.mark.slow
def test_a_run_writes_the_number_and_shrinks_when_memory_runs_out(monkeypatch, tmp_path):
    begun, told, path = [], Told(), tmp_path / "shrunk"

    def dies_with_64(found):
        begun.append(found.rollout.num_envs)
        if found.rollout.num_envs == 64:
            rundir.create_run(path, found, rundir.provenance(found, "0"))
            raise MemoryError("RESOURCE_EXHAUSTED: out of memory while compiling")

    monkeypatch.setattr(
        training,
        "prepare_sized",
        lambda config, screen: prepare_sized(config, screen, at_once, lambda: None),
    )
    monkeypatch.setattr(training, "check_device", dies_with_64)
    assert training.run(config(), path, screen=told).path == path
    assert begun == [64, 32]
    assert read_json(path / "manifest.json")["auto_envs"]["num_envs"] == 32
    warning = next(line for line in told.lines if line.startswith("warning: memory"))
    assert not missing(warning, "32 environments", "64", "rollout.num_envs: auto")
    written = read_values(path / "config.yaml")
    assert (written["rollout"]["num_envs"], written["ppo"]["num_minibatches"]) == (32, 1), (
        "a resume sees ints"
    )
    assert rundir.read_run(path)[0].rollout.num_envs == 32


def test_a_number_that_the_user_gave_is_never_changed(tmp_path):
    given_by_user = SizedSetup(prepare(set_num_envs(config(), 64)), config())

    smallest = SizedSetup(
        prepare(set_num_envs(config(), 32)),
        config(),
        Choice(32, (SizeMeasurement(32, 1.0, 1, 0.0),), ""),
    )
    assert shrink_setup(given_by_user, tmp_path) is shrink_setup(smallest, tmp_path) is None
