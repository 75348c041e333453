"""The fixture `kernel`."""

from __future__ import annotations

import pytest

from tapr.search.kernels.base import Kernel
from tests.search.banks import KERNELS


@pytest.fixture(params=KERNELS, ids=[kernel.name for kernel in KERNELS])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """NumPy, the compiled kernel once for each instruction set that this processor has, and plain torch."""
    found: Kernel = request.param
    return found
