"""The readable table leaves nothing of a result out; the comparison divides new by old and says
what else differs.
"""

import pytest

from bench import table
from bench.table import number, size
from tests.bench.made_up import STAMP, env_step, side


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (9_999, "9,999"),
        (12_345, "12.3k"),
        (999_600, "1M"),
        (5_214_000, "5.21M"),
        (3.2e9, "3.2G"),
        (0.7441, "0.744"),
        (1234.5, "1,230"),
        (9_999.9, "10k"),
        (0.0, "0"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(212, "212 B"), (999.9, "1 kB"), (1_342, "1.34 kB"), (91_234_567, "91.2 MB")],
)
def test_sizes(value, shown):
    assert size(value) == shown


def test_the_table_says_everything():
    shown = table.text(env_step())
    for fragment in (
        "env_step: environment steps",
        "abc1234",
        "A processor",
        "jaxtrade@64",
        "4.32M",
        "3.89M to 4.75M",
        "1.25 to 1.75",
        "212 B",
        "91.2 MB",
        "memory / recompiles",
        "[0.125, 0.375]",
        "stable-baselines3 is not installed",
    ):
        assert fragment in shown, fragment
    assert "not to quote" not in shown
    assert "not to quote" in table.text(env_step(quick=True))


def test_comparison():
    old, new = env_step(1_000_000.0), env_step(2_000_000.0)
    new["sides"]["other"] = side(5.0)
    del new["sides"]["jaxtrade@64"]
    lines = table.comparison(old, new).splitlines()
    [row] = [line for line in lines if "jaxtrade@1024 / steps_per_cpu_second" in line]
    assert row.split()[-3:] == ["1M", "2M", "2.000"]
    [row] = [line for line in lines if "SubprocVecEnv(8) / steps_per_second " in line]
    assert row.endswith("1.000  ranges overlap")
    assert any("memory / state_bytes" in line and "1.000" in line for line in lines)
    assert any(line.startswith("  only in old: sides / jaxtrade@64") for line in lines)
    assert any(line.startswith("  only in new: sides / other") for line in lines)
    assert lines[1].startswith("  same device, ")


def test_comparison_tells_what_differs():
    stamp = STAMP | {
        "device": "Another",
        "cores": 4,
        "versions": {"python": "3.11.7", "jax": "0.11"},
    }
    shown = table.comparison(env_step(), env_step(config={"num_steps": 64}, stamp=stamp))
    for line in (
        'device: "A processor" -> "Another"',
        "cores: 2 -> 4",
        'versions.jax: "0.10.2" -> "0.11"',
        "config.num_steps: 128 -> 64",
    ):
        assert f"  differs: {line}" in shown
    assert "same device" not in shown


@pytest.mark.parametrize(
    ("ratio", "interval", "said"),
    [
        (0.9994, None, "slower"),
        (0.9996, None, "level"),
        (1.05, None, "level"),
        (1.06, None, "faster"),
        (0.996, [0.98, 1.01], "level"),
        (0.996, [0.98, 0.999], "slower"),
        (0.996, [1.001, 1.02], "faster"),
    ],
)
def test_a_ratio_in_words(ratio, interval, said):
    """One whose interval holds 1 is level."""
    assert table.compared(ratio, interval) == said
