from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tapr.encoders.caching import CachingEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.methods import Features
from tapr.search.memory_bank import MemoryBank
from tapr.types import Float32
from tests.methods.small import GLOBALS, LOCALS, WrittenEncoder, world


class Counting(FakeEncoder):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        self.asked += texts
        return super().encode_texts(texts)


def test_phrases_are_encoded_once() -> None:
    counting = Counting()
    encoder = CachingEncoder(counting)
    encoder.encode_texts(["red", "blue", "red"])
    again = encoder.encode_texts(["blue", "green"])
    assert sorted(counting.asked) == ["blue", "green", "red"]
    np.testing.assert_array_equal(again, FakeEncoder().encode_texts(["blue", "green"]))


def test_cached_phrases_are_reused_by_the_next_process_but_not_by_another_encoder(tmp_path: Path) -> None:
    first = CachingEncoder(FakeEncoder())
    with first.cached_in(tmp_path / "texts.npz"):
        first.encode_texts(["red"])
    same, other = Counting(), Counting()
    other.card = FakeEncoder(grid=(2, 2)).card
    expectations: list[tuple[Counting, list[str]]] = [(same, []), (other, ["red"])]
    for counting, expected in expectations:
        encoder = CachingEncoder(counting)
        with encoder.cached_in(tmp_path / "texts.npz"):
            encoder.encode_texts(["red"])
        assert counting.asked == expected


def test_a_view_ranks_only_its_own_pictures_in_their_order() -> None:
    bank = MemoryBank.of(GLOBALS, LOCALS)
    features = Features.of(WrittenEncoder(), bank, {"a": 0, "b": 1, "c": 2}, ("c", "a"))
    np.testing.assert_allclose(features.global_vectors, GLOBALS[[2, 0]], atol=1e-3)
    sums = features.map(lambda global_vectors, local_vectors: local_vectors.sum(axis=(1, 2)))
    np.testing.assert_allclose(sums, LOCALS[[2, 0]].sum(axis=(1, 2)), atol=1e-3)


def test_pictures_that_the_bank_lacks_are_named() -> None:
    with pytest.raises(BadInput, match="no picture 'd'"):
        Features.of(WrittenEncoder(), MemoryBank.of(GLOBALS, LOCALS), {"a": 0}, ("a", "d"))
    with pytest.raises(BadInput, match="no picture 'elsewhere'"):
        world().references(["elsewhere"])
