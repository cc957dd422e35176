"""Hand-made sources and services for tests of the bridge between training loop and advisor."""

from collections import deque

import numpy as np

from jaxtrade.advisor.bridge import Bridge
from jaxtrade.advisor.host.journal import Journal, row_text
from jaxtrade.advisor.host.service import AdviceRow, AdviceSource

T, M = 100, 4
HEADER = {
    "run": "r",
    "config": "c",
    "prompt_version": "p1",
    "schema": "s1",
    "identity": {},
    "versions": {},
}


def row(bar, confidence=0.8):
    return AdviceRow.of(bar, (0.1, 1.5, -0.5, confidence, 0.25, 30))


class HandSource(AdviceSource):
    """Gives what the test has put into `rows`; remembers what was wanted."""

    def __init__(self, rows=()):
        self.rows = deque(rows)
        self.wants = []
        self.stops = 0

    def take(self, deltas, most):
        return [self.rows.popleft() for _ in range(min(most, len(self.rows)))]

    def want(self, wants):
        self.wants.append(list(wants))

    def in_flight(self):
        return self.wants[-1] if self.wants else []

    def stop(self):
        self.stops += 1


class HandService:
    """An advice service whose answers the test gives."""

    def __init__(self):
        self.ready = deque()
        self.batches = []
        self.stopped = False

    def submit(self, wanted):
        self.batches.append(list(wanted))

    def take(self, most):
        return [self.ready.popleft() for _ in range(min(most, len(self.ready)))]

    def statistics(self):
        return {"asked": 12}

    def stop(self):
        self.stopped = True

    def bars(self):
        return [[asked.bar for asked, _ in batch] for batch in self.batches]


def replaying(recorded, bars=T, rows=M, **more):
    """A bridge that shows a recording again from its start."""
    bridge = Bridge(AdviceSource(), bars, rows, history=recorded, **more)
    start = {"deltas": 0, "sha256": recorded.digests[0], "until": -1, "in_flight": []}
    bridge.recall(start)
    return bridge


class FullDisk:
    """A file that takes a part of a line, then nothing."""

    def __init__(self, file):
        self.file = file

    def write(self, line):
        self.file.write(line[:5])  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    def __getattr__(self, name):
        return getattr(self.file, name)


def journal(folder):
    return Journal.create(folder / "journal.jsonl", HEADER)


def append(journal, update, version, bars, rows):
    """Record rows of numbers."""
    return journal.append(update, version, bars, [row_text(row) for row in rows])


def plain(delta):
    """Version, and rows by bar without the padding; the shapes are checked."""
    bars, rows = np.asarray(delta.bars), np.asarray(delta.rows)
    assert (bars.dtype, rows.dtype, np.asarray(delta.version).dtype) == (
        np.int32,
        np.float32,
        np.int32,
    )
    assert (bars.shape, rows.shape, np.shape(delta.version)) == ((M,), (M, 6), ())
    real = bars < T
    assert (rows[~real] == 0).all()
    assert (bars[~real] == T).all()
    return int(delta.version), {
        int(bar): list(map(float, values))
        for bar, values in zip(bars[real], rows[real], strict=True)
    }


def seen(bridge, updates):
    return [plain(bridge.delta(update)) for update in updates]


def bytes_of(delta):
    return delta.bars.tobytes(), delta.rows.tobytes(), int(delta.version)
