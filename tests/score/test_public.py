"""`tapr.score` is the package and the definition's function at once, whoever imports what first."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.score import definition
from tapr.score.factors import FACTORS
from tests.pictures import flag

LINES = (
    "import tapr",
    "from tapr import score",
    "import tapr.score",
    "import tapr.score.definition",
    "import tapr.score.definition as law",
    "from tapr.score import definition, compile, factors",
    "from tapr.score.definition import score as function",
    "import tapr.match.reference, tapr.query",
)


@pytest.mark.parametrize("first", LINES)
def test_both_work_in_any_order_of_imports(first: str) -> None:
    rest = "\n".join(line for line in LINES if line != first)
    check = """
import numpy as np
query = tapr.score.compile.CompiledQuery(
    np.eye(2, dtype=np.float32)[:1], np.ones(1, np.float32), np.zeros((0, 2), np.float32), np.zeros(0, np.float32), ())
vectors = np.array([[0.5, 0], [0.25, 1]], np.float32)
for call in (tapr.score, score, tapr.score.definition.score, law.score, function):
    assert call(query, vectors, vectors[:, None]).tolist() == [0.5, 0.25]
assert tapr.score.definition is definition is law and tapr.score is score
"""
    subprocess.run([sys.executable, "-c", f"{first}\n{rest}\n{check}"], check=True)


def test_the_public_names_are_those_of_the_score() -> None:
    encoder = FakeEncoder()
    evidence = encoder.encode_images([encoder.prepare(flag(*colours)) for colours in (("red",), ("blue", "green"))])
    query = tapr.compile_query(tapr.EditSpec("a red flag", add=("red",)), evidence[:1], encoder)
    found = tapr.score(query, evidence.global_vectors, evidence.local_vectors)
    np.testing.assert_array_equal(found, definition.score(query, evidence.global_vectors, evidence.local_vectors))
    assert tapr.FACTORS is FACTORS
    assert {"FACTORS", "compile_query", "score"} <= set(tapr.__all__)
