"""The exchange between chunks: how much is asked and comes in, in fixed shapes, and what earlier
versions did.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxtrade.advisor.bridge import MOST_BYTES, Bridge
from jaxtrade.advisor.compose import config_digest
from jaxtrade.advisor.host.journal import read_journal
from jaxtrade.advisor.table import Delta, empty_table, make_view
from jaxtrade.config import AdvisorConfig
from jaxtrade.rl.advice import AdviceExchange, start_advice
from jaxtrade.runs import rundir
from tests.advisor.bridge_parts import HandSource, M, T, plain, replaying, row

OLD = Path(__file__).parents[1] / "fixtures" / "run_advised_0_1_0"  # made by dda6ca3


def exchange_of(bridge, updates, **keys):
    config = AdvisorConfig.model_validate({"kind": "none", **keys})
    nothing = np.zeros(bridge.bars, np.int8)
    view = make_view(empty_table(bridge.bars), nothing.astype(np.int32))
    settings = AdvisorConfig(kind="none", bins=1, memory=10)
    start = start_advice(view, nothing, nothing.astype(bool), settings)
    return AdviceExchange(config, start, bridge, updates)


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({}, AdvisorConfig().service.queue_size),
        ({"service": {"queue_size": 10_000}}, 20 * 64),
        ({"demand": 3}, 60),
        ({"demand_per": "chunk"}, 64),
        ({"service": {"queue_size": 200}}, 200),  # the queue would drop the rest
        ({"transport": "callback"}, 64),  # one request per update
    ],
)
def test_questions_scale_with_the_chunk_within_what_the_queue_holds(keys, most):
    assert exchange_of(Bridge(HandSource(), 5000, M), 20, **keys).most == most


def test_the_largest_callback_stays_below_its_limit_by_default():
    usual = AdvisorConfig()
    assert 4 + 8 * usual.demand + 28 * usual.rows + 4 < MOST_BYTES


def test_answers_come_in_at_each_update_of_a_chunk():
    """Twice as many as one update takes: the second update has the rest, in arrays of the same
    shape.
    """
    exchange = exchange_of(Bridge(HandSource([row(bar) for bar in range(M + 2)]), T, M), 3)
    found, empty = exchange.inputs(6, 3), exchange.inputs(9, 3)
    for part in (found, empty):
        assert (part.bars.shape, part.rows.shape, part.version.shape) == ((3, M), (3, M, 6), (3,))
    deltas = zip(found.bars, found.rows, found.version, strict=True)
    parts = [plain(Delta(*part)) for part in deltas]
    assert [(version, sorted(rows)) for version, rows in parts] == [
        (1, [0, 1, 2, 3]),
        (2, [4, 5]),
        (0, []),
    ]
    assert (empty.bars == T).all()


@pytest.mark.slow
def test_the_journal_of_an_earlier_version_comes_in_as_it_was_recorded():
    recorded = read_journal(OLD / "advice.jsonl")
    exchange = exchange_of(replaying(recorded, 10_000, 256), 2)
    seen = {}
    for update in range(0, 16, 2):
        found = exchange.inputs(update, 2)
        assert not found.version[1]  # it recorded nothing within a chunk
        if found.version[0]:
            seen[update] = set(found.bars[0][found.bars[0] < 10_000].tolist())
    exchange.bridge(None, 16)
    assert seen == {delta.update: set(delta.bars) for delta in recorded.deltas}
    assert seen


def test_a_run_of_an_earlier_version_still_belongs_to_its_journal_and_asks_as_it_did():
    config, _ = rundir.read_run(OLD)
    assert config.advisor.demand_per == "chunk"
    header = json.loads((OLD / "advice.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert config_digest(config) == header["config"]
    today = config.model_copy(
        update={"advisor": config.advisor.model_copy(update={"demand_per": "update"})}
    )
    assert config_digest(today) == header["config"]  # so `train --advisor replay:FILE` takes it too
