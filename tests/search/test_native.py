"""The compiled kernel's sources and how they are built, whether or not they were."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapr.search import kernels

ROOT = Path(__file__).parents[2]
NATIVE = Path(kernels.__file__).parent / "native"
ASKING = "processor.cpp"  # the only file with questions to the processor
# setup.py, with `setup` in place that prints what it is told
ASK = """
import json, runpy, sys, sysconfig
import setuptools
setuptools.setup = lambda **asked: print(json.dumps(asked, default=vars))
sys.platform, sysconfig.get_platform = sys.argv[1], lambda: "win-amd64"
runpy.run_path("setup.py")
"""
QUESTION = re.compile(r"__builtin_cpu_supports|__get_cpuid|getauxval|sysctlbyname")


@pytest.mark.parametrize("source", sorted(NATIVE.glob("*.*")), ids=lambda source: source.name)
def test_no_processor_is_asked_for_a_feature_in_code_that_uses_it(source: Path) -> None:
    """The compiler may use an instruction set wherever it is allowed: also in the question whether it is there."""
    text = source.read_text()
    if source.name == ASKING:
        assert QUESTION.search(text)
        assert not re.search(r"TAPR_TARGET|intrin\.h|arm_neon\.h|#include \"job\.h\"", text)
        return
    assert not QUESTION.search(text)
    allowed = False
    for line in text.splitlines():
        allowed = line.startswith("TAPR_TARGET(") or (allowed and not line.startswith("TAPR_TARGET_END"))
        assert not (allowed and re.search(r"supported\(\)|const Isa ", line)), line
    assert not allowed


def test_no_flag_of_the_build_names_a_processor() -> None:
    """Flags are for all files, the questions too. What a file may use it says itself, with TAPR_TARGET."""
    (kernel,) = build("linux")["ext_modules"]
    assert kernel["extra_compile_args"]
    assert not [flag for flag in kernel["extra_compile_args"] if re.match(r"[-/](m|arch)", flag)]
    assert kernel["optional"], "an installation without a compiler goes on"
    files = {Path(file).name for file in (*kernel["sources"], *kernel["depends"])}
    assert files == {file.name for file in NATIVE.iterdir()}


def test_windows_gets_a_wheel_of_its_own_without_the_kernel() -> None:
    assert build("win32") == {"options": {"bdist_wheel": {"plat_name": "win_amd64"}}}


def build(platform: str) -> dict[str, Any]:
    """What setup.py asks for on a platform. Not in this process: setuptools would replace parts of it."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setup.py needs setuptools")
    done = subprocess.run([sys.executable, "-c", ASK, platform], cwd=ROOT, capture_output=True, text=True, check=True)
    asked: dict[str, Any] = json.loads(done.stdout)
    return asked
