"""Ctrl-C ends a command with 130, one line and no child, whatever it is doing."""

import os
import signal
import sys
import time

import pytest

from jaxtrade import interrupt
from jaxtrade.storage.programs import drop_unfinished
from tests.interrupt.tries import (
    COMMANDS,
    alive,
    argv,
    environment,
    faults_of,
    left_behind,
    started,
)

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")

# `work` of a command in a process of its own. It says when it is ready for the signal.
HEAD = """
import hashlib, subprocess, sys, time
from functools import partial
from jaxtrade import interrupt

def ready():
    print("ready", flush=True)

def in_c():  # C code that lets other threads run, and no exception in
    hashlib.pbkdf2_hmac("sha512", b"", b"", 2**31 - 1)
"""
DEAF = """
def work():
    ready()
    in_c()
"""
SLEEPING = """
def work():
    ready()
    time.sleep(1)
    return 0
"""
SWALLOWED = """
def work():
    ready()
    while True:
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            pass
"""
NOISY = """
def work():
    ready()
    while True:
        try:
            sys.stderr.write("progress\\n")
        except KeyboardInterrupt:
            pass
"""
TURNED = """
from jaxtrade.cli import entry
def turns(args):
    ready()
    try:
        time.sleep(1000)
    except KeyboardInterrupt:
        raise RuntimeError("what XLA makes of it")
entry.COMMANDS["doctor"] = turns
def work():
    return entry.main(["doctor"])
"""
HINTED = """
def work():
    with interrupt.hint(lambda: "outer"), interrupt.hint(lambda: "inner"):
        ready()
        time.sleep(1000)
"""
CHILD = """
def work():
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    with interrupt.child(child):
        ready()
        {wait}
"""
IMPORTING = """
from pathlib import Path
Path("half_loaded.py").write_text('''
import time
try:
    print("ready", flush=True)
    time.sleep(1000)
except BaseException as error:
    print("raised", type(error).__name__, flush=True)
    raise
''')
sys.path.insert(0, ".")
def work():
    with interrupt.hint(lambda: "how to continue"):
        import half_loaded
"""
DONE = """
def work():
    return 0
def after():
    ready()
    time.sleep(1)
import atexit
atexit.register(after)
"""


def command(
    tmp_path,
    work,
    signals=1,
    options="",
    sent=signal.SIGINT,
):
    """Exit code and the lines of stdout and stderr of a command that gets Ctrl-C, or the signal
    `sent`, when it is ready."""
    code = f"{HEAD}{work}\nsys.exit(interrupt.run(work{options}))"
    stdout = tmp_path / "stdout"
    with started(
        [sys.executable, "-c", code], environment(tmp_path, str(tmp_path)), tmp_path
    ) as process:
        while "ready" not in stdout.read_text():
            assert process.poll() is None, (tmp_path / "stderr").read_text()
            time.sleep(0.01)
        for number in range(signals):
            time.sleep(0 if number == 0 else 2 * interrupt.SAME_S)
            process.send_signal(sent)
        code = process.wait(300)
    return code, stdout.read_text().splitlines(), (tmp_path / "stderr").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("work", [DEAF, SWALLOWED, TURNED])
def test_130_and_one_line_whatever_the_main_thread_does(tmp_path, work):
    code, _, said = command(tmp_path, work)
    assert (code, said) == (130, ["interrupted"])


@pytest.mark.slow
def test_its_line_is_the_last_one(tmp_path):
    code, _, said = command(tmp_path, NOISY)
    assert (code, said[-1]) == (130, "interrupted")
    assert set(said[:-1]) == {"progress"}


def test_an_import_is_not_interrupted_by_an_exception(tmp_path):
    """The module would see it before it is whole: NumPy and JAX print a traceback then, or crash in
    their C code.
    """
    assert command(tmp_path, IMPORTING) == (130, ["ready"], ["interrupted; how to continue"])


def test_a_second_ctrl_c_waits_for_nothing(tmp_path):
    """Here the main thread would have an hour: the process ends, so nobody has waited."""
    code, _, said = command(tmp_path, DEAF, signals=2, options=", grace_s=3600.0")
    assert (code, said) == (130, ["interrupted"])


def test_the_outermost_hint_is_printed(tmp_path):
    assert command(tmp_path, HINTED) == (130, ["ready"], ["interrupted; outer"])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("wait", ["time.sleep(1000)", "in_c()"])
