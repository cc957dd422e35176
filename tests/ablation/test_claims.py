"""When an ablation may say that a real advisor helps."""

import json

import pytest

from jaxtrade.ablation import report
from jaxtrade.ablation.results import claims
from tests.ablation.made import made_ablation
from tests.messages import missing

TABLE, OF_TABLE = "table:x.npz", "mock:shifted/table:x.npz"
SHUFFLED = "mock:permuted/table:x.npz"  # the placebo of earlier versions


def made(worth, **more):
    return made_ablation({"none": 0.0, **worth}, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ({TABLE: 30.0, OF_TABLE: 0.0, "rules": 5.0}, True),
        ({TABLE: 30.0, SHUFFLED: 0.0, "rules": 5.0}, True),
        ({TABLE: 30.0, OF_TABLE: 29.5, "rules": 5.0}, False),
        ({TABLE: 30.0, OF_TABLE: 0.0, "rules": 40.0}, False),
    ],
)
def test_it_helps_if_it_beats_its_placebo_and_the_rules(worth, expected):
    [claim] = claims(*made(worth))
    assert (claim.kind, claim.helps) == (TABLE, expected)
    assert claim.found.startswith("less its placebo +")


@pytest.mark.parametrize(
    ("worth", "missing"),
    [
        ({"rules": 0.0}, OF_TABLE),
        ({OF_TABLE: 0.0}, "rules"),
        ({}, f"{OF_TABLE} and rules"),
        ({"rules": 0.0, "mock:permuted/rules": 0.0}, OF_TABLE),
    ],
)  # another one's placebo is no placebo of it
def test_what_is_missing_is_named(worth, missing):
    [claim] = claims(*made({TABLE: 30.0, **worth}))
    assert (claim.helps, claim.found) == (None, f"needs {missing} in the matrix")


@pytest.mark.parametrize(
    ("few", "found"),
    [
        ({"seeds": 2}, "needs 3 seeds, there are 2"),
        ({"days": 4}, "needs 5 days, there are 4"),
    ],
)
def test_few_seeds_or_days_say_nothing(few, found):
    [claim] = claims(*made({TABLE: 500.0, OF_TABLE: 0.0, "rules": 0.0}, **few))
    assert (claim.helps, claim.found) == (None, found)


def test_mocks_and_rules_claim_nothing():
    assert claims(*made({"rules": 5.0, "mock:oracle": 30.0})) == []


def test_claims_are_in_the_table_and_in_the_document():
    ablation, _ = made({TABLE: 30.0, OF_TABLE: 0.0, "rules": 5.0})
    assert not missing(
        report.table(ablation), "table:x.npz: it helps", "trained on them", "less its placebo +"
    )
    document = json.loads(json.dumps(report.to_json(ablation), allow_nan=False))
    assert document["fusions"]["trust"]["claims"][TABLE]["helps"] is True
