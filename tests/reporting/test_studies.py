"""Studies beside an evaluation: of which policy they are, null markets of several kinds, of one
seed and of all.
"""

import json

import jax
import jax.numpy as jnp
import pytest

from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.evaluation.records import RECORDS, read_records, write_records
from jaxtrade.reporting import collect
from tests.messages import missing
from tests.reporting.made import NULLS, made_run

SECTIONS = ("challenge", "costs", "intrabar", "latency", "breakdown", "attribution")


def of_policy(folder, sha):
    """Let the records of an evaluation name their policy."""
    records = read_records(folder / RECORDS)
    records.meta["policy_sha256"] = sha
    write_records(folder / RECORDS, records)


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def nulls(folder, kind, policies, p=0.25):
    results = {name: each | {"kind": kind, "p": p} for name, each in NULLS["results"].items()}
    (folder / f"nulls_{kind}.json").write_text(
        json.dumps(NULLS | {"results": results, "policy_sha256": policies})
    )


def data_of(run, **which):
    return collect.collect(collect.choose(run, **which)).data


@pytest.mark.slow
def test_a_study_of_an_earlier_policy_is_left_out_and_named(tmp_path):
    run = made_run(tmp_path / "run", optional=True)
    folder = run / "evaluation" / "test"
    for name in SECTIONS:
        change(folder / f"{name}.json", policy_sha256="b" * 64)
    change(folder / "nulls.json", policy_sha256={"0": "b" * 64})
    unknown = data_of(run)
    assert all(unknown[name] is not None for name in (*SECTIONS, "nulls")), (
        "records of a version without the digest"
    )
    of_policy(folder, "b" * 64)
    assert all(data_of(run)[name] is not None for name in (*SECTIONS, "nulls"))
    of_policy(folder, "c" * 64)
    found = data_of(run)
    assert all(found[name] is None for name in (*SECTIONS, "nulls"))
    assert any(
        not missing(label, "left out: costs", "earlier policy", "evaluate run --cost-grid")
        for label in found["labels"]
    )
    assert sum(label.startswith("left out: ") for label in found["labels"]) == len(SECTIONS) + 1


def test_each_kind_of_null_market_is_shown(tmp_path):
    run = made_run(tmp_path / "run", optional=True)
    folder = run / "evaluation" / "test"
    nulls(folder, "phase", {"0": "b" * 64}, 0.5)
    nulls(folder, "sign", {"0": "b" * 64}, 0.125)
    found = data_of(run)
    assert found["nulls"] is not None
    assert [(each["kind"], each["p"]) for each in (found["nulls"], *found["other_nulls"])] == [
        ("sign", 0.125),
        ("phase", 0.5),
    ], "and nulls.json, of an earlier version, is out of date"
    assert sum("without training anew" in label for label in found["labels"]) == 2


def test_null_markets_of_all_seeds_come_before_those_of_one(tmp_path):
    run = made_run(tmp_path / "run", seeds=2)
    folder = run / "evaluation" / "test"
    nulls(folder / "seed_1", "sign", {"1": "b" * 64}, 0.5)
    assert data_of(run, seed=0)["nulls"] is None
    alone = data_of(run, seed=1)
    assert alone["nulls"] is not None
    assert alone["nulls"]["p"] == 0.5
    assert not any("together" in label for label in alone["labels"])
    nulls(folder, "sign", {"0": "a" * 64, "1": "b" * 64}, 0.25)
    for seed in (0, 1):
        pooled = data_of(run, seed=seed)
        assert pooled["nulls"] is not None
        assert pooled["nulls"]["p"] == 0.25
        assert any("2 policies together" in label for label in pooled["labels"])


def test_days_that_chose_the_policy_are_no_days_held_out(tmp_path):
    label = "every figure below rests on 40 days; the policy was chosen on these very days, so they flatter it"
    found = data_of(made_run(tmp_path / "run", labels=(label,)))
    assert found["statistics"]["psr"]["value"] is None
    assert "chosen" in found["statistics"]["psr"]["why"]


@pytest.mark.parametrize(
    "change_one",
    [
        lambda tree: tree | {"b": tree["b"] + 1},
        lambda tree: tree | {"c": tree["b"]},
        lambda tree: tree | {"a": tree["a"].astype(jnp.float16)},
        lambda tree: tree | {"a": tree["a"][None]},
        lambda tree: tree | {"key": jax.random.key(1)},
    ],
)
def test_a_policy_is_known_by_its_numbers(change_one):
    tree = {"a": jnp.arange(3.0), "b": jnp.int32(4), "key": jax.random.key(0)}
    same = {"a": jnp.arange(3.0) + 0, "b": jnp.int32(4), "key": jax.random.key(0)}
    assert policy_digest(tree) == policy_digest(same)
    assert policy_digest(change_one(tree)) != policy_digest(tree)
