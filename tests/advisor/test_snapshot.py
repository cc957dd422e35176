"""A snapshot comes back as it was, and not over other bars nor after an edit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxtrade.advisor.compose import table_of
from jaxtrade.advisor.snapshot import load_table, market_entries, read_snapshot, save_table
from jaxtrade.data.market import build_market
from jaxtrade.errors import DataError
from tests.advisor.markets import EURUSD, config, market

BARS = np.array([1300, 1302, 1290])
ROWS = np.array([[0, 1.5, 0, 0.5, 0.2, 30], [0, 0, 3, 1.0, 0.1, 5], [0.9, 0, 0, 0.3, 0.7, 390]])


def saved(folder, **more):
    path = folder / "s.npz"
    save_table(path, BARS, ROWS, {**market_entries(market()), "prompt_version": "v1:0", **more})
    return path


def test_it_comes_back_in_order_and_nothing_else_is_left(tmp_path):
    path = saved(tmp_path)
    bars, rows, manifest = load_table(path, market())
    assert bars.tolist() == [1290, 1300, 1302]
    assert bars.dtype == np.int32
    np.testing.assert_array_equal(rows, ROWS[[2, 0, 1]].astype(np.float32))
    assert rows.dtype == np.float32
    assert manifest["symbol"] == "ES"
    assert manifest["rows"] == 3
    assert [each.name for each in tmp_path.iterdir()] == ["s.npz"]
    first = read_snapshot(path).manifest["sha256"]
    assert (
        read_snapshot(saved(tmp_path)).manifest["sha256"] == first
    )  # the same content, the same digest


def test_an_empty_one_comes_back(tmp_path):
    save_table(tmp_path / "s.npz", np.array([]), np.zeros((0, 6)), market_entries(market()))
    bars, rows, _ = load_table(tmp_path / "s.npz", market())
    assert (bars.shape, rows.shape) == ((0,), (0, 6))
    assert int(table_of(bars, rows, 10).newest) == 0


def test_it_serves_every_task_and_scaling_over_the_same_bars(tmp_path):
    """Rows are numbered by bars alone, so one precomputation serves a whole curriculum; the
    markets' own fingerprints differ."""
    path = saved(tmp_path)
    other = build_market(market().bars, config("env.task=advised", "env.scaling=seed"))
    assert other.fingerprint != market().fingerprint
    assert load_table(path, other).bars.tolist() == [1290, 1300, 1302]


def test_other_bars_are_refused_with_what_differs(tmp_path):
    path, mine = saved(tmp_path), market()
    with pytest.raises(DataError, match="ES there, EURUSD here"):
        load_table(path, market(*EURUSD))
    shorter = replace(mine, bars=mine.bars.rows(slice(0, 5000)))
    with pytest.raises(DataError, match="6826 there, 5000 here"):
        load_table(path, shorter)
    for name, row in (("close", 6000), ("open", 0), ("volume", 3), ("time", 6825)):
        values = getattr(mine.bars, name).copy()
        values[row] += 1
        with pytest.raises(DataError, match="content of the bars"):
            load_table(path, replace(mine, bars=replace(mine.bars, **{name: values})))
    sides = market(*EURUSD)
    assert sides.bars.ask is not None
    moved = replace(sides.bars, ask=sides.bars.ask._replace(close=sides.bars.ask.close + 1))
    assert market_entries(replace(sides, bars=moved)) != market_entries(sides)


def rewritten(path, change):
    with np.load(path) as found:
        arrays = {name: found[name] for name in ("bars", "rows")}
        manifest = json.loads(str(found["manifest"]))
    change(arrays, manifest)
    np.savez(path, **arrays, manifest=np.array(json.dumps(manifest)))


EDITS: dict[str, tuple[Callable[[dict[str, np.ndarray], dict[str, Any]], object], str]] = {
    "a row": (lambda arrays, _: arrays["rows"].__setitem__((1, 3), 0.9), "damaged or edited"),
    "a bar": (lambda arrays, _: arrays["bars"].__setitem__(0, 7), "damaged or edited"),
    "the market": (lambda _, manifest: manifest.update(symbol="NQ"), "damaged or edited"),
    "who was asked": (
        lambda _, manifest: manifest.update(identity={"kind": "rules"}),
        "damaged or edited",
    ),
    "a row less": (
        lambda arrays, _: arrays.update(bars=arrays["bars"][:2], rows=arrays["rows"][:2]),
        "damaged or edited",
    ),
    "the type": (
        lambda arrays, _: arrays.update(rows=arrays["rows"].astype(np.float64)),
        "'rows' is float64",
    ),
    "the digest": (lambda _, manifest: manifest.pop("sha256"), "not a snapshot"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_one_is_refused(edit, tmp_path):
    path = saved(tmp_path)
    rewritten(path, lambda *_: None)
    load_table(path, market())  # rewriting alone does nothing
    change, words = EDITS[edit]
    rewritten(path, change)
    with pytest.raises(DataError, match=words):
        load_table(path, market())


def test_what_is_no_snapshot_is_refused(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    for content in (b"", b"{}", whole[:-30], whole[: len(whole) // 2], b"\x80\x04N."):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a snapshot"):
            read_snapshot(path)
    np.savez(path, bars=np.array([{"a": 1}], object), rows=ROWS, manifest=np.array("{}"))
    with pytest.raises(DataError, match="not a snapshot"):  # a pickle is not opened
        read_snapshot(path)
    with pytest.raises(DataError, match="no such file"):
        read_snapshot(tmp_path / "other.npz")
    with pytest.raises(DataError, match="not a snapshot"):
        read_snapshot(tmp_path)


@pytest.mark.parametrize(
    ("bars", "rows", "words"),
    [
        ([4, 4], ROWS[:2], "repeated"),
        ([-1, 4], ROWS[:2], "negative"),
        ([4], ROWS[:2], "for 1 bars"),
        ([4], [[0, np.nan, 0, 0, 0, 1]], "not finite"),
    ],
)
def test_what_cannot_be_is_not_written(bars, rows, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        save_table(tmp_path / "s.npz", np.array(bars), np.array(rows), {})
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_a_snapshot():
    table = table_of(BARS, ROWS.astype(np.float32), 2000)
    assert np.flatnonzero(np.asarray(table.version)).tolist() == [1290, 1300, 1302]
    assert np.asarray(table.version)[1290] == 1
    np.testing.assert_array_equal(np.asarray(table.rows)[1302], ROWS[1].astype(np.float32))
    assert np.asarray(table.rows)[:1290].sum() == 0
    assert int(table.newest) == 1
