"""Dot products with every global vector of a gallery, on a GPU where one is in use and worth it. The same bits."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tapr.search.kernels import exact
from tapr.search.kernels.choose import gpu_in_use
from tapr.types import Float32

_WORTH_GPU = 1 << 32  # products, from which on a GPU, where there is one, saves more than the journey costs


def similarities(vectors: NDArray[Any], gallery: NDArray[Any]) -> Float32:
    """(Q, d), (N, d) of length 1 -> (Q, N)"""
    gpu = gpu_in_use() if len(vectors) * gallery.size > _WORTH_GPU else None
    if gpu is None:
        return exact.similarities(vectors, gallery)
    from tapr.search.kernels import gpu_exact

    return gpu_exact.similarities(exact.on_grid(vectors).T, gallery, exact.BANK_STEP, gpu.device)
