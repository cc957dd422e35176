"""Recorded answers: what came back once comes back again, failures included."""

import json

import pytest

from jaxtrade.advisor.host.backends import RecordedBackend, RecordedRow, read_recorded, read_rows
from jaxtrade.advisor.host.types import Failure, parse_advice
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
    assert backend.bars == [*live]
    first, fenced, *others = [ask(backend, bar=bar) for bar in (3, 5, 6, 9, 4)]
    assert first.advice == fenced.advice == parse_advice(RAW).advice
    assert (first.raw, first.model, first.detail, fenced.detail) == (RAW, "tiny-1", "", "repaired")
    assert [answer.failure for answer in others] == [Failure.PARSE, Failure.EMPTY, Failure.EMPTY]


def test_identity_is_that_of_the_rows():
    def identity(texts, *form):
        rows = {bar: RecordedRow(bar=bar, raw=text) for bar, text in texts.items()}
        return RecordedBackend(rows, *form).identity()

    assert identity({1: "a", 2: "b"}) == identity({2: "b", 1: "a"}) != identity({1: "a", 2: "c"})
    assert identity({}, "pipe") != identity({})


def test_a_mapping_and_the_pipe_format():
    answer = ask(RecordedBackend({0: RecordedRow(bar=0, raw="SELL | 0.5 | x")}, "pipe"))
    assert answer.advice.sell == 1.5
    with pytest.raises(ConfigError, match="pipe"):
        RecordedBackend({}, "xml")


def test_rows_of_other_data_are_failures():
    for row in (
        RecordedRow(bar=0, raw=RAW, time="2023-03-01T10:31:00-05:00"),
        RecordedRow(bar=0, raw=RAW, symbol="NQ"),
    ):
        answer = ask(RecordedBackend({0: row}))
        assert (answer.advice, answer.failure) == (None, Failure.SCHEMA)
    assert (
        ask(
            RecordedBackend({0: RecordedRow(bar=0, raw=RAW, time=question(0).time, symbol="ES")})
        ).advice
        is not None
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no rows"),
        (["{}"], "file:1: 'bar': missing\nfile:1: 'raw': missing"),
        (['{"bar": 1, "raw": "x"}', '{"bar": 1, "raw": "y"}'], "file:2: bar 1 has"),
        (['{"bar": "1", "raw": "x"}'], "file:1: 'bar' = '1': expected"),
        (['{"bar": 1, "raw": null}'], "file:1: 'raw' = None: expected text"),
        (["[1]"], "file:1: list, expected an object with 'bar'"),
        (['{"bar": -1, "raw": "x"}'], "file:1: 'bar' = -1: expected"),
        (['{"bar": 1, "raw": "x", "row": "x"}'], "file:1: unknown key 'row'; did you mean 'raw'"),
        (["", '{"bar": 1, "raw": "x"'], "file:2: not JSON"),
    ],
)
def test_rows_that_cannot_be_used(lines, words):
    with pytest.raises(DataError, match=words):
        read_rows("file", lines)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_files_that_cannot_be_read(content, tmp_path):
    path = tmp_path / "file.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"file\.jsonl"):
        read_recorded(path)
