"""The page of a walk-forward: sections, figures, and what it refuses. The folder is made up;
nothing is trained.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.cli.entry import main
from jaxtrade.config import load_config
from jaxtrade.config.market import AccountConfig
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.run_days import DAILY, WalkDays, evidence_of, write_walk_days
from jaxtrade.evaluation.statistics import iqm_estimate
from jaxtrade.formatting import MINUS
from jaxtrade.reporting.walk import collect, page
from jaxtrade.runs import rundir
from jaxtrade.runs.walk_document import walk_verdict
from jaxtrade.web.assets import source_hash
from tests.messages import missing
from tests.reporting.made import sessions_of
from tests.reporting.parsed import parsed

EVIL = "<script>alert(1)</script>"
PANEL = "What stands behind"


def made_days(folds=3, each=8, seeds=5):
    """Days of three agents' worth of noise about a small gain."""
    rng, count = np.random.default_rng(2), folds * each
    net = rng.normal(20, 100, (seeds, count))
    return WalkDays(
        date=sessions_of(count).astype(np.int64),
        fold=np.repeat(np.arange(folds), each).astype(np.int32),
        day_bars=np.full(count, ""),
        net=net,
        account_net=net / 2,
        baselines=np.array(["flat", "random", "buy_hold"]),
        baseline_net=np.stack([np.zeros(count), *rng.normal([[-900], [5]], 80, (2, count))]),
        in_sample_net=rng.normal(60, 5, (seeds, folds)),
        seeds=np.arange(3, 3 + seeds),
    )


