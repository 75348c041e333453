"""clip-b16's image tower as its file has it: 8-bit activations with one scale per tensor, so one picture at a time.

Galleries that were made before cards named an arithmetic have its vectors. built_tower.py is the default.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.encoders.clip_weights import HEADS, PIXEL_MEAN, PIXEL_STD
from tapr.encoders.extractors import extractor_of
from tapr.encoders.local_tokens import Grid, LastBlock, Linear, Norm
from tapr.encoders.onnx_file import OnnxFile
from tapr.encoders.onnx_graph import GraphPiece
from tapr.encoders.onnx_session import session
from tapr.encoders.onnx_tokens import OnnxTokens
from tapr.types import Float32

NATIVE_GRID: Grid = (14, 14)
GRID: Grid = (7, 7)
_BLOCK = "vision_model.encoder.layers.11"  # as initialisers are named
_BLOCK_NODES = "/vision_model/encoder/layers.11"  # as nodes are
BLOCK_INPUT = "/vision_model/encoder/layers.10/Add_1"
_BLOCK_OUTPUT = f"{_BLOCK_NODES}/Add_1"


class StoredTower:
    """The graph of the file, to which the extractor is joined.

    An extractor that is the block as trained reads what the graph itself computes; every other one starts from the
    last block's input.
    """

    def __init__(self, file: OnnxFile, extractor: str) -> None:
        piece = GraphPiece()
        tokens = OnnxTokens(piece, last_block(file), NATIVE_GRID, GRID)
        if extractor_of(extractor).as_trained:
            locals_ = tokens.from_block_output(file.node(_BLOCK_OUTPUT).outputs[0])
        else:
            locals_ = tokens.from_block_input(extractor, file.node(BLOCK_INPUT).outputs[0])
        self._outputs = ["image_embeds", piece.output(locals_)]
        self._model = piece.joined_to(file.data)
        self._session = session(self._model)

    def encode(self, pixels: NDArray[np.uint8]) -> tuple[Float32, Float32]:
        """(S, S, 3) -> (d,), (M, d)."""
        embeddings, locals_ = self._session.run(self._outputs, {"pixel_values": planes(pixels)})
        return unit(embeddings[0]), unit(locals_)


def last_block(file: OnnxFile) -> LastBlock:
    """The weights of everything after the last block's input, as float32."""

    def norm(name: str) -> Norm:
        return Norm(file.initialiser(f"{name}.weight"), file.initialiser(f"{name}.bias"))

    def linear(part: str) -> Linear:
        weight = file.matrix(f"{_BLOCK_NODES}/{part.replace('.', '/')}/MatMul_quant")
        return Linear(weight, file.initialiser(f"{_BLOCK}.{part}.bias"))

    return LastBlock(
        ln1=norm(f"{_BLOCK}.layer_norm1"),
        query=linear("self_attn.q_proj"),
        key=linear("self_attn.k_proj"),
        value=linear("self_attn.v_proj"),
        out=linear("self_attn.out_proj"),
        ln2=norm(f"{_BLOCK}.layer_norm2"),
        fc1=linear("mlp.fc1"),
        fc2=linear("mlp.fc2"),
        ln_post=norm("vision_model.post_layernorm"),
        projection=file.matrix("/visual_projection/MatMul_quant"),
        heads=HEADS,
        activation="quick_gelu",
    )


def planes(pixels: NDArray[np.uint8]) -> Float32:
    """(S, S, 3) -> (1, 3, S, S), normalised as CLIP was trained."""
    scaled = pixels.astype(np.float32)
    scaled /= 255
    scaled -= PIXEL_MEAN
    scaled /= PIXEL_STD
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))[None]
