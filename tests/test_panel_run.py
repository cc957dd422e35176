"""Whole runs with a panel: its members are asked, scored, recorded, replayed, resumed, evaluated
and loaded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from jaxtrade import cli
from jaxtrade.advisor.host.journal import ROWS_EACH, read_journal
from jaxtrade.advisor.snapshot import read_snapshot
from jaxtrade.evaluation.policy import load_policy
from jaxtrade.runs.evaluate import evaluate_run, history
from tests import uncounted
from tests.advisor.servers import FaultServer, says
from tests.messages import missing
from tests.test_advisor_run import PAUSE_AFTER, figures, same, state_bytes, train

MEMBERS = (
    "[mock:slow:0.003/mock:skilled:0.8, {kind: mock:skilled:0.8, options: {seed: 3}}, mock:random]"
)
PANEL = (f"advisor.panel={MEMBERS}", "train.total_timesteps=10240")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("panel") / "run"
    train(path, "panel", *PANEL)
    return path


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose members are snapshots: how many answers are scored does not depend on the
    machine's load.
    """
    path = tmp_path_factory.mktemp("tables")
    tables = []
    for name, *flags in (
        ("mock:skilled:0.8",),
        ("mock:skilled:0.8", "--set", "advisor.options.seed=3"),
        ("mock:random",),
    ):
        tables.append(path / f"{len(tables)}.npz")
        assert (
            cli.main(["advise", "precompute", "--advisor", name, "--out", str(tables[-1]), *flags])
            == 0
        )
    train(
        path / "run",
        "panel",
        f"advisor.panel={json.dumps([f'table:{table}' for table in tables])}",
        "train.total_timesteps=10240",
    )
    return path / "run"


@pytest.mark.slow
def test_every_member_is_asked_and_scored(recorded: Path) -> None:
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
@pytest.mark.long
def test_skilled_members_are_trusted(looked_up: Path) -> None:
    last = history(looked_up)[-1]
    assert min(last["hit_rate/0"], last["hit_rate/1"]) > 0.7
    assert min(last["trust/0"], last["trust/1"]) > 0.0
    assert last["trust/2"] == 0.0


@pytest.mark.slow
def test_a_panel_is_replayed_to_the_bit_with_its_report(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["advise", "replay", str(recorded), "--run-dir", str(tmp_path / "again")]) == 0
    assert not missing(capsys.readouterr().out, "bit for bit", "the same report")
    assert state_bytes(tmp_path / "again") == state_bytes(recorded)
    assert figures(tmp_path / "again")["recorded"]["kind"] == "panel"


