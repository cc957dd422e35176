"""What the page asks the server about real runs."""

import json
import shutil

import pytest

from jaxtrade.errors import ConfigError
from jaxtrade.watching import server
from jaxtrade.watching.metrics import Reader
from tests.advisor.service_parts import until
from tests.reading import OLD


@pytest.fixture
def folder(tmp_path):
    """Two runs, one of them in the folder of a sweep, and things that are no runs."""
    shutil.copytree(OLD, tmp_path / "runs" / "first")
    shutil.copytree(OLD, tmp_path / "runs" / "sweep" / "group_0")
    (tmp_path / "runs" / "sweep" / "sweep.json").write_text("{}")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "outside").mkdir()
    shutil.copytree(OLD, tmp_path / "outside" / "hidden")
    return tmp_path / "runs"


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def routes(folder, reader, monkeypatch):
    monkeypatch.setattr(server, "FRESH", 0.0)
    return server.routes(folder, reader)


def document(answer):
    assert answer is not None
    assert answer.kind == "application/json"
    return json.loads(answer.content)


def test_the_list_of_runs(routes):
    found = document(routes["/api/runs"]({}))
    assert found["count"] == 2
    assert {run["name"] for run in found["runs"]} == {"first", "sweep/group_0"}
    assert all("task" in run["line"] and run["state"] == "done" for run in found["runs"])


def test_a_session_of_paper_trading_is_listed_below_its_run(folder, routes):
    for name, text in (("live", "{"), ("old", "{}"), ("good", None)):
        (folder / "first" / "paper" / name).mkdir(parents=True)
        status = {"state": "running", "symbol": "ES", "position": -1, "equity": 49_995.5}
        written = json.dumps(status | {"time": "2026-01-02T15:00:00Z"}) if text is None else text
        (folder / "first" / "paper" / name / "status.json").write_text(written)
    found = {run["name"]: run for run in document(routes["/api/runs"]({}))["runs"]}
    assert {*found} == {"first", "sweep/group_0", "first/paper/good"}
    session = found["first/paper/good"]
    assert session["state"] == "running"
    assert all(each in session["line"] for each in ("ES", "-1", "$49,995.50", "15:00"))
    whole = document(routes["/api/run"]({"run": session["name"]}))
    assert (whole["state"], whole["names"]) == ("running", [])


def test_the_chosen_run_is_listed_however_old_it_is(routes, monkeypatch):
    names = [run["name"] for run in document(routes["/api/runs"]({}))["runs"]]
    monkeypatch.setattr(server, "MOST_RUNS", 1)
    for query, listed in (
        ({}, names[:1]),
        ({"run": names[1]}, names),
        ({"run": names[0]}, names[:1]),
        ({"run": "../outside/hidden"}, names[:1]),
    ):
        found = document(routes["/api/runs"](query))
        assert (found["count"], [run["name"] for run in found["runs"]]) == (2, listed)


def test_metrics_that_may_not_be_read_are_a_line_of_the_run(routes, monkeypatch):
    monkeypatch.setattr(
        "jaxtrade.watching.metrics.Metrics.fault", "metrics.jsonl: Permission denied"
    )
    assert document(routes["/api/run"]({"run": "first"}))["more"] == [
        ["cannot be read", "metrics.jsonl: Permission denied"]
    ]


def test_a_curriculum_shows_its_phases(folder, reader):
    course = folder / "course"
    shutil.copytree(OLD, course / "phases" / "1-entry")
    (course / "curriculum.yaml").write_text("")
    found = server.routes(course, reader)
    assert [run["name"] for run in document(found["/api/runs"]({}))["runs"]] == ["phases/1-entry"]
    assert document(found["/api/run"]({"run": "phases/1-entry"}))["names"] != []


@pytest.mark.parametrize(
    "name", ["", "..", "../outside/hidden", "/etc", "first/../first", "missing"]
)
def test_a_request_names_a_run_and_never_a_path(routes, name):
    for path in ("/api/run", "/api/curves", "/api/validation", "/api/result", "/report"):
        assert routes[path]({"run": name}) is None


