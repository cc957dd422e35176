"""Screens: each phase is named before it works, plain lines have no escape codes, and a screen
never ends a run.
"""

import io
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rich.console import Console

from jaxtrade.cli.shared import open_screen, print_result
from jaxtrade.formatting import duration
from jaxtrade.progress import screen
from jaxtrade.progress.panel import PhasePanel, sparkline
from jaxtrade.progress.screen import LastingStream, Plain, Screen, Warnings
from jaxtrade.storage.sinks import progress_line
from jaxtrade.text import FORECAST

COLUMNS = (("kl", "approx_kl", ".1e"),)
NAMES = {"action_share": ["HOLD", "BUY", "SELL"]}
TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}


def row(update, **changes):
    return {
        "update": update,
        "total_updates": 4,
        "steps": update * 1000,
        "steps_per_second": 54321.0,
        "eta_seconds": 65.0,
        "episodes": 2,
        "episode_reward": float(update),
        "approx_kl": 0.01,
        "action_share": [0.25, 0.746, 0.004],
    } | changes


@pytest.fixture
def tty(monkeypatch):
    """The two ends of a pseudo-terminal: a text stream, and the descriptor from which what it shows
    is read.
    """
    for name, value in TERMINAL.items():  # rich asks the process's own environment
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    shown, end = pty.openpty()
    with open(end, "w", encoding="utf-8") as stream:
        yield stream, shown
    os.close(shown)


class Lines(io.StringIO):
    """A stream that knows when a text was written to it."""

    def __init__(self, awaited):
        super().__init__()
        self._awaited, self.came = awaited, threading.Event()

    def write(self, text):
        count = super().write(text)
        if self._awaited in self.getvalue():
            self.came.set()
        return count


def drawn(panel):
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(panel.draw())
    return console.file.getvalue()


def run(screen):
    """What a training shows."""
    with screen:
        screen.phase("loading", "the market")
        screen.message("run r1")
        screen.phase("compiling", "the training program")
        screen.phase("training", "4,000 steps")
        screen.write([row(1), row(2)])
        screen.phase("evaluating", "2 agents", 2)
        screen.step("greedy")
        screen.step("flat")


def test_plain_lines_name_each_phase_before_it_works():
    text = io.StringIO()
    shown = Plain(text)
    shown.describe(NAMES, COLUMNS)
    run(shown)
    assert text.getvalue().splitlines() == [
        "loading: the market",
        "run r1",
        "compiling: the training program",
        "training: 4,000 steps",
        progress_line([row(1), row(2)], COLUMNS),
        "  actions % HOLD 25.0 BUY 74.6 SELL 0.4",
        "evaluating: 2 agents",
    ]
    assert "\x1b" not in text.getvalue()


def test_a_phase_that_goes_on_is_not_named_again():
    text = io.StringIO()
    with Plain(text) as screen:
        screen.phase("loading", "JAX")
        screen.phase("loading", "the market")
        assert screen.phases[0].about == "the market"
    assert text.getvalue() == "loading: JAX\n"


def test_a_long_phase_says_what_it_does():
    """The heartbeat is due at once here. The test waits for it and does not measure it."""
    text = Lines("(train chunk of 5 updates)")
    with Plain(text, heartbeat=0.0) as screen:
        screen.phase("compiling", "the training program", now=lambda: "train chunk of 5 updates")
        assert text.came.wait(60)
    assert re.search(r"^compiling: \d+\.\d s \(.*5 updates\)$", text.getvalue(), re.MULTILINE)
    assert screen._thread is not None
    assert not screen._thread.is_alive()


def test_quiet_shows_warnings_and_the_wait_alone(capsys):
    told = []
    quiet = Warnings(told.append)
    run(quiet)
    quiet.message(f"{FORECAST}9 s")
    quiet.message("warning: collapsed")
    quiet.at_end(["run r1"])
    print_result("table", quiet)
    assert told == [f"{FORECAST}9 s", "warning: collapsed"]
    assert capsys.readouterr() == ("table\n", "")


