"""Chooses the kernel, and explains the choice."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import TYPE_CHECKING, Any

from tapr.errors import BadInput, TaprError
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.utils.extras import install_hint
from tapr.utils.threads import thread_count

if TYPE_CHECKING:
    from tapr.search.kernels.gpu import GpuKernel

VARIABLE = "TAPR_KERNEL"
KERNELS = ("numpy", "cpu", "cuda", "torch")


def choose_kernel(device: str | None = None) -> Kernel:
    """The kernel to search with: `numpy`, `cpu` (compiled; `cpu-avx2` etc. fix the instruction set), `cuda`, or `torch`
    (without Triton). TAPR_KERNEL overrides `device`.

    By default it is the GPU's if there is a usable one, otherwise the compiled kernel, otherwise NumPy. A kernel that
    is requested by name is used or refused, never replaced.
    """
    wanted = os.environ.get(VARIABLE) or device
    if wanted is None:
        wanted = "cuda" if not why_no_gpu() else "numpy" if _why_not_compiled() else "cpu"
    wanted, _, isa_name = wanted.partition("-") if wanted.startswith("cpu-") else (wanted, "", "")
    if wanted not in KERNELS:
        source = VARIABLE if os.environ.get(VARIABLE) else "the device"
        raise BadInput(f"{source} is {wanted!r}: choose one of {', '.join(KERNELS)}")
    if wanted == "numpy":
        return NumpyKernel()
    if wanted in ("cuda", "torch"):
        return _device_kernel(wanted)
    reason = _why_not_compiled()
    if reason:
        ways = " or ".join(filter(None, ("choose numpy", _remedy())))
        raise TaprError(f"the compiled kernel cannot be used: {reason}; {ways}")
    from tapr.search.kernels.cpu import CpuKernel

    return CpuKernel(isa_name or None)


@cache
def _device_kernel(wanted: str) -> Kernel:
    """One per process, because it caches banks on the device."""
    try:
        import torch

        from tapr.search.kernels.gpu import GpuKernel, TorchKernel
    except ImportError as error:
        raise BadInput(f"scoring on a GPU needs torch: {install_hint('gpu')}, or choose the CPU kernel") from error
    return GpuKernel() if wanted == "cuda" else TorchKernel("cuda" if torch.cuda.is_available() else "cpu")


def gpu_in_use() -> GpuKernel | None:
    """The GPU kernel, if searches use it."""
    if (os.environ.get(VARIABLE) or "cuda") != "cuda" or (not os.environ.get(VARIABLE) and why_no_gpu()):
        return None
    kernel = choose_kernel()
    from tapr.search.kernels.gpu import GpuKernel

    return kernel if isinstance(kernel, GpuKernel) else None


@cache
def why_no_gpu() -> str:
    """ "" if the GPU kernel works, otherwise the reason. Torch, which is slow to import, is only loaded if the driver
    sees a GPU.
    """
    if not _driver_sees_gpu():
        return "there is no NVIDIA GPU here that the driver shows"
    try:
        _device_kernel("cuda")
    except BadInput as error:
        return str(error)
    return ""


def _driver_sees_gpu() -> bool:
    """Asks the driver, which also respects CUDA_VISIBLE_DEVICES."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        count = ctypes.c_int(0)
        return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return False


def kernel_report() -> dict[str, Any]:
    """For `tapr doctor`: the kernel that a search would use or why none works (`problem`), and the state of the
    compiled kernel or why it is missing and what helps (`remedy`, "" if nothing does).
    """
    reason = _why_not_compiled()
    report: dict[str, Any] = {"compiled": not reason, "why_not": reason or None, "isa": None, "gpu": not why_no_gpu()}
    report["why_no_gpu"] = why_no_gpu() or None
    report["remedy"] = _remedy() if reason else ""
    report |= {"kernel": None, "threads": None, "problem": None}
    if not reason:
        from tapr.search.kernels.cpu import isa

        report["isa"] = isa()
    try:
        report |= {"kernel": choose_kernel().name, "threads": thread_count()}
    except TaprError as error:
        report["problem"] = str(error)
    return report


def _why_not_compiled() -> str:
    """ "" if the compiled kernel loads, otherwise the reason."""
    try:
        from tapr.search.kernels import cpu  # noqa: F401
    except ImportError as error:
        if _on_windows():
            return "none is made for Windows (its sources need gcc or clang)"
        return f"it was not built with this installation ({error})"
    return ""


def _remedy() -> str:
    return "" if _on_windows() else "install a C++17 compiler, then install tapr again"


def _on_windows() -> bool:
    """setup.py does not build the compiled kernel there."""
    return platform.system() == "Windows"
