"""All weights of clip-b16's image tower, read from its file: codes of 8 bits with one scale per output channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.local_tokens import Grid, Norm
from tapr.encoders.onnx_file import OnnxFile
from tapr.errors import TaprError
from tapr.types import Float32

LAYERS, HEADS, WIDTH, SIDE, PATCH = 12, 12, 768, 14, 16  # the tower's shape: 14 x 14 patches of 16 x 16 pixels
NATIVE: Grid = (SIDE, SIDE)
DIM = 512  # d
TOKENS = 1 + SIDE * SIDE  # the CLS token first
PIXEL_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)  # CLIP's own
PIXEL_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)


@dataclass(frozen=True)
class StoredLinear:
    """x @ (codes * scale) + bias."""

    codes: NDArray[np.int8]  # (in, out)
    scale: Float32  # (out,)
    bias: Float32  # (out,)

    @property
    def weight(self) -> Float32:
        return np.asarray(self.codes * self.scale, np.float32)  # (in, out)

    def parts(self, count: int) -> list[StoredLinear]:
        """The same layer as so many, each with a part of what comes out."""
        arrays = (np.split(array, count, axis=-1) for array in (self.codes, self.scale, self.bias))
        return [StoredLinear(*each) for each in zip(*arrays, strict=True)]


@dataclass(frozen=True)
class Block:
    """One transformer block."""

    ln1: Norm
    query: StoredLinear  # (D, D), as are key, value and out
    key: StoredLinear
    value: StoredLinear
    out: StoredLinear
    ln2: Norm
    fc1: StoredLinear  # (D, 4 D)
    fc2: StoredLinear  # (4 D, D)


@dataclass(frozen=True)
class TowerWeights:
    """From pixels, numbers from 0 to 255, to the joint space."""

    patches: Float32  # (16 * 16 * 3, D), a patch's pixels row by row; CLIP's normalisation is folded in
    places: Float32  # (1 + P, D), added to CLS token and patches; the CLS token itself and the patches' bias are in it
    ln_pre: Norm
    blocks: tuple[Block, ...]
    ln_post: Norm
    projection: Float32  # (D, d)

    @classmethod
    def read(cls, file: OnnxFile) -> TowerWeights:
        def norm(name: str) -> Norm:
            return Norm(file.initialiser(f"{name}.weight"), file.initialiser(f"{name}.bias"))

        def block(number: int) -> Block:
            name, node = f"vision_model.encoder.layers.{number}", f"/vision_model/encoder/layers.{number}"

            def linear(part: str) -> StoredLinear:
                product = f"{node}/{part.replace('.', '/')}/MatMul_quant"
                codes, scale = _codes(file, product)
                return StoredLinear(codes, scale, file.initialiser(f"{name}.{part}.bias"))

            attention = {"query": "q", "key": "k", "value": "v", "out": "out"}
            sides = {side: linear(f"self_attn.{short}_proj") for side, short in attention.items()}
            ln1, ln2 = norm(f"{name}.layer_norm1"), norm(f"{name}.layer_norm2")
            return Block(ln1=ln1, ln2=ln2, fc1=linear("mlp.fc1"), fc2=linear("mlp.fc2"), **sides)

        embeddings = "vision_model.embeddings"
        kernel = file.initialiser(f"{embeddings}.patch_embedding.weight")  # (D, 3, 16, 16)
        raw = kernel.transpose(2, 3, 1, 0) / PIXEL_STD[:, None]  # (16, 16, 3, D)
        bias = -(raw * PIXEL_MEAN[:, None]).sum((0, 1, 2), dtype=np.float64)
        places = np.array(file.initialiser(f"{embeddings}.position_embedding.weight"))
        places[0] += file.initialiser(f"{embeddings}.class_embedding").reshape(-1)
        places[1:] += bias.astype(np.float32)
        return cls(
            patches=np.ascontiguousarray(raw.reshape(-1, WIDTH) / np.float32(255)),
            places=places,
            ln_pre=norm("vision_model.pre_layrnorm"),
            blocks=tuple(map(block, range(LAYERS))),
            ln_post=norm("vision_model.post_layernorm"),
            projection=file.matrix("/visual_projection/MatMul_quant"),
        )


def _codes(file: OnnxFile, product: str) -> tuple[NDArray[np.int8], Float32]:
    """The weight of a MatMulInteger as it is stored: (in, out), (out,)."""
    node = file.node(product)
    codes = file.initialiser(node.inputs[1])
    scale = np.asarray(file.initialiser(f"{node.inputs[1].removesuffix('_quantized')}_scale"), np.float32)
    if codes.dtype != np.int8 or file.initialiser(node.inputs[3]).any():
        raise TaprError(
            f"{file.name} stores {product!r} otherwise than in symmetric int8: it is not the file this reads"
        )
    return codes, np.broadcast_to(scale, codes.shape[1:])
