"""BASIC (i-CIR): no language model; picture and text similarities, centred, scaled, multiplied like a logical and."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tapr.encoders.base import unit
from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.search.similarity import similarities
from tapr.types import Float32

PENALTY = 0.1
# the mean of these texts stands for what every text vector shares
COMMON = (
    "person", "man", "woman", "child", "face", "hand", "dog", "cat", "bird", "horse", "fish", "tree", "flower",
    "leaf", "mountain", "sea", "river", "sky", "cloud", "sun", "night", "snow", "street", "house", "room", "door",
    "table", "chair", "bed", "lamp", "car", "bus", "train", "bicycle", "boat", "airplane", "bread", "fruit", "cake",
    "cup", "bottle", "plate", "dress", "shirt", "shoe", "hat", "bag", "book", "phone", "clock", "ball", "sign",
    "red", "blue", "green", "black", "white", "old", "small", "many", "drawing", "photograph", "toy", "statue",
)  # fmt: skip


class Basic(Method):
    name, label = "basic", "BASIC"
    help = "No language model: picture and text similarities, centred, scaled, multiplied like a logical and."
    order = 20
    ours = "means over the gallery and over 64 common words, scores scaled to 0..1 in each query; no projection"

    def score(self, queries: Sequence[QueryLike], records: RecordSet, features: Features) -> Float32:
        image_mean = features.global_vectors.mean(axis=0)
        text_mean = features.texts(COMMON).mean(axis=0)
        gallery = unit(features.global_vectors - image_mean)  # (N, d)
        reference = unit(features.reference_vectors([query.reference for query in queries]) - image_mean)
        edit = unit(features.texts(query.edit for query in queries) - text_mean)
        return fuse(similarities(edit, gallery), similarities(reference, gallery))


ROWS = (Basic,)


def fuse(by_text: Float32, by_image: Float32) -> Float32:
    """(Q, N) each: s_t s_i - 0.1 (s_t + s_i)^2, which is high where both are."""
    text, image = _scaled(by_text), _scaled(by_image)
    return np.asarray(text * image - PENALTY * (text + image) ** 2, np.float32)


def _scaled(scores: Float32) -> Float32:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return np.asarray((scores - low) / np.where(high > low, high - low, 1), np.float32)
