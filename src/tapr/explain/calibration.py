"""Whether a picture shows what an atom names: cosines read on a scale that the gallery itself gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.encoders.centred import PHRASES
from tapr.gallery import Gallery
from tapr.utils.weak_cache import cached_for

Found = Literal["found", "hardly found", "not found"]
_PICTURES, _PHRASES = 64, 64  # the sample: most pairs of them have nothing to do with each other
SHARES = (0.5, 0.75, 0.95)  # of such pairs that peak below zero, weak and sure


@dataclass(frozen=True)
class Scale:
    """The scale on which cosines of a phrase and a place in a picture are read: per encoder and gallery."""

    zero: float  # as much as half of all unrelated pairs of phrase and picture reach somewhere
    weak: float  # three of four stay below it
    sure: float  # 19 of 20 stay below it

    @classmethod
    def of(cls, gallery: Gallery) -> Scale:
        """From a sample: pictures evenly spaced over the rows, everyday phrases from a fixed list."""

        def measure() -> Scale:
            if not gallery.row_count:
                return cls(0.0, 0.0, 0.0)
            rows = np.unique(np.linspace(0, gallery.row_count - 1, _PICTURES).astype(np.int64))
            peaks = peaks_of_everyday_phrases(gallery.encoder, gallery.gather(rows).decoded())
            return cls(*(float(level) for level in np.quantile(peaks, SHARES)))

        return cached_for(gallery.stored, "scale of findings", measure)

    @property
    def full(self) -> float:
        """Where the colour is strongest; above `sure` by half as much again as `sure` is above zero."""
        return self.zero + 2.5 * max(self.sure - self.zero, 1e-6)

    def word(self, peak: float) -> Found:
        if peak >= self.sure:
            return "found"
        return "hardly found" if peak >= self.weak else "not found"

    def strength(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        """0 (what is found everywhere) to 1, of any shape."""
        return np.clip((np.asarray(cosines, np.float64) - self.zero) / (self.full - self.zero), 0.0, 1.0)


def peaks_of_everyday_phrases(encoder: Encoder, local_vectors: NDArray[Any]) -> NDArray[np.float32]:
    """The best cosine of each of a fixed list of phrases with a place of each picture: (R, M, d) -> (n, R)."""
    phrases = PHRASES.read_text(encoding="utf-8").splitlines()
    probes = encoder.encode_atoms(phrases[:: len(phrases) // _PHRASES][:_PHRASES])  # (n, d)
    return np.asarray((local_vectors.astype(np.float32) @ probes.T).max(axis=1).T)


def is_met(sign: int, found: Found) -> bool:
    """Whether a wish is fulfilled: what is wanted is found, what must go (sign -1) is not."""
    return (found == "found") if sign > 0 else (found != "found")
