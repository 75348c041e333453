"""LDRE: several captions of the reference, each edited. Those that the edit changes most have the largest weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from tapr.factorize.failures import BadRecords
from tapr.methods.base import Method, QueryLike
from tapr.methods.blas_threads import one_thread
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet, RecordSource
from tapr.search.kernels.choose import gpu_in_use
from tapr.types import Float32
from tapr.utils.threads import thread_count
from tapr.utils.weak_cache import cached_for

CAPTIONS = 15  # per reference, in the paper
TEMPERATURE = 0.04
NEAREST = 5
_QUERIES = 32  # queries per product

_PROMPT = """\
# draw 15 captions at 0.7
Describe this picture in one short sentence, as a person would who looks at one side of it: the main thing, its look,
its parts, the place, the action, the mood or the viewpoint. Answer with JSON only: {"caption": "..."}

# call for each of captions without picture
A picture is described as: {item}
Somebody wants another picture, and says how it differs: "{edit}"
Edit the description so that it fits the wanted picture: change what the request touches, keep the rest of its words,
and stay as simple as it is. One sentence. Answer with JSON only: {"edited": "..."}
"""


class LdreRecord(Payload):
    """`captions` of the reference and the same captions `edited`, in the same order."""

    kind: ClassVar[str] = "ldre"
    prompt: ClassVar[str] = _PROMPT
    needs_caption: ClassVar[bool] = True
    reads_caption: ClassVar[bool] = True
    sampled_captions: ClassVar[int] = CAPTIONS
    captions: list[str] = Field(min_length=1)
    edited: list[str] = Field(min_length=1)

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.captions) != len(self.edited):
            raise ValueError(f"{len(self.captions)} captions but {len(self.edited)} edited ones")
        return self

    @classmethod
    def derived(cls, words: RecordSource) -> dict[str, Any]:
        return {"captions": list(words.captions), "edited": list(words.descriptions)}


class Ldre(Method):
    """`shared`: one weight per caption index for all queries, as in the released code; otherwise weights per query."""

    name, label, records, whole = "ldre", "LDRE", (LdreRecord,), True
    help = "Diverse captions of the reference, each edited; those that the edit changes most weigh most."
    order = 32
    shared: ClassVar[bool] = False
    constants: ClassVar = {"temperature": (0.01, 0.02, 0.04, 0.1, 0.2, 0.5, 1.0)}
    temperature = TEMPERATURE

    def inconsistent_records(self, queries: Sequence[QueryLike], records: RecordSet) -> dict[str, str]:
        """Shared weights need the same number of captions in every query; the most common number is used."""
        if not (self.shared and queries):
            return {}
        counts = {query.id: len(records.get(LdreRecord, query.id).captions) for query in queries}
        usual = Counter(counts.values()).most_common(1)[0][0]
        return {
            query_id: f"query {query_id!r} has {count} captions, and most queries {usual}: shared weights need as many"
            for query_id, count in counts.items()
            if count != usual
        }

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        _, edited = self.composed(queries, records, features)
        return features.similarities(edited)

    def composed(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> tuple[Float32, Float32]:
        """The weighted means of the captions' and of the edited captions' vectors, (Q, d) each."""
        read = [records.get(LdreRecord, query.id) for query in queries]
        before = [features.texts(record.captions) for record in read]  # of (C, d)
        after = [features.texts(record.edited) for record in read]
        key = "changes", records, tuple(query.id for query in queries)
        changes = cached_for(
            features, key, lambda: _changes(before, after, features)
        )  # the same for both variants of LDRE
        if self.shared:
            if len({len(change) for change in changes}) > 1:
                raise BadRecords("shared weights need the same number of captions for every query")
            changes = [np.sum(changes, axis=0)] * len(changes)
        weights = [softmax_weights(change, self.temperature) for change in changes]
        mean = [np.stack([w @ v for w, v in zip(weights, side, strict=True)]) for side in (before, after)]
        return mean[0].astype(np.float32), mean[1].astype(np.float32)


class LdreShared(Ldre):
    name, label = "ldre-shared", "LDRE (shared weights)"
    help = "LDRE with the released code's weights, one per caption number for all queries."
    order = 33
    shared: ClassVar[bool] = True


ROWS = (Ldre, LdreShared)


def _changes(before: Sequence[Float32], after: Sequence[Float32], features: Features) -> list[Float32]:
    """Per query (C,): how much the edit changes each caption; captions are (C, d) before and after it."""

    def some(start: int) -> list[Float32]:
        old, new = (np.concatenate(side[start : start + _QUERIES]) for side in (before, after))
        drops = features.similarities(old) - features.similarities(new)  # (sum of C, N)
        ends = np.cumsum([len(vectors) for vectors in before[start : start + _QUERIES]])
        return [divergence(part) for part in np.split(drops, ends[:-1])]

    features.global_vectors  # noqa: B018  (read once, before the threads ask for it)
    starts = range(0, len(before), _QUERIES)
    threads = thread_count() if gpu_in_use() is None else 1
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return [change for part in pool.map(some, starts) for change in part]


def divergence(drops: Float32) -> Float32:
    """(C, N) drop in similarity of each picture -> (C,): the sum of the five largest drops."""
    falls = np.maximum(drops, 0)
    top = np.partition(falls, -min(NEAREST, falls.shape[1]), axis=1)[:, -NEAREST:]
    return np.asarray(top.sum(axis=1), np.float32)


def softmax_weights(change: Float32, temperature: float = TEMPERATURE) -> Float32:
    """(C,) -> (C,), summing to 1; all equal when the edit changes nothing."""
    top = float(change.max())
    scaled = change / top if top > 0 else np.zeros_like(change)
    powers = np.exp((scaled - scaled.max()) / temperature)
    return np.asarray(powers / powers.sum(), np.float32)
