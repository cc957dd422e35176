"""The pages of the documentation are true: links lead somewhere, commands parse, code runs as
printed.

`mkdocs build --strict` is a step of its own in .ci/run.
"""

import inspect
import os
import re
import runpy
import shlex
import shutil

import pytest
import reference
import yaml

import jaxtrade
from jaxtrade.cli import build_parser
from jaxtrade.cli.shared import resolve
from tests import notebook
from tests.children import run_python
from tests.messages import missing
from tests.reading import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SHOWN = [
    *(
        DOCS / f"{name}.md"
        for name in (
            "tutorial",
            "own_data",
            "own_parts",
            "own_learner",
            "sb3",
            "advisor",
            "training",
            "agents",
            "symbols",
            "scale",
            "interop",
            "report",
            "believe",
            "believe_numbers",
            "cli",
        )
    ),
    ROOT / "README.md",
]
GROUPS = {"jaxtrade --help", "jaxtrade COMMAND --help", "jaxtrade list"}  # no whole commands
SMALL = (  # settings of a run that is over at once
    "rollout.num_envs=8",
    "rollout.num_steps=16",
    "ppo.num_minibatches=2",
    "network.hidden=[8]",
    "train.total_timesteps=256",
    "train.chunk_updates=1",
)
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
    text = text_of(page)
    shell = "".join(found for _, found in blocks(page, "", "bash"))
    found = (
        re.findall(r"`(jaxtrade [^`]+)`", prose(text))
        + re.findall(r"bin/(jaxtrade [^\n&]+)", text)
        + re.findall(r"^(jaxtrade [^#\n]+)", shell, re.MULTILINE)
    )
    plain = {
        re.sub(r"[\[\]{}]|\.\.\.|\\?\|\w+", "", command.partition(" > ")[0]).strip()
        for command in found
    }
    return {each.replace("SHELL", "bash").replace("WHAT", "markets") for each in plain - GROUPS}


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
        "Guides",
        "Reference",
        "Project",
    ]
    assert config["theme"]["font"] is False, "the site asks no other host for fonts"


def call_of(function, name, skip=0):
    """A call as docs/api.md writes it: without types, and without the first `skip` parameters."""
    given = list(inspect.signature(function).parameters.values())[skip:]
    return f"{name}{inspect.Signature([each.replace(annotation=each.empty) for each in given])}"


def assert_call(written, call):
    """A long call is cut at `...`."""
    start = written.removesuffix("...)")
    assert call.startswith(start) if start != written else call == written


def test_the_api_page_has_every_public_name_once():
    """And the site its documentation."""
    page = text_of(DOCS / "api.md")
    assert sorted(name for _, name, _ in reference.NAME.findall(page)) == sorted(jaxtrade.__all__)
    added = re.findall(r"^::: jaxtrade\.(\w+)$", reference.add_docstrings(page), re.MULTILINE)
    assert sorted(added) == sorted(jaxtrade.__all__)


def test_the_api_page_writes_calls_fields_and_methods_as_they_are():
    checked = 0
    for entry in re.findall(r"^- .+(?:\n  .+)*", text_of(DOCS / "api.md"), re.MULTILINE):
        kind, name, given = reference.NAME.match(entry).groups()
        value = getattr(jaxtrade, name)
        assert isinstance(value, type) == bool(kind), name
        if given or not kind:
            assert_call(name + given, call_of(value, name))
        fields = {*dir(value), *getattr(value, "__annotations__", ())}
        members = " ".join(entry.split()).partition(" It has ")[2]
        for member in re.findall(r"`(.+?)`", members):
            word, bracket, _ = member.partition("(")
            assert word in fields, f"{name}.{word}"
            method = getattr(value, word, None)
            assert bool(bracket) == inspect.isfunction(method), f"{name}.{word}"
            if bracket:
                assert_call(member, call_of(method, word, skip=1))
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_commands_parse(page):
    for command in commands(page):
        build_parser().parse_args(shlex.split(command)[1:])


def test_cells_of_wide_tables_name_their_column(monkeypatch):
    pytest.importorskip("mkdocs", reason='mkdocs is not installed: pip install -e ".[docs]"')
    monkeypatch.syspath_prepend(DOCS / "site")
    hooks = runpy.run_path(str(DOCS / "site" / "hooks.py"))
    row = "<tr>\n<td>a</td>\n<td>b</td>\n<td><code>x</code></td>\n</tr>"
    heads = "<tr>\n<th></th>\n<th>two</th>\n<th><code>c</code></th>\n</tr>"
    made = hooks["on_page_content"](f"<table>{heads}{row}</table>")
    assert re.findall(r'<td data-name="(.*?)">(.*?)</td>', made) == [
        ("", "a"),
        ("two", "b"),
        ("c", "<code>x</code>"),
    ]


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
    """The page that compares runs is read with the two runs of the tutorial. Its first command is
    README's, which .ci/run takes whole (`bench first_result`); here it trains for a moment."""
    (first, proof), *rest = blocks(DOCS / "tutorial.md", "python", "bash")
    assert proof == "jaxtrade train proof\n"
    run_in(tmp_path, first, f"{proof.strip()} --timesteps 8k")
    said = [run_in(tmp_path, kind, text) for kind, text in rest]
    assert (tmp_path / "my_bars.yaml").is_file()
    assert "first" in said[-1] and "wide" in said[-1] and "net_profit" in said[-1]  # noqa: PT018
    for old, new in (("first", "base"), ("wide", "gru")):
        shutil.move(tmp_path / "runs" / old, tmp_path / "runs" / new)
    compare, curves = blocks(DOCS / "report.md", "python")
    assert "net_profit" in run_in(tmp_path, *compare)
    assert "entropy" in run_in(tmp_path, *curves)


