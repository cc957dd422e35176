"""Whole runs with a panel: its members are asked, scored, recorded, replayed, resumed, evaluated
and loaded.
"""

import json
import shutil

import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.advisor.host.journal import ROWS_EACH, read_journal
from jaxtrade.advisor.table import read_snapshot
from jaxtrade.runs.evaluate import Request, evaluate_run, history
from tests import uncounted
from tests.messages import missing, refuses
from tests.reading import read_json
from tests.test_advisor_run import figures, state_bytes, train

MEMBERS = (
    "[mock:slow:0.003/mock:skilled:0.8, {kind: mock:skilled:0.8, options: {seed: 3}}, mock:random]"
)
PANEL = (f"advisor.panel={MEMBERS}", "train.total_timesteps=10240")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    path = tmp_path_factory.mktemp("panel") / "run"
    train(path, "panel", *PANEL)
    return path


@pytest.mark.slow
def test_every_member_is_asked_and_scored(recorded):
    found = figures(recorded)
    assert [member["asked"] > 0 for member in found["members"]] == [True] * 3
    assert found["asked"] == sum(member["asked"] for member in found["members"])
    journal = read_journal(recorded / "advice.jsonl")
    size = journal.header[ROWS_EACH]
    answered = np.bincount(
        [bar // size for delta in journal.deltas for bar in delta.bars], minlength=3
    )
    assert (answered > 0).all()
    assert {name.partition(".")[0] for name in journal.header["identity"]} == {"0", "1", "2"}
    last = history(recorded)[-1]
    assert sum(last[f"advice_scored/{i}"] for i in range(3)) == last["advice_scored"] > 0
    assert (recorded / "advice.png").is_file()


@pytest.mark.slow
def test_a_panel_is_replayed_to_the_bit_with_its_report(recorded, tmp_path, capsys):
    assert cli.main(["advise", "replay", str(recorded), "--run-dir", str(tmp_path / "again")]) == 0
    assert not missing(capsys.readouterr().out, "bit for bit", "the same report")
    assert state_bytes(tmp_path / "again") == state_bytes(recorded)
    assert figures(tmp_path / "again")["recorded"]["kind"] == "panel"


@pytest.mark.slow
def test_a_resumed_panel_asks_nothing_twice(recorded, tmp_path):
    """The journal ends where the oldest kept checkpoint was written, so that the resumed run asks
    again from there.
    """
    path = tmp_path / "cut"
    shutil.copytree(recorded, path)
    first, *later = sorted((path / "checkpoints").iterdir())
    for checkpoint in later:
        shutil.rmtree(checkpoint)
    (path / "summary.json").unlink()
    shutil.rmtree(path / "advice")
    deltas = read_json(first / "manifest.json")["metadata"]["hooks"]["advice"]["deltas"]
    lines = (path / "advice.jsonl").read_text().splitlines(keepends=True)
    (path / "advice.jsonl").write_text("".join(lines[: deltas + 1]))
    (path / "advice.json").unlink()
    train(path, "", resume=True)
    rows = [row for delta in read_journal(path / "advice.jsonl").deltas for row in delta.bars]
    assert (
        len(rows)
        == len(set(rows))
        >= sum(len(json.loads(line)["bars"]) for line in lines[1 : deltas + 1])
    )


@pytest.mark.slow
def test_an_evaluation_shows_every_member_and_is_repeated(recorded):
    (split,) = (recorded / "advice").glob("*.npz")
    saved = read_snapshot(split)
    assert saved.manifest["advisors"] == 3
    size = read_journal(recorded / "advice.jsonl").header[ROWS_EACH]
    assert {int(bar) // size for bar in saved.bars} == {0, 1, 2}
    report = evaluate_run(Request(recorded, split.stem))
    kinds = "mock:slow:0.003/mock:skilled:0.8, mock:skilled:0.8, mock:random"
    assert f"advice of panel [{kinds}] (it reads future prices" in report
    assert uncounted.table(evaluate_run(Request(recorded, split.stem))) == uncounted.table(report)


@pytest.mark.parametrize(
    ("panel", "facts"),
    [
        ("[rules]", ("advisor.kind=panel", "1 members", "at least 2")),
        ("[rules, none]", ("advisor.panel.1 = none: ",)),
        (
            "[rules, 'mock:skild:0.6']",
            ("advisor.panel.1 = mock:skild:0.6: ", "mock:skild: unknown", "'skilled'?"),
        ),
        ("[rules, {kind: mock:random, options: {sed: 1}}]", ("unknown option 'sed'",)),
        ("[rules, {kind: mock:random, optons: {}}]", ("advisor.panel.1.optons",)),
        ("[rules, 'table:missing.npz']", ("missing.npz", "no such file")),
    ],
)
def test_faults_of_a_panel_name_the_member(panel, facts, capsys):
    refuses(
        capsys,
        ["train", "advised", "--advisor", "panel", "--set", f"advisor.panel={panel}"],
        *facts,
    )


@pytest.mark.parametrize(
    "command",
    [
        ["advise", "precompute", "advised", "--advisor", "panel", "--out", "x.npz"],
        ["ablate", "advisor", "--test", "--set", "advisor.kind=panel"],
    ],
)
def test_commands_for_single_advisors_refuse_a_panel(command, capsys):
    assert cli.main([*command, "--set", "advisor.panel=[rules, mock:random]"]) == 2
    said = capsys.readouterr().err
    assert "panel" in said
    assert "single advisors" in said or "one advisor" in said
