"""Every number of a new configuration has an upper bound; folders of earlier runs open without
it.
"""

import typing

import annotated_types
import pytest
from pydantic import BaseModel

from jaxtrade.config import RunConfig, apply_overrides, load_config, make_config
from jaxtrade.config.load import MOST
from jaxtrade.runs.agents import resumed_config
from tests.messages import refused

# Numbers of parts that check their own: ranges of a search, and options of an advisor.
OWN = {"evolve.keys", "advisor.options", "advisor.panel.options", "data.per_market"}


def is_number(kind):
    """Whether a value of this type may be a number, or hold some."""
    return kind in (int, float) or (
        typing.get_origin(kind) is not typing.Literal
        and any(is_number(each) for each in typing.get_args(kind))
    )


def numbers(model, head=""):
    for name, field in model.model_fields.items():
        kinds = typing.get_args(field.annotation) or (field.annotation,)
        sections = [
            kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        if sections:
            yield from (each for section in sections for each in numbers(section, f"{head}{name}."))
        elif is_number(field.annotation):
            yield f"{head}{name}", field


def test_every_number_has_a_bound():
    found = dict(numbers(RunConfig))
    assert "ppo.learning_rate" in found
    assert "advisor.service.deadline_s" in found
    bounded = {
        key
        for key, field in found.items()
        if any(isinstance(each, annotated_types.Le | annotated_types.Lt) for each in field.metadata)
        or "Le(" in str(field.annotation)
    }
    assert set(found) - bounded - set(MOST) - OWN == set()
    assert set(MOST) <= set(found)


@pytest.mark.parametrize("key", MOST)
def test_a_value_beyond_its_bound_is_refused(key):
    values = {
        "allocate.size": "[1000000]",
        "network.hidden": "[100000000]",
        "reward.weights": "{cost: 1e9}",
        "data.synthetic_pull": "2",
        "ppo.adapter_freeze": "2",
    }
    value = values[key] if key in values else f"{10 * MOST[key]:.0f}"
    algorithm = key.partition(".")[0]
    chosen = (
        [f"algorithm={algorithm}"]
        if algorithm in ("dqn", "pqn")
        else ["env.task=allocate"]
        if algorithm == "allocate"
        else []
    )
    with refused(key.rpartition(".")[2]):
        make_config(apply_overrides({}, [*chosen, f"{key}={value}"]))


@pytest.mark.parametrize(
    "override",
    [
        "ppo.num_epochs=1000000000",
        "evaluation.policy_samples=1000000000",
        "ppo.learning_rate=1e30",
        "ppo.clip_eps=1e30",
    ],
)
def test_folders_of_earlier_runs_open(override):
    values = apply_overrides({}, [override])
    with refused("expected at most"):
        make_config(values)
    make_config(values, stored=True)


def test_the_key_says_where_its_value_is_from(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("ppo: {learning_rate: 1.0e+3}\n")
    with refused(f"{path}: 'ppo.learning_rate' = 1000.0: ", "at most 1"):
        load_config(path)


def test_what_a_symbol_has_of_its_own_is_bounded_too():
    with refused("NQ.price_scale"):
        make_config(
            apply_overrides({}, ["data.markets=ES,NQ", "data.per_market={NQ: {price_scale: 1e30}}"])
        )


def test_a_stored_run_takes_a_change_of_another_key():
    stored = make_config(apply_overrides({}, ["ppo.max_grad_norm=1e9"]), stored=True)
    assert resumed_config(stored, ["control.wall_clock=60"]).control.wall_clock == 60


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("keys", "{ppo.learning_rate: [1e-3, 0.001]}"),
        ("settings", "[{ppo.gamma: 0.9}, {ppo.gamma: 0.9}]"),
    ],
)
def test_a_sweep_of_equal_values_is_refused(key, value):
    with refused("twice"):
        make_config(apply_overrides({}, [f"sweep.{key}={value}"]))
