"""The menu: every leaf ends in a command that the parser takes, and no way of leaving it hangs or
loops.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxtrade.cli import main, menu
from jaxtrade.cli.menu import MENU
from jaxtrade.cli.parser import build_parser

HERE = str(Path(__file__).resolve().parents[2])
# Keys of a leaf -> answers to its questions, and the command that it must run.
LEAVES = {
    "1": ("", "doctor"),
    "21": (
        "bars.csv NQ close UTC",
        "data check bars.csv --market NQ --set data.stamp=close --set data.time_zone=UTC",
    ),
    "22": ("EURUSD", "data describe --market EURUSD"),
    "31": ("NQ", "curriculum --test --market NQ"),
    "321": ("", "train quickstart"),
    "322": (
        "bars.csv ES open null",
        "train --data bars.csv --market ES --set data.stamp=open --set data.time_zone=null",
    ),
    "323": ("", "curriculum"),
    "331": ("runs/mine", "train --resume runs/mine"),
    "332": ("runs/mine", "curriculum --resume runs/mine"),
    "333": ("runs/mine 2M", "train --continue runs/mine --timesteps 2M"),
    "41": ("runs/mine", "evaluate runs/mine"),
    "42": ("runs/mine 2013-10-11", "replay runs/mine --session 2013-10-11"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a file of bars and a run."""
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    for path in (tmp_path / "bars.csv", run / "config.yaml", run / "curriculum.yaml"):
        path.write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def walked(answers, monkeypatch, codes=(0,)):
    """(exit code of the menu, the commands that it ran), for lines of input. codes: what the
    commands return.
    """
    ran: list[str] = []

    def runner(words):
        ran.append(shlex.join(words))
        return codes[min(len(ran), len(codes)) - 1]

    monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
    return menu.walk(runner), ran


def test_every_leaf_is_walked():
    assert [keys for keys, (_, command) in MENU.items() if command] == list(LEAVES)


@pytest.mark.parametrize("keys", list(LEAVES))
def test_a_leaf_prints_its_command_and_runs_it(keys, folder, monkeypatch, capsys):
    answers, command = LEAVES[keys]
    lines = "\n".join([*keys, *answers.split(), ""])
    assert walked(lines, monkeypatch) == (0, [command])
    assert f"\n$ jaxtrade {command}\n" in capsys.readouterr().out
    build_parser().parse_args(shlex.split(command))


def test_enter_takes_the_default(folder, monkeypatch):
    assert walked("3\n1\n\n", monkeypatch)[1] == ["curriculum --test --market NQ"]
    assert walked("4\n1\n\n", monkeypatch)[1] == [f"evaluate {Path('runs/mine')}"]


def test_the_newest_run_is_the_default(folder, monkeypatch):
    newer = folder / "runs" / "later"
    newer.mkdir()
    (newer / "config.yaml").write_text("", encoding="utf-8")
    os.utime(folder / "runs" / "mine", (1_000, 1_000))
    os.utime(newer, (2_000, 2_000))
    assert walked("4\n1\n\n", monkeypatch)[1] == [f"evaluate {Path('runs/later')}"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("7\n\nthree\n3\n1\nNQ\n", "expected one of 1, 2, 3, 4, 5"),
        ("3\n31\n1\nN\x00Q\n", "expected one of 1, 2, 3, 4"),
        ("3\n4\n3\n1\nNQ\n", "Train"),  # back, and again
    ],
)
def test_a_wrong_answer_is_asked_again(
    answers,
    said,
    folder,
    monkeypatch,
    capsys,
):
    assert walked(answers, monkeypatch) == (0, ["curriculum --test --market NQ"])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "answers", ["", "3\n", "3\n1\n", "9\n9\n9", "5\n1\n", "q\n1\n", "3\nq\n1\n", "3\n1\nQ\n1\n"]
)
def test_the_end_of_the_input_exit_and_q_leave(answers, folder, monkeypatch):
    """Lines after leaving are not read."""
    assert walked(answers, monkeypatch) == (0, [])


def test_several_commands_and_the_code_of_the_last(folder, monkeypatch):
    assert walked("1\n3\n1\nES\n5\n", monkeypatch, codes=(0, 1)) == (
        1,
        ["doctor", "curriculum --test --market ES"],
    )
    assert walked("1\n1\n", monkeypatch, codes=(2, 0)) == (0, ["doctor", "doctor"])


