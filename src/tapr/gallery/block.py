"""Block: a run of gallery rows, as the kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32

Precision = Literal["fp16", "int8", "both"]
PRECISIONS: tuple[Precision, ...] = ("fp16", "int8", "both")


@dataclass(frozen=True, eq=False)
class Block:
    """B rows of a bank. Arrays may be memory-mapped: read them once, in order.

    A bank of precision `fp16` has local_vectors, one of `int8` the codes, one of `both` has both. A stored local
    vector v of length 1 reads as scale * code; `error` is the length of what that loses, |v_fp16 - scale * code|.
    """

    start: int  # physical row of the first
    global_vectors: NDArray[np.float16]  # (B, d)
    local_vectors: NDArray[np.float16] | None = None  # (B, M, d)
    local_codes: NDArray[np.int8] | None = None  # (B, M, d)
    local_scales: Float32 | None = None  # (B, M)
    local_errors: Float32 | None = None  # (B, M)

    def __len__(self) -> int:
        return len(self.global_vectors)

    def decoded(self) -> NDArray[Any]:
        """Local vectors as numbers to calculate with: fp16 where the bank has it, else scale * code in float32."""
        if self.local_vectors is not None:
            return self.local_vectors
        assert self.local_codes is not None
        assert self.local_scales is not None
        return self.local_codes.astype(np.float32) * self.local_scales[..., None]
