"""What an engine is given, and what is said where there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tapr import BadInput, Gallery
from tapr.encoders.base import unit
from tapr.encoders.fake import FakeEncoder
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter.engine import FaissEngine, picture_vectors, query_vector
from tapr.search.prefilter.store import build
from tapr.search.sweep import score
from tests.pictures import SOME_FLAGS, write_flags
from tests.search.banks import make_query, random_bank


def test_where_all_places_look_alike_the_inner_product_is_the_score() -> None:
    rng = np.random.default_rng(1)
    places = unit(rng.standard_normal((30, 1, 16)))
    bank = MemoryBank.of(unit(rng.standard_normal((30, 16))), np.repeat(places, 5, axis=1))
    query = make_query(rng, 6, 16)
    np.testing.assert_allclose(picture_vectors(bank.block) @ query_vector(query), score(query, bank), atol=1e-5)


def test_without_faiss_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    write_flags(tmp_path / "p", SOME_FLAGS[:2])
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    with pytest.raises(BadInput, match=r"pip install 'tapr-cir\[first-stage\]'"):
        build(gallery)
    assert not [path for path in gallery.path.iterdir() if "first-stage" in path.name]


def test_few_pictures_are_found_all_and_many_by_lists(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the extra first-stage is not installed")
    rng = np.random.default_rng(2)
    query = make_query(rng, 6, 16)
    for rows in (5, 2000):
        bank = MemoryBank.of(*random_bank(rng, rows, 3, 16))
        vectors = picture_vectors(bank.block)
        engine = FaissEngine.trained(vectors, rows)
        engine.add(vectors)
        engine.save(tmp_path / "index")
        found = FaissEngine.load(tmp_path / "index").candidates(query, 5)
        assert sorted(set(found.tolist())) == sorted(found.tolist())
        assert set(found.tolist()) <= set(range(rows))
        assert len(found) == 5
        similar = vectors @ query_vector(query)
        assert similar[found].mean() > np.sort(similar)[-rows // 10 :].mean() - 0.2 or rows == 5
