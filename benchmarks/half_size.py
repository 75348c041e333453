"""clip-b16 that looks at pictures in half their size: a quarter of the work, so that whole galleries can be indexed."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tapr.encoders.clip_onnx import IMAGE_SIZE, ClipOnnxEncoder
from tapr.encoders.onnx_file import OnnxFile
from tapr.encoders.onnx_graph import GraphPiece
from tapr.encoders.onnx_session import session
from tapr.encoders.onnx_tokens import OnnxTokens
from tapr.encoders.stored_tower import BLOCK_INPUT, NATIVE_GRID, StoredTower, last_block
from tapr.images.frame import Frame

HALF = IMAGE_SIZE // 2
HALF_GRID = (NATIVE_GRID[0] // 2, NATIVE_GRID[1] // 2)
_PLACES = "/vision_model/embeddings/position_embedding/Constant"  # the node that names the place of every token


class HalfSizeClip(ClipOnnxEncoder):
    """The same weights, texts and vectors' space; every second place of the grid in each direction."""

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(arithmetic="stored", threads=threads)
        self._frame = Frame(HALF, "crop")
        self.card = replace(self.card, image_size=HALF)

    @cached_property
    def _image_tower(self) -> StoredTower:
        return HalfSizeTower(halved(self._image_file), self.card.extractor)


class HalfSizeTower(StoredTower):
    def __init__(self, file: OnnxFile, extractor: str) -> None:
        piece = GraphPiece()
        tokens = OnnxTokens(piece, last_block(file), HALF_GRID, HALF_GRID)
        locals_ = tokens.from_block_input(extractor, file.node(BLOCK_INPUT).outputs[0])
        self._outputs = ["image_embeds", piece.output(locals_)]
        self._session = session(piece.joined_to(file.data))


def halved(path: Path) -> OnnxFile:
    import onnx

    model = onnx.load(str(path))
    places = next(node for node in model.graph.node if node.name == _PLACES).attribute[0].t
    grid = 1 + np.arange(NATIVE_GRID[0] * NATIVE_GRID[1], dtype=np.int64).reshape(NATIVE_GRID)
    kept = np.concatenate([[0], grid[::2, ::2].ravel()])[None]  # 0: the token of the picture as a whole
    places.CopyFrom(onnx.numpy_helper.from_array(kept, places.name))
    for side in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        side.dim_value = HALF
    del model.graph.value_info[:]  # shapes of the whole size
    return OnnxFile(model.SerializeToString())