def spread(values):
    return {
        "mean": float(values.mean()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
        "by_seed": values.tolist(),
    }


def made_document(days, mode="rolling"):
    """What a walk-forward of these days writes, as far as the page reads it."""
    dates, names = days.date.astype("datetime64[D]").astype(str), days.baselines.tolist()

    def fold(number):
        own = days.fold == number
        block = {"first": dates[own][0], "last": dates[own][-1], "sessions": int(own.sum())}
        return {
            "fold": number,
            "train": block,
            "test": block,
            "purged": ["2013-09-30"],
            "embargoed": [],
            "net_per_day": spread(days.net[:, own].mean(axis=1)),
            "account_net_per_day": spread(days.account_net[:, own].mean(axis=1)),
            "in_sample_net_per_day": spread(days.in_sample_net[:, number]),
            "baseline_net_per_day": {
                name: float(net[own].mean())
                for name, net in zip(names, days.baseline_net, strict=True)
            },
        }

    pooled = {
        "independent_days": days.independent,
        "tested_days": len(dates),
        "seeds": days.seeds.tolist(),
        "net_per_day": spread(days.net.mean(axis=1)),
        "in_sample_net_per_day": spread(days.in_sample_net[:, 0]),
        "account_net_per_day": spread(days.account_net.mean(axis=1)),
    }
    none = {"value": None, "low": None, "high": None, "why": "it needs 10 trials, there are 5"}
    return {
        "format": 1,
        "market": EVIL,
        "synthetic": True,
        "walk": {"mode": mode, "train": 20, "embargo": 1},
        "sessions": 60,
        "steps_per_agent": 1_000,
        "baselines": names,
        "reach": {"how": "9 bars are used"},
        "in_sample_days": "the newest training sessions",
        "folds": [fold(i) for i in range(days.folds)],
        "pooled": pooled,
        "labels": ["a label"],
        "trials": {
            "opened": 2,
            "trials": 5,
            "fault": None,
            "pbo": none | {"null_low": None, "null_high": None},
            "by_seed": {
                str(seed): {"dsr": none | {"value": 0.1 * i, "why": None}}
                for i, seed in enumerate(days.seeds.tolist(), 3)
            },
        },
    }


def test_a_walk_has_a_verdict_of_both_passes():
    days = made_days()
    said = walk_verdict(days, AccountConfig())
    under = days.by_date(days.account_net)[0].mean(axis=0).sum()
    assert not missing(said, "account rules off", "Under apex_like_50k_2025 it made")
    assert f"{under:,.2f}".lstrip("-") in said
    assert all(name in said for name in days.baselines)
    assert "Under" not in walk_verdict(days, AccountConfig(preset="rules_off_50k"))


def made_walk(path, days, document):
    config = load_config("quickstart", ["walk.on=true"])
    rundir.create_run(path, config, rundir.provenance(config, "d" * 64))
    write_walk_days(days, path / DAILY)
    rundir.write_json(path / "walkforward.json", document)
    return path


def dollars(cell):
    return float(cell.replace(MINUS, "-").replace("$", "").replace(",", ""))


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    days = made_days()
    return made_walk(tmp_path_factory.mktemp("runs") / "walk", days, made_document(days))


@pytest.fixture(scope="module")
def html(walk):
    return page(collect(walk))


def test_honesty_is_first_and_every_picture_has_a_table(html):
    found = parsed(html)
    sections = [attributes["id"] for name, attributes, _ in found.elements if name == "section"]
    assert sections == ["honesty", "folds", "sample", "baselines", "equity", "provenance"]
    drawn = {section for name, _, section in found.elements if name == "svg"}
    assert drawn == {"baselines", "equity"}
    assert drawn <= {each.section for each in found.tables}
    ids = [attributes["id"] for _, attributes, _ in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_page_loads_nothing_and_its_policy_names_what_it_holds(html):
    found = parsed(html)
    [policy] = [
        attributes["content"] for _, attributes, _ in found.elements if "http-equiv" in attributes
    ]
    assert [name for name, _, _ in found.inline] == ["style", "script"]
    for kind, _, content in found.inline:
        assert f"{kind}-src {source_hash(content)}" in policy
    assert EVIL not in html
    assert f"{EVIL}, walk-forward" in found.text
    for name, attributes, _ in found.elements:
        assert not {"src", "style", "action"} & set(attributes), name
        assert attributes.get("href", "#").startswith("#")


def test_the_panel_has_the_statistics_of_the_days(walk, html):
    panel = parsed(html).table(PANEL)
    evidence = evidence_of(made_days())
    assert panel.about("held out")[0] == "24"
    assert panel.about("policies were trained")[0] == "15"
    value = iqm_estimate(made_days().net, made_days().fold).value
    assert value is not None
    assert panel.about("earn")[0].startswith(f"{'+' if value > 0 else MINUS}${abs(value):.2f} [")
    assert panel.about("Sharpe ratio")[0].startswith(
        f"{100 * evidence['psr']['of_mean']['value']:.1f} %"
    )
    assert panel.about("every baseline")[0] == f"{evidence['spa']['p']:.3f}"
    assert panel.about("picked")[0] == "30.0 % to 70.0 %"
    assert panel.about("looked at")[0] == "twice"
    questions = [question for question, *_ in panel.rows]
    assert not [each for each in questions if "overfitted" in each or "structure" in each]
    assert not missing(parsed(html).text, "10 trials, there are 5", "--nulls sign:19")
    assert "a labelThe bars are synthetic." in parsed(html).text.replace("\n", "")


def test_folds_days_and_baselines_are_those_of_the_files(walk, html):
    found, days, document = (
        parsed(html),
        made_days(),
        json.loads((walk / "walkforward.json").read_text()),
    )
    folds = found.table("Folds")
    assert folds.head[6:11] == [
        "Out of sample",
        "Lowest seed",
        "Highest seed",
        "Under account rules",
        "In sample",
    ]
    for row, each in zip(folds.rows, document["folds"], strict=True):
        assert row[0] == str(each["fold"])
        assert row[5] == "1"
        assert dollars(row[6]) == pytest.approx(each["net_per_day"]["mean"], abs=5e-3)
    table = found.table("Net profit of each tested day")
    assert [row[0] for row in table.rows] == days.date.astype("datetime64[D]").astype(str).tolist()
    assert dollars(table.rows[0][1]) == pytest.approx(days.net[:, 0].mean(), abs=5e-3)
    intervals = found.table("Net profit of a day, with intervals")
    assert [row[0] for row in intervals.rows] == [
        "policies",
        "flat",
        "random",
        "buy hold",
    ]


def test_the_command_writes_page_and_figures(walk, tmp_path, capsys):
    assert main(["report", str(walk), "--out", str(tmp_path / "out")]) == 0
    assert "report.html" in capsys.readouterr().out
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    assert data["kind"] == "walkforward"
    assert data["days"]["mean"] == made_days().net.mean(axis=0).tolist()
    for argv, fragment in (
        (
            ["--seed", "3", "--split", "all"],
            "shows all seeds on the test days of all folds: drop --seed, --split",
        ),
        (["--max-mb", "0.001"], "the page takes 0.0"),
    ):
        assert main(["report", str(walk), "--out", str(tmp_path / "out"), *argv]) == 2
        assert fragment in capsys.readouterr().err


def test_null_markets_and_paths_are_shown_where_there_are_any(tmp_path):
    days = made_days()
    paths = [{"path": 0, "folds": [0, 1], "days": 24, "net_per_day": spread(days.net.mean(axis=1))}]
    walk = made_walk(tmp_path / "walk", days, made_document(days, "cpcv") | {"paths": paths})
    null = {
        "name": "policy",
        "kind": "sign",
        "real": 20.0,
        "nulls": [1.0, 2.0],
        "draws_asked": 2,
        "draws_made": 2,
        "exceedances": 0,
        "p": 1 / 3,
        "floor": 1 / 3,
    }
    rundir.write_json(walk / "nulls.json", {"results": {"policy": null}})
    found = parsed(page(collect(walk)))
    assert found.table(PANEL).about("structure")[0] == "p = 0.333"
    assert found.table("Paths").rows[0][:2] == ["0", "24"]
    assert "a trader could have earned" in found.text


def test_a_walk_forward_of_an_earlier_version_says_what_it_lacks(tmp_path):
    """It neither counted openings nor had labels."""
    days = made_days(seeds=1, folds=2, each=2)
    document = made_document(days)
    del document["trials"], document["labels"]
    found = parsed(page(collect(made_walk(tmp_path / "walk", days, document))))
    panel = found.table(PANEL)
    assert panel.about("looked at")[0] == "n/a"
    assert "earlier version" in panel.about("looked at")[1]
    assert not [question for question, *_ in panel.rows if "Sharpe" in question]
    assert not missing(found.text, "Is the Sharpe ratio above 0?", "5 days, there are 4")
    assert not [question for question, *_ in panel.rows if "picked" in question]


def test_what_has_not_ended_or_does_not_fit_is_refused(walk, tmp_path):
    path = Path(shutil.copytree(walk, tmp_path / "walk"))
    write_walk_days(made_days(seeds=4), path / DAILY)
    with pytest.raises(
        DataError,
        match="different walk-forwards",
    ):
        collect(path)
    (path / "walkforward.json").unlink()
    with pytest.raises(ConfigError, match="jaxtrade walkforward --resume"):
        collect(path)
