"""WISER's late fusion: two paths bring candidates with a verifier's confidence, and these decide the order.

From the description and code of Physicsmile/WISER (CVPR 2026). The records hold what the verifier said of the
candidates of either path; pictures that it did not see follow in the order of the target sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import Payload, RecordSet
from tapr.types import Float32

Confidences = dict[str, Annotated[float, Field(ge=0, le=1)]]


class WiserRecord(Payload):
    """The target sentence, and the confidence in candidates by name: those found by text and by a generated picture."""

    kind: ClassVar[str] = "wiser"
    target: str
    text: Confidences
    image: Confidences = Field(default_factory=dict)


class Wiser(Method):
    name, label, order, records = "wiser", "WISER", 61, (WiserRecord,)
    help = "Candidates of two paths by the sum of a verifier's confidences, from records; a multi-pass method."
    multi_pass = True
    ours = "the fusion alone, from records; candidates that are not in the gallery are left out"

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        read = [records.get(WiserRecord, query.id) for query in queries]
        scores = features.similarities(features.texts(record.target for record in read))  # at most 1
        column = {int(row): place for place, row in enumerate(features.bank.rows)}
        place_of = {name: column[row] for name, row in features.row_of.items() if row in column}
        for row, record in zip(scores, read, strict=True):
            ordered = [place_of[name] for name in fused(record.text, record.image) if name in place_of]
            row[ordered] = np.arange(len(ordered), 0, -1) + 1  # before all that was not seen
        return scores


ROWS = (Wiser,)


def fused(text: Mapping[str, float], image: Mapping[str, float]) -> list[str]:
    """Return names by the sum of both confidences, then by the higher, then by the text path's, then by name."""

    def key(name: str) -> tuple[float, float, float, str]:
        first, second = text.get(name, 0.0), image.get(name, 0.0)
        return -(first + second), -max(first, second), -first, name

    return sorted({**text, **image}, key=key)
