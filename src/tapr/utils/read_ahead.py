"""Asks the system for rows of mapped files before they are needed, all at once, so that a disk reads them side by side.

Without it every page is waited for when it is first touched, one after the other.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # absent on Windows


@cache
def _madvise() -> Any:
    """The system's call; None where it has none."""
    try:
        call = ctypes.CDLL(None).madvise
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return call


def read_ahead(array: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """`rows` of the array, ascending, will be read. Returns at once; what is in memory already is left alone."""
    call = _madvise() if _WILL_NEED is not None else None
    if call is None or not len(rows) or not array.flags.c_contiguous or not array.nbytes:
        return
    for start, stop in page_ranges(array.ctypes.data, array.nbytes // len(array), rows):
        call(start, stop - start, _WILL_NEED)  # a hint: what it returns does not matter


def page_ranges(address: int, row_bytes: int, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The memory pages of ascending rows, as few ranges of addresses."""
    page = mmap.PAGESIZE
    starts = (address + rows * row_bytes) // page * page
    stops = -(-(address + (rows + 1) * row_bytes) // page) * page
    first = np.concatenate([[True], starts[1:] > stops[:-1]])
    last = np.concatenate([first[1:], [True]])
    return list(zip(starts[first].tolist(), stops[last].tolist(), strict=True))
