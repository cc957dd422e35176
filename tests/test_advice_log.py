"""A run that names only its server: the model is found once and kept, every answer is in the log,
and the picture is drawn."""

from __future__ import annotations

import json
import shutil

import pytest

from jaxtrade import cli
from jaxtrade.advisor.compose import CACHE, JOURNAL
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.host.paid import read_texts
from jaxtrade.cli.advice_log import Row, log, total_line, totals
from jaxtrade.errors import ConfigError, StorageError
from jaxtrade.runs import calibration, rundir
from jaxtrade.runs.evaluate import history
from jaxtrade.runs.evaluate import open_run as open_setup
from jaxtrade.runs.stored import open_run
from tests.advisor.servers import GOOD, FaultServer, advises, reply, says
from tests.advisor.test_models import offers
from tests.messages import missing
from tests.test_advisor_run import TINY, train

pytest.importorskip("httpx")
pytestmark = pytest.mark.slow  # whole runs with a server
REASON = "trend \x1b[2Jup"


class Ran:
    """A finished run in `path`. requests: paths of all requests to its server."""

    def __init__(self, path, requests):
        self.path, self.requests = path, requests


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
        return Ran(path, [request.path for request in server.requests])


def test_the_model_is_asked_for_once_and_written_down(ran):
    assert ran.requests.count("/v1/models") == 1
    assert ran.requests[0] == "/v1/models"
    config, _ = rundir.read_run(ran.path)
    assert config.advisor.options["model"] == "only"
    assert read_journal(ran.path / JOURNAL).header["identity"]["model"] == "only"


def test_a_resumed_run_keeps_its_model(ran, tmp_path):
    """Its server now offers another model only, and is not asked for a list."""
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)
    last = sorted((path / "checkpoints").iterdir())[-1]
    shutil.rmtree(last)
    (path / "summary.json").unlink()
    url = rundir.read_run(path)[0].advisor.kind
    with FaultServer(offers("other"), port=int(url.split(":")[2].partition("/")[0])) as server:
        train(path, "", resume=True)
        assert "/v1/models" not in [request.path for request in server.requests]
        assert {request.body["model"] for request in server.requests} <= {"only"}
    assert rundir.read_run(path)[0].advisor.options["model"] == "only"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (offers("a", "b"), "options.model=NAME) of a, b"),
        (offers(), "offers no model"),
        (reply(401, ""), "status 401; the key"),
    ],
)
def test_without_exactly_one_model_no_run_begins(step, words, tmp_path, capsys):
    flags = [flag for override in TINY for flag in ("--set", override)]
    with FaultServer(step) as server:  # type: ignore[arg-type]
        assert (
            cli.main(["train", "--advisor", server.url, "--run-dir", str(tmp_path / "run"), *flags])
            == 2
        )
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_with_a_named_model_begins_although_its_server_is_down(tmp_path):
    train(tmp_path / "run", "http://127.0.0.1:9/v1", "advisor.options.model=m")
    assert (tmp_path / "run" / "summary.json").is_file()


def test_every_answer_has_a_line(ran):
    """As many rows as the journal holds, in its order, and as many scored as the run has
    counted.
    """
    document = json.loads(log(ran.path, None, None, as_json=True))
    deltas = read_journal(ran.path / JOURNAL).deltas
    rows = document["rows"]
    assert [(row["update"], row["bar"]) for row in rows] == [
        (delta.update, bar) for delta in deltas for bar in delta.bars
    ]
    assert len(rows) > 20
    assert {(row["direction"], row["confidence"], row["reason"]) for row in rows} == {
        ("long", 0.7, "trend  [2Jup")
    }
    counted = document["totals"]
    assert counted["hits"] + counted["misses"] == sum(
        row["followed"] in ("hit", "miss") for row in rows
    )
    assert counted["hits"] + counted["misses"] == history(ran.path)[-1]["advice_scored"]
    assert (
        counted["answers"]
        == len(rows)
        == sum(counted[name] for name in ("hits", "misses", "too_small", "not_scored"))
    )


