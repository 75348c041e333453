"""The compiled kernel's sources and how they are built, whether or not they were."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import tapr.match

ROOT = Path(__file__).parents[2]
NATIVE = Path(tapr.match.__file__).parent / "native"
ASKING = "processor.cpp"  # the only file with questions to the processor
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


def test_no_flag_of_the_build_names_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags are for all files, the questions too. What a file may use it says itself, with TAPR_TARGET."""
    (kernel,) = build("linux", monkeypatch)["ext_modules"]
    assert kernel.extra_compile_args
    assert not [flag for flag in kernel.extra_compile_args if re.match(r"[-/](m|arch)", flag)]
    assert kernel.optional, "an installation without a compiler goes on"
    assert {Path(file).name for file in (*kernel.sources, *kernel.depends)} == {file.name for file in NATIVE.iterdir()}


def test_windows_gets_a_wheel_of_its_own_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_platform", lambda: "win-amd64")
    assert build("win32", monkeypatch) == {"options": {"bdist_wheel": {"plat_name": "win_amd64"}}}


def build(platform: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py asks for on a platform."""
    pytest.importorskip("setuptools", reason="setup.py needs setuptools")
    asked: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", asked.update)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.chdir(os.fspath(ROOT))
    runpy.run_path("setup.py")
    return asked
