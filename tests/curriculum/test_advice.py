"""The advisor of the shipped curriculum: `rules` in its last phase, unless the bars or the user say
otherwise.
"""

import pytest

from jaxtrade.cli.parser import build_parser
from jaxtrade.cli.training import names_advisor
from jaxtrade.config import load_config, make_config
from jaxtrade.curriculum.config import GateConfig, Phase, load_curriculum
from jaxtrade.curriculum.phases import report_text, with_possible_advisors

LINE = "LLM query rate: "


def test_the_shipped_curriculum_asks_the_rules_in_its_last_phase():
    phases = load_curriculum("curriculum", (), (), make_config).phases
    assert [phase.config.advisor.kind for phase in phases] == ["off", "off", "rules"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], False),
        (["curriculum"], False),
        (["--test", "--market", "EURUSD"], False),
        (["--advisor", "rules"], True),
        (["--advisor", "off"], True),
        (["--set", "advisor.kind=none"], True),
        (["--set", "phases.advised.run.advisor.kind=rules"], True),
        (["--set", "advisor.horizon=5"], False),
        (["mine.yaml"], True),
    ],
)
def test_whose_choice_an_advisor_is(words, named):
    assert names_advisor(build_parser().parse_args(["curriculum", *words])) is named


def phase(name, *overrides):
    return Phase(
        name=name,
        config=load_config("quickstart", ["split.validation_sessions=1", *overrides]),
        gate=GateConfig(),
    )


@pytest.mark.slow
def test_rules_that_cannot_serve_the_bars_are_left_out_with_the_reason():
    """EURUSD has no volume. The other phases stay as they are."""
    said = []
    rules = ("advisor.kind=rules", "advisor.horizon=5")
    phases = (phase("entry"), phase("with", *rules), phase("without", "data.market=EURUSD", *rules))
    kept = with_possible_advisors(phases, said.append)
    assert kept[:2] == phases[:2]
    assert kept[2].config.advisor.kind == "off"
    assert (
        kept[2].config.model_copy(update={"advisor": phases[2].config.advisor}) == phases[2].config
    )
    [line] = said
    assert line.startswith("phase without: ")
    assert "--advisor" in line
    assert "have no volume" in line


def test_a_report_of_an_earlier_version_has_no_such_line():
    assert LINE not in report_text({"phases": [], "enforced": True, "stopped": ""})
