"""The README is true: its Python runs as printed, its commands and those of docs/cli.md parse."""

import re
import shlex

import pytest

from jaxtrade.cli import build_parser
from tests.children import run_python
from tests.reading import ROOT

README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "cli.md").read_text().split("<!-- commands:begin -->")[0]


GROUPS = {
    "jaxtrade --help",
    "jaxtrade COMMAND --help",
    "jaxtrade list",
}  # named in text; they are no whole commands


def commands(text):
    """Commands in code spans, in blocks of code, and behind a path."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    found = (
        re.findall(r"`(jaxtrade [^`]+)`", text)
        + re.findall(r"bin/(jaxtrade [^\n&]+)", text)
        + re.findall(r"^(jaxtrade [^#\n]+)", blocks, re.MULTILINE)
    )
    plain = {re.sub(r"[\[\]]|\.\.\.", "", command.partition(" > ")[0]).strip() for command in found}
    return {command.replace("SHELL", "bash") for command in plain - GROUPS}


COMMANDS = sorted(commands(README) | commands(PAGE))


def test_commands_were_found():
    assert len(commands(README)) >= 3
    assert len(commands(PAGE)) >= 20


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_parses(command):
    build_parser().parse_args(shlex.split(command)[1:])


@pytest.mark.slow
def test_the_python_runs_as_printed(tmp_path):
    """The first page of the documentation is the beginning of it."""
    pattern = re.compile(r"```python\n(.*?)```", re.DOTALL)
    [block] = pattern.findall(README)
    [first] = pattern.findall((ROOT / "docs" / "index.md").read_text())
    plain = {line.partition("  #")[0] for line in block.splitlines()}
    assert {line.partition("  #")[0] for line in first.splitlines()} - plain == {"result.trades"}
    done = run_python("-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{block}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "greedy" in done.stdout
    assert (tmp_path / "equity.png").stat().st_size > 10_000
