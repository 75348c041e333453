"""What `tapr` itself offers: the names that others script against."""

from __future__ import annotations

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.query.factors import FACTORS
from tapr.score import definition
from tests.pictures import flag


def test_the_public_names_are_those_of_the_score() -> None:
    encoder = FakeEncoder()
    evidence = encoder.encode_images([encoder.prepare(flag(*colours)) for colours in (("red",), ("blue", "green"))])
    query = tapr.compile_query(tapr.EditSpec("a red flag", add=("red",)), evidence[:1], encoder)
    assert isinstance(query, tapr.CompiledQuery)
    assert definition.score(query, evidence.global_vectors, evidence.local_vectors).shape == (2,)
    assert tapr.late_interaction is definition.late_interaction
    assert tapr.FACTORS is FACTORS


def test_every_public_name_is_there() -> None:
    assert all(getattr(tapr, name) is not None for name in tapr.__all__)


def test_modules_of_the_search_do_not_hide_the_function() -> None:
    import tapr.search.topk

    assert callable(tapr.search)
