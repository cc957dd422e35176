"""Names of advisors: what is refused, what is flagged, and whose placebo is whose."""

import pytest

from jaxtrade.ablation import kinds
from jaxtrade.errors import ConfigError


def test_none_is_always_there_and_first():
    assert kinds.parse_kinds("rules, mock:oracle,rules,none") == ("none", "rules", "mock:oracle")
    assert kinds.parse_kinds(None)[0] == "none"
    for kind in kinds.DEFAULT:
        kinds.check_kind(kind)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mock:skiled:0.6", "did you mean 'skilled'"),
        ("rule", "did you mean 'rules'"),
        ("none", "nothing to compare"),
        ("", "nothing to compare"),
        ("http://127.0.0.1:1/v1", "advise precompute"),
        ("mock:slow:1/https://h/v1", "advise precompute"),
        ("turn:1.5", "Q from 0 to 1"),
        ("turn:x", "Q from 0 to 1"),
        ("mock:permuted/turn", "unknown"),
        ("mock:permuted/none", "unknown"),
        ("mock:delayed:5/table:x.npz", "unknown"),
        ("mock:shifted/mock:delayed:5/table:x.npz", "unknown"),
        ("mock:persistent:x", "expected a number"),
        ("mock:persistent:0", "mean length of a spell"),
    ],
)
def test_unknown_kinds_are_refused(text, names):
    with pytest.raises(ConfigError, match=names):
        kinds.parse_kinds(text)


def test_fusions():
    assert kinds.parse_fusions(None) == ("trust", "slots")
    assert kinds.parse_fusions("gate, trust,gate") == ("gate", "trust")
    with pytest.raises(ConfigError, match="did you mean 'trust'"):
        kinds.parse_fusions("trsut")
    with pytest.raises(ConfigError, match="expected some of"):
        kinds.parse_fusions(" , ")


@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        ("none", False),
        ("rules", False),
        ("mock:random", False),
        ("mock:constant", False),
        ("mock:skilled:0.6", True),
        ("mock:oracle", True),
        ("mock:adversarial:0.6", True),
        ("mock:overconfident", True),
        ("turn", True),
        ("turn:0.7", True),
        ("mock:delayed:5/mock:skilled:0.6", True),
        ("mock:permuted/mock:skilled:0.6", False),
        ("mock:shifted/mock:skilled:0.6", False),
        ("mock:persistent:60", False),
        ("mock:shifted/table:x.npz", False),
        ("mock:available:0.5/mock:permuted/mock:oracle", True),
        ("table:x.npz", False),
        ("mock:delayed:5/rules", False),
    ],
)
def test_which_advisors_read_the_future(kind, reads):
    assert kinds.reads_future(kind) is reads


def test_a_snapshot_has_a_placebo():
    asked = (
        "none",
        "table:mine.npz",
        "mock:shifted/table:mine.npz",
        "mock:permuted/table:mine.npz",
        "rules",
    )
    assert kinds.parse_kinds(",".join(asked)) == asked
    assert kinds.placebo_of("table:mine.npz", asked) == "mock:shifted/table:mine.npz"
    assert [kinds.placebo_file(kind) for kind in asked] == [
        None,
        None,
        "mine.npz",
        "mine.npz",
        None,
    ]


NAMED = ("none", "rules", "mock:permuted/rules", "mock:oracle", "mock:permuted/mock:oracle")
SHIFTED = "mock:shifted/rules"


@pytest.mark.parametrize(
    ("kind", "among", "placebo"),
    [
        ("rules", NAMED, "mock:permuted/rules"),
        ("rules", (*NAMED, SHIFTED), SHIFTED),
        ("mock:oracle", NAMED, "mock:permuted/mock:oracle"),
        ("mock:oracle", ("none", "mock:oracle", SHIFTED), SHIFTED),
        ("turn", NAMED, None),  # two, and neither is its own
        ("turn", NAMED[:3], "mock:permuted/rules"),
        ("none", NAMED, None),
        ("mock:permuted/rules", NAMED, None),
    ],
)
def test_placebos(kind, among, placebo):
    assert kinds.placebo_of(kind, among) == placebo
