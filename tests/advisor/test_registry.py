"""Backends by name, and what is said of a name or option that cannot be."""

import numpy as np
import pytest

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.registry import check_kind, make_backend, takes
from jaxtrade.errors import ConfigError

TOLD = {"future": np.array([1, -1, 0, 1])}


@pytest.mark.parametrize(
    ("kind", "options", "identity"),
    [
        ("rules", {}, {"kind": "rules", "horizon": "30"}),
        ("mock:random", {"seed": 4}, {"kind": "mock:random", "seed": "4"}),
        ("mock:skilled:0.7", TOLD, {"kind": "mock:skilled", "q": "0.7"}),
        ("mock:skilled", {**TOLD, "q": 0.8}, {"q": "0.8"}),
        ("mock:adversarial:0.75", TOLD, {"q": "0.25"}),
        ("mock:constant:0.4", {"direction": "short"}, {"direction": "short", "confidence": "0.4"}),
        ("mock:delayed:5/mock:skilled:0.7", {**TOLD, "horizon": 9}, {"bars": "5", "of.q": "0.7"}),
        ("mock:available:0.25/rules", {"seed": 3}, {"seed": "3", "of.kind": "rules"}),
        ("mock:slow:0.01/mock:delayed:2/mock:random", {}, {"of.bars": "2"}),
        ("mock:turning:2/mock:random", {"then": mocks.Constant()}, {"then.kind": "mock:constant"}),
    ],
)
def test_names(kind, options, identity):
    backend = make_backend(kind, options)
    assert identity.items() <= backend.identity().items()
    backend.close()


def test_options_are_reported():
    assert "future" in takes("mock:delayed:5/mock:oracle")
    assert "future" not in takes("mock:random")
    assert {"model", "key_env", "seed"} <= takes("https://api.example.com/v1")
    assert takes("rules") == {"horizon"}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("gpt-4", {}, "gpt-4"),
        ("mock:skilled:0.6", {}, "'future'"),
        ("mock:skilled:nan", TOLD, "q = nan"),
        ("mock:skilled:0.6", {**TOLD, "sed": 1}, "'sed'"),
        ("mock:delayed:1.5/mock:random", {}, "1.5"),
        ("mock:delayed/mock:random", {}, "'bars'"),
        ("mock:failing", {"failure": "timeot"}, "'timeout'"),
        ("none", {}, "none"),
        ("transformers:/models/phi", {"threads": 2}, "transformers serve /models/phi'"),
        ("http://127.0.0.1:8080/v1", {}, "'model'"),
        ("http://127.0.0.1:8080/v1", {"model": "m", "api_key": "sk-x"}, "'api_key'"),
        ("http://example.com/v1", {"model": "m"}, "http"),
    ],
)
def test_what_cannot_be_made(kind, options, words):
    with pytest.raises(ConfigError) as caught:
        make_backend(kind, options)
    assert words in str(caught.value)
    assert "sk-x" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("mock", {}, "mock:KIND"),
        ("mock:skiled:0.6", {}, "'skilled'"),
        ("mock:delayed:5/mock:skiled", {}, "mock:skiled"),
        ("mock:skilled:much", {}, r"\(q\)"),
        ("mock:available:0.5/mock:skilled:7", {}, "q = 7"),
        ("mock:skilled:0.6", {"q": 0.7}, "q "),
        ("mock:oracle:1", {}, "mock:oracle"),
        ("mock:skilled/mock:random", {}, "mock:skilled"),
        ("mock:random", {"sed": 3}, "'sed'"),
        ("rule", {}, "'rules'"),
        ("http://localhost:1/v1", {"modle": "m"}, "'modle'"),
        ("table:absent.npz", {}, "table:FILE"),
        ("replay:absent.jsonl", {}, "replay:FILE"),
        ("recorded:absent.jsonl", {}, "recorded:FILE"),
    ],
)
def test_a_kind_that_cannot_be_is_refused_without_a_market(kind, options, words):
    with pytest.raises(ConfigError, match=words):
        check_kind(kind, options)
