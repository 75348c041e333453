"""Pictures with equal vectors get equal scores from every method, wherever they stand: ties fall in gallery order."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tapr.encoders.base import EncoderCard, unit
from tapr.encoders.fake import FakeEncoder
from tapr.evaluate.terms import query_terms
from tapr.methods import METHODS, Features, RecordSet, make_method
from tapr.methods.record_kinds import derive
from tapr.query.spec import EditSpec
from tapr.search.kernels import exact
from tapr.search.kernels.exact import similarities, weighted_sums
from tapr.search.memory_bank import MemoryBank
from tapr.types import Float32
from tests.methods.small import Question
from tests.search.banks import random_bank
from tests.search.test_exact import unsteady

SPEC = EditSpec("a red car at night", ("red paint", "rain"), ("car",), ("blue paint",))
QUERIES = [Question(f"q{number}", f"p{number * 7 % 90}", f"make it {number}") for number in range(9)]
ALIKE = [5, 6, 7, 11, 40, 41, 63, 88, 89]  # of 90


class RandomEncoder(FakeEncoder):
    """Each text has a direction of its own."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.card = EncoderCard("random", "", dim, (1, count), "tokens", 32, "crop")

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        rows = [np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.card.dim) for text in texts]
        return unit(np.array(rows, np.float32).reshape(-1, self.card.dim))


def gallery(count: int, dim: int) -> Features:
    globals_, locals_ = random_bank(np.random.default_rng(dim), 90, count, dim)
    globals_[ALIKE], locals_[ALIKE] = (
        globals_[5],
        locals_[5],
    )  # rows of their own, with the same vectors
    names = [f"p{row}" for row in range(90)]
    bank = MemoryBank.of(globals_, locals_)
    made = Features.of(RandomEncoder(count, dim), bank, {name: row for row, name in enumerate(names)}, names)
    return replace(made, captions=dict.fromkeys(range(90), ("a car",)))


def records() -> RecordSet:
    return RecordSet({query.id: derive(SPEC, query.edit, "a blue car") for query in QUERIES}, "made")


@pytest.mark.parametrize(("count", "dim"), [(9, 37), (3, 100), (49, 64), (1, 32)])
@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].composes and name != "wiser"])
def test_equal_pictures_tie_in_every_method(name: str, count: int, dim: int) -> None:
    scores = make_method(name).score(QUERIES, records(), gallery(count, dim))
    np.testing.assert_array_equal(scores[:, ALIKE], scores[:, [5] * len(ALIKE)])
    assert len(np.unique(scores[0])) == 90 - len(ALIKE) + 1


@pytest.mark.parametrize(("count", "dim"), [(9, 37), (3, 100), (49, 64), (1, 32)])
def test_equal_pictures_tie_in_every_term_and_in_every_sum_of_terms(count: int, dim: int) -> None:
    rng = np.random.default_rng(0)
    for _, terms in query_terms(QUERIES, records(), gallery(count, dim), (0.01, 0.02)):
        for rows in terms.rows.values():
            np.testing.assert_array_equal(rows[:, ALIKE], rows[:, [5] * len(ALIKE)])
            sums = weighted_sums(rng.uniform(-1, 1, (7, len(rows))), rows)
            np.testing.assert_array_equal(sums[:, ALIKE], sums[:, [5] * len(ALIKE)])


def test_no_order_of_sums_changes_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    vectors, pictures = unit(rng.standard_normal((5, 100))), unit(rng.standard_normal((70, 100)))
    weights, terms = rng.uniform(-2, 2, (6, 12)), rng.uniform(-1, 1, (12, 70)).astype(np.float32)
    right, sums = similarities(vectors, pictures), weighted_sums(weights, terms)
    np.testing.assert_allclose(right, vectors.astype(np.float64) @ pictures.T, atol=2e-6)
    np.testing.assert_allclose(sums, weights @ terms.astype(np.float64), atol=1e-5)
    monkeypatch.setattr(exact, "products", unsteady)
    np.testing.assert_array_equal(similarities(vectors, pictures), right)
    np.testing.assert_array_equal(weighted_sums(weights, terms), sums)
