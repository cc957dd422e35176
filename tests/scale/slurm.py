"""A real SLURM of one node, in a folder of its own: Debian's `slurm-wlm` and `munge`, as root."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from tests.scale.started import free_port

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol", "squeue")
CONF = """ClusterName=one
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={port}
SlurmdPort={other}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobRequeue=1
KillWait=30
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing():
    """Why no SLURM can be started here; None if one can."""
    lacking = [
        name
        for name in NEEDED
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]
    if lacking:
        return f"{lacking[0]} is not installed (Debian: slurm-wlm munge)"
    return None if os.geteuid() == 0 else "it is started as root"


class Cluster:
    """env: variables with which the commands find it."""

    def __init__(self, folder):
        self.folder, self.env = folder, os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *words):
        """A command of SLURM -> its output. Raises RuntimeError with what it said."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()

    def state(self, job):
        """What `scontrol show job` says."""
        said = self.run("scontrol", "-o", "show", "job", job)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def until(self, job, states, seconds=180.0):
        """Wait until a job is in one of the states. A job that was requeued is let go after 3 s,
        not 2 minutes; in the second in which it was killed, the node would refuse it."""
        let_go, found = set(), {}

        def is_in_one():
            found.update(self.state(job))
            count = found["Restarts"]
            if found["JobState"] == "PENDING" and int(count) and count not in let_go:
                self.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")
                let_go.add(count)
            return found["JobState"] in states

        until(is_in_one, lambda: f"job {job} is {found}, expected {states}", seconds)
        return found

    def is_idle(self):
        """Whether the node waits for jobs."""
        try:
            return self.run("sinfo", "-h", "-o", "%T").startswith("idle")
        except RuntimeError:
            return False


@contextmanager
def cluster(folder):
    """A cluster that is up; its daemons end with the block."""
    folder.chmod(0o755)
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir()
    (folder / "munge" / "key").write_bytes(os.urandom(1024))
    (folder / "munge" / "key").chmod(0o400)
    ports = [free_port() for _ in range(2)]
    (folder / "slurm.conf").write_text(
        CONF.format(
            host=socket.gethostname(),
            folder=folder,
            port=ports[0],
            other=ports[1],
            cpus=os.cpu_count(),
        )
    )
    made, daemons = Cluster(folder), list[subprocess.Popen[bytes]]()
    munge = folder / "munge"
    commands = [
        [
            "munged",
            "--force",
            "--foreground",
            f"--key-file={munge}/key",
            f"--socket={munge}/socket",
            f"--pid-file={munge}/pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        ],
        ["slurmctld", "-D"],
        ["slurmd", "-D"],
    ]
    path = f"{os.environ['PATH']}:/usr/sbin"
    try:
        for words in commands:
            log = (folder / f"{words[0]}.log").open("wb")
            daemons.append(
                subprocess.Popen(
                    words,
                    env=made.env | {"PATH": path},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            time.sleep(1.0)
        until(made.is_idle, lambda: "SLURM does not come up")
        yield made
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()


def until(condition, said, seconds=120.0):
    """Wait for something. Raises RuntimeError with what is said at the end of the time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(said())
        time.sleep(0.2)


def task(job, number):
    """The process of a task of a job: the first of those that it has started."""
    wanted = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_PROCID={number}".encode()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return min(found)
