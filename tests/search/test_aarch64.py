"""The kernel's sources for ARM, built by a cross compiler and run by QEMU. CI runs all tests on a real one as well."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools import test_kernels as tool

ROOT = Path(__file__).parents[2]

pytest.importorskip("tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError)
pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(bool(tool.aarch64_missing()), reason=f"needs {tool.aarch64_missing()} (Debian packages)"),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tool.build_aarch64(tmp_path_factory.mktemp("aarch64"))


@pytest.mark.parametrize(
    ("processor", "sets"), [("max", ["neondot", "neon", "portable"]), ("cortex-a53", ["neon", "portable"])]
)
def test_the_processor_decides_when_the_kernel_runs(driver: Path, processor: str, sets: list[str]) -> None:
    """One program: SDOT is used where it is and not asked for where it is not."""
    done = subprocess.run([tool.QEMU, "-cpu", processor, driver, "isas"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == sets


@pytest.mark.parametrize("isa", ["neondot", "neon"])
def test_the_kernel_agrees_with_the_definition(
    driver: Path, isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that every kernel passes, the quick ones: `make test-aarch64` runs all, which takes QEMU minutes."""
    monkeypatch.setattr(tool, "build_aarch64", lambda folder: driver)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    tests = str(ROOT / "tests/search/test_kernels.py")
    quick = "33-9-37 or 5-1-32 or 9-50-129 or 3-2-1 or opposite or equal or smallest or no_probes or weight_zero"
    passed, said = tool.run(f"aarch64-{isa}", [tests, "-k", f"cpu-{isa} and ({quick})"], tmp_path)
    assert passed, said
    assert said == "26 passed"
