"""FREEDOM: the reference as the words nearest to it and to its neighbours, each put before the edit.

Written from the description and code of NikosEfth/freedom; made for edits that name a style or a domain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.methods.words import things
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for


class Freedom(Method):
    name, label = "freedom", "FREEDOM"
    help = "No language model: words nearest to the reference and its neighbours, each put before the edit."
    order = 22
    ours = "the list of words: the factorizer's things, not Open Images' classes"
    constants: ClassVar = {"neighbours": (5, 10, 20, 40), "kept": (3, 7, 15)}
    neighbours, nearest, kept = 20, 7, 7  # pictures; words of each; words that are kept of all

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        words = things()
        known = cached_for(features, "freedom words", lambda: features.texts(words))
        gallery = features.global_vectors
        reference = features.query_vectors(queries)
        count = min(self.neighbours - 1, len(gallery))
        vectors = np.zeros((len(queries), gallery.shape[1]), np.float32)
        for row, query in enumerate(queries):
            near = np.argsort(-(gallery @ reference[row]), kind="stable")[:count]
            proxies = np.concatenate([reference[row][None], gallery[near]])  # (K, d)
            best = np.argsort(-(proxies @ known.T), axis=1, kind="stable")[:, : self.nearest]
            counts = Counter(words[place] for place in best.ravel()).most_common(self.kept)
            texts = features.texts(f"{word} {query.edit}" for word, _ in counts)
            weights = np.array([number for _, number in counts], np.float32) / counts[0][1]
            vectors[row] = weights @ texts
        return features.similarities(vectors)


ROWS = (Freedom,)
