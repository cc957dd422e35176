"""The help of `jaxtrade`: grouped commands, the page of all flags, and `python -m jaxtrade`."""

import re
from pathlib import Path

import pytest
import reference

import jaxtrade
from jaxtrade.cli import entry, main, parser
from jaxtrade.cli.parser import build_parser
from tests.children import run_python

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_names_every_command_and_the_site_every_flag():
    """Each row leads to the section of its command."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = [words + more.replace("\\|", "|") for words, more in reference.COMMAND.findall(page)]
    whole = reference.add_commands(page)
    sections = dict(re.findall(r"^#### `(.*)` \{#(.*)\}$", whole, re.MULTILINE))
    assert rows == list(sections)
    assert re.findall(r"^\| \[`.*\]\(#(.*?)\)", whole, re.MULTILINE) == list(sections.values())
    assert sections["jaxtrade ablate advisor [CONFIG]"] == "jaxtrade-ablate-advisor"
    assert "| `--timesteps N` |" in whole


def test_every_flag_has_a_help():
    silent = [
        f"{words} {reference.invocation(action)}"
        for name, child in reference.below(build_parser()).items()
        for words, parser, _ in reference.leaves(name, *child)
        for action in parser._actions
        if not action.help
    ]
    assert silent == []


def test_every_command_can_be_run_and_is_in_one_group():
    commands = reference.below(build_parser())
    assert set(commands) == set(entry.COMMANDS)
    assert sorted(name for group in parser.GROUPS.values() for name in group) == sorted(commands)


def test_help_shows_the_groups_and_the_most_used_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("  train")
    assert lines[start + 1].startswith("    train ")
    assert [line for line in lines if line.strip() in parser.GROUPS] == [
        f"  {name}" for name in parser.GROUPS
    ]
    assert sum(line.startswith("  jaxtrade ") for line in lines) == 3


def test_the_most_used_lines_are_commands():
    lines = [
        line.split("   ")[0].split()
        for line in parser.EPILOG.splitlines()
        if line.startswith("  jaxtrade")
    ]
    for words in lines:
        build_parser().parse_args(words[1:])
    assert len(lines) == 3


def test_python_m_jaxtrade_is_the_command():
    done = run_python("-m", "jaxtrade", "--version", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, f"jaxtrade {jaxtrade.__version__}\n")
