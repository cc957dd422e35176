"""`jaxtrade evaluate RUN --nulls`: the table, the files, and what is refused."""

import json

import pytest

from jaxtrade.cli.entry import main
from tests.messages import missing, refuses
from tests.reading import read_json
from tests.test_cli import TINY

pytestmark = pytest.mark.slow  # a whole run; evaluation/test_null_runs.py has quick tests


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "es"
    assert main(["train", "--run-dir", str(path), *TINY]) == 0
    return path


def test_evaluate_tests_rules_and_policy_against_nulls(run, capsys):
    assert main(["evaluate", str(run), "--nulls", "sign:3"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("null markets sign:3, seed 0: ")
    assert not missing(said.out, "at least 0.2500", "below 0.05", "3 draws", "not trained again")
    assert "trade date 2013-10-11 on" in said.out
    folder = run / "evaluation/test"
    assert (folder / "nulls_sign.txt").read_text() == said.out
    document = read_json(folder / "nulls_sign.json")
    assert list(document["results"]) == ["greedy", "flat", "random", "buy_hold", "sma_cross"]
    agents = read_json(folder / "evaluation.json")["agents"]
    for name, each in document[
        "results"
    ].items():  # one session is held out, so its day is the whole
        assert each["real"] == pytest.approx(agents[name]["strategy"]["net_profit"], abs=1e-6)

    assert main(["evaluate", str(run), "--nulls", "sign:3", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["results"] == document["results"], "the same seed draws the same nulls"
    for each, times in ((document, 2), (again, 3)):  # the training opened the test session first
        said = f"looked at {times} times (1 distinct trial)"
        assert any(said in note for note in each["notes"])


def test_a_split_that_the_policy_has_seen_tests_rules_alone(run, capsys):
    assert main(["evaluate", str(run), "--nulls", "martingale:2", "--split", "train"]) == 0
    said = capsys.readouterr().out
    assert not missing(said, "split train", "rules alone")
    assert "trials: " not in said, "no test session is shown"
    assert "greedy" not in read_json(run / "evaluation/train" / "nulls_martingale.json")["results"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nulls", "sgin:9"], "did you mean sign?"),
        (["--nulls", "sign:9", "--cost-grid"], "drop --cost-grid"),
        (["--nulls", "sign:9", "--advisor", "rules"], "drop --advisor"),
        (["--nulls", "sessions:9"], "use the kind sign"),
    ],
)
def test_what_is_refused(run, capsys, words, said):
    refuses(capsys, ["evaluate", str(run), *words], said)
