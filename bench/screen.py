"""Record the screen of a command in a pseudo-terminal, for the README: as SVG pictures and as an
asciinema cast.

    python -m bench.screen --out docs/screen.svg [--cast quickstart.cast] [-- COMMAND ...]

The command (default: `jaxtrade train quickstart`) runs for real, in an empty folder and with an
empty program cache.
`screen.svg` shows the terminal in the middle of the training, `screen_end.svg` at the end.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 100, 60
MIDDLE = 60  # per cent of the training
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")
PERCENT = re.compile(r"\btraining\b.* (\d+) %")
QUICKSTART = ("-m", "jaxtrade.cli", "train", "quickstart")


class Recording(NamedTuple):
    """What a terminal received: (seconds since the start, bytes) of each read, and the command's
    exit code.
    """

    reads: list[tuple[float, bytes]]
    code: int


def record(
    argv: Sequence[str],
    columns: int = COLUMNS,
    rows: int = ROWS,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Recording:
    """Run a command in a pseudo-terminal. environ: changes to the environment. Raises OSError if it
    cannot start.
    """
    shown, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    begun, reads = time.monotonic(), []
    process = subprocess.Popen(
        argv,
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=folder,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **(environ or {})},
    )
    os.close(end)
    while data := _read(shown):
        reads.append((time.monotonic() - begun, data))
    os.close(shown)
    return Recording(reads, process.wait())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the last process has closed the terminal
        return b""


class Screenful:
    """The lines of a terminal, each with its colour codes.

    It knows the sequences that rich and jaxtrade write: colours, "line up", "clear line", carriage
    return, line feed. It never wraps, and it scrolls without an end. Raises ValueError for any
    other sequence.
    """

    def __init__(self) -> None:
        self.lines, self.row = [""], 0
        self._rest = b""
        self._fresh = True  # the next text replaces the line

    def feed(self, data: bytes) -> None:
        """Take in bytes. A character or sequence that is cut off waits for the next bytes."""
        data = self._rest + data
        whole = (
            max(
                data.rfind(b"\n"),
                data.rfind(b"m"),
                data.rfind(b"K"),
                data.rfind(b"A"),
                data.rfind(b"\r"),
            )
            + 1
        )
        text, self._rest = data[:whole].decode(), data[whole:]
        for token in TOKEN.finditer(text):
            self._take(token)

    def close(self) -> None:
        """Take in what still waits."""
        rest, self._rest = self._rest, b""
        for token in TOKEN.finditer(rest.decode(errors="replace")):
            self._take(token)

    def _take(self, token: re.Match[str]) -> None:
        match token[2]:
            case "A":
                self.row = max(0, self.row - int(token[1] or 1))
            case "K":
                self.lines[self.row] = ""
            case "m" | None if token[0] == "\r":
                self._fresh = True
            case None if token[0] == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            case "m" | None:
                self.lines[self.row] = token[0] if self._fresh else self.lines[self.row] + token[0]
                self._fresh = False
            case "h" | "l":
                return
            case _:
                raise ValueError(f"a sequence that this recorder does not know: {token[0]!r}")

    def plain(self) -> list[str]:
        """The lines without colours."""
        return [Text.from_ansi(line).plain for line in self.lines]


def frames(recording: Recording) -> list[Screenful]:
    """The screen in the middle of the training, and at the end. Without a training both are the
    last one.
    """
    middle, screen, nearest = None, Screenful(), 101.0
    for _, data in recording.reads:
        screen.feed(data)
        found = [int(match[1]) for line in screen.plain() if (match := PERCENT.search(line))]
        if found and abs(found[-1] - MIDDLE) < nearest:
            middle, nearest = Screenful(), abs(found[-1] - MIDDLE)
            middle.lines = list(screen.lines)
    screen.close()
    return [screen if middle is None else middle, screen]


def svg(lines: Sequence[str], title: str, columns: int = COLUMNS) -> str:
    """Lines with colour codes as a picture of a terminal. Long lines are wrapped. Its fonts are the
    reader's.
    """
    console = Console(
        record=True,
        width=columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    for line in lines:
        console.print(Text.from_ansi(line), highlight=False)
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id="screen")
    return re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace(
        "Fira Code", "monospace"
    )


def cast(recording: Recording, columns: int = COLUMNS, rows: int = ROWS) -> str:
    """The recording as an asciicast, version 2: `asciinema play FILE`."""
    lines = [json.dumps({"version": 2, "width": columns, "height": rows})]
    for seconds, data in recording.reads:
        lines.append(json.dumps([round(seconds, 3), "o", data.decode(errors="replace")]))
    return "\n".join(lines) + "\n"


def _trimmed(lines: Sequence[str]) -> list[str]:
    last = max((i for i, line in enumerate(lines) if line), default=-1)
    return list(lines[: last + 1])


def main(argv: Sequence[str] | None = None) -> int:
    """Record and write the files. Returns the exit code of the recorded command."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.screen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.svg")
    parser.add_argument("--cast", type=Path, metavar="FILE")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    args = parser.parse_args(argv)
    shown = " ".join(args.command) or "jaxtrade train quickstart"
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "cache"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        recording = record(
            args.command or [sys.executable, *QUICKSTART], folder=Path(folder), environ=environ
        )
    prompt = f"\x1b[1;32m$\x1b[0m {shown}"
    names = (args.out, args.out.with_name(f"{args.out.stem}_end{args.out.suffix}"))
    for path, screen in zip(names, frames(recording), strict=True):
        path.write_text(svg([prompt, *_trimmed(screen.lines)], shown), encoding="utf-8")
    if args.cast is not None:
        args.cast.write_text(cast(recording), encoding="utf-8")
    return recording.code


if __name__ == "__main__":
    sys.exit(main())
