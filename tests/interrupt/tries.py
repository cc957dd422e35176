"""One Ctrl-C at one moment of one command, and what it left behind."""

import fcntl
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.reading import ROOT, read_json

LONGEST_S = 600.0  # a command that is not interrupted ends before
SMALL = (
    "--set",
    "train.total_timesteps=60_000",
    "--set",
    "rollout.num_envs=16",
    "--set",
    "train.chunk_updates=4",
)
MARK = "JAXTRADE_INTERRUPT_TRY"  # in the environment of a command and of all that it starts


class Command(NamedTuple):
    """A command line of jaxtrade. `{out}` stands for a folder that does not exist, `{run}` for a
    finished run.
    """

    name: str
    words: tuple[str, ...]


COMMANDS = (
    Command("train", ("train", "--test", *SMALL, "--run-dir", "{out}")),
    Command("curriculum", ("curriculum", "--test", "--market", "NQ", *SMALL, "--run-dir", "{out}")),
    Command("evaluate", ("evaluate", "{run}")),
    Command("bench", ("bench", "compile", "startup", "--quick", "--out", "{out}")),
)


class Try(NamedTuple):
    """What one Ctrl-C did. delay: seconds from the start of the command to the signal. code: exit
    code, negative for a signal. seconds: from the signal to the end. faults: what should not be;
    empty if all is well."""

    command: str
    delay: float
    code: int
    seconds: float
    said: str
    faults: tuple[str, ...]


def environment(cache, mark=""):
    """The variables of a command. cache: folder of its compiled programs."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {
        "PYTHONPATH": path,
        "XDG_CACHE_HOME": str(cache),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "programs"),
        MARK: mark,
    }


def argv(command, run, out):
    """The process's arguments."""
    return [
        sys.executable,
        "-m",
        "jaxtrade",
        *(word.format(run=run, out=out) for word in command.words),
    ]


def finished_run(folder, cache):
    """A small finished run for the commands that read one."""
    run = folder / "finished"
    subprocess.run(
        argv(COMMANDS[0], run, run),
        env=environment(cache),
        check=False,
        capture_output=True,
        cwd=folder,
        timeout=LONGEST_S,
    )
    assert (run / "summary.json").is_file()
    return run


def duration(command, run, folder, cache):
    """Seconds that the command takes if nobody interrupts it. Raises AssertionError if it fails."""
    start = time.monotonic()
    done = subprocess.run(
        argv(command, run, folder / "whole"),
        env=environment(cache),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=LONGEST_S,
    )
    assert done.returncode in (0, 1), done.stderr[
        -2000:
    ]  # 1: a run so short may fail its health check
    return time.monotonic() - start


@contextmanager
def started(words, env, folder):
    """A command in a session of its own, whose output goes to files: a pipe that nobody reads would
    stop it.
    """
    with (
        (folder / "stdout").open("w") as stdout,
        (folder / "stderr").open("w") as stderr,
        subprocess.Popen(
            words,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def one(command, run, cache, delay, terminal):
    """Start the command, send one Ctrl-C after `delay` seconds -> what came of it, or the seconds
    that the command took if it had ended before.

    terminal: to the whole group of processes, as a terminal does; else to the command alone.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, mark = Path(name), secrets.token_hex(8)
        out = folder / "out"
        with started(argv(command, run, out), environment(cache, mark), folder) as process:
            begun = time.monotonic()
            try:
                process.wait(delay)
                return time.monotonic() - begun
            except subprocess.TimeoutExpired:
                start = time.monotonic()
            if terminal:
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.send_signal(signal.SIGINT)
            code = process.wait(LONGEST_S)
            seconds = time.monotonic() - start
            orphans = alive(mark)
        if code == 0:
            return delay  # all was done: the signal came while Python ended
        lines = (folder / "stderr").read_text().splitlines()
        faults = [
            *faults_of(code, lines),
            *(f"orphan {pid}" for pid in orphans),
            *left_behind(out),
        ]
        return Try(command.name, delay, code, seconds, lines[-1] if lines else "", tuple(faults))


def faults_of(code, lines):
    """What is wrong with the exit code and the messages."""
    if code == -signal.SIGINT:  # Python itself had not started: a shell calls this 130
        return
    if code != 130:
        yield f"exit code {code}"
    if any("Traceback" in line for line in lines):
        yield "a traceback"
    said = [line for line in lines if line.startswith(("interrupted", "error: SIG"))]
    if len(said) != 1:
        yield f"{len(said)} lines about the interruption"
    elif lines[-1] != said[0]:
        yield f"a later line: {lines[-1]}"


def alive(mark):
    """Processes that carry the mark, except those that are ending (Linux). A killed one needs a
    moment to end.
    """
    for _ in range(20):
        found = list(_marked(mark))
        if not found:
            return []
        time.sleep(0.05)
    return found


def _marked(mark):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
        except OSError:  # it has ended, or belongs to another user
            continue


def left_behind(out):
    """What is half-written in a folder: a file that is torn, or a lock that is held."""
    for path in out.rglob("*.json"):
        try:
            read_json(path)
        except ValueError:
            yield f"{path.relative_to(out)} is torn"
    if (out / "config.yaml").is_file() != (out / "manifest.json").is_file():
        yield "config.yaml or manifest.json alone"
    for lock in out.rglob("run.lock"):
        with lock.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield f"{lock.relative_to(out)} is held"


def random_tries(count, seed, commands):
    """`count` times Ctrl-C at moments that are uniform over each command, in turn. Half of them with an
    empty cache of programs, half go to the command alone."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        warm = folder / "warm"
        run = finished_run(folder, warm)
        seconds = {}
        for number, command in enumerate(commands):
            work = folder / str(number)
            for kind, cache in (("cold", work / "cold"), ("warm", warm)):
                (work / kind).mkdir(parents=True)
                seconds[command.name, kind] = duration(command, run, work / kind, cache)
        done = 0
        while done < count:
            command, kind = commands[done % len(commands)], chance.choice(("cold", "warm"))
            cache = warm if kind == "warm" else folder / secrets.token_hex(4)
            found = one(
                command,
                run,
                cache,
                chance.uniform(0, seconds[command.name, kind]),
                chance.random() < 0.5,
            )
            if isinstance(found, Try):
                done += 1
                yield found
            else:  # the machine has become faster
                seconds[command.name, kind] = min(found, seconds[command.name, kind])
