"""What a run folder knows about its journal, and what a run and its replay are compared by."""

import json
import shutil

import pytest

from jaxtrade.advisor.host.journal import is_ended, read_journal
from jaxtrade.cli.inspection import report_differences
from jaxtrade.errors import JournalError
from jaxtrade.runs.advice import check_whole, recorded_metrics
from tests.messages import missing, refused
from tests.reading import FIXTURES, read_json

OLD = FIXTURES / "run_advised_0_1_0"  # of 5 deltas


@pytest.fixture
def folder(tmp_path):
    """A finished run with a journal, whose newest checkpoint was written after the last delta."""
    run = tmp_path / "run"
    shutil.copytree(OLD, run)
    (run / "summary.json").write_text("{}")
    recorded = read_journal(run / "advice.jsonl")
    for update, deltas in ((8, 3), (16, 5)):
        saved = run / "checkpoints" / f"update-{update:08d}"
        saved.mkdir(parents=True)
        memory = {"deltas": deltas, "sha256": recorded.digests[deltas]}
        (saved / "manifest.json").write_text(
            json.dumps({"metadata": {"hooks": {"advice": memory}}})
        )
    return run


def cut(run, lines):
    """The run's journal without its last lines."""
    path = run / "advice.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[: len(kept) - lines]))
    return path


def checked(path):
    check_whole(path, read_journal(path))


def test_a_whole_journal_passes(folder):
    checked(folder / "advice.jsonl")
    assert is_ended(folder / "advice.jsonl")


def test_a_finished_run_has_ended_its_journal(folder):
    path = cut(folder, 1)
    assert not is_ended(path)
    with refused("line 7 ", "summary.json", kind=JournalError):
        checked(path)
    (folder / "summary.json").unlink()
    checked(path)  # it goes on, or was killed: the notes say so
    assert "no end line" in read_journal(path).notes[0]


def test_a_journal_that_its_run_could_not_end_is_whole(folder):
    path = cut(folder, 1)
    figures = read_json(folder / "advice.json") | {"journal_ended": False}
    (folder / "advice.json").write_text(json.dumps(figures))
    checked(path)


@pytest.mark.parametrize("finished", [True, False])
def test_a_checkpoint_knows_the_last_delta(folder, finished):
    if not finished:
        (folder / "summary.json").unlink()
    with refused("line 6 (delta 5) ", "-00000016 knows 5 deltas", kind=JournalError):
        checked(cut(folder, 2))


def test_an_older_checkpoint_or_the_figures_know_where_the_newest_cannot_be_read(
    folder,
):
    newest = folder / "checkpoints" / "update-00000016"
    (newest / "manifest.json").write_text("{")
    with refused("line 6 ", "advice.json counts 5 ", kind=JournalError):
        checked(cut(folder, 2))
    with refused("line 4 (delta 3) ", "-00000008 knows 3 deltas", kind=JournalError):
        checked(cut(folder, 2))


def test_a_journal_of_another_history_is_refused(folder):
    memory = {"deltas": 3, "sha256": "0" * 64}
    (folder / "checkpoints" / "update-00000008" / "manifest.json").write_text(
        json.dumps({"metadata": {"hooks": {"advice": memory}}})
    )
    with refused("(delta 3) is not ", "-00000008 knows", kind=JournalError):
        checked(folder / "advice.jsonl")


def test_a_journal_elsewhere_is_known_to_nobody(folder, tmp_path):
    alone = tmp_path / "advice.jsonl"
    shutil.copy(cut(folder, 2), alone)
    checked(alone)
    assert recorded_metrics(alone) is None


def test_figures_that_are_no_json_are_said(folder):
    (folder / "advice.json").write_text("[1")
    with refused("advice.json: not a JSON", kind=JournalError):
        recorded_metrics(folder / "advice.jsonl")


def reported(run, profit, trades, config):
    split = run / "evaluation" / "test"
    split.mkdir(parents=True)
    figures = {"agents": {"greedy": {"net": profit}}, "provenance": config}
    settings = {"settings": {"config_sha256": config}}
    (run / "summary.json").write_text(json.dumps({"updates": 4, "compile_seconds": profit}))
    (split / "evaluation.json").write_text(json.dumps(figures | settings))
    (split / "trades.csv").write_text(trades)
    return run


def test_reports_are_compared_but_for_what_names_the_run(tmp_path):
    one, same = (
        reported(tmp_path / "a", 1.5, "x\n1\n", "c1"),
        reported(tmp_path / "b", 1.5, "x\n1\n", "c2"),
    )
    assert report_differences(one, same) == []
    other = reported(tmp_path / "c", 2.5, "x\n1\n2\n", "c1")
    figures, trades = report_differences(one, other)
    assert not missing(figures, "evaluation.json", "agents.greedy.net", "1.5", "2.5")
    assert not missing(trades, "trades.csv", "line 3", "None", "'2'")
    (other / "evaluation" / "test" / "trades.csv").unlink()
    assert not missing(report_differences(one, other)[-1], "trades.csv: missing", other)
