"""clip-b16 that looks at pictures in half their size: a quarter of the work, so that whole galleries can be indexed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.encoders.clip_onnx import IMAGE_SIZE, ClipOnnxEncoder
from tapr.encoders.clip_weights import GRID, INPUT, SIDE, WIDTH, TowerWeights
from tapr.encoders.onnx_session import session
from tapr.images.frame import Frame
from tapr.types import Float32
from tools.build_image_tower import Graph, RowProducts, TowerGraph

HALF = IMAGE_SIZE // 2


class HalfSizeClip(ClipOnnxEncoder):
    """The same weights, texts and vectors' space; every second place of the grid in each direction."""

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(threads=threads)
        self.frame = Frame(HALF, "crop")
        self.card = replace(self.card, image_size=HALF)

    @cached_property
    def _image_tower(self) -> HalfSizeTower:  # type: ignore[override]
        return HalfSizeTower(TowerWeights.read(self._image_file), self.card.extractor)


class HalfSizeTower:
    """The tower's graph with a quarter of the places."""

    def __init__(self, weights: TowerWeights, extractor: str) -> None:
        places = weights.places[1:].reshape(SIDE, SIDE, WIDTH)[::2, ::2].reshape(-1, WIDTH)
        graph = Graph(replace(weights, places=np.concatenate([weights.places[:1], places])).by_name())
        tower = TowerGraph(graph, RowProducts(graph), side=SIDE // 2)
        self._outputs = [graph.output(name) for name in tower.vectors(extractor, GRID)]
        self._session = session(graph.model(), finished=True)

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Float32, Float32]:
        """(S, S, 3) -> (d,), (M, d)"""
        global_vectors, local_vectors = self._session.run(self._outputs, {INPUT: pixels[None]})
        return unit(global_vectors[0]), unit(local_vectors[0])
