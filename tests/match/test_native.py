"""The compiled kernel's sources, whether or not it was built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tapr.match

NATIVE = Path(tapr.match.__file__).parent / "native"


@pytest.mark.parametrize("source", sorted(NATIVE.glob("*.cpp")), ids=lambda source: source.stem)
def test_no_processor_is_asked_for_a_feature_in_code_that_uses_it(source: Path) -> None:
    """The compiler may use an instruction set wherever it is allowed: also in the question whether it is there."""
    allowed = False
    for line in source.read_text().splitlines():
        allowed = line.startswith("TAPR_TARGET(") or (allowed and not line.startswith("TAPR_TARGET_END"))
        assert not (allowed and re.search(r"__builtin_cpu_supports|__get_cpuid|supported\(\)|const Isa ", line)), line
    assert not allowed
