"""Recorded answers: what came back once comes back again, failures included."""

from __future__ import annotations

import json

import pytest

from jaxtrade.advisor.host import mocks
from jaxtrade.advisor.host.backends import RecordedBackend, RecordedRow, read_recorded, read_rows
from jaxtrade.advisor.host.types import Failure
from jaxtrade.errors import ConfigError, DataError
from tests.advisor.asking import ask, question, recorded_line
from tests.advisor.servers import GOOD

RAW = json.dumps(GOOD)


def test_round_trip(tmp_path):
    live = {3: RAW, 5: "```\n" + RAW + "\n```", 6: 'odd: "\u2028\ud83d\ude00" NaN', 9: ""}
    lines = [recorded_line(question(bar), raw, "tiny-1") for bar, raw in live.items()]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    backend = RecordedBackend(read_recorded(path))
    assert backend.bars == [3, 5, 6, 9]
    first = ask(backend, bar=3)
    assert first.advice is not None
    assert (first.advice.buy, first.raw, first.model, first.detail) == (
        pytest.approx(2.1),
        RAW,
        "tiny-1",
        "",
    )
    assert ask(backend, bar=5).detail == "repaired"
    assert ask(backend, bar=6).failure is Failure.PARSE
    assert ask(backend, bar=9).failure is Failure.EMPTY
    assert ask(backend, bar=4).failure is Failure.EMPTY


def test_identity_is_that_of_the_rows():
    a, b, c = (RecordedRow(text) for text in "abc")
    one, same, other = (
        RecordedBackend(rows) for rows in ({1: a, 2: b}, {2: b, 1: a}, {1: a, 2: c})
    )
    assert one.identity() == same.identity() != other.identity()
    assert RecordedBackend({}, "pipe").identity() != RecordedBackend({}).identity()


def test_a_mapping_and_the_pipe_format():
    answer = ask(RecordedBackend({0: RecordedRow("SELL | 0.5 | x")}, "pipe"))
    assert answer.advice is not None
    assert answer.advice.sell == 1.5
    with pytest.raises(ConfigError, match="json or pipe"):
        RecordedBackend({}, "xml")


def test_rows_of_other_data_are_failures():
    for row in (RecordedRow(RAW, time="2023-03-01T10:31:00-05:00"), RecordedRow(RAW, symbol="NQ")):
        answer = ask(RecordedBackend({0: row}))
        assert (answer.advice, answer.failure) == (None, Failure.SCHEMA)
        assert "was recorded for" in answer.detail
    assert ask(RecordedBackend({0: RecordedRow(RAW, question(0).time, "ES")})).advice is not None


def test_a_recording_can_be_permuted():
    rows = {bar: RecordedRow(json.dumps({**GOOD, "horizon_bars": bar + 1})) for bar in range(20)}
    placebo = mocks.Permuted(RecordedBackend(rows), range(20), seed=2)
    found = [ask(placebo, bar=bar).advice for bar in range(20)]
    horizons = [advice.horizon for advice in found if advice]
    assert sorted(horizons) == list(range(1, 21))
    assert horizons != sorted(horizons)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no rows"),
        (["{}"], "file:1: expected an object"),
        (['{"bar": 1, "raw": "x"}', '{"bar": 1, "raw": "y"}'], "file:2: bar 1 has"),
        (['{"bar": "1", "raw": "x"}'], "file:1: bar '1', expected"),
        (['{"bar": true, "raw": "x"}'], "file:1: bar True"),
        (['{"bar": -1, "raw": "x"}'], "file:1: bar -1"),
        (['{"bar": 1, "raw": null}'], "file:1: raw is"),
        (['{"bar": 1, "raw": "x", "key": "y"}'], "file:1: expected an object"),
        (["", '{"bar": 1, "raw": "x"'], "file:2: not JSON"),
    ],
)
def test_rows_that_cannot_be_used(lines, words):
    with pytest.raises(DataError, match=words):
        read_rows("file", lines)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_recorded(tmp_path / "absent.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read"):
        read_recorded(tmp_path / "bytes")
