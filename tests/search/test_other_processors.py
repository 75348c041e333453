"""The compiled kernel for processors that are not here: ARM by a cross compiler and QEMU, AMX in plain C++. These tests
show that the sources compute what they should. CI runs all tests on a real ARM processor as well.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import test_kernels as tool

TESTS = Path(__file__).parent
# Of the tests that every kernel passes, the quick ones: `make test-aarch64` runs all, which takes QEMU minutes.
QUICK = "33-9-37 or 5-1-32 or 9-50-129 or 3-2-1 or opposite or equal or smallest or no_probes or weight_zero"
BOUNDS = "reaches_a_floor or along_what or remove_only or length_0 or targets_by_bytes"

pytest.importorskip("tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError)
pytestmark = pytest.mark.toolchain
aarch64 = pytest.mark.skipif(bool(tool.aarch64_missing()), reason=f"needs {tool.aarch64_missing()} (Debian packages)")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tool.build_aarch64(tmp_path_factory.mktemp("aarch64"))


@aarch64
@pytest.mark.parametrize(
    ("processor", "sets"), [("max", ["neondot", "neon", "portable"]), ("cortex-a53", ["neon", "portable"])]
)
def test_the_processor_decides_when_the_kernel_runs(driver: Path, processor: str, sets: list[str]) -> None:
    """One program: SDOT is used where it is and not asked for where it is not."""
    done = subprocess.run([tool.QEMU, "-cpu", processor, driver, "isas"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sets


@aarch64
@pytest.mark.parametrize("isa", ["neondot", "neon"])
def test_arm_agrees_with_the_definition(
    driver: Path, isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "build_aarch64", lambda folder: driver)
    passes(f"aarch64-{isa}", isa, tmp_path)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not shutil.which("g++"),
    reason="needs Linux on x86-64 and g++",
)
def test_emulated_amx_agrees_with_the_definition(tmp_path: Path) -> None:
    passes("emulated-amx", "amx", tmp_path)


def passes(kernel: str, isa: str, folder: Path) -> None:
    files = [str(TESTS / "test_kernels.py"), str(TESTS / "prefilter/test_bound.py")]
    passed, said = tool.run(kernel, [*files, "-k", f"cpu-{isa} and ({QUICK} or {BOUNDS})"], folder)
    assert passed, said
    assert said == "36 passed"