def test_an_interrupted_command_ends_the_menu(folder, monkeypatch):
    assert walked("1\n1\n", monkeypatch, codes=(130,)) == (130, ["doctor"])


def test_non_interactive_never_asks(monkeypatch, capsys):
    """Not even where the answers are there."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n"))
    assert main(["menu", "--non-interactive"]) == 2
    said = capsys.readouterr()
    assert "--non-interactive: nothing may be asked" in said.err
    assert said.out == ""


def test_piped_answers_are_read_in_ci_too(folder, monkeypatch):
    """Nobody is asked: the answers are there."""
    monkeypatch.setenv("CI", "1")
    monkeypatch.setattr(sys, "stdin", io.StringIO("5\n"))
    assert main(["menu"]) == 0


class Terminal:
    """A process whose streams are a terminal."""

    def __init__(self, *argv, **variables):
        self.ours, theirs = pty.openpty()
        own = (
            {name: value for name, value in os.environ.items() if name != "CI"}
            | {"PYTHONPATH": HERE}
            | variables
        )
        # `setsid -c` in Python: the terminal becomes the controlling one, so that Ctrl-C is a key.
        code = (
            "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
            "os.execv(sys.executable, [sys.executable, '-P', '-m', 'jaxtrade', *sys.argv[1:]])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *argv], stdin=theirs, stdout=theirs, stderr=theirs, env=own
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text, seconds=60):
        """Read until `text` has been printed, or fail."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            self.seen += os.read(self.ours, 4096).decode()

    def type(self, text):
        os.write(self.ours, text.encode())

    def end(self):
        """The exit code."""
        with contextlib.suppress(OSError):  # Linux says so when the other end is closed
            while read := os.read(self.ours, 4096):
                self.seen += read.decode()
        os.close(self.ours)
        return self.process.wait(60)


def test_bare_on_a_terminal_opens_the_menu_and_exit_is_0():
    terminal = Terminal()
    terminal.until("Your choice")
    terminal.type("5\n")
    assert terminal.end() == 0
    assert "1  Check this machine" in terminal.seen


def test_ctrl_c_at_a_question_is_130():
    terminal = Terminal("menu")
    terminal.until("Your choice")
    terminal.type("3\n")
    terminal.until("Full training")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "Traceback" not in terminal.seen


def test_ctrl_d_leaves_with_0():
    terminal = Terminal("menu")
    terminal.until("Your choice")
    terminal.type("\x04")
    assert terminal.end() == 0


@pytest.mark.slow
def test_ci_on_a_terminal_is_never_asked():
    bare = Terminal(CI="1")
    assert bare.end() == 2
    assert "usage: jaxtrade" in bare.seen
    named = Terminal("menu", CI="true")
    assert named.end() == 2
    assert "the variable CI: nothing may be asked" in named.seen


def test_bare_without_a_terminal_is_usage_and_2():
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jaxtrade"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": HERE},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: jaxtrade")
    assert done.stdout == ""


def piped(answers, cwd, seconds):
    """`printf ANSWERS | jaxtrade menu`."""
    own = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-P", "-m", "jaxtrade", "menu"],
        input=answers,
        capture_output=True,
        text=True,
        env=own | {"PYTHONPATH": HERE},
        cwd=cwd,
        timeout=seconds,
        check=False,
    )


def test_a_byte_that_is_no_text_is_a_wrong_choice(tmp_path):
    """Where the terminal's encoding is strict, too."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jaxtrade", "menu"],
        input=b"\xff\n5\n",
        capture_output=True,
        env=os.environ | {"PYTHONPATH": HERE, "PYTHONIOENCODING": "utf-8:strict"},
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"1, 2, 3, 4, 5") == 1


@pytest.mark.slow
def test_a_leaf_really_runs_its_command(tmp_path):
    """The shortest: a file that is refused. Its exit code is the menu's."""
    (tmp_path / "bars.csv").write_text(
        "time,open\n2013-10-07T13:30:00Z,1676.75\n", encoding="utf-8"
    )
    done = piped("2\n1\nbars.csv\nES\nopen\nnull\n", tmp_path, 300)
    assert "$ jaxtrade data check bars.csv --market ES --set data.stamp=open" in done.stdout
    assert done.stderr.startswith("error: bars.csv")
    assert done.returncode == 2
    assert done.stdout.count("5  Exit") == 2  # shown again after the command; then the input ends
