"""`jaxtrade bench device`: which parts are run, skipped and kept, what a failure does, and what
correctness asks.
"""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import struct

from bench import command, correctness, device, worker
from bench.device import PARTS, Context, Machine, Part
from jaxtrade import cli, interrupt
from jaxtrade.storage import internals, programs
from tests.bench.made_up import STAMP, side
from tests.messages import refused
from tests.reading import read_json

MACHINE = Machine("gpu", "NVIDIA H200", "h200")


@pytest.mark.parametrize(
    ("platform", "kind", "folder"),
    [
        ("cpu", "cpu", "cpu"),
        ("gpu", "NVIDIA H200", "h200"),
        ("gpu", "NVIDIA H100 80GB HBM3", "h100"),
        ("gpu", "NVIDIA A100-SXM4-80GB", "a100"),
        ("tpu", "TPU v5 lite", "v5e"),
        ("tpu", "TPU v6e", "v6e"),
        ("gpu", "NVIDIA GH200 480GB", "nvidia-gh200-480gb"),
        ("gpu", "NVIDIA H100 PCIe", "nvidia-h100-pcie"),
        ("gpu", "NVIDIA H200 MIG 1g.18gb", "nvidia-h200-mig-1g-18gb"),
        ("gpu", "NVIDIA GeForce RTX 5090", "nvidia-geforce-rtx-5090"),
        ("tpu", "../..", "tpu"),
    ],
)
def test_a_device_has_a_short_name_that_is_safe_in_paths(platform, kind, folder):
    assert device.folder_of(platform, kind) == folder


class Made:
    """Parts `correctness`, `one`, `two` that nothing measures, and the command on them. ran: those
    measured, in order.
    faults: part -> what it raises."""

    def __init__(self, out):
        self.out, self.ran = out, []
        self.faults = {}
        self.stamp = dict(STAMP)
        self.correctness, self.size, self.machine = "passed", 1, MACHINE
        self.parts = {
            name: Part(f"the part {name}", self._measure(name), {}, {})
            for name in ("correctness", "one", "two")
        }

    def _measure(self, name):
        def measure(context):
            self.ran.append(name)
            if name in self.faults:
                raise self.faults[name]
            found = {"sides": {"ours": side(1e6)}, "ratios": {}}
            verdict = {
                "correctness": self.correctness,
                "checks": {"update": {"passed": self.correctness == "passed"}},
            }
            return found | (verdict if name == "correctness" else {})

        return measure

    def run(self, load=0.1, chosen=(), **options):
        self.ran.clear()
        given = command.request(names=["device"], out=self.out, **options)
        keep = partial(command.kept, given, load)
        told = " ".join(command.stamped("device", given))
        asked = given._replace(parts=chosen)
        sizes = {"size": (self.size,)}
        parts = {
            name: part if part.full else part._replace(full=sizes, quick=sizes)
            for name, part in self.parts.items()
        }
        return device.run(asked, told, load, keep, parts, lambda: (self.machine, self.stamp))

    def result(self, name):
        return read_json(self.out / self.machine.folder / f"{name}.json")


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv(
        "XLA_FLAGS", f"--one --xla_dump_to={tmp_path}"
    )  # no folder of this machine in a result
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: False)
    return Made(tmp_path / "out")


def test_every_part_is_saved_and_printed(made, capsys):
    assert made.run() == 0
    said = capsys.readouterr()
    assert made.ran == ["correctness", "one", "two"]
    assert [json.loads(line) for line in said.out.splitlines()] == [
        made.result(name) for name in made.ran
    ]
    found = made.result("two")
    assert (found["bench"], found["about"], found["correctness"]) == (
        "two",
        "the part two",
        "passed",
    )
    assert found["config"] == {
        "device": "h200",
        "repeats": 7,
        "xla_flags": ["--one"],
        "sizes": {"size": [1]},
    }
    assert found["stamp"]["command"] == "jaxtrade bench device"
    assert "two: done in" in said.err


def test_a_second_run_skips_what_is_there(made, capsys):
    made.run()
    assert made.run() == 0
    assert made.ran == []
    assert "one: skipped: measured already" in capsys.readouterr().err
    (made.out / "h200" / "one.json").write_text("{")
    made.run()
    assert made.ran == ["one"]
    made.run(again=True)
    assert made.ran == ["correctness", "one", "two"]


