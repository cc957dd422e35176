"""Mistakes of a first hour: each is refused with one clear message and its exit code, before JAX is
loaded.

One child process runs the whole table, so that starting Python is paid once.
"""

import json
import sys
from typing import NamedTuple

import pytest

from tests.children import run_python
from tests.messages import missing

FILES = {
    "empty.yaml": "# nothing\n",
    "afile": "x",
    "bad.yaml": "rollot: {num_envs: 3}\nppo: {num_epochs: 0, lr: 2}\naccount: {preset: apx}\nreward: {preset: none}\n"
    "env: {features: [close, rsu]}\nadvisor: {kind: 'mock:skiled'}\ndata: {market: EZ}\n",
    "course.yaml": "base: {rollout: {num_envs: x}}\nphases:\n"
    "  a: {run: {ppo: {num_epochs: 0}, account: {preset: apx}}}\n"
    "  b: {run: {ppo: {lr: 1}, split: {test_sessions: 99}}, gate: {min_trads: 1}}\n",
    "bars.csv": "time,open,high,low,close\n2013-10-07T13:30:00Z,1,1,1,1\n",
    "bars.txt": "20131006 220000;1;1;1;1;5\n",
    "own.yaml": "data: {source: file, file: bars.csv, stamp: open}\n",
    "share.yaml": "data: {source: file, file: bars.csv, stamp: open, contract: SPY}\n",
    "phases.yaml": "base: {split: {validation_sessions: 1}}\n"
    "phases: {a: {run: {data: {source: file, file: bars.csv, stamp: open}}}}\n",
    "contract.yaml": "symbol: abc\nkind: future\ntick_sze: 1\n",
}


class Mistake(NamedTuple):
    """argv, the exit code, and what the message has to say; `lines`: how many lines it has, 0 for
    any.
    """

    argv: str
    says: tuple[str, ...]
    lines: int = 1
    code: int = 2


