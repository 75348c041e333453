"""The fixture `kernel`."""

from __future__ import annotations

import pytest

from tapr.match.base import Kernel
from tests.match.banks import KERNELS


@pytest.fixture(params=KERNELS, ids=[kernel.name for kernel in KERNELS])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """NumPy, the compiled kernel once for each instruction set that this processor has, and plain torch."""
    found: Kernel = request.param
    return found
