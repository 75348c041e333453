"""Dot products with every global vector of a gallery; on a GPU if it is faster, with the same bits."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tapr.search.kernels import exact
from tapr.search.kernels.choose import gpu_in_use
from tapr.types import Float32

_WORTH_GPU = 1 << 32  # number of products from which a GPU is faster, transfer included


def similarities(vectors: NDArray[Any], gallery: NDArray[Any]) -> Float32:
    """(Q, d), (N, d) of unit vectors -> (Q, N)."""
    gpu = gpu_in_use() if len(vectors) * gallery.size > _WORTH_GPU else None
    if gpu is None:
        return exact.similarities(vectors, gallery)
    from tapr.search.kernels import gpu_exact

    return gpu_exact.similarities(exact.on_grid(vectors).T, gallery, exact.BANK_STEP, gpu.device)
