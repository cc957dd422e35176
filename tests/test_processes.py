"""The layout of a run's processes: flags, then variables, then what JAX detects. No process is
started here.
"""

import json

import pytest

from jaxtrade import load_config
from jaxtrade.cli import main
from jaxtrade.errors import DataError, StoppedTogetherError
from jaxtrade.runs.distributed import (
    ALONE,
    PORT,
    ProcessFlags,
    ProcessGroup,
    check_config,
    find_process_group,
)
from jaxtrade.training import multiprocess
from tests.messages import missing, refused, refuses

SLURM = {
    "SLURM_JOB_ID": "70001",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_NTASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
}
OMPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
}
TRAINER = {
    "JAX_COORDINATOR_ADDRESS": "es-node-0-0.es:29500",
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "1",
}
SKY = {
    "SKYPILOT_NODE_RANK": "1",
    "SKYPILOT_NUM_NODES": "2",
    "SKYPILOT_NODE_IPS": "10.0.0.5\n10.0.0.6\n",
}
INDEXED = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "5"}
NOTHING = ProcessFlags()


def found(given=NOTHING, installed=False, /, **env):
    return find_process_group(given, env, lambda name: installed)


def test_without_a_word_a_process_is_alone():
    assert found() is ALONE
    assert (
        found(PATH="/bin", JAX_COORDINATOR_ADDRESS="10.0.0.1:1234") is ALONE
    )  # JAX's own variable says no number
    assert "one process" in str(ALONE)


@pytest.mark.parametrize(
    ("env", "layout"),
    [
        (TRAINER, ProcessGroup("JAX_* variables", 1, 2, "es-node-0-0.es:29500")),
        (SKY, ProcessGroup("SkyPilot", 1, 2, f"10.0.0.5:{PORT}")),
        (SKY | {"JAX_COORDINATOR_PORT": "7000"}, ProcessGroup("SkyPilot", 1, 2, "10.0.0.5:7000")),
        (SLURM, ProcessGroup("SLURM", 9, 16, None, "slurm")),
        (OMPI, ProcessGroup("Open MPI", 3, 4, None, "ompi")),
        (
            {"TPU_WORKER_HOSTNAMES": "a,b,c,d", "TPU_WORKER_ID": "2"},
            ProcessGroup("Cloud TPU", 2, 4),
        ),
        (
            {
                "TPU_WORKER_HOSTNAMES": "a,b",
                "TPU_WORKER_ID": "1",
                "MEGASCALE_NUM_SLICES": "3",
                "MEGASCALE_SLICE_ID": "2",
            },
            ProcessGroup("Cloud TPU", 5, 6),
        ),
        # A pod of an indexed job that names the rest itself, as a JobSet of `jaxtrade launch` does.
        (
            {
                "JAX_COORDINATOR_ADDRESS": "a:1",
                "JAX_NUM_PROCESSES": "8",
                "JOB_COMPLETION_INDEX": "5",
            },
            ProcessGroup("JAX_* variables", 5, 8, "a:1"),
        ),
    ],
)
def test_each_engine_is_recognised(env, layout):
    assert found(**env) == layout
    assert not layout.alone


def test_one_task_joins_no_one():
    assert found(**SLURM | {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}) is ALONE
    assert found(**OMPI | {"OMPI_COMM_WORLD_SIZE": "1"}) is ALONE
    assert found(**SKY | {"SKYPILOT_NUM_NODES": "1"}) is ALONE
    assert found(TPU_WORKER_HOSTNAMES="localhost", TPU_WORKER_ID="0") is ALONE
    without_a_step = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_NODELIST"}
    assert found(**without_a_step) is ALONE  # the batch script itself, outside of srun


def test_kubernetes_is_left_to_jax_if_its_package_is_there():
    assert found(**INDEXED) is ALONE
    layout = found(NOTHING, True, **INDEXED)
    assert layout == ProcessGroup("Kubernetes", 5, None)
    assert not layout.alone
    assert not missing(str(layout), "process 5", "Kubernetes")


def test_flags_win_over_variables_and_these_over_engines():
    flags = ProcessFlags("10.0.0.9:1234", 3, 0)
    assert found(flags, **TRAINER, **SLURM) == ProcessGroup("flags", 0, 3, "10.0.0.9:1234")
    assert found(**TRAINER, **SLURM).source == "JAX_* variables"
    assert found(ProcessFlags(num_processes=1), **SLURM) == ProcessGroup(
        "flags"
    )  # alone, whatever the environment says
    assert found(**SLURM | {"JAX_NUM_PROCESSES": "1"}).alone


