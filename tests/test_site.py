"""The pages of the documentation are true: links lead somewhere, commands parse, code runs as
printed.

`mkdocs build --strict` is a step of its own in .ci/run.
"""

import os
import re
import shlex
import shutil

import pytest
import yaml

import jaxtrade
from jaxtrade.cli import build_parser
from tests import notebook
from tests.children import run_python
from tests.messages import missing
from tests.reading import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = [page for page in PAGES if page.parent == DOCS / "howto"] + [
    DOCS / "tutorial.md",
    DOCS / "cli.md",
    ROOT / "README.md",
]
GROUPS = {"jaxtrade --help", "jaxtrade COMMAND --help", "jaxtrade list"}  # no whole commands
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def text_of(page):
    return page.read_text()


def prose(text):
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def blocks(page, *kinds):
    """(kind, text) of the fenced blocks of some kinds, in order; a line that ends in a backslash is
    joined.
    """
    found = re.findall(r"```(\w*)\n(.*?)```", text_of(page), re.DOTALL)
    return [(kind, re.sub(r"\\\n\s*", "", text)) for kind, text in found if kind in kinds]


def commands(page):
    """The `jaxtrade` commands of a page: in code spans, in blocks of shell, and behind a path."""
    text = text_of(page).partition("<!-- commands:begin -->")[0]
    shell = "".join(found for _, found in blocks(page, "", "bash"))
    found = (
        re.findall(r"`(jaxtrade [^`]+)`", prose(text))
        + re.findall(r"bin/(jaxtrade [^\n&]+)", text)
        + re.findall(r"^(jaxtrade [^#\n]+)", shell, re.MULTILINE)
    )
    plain = {re.sub(r"[\[\]]|\.\.\.", "", command.partition(" > ")[0]).strip() for command in found}
    return {command.replace("SHELL", "bash") for command in plain - GROUPS}


def anchor(heading):
    """The anchor of a heading, as the site makes it."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


def nav_files(entries):
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from nav_files(value) if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(text_of(page))):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name}: {link}"
        if heading and target.suffix == ".md":
            assert heading in {anchor(found) for found in HEADING.findall(text_of(target))}, (
                f"{page.name}: {link}"
            )


def test_every_page_has_its_place():
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = list(nav_files(config["nav"]))
    pages = {page.relative_to(DOCS).as_posix() for page in [*PAGES, *DOCS.rglob("*.ipynb")]}
    assert sorted(listed) == sorted(pages)
    assert [next(iter(part)) for part in config["nav"]] == [
        "Start",
        "Tutorial",
        "How to",
        "Reference",
        "Explanation",
    ]
    assert config["theme"]["font"] is False, "the site asks no other host for fonts"


def test_the_reference_has_every_public_name_once():
    named = re.findall(r"^::: jaxtrade\.(\w+)$", text_of(DOCS / "api.md"), re.MULTILINE)
    assert sorted(named) == sorted(jaxtrade.__all__)


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_commands_parse(page):
    for command in commands(page):
        build_parser().parse_args(shlex.split(command)[1:])


def test_commands_were_found():
    assert len(commands(DOCS / "tutorial.md")) >= 5
    assert sum(len(commands(page)) for page in SHOWN) >= 43


def run_in(folder, kind, text):
    """Run one block of a page in `folder` -> what it printed. `jaxtrade` is that of this
    checkout.
    """
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    lines = [["-m", "jaxtrade.cli", *shlex.split(line)[1:]] for line in text.splitlines()]
    out = []
    for words in [["-c", text]] if kind == "python" else lines:
        done = run_python(*words, cwd=folder, env=environ)
        assert done.returncode in (0, 1), (
            f"{words}\n{done.stderr[-3000:]}"
        )  # 1: a health check of a short run
        assert "Traceback" not in done.stderr
        out.append(done.stdout)
    return "".join(out)


@pytest.mark.slow
def test_the_tutorial_runs_as_printed(tmp_path):
    """The page that compares runs is read with the two runs of the tutorial."""
    said = []
    for kind, text in blocks(DOCS / "tutorial.md", "python", "bash"):
        said.append(run_in(tmp_path, kind, text))
    assert (tmp_path / "my_bars.yaml").is_file()
    assert "first" in said[-1] and "wide" in said[-1] and "net_profit" in said[-1]  # noqa: PT018
    for old, new in (("first", "base"), ("wide", "gru")):
        shutil.move(tmp_path / "runs" / old, tmp_path / "runs" / new)
    [(kind, text)] = blocks(DOCS / "howto" / "compare_runs.md", "python")
    assert "net_profit" in run_in(tmp_path, kind, text)
    [(kind, text)] = blocks(DOCS / "howto" / "tensorboard.md", "python")
    assert "entropy" in run_in(tmp_path, kind, text)


@pytest.mark.slow
def test_the_python_page_runs_as_printed(tmp_path):
    code = "\n".join(text for _, text in blocks(DOCS / "python.md", "python"))
    said = run_in(tmp_path, "python", code)
    assert not missing(said, "mean 'total_timesteps'", "several sections", "'kind'")
    assert "first action:" in said


@pytest.mark.slow
def test_parts_of_your_own_train_as_printed(tmp_path):
    """The three modules in one short run."""
    for name in ("reward", "feature", "network"):
        [(_, text)] = blocks(DOCS / "howto" / f"own_{name}.md", "python")
        (tmp_path / f"my_{name}.py").write_text(text)
    flags = ["--import my_reward --import my_feature --import my_network --run-dir runs/mine"]
    for name in ("reward", "feature", "network"):
        [(_, text)] = blocks(DOCS / "howto" / f"own_{name}.md", "bash")
        flags.append("--set " + text.split("--set ", 1)[1].strip())
    small = (
        "rollout.num_envs=8",
        "rollout.num_steps=16",
        "ppo.num_minibatches=2",
        "network.hidden=[8]",
        "train.total_timesteps=256",
        "train.chunk_updates=1",
    )
    run_in(
        tmp_path, "bash", " ".join(["jaxtrade train", *flags, *(f"--set {key}" for key in small)])
    )
    said = run_in(
        tmp_path,
        "python",
        (  # in another process: opening the run imports the three modules
            "import jaxtrade; run = jaxtrade.open_run('runs/mine')\n"
            "print('reward_gained' in run.metrics.columns, run.config.network.kind, run.config.env.features[-1])"
        ),
    )
    assert said.split() == ["True", "squashed", "close_in_bar"]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_the_site_shows(tmp_path):
    pytest.importorskip("nbclient", reason='nbclient is not installed: pip install -e ".[docs]"')
    kept = notebook.read()
    shown = [[output.output_type for output in cell.get("outputs", [])] for cell in kept.cells]
    fresh = notebook.tidied(notebook.executed(notebook.read(), tmp_path))
    assert [
        [output.output_type for output in cell.get("outputs", [])] for cell in fresh.cells
    ] == shown
    assert sum(map(len, shown)) >= 8
