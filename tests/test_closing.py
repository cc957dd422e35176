"""The closing line about an advisor: the share of decisions with advice over the whole training,
and its company.
"""

import json
import math

from jaxtrade.runs.advice import closing_line, closing_metrics, closing_of
from tests.messages import missing

ROWS = [
    {
        "advice_share": 0.0,
        "hit_rate": math.nan,
        "trust": math.nan,
        "agreement": math.nan,
        "advice_scored": 0.0,
    },
    {"advice_share": 0.5, "hit_rate": 0.4, "trust": 0.0, "agreement": 0.9, "advice_scored": 10.0},
    {
        "advice_share": 1.0,
        "hit_rate": 0.53,
        "trust": 0.25,
        "agreement": 0.6,
        "advice_scored": 1297.0,
    },
]
FIGURES = {"kind": "rules", "asked": 1216, "deltas": 18}


def test_the_rate_is_that_of_the_whole_training_and_the_rest_is_the_last_update_s():
    found = closing_metrics(FIGURES, ROWS)
    assert found == {
        "kind": "rules",
        "query_rate": 0.5,
        "requests": 1216,
        "hit_rate": 0.53,
        "advice_scored": 1297.0,
        "trust": 0.25,
        "agreement": 0.6,
    }
    assert not missing(
        closing_line(found),
        "LLM query rate: 50.0 %",
        "advisor rules: 1,216 requests",
        "hit rate 53.0 % over 1,297",
        "trust 0.25",
        "agreement 60.0 %",
    )


def test_what_is_undefined_is_said_to_be_so():
    found = closing_metrics({"kind": "table:a.npz"}, ROWS[:1])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert not missing(
        closing_line(found),
        "LLM query rate: 0.0 %",
        "table:a.npz: no requests",
        "hit rate n/a over 0",
        "trust n/a",
        "agreement n/a",
    )
    assert closing_metrics(FIGURES, [])["query_rate"] is None
    assert "LLM query rate: n/a of" in closing_line(closing_metrics(FIGURES, []))


def test_it_comes_from_the_files_of_a_run(tmp_path):
    (tmp_path / "advice.json").write_text(json.dumps(FIGURES | {"kind": "an older name"}))
    assert closing_of(tmp_path, "rules", ROWS) == closing_metrics(FIGURES, ROWS)
    assert closing_of(tmp_path / "killed", "rules", ROWS) == closing_metrics(
        {"kind": "rules"}, ROWS
    )
    assert closing_of(tmp_path, "off", ROWS) is None
    assert closing_of(tmp_path, "none", ROWS) is None
