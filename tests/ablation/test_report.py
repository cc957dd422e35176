"""What is written: everything, in plain JSON, with what cheats said wherever it is shown."""

import importlib.util
import json

import pytest

from jaxtrade.ablation import plot, report
from tests.ablation.made import made_ablation
from tests.messages import missing

WORTH = {
    "none": 0.0,
    "mock:random": 0.0,
    "mock:permuted/mock:skilled:0.6": 0.0,
    "mock:skilled:0.6": 30.0,
}


@pytest.fixture(scope="module")
def ablation():
    return made_ablation(WORTH)[0]


def test_the_table(ablation):
    text = report.table(ablation)
    assert "mock:skilled:0.6 (CHEATS)" in text
    assert "NOTE: cheating: some" in text
    assert "4 advisors x 1 fusions x 4 seeds" in text
    assert "4 seeds are few" in text
    row = next(line for line in text.splitlines() if line.startswith("mock:random"))
    assert "(CHEATS)" not in row
    assert "60.0 %" in row
    assert row.split()[-1] == "3.0"


@pytest.mark.slow
def test_the_document(ablation, tmp_path):
    paths = report.write(ablation, tmp_path / "new")
    document = json.loads(paths[0].read_text())
    assert document["cheats"] == ["mock:skilled:0.6"]
    found = document["fusions"]["trust"]["kinds"]["mock:skilled:0.6"]["test"]
    assert found["agreement_by_seed"] == [None] * 4  # undefined, never 0
    assert len(found["net_by_seed_and_day"]) == 4
    assert found["less_none"]["mean"] == pytest.approx(30, abs=5)
    assert found["less_none"]["interval"]["low"] < 30 < found["less_none"]["interval"]["high"]
    assert found["less_placebo"]["deflated"]["low"] > 0
    assert document["fusions"]["trust"]["kinds"]["none"]["test"]["less_none"] is None
    assert document["format"] == 2
    assert document["fusions"]["trust"]["claims"] == {}  # no real advisor
    assert paths[1].read_text().startswith("Ablation on ES")


def test_few_seeds_have_no_interval_and_the_report_says_why():
    found, fusion = made_ablation(WORTH, seeds=2)
    assert not missing(report.table(found), "3 seeds and 5 days", "are 2 and 20")
    assert "seeds are few" not in report.table(found)
    compared = found.to_none(fusion, "mock:skilled:0.6")
    assert (compared.interval, compared.deflated, compared.sigmas, compared.certain) == (
        None,
        None,
        None,
        0,
    )
    assert compared.days_only is not None


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")
def test_the_picture(ablation, tmp_path):
    assert plot.draw(ablation, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture(ablation, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert [path.name for path in report.write(ablation, tmp_path)] == [
        "ablation.json",
        "ablation.txt",
    ]
    assert not (tmp_path / "ablation.png").exists()
