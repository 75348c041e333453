"""STiTch: descriptions moved toward the edit, matched with a picture by transport in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tapr.encoders.base import Float32, unit
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features, library_of, like
from tapr.methods.records import Payload, RecordSet, Words

DESCRIPTIONS = 5  # in the paper
SHIFT = 0.45
TAU = 0.02
_QUERIES = 64  # scored in one pass over the bank

_PROMPT = """\
# draw 5 descriptions at 0.7
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Describe the wanted picture in one short sentence that stands on its own and does not compare the two pictures. Answer
with JSON only: {"description": "..."}
"""


class StitchRecord(Payload):
    """Descriptions of the target, sampled one by one."""

    kind: ClassVar[str] = "stitch"
    prompt: ClassVar[str] = _PROMPT
    reads_caption: ClassVar[bool] = True
    draws: ClassVar[int] = DESCRIPTIONS
    descriptions: list[str] = Field(min_length=1)

    @classmethod
    def derived(cls, words: Words) -> dict[str, Any]:
        return {"descriptions": list(words.descriptions[:DESCRIPTIONS])}


class Stitch(Method):
    name, label, records = "stitch", "STiTch", (StitchRecord,)
    help = "Descriptions moved toward the edit, matched with a picture by transport in both directions."
    order = 45
    ours = "a candidate's views are its global and local vectors, not 10 augmented crops"

    def score(self, queries: Sequence[Asked], records: RecordSet, features: Features) -> Float32:
        edits = features.texts(query.edit for query in queries)  # (Q, d)
        moved = []  # of (K, d)
        for query, edit in zip(queries, edits, strict=True):
            described = features.texts(records.get(StitchRecord, query.id).descriptions)
            moved.append(unit((1 - SHIFT) * described + SHIFT * edit))
        scores = np.empty((len(queries), len(features.bank)), np.float32)
        for count in {len(texts) for texts in moved}:  # queries of one number of descriptions go together
            places = [place for place, texts in enumerate(moved) if len(texts) == count]
            for start in range(0, len(places), _QUERIES):
                chunk = places[start : start + _QUERIES]
                scores[chunk] = _chunk_scores(np.stack([moved[place] for place in chunk]), features)
        return scores


ROWS = (Stitch,)


def _chunk_scores(texts: Float32, features: Features) -> Float32:
    """(Q, K, d) -> (Q, N)"""
    count, each, dim = texts.shape
    columns = np.ascontiguousarray(texts.reshape(-1, dim).T)  # (d, Q K)

    def scores(global_vectors: Any, local_vectors: Any) -> Any:
        views = library_of(local_vectors).concatenate([global_vectors[:, None], local_vectors], axis=1)  # (b, V, d)
        # a product for each picture: equal pictures tie
        if not isinstance(views, np.ndarray):  # on a GPU
            dots = (views @ like(columns, views)).reshape(*views.shape[:2], count, each)
            return -transport_cost(dots.movedim(3, 0))
        # one after the other: what is made of a picture stays in a core's cache
        cosines = ((one @ columns).reshape(1, -1, count, each) for one in views)
        return -np.concatenate([transport_cost(np.ascontiguousarray(np.moveaxis(one, 3, 0))) for one in cosines])

    return np.ascontiguousarray(features.map(scores).T, np.float32)


def transport_cost(dots: Any) -> Any:
    """Cosines of texts and views (K, b, V, Q) -> (b, Q): what it costs to bring the texts to the views and back.

    Each text is spread over the views, each view over the texts, by a softmax at TAU; a step costs 1 - cosine;
    the two directions' means are averaged.
    """
    forth = 1 - _soft_mean(dots, 2).mean(axis=0)
    back = 1 - _soft_mean(dots, 0).mean(axis=1)
    return (forth + back) / 2


def _soft_mean(values: Any, axis: int) -> Any:
    """The mean along an axis, weighted by the softmax of the values at TAU."""
    library = library_of(values)
    powers = values - library.amax(values, axis, keepdims=True)
    powers *= float(np.float32(1 / TAU))
    library.exp(powers, out=powers)
    total = powers.sum(axis=axis)
    powers *= values
    return powers.sum(axis=axis) / total
