"""BASIC (i-CIR): no language model; projected picture similarities and text similarities, multiplied like an and.

From the public description in billpsomas/icir: features are centred; pictures are projected onto what tells things
apart and styles do not (contrastive PCA); the text is averaged over contexts; the reference may be expanded by its
nearest pictures; both similarities are scaled alike and fused by s_t s_i - 0.1 (s_t + s_i)^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.methods.words import styles, things
from tapr.search.similarity import similarities
from tapr.types import Float32
from tapr.utils.weak_cache import cached_for

COMPONENTS = 250
NEAREST = 25  # pictures that expand a reference
_SHARPNESS = 0.1  # of their weights
_CONTEXTS = 10  # things that a text is put beside, each before and after it; the authors take 100
_SAMPLE = 512  # pictures whose similarities set the scale


class Basic(Method):
    name, label = "basic", "BASIC"
    help = "No language model: projected picture similarities and text similarities, multiplied like a logical and."
    order = 20
    ours = (
        "the lists of things and styles, 10 contexts instead of 100, the gallery's mean for LAION's, the scale from "
        "the gallery instead of generated pictures"
    )
    constants: ClassVar = {"alpha": (0.0, 0.1, 0.2, 0.3, 0.4), "penalty": (0.0, 0.05, 0.1, 0.2)}
    alpha = 0.2  # weight of styles against things in the contrastive PCA
    penalty = 0.1
    expanded: ClassVar[bool] = False

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        image_mean = features.global_vectors.mean(axis=0)
        subjects, looks = cached_for(
            features, "basic words", lambda: (features.texts(things()), features.texts(styles()))
        )
        text_mean = subjects.mean(axis=0)
        projection = contrastive_projection(subjects - text_mean, looks - text_mean, self.alpha, COMPONENTS)
        gallery = features.global_vectors - image_mean  # (N, d)
        reference = features.query_vectors(queries) - image_mean
        if self.expanded:
            reference = expand(reference, similarities(reference @ projection, gallery), gallery)
        by_image = similarities(reference @ projection, gallery)  # (Q, N)
        by_text = similarities(self._contextual([query.edit for query in queries], features) - text_mean, gallery)
        sample = gallery[:: max(1, len(gallery) // _SAMPLE)]
        image_low, text_low = float((sample @ sample.T).min()), float(((subjects - text_mean) @ sample.T).min())
        return fuse(scaled(by_text, text_low, image_low), scaled(by_image, image_low, image_low), self.penalty)

    def _contextual(self, edits: Sequence[str], features: Features) -> Float32:
        """(Q, d): the mean of an edit's vectors beside some things, before and after them."""
        words = things()[:: max(1, len(things()) // _CONTEXTS)][:_CONTEXTS]
        unique = list(dict.fromkeys(edits))
        texts = [text for edit in unique for word in words for text in (f"{word} {edit}", f"{edit} {word}")]
        means = features.texts(texts).reshape(len(unique), 2 * len(words), -1).mean(axis=1)
        row = {edit: place for place, edit in enumerate(unique)}
        return unit(means)[[row[edit] for edit in edits]]


class BasicExpanded(Basic):
    name, label = "basic-expanded", "BASIC + query expansion"
    help = "BASIC with the reference expanded by the 25 pictures nearest to it."
    order = 21
    expanded: ClassVar[bool] = True


ROWS = (Basic, BasicExpanded)


def contrastive_projection(wanted: Float32, unwanted: Float32, alpha: float, components: int) -> Float32:
    """(W, d), (U, d), centred -> (d, d): onto the leading directions of (1 - a) C_wanted - a C_unwanted."""

    def scatter(vectors: Float32) -> Any:
        wide = vectors.astype(np.float64)
        return wide.T @ wide / max(len(wide) - 1, 1)

    values, directions = np.linalg.eigh((1 - alpha) * scatter(wanted) - alpha * scatter(unwanted))
    kept = directions[:, ::-1][:, : min(components, int((values > 0).sum()))]
    return np.asarray(kept @ kept.T, np.float32)


def expand(reference: Float32, similarities: Float32, gallery: Float32) -> Float32:
    """Each reference as a weighted mean of itself and its nearest pictures; (Q, d), (Q, N), (N, d) -> (Q, d)"""
    count = min(NEAREST, len(gallery))
    nearest = np.argsort(-similarities, axis=1, kind="stable")[:, :count]
    found = np.take_along_axis(similarities, nearest, axis=1)
    weights = np.exp(_SHARPNESS * np.concatenate([found, np.ones((len(found), 1), np.float32)], axis=1))
    weights /= weights.sum(axis=1, keepdims=True)
    together = np.concatenate([gallery[nearest], reference[:, None]], axis=1)  # (Q, count + 1, d)
    return np.asarray((weights[..., None] * together).sum(axis=1), np.float32)


def scaled(scores: Float32, low: float, image_low: float) -> Float32:
    """Return scores from the lowest similarity up, in units of the pictures' lowest; never below 0."""
    return np.asarray(np.maximum((scores - low) / max(abs(image_low), 1e-9), 0), np.float32)


def fuse(text: Float32, image: Float32, penalty: float = 0.1) -> Float32:
    """(Q, N) each: s_t s_i - 0.1 (s_t + s_i)^2, which is high where both are."""
    return np.asarray(text * image - penalty * (text + image) ** 2, np.float32)
