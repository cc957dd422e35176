"""Give memory that was freed back to the operating system."""

from __future__ import annotations

import ctypes
import sys


def release_memory() -> None:
    """Return freed memory that the C library and pyarrow keep for later. Does nothing where they
    offer no way.

    While a large market is read and built, arrays of tens of megabytes come and go. Linux' C
    library keeps such memory by default, which would add a quarter to the largest size of the
    process.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # musl has none
            trim(0)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