def test_the_result_goes_to_stdout_and_the_rest_to_stderr(
    capsys,
):
    screen = Plain(io.StringIO())
    screen.at_end(["old"])
    screen.at_end(["run r1", "next jaxtrade"])
    print_result("table", screen)
    assert capsys.readouterr() == ("table\n", "run r1\nnext jaxtrade\n")


@pytest.mark.parametrize(
    ("changes", "live"),
    [
        ({}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"COLUMNS": "59"}, False),
        ({"LINES": "15"}, False),
    ],
)
def test_a_panel_needs_a_terminal_that_can_show_it(tty, changes, live):
    assert open_screen("jaxtrade train", stream=tty[0], environ=TERMINAL | changes).live is live
    assert isinstance(open_screen("t", quiet=True, stream=tty[0], environ=TERMINAL), Warnings)
    assert isinstance(open_screen("t", stream=io.StringIO(), environ=TERMINAL), Plain)


def test_the_panel_counts_agents_beside_the_steps_of_one(tty):
    panel = PhasePanel("jaxtrade train", tty[0])
    panel.write([row(2, **{"finite/each": [1.0] * 16, "steps": 409_600})])
    panel.phases = _phases()
    assert "16 x 409,600 steps  eta 1:05  54,321 steps/s" in drawn(panel)


def test_the_panel_shows_phases_and_the_figures_of_the_training(tty):
    panel = PhasePanel("jaxtrade train", tty[0])
    panel.describe(NAMES, COLUMNS)
    panel.write([row(1, episode_reward=7.0)])
    panel.write([row(2)])
    panel.phases = _phases()
    text = drawn(panel)
    assert "jaxtrade train" in text
    assert re.search(r"✓ loading +\d\.\d s the market", text)
    assert re.search(r"training +.* 50 %  2,000 steps  eta 1:05  54,321 steps/s", text)
    assert "return 2.000  best 7.000 at update 1  █▁" in text
    assert "kl 1.0e-02" in text
    assert "BUY 75 %  HOLD 25 %" in text
    assert "SELL" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def _phases():
    screen = Screen()
    screen.phase("loading", "the market")
    screen.phase("training")
    return screen.phases


def test_the_panel_shows_what_failed_and_where_a_step_is(tty):
    panel = PhasePanel("jaxtrade train", tty[0])
    Screen.phase(panel, "evaluating", "2 agents", 2)
    panel.step("greedy")
    panel.step("flat")
    assert re.search(r"evaluating +\d\.\d s .* 1/2 flat", drawn(panel))
    Screen.__exit__(panel, OSError, OSError(), None)
    assert "✗ evaluating" in drawn(panel)


def test_chapters_begin_anew(tty):
    panel = PhasePanel("jaxtrade curriculum", tty[0])
    panel.chapter("phase entry")
    Screen.phase(panel, "training")
    panel.write([row(1)])
    panel.chapter("phase manage")
    Screen.phase(panel, "training")
    text = drawn(panel)
    assert "✓ phase entry" in text
    assert "return" not in text


def all_of(shown, end):
    """What a terminal shows, up to `end`. One read of a terminal returns a part, so there may be
    several.
    """
    text = b""
    while not text.endswith(end.encode()):
        text += os.read(shown, 1 << 16)
    return text.decode()


def test_a_run_on_a_terminal_draws_and_leaves_it_usable(tty):
    stream, shown = tty
    with ThreadPoolExecutor(
        1
    ) as reader:  # reads at once: a terminal that nobody reads is full after some frames
        reading = reader.submit(all_of, shown, "the end\r\n")
        run(open_screen("jaxtrade train", stream=stream, environ=TERMINAL))
        stream.write("the end\n")
        stream.flush()
        text = reading.result().removesuffix("the end\r\n")
    for phase in (
        "loading",
        "compiling",
        "training",
        "evaluating",
    ):  # drawn when it begins, however short it is
        assert re.search(rf"[⠀-⣿]\S* \S*{phase}", text), phase
    assert "\x1b[?25l" not in text  # the cursor is never hidden, so a killed process leaves it on
    assert text.endswith("\r\n")
    before = threading.active_count()
    screen.restore()
    assert threading.active_count() == before


