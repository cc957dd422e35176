"""The recorder of the README's screen: what a terminal would show of the sequences that rich
writes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.screen import Recording, Screenful, cast, frames, main, record, svg


def shown(*parts: bytes) -> list[str]:
    screen = Screenful()
    for part in parts:
        screen.feed(part)
    screen.close()
    return screen.plain()


def test_a_panel_is_drawn_over_the_one_before() -> None:
    assert shown(
        b"note\r\n\x1b[1mone\x1b[0m\r\ntwo", b"\r\x1b[2K\x1b[1A\x1b[2Knew\r\n", b"two\r\nafter\r\n"
    ) == ["note", "new", "two", "after", ""]


def test_what_is_cut_off_waits() -> None:
    mark = "✓".encode()
    assert shown(b"a\r\n\x1b[3", b"2m" + mark[:1], mark[1:] + b" done") == ["a", "✓ done"]


def test_unknown_sequences_are_refused() -> None:
    with pytest.raises(ValueError, match="does not know"):
        shown(b"\x1b[5B\n")


def test_the_frame_is_from_the_middle_of_the_training() -> None:
    reads = [
        (float(i), f"\r\x1b[2K training  {percent} %  x\r".encode())
        for i, percent in enumerate((10, 55, 95))
    ]
    middle, end = frames(Recording(reads, 0))
    assert middle.plain() == [" training  55 %  x"]
    assert end.plain() == [" training  95 %  x"]


def test_a_command_is_recorded_and_drawn(tmp_path: Path) -> None:
    code = (
        "import sys, os; print('size', *os.get_terminal_size(), sys.stdout.isatty()); sys.exit(3)"
    )
    recording = record([sys.executable, "-c", code], columns=70, rows=20, folder=tmp_path)
    assert recording.code == 3
    text = b"".join(data for _, data in recording.reads)
    assert text.startswith(b"size ")
    assert text.strip().endswith(b"True")
    head, *lines = [json.loads(line) for line in cast(recording).splitlines()]
    assert head["version"] == 2
    assert "".join(text for _, kind, text in lines if kind == "o").startswith("size ")
    out = tmp_path / "screen.svg"
    assert main(["--out", str(out), "--", sys.executable, "-c", "print('hello')"]) == 0
    drawn = (tmp_path / "screen_end.svg").read_text(encoding="utf-8")
    assert "hello" in drawn
    assert "http://www.w3.org/2000/svg" in drawn
    assert "cdnjs" not in drawn  # the picture loads nothing from elsewhere
    assert out.is_file()


def test_colours_are_drawn() -> None:
    assert "fill: #" in svg(["\x1b[32mgreen\x1b[0m"], "t")