def test_the_text_is_narrow_and_changes_no_terminal(ran, capsys):
    assert cli.main(["advise", "log", str(ran.path), "--last", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[0].split() == ["close", "bar", "update", "advice", "conf", "followed", "reason"]
    assert all("trend  [2Jup" in line and line.startswith("2013-10-") for line in lines[1:-1])
    assert all(line.isprintable() and len(line) <= 110 for line in lines[:-1])
    assert lines[-1] == total_line(json.loads(log(ran.path, None, None, as_json=True))["totals"])


def test_without_the_cache_there_are_no_reasons(ran, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)
    (path / CACHE).unlink()
    assert {row["reason"] for row in json.loads(log(path, None, None, as_json=True))["rows"]} == {
        ""
    }
    (path / CACHE).write_bytes(
        b"no database, but a text that is long enough to be taken for one" * 9
    )
    assert {row["reason"] for row in json.loads(log(path, None, None, as_json=True))["rows"]} == {
        ""
    }
    assert "answers in it" in capsys.readouterr().err


def test_texts_of_unknown_keys_and_files(tmp_path, ran):
    assert read_texts(ran.path / CACHE, ["0" * 64]) == {}
    with pytest.raises(StorageError, match="cannot be read"):
        read_texts(tmp_path / "absent.sqlite", ["0" * 64])


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
    assert not missing(line, "5 answers", "4 bars", "1 flat, 3 long, 1 short")
    assert not missing(line, "3 scored, 2 hits (66.7 %)", "1 too small, 1 not scored")
    assert total_line(totals([])).startswith("no answer")


def test_folders_without_a_journal_say_where_their_advice_is(tmp_path, ran):
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)
    (path / JOURNAL).unlink()
    with pytest.raises(ConfigError, match=r"no advice.jsonl "):
        log(path, None, None, as_json=False)
    assert cli.main(["advise", "log", str(tmp_path)]) == 2
    assert cli.main(["advise", "log", str(ran.path), "--last", "0"]) == 2


def test_the_run_has_its_picture(ran):
    assert (ran.path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert "rate by stated" in open_run(ran.path)._repr_html_()


def test_a_picture_of_a_replay_and_none_of_a_damaged_journal(ran, tmp_path):
    """A replay shows the recorded advice. A journal that was damaged after the training costs the
    picture, not the run.
    """
    setup, _ = open_setup(ran.path)
    lines: list[str] = []

    def drawn(folder, kind):
        config = setup.config.model_copy(
            update={"advisor": setup.config.advisor.model_copy(update={"kind": kind})}
        )
        return calibration.draw(
            config, setup.market, setup.splits["train"], folder, history(ran.path), lines.append
        )

    assert drawn(tmp_path, f"replay:{ran.path / JOURNAL}")
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")
    assert not drawn(tmp_path / "none", setup.config.advisor.kind)
    text = (ran.path / JOURNAL).read_text(encoding="utf-8").replace('"version":2', '"version":3')
    (tmp_path / JOURNAL).write_text(text, encoding="utf-8")
    assert not drawn(tmp_path, setup.config.advisor.kind)
    (line,) = lines
    assert line.startswith("warning: advice.png")
    assert "damaged or edited" in line


def test_no_picture_without_an_advisor(tmp_path):
    train(tmp_path / "run", "none")
    assert not (tmp_path / "run" / "advice.png").exists()
    assert "rate by stated" not in open_run(tmp_path / "run")._repr_html_()


def test_an_evaluation_takes_the_only_model(ran, tmp_path, capsys):
    path = tmp_path / "run"
    shutil.copytree(ran.path, path)

    def step(wire):
        (offers("second") if wire.request.path.endswith("/models") else advises())(wire)

    with FaultServer(step) as server:
        assert cli.main(["evaluate", str(path), "--advisor", server.url]) == 0
        assert {request.body["model"] for request in server.requests[1:]} == {"second"}
    assert f"advice of {server.url}" in capsys.readouterr().out
