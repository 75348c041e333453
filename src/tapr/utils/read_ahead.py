"""Asks the system for rows of mapped files before they are needed, all at once, so that a disk reads them side by side.

Without it every page is waited for when it is first touched, one after the other. Rows that lie near each other are
asked for together, with what is between them: few large reads are faster than many small ones. Asking takes as long as
a quarter of a search where nothing has to be read, so a few of the rows are looked at first.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NEAR = 128 << 10  # bytes between two rows that are asked for together
_LOOKED_AT = 32  # rows
_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)  # absent on Windows


@cache
def _call(name: str, last: Any) -> Any:
    """The system's call with (address, bytes, `last`); None where it has none."""
    try:
        call = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, last)
    return call


def read_ahead(arrays: Sequence[NDArray[Any]], firsts: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """These rows, ascending, will be read. They count over all arrays, and each array begins with one of `firsts`.

    Returns at once; what is in memory already is left alone.
    """
    call = _call("madvise", ctypes.c_int) if _WILL_NEED is not None else None
    if call is None or not len(rows) or not arrays[0].nbytes:
        return
    which = np.searchsorted(firsts, rows, side="right") - 1
    addresses = np.zeros(len(arrays), np.int64)
    for number in np.unique(which).tolist():
        if not arrays[number].flags.c_contiguous:
            return
        addresses[number] = arrays[number].ctypes.data
    row_bytes = arrays[0].nbytes // len(arrays[0])
    found = addresses[which] + (rows - firsts[which]) * row_bytes
    if _are_in_memory(found[:: -(-len(found) // _LOOKED_AT)]):
        return
    for start, stop in page_ranges(found, row_bytes):
        call(start, stop - start, _WILL_NEED)  # a hint: what it returns does not matter


def _are_in_memory(addresses: NDArray[np.int64]) -> bool:
    """Whether the pages at all of these are."""
    call = _call("mincore", ctypes.c_char_p)
    if call is None or _waited_for_a_disk():
        return False
    told = ctypes.create_string_buffer(1)
    for page in (addresses // mmap.PAGESIZE * mmap.PAGESIZE).tolist():
        if call(page, 1, told) or not told.raw[0] & 1:
            return False
    return True


_faults = 0


def _waited_for_a_disk() -> bool:
    """Since it was last asked. Linux says that all of a file is in memory if the process may not write it."""
    import resource  # not on Windows, which is not asked

    global _faults
    before, _faults = _faults, resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return _faults > before


def page_ranges(addresses: NDArray[np.int64], row_bytes: int) -> list[tuple[int, int]]:
    """The memory pages of rows at these addresses, as ranges. They ascend within a file, and files lie anywhere."""
    page = mmap.PAGESIZE
    starts = addresses // page * page
    stops = -(-(addresses + row_bytes) // page) * page
    first = np.concatenate([[True], (starts[1:] > stops[:-1] + _NEAR) | (starts[1:] < starts[:-1])])
    last = np.concatenate([first[1:], [True]])
    return list(zip(starts[first].tolist(), stops[last].tolist(), strict=True))
