"""The readable table leaves nothing of a result out; the comparison divides new by old and says
what else differs.
"""

from __future__ import annotations

import pytest

from bench import figures, table
from bench.figures import in_unit, number, plain, size
from tests.bench.made_up import STAMP, env_step, side


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (7, "7"),
        (9_999, "9,999"),
        (12_345, "12.3k"),
        (999_600, "1M"),
        (5_214_000, "5.21M"),
        (3.2e9, "3.2G"),
        (0.7441, "0.744"),
        (1234.5, "1,230"),
        (9_999.9, "10k"),
        (25.04, "25"),
        (0.0, "0"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(212, "212 B"), (999.9, "1 kB"), (1_342, "1.34 kB"), (91_234_567, "91.2 MB")],
)
def test_sizes(value: float, shown: str) -> None:
    assert size(value) == shown


def test_units() -> None:
    assert in_unit(0.7, "%") == "70 %"
    assert in_unit([0.8, 1.25], "x") == "[0.8x, 1.25x]"
    assert plain(522_015) == "522,015"
    assert plain(True) == "yes"
    assert plain(None) == "none"
    assert plain(list(range(20)), ("seconds",)) == "20 values, 0 s to 19 s"
    assert plain(64.5, ("bytes_per_step",)) == "64.5 B"
    assert plain(3.5, ("steps_per_second",)) == "3.5"


def test_the_table_says_everything() -> None:
    shown = table.text(env_step())
    for fragment in (
        "env_step: environment steps",
        "abc1234",
        "A processor",
        "jaxtrade@64",
        "4.32M",
        "3.89M to 4.75M",
        "8.64M",
        "num_envs 1,024",
        "threads 1",
        "1.25 to 1.75",
        "1,230x",
        "1,600x",
        "212 B",
        "91.2 MB",
        "memory / recompiles",
        "yes",
        "[0.125, 0.375]",
        "left out: DummyVecEnv(16): stable-baselines3 is not installed",
    ):
        assert fragment in shown, fragment
    assert "not to quote" not in shown
    assert "not to quote" in table.text(env_step(quick=True))


def test_every_leaf_is_found_once() -> None:
    found = figures.find(env_step())
    assert [figures.label(place) for place in found.sides] == [
        "jaxtrade@64",
        "jaxtrade@1024",
        "SubprocVecEnv(8)",
    ]
    assert list(found.times) == [("start",)]
    assert [figures.label(place) for place in found.others] == [
        "memory / state_bytes",
        "memory / temporary_bytes",
        "memory / recompiles",
        "memory / finite",
        "curve",
    ]


def test_what_stands_beside_a_ratio_and_in_lists_is_found() -> None:
    found = figures.find(
        {
            "own": {"wall": 15.5, "cpu": 12.5, "interval": [0.9, 1.1]},
            "only": {"wall": 2.0},
            "quoted": {"figures": [{"what": "theirs", "steps_per_second": 522_015}]},
        }
    )
    assert found.ratios == {("own",): {"wall": 15.5, "cpu": 12.5}, ("only",): {"wall": 2.0}}
    assert found.others == {
        ("own", "interval"): [0.9, 1.1],
        ("quoted", "figures", "0"): {"what": "theirs", "steps_per_second": 522_015},
    }
    assert plain(found.others["quoted", "figures", "0"]) == "what theirs, steps_per_second 522,015"


def test_a_place_leads_to_its_value() -> None:
    result = env_step()
    for kind in figures.find(result):
        for place, value in kind.items():
            assert figures.at(result, place) == value
    assert figures.at(result, ("curve", "1")) == 0.375
    assert figures.at(result, ("curve", "2")) is None
    assert figures.at(result, ("sides", "none", "steps_per_second")) is None


def test_a_long_value_does_not_widen_the_table() -> None:
    words = "knows no action masks " * 10
    lines = table.text(env_step(differences=words)).splitlines()
    assert f"  differences: {words}" in lines
    assert max(len(line) for line in lines if words not in line) < 120


def test_comparison() -> None:
    old, new = env_step(1_000_000.0), env_step(2_000_000.0)
    new["sides"]["other"] = side(5.0)
    del new["sides"]["jaxtrade@64"]
    lines = table.comparison(old, new).splitlines()
    [row] = [line for line in lines if "jaxtrade@1024, steps/CPU-s" in line]
    assert row.split()[-3:] == ["1M", "2M", "2.000"]
    [row] = [line for line in lines if "SubprocVecEnv(8), steps/s" in line]
    assert row.endswith("1.000  ranges overlap")
    assert any("memory / state_bytes" in line and "1.000" in line for line in lines)
    assert "  only in old: jaxtrade@64" in lines
    assert "  only in new: other" in lines
    assert "  same device, commit, versions and configuration" in lines


def test_comparison_tells_what_differs() -> None:
    old = env_step()
    stamp = STAMP | {
        "device": "Another",
        "cores": 4,
        "versions": {"python": "3.11.7", "jax": "0.11"},
    }
    new = env_step(config={"num_steps": 64}, stamp=stamp)
    shown = table.comparison(old, new)
    for line in (
        'device: "A processor" -> "Another"',
        "cores: 2 -> 4",
        'versions.jax: "0.10.2" -> "0.11"',
        "config.num_steps: 128 -> 64",
    ):
        assert f"  differs: {line}" in shown
    assert "same device" not in shown


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.5, "slower"),
        (0.999, "slower"),
        (0.9994, "slower"),
        (0.9996, "level"),
        (1.0, "level"),
        (1.05, "level"),
        (1.06, "faster"),
        (700.0, "faster"),
    ],
)
def test_a_ratio_in_words(ratio: float, said: str) -> None:
    assert figures.compared(ratio) == said
