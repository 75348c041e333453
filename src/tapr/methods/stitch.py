"""STiTch: descriptions moved toward the edit, matched with a picture by transport in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features, array_library, to_same_device
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.search.kernels.choose import gpu_in_use
from tapr.types import Float32

DESCRIPTIONS = 5  # number in the paper
SHIFT = 0.45
TAU = 0.02
_QUERIES, _QUERIES_ON_GPU = 192, 64  # scored in one pass over the bank
_NARROW = 60 * TAU  # within this range of cosines, no power underflows in float32

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
    sampled_captions: ClassVar[int] = DESCRIPTIONS
    descriptions: list[str] = Field(min_length=1)

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        return {"descriptions": list(words.descriptions[:DESCRIPTIONS])}


class Stitch(Method):
    name, label, records = "stitch", "STiTch", (StitchRecord,)
    help = "Descriptions moved toward the edit, matched with a picture by transport in both directions."
    order = 45
    ours = "a candidate's views are its global and local vectors, not 10 augmented crops"
    constants: ClassVar = {"shift": (0.15, 0.3, 0.45, 0.6, 0.75)}
    shift = SHIFT

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        edits = features.texts(query.edit for query in queries)  # (Q, d)
        moved = []  # of (K, d)
        for query, edit in zip(queries, edits, strict=True):
            described = features.texts(records.get(StitchRecord, query.id).descriptions)
            moved.append(unit((1 - self.shift) * described + self.shift * edit))
        scores = np.empty((len(queries), len(features.bank)), np.float32)
        step = _QUERIES if gpu_in_use() is None else _QUERIES_ON_GPU
        # queries with the same number of descriptions are scored together
        for count in {len(texts) for texts in moved}:
            places = [place for place, texts in enumerate(moved) if len(texts) == count]
            for start in range(0, len(places), step):
                chunk = places[start : start + step]
                scores[chunk] = _chunk_scores(np.stack([moved[place] for place in chunk]), features)
        return scores


ROWS = (Stitch,)


def _chunk_scores(texts: Float32, features: Features) -> Float32:
    """(Q, K, d) -> (Q, N)"""
    count, each, dim = texts.shape
    by_text = np.ascontiguousarray(texts.transpose(1, 2, 0))  # (K, d, Q)
    columns = np.ascontiguousarray(texts.transpose(2, 1, 0).reshape(dim, -1))  # (d, K Q)

    def scores(global_vectors: Any, local_vectors: Any) -> Any:
        views = array_library(local_vectors).concatenate([global_vectors[:, None], local_vectors], axis=1)  # (b, V, d)
        # a product for each picture: equal pictures tie
        if not isinstance(views, np.ndarray):  # on a GPU
            dots = (views @ to_same_device(columns, views)).reshape(*views.shape[:2], each, count)
            return -transport_cost(dots.movedim(2, 0))
        # one by one, so that intermediate results stay in a core's cache
        return -np.concatenate([transport_cost((one @ by_text)[:, None]) for one in views])

    return np.ascontiguousarray(features.map(scores).T, np.float32)


def transport_cost(dots: Any) -> Any:
    """Cosines of texts and views (K, b, V, Q) -> (b, Q): the cost of transport from the texts to the views and back."""
    if isinstance(dots, np.ndarray) and dots.max() - dots.min() < _NARROW:  # one exponential serves both directions
        powers = _powers(dots, (0, 2))
        weighted = powers * dots
        to_views = weighted.sum(axis=2) / powers.sum(axis=2)  # (K, b, Q)
        to_texts = weighted.sum(axis=0) / powers.sum(axis=0)  # (b, V, Q)
    else:
        to_views, to_texts = _soft_mean(dots, 2), _soft_mean(dots, 0)
    return ((1 - to_views.mean(axis=0)) + (1 - to_texts.mean(axis=1))) / 2


def _soft_mean(values: Any, axis: int) -> Any:
    """The mean along an axis, weighted by the softmax of the values at TAU."""
    powers = _powers(values, axis)
    total = powers.sum(axis=axis)
    powers *= values
    return powers.sum(axis=axis) / total


def _powers(values: Any, axis: Any) -> Any:
    """exp(values / TAU), the largest along the axis at 1."""
    library = array_library(values)
    below = values - library.amax(values, axis, keepdims=True)
    below *= float(np.float32(1 / TAU))
    return library.exp(below, out=below)
