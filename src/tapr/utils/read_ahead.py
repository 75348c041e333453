"""Asks the system for rows of mapped files before they are needed, all at once, so that a disk reads them side by side.

Without it every page is waited for when it is first touched, one after the other. Rows that lie near each other are
asked for together, with what is between them: few large reads are faster than many small ones. Asking takes up
to half of a search's time where nothing has to be read, so a few of the rows are looked at first.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_GAP_BYTES = 128 << 10  # bytes between two rows that are asked for together
_ROWS_CHECKED = 32  # rows
_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # absent on Windows


@cache
def _call(name: str, last: Any) -> Any:
    """Return the system's call with (address, bytes, `last`); None where it has none."""
    try:
        call = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, last)
    return call


def read_ahead(arrays: Sequence[NDArray[Any]], firsts: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Announce rows, ascending, that will be read. They count over all arrays; each array begins at one of `firsts`.

    Returns at once; what is in memory already is left alone.
    """
    call = _call("madvise", ctypes.c_int) if _WILL_NEED is not None else None
    if call is None or are_in_memory(arrays, firsts, rows):
        return
    row_bytes = arrays[0].nbytes // len(arrays[0])
    for start, stop in page_ranges(_addresses(arrays, firsts, rows), row_bytes):
        call(start, stop - start, _WILL_NEED)  # a hint: what it returns does not matter


def are_in_memory(arrays: Sequence[NDArray[Any]], firsts: NDArray[np.int64], rows: NDArray[np.int64]) -> bool:
    """Return whether a few of these rows all are, or cannot be elsewhere; False where the system does not tell."""
    few = rows[:: max(1, -(-len(rows) // _ROWS_CHECKED))]
    if not len(few) or not arrays or not arrays[0].nbytes or not all(array.flags.c_contiguous for array in arrays):
        return True
    call = _call("mincore", ctypes.c_char_p)
    if call is None or _waited_for_a_disk():
        return False
    state = ctypes.create_string_buffer(1)
    for page in (_addresses(arrays, firsts, few) // mmap.PAGESIZE * mmap.PAGESIZE).tolist():
        if call(page, 1, state) or not state.raw[0] & 1:
            return False
    return True


def _addresses(arrays: Sequence[NDArray[Any]], firsts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    which = np.searchsorted(firsts, rows, side="right") - 1
    addresses = np.zeros(len(arrays), np.int64)
    for number in np.unique(which).tolist():
        addresses[number] = arrays[number].ctypes.data
    return np.asarray(addresses[which] + (rows - firsts[which]) * (arrays[0].nbytes // len(arrays[0])))


_faults, _seen = 0, -np.inf  # major faults of this process, and when it was seen that they had become more


def _waited_for_a_disk() -> bool:
    """Return whether this process waited in the last second: Linux calls files in memory that it may not write."""
    import resource  # not on Windows, which is not asked

    global _faults, _seen
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    if faults > _faults:
        _faults, _seen = faults, time.monotonic()
    return time.monotonic() - _seen < 1


def page_ranges(addresses: NDArray[np.int64], row_bytes: int) -> list[tuple[int, int]]:
    """Return the memory pages of rows at these addresses, as ranges. They ascend within a file; files lie anywhere."""
    page = mmap.PAGESIZE
    starts = addresses // page * page
    stops = -(-(addresses + row_bytes) // page) * page
    first = np.concatenate([[True], (starts[1:] > stops[:-1] + _MAX_GAP_BYTES) | (starts[1:] < starts[:-1])])
    last = np.concatenate([first[1:], [True]])
    return list(zip(starts[first].tolist(), stops[last].tolist(), strict=True))
