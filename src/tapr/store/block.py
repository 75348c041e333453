"""Block: consecutive rows of a gallery in the format that kernels read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.store.codec import decode
from tapr.types import Float32

Precision = Literal["fp16", "int8", "both"]
PRECISIONS: tuple[Precision, ...] = ("fp16", "int8", "both")


@dataclass(frozen=True, eq=False)
class Block:
    """B rows of a bank. Arrays may be memory-mapped: read them once, in order.

    A bank of precision `fp16` has local_vectors, one of `int8` the codes, one of `both` has both. A local vector v,
    of length 1 and rotated (codec.py), reads as scale * code; `error` is the length of what that loses.
    """

    start: int  # physical row of the first one
    global_vectors: NDArray[np.float16]  # (B, d)
    local_vectors: NDArray[np.float16] | None = None  # (B, M, d)
    local_codes: NDArray[np.int8] | None = None  # (B, M, d)
    local_scales: Float32 | None = None  # (B, M)
    local_errors: Float32 | None = None  # (B, M)
    outlines: NDArray[np.void] | None = None  # (B,), these three where the gallery has a first stage: summary.py
    summaries: NDArray[np.void] | None = None  # (B,)
    pooled: NDArray[np.int8] | None = None  # (B, 2 d)

    def __len__(self) -> int:
        return len(self.global_vectors)

    def take(self, rows: slice | NDArray[np.int64], start: int = 0) -> Block:
        """A selection of rows: views for a slice, copies for a list."""

        def of(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else array[rows]

        arrays = {field.name: of(getattr(self, field.name)) for field in fields(self) if field.name != "start"}
        return Block(start, **arrays)  # type: ignore[arg-type]

    def decoded(self) -> NDArray[Any]:
        """The local vectors: fp16 if the bank has them, otherwise decoded from codes in float32."""
        if self.local_vectors is not None:
            return self.local_vectors
        assert self.local_codes is not None
        assert self.local_scales is not None
        return decode(self.local_codes, self.local_scales)
