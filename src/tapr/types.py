"""Types that every part uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Box = tuple[float, float, float, float]  # left, top, right, bottom: parts of a picture's width and height
