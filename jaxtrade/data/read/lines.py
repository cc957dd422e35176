"""Split the bytes of a CSV file into columns of cells, if every line has the same plain form.

A file that this module does not split is not wrong: it may have quotes, text beyond ASCII or odd
line ends, or a fault.
`tabular` then reads it line by line, and names the fault.
"""

from __future__ import annotations

import numpy as np

from jaxtrade.data.read.cells import Cells

CHUNK = 1 << 22  # bytes searched for separators at once
NEWLINE, RETURN, SPACE = b"\n", ord("\r"), 32


def last_line_end(raw: bytes) -> int:
    """The place after the last line that is not blank, without its line end."""
    stop = len(raw)
    while stop:
        begin = raw.rfind(NEWLINE, 0, stop) + 1
        if raw[begin:stop].strip():
            return stop - 1 if raw[stop - 1 : stop] == b"\r" else stop
        stop = begin - 1 if begin else 0
    return 0


def split_cells(raw: bytes, start: int, separator: str, fields: int) -> list[Cells] | None:
    """One `Cells` per field of the lines that begin at `start`.

    None unless the lines are ASCII without quotes, each with exactly `fields` fields and the same
    line end.
    """
    stop = last_line_end(raw)
    if stop <= start or raw.find(b'"', start) >= 0:
        return None
    count = raw.count(NEWLINE, start, stop) + 1
    ends = np.empty((fields, count), np.uint32)
    first_end = raw.find(NEWLINE, start, stop)
    returns = first_end > 0 and raw[first_end - 1] == RETURN
    begin, done = start, 0
    while start < stop:
        cut = raw.rfind(NEWLINE, start, min(start + CHUNK, stop)) if start + CHUNK < stop else stop
        if cut < start:
            return None
        places = _separators(raw, start, cut, ord(separator), fields, returns)
        if places is None:
            return None
        ends[:, done : done + places.shape[1]] = places
        done, start = done + places.shape[1], cut + 1
    return _columns(raw, ends, begin, 2 if returns else 1)


def _separators(
    raw: bytes, start: int, stop: int, separator: int, fields: int, returns: bool
) -> np.ndarray | None:
    """Places after each field of the lines in `raw[start:stop]`, int64[fields, lines]; the last
    line's end is `stop`.

    None if a line has another number of fields, another line end or a control character.
    """
    block = np.frombuffer(raw, np.uint8, stop - start, start)
    # As signed numbers, bytes beyond ASCII are negative: they count as control characters, which no
    # form contains.
    marks = np.flatnonzero((block.view(np.int8) < SPACE) | (block == separator))
    kinds = block[marks]
    if returns:  # the last line of the chunk lacks its line feed; the file's last line may lack the return too
        if not len(kinds) or kinds[-1] != RETURN:
            marks, kinds = np.append(marks, len(block)), np.append(kinds, np.uint8(RETURN))
        marks, kinds = np.append(marks, marks[-1] + 1), np.append(kinds, np.uint8(ord("\n")))
    else:
        marks, kinds = np.append(marks, len(block)), np.append(kinds, np.uint8(ord("\n")))
    form = [separator] * (fields - 1) + ([RETURN] if returns else []) + [ord("\n")]
    if len(kinds) % len(form) or (kinds.reshape(-1, len(form)) != np.array(form, np.uint8)).any():
        return None
    marks = marks.reshape(-1, len(form))
    if returns and (marks[:, -1] - marks[:, -2] != 1).any():
        return None
    return marks[:, :fields].T + start


def _columns(raw: bytes, ends: np.ndarray, begin: int, line_end: int) -> list[Cells]:
    """ends: uint32[fields, lines]. begin: place of the first line. line_end: bytes of a line
    end.
    """
    data = np.frombuffer(raw, np.uint8)
    starts = np.concatenate([[begin - line_end], ends[-1, :-1]]).astype(np.int64)
    return [
        Cells(data, starts, ends[0], line_end),
        *(Cells(data, ends[k - 1], ends[k], 1) for k in range(1, len(ends))),
    ]
