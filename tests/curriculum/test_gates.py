"""Gates: hand-made evaluations pass and fail on each condition alone."""

from types import SimpleNamespace

import pytest

from jaxtrade.curriculum import phases
from jaxtrade.curriculum.config import GateConfig
from tests.messages import refused

FIGURES = {"accounts": 4, "bust": 1, "failed_daily_loss": 0, "trades": 7}
RESULT = SimpleNamespace(agent=lambda name: SimpleNamespace(account_figures=FIGURES))
ROWS = [{"approx_kl": kl} for kl in (9.0,) * 18 + (0.002, 0.004)]


def judged(**gate):
    return {check.name: check for check in phases.check_gate(GateConfig(**gate), RESULT, 0.5, ROWS)}


def test_values_are_those_of_the_hand():
    found = judged(min_reward=0.0, max_breach_share=0.5)
    assert found["reward"].value == 0.5
    assert found["trades"].value == 7
    assert found["breach_share"].value == 0.25
    assert found["kl"].value == pytest.approx(0.003)  # of the last tenth, 2 of 20 updates


@pytest.mark.parametrize(
    ("name", "passing", "failing"),
    [
        ("reward", {"min_reward": 0.5}, {"min_reward": 0.51}),
        ("trades", {"min_trades": 7}, {"min_trades": 8}),
        ("breach_share", {"max_breach_share": 0.25}, {"max_breach_share": 0.2}),
        ("kl", {"min_kl": 0.0029}, {"min_kl": 0.0031}),
    ],
)
def test_each_condition_can_fail_alone(name, passing, failing):
    assert all(check.passed for check in judged(**passing).values())
    found = judged(**failing)
    assert [check.name for check in found.values() if not check.passed] == [name]
    assert f"gate {name}:" in "\n".join([check.line for check in found.values()])


def test_what_is_not_asked_is_not_judged():
    assert set(judged()) == {"kl", "trades"}


def test_a_dead_kl_fails_by_default():
    dead = phases.check_gate(GateConfig(), RESULT, 0.5, [{"approx_kl": 0.0}])
    assert not dead[0].passed


def test_no_metrics_is_an_error():
    with refused("run has no metrics"):
        phases.check_gate(GateConfig(), RESULT, 0.5, [])
