"""Every input that a fuzzer found worth keeping, again."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS, seeds


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_finds_nothing(name: str) -> None:
    if name == "api":
        pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    inputs = seeds(name)
    assert inputs
    for path in inputs:
        try:
            TARGETS[name](path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path.name}: {type(error).__name__}: {error}") from error
