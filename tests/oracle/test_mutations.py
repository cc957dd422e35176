"""The comparison with the oracle has teeth: it catches the seeded faults that name a configuration
for it.

A mutant is a copy of `jaxtrade.env` in a temporary folder, under a name of its own, with one fault
of
`tests/mutation/mutations.yaml` in it.
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

import jaxtrade.env
import jaxtrade.parts
from tests.mutation.faults import read_faults
from tests.oracle.agreement import compare, make_rollout
from tests.oracle.test_agreement import lanes

pytestmark = pytest.mark.slow

SOURCE = Path(jaxtrade.env.__file__).parent
PARTS = Path(jaxtrade.parts.__file__)  # names the modules of tasks and reward terms
STEPS = 150


ROOT = SOURCE.parents[1]
MUTATIONS = {fault.id: fault for fault in read_faults() if fault.oracle}


def load_mutant(folder, mutation):
    """`TradingEnv` of a changed copy of the environment; `state` stays the package's own, so that
    pytrees match.
    """
    name = f"mutant_{abs(hash(mutation)):x}"
    package = folder / name
    package.mkdir()
    for path in (PARTS, *SOURCE.rglob("*.py")):
        inside = Path(path.name) if path == PARTS else path.relative_to(SOURCE)
        text = path.read_text(encoding="utf-8")
        if mutation and path == ROOT / mutation.path:
            text = mutation.applied(ROOT)
        text = re.sub(r"jaxtrade\.env(?!\.state)\b", name, text).replace(
            "jaxtrade.parts", f"{name}.parts"
        )
        (package / inside).parent.mkdir(exist_ok=True)
        (package / inside).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(f"{name}.dynamics").TradingEnv
    finally:
        sys.path.remove(str(folder))


def outcome_of(env_class, unit, look):
    rollout = make_rollout(lanes(unit)[0].settings, env_class, look)
    return compare(lanes(unit), STEPS, 7, rollout)


def test_an_unchanged_copy_agrees(tmp_path):
    assert outcome_of(load_mutant(tmp_path, None), "rewards", look=False).fault is None


# `python -m tests.mutation` makes all; CI makes these: of orders, fills, money, the walk through a bar, and rewards.
IN_CI = (
    "buy-sells",
    "a-touch-does-not-reach-the-target",
    "the-floor-cap-is-ignored",
    "walk-the-mark-of-the-whole-bar",
    "the-reward-is-realised-money-alone",
)


@pytest.mark.parametrize("name", IN_CI)
def test_mutation_is_caught(name, tmp_path):
    mutation = MUTATIONS[name]
    assert mutation.oracle is not None
    look = mutation.path.endswith("/observation.py") or mutation.oracle.startswith("advised")
    fault = outcome_of(load_mutant(tmp_path, mutation), mutation.oracle, look).fault
    assert fault is not None, f"nobody noticed: {name}"
