"""The report of a run: what the page must hold, what it must not, and that it says what the run's
files say.
"""

import csv
import io
import itertools
import json
import re

import numpy as np
import pytest

from jaxtrade.cli.entry import main
from jaxtrade.config import load_config
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.frames import TRADE_COLUMNS
from jaxtrade.formatting import MINUS, name_agent
from jaxtrade.reporting import collect, make, page
from jaxtrade.reporting.page import environment
from jaxtrade.reporting.schema import OPTIONAL, command
from jaxtrade.runs import rundir
from jaxtrade.web.assets import source_hash
from tests.evaluation.test_report import result_of
from tests.evaluation.tiny import tiny_market, walk
from tests.messages import missing
from tests.reporting.made import AGENTS, OLD, logged, made_run
from tests.reporting.parsed import parsed, unpacked

SECTIONS = [
    "equity",
    "honesty",
    "baselines",
    "sample",
    "account",
    "training",
    "explorer",
    "absent",
    "provenance",
]
EVIL = "<script>alert(1)</script>"
MARKET = tiny_market(walk([40] * 6, scale=6.0), [40] * 6)

shown = environment().filters["format_number"]


def report_of(run, **choice):
    return make.make(collect.collect(collect.choose(run, **choice)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_run(
        tmp_path_factory.mktemp("runs") / "made", symbol=EVIL, labels=(f"a label {EVIL}",)
    )


@pytest.fixture(scope="module")
def bare(run):
    """A run whose other commands were not used."""
    return report_of(run)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A run of five seeds, evaluated twice beside eleven others, with all that other commands
    compute.
    """
    run = made_run(
        tmp_path_factory.mktemp("runs") / "made",
        sessions=40,
        each=30,
        trades=2,
        optional=True,
        seeds=5,
    )
    return report_of(logged(run, times=2, others=11))


@pytest.fixture(scope="module")
def found(bare):
    return parsed(bare.html)


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_sections_stand_in_their_order_and_the_result_is_first(found):
    sections = [attributes["id"] for name, attributes, _ in found.elements if name == "section"]
    assert sections == SECTIONS
    links = [attributes["href"] for name, attributes, _ in found.elements if name == "a"]
    assert links == ["#figures", *(f"#{name}" for name in SECTIONS)]


@pytest.mark.slow
def test_the_page_has_landmarks_and_names_for_all_that_is_drawn(bare, full):
    for html in (bare.html, full.html):
        elements = parsed(html).elements
        names = [name for name, _, _ in elements]
        for landmark in ("header", "nav", "main", "footer", "h1", "title"):
            assert names.count(landmark) == 1, landmark
        ids = [attributes["id"] for _, attributes, _ in elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        for name, attributes, _ in elements:
            if name == "section":
                assert attributes["aria-labelledby"] in ids
            if name == "svg":
                assert attributes["role"] == "img"
                assert attributes["aria-label"]
            if attributes.get("tabindex"):
                assert attributes["role"] in ("region", "group")
                assert attributes["aria-label"]
        headings = [int(name[1]) for name in names if re.fullmatch("h[1-6]", name)]
        assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


@pytest.mark.slow
def test_every_picture_has_a_table_in_its_section(full):
    elements = parsed(full.html)
    drawn = {
        section
        for name, attributes, section in elements.elements
        if name == "svg" or attributes.get("class") == "live"
    }
    assert drawn == {
        "baselines",
        "equity",
        "account",
        "grids",
        "breakdown",
        "attribution",
        "training",
        "explorer",
    }
    assert drawn <= {table.section for table in elements.tables}


def test_nothing_of_the_page_can_be_refused_or_loaded_from_elsewhere(bare, found):
    """No style attribute, no handler, no address; the policy names the inline elements by their
    hashes, no more.
    """
    for name, attributes, _ in found.elements:
        assert not [key for key in attributes if key == "style" or key.startswith("on")], name
        assert not {"src", "srcset", "data", "action", "poster"} & set(attributes), name
        assert name not in ("link", "iframe", "object", "embed", "base", "img", "foreignobject"), (
            name
        )
        assert attributes.get("href", "#").startswith("#")
    [policy] = [
        attributes["content"]
        for name, attributes, _ in found.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = {
        name: [
            source_hash(content)
            for kind, attributes, content in found.inline
            if kind == name and attributes.get("type") != "application/json"
        ]
        for name in ("style", "script")
    }
    assert policy == "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(hashes['style'])}",
            f"script-src {' '.join(hashes['script'])}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    own_places = [name for name, attributes, _ in found.elements].index("meta")
    assert found.elements[own_places + 1][1]["http-equiv"], (
        "the policy comes before anything that it rules"
    )


def test_a_symbol_that_is_a_script_is_text(bare, found):
    assert f"{EVIL}, held-out test sessions" in found.text
    assert EVIL not in bare.html
    assert page.json_of([EVIL, "</script>", "<!--"]).count("<") == 0
    assert json.loads(page.json_of([EVIL])) == [EVIL]


def test_it_is_made_again_byte_for_byte(run, bare, tmp_path):
    again = report_of(run)
    assert (again.html, again.json, again.trades) == (bare.html, bare.json, bare.trades)
    moved = tmp_path / "made"
    run.rename(moved)
    try:
        assert report_of(moved).html == bare.html, "the place of the folder is not in it"
    finally:
        moved.rename(run)


PANEL = "What stands behind"


def panel(report):
    """A row has a question, a figure, and what it says."""
    return parsed(report.html).table(PANEL)


def test_what_was_not_computed_says_how_to_compute_it(bare, found, full):
    """Figures that cannot be given say why in one line; one list has the commands of the sections
    that lack figures.
    """
    rows, title = panel(bare), json.loads(bare.json)["title"]
    assert rows.about("held out")[0] == "3"
    assert not missing(rows.about("earn")[0], "needs 5 days", "are 3")
    assert [question for question, *_ in rows.rows[2:]] == [
        "How often were these sessions looked at?"
    ]
    assert not missing(rows.rows[2][2], "no trial log", "trials.jsonl")
    assert not missing(found.text, "Not computable yet", "needs 5 days, there are 3")
    for name in OPTIONAL:
        assert command(name, title) in found.text, name
    data = json.loads(full.json)
    assert [name for name in OPTIONAL if data[name] is None] == ["in_sample"]
    page, title = parsed(full.html), data["title"]
    assert [name for name in OPTIONAL if command(name, title) in page.text] == ["in_sample"]
    shown = {attributes["id"] for name, attributes, _ in page.elements if name == "section"}
    assert {"grids", "breakdown", "attribution", "absent"} <= shown


def test_the_panel_says_what_the_statistics_say(full):
    rows, found = panel(full), json.loads(full.json)["statistics"]
    value, low, high = (shown(found["daily"][name], "signed") for name in ("value", "low", "high"))
    earned, says = rows.about("earn")
    assert earned == f"{value} [{low}, {high}]"
    assert "over 5 seeds" in says
    assert rows.about("structure")[0] == "p = 0.200"
    assert "below 0.05" in rows.about("structure")[1]
    assert rows.about("picked")[0].startswith(f"{100 * found['dsr']['value']:.1f} % [")
    assert "16 trials" in rows.about("picked")[1]
    assert (
        f"{100 * found['null_low']:.0f} % to {100 * found['null_high']:.0f} %"
        in rows.about("overfitted")[1]
    )
    looked, says = rows.about("looked at")
    assert looked == "13 times"
    assert not missing(says, "1st look", "16 policies")


def test_the_panel_does_not_say_that_one_policy_beats_all_baselines(full):
    """Each baseline must be beaten by some policy: the test does not ask for the same one."""
    assert not missing(
        panel(full).about("every baseline")[1], "one of the 5 policies", "another one for each"
    )


def test_the_table_of_baselines_has_the_figures_of_its_picture(full):
    found = json.loads(full.json)["statistics"]
    table = parsed(full.html).table("Net profit of a day by agent")
    assert [row[0] for row in table.rows] == list(map(name_agent, AGENTS))
    for key, row in zip(AGENTS, table.rows, strict=True):
        each = found["agents"][key]
        assert row[1].startswith(shown(each["value"], "signed"))
        assert ("[" in row[1]) == (each["why"] is None)
    chances = {row[0]: row[2] for row in table.rows}
    assert chances["your policy"] == chances["sampled"] == ""
    assert chances["random"].startswith(f"{100 * found['improvement']['random']['value']:.1f} % [")
    assert "(flat): every day earns" in parsed(full.html).text


def test_training_sessions_are_no_days_held_out(tmp_path):
    run = made_run(
        tmp_path / "made", labels=("in sample: the policy was trained on 2 of these 3 sessions",)
    )
    rows = panel(report_of(run))
    assert rows.about("held out")[0] == "0"
    assert "nothing about other days" in rows.about("held out")[1]
    assert [row[0] for row in rows.rows if "earn" in row[0]] == []
    assert "What does a day earn?" in parsed(report_of(run).html).text


def test_the_figures_of_the_training_sessions_stand_beside(tmp_path):
    run = made_run(tmp_path / "made")
    other = made_run(tmp_path / "other", sessions=5)
    (other / "evaluation" / "test").rename(run / "evaluation" / "train")
    [table] = [each for each in parsed(report_of(run).html).tables if each.section == "sample"]
    assert table.head == ["Figure", "Held-out test sessions", "Training sessions"]
    assert table.rows[0] == ["Sessions", "3", "5"]
    assert "Daily Sharpe ratio, annual" not in [row[0] for row in table.rows], (
        "a daily Sharpe ratio of fewer than 20 sessions is noise"
    )


def test_without_trades_and_without_metrics_it_still_stands(tmp_path):
    run = made_run(tmp_path / "made", trades=0)
    (run / "metrics.jsonl").unlink()
    (run / "summary.json").unlink()
    report = report_of(run)
    found = parsed(report.html)
    assert "Your policy did not trade" in found.text
    assert "no metrics of a training" in found.text
    assert [table.id for table in found.tables if table.section == "explorer"] == []
    assert report.trades.count("\n") == 1


# --- its size -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_oldest_bars_are_left_out_first_and_the_page_says_so(tmp_path):
    collected = collect.collect(collect.choose(made_run(tmp_path / "made", sessions=30, each=430)))
    whole = make.make(collected)
    size = len(whole.html.encode()) / make.MB
    small = make.make(collected, round(size - 0.02, 2))
    assert len(small.html.encode()) / make.MB <= round(size - 0.02, 2)
    assert (whole.dropped, small.bars + small.dropped) == (0, whole.bars)
    assert small.dropped > 0
    assert small.dropped % 430 == 0, "whole sessions"
    live, every = (parsed(each.html).live for each in (small, whole))
    assert (
        unpacked(live["bars"])["close"].tolist()
        == unpacked(every["bars"])["close"].tolist()[small.dropped :]
    )
    limit = f"{round(size - 0.02, 2):g} MB"
    said = (
        f"The page holds the latest {small.bars:,} of 12,900 bars, so that it stays within {limit}"
    )
    assert said in parsed(small.html).text
    assert json.loads(small.json)["explorer"]["notes"][0].startswith(said)
    held = [trade["held"] for trade in live["trades"]]
    assert held == sorted(held), "trades of the bars that were left out come first"
    assert not held[0]
    assert held[-1]
    assert small.trades == whole.trades


def test_a_size_that_no_page_has_is_refused_with_one_that_it_has(tmp_path):
    collected = collect.collect(collect.choose(made_run(tmp_path / "made")))
    with pytest.raises(ConfigError, match=r"--max-mb\) 0\.01: .* 0\.\d\d MB") as error:
        make.make(collected, 0.01)
    needed = float(re.findall(r"give ([\d.]+) or more", str(error.value))[0])
    assert make.make(collected, needed).bars >= 0


# --- its figures --------------------------------------------------------------------------------------------------


def test_the_json_has_the_figures_of_the_page(full):
    data, found = json.loads(full.json), parsed(full.html)
    [sessions] = [table for table in found.tables if table.caption == "Sessions"]
    for row, each in zip(sessions.rows, data["sessions"], strict=True):
        net = f"{each['net']:+,.2f}"
        assert row[:3] == [
            each["date"],
            str(each["trades"]),
            f"{MINUS if each['net'] < 0 else '+'}${net[1:]}",
        ]
    agents = {row[0]: row[1] for row in found.table("Figures of all agents").rows}
    assert list(agents) == list(map(name_agent, AGENTS))
    for name, cell in zip(AGENTS, agents.values(), strict=True):
        net = data["agents"][name]["strategy"]["net_profit"]
        assert cell == (f"{MINUS if net < 0 else '+'}${abs(net):,.2f}" if net else "$0.00")
    assert data["explorer"]["trades"] == len(found.table("Trades").rows)


def test_the_trades_have_the_columns_of_the_evaluation_and_their_levels(run, bare):
    rows = list(csv.DictReader(io.StringIO(bare.trades)))
    lines = list(csv.DictReader((run / "evaluation/test/trades.csv").open(encoding="utf-8")))
    assert [{name: row[name] for name in TRADE_COLUMNS} for row in rows] == lines
    for row in rows:
        assert row["legal"] == "HOLD BUY SELL"
        if row["stop"]:
            side = 1 if row["side"] == "long" else -1
            assert float(row["stop"]) == float(row["entry_price"]) - side * 5.0
            assert float(row["target"]) == float(row["entry_price"]) + side * 10.0
    assert {bool(row["stop"]) for row in rows} == {True, False}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A real evaluation, of an agent that trades at random, in the folder of a run."""
    run = tmp_path_factory.mktemp("runs") / "real"
    config = load_config("quickstart")
    rundir.create_run(
        run,
        config,
        json.loads((OLD / "manifest.json").read_text(encoding="utf-8"))
        | {"config_sha256": config.digest()},
    )
    result = result_of(
        MARKET,
        lambda env: _random_first(env),
        account={"drawdown": 1_000.0, "profit_target": 1_500.0},
    )
    write(result, run / "evaluation" / "test")
    return result, collect.collect(collect.choose(run))


def _random_first(env):
    from jaxtrade.evaluation import baselines

    return [baselines.random_masked(env), baselines.flat()]


@pytest.mark.slow
def test_a_real_evaluation_gives_its_own_figures(real):
    """Sessions, drawdown, accounts and trades of the report are those of the evaluator."""
    result, found = real
    data, agent = found.data, result.agent("random")
    figures = agent.strategy_figures
    nets = [each["net"] for each in data["sessions"]]
    assert sum(nets) == pytest.approx(figures["net_profit"], abs=1e-9)
    assert (max(nets), min(nets)) == (figures["best_session"], figures["worst_session"])
    assert max(each["drawdown"] for each in data["sessions"]) == pytest.approx(
        figures["max_drawdown"], abs=1e-9
    )
    assert (
        sum(each["trades"] for each in data["sessions"]) == figures["trades"] == len(found.trades)
    )
    account = agent.account_figures
    assert len(data["accounts"]) == account["accounts"]
    assert sum(each["net"] for each in data["accounts"]) == pytest.approx(
        account["net_profit"], abs=1e-9
    )
    assert sum(each["end"] == "bust" for each in data["accounts"]) == account["bust"] > 0
    equity = result.equity
    assert found.marked.equity.tolist() == equity["strategy_equity"].tolist()
    floor = equity["drawdown_floor"].to_numpy()
    assert np.array_equal(found.marked.floor, floor, equal_nan=True)
    assert found.marked.time.tolist() == (equity.index.tz_convert("UTC").astype("int64")).tolist()


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_writes_three_files(run, tmp_path, capsys):
    assert main(["report", str(run), "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "page").iterdir())
    assert names == ["report.html", "report.json", "trades.csv"]
    assert all(str(tmp_path / "page" / name) in said for name in names)
    assert parsed((tmp_path / "page" / "report.html").read_text(encoding="utf-8")).tables
    assert main(["report", str(run)]) == 0
    assert (run / "report" / "report.html").read_bytes() == (
        tmp_path / "page" / "report.html"
    ).read_bytes()


def test_it_says_whether_a_browser_opened(run, tmp_path, capsys, monkeypatch):
    for works, fact in ((True, "opened in the browser"), (False, "report.html")):
        monkeypatch.setattr("webbrowser.open", lambda url, works=works: works)
        assert main(["report", str(run), "--open", "--out", str(tmp_path / "page")]) == 0
        *files, last = capsys.readouterr().out.splitlines()
        assert fact in last
        assert files[-1].endswith(" kB")


def test_it_says_how_the_policy_was_trained(full):
    data = json.loads(full.json)
    config = load_config(
        "quickstart",
        ["reward.weights={entered: -0.1}", "ppo.gamma=0.5", "env.window=5", "rollout.num_envs=8"],
    )
    text = collect.describe_training(config, "", 1_024)
    assert not missing(
        text, "PPO", config.reward.preset, "entered -0.1", "1,024 steps", "seed 0", "and ", "more"
    )
    assert text.count("=") == 6
    assert not missing(collect.describe_training(load_config(), "seed 3", None), "seed 3")
    assert "differs" not in collect.describe_training(load_config(), "", 1)
    assert data["trained"].split(";")[0] in full.html


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--split", "validation"], ("jaxtrade evaluate",)),
        (["--seed", "7"], ("--seed) 0",)),
        (["--symbol", "CL"], ("--symbol) CL",)),
        (["--max-mb", "-1"], ("--max-mb) -1",)),
        (["--max-mb", "nan"], ("(--max-mb) nan",)),
    ],
)
def test_the_command_says_what_is_wrong(run, capsys, words, facts):
    assert main(["report", str(run), *words]) == 2
    assert not missing(capsys.readouterr().err, *facts)


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    run = made_run(tmp_path / "made")
    folder = run / "evaluation" / "test"
    lines = (folder / "trades.csv").read_text(encoding="utf-8").splitlines()
    (folder / "trades.csv").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"trades\.csv: 11 .*12 in records"):
        report_of(run)
    other = made_run(tmp_path / "other", sessions=2)
    (other / "evaluation/test/evaluation.json").replace(folder / "evaluation.json")
    with pytest.raises(DataError, match="are of different evaluations"):
        report_of(run)
    (folder / "records.npz").unlink()
    with pytest.raises(DataError, match="jaxtrade evaluate RUN"):
        report_of(run)


@pytest.mark.parametrize(("key", "value"), [("net_profit", 98765.43), ("trades", 3)])
def test_figures_without_a_digest_are_compared_with_the_records(tmp_path, key, value):
    run = made_run(tmp_path / "made")
    unchecked = json.loads(report_of(run).json)["labels"][-2:]
    assert [each.split()[3] for each in unchecked] == ["evaluation.json", "trades.csv"]
    path = run / "evaluation/test/evaluation.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    next(iter(document["agents"].values()))["strategy"][key] = value
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DataError, match=f"evaluation.json says {key} {value}"):
        report_of(run)


def test_a_sweep_names_each_agent_with_its_setting(tmp_path):
    run = made_run(tmp_path / "swept", seeds=2, swept=True)
    html = report_of(run, agent=1).html
    for i, rate in enumerate(("0.1", "0.01")):
        assert f"agent {i} (ppo.learning_rate={rate}, seed 0)" in html
    assert "agent 001" not in html
