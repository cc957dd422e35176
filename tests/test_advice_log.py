"""A run that names only its server: the model is found once and kept, every answer is in the log,
and the picture is drawn."""

import json
import shutil
from types import SimpleNamespace

import pytest

from jaxtrade import cli
from jaxtrade.advisor.compose import CACHE, JOURNAL
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.cli.inspection import Row, format_journal, total_line, totals
from jaxtrade.runs import advice_evaluation, rundir
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.evaluate import open_run as open_setup
from jaxtrade.runs.stored_run import open_run
from tests.advisor.servers import GOOD, FaultServer, says
from tests.advisor.test_models import offers
from tests.messages import missing, refused, refuses
from tests.test_advisor_run import train

pytest.importorskip("httpx")
pytestmark = pytest.mark.slow  # whole runs with a server
REASON = "trend \x1b[2Jup"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A tiny run whose server offers one model and always says "long", with a reason that holds a
    control sequence.
    """
    path = tmp_path_factory.mktemp("log") / "run"

    def step(wire):
        answer = says(json.dumps({**GOOD, "reason": REASON}))
        (offers("only") if wire.request.path.endswith("/models") else answer)(wire)

    with FaultServer(step) as server:
        train(path, server.url, "train.total_timesteps=16384")
        return SimpleNamespace(path=path, requests=[request.path for request in server.requests])


def test_the_model_is_asked_for_once_and_written_down(ran):
    assert ran.requests.count("/v1/models") == 1
    assert ran.requests[0] == "/v1/models"
    config, _ = rundir.read_run(ran.path)
    assert config.advisor.options["model"] == "only"
    assert read_journal(ran.path / JOURNAL).header["identity"]["model"] == "only"


def test_every_answer_has_a_line(ran):
    """As many rows as the journal holds, in its order, and as many scored as the run has
    counted.
    """
    document = json.loads(format_journal(ran.path, None, None, as_json=True))
    rows, counted = document["rows"], document["totals"]
    deltas = read_journal(ran.path / JOURNAL).deltas
    places = [(delta.update, bar) for delta in deltas for bar in delta.bars]
    assert [(row["update"], row["bar"]) for row in rows] == places
    assert len(rows) > 20
    said = {(row["direction"], row["confidence"], row["reason"]) for row in rows}
    assert said == {("long", 0.7, "trend  [2Jup")}
    scored = sum(row["followed"] in ("hit", "miss") for row in rows)
    assert counted["hits"] + counted["misses"] == scored == history(ran.path)[-1]["advice_scored"]
    assert counted["answers"] == len(rows) == scored + counted["too_small"] + counted["not_scored"]


def test_the_text_is_narrow_and_changes_no_terminal(ran, capsys):
    assert cli.main(["advise", "log", str(ran.path), "--last", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[0].split() == ["close", "bar", "update", "advice", "conf", "followed", "reason"]
    assert all("trend  [2Jup" in line and line.startswith("2013-10-") for line in lines[1:-1])
    assert all(line.isprintable() and len(line) <= 110 for line in lines[:-1])
    assert lines[-1] == total_line(
        json.loads(format_journal(ran.path, None, None, as_json=True))["totals"]
    )


def test_without_the_cache_there_are_no_reasons(ran, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)
    (path / CACHE).unlink()
    for content in (None, b"no database, but long enough to be taken for one" * 9):
        if content:
            (path / CACHE).write_bytes(content)
        rows = json.loads(format_journal(path, None, None, as_json=True))["rows"]
        assert {row["reason"] for row in rows} == {""}
    assert str(path / CACHE) in capsys.readouterr().err


def test_totals_by_hand():
    rows = [
        Row("2013-10-07T11:13:00-04:00", bar, update, way, 0.5, followed, "")
        for bar, update, way, followed in (
            (1, 1, "long", "hit"),
            (2, 1, "short", "miss"),
            (1, 2, "long", "hit"),
            (3, 2, "flat", "not scored"),
            (4, 3, "long", "too small"),
        )
    ]
    line = total_line(totals(rows))
    assert not missing(line, "5 answers", "4 bars", "1 flat, 3 long, 1 short", "3 scored")
    assert not missing(line, "2 hits (66.7 %)", "1 too small", "1 not scored")


def test_folders_without_a_journal_say_where_their_advice_is(tmp_path, ran, capsys):
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)
    (path / JOURNAL).unlink()
    with refused("no advice.jsonl "):
        format_journal(path, None, None, as_json=False)
    assert cli.main(["advise", "log", str(tmp_path)]) == 2
    refuses(capsys, ["advise", "log", str(ran.path), "--last", "0"], "--last")


def test_the_run_has_its_picture(ran):
    assert (ran.path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert "rate by stated" in open_run(ran.path)._repr_html_()


def test_a_picture_of_a_replay_and_none_of_a_damaged_journal(ran, tmp_path):
    """A replay shows the recorded advice. A journal that was damaged after the training costs the
    picture, not the run.
    """
    setup, _ = open_setup(ran.path)
    lines = []

    def drawn(folder, kind=setup.config.advisor.kind):
        advisor = setup.config.advisor.model_copy(update={"kind": kind})
        config, shown = setup.config.model_copy(update={"advisor": advisor}), history(ran.path)
        train = setup.splits["train"]
        return advice_evaluation.draw(config, setup.market, train, folder, shown, lines.append)

    assert drawn(tmp_path, f"replay:{ran.path / JOURNAL}")
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert not drawn(tmp_path / "none")
    text = (ran.path / JOURNAL).read_text().replace('"version":2', '"version":3')
    (tmp_path / JOURNAL).write_text(text)
    assert not drawn(tmp_path)
    (line,) = lines
    assert line.startswith("warning: advice.png")
