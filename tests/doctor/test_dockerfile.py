"""The Dockerfile, read as text: targets, pinned base, installed extras, copied files, user. CI has
no engine.
"""

import re
import shlex
import tomllib

import pytest

from tests.reading import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def stages():
    """Name of a stage -> (its base, instructions with their arguments)."""
    text = re.sub(r"#.*\n|\\\n\s*", " ", (ROOT / "Dockerfile").read_text())
    found = {}
    for stage in text.split("FROM ")[1:]:
        head, *body = [line.strip() for line in stage.splitlines() if line.strip()]
        base, name = head.split(" AS ")
        found[name] = (base, [tuple(line.split(" ", 1)) for line in body])
    return found


def test_targets_and_pinned_base():
    found = stages()
    assert list(found) == ["base", "cuda", "cpu"]  # the last is what `docker build .` makes
    assert re.match(r"python:3\.1[1-9][\d.]*-slim", found["base"][0])  # stated, never 'latest'
    assert {found["cpu"][0], found["cuda"][0]} == {"base"}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_installs_are_those_of_pyproject(target):
    runs = [shlex.split(rest) for word, rest in stages()[target][1] if word == "RUN"]
    (install,) = runs
    assert install[:3] == ["pip", "install", "--no-cache-dir"]
    own, *others = install[3:]
    assert own == "."
    jax = next(text for text in PROJECT["dependencies"] if text.startswith("jax>"))
    assert others == ([jax.replace("jax", "jax[cuda13]", 1)] if target == "cuda" else [])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_runs_as_a_user_and_shows_the_machine(target):
    body = dict(stages()[target][1])
    assert body["USER"] == "1000"  # a number: orchestrators can tell that it is not root
    assert f"useradd --create-home --uid {body['USER']} trader" in dict(stages()["base"][1])["RUN"]
    assert body["ENTRYPOINT"] == '["jaxtrade"]'
    assert "jaxtrade" in PROJECT["scripts"]
    assert body["CMD"].startswith('["doctor"')


def test_what_is_copied_exists_is_not_ignored_and_is_all_that_a_build_needs():
    sources = [
        name for word, rest in stages()["base"][1] if word == "COPY" for name in rest.split()[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name in sources:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored
    assert {
        "pyproject.toml",
        "jaxtrade",
        "configs",
        PROJECT["readme"],
        *PROJECT["license-files"],
    } <= set(sources)
