"""clip-b16's image tower on onnxruntime: a shipped graph per extractor, with the weights of the fetched file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Evidence, unit
from tapr.encoders.clip_weights import GRAPHS, INPUT, TowerWeights
from tapr.encoders.onnx_session import session
from tapr.types import Float32


class ImageTower:
    """The image tower of clip-b16, safe to call from any number of threads."""

    def __init__(self, weights: Path, extractor: str) -> None:
        """Open the tower. `weights`: the fetched file, whose hash has been checked."""
        graph = GRAPHS / f"{extractor}.onnx"
        self._session = session(graph, finished=True, weights=TowerWeights.read(weights).by_name())
        self._outputs = [output.name for output in self._session.get_outputs()]

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Float32, Float32]:
        """Encode a picture: (S, S, 3) -> (d,), (M, d)."""
        evidence = self.encode_batch(pixels[None])
        return evidence.global_vectors[0], evidence.local_vectors[0]

    def encode_batch(self, pixels: NDArray[np.uint8]) -> Evidence:
        """Encode (B, S, S, 3) -> (B, d), (B, M, d): a picture's vectors are the same in any batch."""
        global_vectors, local_vectors = self._session.run(self._outputs, {INPUT: pixels})
        return Evidence(unit(global_vectors), unit(local_vectors))
