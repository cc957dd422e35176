"""On the bars of the held-out sessions, one at a time, the account is that of the evaluation."""

import json

import jax
import numpy as np
import pytest

from jaxtrade.env.state import EndReason
from jaxtrade.paper.feed import bars_messages
from jaxtrade.paper.session import JOURNAL
from tests.paper.made import begin, evaluated, world


class Witness:
    """What an engine did after each decision, by the market row of the decision. A step that is
    made again replaces the one before."""

    def __init__(self, engine, bars):
        self.rows, self.orders = {}, []
        times = {int(time): row for row, time in enumerate(bars.time)}
        stream = engine.stream
        decide_at, step = stream.decide_at, stream.step

        def decided(seen):
            found = decide_at(seen)
            row = times[int(stream.rows.bar.time[0])]
            self.rows[row] = {"seen": seen, "action": found.action, "account": engine.now.number}
            self.orders.append((found.order, row))
            return found

        def stepped(state, order):
            row = next(row for known, row in self.orders[-2:] if known is order)
            moved, event = step(state, order)
            money = engine.now.base + int(moved.account.equity)
            self.rows[row] |= {"event": event, "equity": money, "held": moved.position.quantity}
            return moved, event

        stream.decide_at, stream.step = decided, stepped


@pytest.mark.parametrize(
    "name", ["free", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ES", "FX"))]
)
def test_the_account_is_that_of_the_evaluation(name, tmp_path):
    """Observations bit by bit, masks, actions, fills, equity, accounts."""
    made, (record, observations) = world(name), evaluated(name)
    session = begin(name, tmp_path)
    seen = Witness(session.engine, made.bars)
    found = session.trade(bars_messages(made.feed))
    session.close()
    void = [row for row, each in seen.rows.items() if "event" not in each]
    # A decision after which its session turned out to be over. The bars of ES go on after the flat time.
    assert bool(void) == (name != "ES")
    assert {*record.row.tolist()} == {*seen.rows} - {*void}
    for i, row in enumerate(record.row.tolist()):
        each = seen.rows[row]
        assert each["seen"].observation.tobytes() == observations[i].tobytes(), row
        assert np.array_equal(each["seen"].mask, record.ref.mask[i]), row
        assert made.env.actions[record.action[i]] == each["action"], row
        expected = jax.tree.map(lambda leaf, i=i: leaf[i], record.event)
        for known, mine in zip(
            jax.tree.leaves(expected), jax.tree.leaves(each["event"]), strict=True
        ):
            assert int(known) == int(mine), row
        assert int(record.equity[i]) == each["equity"], row
        assert int(record.account[i]) == each["account"], row
        assert int(record.quantity[i]) == int(each["held"]), row
    kinds = [json.loads(line)["kind"] for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert ("void" in kinds) == (name != "ES")  # a session of one bar, which is none
    assert found["sessions"] == len(made.decisions.ids)
    assert found["account"] == int(record.account[-1]) + 1
    assert found["equity"] == 50_000 + record.equity[-1] / 1000
    entries = np.count_nonzero(record.event.entry_quantity)
    assert entries == found["trades"] > 0
    if name != "free":
        assert np.any(record.end != EndReason.NONE)
        assert int(record.account[-1]) > 0
