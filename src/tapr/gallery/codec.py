"""int8 codes for local vectors: one scale a vector, and how much was lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32


def quantise(vectors: NDArray[Any]) -> tuple[NDArray[np.int8], Float32, Float32]:
    """fp16 vectors (..., d) -> codes (..., d), scales (...), errors (...): v is near scale * code, `errors` apart.

    The scale maps the largest magnitude to 127. Errors are rounded up, so that they bound.
    """
    exact = np.asarray(vectors, np.float32)
    scales = (np.abs(exact).max(axis=-1) / 127).astype(np.float32)
    safe = np.where(scales > 0, scales, 1)[..., None]
    codes = np.clip(np.rint(exact / safe), -127, 127).astype(np.int8)
    lost = exact.astype(np.float64) - codes.astype(np.float64) * scales[..., None].astype(np.float64)
    errors = np.nextafter(np.sqrt((lost**2).sum(-1)).astype(np.float32), np.float32(np.inf))
    return codes, scales, errors.astype(np.float32)
