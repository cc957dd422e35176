"""The bench of a report's page: what it measures of a made-up run, with and without a browser, and
its targets.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import browser, report, targets
from bench.catalogue import Options
from tests import webdriver
from tests.reporting.made import made_run


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench measures a made-up run of 180 bars, instead of one that it trains."""
    monkeypatch.setattr(report, "trained", lambda folder, quick: made_run(folder / "made"))


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "PROGRAMS", ("no-such-browser",))


def held(result: dict[str, Any]) -> dict[str, tuple[Any, bool | None]]:
    """Where a target of this bench looks -> (what it finds, whether it is met)."""
    own = {
        each.at[0]: (each, each.measured({"": {"report": result}})[1])
        for each in targets.load()
        if each.bench == "report"
    }
    return {
        place: (value, None if value is None else target.met(value))
        for place, (target, value) in own.items()
    }


@pytest.mark.usefixtures("quick", "no_browser")
def test_without_a_browser_its_seconds_are_left_out() -> None:
    found = report.run(Options(quick=True, repeats=2))
    assert (found["bars"], found["programs"]["making"]["repeats"]) == (180, 2)
    assert found["left_out"]["ready"].startswith("no-such-browser not found")
    assert held(found) == {"ready": (None, None), "bytes": (found["bytes"], True)}


@pytest.mark.usefixtures("quick", "no_browser")
def test_a_full_result_of_fewer_bars_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"holds 180 bars \(0 were left out\); expected 60,000 or more"
    ):
        report.run(Options(repeats=1))


def test_the_targets() -> None:
    assert held({"ready": {"seconds": 1.9}, "bytes": 3_000_001}) == {
        "ready": (1.9, True),
        "bytes": (3_000_001, False),
    }
    assert held({"ready": {"seconds": 2.1}, "bytes": 1}) == {
        "ready": (2.1, False),
        "bytes": (1, True),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_seconds_of_a_real_page() -> None:
    webdriver.skip_or_fail()
    found = report.run(Options(quick=True, repeats=3))
    json.dumps(found, allow_nan=False)
    assert found["left_out"] == {}
    assert 0 < found["ready"]["seconds"] <= found["ready"]["most_seconds"]


@pytest.mark.slow
@pytest.mark.long
def test_the_run_that_it_trains(tmp_path: Path) -> None:
    folder = report.trained(tmp_path, quick=True)
    assert (folder / "evaluation" / "test" / "records.npz").is_file()
