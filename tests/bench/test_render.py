"""README.md and docs/benchmarks.md are what the committed results make."""

import importlib
import inspect
import json
import re
import shutil

import pytest

from bench import catalogue, render
from jaxtrade.errors import DataError
from tests.messages import refused
from tests.reading import read_json

ROOT = render.ROOT
PAGES = ("README.md", "docs/benchmarks.md")


@pytest.fixture
def checkout(tmp_path):
    """The pages and the results, in a folder of their own."""
    for name in PAGES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "bench" / "results", tmp_path / "bench" / "results")
    return tmp_path


def test_the_committed_pages_are_what_the_results_make():
    assert render.stale() == {}, "run `python -m bench.render`"


def test_every_result_that_the_page_links_is_there_and_of_a_clean_commit():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    named = set(re.findall(r"\.\./bench/results/(\w+)\.json", page))
    assert named >= set(render.TABLES) | {"first_result", "startup", "compile", "data"}
    for name in named:
        result = render.load(name)
        assert result["bench"] == name in catalogue.BENCHES
        assert not result["stamp"]["commit"].endswith("+")
    assert len(page.splitlines()) <= 300


@pytest.mark.parametrize(("ratio", "said"), [(0.5, "0.5x: **slower**"), (2.0, "2x: faster")])
def test_a_slower_side_is_called_slower(checkout, ratio, said):
    path = checkout / "bench" / "results" / "ppo_train.json"
    result = read_json(path)
    result["ratios"]["small/rejax/16"] = {"wall": ratio, "cpu": 1.0}
    path.write_text(json.dumps(result))
    stale = render.stale(checkout)
    assert {path.relative_to(checkout).as_posix() for path in stale} == set(PAGES)
    assert all(f"| {said} |" in text for text in stale.values())


@pytest.mark.parametrize("change", [{"quick": True}, {"forced": True}])
def test_what_shows_no_speed_is_refused(checkout, change):
    path = checkout / "bench" / "results" / "env_step.json"
    path.write_text(json.dumps(read_json(path) | change))
    with pytest.raises(DataError, match=rf"env_step\.json.*{next(iter(change))}"):
        render.stale(checkout)
    path.unlink()
    with refused("cannot be read", kind=DataError):
        render.stale(checkout)


@pytest.mark.parametrize("text", ["", f"{render.BEGIN}\n", f"{render.END}\n{render.BEGIN}\n"])
def test_markers_stand_once_and_in_order(text):
    with refused("page.md: ", kind=DataError):
        render.inserted(text, ["x"], "page.md")


@pytest.mark.parametrize("name", list(catalogue.BENCHES))
def test_every_bench_is_a_module_that_runs(name):
    module = importlib.import_module(f"bench.{name}")
    parameters = list(inspect.signature(module.run).parameters)
    assert parameters[0] == "options"