def test_no_child_is_left(tmp_path, wait):
    """A child in a session of its own, which gets no signal of the terminal: with and without
    cleaning up in time.
    """
    assert command(tmp_path, CHILD.format(wait=wait))[0] == 130
    assert alive(str(tmp_path)) == []


def test_a_quiet_command_leaves_the_line_to_its_parent(tmp_path):
    assert command(tmp_path, HINTED, options=", quiet=True")[::2] == (130, [])


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_has_finished_keeps_its_exit_code(tmp_path, sent):
    code, _, said = command(tmp_path, DONE, options=", resumable=True", sent=sent)
    assert (code, said) == (0, [])


@pytest.mark.parametrize(
    ("sent", "work", "code"),
    [(signal.SIGINT, SLEEPING, 0), (signal.SIGTERM, DEAF, 75)],
)
def test_a_shell_s_background_commands_ignore_sigint_and_obey_sigterm(tmp_path, sent, work, code):
    code_text = f"{HEAD}{work}\nsys.exit(interrupt.run(work, resumable=True))"
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", code_text]
    with started(words, environment(tmp_path), tmp_path) as process:
        while "ready" not in (tmp_path / "stdout").read_text():
            time.sleep(0.01)
        process.send_signal(sent)
        assert process.wait(300) == code


# --- SIGTERM ----------------------------------------------------------------------------------------------------------

TRAINING = """
from jaxtrade.training.run_io import catch_signals
def work():
    with catch_signals() as signals:
        {where}:
            ready()
            {what}
    print(signals.received, flush=True)
    return 3
"""


def terminated(tmp_path, work, options=", resumable=True"):
    return command(tmp_path, work, options=options, sent=signal.SIGTERM)


@pytest.mark.parametrize(
    "work", [DEAF, IMPORTING, TRAINING.format(where="with signals.no_border()", what="in_c()")]
)
def test_a_resumable_command_with_nothing_to_save_ends_at_once_with_75(tmp_path, work):
    code, _, said = terminated(tmp_path, work)
    assert code == 75
    assert said[0].startswith("stopped by SIGTERM; ")
    assert len(said) == 1


def test_its_hint_says_how_to_go_on(tmp_path):
    assert terminated(tmp_path, HINTED)[::2] == (75, ["stopped by SIGTERM; outer"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_sigterm_leaves_no_child(tmp_path):
    assert terminated(tmp_path, CHILD.format(wait="in_c()"))[0] == 75
    assert alive(str(tmp_path)) == []


def test_training_with_something_to_save_goes_on_to_its_border(tmp_path):
    code, out, said = terminated(tmp_path, TRAINING.format(where="if True", what="time.sleep(1)"))
    assert (code, out[-1], said) == (3, str(signal.SIGTERM), [])


def test_a_command_with_nothing_to_resume_ends_by_the_signal(tmp_path):
    assert terminated(tmp_path, DEAF, options="")[0] == -signal.SIGTERM


def test_an_unfinished_entry_of_jax_s_cache_is_removed(tmp_path):
    old, new, other = (tmp_path / name for name in ("a-cache", "b-cache", "c.program"))
    for path in (old, new, other):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 3600,) * 2)
    drop_unfinished(tmp_path)
    assert [path.exists() for path in (old, new, other)] == [True, False, True]


@pytest.mark.parametrize(
    ("code", "lines", "fault"),
    [
        (139, ["interrupted"], "exit code 139"),
        (130, ["Traceback (most recent call last):", "interrupted"], "a traceback"),
        (130, [], "0 lines about the interruption"),
        (130, ["interrupted", "x"], "a later line: x"),
    ],
)
def test_the_judge_of_tries_sees_faults(code, lines, fault):
    assert list(faults_of(code, lines)) == [fault]


@pytest.mark.slow
def test_training_saves_if_the_border_is_near(tmp_path):
    """Chunks of milliseconds: the run stops at the next border, and says how to go on."""
    out, env = tmp_path / "out", environment(tmp_path / "cache")
    words = [*argv(COMMANDS[0], out, out), "--set", "train.total_timesteps=100_000_000"]
    with started(words, env, tmp_path) as process:
        while not list((out / "checkpoints").glob("update-*")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        code = process.wait(300)
    lines = (tmp_path / "stderr").read_text().splitlines()
    assert [*faults_of(code, lines), *left_behind(out)] == []
    assert lines[-1].endswith(f"train --resume {out}")
