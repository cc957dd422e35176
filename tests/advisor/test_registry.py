"""Backends by name, and what is said of a name or option that cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.registry import MOCKS, check_kind, make_backend, takes
from jaxtrade.errors import ConfigError
from tests.advisor.asking import ask
from tests.advisor.servers import GOOD

TOLD = {"future": np.array([1, -1, 0, 1])}


@pytest.mark.parametrize(
    ("kind", "options", "identity"),
    [
        ("rules", {}, {"kind": "rules", "horizon": "30"}),
        ("rules", {"horizon": 5}, {"horizon": "5"}),
        ("mock:random", {"seed": 4}, {"kind": "mock:random", "seed": "4"}),
        ("mock:skilled:0.7", TOLD, {"kind": "mock:skilled", "q": "0.7"}),
        ("mock:skilled", {**TOLD, "q": 0.8}, {"q": "0.8"}),
        ("mock:adversarial:0.75", TOLD, {"q": "0.25"}),
        ("mock:constant:0.4", {"direction": "short"}, {"direction": "short", "confidence": "0.4"}),
        (
            "mock:delayed:5/mock:skilled:0.7",
            {**TOLD, "horizon": 9},
            {"bars": "5", "of.q": "0.7", "of.horizon": "9"},
        ),
        (
            "mock:available:0.25/mock:random",
            {"seed": 3},
            {"p": "0.25", "seed": "3", "of.seed": "3"},
        ),
        ("mock:available:0.25/rules", {"seed": 3}, {"seed": "3", "of.kind": "rules"}),
        (
            "mock:slow:0.01/mock:delayed:2/mock:random",
            {},
            {"of.bars": "2", "of.of.kind": "mock:random"},
        ),
        (
            "mock:permuted",
            {"inner": mocks.Random(), "bars": np.arange(4)},
            {"of.kind": "mock:random"},
        ),
        ("mock:persistent:20", {"confidence": 0.7}, {"bars": "20.0", "confidence": "0.7"}),
        (
            "mock:shifted",
            {"inner": mocks.Random(), "sessions": [[(0, 0)], [(1, 0)]]},
            {"of.kind": "mock:random"},
        ),
        (
            "mock:turning:2/mock:random",
            {"then": mocks.Constant()},
            {"turn": "2", "then.kind": "mock:constant"},
        ),
    ],
)
def test_names(kind, options, identity):
    backend = make_backend(kind, options)
    found = backend.identity()
    assert {key: found[key] for key in identity} == identity
    backend.close()


def test_every_mock_can_be_made():
    everything = {
        **TOLD,
        "inner": mocks.Random(),
        "then": mocks.Random(),
        "bars": 1,
        "turn": 1,
        "seconds": 0.01,
    }
    for name, kind in MOCKS.items():
        options = {key: value for key, value in everything.items() if key in kind.takes}
        options |= {"bars": np.arange(4)} if name == "permuted" else {}
        options |= {"sessions": [[(0, 0), (1, 60)], [(2, 0)]]} if name == "shifted" else {}
        answer = ask(make_backend(f"mock:{name}", options), bar=1)
        assert answer.advice or answer.failure
        assert set(kind.needs) <= kind.takes
        assert not kind.number or kind.number in kind.takes


def test_recorded(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"bar": 2, "raw": json.dumps(GOOD)}))
    assert ask(make_backend(f"recorded:{path}"), bar=2).advice is not None


def test_options_are_reported():
    assert "future" in takes("mock:delayed:5/mock:oracle")
    assert "future" not in takes("mock:random")
    assert {"model", "key_env", "seed"} <= takes("https://api.example.com/v1")
    assert takes("rules") == {"horizon"}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("rule", {}, "did you mean 'rules'"),
        ("mocks:random", {}, "did you mean 'mock'"),
        ("gpt-4", {}, "unknown; choose one of"),
        ("mock", {}, "expected mock:KIND"),
        ("mock:skiled:0.6", TOLD, "mock:skiled: unknown"),
        ("mock:skilled:0.6", {}, "option 'future' is missing"),
        ("mock:skilled:sixty", TOLD, "expected a number (q)"),
        ("mock:skilled:1.6", TOLD, "q = 1.6, expected a share from 0 to 1"),
        ("mock:skilled:nan", TOLD, "q = nan"),
        ("mock:skilled:0.6", {**TOLD, "q": 0.7}, "q is given twice"),
        ("mock:skilled:0.6", {**TOLD, "sed": 1}, "unknown option 'sed'"),
        ("mock:oracle:0.6", TOLD, "takes no number"),
        ("mock:random/rules", {}, "changes no other backend"),
        ("mock:delayed:1.5/mock:random", {}, "expected a whole number"),
        ("mock:delayed:5", {}, "option 'inner' is missing"),
        ("mock:delayed/mock:random", {}, "option 'bars' is missing"),
        ("mock:persistent:0", {}, "mock:persistent: 0 bars"),
        ("mock:shifted/mock:random", {}, "option 'sessions' is missing"),
        ("mock:failing", {"failure": "timeot"}, "did you mean 'timeout'"),
        ("rules:fast", {}, "expected 'rules' alone"),
        ("recorded", {}, "expected recorded:FILE"),
        ("http:/127.0.0.1", {}, "expected a URL"),
        ("none", {}, "is no advisor"),
        ("off", {}, "is no advisor"),
        ("transformers", {}, "'transformers serve FOLDER'"),
        (
            "transformers:/models/phi",
            {"threads": 2},
            "transformers serve /models/phi'",
        ),
        ("http://127.0.0.1:8080/v1", {}, "option 'model' is missing"),
        ("http://127.0.0.1:8080/v1", {"model": "m", "api_key": "sk-x"}, "unknown option 'api_key'"),
        ("http://example.com/v1", {"model": "m"}, "plain http only"),
    ],
)
def test_what_cannot_be_made(kind, options, words):
    with pytest.raises(ConfigError) as caught:
        make_backend(kind, options)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
    assert "sk-x" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("none", {}),
        ("off", {}),
        ("rules", {}),
        ("mock:random", {}),
        ("mock:skilled:0.7", {"seed": 3}),
        ("mock:permuted/mock:skilled:0.7", {}),
        ("mock:delayed:5/mock:available:0.5/mock:oracle", {"seed": 1}),
        ("mock:turning:20/mock:random", {"then": "mock:oracle"}),
        ("http://localhost:1/v1", {"model": "m"}),
        ("http://localhost:1/v1", {}),  # its only model is found when the run starts
        ("mock:available:0.5/rules", {"horizon": 5}),
    ],
)
def test_a_kind_that_can_be_passes_without_a_market(kind, options):
    check_kind(kind, options)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mock", {}, "expected mock:KIND"),
        ("mock:skiled:0.6", {}, "advisor mock:skiled: unknown"),
        ("mock:delayed:5/mock:skiled", {}, "advisor mock:skiled: unknown"),
        ("mock:skilled:much", {}, r"expected a number \(q\)"),
        ("mock:skilled:1.2", {}, "q = 1.2, expected"),
        (
            "mock:available:0.5/mock:skilled:7",
            {},
            "q = 7, expected",
        ),
        ("mock:skilled:0.6", {"q": 0.7}, "q is given twice"),
        ("mock:oracle:1", {}, "takes no number"),
        ("mock:skilled/mock:random", {}, "changes no other backend"),
        ("mock:delayed:5", {}, r"mock:delayed/mock:skilled:0\.6"),
        ("mock:random", {"sed": 3}, "unknown option 'sed'"),
        ("rule", {}, "unknown; did you"),
        ("http://localhost:1/v1", {"modle": "m"}, "unknown option 'modle'"),
        ("table:absent.npz", {}, "expected table:FILE"),
        ("replay:absent.jsonl", {}, "expected replay:FILE"),
        ("recorded:absent.jsonl", {}, "expected recorded:FILE"),
    ],
)
def test_a_kind_that_cannot_be_is_refused_without_a_market(kind, options, message):
    with pytest.raises(ConfigError, match=message):
        check_kind(kind, options)