def test_a_run_and_its_curves(folder, routes):
    rows = [json.loads(line) for line in (OLD / "metrics.jsonl").read_text().splitlines()]
    run = document(routes["/api/run"]({"run": "first"}))
    assert run["names"] != []  # the first answer holds the first piece of the file
    assert run["progress"] == f"{rows[-1]['update']} of {rows[-1]['total_updates']}"
    assert run["share"] == rows[-1]["update"] / rows[-1]["total_updates"]
    assert run["validation"] is None
    assert run["log"] == (OLD / "run.log").read_text().splitlines()[-12:]
    asked = document(routes["/api/curves"]({"run": "first", "curves": "approx_kl:0:0,nothing:0:0"}))
    assert set(asked["curves"]) == {"approx_kl"}
    kl = [row["approx_kl"] for row in rows if row["approx_kl"] is not None]
    assert asked["curves"]["approx_kl"]["mean"] == pytest.approx(kl, rel=1e-5)
    again = document(routes["/api/curves"]({"run": "first", "curves": f"approx_kl:1:{len(kl)}"}))
    assert again["curves"]["approx_kl"]["start"] == len(kl) - 1
    row = rows[-1] | {"update": rows[-1]["update"] + 1}
    with (folder / "first/metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert until(
        lambda: document(routes["/api/run"]({"run": "first"}))["version"] != run["version"]
    )


@pytest.mark.parametrize(
    "curves",
    [
        "approx_kl",
        "approx_kl:1",
        "approx_kl:a:0",
        "approx_kl:-1:0",
        ",".join(f"x{i}:0:0" for i in range(201)),
    ],
)
def test_a_request_for_curves_that_is_not_one(routes, curves):
    assert routes["/api/curves"]({"run": "first", "curves": curves}) is None


def test_a_finished_run_shows_its_held_out_result(folder, routes):
    found = document(routes["/api/result"]({"run": "first"}))
    kept = json.loads((OLD / "evaluation/test/evaluation.json").read_text())
    assert document(routes["/api/run"]({"run": "first"}))["result"] is not None
    assert [each["name"] for each in found["agents"]][:2] == ["your policy", "sampled"]
    assert found["agents"][0]["net_profit"] == kept["agents"]["greedy"]["strategy"]["net_profit"]
    assert "'greedy'" not in found["verdict"]
    time, equity = found["equity"]["time"], found["equity"]["equity"]
    assert len(time) == len(equity) == kept["settings"]["decision_bars"]
    made = kept["settings"]["start_balance"] + found["agents"][0]["net_profit"]
    assert equity[-1] == pytest.approx(made, abs=0.01)
    shutil.rmtree(folder / "first" / "evaluation")
    assert document(routes["/api/run"]({"run": "first"}))["result"] is None
    assert routes["/api/result"]({"run": "first"}) is None


def test_the_report_is_made_when_it_is_asked_for(folder, reader):
    """Its own policy holds, by which its scripts run; a run without one says why."""
    page = '<meta http-equiv="Content-Security-Policy" content="script-src &#39;sha256-a&#39;">'

    def make(run, symbol):
        if symbol:
            raise ConfigError("no such symbol")
        return f"{page}{run.name}"

    asked = server.routes(folder, reader, make)["/report"]
    made = asked({"run": "first"})
    assert made is not None
    assert made.content.decode() == f"{page}first"
    assert made.policy == "script-src 'sha256-a'; frame-ancestors 'none'"
    refused = asked({"run": "first", "symbol": "ES"})
    assert refused is not None
    assert (refused.policy, refused.content) == (server.POLICY, b"no such symbol\n")


def test_warnings_are_shown_word_for_word_and_once(folder, routes):
    with (folder / "first/run.log").open("a") as file:
        file.write(
            "2026-01-01T00:00:00Z warning: <script>alert(1)</script>\n" * 2
            + "2026-01-01T00:00:01Z half a li"
        )
    run = document(routes["/api/run"]({"run": "first"}))
    assert run["warnings"] == ["warning: <script>alert(1)</script>"]
    assert not any("half" in line for line in run["log"])


def test_a_validation_session_is_passed_on(folder, routes):
    (folder / "first/validation").mkdir()
    written = folder / "first/validation/latest.json"
    written.write_text('{"update": 8, "score": 0.5}')
    assert (
        document(routes["/api/run"]({"run": "first"}))["validation"]
        == written.stat().st_mtime_ns // 1000
    )
    assert document(routes["/api/validation"]({"run": "first"})) == {"update": 8, "score": 0.5}
    written.write_text("{")
    assert routes["/api/validation"]({"run": "first"}) is None
