"""`jaxtrade launch`: what it prints for each engine, and processes on this machine.

The manifests are compared with files in `tests/fixtures/launch`; `python -m tests.test_launching`
writes these again. Where the engine's own package is installed, its schema reads them too.
"""

import json
import os
import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.cli import main
from jaxtrade.config.yaml12 import parse_yaml
from jaxtrade.errors import ConfigError, DivergedError, PreemptedError, ProcessLostError
from jaxtrade.launching import job
from jaxtrade.launching.job import LaunchJob, check_job, command_of, manifest
from tests.messages import missing, refused, refuses
from tests.reading import FIXTURES

FOLDER = FIXTURES / "launch"
COMMAND = command_of(
    ["train", "quickstart", "--run-dir", "/runs/es", "--set", "train.total_timesteps=1e9"]
)
PODS = LaunchJob(
    COMMAND, name="es", nodes=2, gpus=8, image="registry.example/jaxtrade:1", claim="runs"
)
MADE = {
    "slurm.sh": lambda: manifest(
        LaunchJob(
            COMMAND,
            name="es",
            nodes=2,
            gpus=8,
            partition="gpu",
            setup=("source ~/venv/bin/activate",),
        ),
        "slurm",
    ),
    "slurm_cpu.sh": lambda: manifest(LaunchJob(COMMAND, gpus=0), "slurm"),
    "jobset.yaml": lambda: manifest(PODS, "jobset"),
    "jobset_cpu.yaml": lambda: manifest(
        LaunchJob(COMMAND, gpus=0, image="jaxtrade", claim="runs"), "jobset"
    ),
    "trainjob.yaml": lambda: manifest(PODS, "trainjob"),
    "sky.yaml": lambda: manifest(
        LaunchJob(
            COMMAND,
            name="es",
            nodes=2,
            gpus=8,
            claim="s3://my-runs",
            setup=("pip install jaxtrade", "nvidia-smi"),
        ),
        "sky",
    ),
}


@pytest.mark.parametrize("engine", ["jobset", "trainjob", "sky"])
def test_a_process_alone_uses_all_gpus_of_its_node(engine):
    """Several processes do so by themselves."""
    claim = {"claim": "s3://runs" if engine == "sky" else "runs", "image": "jaxtrade"}

    def text(*more, **node):
        words = ["train", "quickstart", "--run-dir", "/runs/es", *more]
        return (
            "".join(manifest(LaunchJob(command_of(words), **claim, **node), engine).split())
            .replace("-", "")
            .replace('"', "")
        )

    assert "devicesall" in text(nodes=1, gpus=8)
    assert "devicesall" not in text(nodes=2, gpus=8) + text(nodes=1, gpus=1)
    assert "devicesall" not in text("--devices", "4", nodes=1, gpus=8)
    assert "devicesall" not in text("--set", "parallel.devices=4", nodes=1, gpus=8)


@pytest.mark.parametrize("name", MADE)
def test_manifests_are_those_of_the_files(name):
    assert MADE[name]() == (FOLDER / name).read_text(), "python -m tests.test_launching"


@pytest.mark.parametrize("name", [name for name in MADE if name.endswith(".yaml")])
def test_manifests_are_yaml_of_any_reader(name):
    """A reader of YAML 1.1 and one of 1.2 see the same: no word that only one of them takes for a
    number.
    """
    yaml = pytest.importorskip("yaml")
    text = MADE[name]()
    assert yaml.safe_load(text) == parse_yaml(text, name)


@pytest.mark.parametrize("name", ["slurm.sh", "slurm_cpu.sh"])
def test_scripts_are_those_of_bash(name, tmp_path):
    """With engines in place of SLURM's: exit code 75 requeues the job, others do not, and each is
    handed on.
    """
    script = tmp_path / "job.sh"
    script.write_text(MADE[name]().replace("source ~/venv/bin/activate\n", ""))
    for command, body in {
        "srun": 'echo "srun $*"; exit "$CODE"',
        "scontrol": 'echo "scontrol $*"',
    }.items():
        (tmp_path / command).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / command).chmod(0o755)
    for code in (0, 2, 75):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "17", "CODE": str(code)}
        done = subprocess.run(
            ["bash", str(script)], env=env, capture_output=True, text=True, timeout=30, check=False
        )
        lines = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (code, "")
        assert lines[0].endswith(
            "jaxtrade train quickstart --run-dir /runs/es --set train.total_timesteps=1e9 "
            "--auto-resume"
        )
        assert lines[1:] == (["scontrol requeue 17"] if code == 75 else [])


