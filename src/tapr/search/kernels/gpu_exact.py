"""The exact sums of exact.py and ranks among them, on a GPU. The bits are the same, since no sum is rounded."""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.types import Float32

_BYTES = 1 << 30  # of float64 sums at a time


class Gallery:
    """Keeps the last used global vectors on the device."""

    def __init__(self) -> None:
        self._array: Any = lambda: None
        self._rows: Any = None
        self._lock = Lock()

    def rows(self, array: NDArray[Any], step: float, device: Any) -> Any:
        """The vectors rounded to the grid, (N, d) float64."""
        with self._lock:
            if self._array() is not array:
                there = torch.from_numpy(np.ascontiguousarray(array)).to(device).double()
                self._array, self._rows = ref(array), torch.round(there / step) * step
            return self._rows


_gallery = Gallery()


def similarities(probes: NDArray[np.float64], gallery: NDArray[Any], step: float, device: Any) -> Float32:
    """(d, Q) on the grid, (N, d) -> (Q, N); as exact.similarities."""
    rows = _gallery.rows(gallery, step, device)
    there = torch.from_numpy(np.ascontiguousarray(probes)).to(device)
    found = np.empty((probes.shape[1], len(gallery)), np.float32)
    each = max(1, _BYTES // (8 * max(1, len(gallery))))
    for start in range(0, probes.shape[1], each):
        part = (rows @ there[:, start : start + each]).float().T.contiguous()
        torch.from_numpy(found[start : start + each]).copy_(part)
    return found


def ranks(
    weights: NDArray[np.float64],  # (V, T), on the grid
    terms: NDArray[Any],  # (T, N)
    step: float,  # of the terms' grid
    right: NDArray[np.int64],
    subset: NDArray[np.int64] | None,  # without the reference
    left_out: int | None,  # a position to exclude from the ranking
    device: Any,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Ranks of the pictures at `right` by the weighted sums, (V, answers); and the rank of the first of them within the
    subset, (V,). Equal sums keep gallery order; excluded pictures have rank infinity.
    """
    there = torch.from_numpy(np.ascontiguousarray(terms)).to(device).double()
    rounded = torch.round(there / step) * step
    sums = torch.from_numpy(np.ascontiguousarray(weights)).to(device) @ rounded  # (V, N)
    if left_out is not None:
        sums[:, left_out] = -torch.inf
    found = torch.stack([_ranks(sums, int(position)) for position in right], dim=1)
    if subset is None:
        return found.cpu().numpy(), None
    inside = sums[:, torch.from_numpy(subset).to(device)]
    return found.cpu().numpy(), _ranks(inside, int(np.flatnonzero(subset == right[0])[0])).cpu().numpy()


def _ranks(sums: Any, position: int) -> Any:
    own = sums[:, position, None]
    before = (sums > own).sum(1) + (sums[:, :position] == own).sum(1)
    return torch.where(torch.isneginf(own[:, 0]), torch.inf, (before + 1).double())