@pytest.mark.slow
def test_the_python_page_runs_as_printed(tmp_path):
    code = "\n".join(text for _, text in blocks(DOCS / "python.md", "python"))
    said = run_in(tmp_path, "python", code)
    assert not missing(said, "mean 'total_timesteps'", "several sections", "'kind'")
    assert "first action:" in said


@pytest.mark.slow
def test_parts_of_your_own_train_as_printed(tmp_path):
    """The four modules in one short run."""
    names = ("reward", "feature", "network", "task")
    modules = blocks(DOCS / "own_parts.md", "python")
    for name, (_, text) in zip(names, modules, strict=True):
        (tmp_path / f"my_{name}.py").write_text(text)
    flags = [*(f"--import my_{name}" for name in names), "--run-dir runs/mine"]
    for name, (_, text) in zip(names, blocks(DOCS / "own_parts.md", "bash"), strict=True):
        assert f"--import my_{name} " in text
        flags.append("--set " + text.split("--set ", 1)[1].strip())
    run_in(
        tmp_path, "bash", " ".join(["jaxtrade train", *flags, *(f"--set {key}" for key in SMALL)])
    )
    said = run_in(
        tmp_path,
        "python",
        (  # in another process: opening the run imports the four modules
            "import jaxtrade; run = jaxtrade.open_run('runs/mine')\n"
            "print('reward_gained' in run.metrics.columns, run.config.network.kind, run.config.env.features[-1])\n"
            "print(run.policy.action_names[-1])"
        ),
    )
    assert said.split() == ["True", "squashed", "close_in_bar", "EXIT"]


@pytest.mark.slow
def test_a_learner_of_your_own_trains_as_printed(tmp_path):
    [(_, text)] = blocks(DOCS / "own_learner.md", "python")
    (tmp_path / "my_learner.py").write_text(text)
    [(_, command)] = blocks(DOCS / "own_learner.md", "bash")
    small = (key for key in SMALL if not key.startswith("ppo"))
    run_in(tmp_path, "bash", " ".join([command.strip(), *(f"--set {key}" for key in small)]))
    said = run_in(
        tmp_path,
        "python",
        (  # in another process, which imports the module again
            "import jaxtrade; run = jaxtrade.open_run('runs/mine')\n"
            "print(run.config.algorithm, 'policy_loss' in run.metrics.columns, run.policy.action_names[0])"
        ),
    )
    assert said.split() == ["reinforce", "True", "HOLD"]


def test_the_translated_script_is_one_configuration(monkeypatch):
    """In Python and as a command."""
    _, ours, *_ = (text for _, text in blocks(DOCS / "sb3.md", "python"))
    command, *_ = (text for _, text in blocks(DOCS / "sb3.md", "bash"))
    made = []
    monkeypatch.setattr(jaxtrade, "run", lambda *given, **keys: made.append((given, keys)))
    exec(ours.replace("print(result.table)", ""))
    [((name,), keys)] = made
    given = build_parser().parse_args(shlex.split(command)[1:])
    assert jaxtrade.load_config(name, **keys) == resolve(given)


@pytest.mark.slow
def test_coming_from_sb3_runs_as_printed(tmp_path):
    """A hook and a policy in one program; then the environment, and the task that replaces it."""
    _, first, hook, policy, theirs, ours = (text for _, text in blocks(DOCS / "sb3.md", "python"))
    said = run_in(tmp_path, "python", first.replace("20_000", "5_000") + hook + policy)
    assert not missing(said, "your policy", "updates: 40", "reward of an episode:")
    steps = "env = PriceEnv(np.linspace(100.0, 101.0, 40))\nenv.reset()\nprint(env.step(1)[1] < 0 < env.step(1)[1])"
    assert run_in(tmp_path, "python", f"{theirs}\n{steps}") == "True\n"
    first = (
        "import jax, jaxtrade as jt\n"
        "config = jt.load_config('quickstart', ['env.task=target'])\n"
        "market, env = jt.load_market(config), jt.make_env(config)\n"
        "params = jt.make_params(market, jt.split_sessions(market, config.split)['train'], config)\n"
        "state, ref = env.reset(jax.random.key(0), params)\n"
        "print(env.action_mask(ref).tolist())\n"
        "buy = jnp.int32(env.actions.index('LONG'))\n"
        "print(env.step(None, state, buy, params)[0].position.quantity)"
    )
    said = run_in(tmp_path, "python", f"{ours}\n{first}").splitlines()
    assert said == ["[True, False, True, True]", "1"]


@pytest.mark.slow
def test_a_loop_of_your_own_runs_as_printed(tmp_path):
    """With fewer environments, steps and updates."""
    code = "\n".join(text for _, text in blocks(DOCS / "own_loop.md", "python"))
    sizes = "ENVS, STEPS, UPDATES = 4096, 32, 40"
    assert sizes in code
    said = run_in(tmp_path, "python", code.replace(sizes, "ENVS, STEPS, UPDATES = 64, 8, 2"))
    assert not missing(said, "update 2: mean reward", "'mine' made", "best policy")


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
