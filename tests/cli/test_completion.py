"""The completion scripts: bash really completes with its one; the scripts of zsh and fish have
every name.
"""

import os
import pty
import shutil
import subprocess
import sys
import time

import pytest

from jaxtrade.cli import listing, main
from jaxtrade.cli.entry import COMMANDS
from jaxtrade.cli.parser import build_parser
from jaxtrade.config.load import all_keys
from jaxtrade.data.contracts import CONTRACTS

NEEDED = pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Shell -> its script."""
    pytest.importorskip("shtab", reason="shtab is not installed: pip install -e '.[completion]'")
    folder = tmp_path_factory.mktemp("scripts")
    made = {shell: folder / f"jaxtrade.{shell}" for shell in listing.SHELLS}
    for shell, path in made.items():
        path.write_text(listing.script(shell, build_parser()), encoding="utf-8")
    return made


def completed(script, cwd, *words):
    """What bash offers for the last of some words."""
    quoted = " ".join(f"'{word}'" for word in ("jaxtrade", *words))
    code = (
        f"source '{script}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _jaxtrade_complete; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=True,
    )
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.splitlines()))


@NEEDED
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tr",), ["train"]),
        (("train", "--market", "M"), sorted(name for name in CONTRACTS if name.startswith("M"))),
        (("train", "--set", "ppo.g"), ["ppo.gae_lambda=", "ppo.gamma=", "ppo.gradient_rows="]),
        (("train", "qu"), ["quickstart"]),
        (("train", "my"), ["my.yaml", "my_runs"]),  # a file and a folder, not my.csv
        (("train", "--data", "my"), ["my.csv", "my.yaml", "my_runs"]),
        (("train", "--run-dir", "my"), ["my_runs"]),
        (
            ("config", "explain", "rollout"),
            sorted(["rollout", *(n for n in all_keys() if n.startswith("rollout."))]),
        ),
        (("evaluate", "my"), ["my_runs"]),
        (("runs", "my"), ["my_runs"]),
        (("runs", "--sort", "n"), ["name", "net"]),
        (("compare", "my_runs", "--sh"), ["--shared-days"]),
    ],
)
def test_bash_completes(words, expected, scripts, tmp_path):
    (tmp_path / "my_runs").mkdir()
    for name in ("my.yaml", "my.csv"):
        (tmp_path / name).write_text("", encoding="utf-8")
    assert completed(scripts["bash"], tmp_path, *words) == expected


@NEEDED
def test_tab_in_a_real_bash(scripts):
    """A word is completed and a space follows; a key of --set is followed by its value at once."""
    ours, theirs = pty.openpty()
    own = os.environ | {"PS1": "ready> ", "TERM": "dumb", "INPUTRC": "/dev/null"}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=own,
        start_new_session=True,
    )
    os.close(theirs)
    seen = ""

    def until(text):
        nonlocal seen
        end = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < end, seen
            seen += os.read(ours, 4096).decode()

    os.write(
        ours,
        f"source '{scripts['bash']}'; jaxtrade() {{ echo \"<$*>\"; }}; echo so''urced\n".encode(),
    )
    until("sourced\r\n")
    os.write(ours, b"jaxtrade tra\t--set ppo.gam\t0.9\n")
    until("<train --set ppo.gamma=0.9>")
    os.write(ours, b"exit\n")
    assert shell.wait(60) == 0
    os.close(ours)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_have_commands_flags_and_names(shell, scripts):
    """These shells are not at hand everywhere; docs/cli.md says with which versions the scripts
    were tried.
    """
    text = scripts[shell].read_text()
    assert [
        word for word in (*COMMANDS, "timesteps", "NQ", "apex_like_50k_2025") if word not in text
    ] == []


def test_without_shtab_the_command_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    said = capsys.readouterr()
    assert "pip install shtab" in said.err
    assert said.out == ""
