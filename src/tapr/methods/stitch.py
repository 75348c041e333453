"""STiTch: descriptions moved toward the edit, matched with a picture by transport in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tapr.encoders.base import Float32, unit
from tapr.methods.base import Asked, Method
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, Words

DESCRIPTIONS = 5  # in the paper
SHIFT = 0.45
TAU = 0.02
_QUERIES = 64  # scored in one pass over the bank

_PROMPT = """\
# call
Somebody shows you this picture and asks for another one that differs so: "{edit}"
Write 5 descriptions of the wanted picture that differ in their words and in what they begin with. One short sentence
each, none of them comparing the two pictures. Answer with JSON only: {"descriptions": ["...", ...]}
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

    def scores(global_vectors: Float32, local_vectors: Float32) -> NDArray[Any]:
        views = np.concatenate([global_vectors[:, None], local_vectors], axis=1)  # (b, V, d)
        dots = np.matmul(views, columns)  # a product for each picture: equal pictures tie
        return -transport_cost(dots.reshape(*views.shape[:2], count, each))

    return np.ascontiguousarray(features.map(scores).T, np.float32)


def transport_cost(dots: NDArray[Any]) -> NDArray[Any]:
    """Cosines of views and texts (b, V, Q, K) -> (b, Q): what it costs to bring the texts to the views and back.

    Each text is spread over the views, each view over the texts, by a softmax at TAU; a step costs 1 - cosine;
    the two directions' means are averaged.
    """
    forth = 1 - _soft_mean(dots, axis=1).mean(axis=2)
    back = 1 - _soft_mean(dots, axis=3).mean(axis=1)
    return np.asarray((forth + back) / 2)


def _soft_mean(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """The mean along an axis, weighted by the softmax of the values at TAU."""
    powers = np.exp((values - values.max(axis=axis, keepdims=True)) * np.float32(1 / TAU))
    total = powers.sum(axis=axis)
    powers *= values
    return np.asarray(powers.sum(axis=axis) / total)
