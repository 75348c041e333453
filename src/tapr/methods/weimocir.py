"""WeiMoCIR: image and edit in one vector, compared with pictures and with captions of the gallery's pictures.

Written from the description (arXiv 2409.04918): q = (1 - alpha) v_r + alpha t(edit), of length 1; a picture's score is
(1 - beta) q . v0 + beta times the mean of q . t(caption) over its captions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.search.similarity import similarities
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for


class WeiMoCir(Method):
    name, label, reads_captions = "weimocir", "WeiMoCIR", True
    help = "The reference and the edit as one vector, compared with every picture and with captions of it."
    order = 23
    ours = (
        "the constants of the authors' examples with CLIP (0.8 and 0.1) on every dataset; a picture without a caption "
        "is compared as a picture alone"
    )
    constants: ClassVar = {"alpha": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95), "beta": (0.0, 0.1, 0.2, 0.3, 0.5)}
    alpha, beta = 0.8, 0.1

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        words = features.texts(query.edit for query in queries)
        composed = unit((1 - self.alpha) * features.query_vectors(queries) + self.alpha * words)
        captions = mean_captions(features)
        both = (1 - self.beta) * features.similarities(composed) + self.beta * similarities(composed, captions)
        return np.asarray(both, np.float32)


ROWS = (WeiMoCir,)


def mean_captions(features: Features) -> Float32:
    """Return (N, d), computed once: the mean of the vectors of a picture's captions; without any, its own vector."""
    return cached_for(features, "mean captions", lambda: _mean_captions(features))


def _mean_captions(features: Features) -> Float32:
    assert features.captions is not None, "a run without captions leaves this method out"
    captions = [features.captions[int(row)] for row in features.bank.rows]
    texts = list(dict.fromkeys(text for several in captions for text in several))
    known = dict(zip(texts, features.texts(texts), strict=True))
    means = np.array(features.global_vectors, np.float32)
    for place, several in enumerate(captions):
        if several:
            means[place] = np.mean([known[text] for text in several], axis=0)
    return means
