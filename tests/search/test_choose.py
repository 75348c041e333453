"""Which kernel runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tapr.errors import BadInput, TaprError
from tapr.search.kernels import choose
from tapr.search.kernels.choose import choose_kernel, kernel_report
from tapr.search.kernels.numpy_kernel import NumpyKernel


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TAPR_KERNEL", raising=False)
    monkeypatch.delenv("TAPR_THREADS", raising=False)
    monkeypatch.setattr(choose, "_driver_sees_gpu", lambda: False)
    choose.why_no_gpu.cache_clear()
    yield
    choose.why_no_gpu.cache_clear()  # a GPU of a test is not one for the tests of other files


def test_the_compiled_kernel_is_used_where_it_was_built() -> None:
    cpu = pytest.importorskip(
        "tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError
    )
    assert choose_kernel().name == f"cpu-{cpu.isa()}"
    report = kernel_report()
    assert report["compiled"]
    assert report["isa"] in cpu.isas()
    assert report["threads"] >= 1
    assert cpu.isas()[-1] == "portable"


def test_numpy_takes_over_where_it_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_compiled(monkeypatch)
    assert choose_kernel().name == "numpy"
    report = kernel_report()
    assert not report["compiled"]
    assert "not built" in report["why_not"]
    assert report["kernel"] == "numpy"


class _Gpu(NumpyKernel):
    name = "cuda-triton"


def test_the_gpu_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_report()["why_no_gpu"] == "there is no NVIDIA GPU here that the driver shows"
    choose.why_no_gpu.cache_clear()
    monkeypatch.setattr(choose, "_driver_sees_gpu", lambda: True)
    monkeypatch.setattr(choose, "_device_kernel", lambda wanted: _Gpu())
    assert choose_kernel().name == "cuda-triton"
    assert kernel_report()["gpu"]
    monkeypatch.setenv("TAPR_KERNEL", "numpy")
    assert choose_kernel().name == "numpy"


def test_a_gpu_that_its_kernel_cannot_use_is_left_alone_and_the_reason_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(wanted: str) -> None:
        raise BadInput("torch sees no CUDA device: use the CPU kernel")

    monkeypatch.setattr(choose, "_driver_sees_gpu", lambda: True)
    monkeypatch.setattr(choose, "_device_kernel", refuse)
    assert choose_kernel().name != "cuda-triton"
    assert "torch sees no CUDA device" in kernel_report()["why_no_gpu"]


def test_without_a_gpu_torch_is_not_loaded() -> None:
    code = "from tapr.search.kernels.choose import choose_kernel; choose_kernel()"
    code += "; import sys; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_what_is_asked_for_by_name_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_compiled(monkeypatch)
    with pytest.raises(TaprError, match="cannot be used"):
        choose_kernel("cpu")


def test_the_variable_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_KERNEL", "numpy")
    assert choose_kernel("cpu").name == "numpy"


def test_the_compiled_kernel_can_be_held_to_an_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = pytest.importorskip(
        "tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError
    )
    for isa in cpu.isas():
        monkeypatch.setenv("TAPR_KERNEL", f"cpu-{isa}")
        assert choose_kernel().name == f"cpu-{isa}"
    monkeypatch.setenv("TAPR_KERNEL", "cpu-sse9")
    with pytest.raises(BadInput, match=r"'sse9' does not run here: choose one of .*portable"):
        choose_kernel()


def test_a_kernel_of_a_device_is_made_once_and_so_keeps_its_banks() -> None:
    pytest.importorskip("torch", reason="needs torch")
    assert choose_kernel("torch").name in ("torch-cpu", "torch-cuda")
    assert choose_kernel("torch") is choose_kernel("torch")


@pytest.mark.parametrize("name", ["cuda", "torch"])
def test_without_torch_it_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    choose._device_kernel.cache_clear()
    with pytest.raises(BadInput, match="needs torch"):
        choose_kernel(name)


def test_an_unknown_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="choose one of numpy, cpu, cuda"):
        choose_kernel("tpu")
    monkeypatch.setenv("TAPR_KERNEL", "fast")
    with pytest.raises(BadInput, match="TAPR_KERNEL is 'fast'"):
        choose_kernel()
    report = kernel_report()
    assert report["kernel"] is None
    assert report["problem"] == "TAPR_KERNEL is 'fast': choose one of numpy, cpu, cuda, torch"


def test_threads_are_a_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPR_THREADS", "3")
    assert kernel_report()["threads"] == 3
    monkeypatch.setenv("TAPR_THREADS", "many")
    with pytest.raises(BadInput, match="TAPR_THREADS is 'many'"):
        choose_kernel("numpy")
    assert kernel_report()["problem"] == "TAPR_THREADS is 'many': give a whole number above 0"


def test_an_unknown_instruction_set_is_refused() -> None:
    cpu = pytest.importorskip(
        "tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError
    )
    with pytest.raises(BadInput, match="does not run here"):
        cpu.CpuKernel("mmx")


def _without_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapr.search import kernels

    monkeypatch.setitem(sys.modules, "tapr.search.kernels._kernel", None)
    monkeypatch.delitem(sys.modules, "tapr.search.kernels.cpu", raising=False)
    monkeypatch.delattr(kernels, "cpu", raising=False)
    monkeypatch.delattr(kernels, "_kernel", raising=False)