@pytest.mark.parametrize(
    ("given", "env", "said"),
    [
        (
            ProcessFlags(num_processes=2),
            {},
            ("--num-processes=2:", "--coordinator", "--process-id", "missing"),
        ),
        (
            ProcessFlags(coordinator="a:1"),
            {},
            ("--coordinator=a:1:", "--num-processes", "--process-id", "missing"),
        ),
        (
            ProcessFlags("a:1", 2, 2),
            {},
            ("--process-id=2:", "--num-processes=2", "0 to 1"),
        ),
        (ProcessFlags("a", 2, 0), {}, ("--coordinator=a:", "HOST:PORT")),
        (NOTHING, TRAINER | {"JAX_PROCESS_ID": "2"}, ("JAX_PROCESS_ID=2:", "JAX_NUM_PROCESSES=2")),
        (
            NOTHING,
            TRAINER | {"JAX_NUM_PROCESSES": "two"},
            ("JAX_NUM_PROCESSES=two:", "whole number"),
        ),
        (
            NOTHING,
            {"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"},
            ("JAX_COORDINATOR_ADDRESS", "missing"),
        ),
        (NOTHING, {"JAX_NUM_PROCESSES": "0"}, ("JAX_NUM_PROCESSES=0:", "at least 1")),
        (NOTHING, SKY | {"SKYPILOT_NODE_IPS": "10.0.0.5"}, ("SKYPILOT_NODE_IPS", "1 addresses")),
        (
            NOTHING,
            SLURM | {"SLURM_PROCID": "16"},
            ("SLURM_PROCID=16:", "SLURM_NTASKS=16", "0 to 15"),
        ),
    ],
)
def test_contradictions_are_named(given, env, said):
    with refused(*said):
        found(given, **env)


def test_what_processes_would_do_differently_is_refused():
    two = ProcessGroup("flags", 1, 2, "a:1")
    auto = load_config("quickstart", ["rollout.num_envs=auto"])
    advised = load_config("quickstart", ["env.task=advised", "advisor.kind=rules"])
    check_config(load_config("quickstart"), two)
    check_config(auto, ALONE)
    with refused("rollout.num_envs=auto:", "process 1 of 2"):
        check_config(auto, two)
    with refused("kind=rules: ", "one process"):
        check_config(advised, two)


def test_the_command_reports_a_contradiction(capsys):
    assert main(["train", "--num-processes", "2", "--process-id", "3", "--coordinator", "a:1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: --process-id=3:")
    assert not missing(said, "--num-processes=2", "0 to 1\n")
    refuses(capsys, ["doctor", "--num-processes", "2"], "drop --num-processes")


class Service:
    """A coordination service in memory, as one process sees it. values: set by the others
    beforehand.
    """

    def __init__(self, process_id, values=None):
        self.process_id, self.num_processes, self.client = process_id, 3, self
        self.values, self.barriers = dict(values or {}), []

    def key_value_set(self, key, value):
        assert key not in self.values
        self.values[key] = value

    def blocking_key_value_get(self, key, timeout_in_ms):
        assert timeout_in_ms > 0
        return self.values[key]

    def key_value_dir_get(self, key):
        return [(name, value) for name, value in self.values.items() if name.startswith(f"{key}/")]

    def key_value_delete(self, key):
        self.values = {
            name: value
            for name, value in self.values.items()
            if name != key and not (key.endswith("/") and name.startswith(key))
        }

    def wait_at_barrier(self, name, timeout_in_ms):
        self.barriers.append(name)


@pytest.fixture
def service(request, monkeypatch):
    made = Service(*request.param)
    monkeypatch.setattr(multiprocess, "find_distributed_state", lambda: made)
    monkeypatch.setattr(multiprocess, "_CALLS", multiprocess._Calls())
    return made


def test_alone_every_function_is_the_identity():
    assert (multiprocess.process_index(), multiprocess.process_count(), multiprocess.is_main()) == (
        0,
        1,
        True,
    )
    assert multiprocess.from_main(lambda: {"a": 1}) == {"a": 1}
    assert [multiprocess.agree(number) for number in (0, 15)] == [0, 15]
    multiprocess.barrier("nobody")


@pytest.mark.parametrize(
    "service", [(0, {"jaxtrade/2/1": "15", "jaxtrade/2/2": "0"})], indirect=True
)
def test_process_0_decides_and_the_largest_number_counts(service):
    assert multiprocess.is_main()
    assert multiprocess.from_main(lambda: 0.1) == 0.1
    assert json.loads(service.values["jaxtrade/1"]) == {"value": 0.1}
    assert multiprocess.agree(2) == 15
    assert service.barriers == ["jaxtrade/2/all"]
    assert "jaxtrade/1" not in service.values  # every process has read it by now
    with refused("no bars", kind=DataError):
        multiprocess.from_main(_fails)
    assert json.loads(service.values["jaxtrade/3"]) == {"error": "no bars", "exit_code": 2}


@pytest.mark.parametrize(
    "service",
    [
        (
            1,
            {
                "jaxtrade/1": '{"value": "runs/a"}',
                "jaxtrade/2": '{"error": "full", "exit_code": 74}',
            },
        )
    ],
    indirect=True,
)
def test_the_others_take_its_value_and_stop_with_its_code(service):
    assert (multiprocess.is_main(), multiprocess.process_index(), multiprocess.process_count()) == (
        False,
        1,
        3,
    )
    assert multiprocess.from_main(_fails) == "runs/a"  # nothing is made here
    with pytest.raises(StoppedTogetherError, match=r"process 0 .*: full") as stop:
        multiprocess.from_main(_fails)
    assert stop.value.exit_code == 74


def _fails():
    raise DataError("no bars")
