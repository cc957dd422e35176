"""A long run prints a bounded number of progress lines: a notebook keeps every line."""

import io
import itertools
import math

import pytest

from jaxtrade.progress.screen import MOST_LINES, Plain, worth_a_line


@pytest.mark.parametrize(("total", "size"), [(65, 5), (500, 5), (101, 1), (12_345, 5)])
def test_a_run_shows_at_most_a_hundred_chunks_and_the_last(total, size):
    """Evenly spread, and every one of a short run."""
    starts = range(0, total, size)
    chunks = [
        [
            {"update": update, "total_updates": total}
            for update in (start + 1, min(start + size, total))
        ]
        for start in starts
    ]
    shown = [i for i, rows in enumerate(chunks) if worth_a_line(rows)]
    assert len(shown) == len(chunks) or len(shown) <= MOST_LINES < len(chunks)
    assert shown[-1] == len(chunks) - 1
    gaps = [b - a for a, b in itertools.pairwise(shown)]
    assert max(gaps) <= math.ceil(len(chunks) / MOST_LINES)


def test_plain_lines_keep_to_it():
    stream = io.StringIO()
    sink = Plain(stream)
    figures = {"steps": 1, "seconds": 1.0, "steps_per_second": 1.0, "eta_seconds": 0.0}
    for update in range(1, 1001):
        sink.write([{"update": update, "total_updates": 1000, **figures}])
    assert 0 < len(stream.getvalue().splitlines()) <= MOST_LINES