@pytest.mark.parametrize("change", ["commit", "device", "versions", "size", "repeats"])
def test_what_is_of_something_else_is_measured_again(made, change, capsys):
    made.run()
    if change == "size":
        made.size = 2
    elif change != "repeats":
        made.stamp = made.stamp | {change: "another"}
    made.run(repeats=9 if change == "repeats" else 7)
    assert made.ran == ["correctness", "one", "two"]
    assert (
        f"its {'sizes are others' if change in ('size', 'repeats') else change + ' is another'}"
        in (capsys.readouterr().err)
    )


def test_a_commit_with_changes_is_never_the_same(made):
    made.stamp |= {"commit": "abc1234+"}
    made.run()
    made.run()
    assert made.ran == ["correctness", "one", "two"]


def test_an_interruption_keeps_what_is_finished(made):
    made.faults = {"two": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert "the same command goes on from there" in interrupt.line()
    assert made.result("one")["bench"] == "one"
    made.faults = {}
    assert made.run() == 0
    assert made.ran == ["two"]


def test_a_part_that_fails_stops_no_other(made, capsys):
    made.faults = {"one": worker.WorkerError("planted")}
    assert made.run() == 70
    assert made.ran == ["correctness", "one", "two"]
    said = capsys.readouterr().err
    assert "one: failed: planted" in said
    assert not (made.out / "h200" / "one.json").exists()
    assert made.result("two")["correctness"] == "passed"


def test_failed_correctness_is_loud_and_in_every_result(made, capsys):
    made.correctness = "failed"
    assert made.run() == 1
    said = capsys.readouterr().err
    assert said.index("CORRECTNESS FAILED") < said.index("device h200: one")
    assert [made.result(name)["correctness"] for name in made.parts] == ["failed"] * 3
    made.correctness = "passed"
    assert made.run() == 0
    assert made.ran == ["correctness", "one", "two"]  # what did not pass, and what stands beside it
    made.run(chosen=("two",))
    assert made.ran == []  # what is known of correctness holds for a part that is run alone
    assert made.result("two")["correctness"] == "passed"


def test_parts_are_chosen_by_name(made):
    assert made.run(chosen=("two",)) == 0
    assert made.ran == ["two"]
    assert made.result("two")["correctness"] == "not run"


def test_a_part_that_the_time_does_not_reach_is_left_to_the_next_run(made, monkeypatch, capsys):
    monkeypatch.setattr(device, "SECONDS", 0.0)
    assert made.run() == 1
    assert made.ran == []
    assert "two: not begun" in capsys.readouterr().err
    made.machine = Machine("cpu", "A processor", "cpu")  # a CPU may take its time
    assert made.run() == 0


def test_a_machine_that_was_not_idle(made, monkeypatch):
    assert made.run(load=2.0) == 1  # as steal time, which shows only afterwards
    assert not made.out.exists()
    assert made.run(load=2.0, force=True) == 0
    assert made.result("one")["forced"]
    assert made.run(load=2.0, force=True) == 0
    assert made.ran == []
    assert made.run(load=0.1) == 0
    assert made.ran == ["correctness", "one", "two"]
    assert not made.result("one")["forced"]


def test_a_quick_run_replaces_no_full_result(made):
    made.run()
    with refused("a full result"):
        made.run(quick=True)
    assert made.ran == []


def test_what_is_absent_is_left_out_by_name(made, capsys):
    made.parts = {"command_buffers": PARTS["command_buffers"]}
    made.machine = Machine("cpu", "A processor", "cpu")
    assert made.run() == 0
    assert "command_buffers: left out: no command buffers on a CPU" in capsys.readouterr().err
    assert PARTS["command_buffers"].absent("gpu") == ""


def test_its_command_is_stamped():
    asked = command.request(names=["device"], quick=True, parts=["memory", "memory"])
    assert asked.parts == ("memory",)
    assert (
        " ".join(command.stamped("device", asked)) == "jaxtrade bench device --quick --part memory"
    )
    assert asked.out == Path("bench/results/quick")


def test_the_help_names_every_part(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    assert ", ".join(PARTS) in " ".join(capsys.readouterr().out.split())


# ------------------------------------------------------------------------------------------------------------ parts
def test_a_cpu_leaves_out_what_takes_it_minutes():
    for name in ("ppo_train", "precision", "memory"):
        on_cpu, on_gpu = (PARTS[name].sizes(False, platform) for platform in ("cpu", "gpu"))
        assert on_gpu["slow"] == []
        assert (
            on_cpu["slow"]
            == [shape for shape in on_gpu["shapes"] if shape not in on_cpu["shapes"]]
            != []
        )
    assert max(PARTS["population"].sizes(False, "gpu")["counts"]) == 256


def context(name, jobs):
    class Doubled(Context):
        def job(self, name, variables=None, **arguments):
            return jobs(name, variables or {}, **arguments)

    return Doubled(PARTS[name].sizes(True, "gpu"), 5, float("inf"), "programs")


def test_command_buffers_are_off_in_one_of_two_processes(monkeypatch):
    flags = []

    def jobs(name, variables, **arguments):
        flags.append(variables.get("XLA_FLAGS"))
        return {"sides": {"a": side(2e6 if flags == [None] else 1e6)}}

    monkeypatch.setenv("XLA_FLAGS", "--mine")
    monkeypatch.setattr(programs, "has_gpu_plugin", lambda: True)
    monkeypatch.setattr(internals, "supports_xla_flags", lambda flags: True)
    found = PARTS["command_buffers"].measure(context("command_buffers", jobs))
    assert flags == [None, f"--mine {programs.DETERMINISTIC} --xla_gpu_enable_command_buffer="]
    assert found["ratios"] == {"a: on/off": {"wall": 2.0, "cpu": 2.0}}
    assert list(found["sides"]) == ["a/on", "a/off"]
    flags.clear()
    PARTS["determinism"].measure(context("determinism", jobs))
    assert flags == [None, "--mine"]
    assert device.flags() == f"--mine {programs.DETERMINISTIC}"  # of every job that says nothing


def test_a_check_that_fails_or_breaks_fails_correctness():
    def found(wrong="", broken=""):
        def jobs(name, variables, **arguments):
            if name == f"correctness.{broken}":
                raise worker.WorkerError("planted")
            return {"passed": name != f"correctness.{wrong}"}

        return PARTS["correctness"].measure(context("correctness", jobs))

    assert found()["correctness"] == "passed"
    for check in ("trajectories", "update", "resumed", "seeds"):
        assert found(wrong=check)["correctness"] == "failed"
        assert [line.partition(":")[0] for line in device.failures(found(wrong=check))] == [check]
    assert found(broken="straight")["checks"]["resumed"] == {"passed": False, "error": "planted"}


def test_time_that_is_over_says_nothing_of_correctness():
    def jobs(*_, **__):
        raise worker.LateError("planted")

    with pytest.raises(worker.LateError):
        PARTS["correctness"].measure(context("correctness", jobs))


# ------------------------------------------------------------------------------------------------------------- jobs
def test_a_job_that_fails_or_is_late_says_so(capfd):
    with refused("idle.nothing", " ended with status 1", kind=worker.WorkerError):
        worker.once("idle.nothing", {}, 600)
    assert "has no attribute 'nothing'" in capfd.readouterr().err
    with refused("ended after 0 seconds, its limit", kind=worker.LateError):
        worker.once("idle.load", {}, 0)


@pytest.mark.slow
def test_a_job_answers():
    assert worker.once("table.size", {"value": 212}, 600) == "212 B"
    stamp = worker.once("harness.stamp", {"command": [], "load": None}, 600)
    assert stamp["platform"] == "cpu"
    assert {"commit", "device", "versions"} <= stamp.keys()


# ------------------------------------------------------------------------------------------------------ correctness
def test_agents_with_other_actions_and_agents_that_drift_fail():
    for same, steps, passed in (
        (64, [1e-6] * 64, True),
        (60, [1e-6] * 60, True),
        (59, [1e-6] * 59, False),
        (64, [1e-6] * 63 + [0.1], False),
        (0, [], False),
    ):
        assert correctness.seeds_verdict(64, 3, same, steps)["passed"] is passed


class State(struct.PyTreeNode):
    params: Any
    count: jax.Array = struct.field(default_factory=lambda: jnp.int32(5))


def test_bits_that_differ_are_counted():
    one, equal, other = ({"w": jnp.float32([x, 1.0])} for x in (0.0, 0.0, -0.0))
    assert correctness.bits(State(one), State(equal))["arrays_differing"] == 0
    found = correctness.bits(State(one), State(other))  # -0 is equal and has other bits
    assert (found["arrays"], found["arrays_differing"], found["parameter_difference"]) == (
        2,
        1,
        0.0,
    )
    assert (
        correctness.bits(State(one), State({"w": jnp.float32([0.5, 1.0])}))["parameter_difference"]
        == 0.5
    )


def test_a_replay_without_the_events_that_matter_says_nothing():
    assert correctness.missing(Counter({"end_DAILY_LOSS": 1, "exit_LIQUIDATION": 2}), "strict") == [
        "end_STEP_LIMIT"
    ]