MISTAKES = [
    # sizes
    Mistake(
        "train --set rollout.num_envs=1e12",
        (
            "memory: ",
            "12 PB",
            "this machine has",
            "rollout 7.8 PB",
            "rollout.num_envs (1,000,000,000,000)",
        ),
    ),
    Mistake(
        "train --set network.hidden=[1e7,1e7]",
        (
            "memory: ",
            "parameters",
            "PB",
            "network.hidden ([10000000, 10000000])",
        ),
    ),
    Mistake("curriculum --set rollout.num_envs=1e12", ("memory: ",)),
    Mistake("ablate advisor --set rollout.num_envs=1e12", ("memory: ",)),
    # accounts
    Mistake(
        "train --set account.drawdown=60000",
        (
            "account.drawdown = 60,000",
            "50,000 (of apex_like_50k_2025)",
        ),
    ),
    Mistake(
        "train --set account.daily_loss=3000",
        (
            "account.daily_loss = 3,000",
            "account.drawdown = 2,500 (of apex_like_50k_2025)",
        ),
    ),
    Mistake(
        "train --set account.profit_target=off --set account.min_days=5",
        (
            "account.min_days = 5: ",
            "set account.profit_target",
            "drop account.min_days",
        ),
    ),
    Mistake(
        "train --set account.max_contracts=1 --set env.quantity=5",
        (
            "env.quantity = 5: ",
            "'apex_like_50k_2025' allows 1 ES",
        ),
    ),
    Mistake(
        "train --set account.daily_loss=3k --set split.test_sessions=5",
        ("'account.daily_loss' = '3k'",),
        0,
    ),
    Mistake(
        "train --set account.daily_loss=3000 --set split.test_sessions=5 --set env.quantity=11",
        ("account.daily_loss = 3,000", "allows 10 ES", "split.test_sessions = 5"),
        3,
    ),
    # files, sessions, dates
    Mistake("train empty.yaml", ("empty.yaml: is empty",)),
    Mistake(
        "train --set split.test_sessions=99",
        ("split.test_sessions = 99", "100 sessions", "at most 5"),
    ),
    Mistake(
        "train --set data.start=2013-13-01",
        ("--set: 'data.start' = '2013-13-01': ", "YYYY-MM-DD"),
    ),
    Mistake(
        "train --set data.start=2013-10-09 --set data.end=2013-10-07",
        (
            "data.start = 2013-10-09",
            "data.end = 2013-10-07",
        ),
    ),
    Mistake(
        "train --set data.start=2031-01-01",
        (
            "data.start = 2031-01-01: no session",
            "201312 is of 2013-10-07..2013-12-20",
        ),
    ),
    Mistake(
        "train --set data.end=2001-01-01 --market EURUSD",
        (
            "data.end = 2001-01-01: no session",
            "EURUSD, which are of 2007-01-01..2018-12-31",
        ),
    ),
    *(
        Mistake(
            f"train --set data.source=synthetic --market {symbol} --set data.start=2023-11-25 "
            "--set data.end=2023-11-26",
            ("data.end = 2023-11-26: no session",),
        )
        for symbol in ("NQ", "EURUSD")
    ),  # a weekend of generated bars, whether or not the market has bundled ones
    Mistake(
        "train --data absent.csv --quotes missing.csv",
        (
            "absent.csv: there is no such file",
            "data.file (--data)",
            "missing.csv: there is no such file",
            "data.quotes (--quotes)",
        ),
        2,
    ),
    *(
        Mistake(
            f"{command} bars.csv",
            (
                "bars.csv: a file of bars",
                "'jaxtrade init bars.csv'",
                "data.file (--data bars.csv)",
            ),
        )
        for command in ("train", "curriculum", "config show")
    ),
    Mistake(
        "evaluate bars.csv",
        ("bars.csv: ", "a run's folder", "jaxtrade init bars.csv"),
    ),
    Mistake("train --contract bars.csv", ("bars.csv: a file of bars", "a contract")),
    Mistake(
        "train bars.txt",
        ("bars.txt: ", "jaxtrade init bars.txt"),
    ),
    Mistake(
        "train own.yaml --market NQ",
        (
            "--market NQ: ",
            "data.file = 'bars.csv'",
            "--set data.market=NQ",
        ),
    ),
    Mistake(
        "curriculum phases.yaml --market NQ",
        ("phases.yaml, phase a: --market NQ: ",),
    ),
    Mistake(
        "train share.yaml --market NQ",
        ("--market NQ: ", "data.contract = SPY"),
    ),
    # advisors
    Mistake(
        "train advised --advisor mock:skiled:0.6",
        (
            "advisor.kind = mock:skiled:0.6 (--advisor): ",
            "'skilled'?",
        ),
    ),
    Mistake(
        "train advised --advisor mock:skilled:1.6",
        (
            "advisor.kind = mock:skilled:1.6 (--advisor): ",
            "q = 1.6",
            "0 to 1",
        ),
    ),
    Mistake("train advised --advisor mock:delayed:5", ("write it behind a '/'",)),
    Mistake(
        "train advised --advisor table:none.npz",
        ("advisor.kind = table:none.npz (--advisor): ", "no such file"),
    ),
    Mistake(
        "train advised --advisor http://localhost:1/v1",
        (
            "advisor http://localhost:1/v1: ",
            "start the server",
            "--set advisor.options.model=NAME",
        ),
    ),
    Mistake("advise precompute --advisor mock:skiled --out a.npz", ("'skilled'?",)),
    Mistake(
        "ablate advisor --kinds mock:skiled,mock:orcle,mock:skilled:x --fusions trst,gat --set seed=x",
        ("'skilled'", "'oracle'", "expected a number", "'trust'", "'gate'", "'seed' = 'x'"),
        6,
    ),
    # places
    Mistake("train --run-dir afile", ("afile (--run-dir): it is a file",)),
    Mistake("train --run-dir afile/run", ("afile/run (--run-dir): afile is a file",)),
    Mistake("ablate advisor --out afile/there", ("--out afile/there: afile is a file",)),
    Mistake("advise precompute --advisor rules --out nowhere/a.npz", ("no folder nowhere",)),
    Mistake(
        "advise precompute --advisor mock:skiled --out a.csv",
        ("ends in .npz", "did you mean 'skilled'?"),
        2,
    ),
    # all faults at once
    Mistake(
        "train bad.yaml",
        (
            "unknown key 'ppo.lr'",
            "'rollout.num_envs'?",
            "'ppo.num_epochs' = 0",
            "unknown preset 'apx'",
            "reward.preset",
            "'rsu'",
            "'skilled'",
            "'EZ'",
        ),
        8,
    ),
    Mistake(
        "curriculum course.yaml",
        (
            "'phases.b.gate.min_trads'; ",
            "'phases.b.gate.min_trades'?",
            "course.yaml, every phase: 'rollout.num_envs' = 'x'",
            "course.yaml, phase a: 'ppo.num_epochs' = 0",
            "unknown preset 'apx'",
            "course.yaml, phase b: unknown key 'ppo.lr'",
        ),
        5,
    ),
    Mistake(
        "curriculum --set split.test_sessions=99 --set account.daily_loss=3000",
        ("curriculum, every phase: split:", "curriculum, every phase: account.daily_loss"),
        2,
    ),
    Mistake(
        "train --contract contract.yaml",
        ("contract.yaml: ", "'tick_sze'; ", "'tick_size'?", "'symbol' = 'abc'"),
        0,
    ),
    # typing
    Mistake("train .", (".: a folder", "a configuration")),
    Mistake("train advised --advisor mock", ("advisor.kind = mock (--advisor): ", "mock:KIND")),
    Mistake(
        "train advised --advisor nonsense",
        ("advisor.kind = nonsense (--advisor): unknown",),
    ),
    Mistake(
        "train course.yaml",
        ("has 'phases'", "jaxtrade curriculum course.yaml"),
    ),
    Mistake("tarin", ("invalid choice: 'tarin'", "did you mean train?")),
    Mistake("data chekc x.csv", ("did you mean check?",)),
    Mistake("train --test --run-dri x", ("no flag --run-dri; ", " --run-dir?")),
    Mistake(
        "evaluate RUN --intrabar-gird",
        ("no flag --intrabar-gird; ", " --intrabar-grid?"),
    ),
    Mistake("", ("give a command", "`jaxtrade --help`"), 0),
]
if sys.platform == "linux":
    MISTAKES.append(
        Mistake("train --run-dir /proc/run", ("nothing can be written in /proc",), code=74)
    )

CHILD = """
import contextlib, io, json, sys
from jaxtrade.cli import main
found = []
for argv in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(argv.split())
        except SystemExit as stop:
            code = stop.code
    found.append([code, said.getvalue(), sorted({"jax", "pandas", "flax"} & set(sys.modules))])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """argv -> exit code, what was printed, and which heavy libraries are loaded by then."""
    folder = tmp_path_factory.mktemp("first_hour")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    argvs = [mistake.argv for mistake in MISTAKES]
    done = run_python("-c", CHILD, json.dumps(argvs), cwd=folder, timeout=300, check=True)
    assert {path.name for path in folder.iterdir()} == set(FILES), (
        "a refusal leaves something behind"
    )
    return {
        argv: tuple(answer) for argv, answer in zip(argvs, json.loads(done.stdout), strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.argv)
def test_a_mistake_is_one_clear_message(mistake, answers):
    code, said, loaded = answers[mistake.argv]
    assert code == mistake.code, said
    assert not missing(said, *mistake.says)
    assert loaded == []
    assert "Traceback" not in said
    assert "site-packages" not in said
    assert "this is a bug" not in said
    if mistake.lines:
        assert len(said.splitlines()) == mistake.lines, said
        assert said.startswith("error: ")
