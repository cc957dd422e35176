"""A long run prints a bounded number of progress lines: a notebook keeps every line."""

from __future__ import annotations

import io
import itertools
import math

import pytest

from jaxtrade.progress.plain import Plain
from jaxtrade.storage.sparse import MOST_LINES, worth_a_line


def chunks(total, size):
    return [
        [{"update": u + 1, "total_updates": total} for u in range(start, min(start + size, total))]
        for start in range(0, total, size)
    ]


@pytest.mark.parametrize(("total", "size"), [(65, 5), (100, 1), (500, 5)])
def test_a_short_run_shows_every_chunk(total, size):
    assert all(worth_a_line(rows) for rows in chunks(total, size))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "size"),
    [
        (101, 1),
        (12_345, 5),
    ],
)
def test_a_long_run_shows_at_most_a_hundred_chunks_and_the_last(total, size):
    every = chunks(total, size)
    shown = [i for i, rows in enumerate(every) if worth_a_line(rows)]
    assert len(shown) <= MOST_LINES
    assert shown[-1] == len(every) - 1
    gaps = [b - a for a, b in itertools.pairwise(shown)]
    assert max(gaps) <= math.ceil(len(every) / MOST_LINES), "evenly spread"


def test_plain_lines_keep_to_it():
    stream = io.StringIO()
    sink = Plain(stream)
    for rows in chunks(1000, 1):
        sink.write(
            [
                row
                | {
                    "steps": row["update"],
                    "seconds": 1.0,
                    "steps_per_second": 1.0,
                    "eta_seconds": 0.0,
                    "episode_reward": 0.0,
                    "episode_length": 1.0,
                    "win_rate": 0.0,
                }
                for row in rows
            ]
        )
    assert 0 < len(stream.getvalue().splitlines()) <= MOST_LINES
