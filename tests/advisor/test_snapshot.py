"""A snapshot comes back as it was, and not over other bars nor after an edit."""

import json
from dataclasses import replace

import numpy as np
import pytest

from jaxtrade.advisor.compose import table_of
from jaxtrade.advisor.table import load_table, market_entries, read_snapshot, save_table
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
    np.testing.assert_array_equal(rows, ROWS[[2, 0, 1]].astype(np.float32))
    assert (bars.dtype, rows.dtype) == (np.int32, np.float32)
    assert (manifest["symbol"], manifest["rows"]) == ("ES", 3)
    assert [each.name for each in tmp_path.iterdir()] == ["s.npz"]
    digest = read_snapshot(path).manifest["sha256"]  # that of the content
    assert read_snapshot(saved(tmp_path)).manifest["sha256"] == digest


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


EDITS = {
    "a row": (lambda arrays, _: arrays["rows"].__setitem__((1, 3), 0.9), "edited"),
    "a bar": (lambda arrays, _: arrays["bars"].__setitem__(0, 7), "edited"),
    "who was asked": (lambda _, manifest: manifest.update(identity={}), "edited"),
    "the type": (lambda arrays, _: arrays.update(rows=arrays["rows"] * np.float64(1)), "float64"),
    "the digest": (lambda _, manifest: manifest.pop("sha256"), "not a snapshot"),
}


@pytest.mark.parametrize(("change", "words"), EDITS.values(), ids=EDITS)
def test_an_edited_one_is_refused(change, words, tmp_path):
    path = saved(tmp_path)
    rewritten(path, lambda *_: None)
    load_table(path, market())  # rewriting alone does nothing
    rewritten(path, change)
    with pytest.raises(DataError, match=words):
        load_table(path, market())


def test_what_is_no_snapshot_is_refused(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    np.savez(path, bars=np.array([{"a": 1}], object), rows=ROWS, manifest=np.array("{}"))
    pickled = path.read_bytes()  # is not opened
    for content in (b"", b"{}", whole[:-30], b"\x80\x04N.", pickled):
        path.write_bytes(content)
        with pytest.raises(DataError, match=str(path)):
            read_snapshot(path)
    for absent in (tmp_path / "other.npz", tmp_path):
        with pytest.raises(DataError, match=str(absent)):
            read_snapshot(absent)


@pytest.mark.parametrize("bars", [[4, 4], [-1, 4], [4]])
@pytest.mark.parametrize("value", [0.0, np.nan])
def test_what_cannot_be_is_not_written(bars, value, tmp_path):
    rows = ROWS[:2].copy()
    rows[0, 1] = value
    with pytest.raises(ValueError, match=r"repeated|negative|1 bars|finite"):
        save_table(tmp_path / "s.npz", np.array(bars if value == 0 else [4, 5]), rows, {})
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_a_snapshot():
    table = table_of(BARS, ROWS.astype(np.float32), 2000)
    version, rows = np.asarray(table.version), np.asarray(table.rows)
    assert np.flatnonzero(version).tolist() == sorted(BARS)
    np.testing.assert_array_equal(rows[BARS], ROWS.astype(np.float32))
    assert (version[1290], rows[:1290].any(), int(table.newest)) == (1, False, 1)
