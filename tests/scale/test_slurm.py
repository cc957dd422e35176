"""The script that `jaxtrade launch slurm` writes, on a real SLURM of one node: TERM while it
compiles and while it trains, requeues, two tasks, a killed task. The bits are those of a run that
nothing stopped."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.children import run_python
from tests.scale import slurm
from tests.scale.started import LIGHT, STRICT, TRAIN, result_of, saved

pytestmark = pytest.mark.slow
ENDED = ("COMPLETED", "FAILED")  # 1, so FAILED, if the tiny policy fails a check of its health


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    if (why := slurm.missing()) is not None:
        if os.environ.get("JAXTRADE_SLURM") == "required":
            pytest.fail(why)
        pytest.skip(why)
    with slurm.cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made


class Submitted:
    """A job of the script written for `jaxtrade train`. run: its folder. log: what all of its
    starts printed.
    """

    def __init__(self, node, folder, cache, tasks, train=TRAIN):
        self.node, self.run, self.log = node, folder / "run", folder / "log"
        setup = (
            f"export PATH={Path(sys.executable).parent}:$PATH JAX_COMPILATION_CACHE_DIR={cache}",
            *(f"export {name}={value}" for name, value in LIGHT.items()),
        )
        words = [
            "launch",
            "slurm",
            "--print",
            "--gpus-per-node",
            "0",
            *(word for line in setup for word in ("--setup", line)),
            "--",
            *train,
            "--run-dir",
            str(self.run),
        ]
        done = run_python("-m", "jaxtrade", *words, check=True)
        (folder / "job.sh").write_text(done.stdout)
        self.submit = (
            "sbatch",
            "--parsable",
            f"--ntasks-per-node={tasks}",
            f"--output={self.log}",
            f"--chdir={folder}",
            str(folder / "job.sh"),
        )
        self.job = node.run(*self.submit)

    def until(self, condition):
        """Wait for something that the job does while it runs."""
        self.node.until(self.job, ("RUNNING",))
        slurm.until(
            condition,
            lambda: f"{self.node.state(self.job)['JobState']}: {self.log.read_text()[-2000:]}",
        )

    def term(self, start):
        """SIGTERM, as before the end of the time and at a preemption; the script then has SLURM
        start it again.
        """
        self.node.run("scancel", "--signal=TERM", self.job)
        slurm.until(
            lambda: int(self.node.state(self.job)["Restarts"]) == start,
            lambda: f"it was not requeued: {self.log.read_text()[-2000:]}",
        )

    def end(self):
        """Wait for the end of the training. Between two starts, SLURM calls a job ended too."""
        slurm.until(
            lambda: (
                self.node.until(self.job, ENDED)["JobState"] in ENDED
                and (self.run / "summary.json").is_file()
            ),
            lambda: f"it ended without a summary: {self.log.read_text()[-2000:]}",
        )


def test_it_is_stopped_while_it_compiles_and_while_it_trains(node, alone, tmp_path):
    train = (*STRICT, "--devices", "1")
    submitted = Submitted(node, tmp_path, tmp_path / "empty", 1, train)
    run = submitted.run
    submitted.until(lambda: (run / "run.log").is_file())  # what follows is the compilation
    submitted.term(1)
    assert not saved(run)
    assert "stopped by SIGTERM" in submitted.log.read_text()
    submitted.until(lambda: saved(run))
    submitted.term(2)
    submitted.end()
    assert result_of(run) == alone


def test_a_killed_task_ends_the_other_and_the_same_script_goes_on(
    node, cache, uninterrupted, tmp_path
):
    submitted = Submitted(node, tmp_path, cache, tasks=2)
    submitted.until(lambda: saved(submitted.run))
    os.kill(slurm.task(submitted.job, 1), signal.SIGKILL)
    found = node.until(submitted.job, ("FAILED",))
    assert found["Restarts"] == "0"  # a lost task is no preemption: somebody looks first
    submitted.job = node.run(*submitted.submit)
    submitted.end()
    assert result_of(submitted.run) == uninterrupted
