"""Text columns as places in a buffer of bytes, and numbers and labels read from them without a
Python string per cell.

Ten years of minute bars are millions of cells. Cells of a usual form are read here, a block of rows
at a time, with array operations. Any other cell is left to the caller, who reads its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

BLOCK = 1 << 16  # rows handled at once, so that temporary arrays stay in the processor's cache
MOST_DIGITS = 15  # integers of this many digits are exact in float64, and so is any power of ten that divides them
MOST_WIDTH = 24  # bytes of the longest number that is read here
ZERO, NINE, DOT = ord("0"), 9, ord(".")


@dataclass(frozen=True)
class Cells:
    """n cells of one column. Cell i is `data[before[i] + gap:end[i]]`.

    data: uint8[B]. before, end: integers [n], places in `data`. The end of one column is `before`
        of the next one, with
    the separator as the gap, so that columns share their arrays. strip: whether spaces around a
    text are no part of it.
    """

    data: np.ndarray
    before: np.ndarray
    end: np.ndarray
    gap: int = 0
    strip: bool = True

    def __len__(self) -> int:
        return len(self.end)

    def text(self, row: int) -> str:
        """One cell."""
        text = self.data[int(self.before[row]) + self.gap : int(self.end[row])].tobytes().decode()
        return text.strip() if self.strip else text

    def chosen(self, rows: np.ndarray | None) -> Cells:
        """The cells of the given rows; all of them for None."""
        return self if rows is None else replace(self, before=self.before[rows], end=self.end[rows])

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """(rows, first, width) of one block of rows after the other; first and width are int64."""
        for start in range(0, len(self), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self)))
            first = self.before[rows].astype(np.int64) + self.gap
            yield rows, first, self.end[rows] - first


def characters(data: np.ndarray, first: np.ndarray, width: int) -> np.ndarray:
    """The first `width` bytes of each cell, uint8[width, n]. Beyond the end of the buffer, its last
    byte.
    """
    out = np.empty((width, len(first)), np.uint8)
    for j in range(width):
        np.take(data, first + j, out=out[j], mode="clip")
    return out


def decimals(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """(values float64[n], read bool[n]) of plain numbers: up to 15 digits, with or without a
    decimal point.

    The value of a cell that is not read is 0. Values are rounded correctly: a whole number divided
    by a power of ten, both of them exact.
    """
    values, read = np.zeros(len(cells)), np.zeros(len(cells), bool)
    for rows, first, width in cells.blocks():
        for size in np.flatnonzero(np.bincount(np.minimum(width, MOST_WIDTH + 1), minlength=2)):
            if not 1 <= size <= MOST_WIDTH:
                continue
            own = np.flatnonzero(width == size)
            whole = len(own) == len(first)
            found, known = _decimals(
                characters(cells.data, first if whole else first[own], int(size))
            )
            if whole:
                values[rows], read[rows] = found, known
            else:
                values[rows][own], read[rows][own] = found, known
    return values, read


def _decimals(chars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`decimals` of cells of one width. chars: uint8[width, n]."""
    width, count = chars.shape
    digits = chars - np.uint8(ZERO)  # anything below '0' wraps around to a large number
    dots = chars == DOT
    points = dots.sum(axis=0, dtype=np.uint8)
    others = (digits > NINE).sum(axis=0, dtype=np.uint8)
    read = (others == points) & (points <= 1) & (width - points <= MOST_DIGITS) & (width > points)
    place = np.full(count, width)
    for j in range(width):
        place[dots[j]] = j
    digits[dots] = 0
    values = np.zeros(count)
    for at in np.flatnonzero(np.bincount(place)):
        powers = (
            [width - 1 - j if j > at else width - 2 - j for j in range(width)]
            if at < width
            else [width - 1 - j for j in range(width)]
        )
        weights = np.array([0.0 if j == at else 10.0**power for j, power in enumerate(powers)])
        own = place == at
        whole = bool(own.all())
        total = weights @ (digits if whole else digits[:, own])
        values[own] = total / 10.0 ** max(width - 1 - int(at), 0)
    return np.where(read, values, 0.0), read


def whole_numbers(cells: Cells) -> np.ndarray | None:
    """The cells as int64[n], if all of them are 1 to 19 digits and fit; otherwise None.

    Nanoseconds since 1970 have 19 digits.
    """
    out = np.zeros(len(cells), np.int64)
    for rows, first, width in cells.blocks():
        if width.min(initial=1) < 1 or width.max(initial=1) > 19:
            return None
        for size in np.flatnonzero(np.bincount(width)):
            own = np.flatnonzero(width == size)
            digits = characters(cells.data, first[own], int(size)) - np.uint8(ZERO)
            if (digits > NINE).any() or (size == 19 and digits[0].max() > 8):
                return None
            total = np.zeros(len(own), np.int64)
            for digit in digits:
                total = total * 10 + digit
            out[rows][own] = total
    return out


def labels(cells: Cells) -> tuple[list[str], np.ndarray]:
    """(distinct texts, index of each cell's text int64[n]). Two texts may be equal if cells differ
    only in the spaces around them."""
    import pandas as pd  # imported here because it is slow to load

    width = np.concatenate([own for _, _, own in cells.blocks()])
    codes, kinds = pd.factorize(width)
    for j in range(0, int(width.max(initial=0)), 8):
        words = np.empty(len(cells), np.uint64)
        for rows, first, own in cells.blocks():
            chars = characters(cells.data, first + j, 8)
            chars[np.arange(j, j + 8)[:, None] >= own] = 0
            words[rows] = np.ascontiguousarray(chars.T).view(np.uint64)[:, 0]
        word, seen = pd.factorize(words)
        codes, kinds = pd.factorize(codes.astype(np.int64) * len(seen) + word)
    firsts = np.zeros(len(kinds), np.int64)
    firsts[codes[::-1]] = np.arange(len(cells))[::-1]
    return [cells.text(int(row)) for row in firsts], codes.astype(np.int64)
