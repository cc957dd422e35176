"""Groups of slots that are attributed together: a feature over all bars of the window, or a slot of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class SlotGroup(NamedTuple):
    """Slots with one name before their bracket, such as `close[t-30]` .. `close[t-1]`. slots:
    int64[n] their places.
    """

    name: str
    slots: np.ndarray


def slot_groups(names: Sequence[str]) -> list[SlotGroup]:
    """The groups of an observation, in the order of their first slots. names: of all slots
    (`ObservationSpec.names`).
    """
    heads = [name.partition("[")[0] for name in names]
    return [
        SlotGroup(head, np.flatnonzero([each == head for each in heads]))
        for head in dict.fromkeys(heads)
    ]


def group_mask(group: SlotGroup, size: int) -> np.ndarray:
    """bool[size]: True at the slots of the group."""
    return np.isin(np.arange(size), group.slots)