def lost(given, read, path=""):
    """The places of a document whose value is another one in `read`, which may hold more:
    defaults.
    """
    if isinstance(given, dict) and isinstance(read, dict):
        return [
            place
            for key, value in given.items()
            for place in lost(value, read.get(key), f"{path}/{key}")
        ]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [
            place for i, value in enumerate(given) for place in lost(value, read[i], f"{path}/{i}")
        ]
    return [] if given == read else [path]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("jobset.yaml", "JobsetV1alpha2JobSet"),
        ("jobset_cpu.yaml", "JobsetV1alpha2JobSet"),
        ("trainjob.yaml", "TrainerV1alpha1TrainJob"),
    ],
)
def test_the_models_of_kubeflow_trainer_keep_every_key(name, kind):
    """They are generated from the schemas of the cluster: a missing key or a wrong type raises, an
    unknown one goes.
    """
    models = pytest.importorskip(
        "kubeflow_trainer_api.models", reason="pip install 'kubeflow-trainer-api>=2.3,<3'"
    )
    model, document = getattr(models, kind), parse_yaml(MADE[name](), name)
    assert lost(document, json.loads(model.from_dict(document).to_json())) == []
    spoiled = document | {"spec": document["spec"] | {"numberOfNodes": 2}}
    assert lost(spoiled, json.loads(model.from_dict(spoiled).to_json())) == ["/spec/numberOfNodes"]


def test_every_process_of_a_manifest_can_be_told_which_it_is():
    """The variables of a JobSet's pods are what `runs.distributed` reads."""
    from jaxtrade.runs.distributed import ProcessFlags, ProcessGroup, find_process_group

    spec = parse_yaml(MADE["jobset.yaml"](), "")["spec"]["replicatedJobs"][0]["template"]["spec"]
    env = {
        each["name"]: each.get("value", "1")
        for each in spec["template"]["spec"]["containers"][0]["env"]
    }
    assert spec["parallelism"] == spec["completions"] == 2
    assert find_process_group(ProcessFlags(), env) == ProcessGroup(
        "JAX_* variables", 1, 2, "es-worker-0-0.es:55527"
    )


def test_exit_codes_of_the_templates_are_those_of_the_errors():
    rules = parse_yaml(MADE["jobset.yaml"](), "")["spec"]["replicatedJobs"][0]["template"]["spec"]
    final = rules["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
    assert final == [ConfigError.exit_code, DivergedError.exit_code]
    again = parse_yaml(MADE["sky.yaml"](), "")["resources"]["job_recovery"]
    assert again["recover_on_exit_codes"] == [PreemptedError.exit_code, ProcessLostError.exit_code]


@pytest.mark.parametrize("engine", ["jobset", "trainjob", "sky"])
def test_values_are_the_text_that_was_given(engine):
    """Also where YAML would read a word as something else, or break a line."""
    words = ("--set", "a=[1, 2]", "'no' # $name: " + "long " * 30 + "x", "0123", "null")
    odd = LaunchJob(
        (*COMMAND, *words), name="no", image="0x1f", claim="https://1", mount="/runs", gpus=0
    )
    document = parse_yaml(manifest(odd, engine), engine)
    if engine == "sky":
        assert (document["name"], document["resources"]["image_id"]) == ("no", "docker:0x1f")
        assert shlex.split(document["run"]) == ["jaxtrade", *odd.command]
        return
    spec = document["spec"]
    if engine == "jobset":
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        trainer = pod["containers"][0]
    else:
        trainer = spec["trainer"]
    assert (document["metadata"]["name"], trainer["image"]) == ("no", "0x1f")
    assert trainer["command"] == ["jaxtrade", *odd.command]


def test_the_command_starts_and_continues():
    assert COMMAND[-1] == "--auto-resume"
    assert command_of(COMMAND) == COMMAND
    assert command_of(["train", "--run-dir=/runs/a"]) == (
        "train",
        "--run-dir",
        "/runs/a",
        "--auto-resume",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected a training after '--'"),
        (["evaluate", "runs/a"], "found 'evaluate runs/a'"),
        (["train"], "--run-dir"),
        (["train", "--run-dir"], "--run-dir"),
        (["train", "--run-dir", "/runs/a", "--resume", "b"], "--resume: the launched command"),
        (
            ["train", "--run-dir", "/runs/a", "--num-processes=2"],
            "--num-processes: ",
        ),
    ],
)
def test_commands_that_cannot_be_repeated(words, said):
    with refused(said):
        command_of(words)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (LaunchJob(COMMAND, name="My_job"), "--name My_job"),
        (LaunchJob(COMMAND, name="a" * 41), "--name aaa"),
        (LaunchJob(COMMAND, time="24h"), "--time 24h"),
        (LaunchJob(COMMAND), "--image is missing"),
        (LaunchJob(COMMAND, image="a"), "--claim is missing"),
        (LaunchJob(COMMAND, partition="gpu\nrm -rf ~"), "--partition "),
        (LaunchJob(COMMAND, partition="gpu; true"), "--partition gpu; true: "),
        (LaunchJob(COMMAND, setup=("source a\n#SBATCH --uid=0",)), "--setup "),
        (LaunchJob(COMMAND, image="a\nb"), "--image "),
        (LaunchJob(COMMAND, gpu_kind="H\x1b"), "--gpu-kind"),
        (LaunchJob((*COMMAND[:-1], "a\nb")), "the training "),
        (LaunchJob(COMMAND, image="a", claim="b", mount="/data"), "--run-dir /runs/es: "),
    ],
)
def test_jobs_that_an_engine_would_refuse(job, said):
    with refused(said):
        check_job(job, needs_image=True, needs_claim=True)