def test_restore_leaves_the_panel_once():
    out, end = os.pipe()
    screen.panel_opened(end)
    screen.restore()
    screen.restore()
    os.close(end)
    assert os.read(out, 100) == b"\x1b[0m\x1b[?25h\n"
    os.close(out)


def test_a_reader_that_goes_does_not_end_the_run():
    out, end = os.pipe()
    os.close(out)
    with open(end, "w", encoding="utf-8") as stream:
        screen = Plain(stream)
        run(screen)
        lasting = LastingStream(stream)
        assert lasting.write("text") == 4
        lasting.flush()
        assert lasting.gone
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), end
        )  # so that closing the file can flush what it holds
    closed = io.StringIO()
    closed.close()
    run(Plain(closed))


def test_the_size_is_known_or_guessed():
    plain = io.StringIO()
    assert screen.size(plain, {"COLUMNS": "77", "LINES": "33"}) == (77, 33)
    shown, end = pty.openpty()
    with open(end, "w", encoding="utf-8") as stream:
        assert screen.size(stream, {}) == (
            80,
            24,
        )  # a pseudo-terminal has 0 x 0 cells at first
    os.close(shown)


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, 0, 7, 7], 2, "▁█"),
        ([5.0], 8, "▅"),
        ([], 8, ""),
        ([1, float("nan"), 2], 3, "▁ █"),
        ([float("nan")], 3, " "),
    ],
)
def test_sparkline(values, width, expected):
    assert sparkline(values, width) == expected


def test_durations():
    assert [duration(seconds) for seconds in (0.04, 59.9, 59.96, 65, 3661)] == [
        "0.0 s",
        "59.9 s",
        "1:00",
        "1:05",
        "1:01:01",
    ]


TINY = (
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=512",
    "train.chunk_updates=2",
    "train.tensorboard=false",
)
TRAIN = [
    sys.executable,
    "-m",
    "jaxtrade.cli",
    "train",
    *[word for key in TINY for word in ("--set", key)],
]


def read(terminal):
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # EIO: the last process has closed the terminal
        return b""


@pytest.mark.slow
def test_a_whole_command_on_a_terminal(tmp_path):
    """Each phase is shown while it works, and the table stands below the panel."""
    shown, end = pty.openpty()
    termios.tcsetwinsize(end, (60, 100))
    with subprocess.Popen(
        TRAIN,
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=tmp_path,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm-256color"},
    ) as process:
        os.close(end)
        seen = b"".join(iter(lambda: read(shown), b"")).decode()
    os.close(shown)
    assert process.returncode == 0
    for phase in ("loading", "compiling", "training", "evaluating"):
        assert re.search(rf"[⠀-⣿]\S* \S*{phase}", seen), phase
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    places = [
        plain.rindex(word)
        for word in ("bars: bundled ES", "✓ loading", "✓ training", "✓ evaluating", "Evaluation on")
    ]
    assert places == sorted(places)
    assert max(map(plain.rindex, ("files     evaluation/", "next      jaxtrade"))) > places[-1]


def test_programs_say_what_is_compiled_now():
    """The name stands while the program is traced, and is gone once it is ready."""
    import jax
    import jax.numpy as jnp

    from jaxtrade.storage.compiling import Programs

    seen = []

    def traced(x):
        seen.append(programs.busy)
        return x + 1

    with Programs() as programs:
        programs.begin("adding one", jax.jit(traced), (jnp.float32(1),)).wait()
    assert seen == ["adding one"]
    assert programs.busy == ""
