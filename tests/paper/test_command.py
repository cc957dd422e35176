"""`jaxtrade paper` on the run of an earlier version, with its bundled bars."""

import io
import json
import shutil

import pytest

from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.data.sources import bars_of, write_bars
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.session import JOURNAL, KILL, STATUS
from tests.messages import refuses
from tests.reading import OLD

LAST = 240


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return shutil.copytree(OLD, tmp_path_factory.mktemp("paper") / "run")


@pytest.fixture(scope="module")
def bars():
    own = bars_of(make_config({}))
    return own.rows(slice(len(own) - LAST, None))


def paper(run, *flags):
    return main(["paper", str(run), *map(str, flags)])


def summary(capsys, run, *flags):
    capsys.readouterr()
    assert paper(run, *flags, "--json") == 0
    return json.loads(capsys.readouterr().out)


def write_lines(path, bars):
    path.write_text("\n".join(json.dumps(each) for each in bars_messages(bars)))
    return path


def test_csv_and_json_lines_are_the_same_bars(run, bars, tmp_path, capsys):
    file = write_bars(bars, tmp_path)
    one = summary(capsys, run, "--feed", file, "--set", "data.stamp=open")
    flags = "--feed", write_lines(tmp_path / "bars.jsonl", bars), "--name", "lines"
    for _ in range(2):  # the second time nothing is new
        assert summary(capsys, run, *flags) == one
    assert one["decisions"] > 100
    assert one["faults"] == {}
    status = json.loads((run / "paper" / "lines" / STATUS).read_text())
    assert (status["state"], status["equity"]) == ("ended", one["equity"])
    journals = [run / "paper" / name / JOURNAL for name in ("default", "lines")]
    first, second = ([json.loads(line)["kind"] for line in each.open()] for each in journals)
    assert [kind for kind in second if kind != "start"] == [*first[:1], *first[2:]]


def test_bars_of_years_ago_on_a_live_feed_open_nothing(run, bars, monkeypatch, capsys):
    lines = write_lines(run / "live.jsonl", bars.rows(slice(0, 60))).read_text()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{lines}\n{{".encode())))
    cut = ["--history", write_bars(bars_of(make_config({})).rows(slice(0, -LAST)), run)]
    assert paper(run, "--feed", "-", "--name", "live", *cut, "--set", "data.stamp=open") == 0
    out = capsys.readouterr().out
    assert "0 trades" in out
    assert "text 1" in out
    assert "stale_bars" in out


def test_flatten_stops_a_session(run, bars, tmp_path, capsys):
    refuses(capsys, ["paper", str(run), "--flatten", "--name", "none"], "--name")
    flags = "--feed", tmp_path / "bars.jsonl", "--name", "flat"
    write_lines(flags[1], bars.rows(slice(0, 50)))
    assert paper(run, *flags) == 0
    assert paper(run, "--flatten", "--name", "flat") == 0
    folder = run / "paper" / "flat"
    assert (folder / KILL).is_file()
    write_lines(flags[1], bars)
    assert summary(capsys, run, *flags)["position"] == 0
    assert json.loads((folder / STATUS).read_text())["state"] == "killed"


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        ([], ("--feed",)),
        (["--feed", "none.csv"], ("none.csv", "ws://")),
        (["--feed", "-", "--name", "a/b"], ("--name",)),
        (["--feed", "-", "--flatten"], ("--flatten", "--feed")),
        (["--feed", "-", "--rails", "none.yaml"], ("none.yaml",)),
    ],
)
def test_flags_that_do_not_fit_are_refused(run, capsys, flags, facts):
    refuses(capsys, ["paper", str(run), *flags], *facts)


def test_an_edited_journal_is_exit_1(run, bars, tmp_path, capsys):
    flags = (
        "--feed",
        write_lines(tmp_path / "bars.jsonl", bars.rows(slice(0, 9))),
        "--name",
        "edited",
    )
    assert paper(run, *flags) == 0
    journal = run / "paper" / "edited" / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(b"HOLD", b"BUY", 1))
    capsys.readouterr()
    assert paper(run, *flags) == 1
    assert str(journal) in capsys.readouterr().err
