"""Weights are worked out once for queries of one shape, and are those of every single query."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.evaluate.controls import CONTROLS, variants
from tapr.evaluate.terms import QueryTerms, keys_of
from tapr.evaluate.variant_weights import VariantWeights
from tapr.query.spec import EditSpec, Weights
from tapr.score.compile import Continuity

THETA = Weights(1, 0.5, 0.4, 0.3)


def terms_of(spec: EditSpec, continuity: Continuity | None) -> QueryTerms:
    return QueryTerms(spec, keys_of(spec), {}, continuity)


@pytest.mark.parametrize("continuity", [None, Continuity(0.4, "both")])
def test_queries_of_one_shape_share_their_weights_and_others_do_not(continuity: Continuity | None) -> None:
    asked = variants(CONTROLS)
    weigh = VariantWeights(asked, THETA)
    one = terms_of(EditSpec("a", ["b", "c"], ["d"], ["e"]), continuity)
    alike = terms_of(EditSpec("z", ["y", "x"], ["w"], ["v"]), continuity)
    heavier = terms_of(EditSpec("z", ["y", "x"], ["w"], ["v"], atom_weights={"x": 3}), continuity)
    shorter = terms_of(EditSpec("z", ["y"], ["w"], ["v"]), continuity)
    assert weigh(alike) is weigh(one)
    assert weigh(heavier) is not weigh(one)
    assert weigh(shorter) is not weigh(one)
    for terms in (one, alike, heavier, shorter):
        for together in weigh(terms):
            start = 0
            for number, count in together.counts:
                parts = asked[number].weigh(terms.spec, THETA, terms.continuity)
                own = np.array([terms.weights(each) for each in parts], np.float32)
                np.testing.assert_array_equal(together.rows[start : start + count], own)
                start += count
            assert start == len(together.rows)