def test_a_bucket_is_named(capsys):
    refuses(
        capsys,
        ["launch", "sky", "--print", "--claim", "my-runs", "--", *COMMAND],
        "--claim my-runs: ",
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("slurm.sh", "slurm --partition gpu --setup 'source ~/venv/bin/activate'"),
        ("jobset.yaml", "jobset --image registry.example/jaxtrade:1 --claim runs"),
    ],
)
def test_the_command_line_prints_the_same(name, words, capsys):
    flags = shlex.split(f"launch {words} --print --name es --nodes 2 --gpus-per-node 8 --")
    assert main([*flags, *COMMAND[:-1]]) == 0
    assert capsys.readouterr().out == MADE[name]()


def test_a_mistake_in_the_training_is_found_before_anything_starts(
    capsys,
):
    words = ["--print", "--", "train", "--run-dir", "/runs/a", "--timestep", "9"]
    refuses(capsys, ["launch", "slurm", *words], "no flag --timestep")
    refuses(capsys, ["launch", "local"], "nothing to launch")


# --- processes on this machine


def test_each_process_learns_its_number_and_has_its_own_devices():
    base = {"PATH": "/bin", "JAX_PROCESS_ID": "9"}
    assert job.environment(base, 1, 2, 5000, None) == base | {
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:5000",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "JAX_LOCAL_DEVICE_IDS": "1",
    }
    four = job.environment({}, 1, 2, 5000, 4)
    assert (four["JAX_LOCAL_DEVICE_IDS"], four["JAX_NUM_CPU_DEVICES"]) == ("4,5,6,7", "4")


@given(count=st.integers(1, 6), devices=st.integers(1, 6))
def test_devices_are_shared_out_without_gap_or_overlap(count, devices):
    lists = [
        job.environment({}, i, count, 1, devices)["JAX_LOCAL_DEVICE_IDS"].split(",")
        for i in range(count)
    ]
    assert [int(each) for one in lists for each in one] == list(range(count * devices))


@pytest.mark.parametrize(
    ("codes", "code"), [([], 0), ([75, 75], 75), ([69, 137], 137), ([69, 69], 69), ([2, 69], 2)]
)
def test_the_cause_is_the_exit_code(codes, code):
    assert job.combine_exit_codes(codes) == code


@pytest.mark.slow
def test_lines_of_both_processes_and_the_exit_code(capsys):
    assert job.launch(["list", "learners"], 2) == 0
    lines = capsys.readouterr().out.splitlines()
    first, second = ([line[4:] for line in lines if line.startswith(f"[{i}] ")] for i in range(2))
    assert first == second
    assert any("ppo" in line for line in first)
    assert len(first) + len(second) == len(lines)
    assert job.launch(["evaluate", "nowhere"], 2) == 2
    assert "[1] error: nowhere: " in capsys.readouterr().err


def watched(*codes):
    """The verdict on processes of Python code, and how each of them ended."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        for code in codes
    ]
    verdict = job._wait_for_all(processes)
    for process in processes:
        process.communicate(timeout=30)
    return verdict, [process.returncode for process in processes]


def test_a_process_that_a_signal_ended_is_named(capsys):
    found = watched("pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert found == (137, [0, -9])
    assert not missing(capsys.readouterr().err, "process 1 ", "SIGKILL")


def test_a_second_process_is_killed_when_one_fails(monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_S", 0.1)
    found = watched("import time; time.sleep(600)", "raise SystemExit(3)")
    assert found == (3, [-9, 3])


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in MADE.items():
        (FOLDER / name).write_text(make())
