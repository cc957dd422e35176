"""`records.npz`: what is read back is what the evaluation had, equal evaluations give equal bytes,
faults are named.
"""

import dataclasses
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtrade.env.state import ExitReason
from jaxtrade.errors import DataError
from jaxtrade.evaluation import metrics, records
from jaxtrade.evaluation.evaluate import write
from jaxtrade.evaluation.records import ABSENT, KINDS, PASSES, read_records, write_records
from tests.evaluation.tiny import walked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def result():
    return walked()


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    made = tmp_path_factory.mktemp("evaluation")
    write(result, made, "random")
    return made


@pytest.fixture(scope="module")
def found(folder):
    return read_records(folder / "records.npz")


def test_days_and_bars_are_those_of_the_evaluation(result, found):
    """Bars hold every decision and the flat bar after it."""
    assert found.agents == tuple(agent.name for agent in result.agents)
    assert found.shown == "random"
    assert found.dates.tolist() == result.decisions.date.tolist()
    for number, agent in enumerate(result.agents):
        assert found.account_daily_net[number].sum() == pytest.approx(
            agent.account_figures["net_profit"], abs=1e-9
        )
        own = metrics.session_pnl(agent.strategy.equity, result.decisions.last)
        assert np.array_equal(np.round(found.daily_net[number] * 1000).astype(int), own)
    assert found.meta["settings"] == json.loads(json.dumps(result.settings))
    assert found.meta["actions"] == list(result.actions)

    bars, decisions = found.bars, result.decisions
    assert np.array_equal(bars.row[bars.decision], decisions.rows)
    assert np.array_equal(bars.row[bars.decision + 1], decisions.rows + 1)
    assert np.array_equal(bars.session[bars.decision], decisions.session)
    assert len(bars.row) == len(decisions.rows) + len(decisions.ids)
    for name in ("open", "high", "low", "close"):
        assert np.array_equal(getattr(bars, name), getattr(result, name)[bars.row])
    assert np.array_equal(bars.time, result.clock.time[bars.row])


@pytest.mark.parametrize("which", PASSES)
def test_a_pass_is_read_back_whole(result, found, which):
    record, own = getattr(result.agent("random"), which), getattr(found.bars, which)
    names = "action legal mask quantity equity account high_water active end"
    for name in names.split():
        assert np.array_equal(own[name], getattr(record, name)), name
    assert np.array_equal(own["reached"], record.target)
    held = record.quantity != 0
    assert held.any()
    assert np.array_equal(own["stop"][held], record.stop[held])
    assert (own["stop"][~held] == ABSENT).all()
    assert (own["target"][~held] == ABSENT).all()
    side = np.sign(record.quantity[held])
    assert (side * (own["target"][held] - own["stop"][held]) > 0).all(), (
        "the target of a long position is above its stop"
    )
    floor = own["floor"]
    assert (floor == ABSENT).all() if which == "strategy" else (floor > -(10**9)).all()


def test_events_are_the_fills_of_the_trades(result, found):
    """Each entry and each exit of the trade table is one event, with bar and price."""
    trades, bars = result.agent("random").trades, found.bars
    names = ("bar", "kind", "quantity", "price", "reason")
    events = {name: bars.strategy[f"event.{name}"] for name in names}
    assert len(trades) > 5
    row = bars.row[bars.decision[events["bar"]] + 1]
    entered, left = events["kind"] == KINDS.index("entry"), events["kind"] != KINDS.index("entry")
    assert np.array_equal(row[entered], trades.entry_row)
    assert np.array_equal(events["price"][entered], trades.entry_price)
    assert np.array_equal(events["quantity"][entered], trades.side * trades.contracts)
    assert np.array_equal(row[left], trades.exit_row)
    assert np.array_equal(events["price"][left], trades.exit_price)
    assert np.array_equal(events["reason"][left], trades.reason)
    assert (events["reason"][events["kind"] == 0] == ExitReason.ORDER).all()
    for agent in result.agents:
        own = found.bars.trades[agent.name]
        assert own.keys() == {field.name for field in dataclasses.fields(agent.trades)}
        for name, values in own.items():
            assert np.array_equal(values, getattr(agent.trades, name)), name


def test_equal_evaluations_give_equal_bytes(result, folder, tmp_path):
    write_records(tmp_path / "a.npz", result.to_records(result.agent("random")))
    assert (tmp_path / "a.npz").read_bytes() == (folder / "records.npz").read_bytes()
    write_records(tmp_path / "b.npz", read_records(tmp_path / "a.npz"))
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "a.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@given(
    st.lists(st.integers(-(2**62), 2**62 - 1), max_size=20), st.sampled_from(["equity", "quantity"])
)
def test_columns_are_stored_without_loss(values, name):
    column = np.array(values, np.int64)
    assert records._whole(name, records._encode_column(name, column)).tolist() == values


def test_a_missing_or_damaged_file_says_what_to_do(folder, tmp_path):
    with pytest.raises(DataError, match=r"none\.npz: .*jaxtrade evaluate"):
        read_records(tmp_path / "none.npz")
    whole = (folder / "records.npz").read_bytes()
    for name, data in (("cut", whole[:-200]), ("text", b"hello"), ("empty", b"")):
        (tmp_path / f"{name}.npz").write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}\.npz: cannot be read"):
            read_records(tmp_path / f"{name}.npz")


@pytest.mark.parametrize("lost", ["strategy.equity", "account.mask", "strategy.event.price"])
def test_a_lost_column_is_damage(lost, folder, tmp_path):
    with np.load(folder / "records.npz") as whole:
        np.savez(tmp_path / "lost.npz", **{name: whole[name] for name in whole if name != lost})
    with pytest.raises(DataError, match=r"lost\.npz: cannot be read"):
        read_records(tmp_path / "lost.npz")


def test_a_changed_byte_never_changes_what_is_read(folder, tmp_path):
    """It is refused, or it lies where the archive holds no content, such as an entry's date."""
    whole, refused = (folder / "records.npz").read_bytes(), 0
    positions = range(40, len(whole), max(1, len(whole) // 150))
    for at in positions:
        (tmp_path / "bits.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        try:
            found = read_records(tmp_path / "bits.npz")
        except DataError:
            refused += 1
        else:
            write_records(tmp_path / "again.npz", found)
            assert (tmp_path / "again.npz").read_bytes() == whole, f"byte {at}"
    assert refused > 0.7 * len(positions)


def test_another_format_is_refused(found, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FORMAT", 99)
    write_records(tmp_path / "new.npz", found)
    monkeypatch.undo()
    with pytest.raises(DataError, match="format 99, this version reads 1"):
        read_records(tmp_path / "new.npz")


def test_parts_that_do_not_fit_are_named(found, tmp_path):
    write_records(tmp_path / "days.npz", dataclasses.replace(found, dates=found.dates[1:]))
    with pytest.raises(DataError, match=r"days\.npz: .*4 agents, 3 days.*\(4, 4\)"):
        read_records(tmp_path / "days.npz")
