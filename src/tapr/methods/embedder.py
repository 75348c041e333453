"""A multimodal embedder: the encoder's own vector of the reference and the edit together, compared with pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import ComposingEncoder, unit
from tapr.encoders.wrapper import innermost
from tapr.images.decode import decode_sized, read_bytes
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.types import Float32

_TOGETHER = 16  # pictures that are decoded at a time


class Embedder(Method):
    name, label, composes = "embedder", "One composed vector", True
    help = "A multimodal embedder's own vector of reference and edit together; needs an encoder that is one."
    order = 24

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        encoder = innermost(features.encoder)
        assert isinstance(encoder, ComposingEncoder), "a run with another encoder leaves this method out"
        parts = []
        for start in range(0, len(queries), _TOGETHER):
            asked = queries[start : start + _TOGETHER]
            data = [read_bytes(features.files[query.reference]) for query in asked]
            prepared = [encoder.prepare(decode_sized(one, side=encoder.card.image_size)[0]) for one in data]
            parts.append(unit(encoder.encode_composed(prepared, [query.edit for query in asked])))
        return features.similarities(np.concatenate(parts))


ROWS = (Embedder,)
