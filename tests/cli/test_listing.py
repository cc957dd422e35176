"""`jaxtrade list`: every part stands in its table with a line of text; a user's parts appear
too.
"""

import importlib
import sys

import pytest

from jaxtrade import parts
from jaxtrade.advisor.host.prompts import CONTEXT_NAMES, FIELDS, TEMPLATES
from jaxtrade.advisor.host.registry import _EXPECTED, MOCKS
from jaxtrade.cli import descriptions, listing, main
from jaxtrade.config.accounts import PRESETS
from jaxtrade.data.contracts import CONTRACTS
from jaxtrade.data.features.schema import CONTEXT_FEATURES, DUAL_FEATURES, SEED_FEATURES
from jaxtrade.env.reward_presets import REWARDS

EXPECTED = {  # what is listed -> the names in its first column
    "markets": list(CONTRACTS),
    "accounts": list(PRESETS),
    "tasks": list(parts.TASKS._built_in),
    "networks": list(parts.NETWORKS._built_in),
    "learners": list(parts.LEARNERS._built_in),
    "contracts": ["6B", "EURGBP", "GOOG", "SPY"],
    "presets": [
        "advised",
        "advisor_ablation",
        "curriculum",
        "fx_allocate",
        "fx_dqn",
        "fx_ppo",
        "fx_pqn",
        "proof",
        "quickstart",
    ],
    "features": [
        *dict.fromkeys((*SEED_FEATURES, *CONTEXT_FEATURES, *DUAL_FEATURES)),
        *descriptions.PARAMETRIC,
    ],
    "templates": [*descriptions.TEMPLATES, *(f"{{{name}}}" for name in FIELDS)],
    "rewards": [*REWARDS, *parts.REWARD_TERMS._built_in],
}


def listed(capsys, *argv):
    """Name -> the rest of its row, of all tables that `list ARGV` prints."""
    assert main(["list", *argv]) == 0
    found = {}
    for block in (
        capsys.readouterr().out.strip().split("\n\n")[:-1]
    ):  # the last one says how to use a name
        for line in block.splitlines()[1:]:
            name, _, rest = line.partition(" ")
            found[name] = rest.strip()
    return found


@pytest.mark.parametrize("what", list(EXPECTED))
def test_every_name_is_listed_with_a_line(what, capsys):
    found = listed(capsys, what)
    assert list(found) == list(dict.fromkeys(EXPECTED[what]))
    assert all(found.values())


def test_every_template_is_described():
    assert set(descriptions.TEMPLATES) == {*TEMPLATES, *CONTEXT_NAMES}


def test_every_advisor_is_listed(capsys):
    found = listed(capsys, "advisors")
    kinds = {name.partition("/")[0].split(":")[1] for name in found if name.startswith("mock:")}
    assert kinds == set(MOCKS)
    heads = {name.partition(":")[0] for name in found}
    assert {*_EXPECTED, "table", "replay", "off", "none"} - heads == {
        "https"
    }  # its row is that of http
    assert all(found.values())


def test_a_market_has_its_figures(capsys):
    found = listed(capsys, "markets")
    assert found["ES"].split("  ")[0] == "E-mini S&P 500 future"
    assert found["ES"].endswith("$2.08  real, bundled")
    assert found["NQ"].endswith("synthetic")


def test_an_account_has_its_rules(capsys):
    found = listed(capsys, "accounts")
    assert " ".join(found["apex_like_50k_daily_fail_2025"].split()).startswith(
        "50,000 3,000 2,500 1,000 10 "
    )
    assert found["rules_off_50k"].endswith("no limits")


@pytest.fixture
def forgotten():
    """The user's module may be imported again."""
    yield
    sys.modules.pop("my_parts", None)


OWN = '''
from typing import NamedTuple
import numpy as np
from jaxtrade.advisor.host.registry import AdvisorKind
from jaxtrade.data.features.columns import register_feature
from jaxtrade.data.features.schema import FeatureSpec
from jaxtrade.parts import ADVISORS, NETWORKS, REWARD_TERMS, TASKS

class Still:
    """Does nothing. More is said here."""

class Silent:
    pass

def make_coin(rest, options):
    """A coin that is tossed
    at every bar.
    """

def patience(prev, next, step, params):
    """Bars waited."""

TASKS.register("still", Still())
NETWORKS.register("silent", Silent())
REWARD_TERMS.register("patience", patience)
ADVISORS.register("coin", AdvisorKind(make_coin))
register_feature(FeatureSpec("body", "move", 1, "close - open"), lambda window, spec: np.zeros(1))
'''


@pytest.mark.usefixtures("forgotten")
def test_parts_of_an_imported_module_are_listed(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_parts.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    given = ("--import", "my_parts")
    assert listed(capsys, "tasks", *given)["still"].startswith("your own: Does nothing")
    assert listed(capsys, "networks", *given)["silent"] == "your own"
    assert listed(capsys, "rewards", *given)["patience"] == "your own: Bars waited"
    assert listed(capsys, "advisors", *given)["coin"] == "your own: A coin that is tossed"
    assert listed(capsys, "features", *given)["body"].split() == ["move", "1", "close", "-", "open"]


def test_without_a_name_it_lists_what_can_be_listed(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[1:-2]] == list(listing.LISTS)
    assert said.rstrip().endswith("jaxtrade list markets")