@pytest.mark.slow
@pytest.mark.long
def test_a_panel_goes_on_from_its_journal(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its last checkpoint, the resumed run takes what the journal has, and what it did
    replays in one piece. After the journal's last answers it asks again, and more may come in time
    than in the recorded run."""
    path = tmp_path / "cut"
    shutil.copytree(recorded, path)
    shutil.rmtree(sorted((path / "checkpoints").iterdir())[-1])
    (path / "summary.json").unlink()
    train(path, "", resume=True)
    before, after = (
        (run / "advice.jsonl").read_text(encoding="utf-8").splitlines() for run in (recorded, path)
    )
    assert after[: len(before) - 1] == before[:-1]  # all but the line that ends it
    assert cli.main(["advise", "replay", str(path), "--run-dir", str(tmp_path / "again")]) == 0
    assert not missing(capsys.readouterr().out, "bit for bit", "the same report")


@pytest.mark.slow
def test_a_resumed_panel_asks_nothing_twice(recorded: Path, tmp_path: Path) -> None:
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
    deltas = json.loads((first / "manifest.json").read_text(encoding="utf-8"))["metadata"]["hooks"][
        "advice"
    ]["deltas"]
    lines = (path / "advice.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (path / "advice.jsonl").write_text("".join(lines[: deltas + 1]), encoding="utf-8")
    (path / "advice.json").unlink()
    train(path, "", resume=True)
    rows = [row for delta in read_journal(path / "advice.jsonl").deltas for row in delta.bars]
    assert (
        len(rows)
        == len(set(rows))
        >= sum(len(json.loads(line)["bars"]) for line in lines[1 : deltas + 1])
    )


@pytest.mark.slow
@pytest.mark.long
def test_a_snapshot_beside_a_live_member_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(
            ["advise", "precompute", "--advisor", "rules", "--out", str(tmp_path / "rules.npz")]
        )
        == 0
    )
    panel = json.dumps([f"table:{tmp_path / 'rules.npz'}", "mock:slow:0.003/mock:skilled:0.8"])
    train(tmp_path / "run", "panel", f"advisor.panel={panel}", "train.total_timesteps=10240")
    assert (
        cli.main(["advise", "replay", str(tmp_path / "run"), "--run-dir", str(tmp_path / "again")])
        == 0
    )
    assert not missing(capsys.readouterr().out, "bit for bit", "the same report")
    assert history(tmp_path / "again")[-1]["advice_share/0"] > 0.9
    assert (
        cli.main(
            [
                "advise",
                "precompute",
                "--advisor",
                "mock:random",
                "--out",
                str(tmp_path / "rules.npz"),
            ]
        )
        == 0
    )
    assert (
        cli.main(["advise", "replay", str(tmp_path / "run"), "--run-dir", str(tmp_path / "other")])
        == 2
    )
    assert "belongs to another run" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long  # test_advisor_run.py has it without a panel
def test_a_server_that_gives_nothing_usable_is_bounded_in_a_panel(tmp_path: Path) -> None:
    with FaultServer(says("I would buy here.")) as server:
        member = f"{{kind: '{server.url}', options: {{model: m}}}}"
        train(
            tmp_path / "run",
            "panel",
            f"advisor.panel=[{member}, rules]",
            "advisor.evaluation_wait_s=0.5",
            "advisor.service.breaker_open_s=600",
        )
        assert len(server.requests) == PAUSE_AFTER + 1  # in training, and the evaluation's probe
    assert figures(tmp_path / "run")["members"][1]["done"] > 0
    log = (tmp_path / "run" / "run.log").read_text(encoding="utf-8")
    assert log.count("an answer cannot") == 1
    assert log.count("answers in a row") == 1


@pytest.mark.slow
@pytest.mark.long
def test_members_that_fail_are_no_advisors(tmp_path: Path) -> None:
    panel = "advisor.panel=[mock:failing, {kind: mock:failing, options: {failure: timeout}}]"
    train(tmp_path / "failing", "panel", panel)
    train(tmp_path / "none", "none", panel)
    assert figures(tmp_path / "failing")["rows_handed_out"] == 0
    assert same(tmp_path / "failing", tmp_path / "none")


@pytest.mark.slow
def test_an_evaluation_shows_every_member_and_is_repeated(recorded: Path) -> None:
    (split,) = (recorded / "advice").glob("*.npz")
    saved = read_snapshot(split)
    assert saved.manifest["advisors"] == 3
    size = read_journal(recorded / "advice.jsonl").header[ROWS_EACH]
    assert {int(bar) // size for bar in saved.bars} == {0, 1, 2}
    report = evaluate_run(recorded, split.stem)
    kinds = "mock:slow:0.003/mock:skilled:0.8, mock:skilled:0.8, mock:random"
    assert f"advice of panel [{kinds}] (it reads future prices" in report
    assert uncounted.table(evaluate_run(recorded, split.stem)) == uncounted.table(report)


@pytest.mark.slow
@pytest.mark.long
def test_a_loaded_policy_takes_the_advice_of_every_member(looked_up: Path) -> None:
    policy = load_policy(looked_up / "policy")
    observation, mask = (
        np.zeros(len(policy.observation_names)),
        np.ones(len(policy.action_names), bool),
    )
    buy = {"direction": 1, "confidence": 0.8}
    silent = policy.probabilities(observation, mask, advice=[None, None, None], side=0)
    np.testing.assert_array_equal(silent, policy.probabilities(observation, mask))
    one, both = (
        policy.probabilities(observation, mask, advice=[buy, second, None], side=0)
        for second in (None, buy)
    )
    long, short = policy.action_names.index("BUY"), policy.action_names.index("SELL")
    odds = [p[long] / p[short] for p in (silent, one, both)]
    assert odds[0] < odds[1] < odds[2]
    with pytest.raises(ValueError, match="a list of 3 entries"):
        policy.probabilities(observation, mask, advice=buy, side=0)


@pytest.mark.slow
@pytest.mark.long
def test_snapshots_are_members(tmp_path: Path) -> None:
    tables = []
    for kind in ("rules", "mock:random"):
        tables.append(tmp_path / f"{kind.replace(':', '_')}.npz")
        assert cli.main(["advise", "precompute", "--advisor", kind, "--out", str(tables[-1])]) == 0
    members = json.dumps([f"table:{table}" for table in tables])
    train(tmp_path / "run", "panel", f"advisor.panel={members}")
    last = history(tmp_path / "run")[-1]
    assert last["advice_share/0"] > 0.9
    assert last["advice_share/1"] > 0.9
    assert not (tmp_path / "run" / "advice.jsonl").exists()
    recorded = json.loads((tmp_path / "run" / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert {"advisor.panel.0", "advisor.panel.1"} <= recorded.keys()
    shutil.move(tmp_path, tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert evaluate_run(tmp_path.with_name(f"{tmp_path.name}-moved") / "run", "test")


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
def test_faults_of_a_panel_name_the_member(
    panel: str, facts: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        cli.main(["train", "advised", "--advisor", "panel", "--set", f"advisor.panel={panel}"]) == 2
    )
    assert not missing(capsys.readouterr().err, *facts)


@pytest.mark.parametrize(
    "command",
    [
        ["advise", "precompute", "advised", "--advisor", "panel", "--out", "x.npz"],
        ["ablate", "advisor", "--test", "--set", "advisor.kind=panel"],
    ],
)
def test_commands_for_single_advisors_refuse_a_panel(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*command, "--set", "advisor.panel=[rules, mock:random]"]) == 2
    said = capsys.readouterr().err
    assert "panel" in said
    assert "single advisors" in said or "one advisor" in said
