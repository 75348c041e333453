"""clip-b16 on a GPU: the same weights, in float16, through torch. Texts stay with onnxruntime. Needs torch.

The vectors agree with those of the CPU (arithmetic.py), so a gallery made here is searched there, and the other way
round. extractors.py says what each extractor reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.arithmetic import PROCESSORS
from tapr.encoders.base import Evidence
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.clip_weights import (
    DIM,
    GRID,
    HEADS,
    NATIVE,
    PATCH,
    SIDE,
    WIDTH,
    StoredLinear,
    TowerBlock,
    TowerWeights,
)
from tapr.encoders.extractors import Extractor, extractor_of
from tapr.encoders.local_tokens import Norm, neighbourhood, pooling
from tapr.encoders.torch_bulk import TorchBulk


class ClipTorchEncoder(ClipOnnxEncoder):
    """The image tower of clip-b16 on a GPU."""

    arithmetics = (PROCESSORS["gpu"].arithmetic,)

    def __init__(self, device: Any, **options: Any) -> None:
        super().__init__(**options)
        self._device = device

    @property
    def bulk(self) -> int:
        return self._bulk.size

    def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        return self._bulk(prepared)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        if not len(prepared):
            return super().encode_images(prepared)
        vectors = self._bulk(prepared)
        return Evidence(vectors.global_vectors.astype(np.float32), vectors.local_vectors.astype(np.float32))

    @cached_property
    def _bulk(self) -> TorchBulk:
        import torch

        weights = TowerWeights.read(self._image_file)
        tower = TorchTower(weights, self.card.extractor, self._device, torch.float16)
        return TorchBulk(tower, DIM, self.card.locals_count, self._device)


class TorchTower:
    """The tower of tools/build_image_tower.py in torch, of any floating type."""

    def __init__(self, weights: TowerWeights, extractor: str, device: Any, dtype: Any) -> None:
        import torch

        self._torch, self._device, self._dtype = torch, device, dtype
        self._extractor: Extractor = extractor_of(extractor)
        self._patches, self._places = (
            self._put(weights.patches, torch.float32),
            self._put(weights.places, torch.float32),
        )
        self._ln_pre, self._ln_post = self._norm(weights.ln_pre), self._norm(weights.ln_post)
        self._blocks = [self._block(block) for block in weights.blocks]
        self._pooling = self._put(pooling(NATIVE, GRID), torch.float32)  # (M, P)
        self._projection = self._put(weights.projection, torch.float32)
        self._near: Any = None
        if self._extractor.neighbourhood:
            self._near = self._put(neighbourhood(NATIVE, self._extractor.neighbourhood, self._extractor.reads_cls))

    def __call__(self, pictures: Any) -> tuple[Any, Any]:
        """Encode (B, S, S, 3) bytes: global vectors (B, d), local vectors (B, M, d), of any length."""
        with self._torch.inference_mode():
            states = self._embedded(pictures.to(self._device, non_blocking=True))
            for block in self._blocks[:-1]:
                query, key, value = self._sides(states, block)
                states = self._rest(states, self._attend(query, key, value), block)
            return self._last(states, self._blocks[-1])

    def _embedded(self, pixels: Any) -> Any:
        """Embed patches in float32: a pixel's weight is too small for float16."""
        cut = pixels.float().unflatten(1, (SIDE, PATCH)).unflatten(3, (SIDE, PATCH))  # (B, 14, 16, 14, 16, 3)
        patches = cut.permute(0, 1, 3, 2, 4, 5).reshape(len(pixels), SIDE**2, -1) @ self._patches
        states = self._torch.nn.functional.pad(patches, (0, 0, 1, 0)) + self._places
        return self._normed(states.to(self._dtype), self._ln_pre)

    def _last(self, states: Any, block: dict[str, Any]) -> tuple[Any, Any]:
        query, key, value = self._sides(states, block)
        cls = self._rest(states[:, :1], self._attend(query[:, :, :1], key, value), block)[:, 0]
        patches = self._reread(query, key, value)
        if self._extractor.whole_block:
            patches = self._rest(states[:, 1:], patches, block)
        else:
            patches = self._linear(patches, block["out"])
        # half precision ends here: what follows is little work and decides the directions
        pooled = self._pooling @ self._normed(patches, self._ln_post).float()
        return self._normed(cls, self._ln_post).float() @ self._projection, pooled @ self._projection

    def _reread(self, query: Any, key: Any, value: Any) -> Any:
        """Return what each patch reads from the values, (B, P, D)."""
        extractor = self._extractor
        if not extractor.attends:
            return value[:, :, 1:].transpose(1, 2).flatten(2)
        first = 0 if extractor.reads_cls else 1  # of what is read
        sides = {"query": query, "key": key}
        reads = (
            self._attend(sides[asking][:, :, 1:], sides[other][:, :, first:], value[:, :, first:], self._near)
            for asking, other in extractor.attends
        )
        return reduce(add, reads)

    def _sides(self, states: Any, block: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Return queries, keys and values, (B, heads, tokens, D / heads) each."""
        joined = self._linear(self._normed(states, block["ln1"]), block["sides"])
        query, key, value = (side.unflatten(-1, (HEADS, -1)).transpose(1, 2) for side in joined.chunk(3, dim=-1))
        return query, key, value

    def _attend(self, query: Any, key: Any, value: Any, near: Any = None) -> Any:
        attend = self._torch.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, attn_mask=near).transpose(1, 2).flatten(2)  # (B, tokens, D)

    def _rest(self, states: Any, read: Any, block: dict[str, Any]) -> Any:
        states = states + self._linear(read, block["out"])
        wide = self._linear(self._normed(states, block["ln2"]), block["fc1"])
        return states + self._linear(wide * (1.702 * wide).sigmoid(), block["fc2"])

    def _linear(self, states: Any, layer: tuple[Any, Any]) -> Any:
        return self._torch.nn.functional.linear(states, *layer)

    def _normed(self, states: Any, norm: tuple[Any, Any]) -> Any:
        return self._torch.nn.functional.layer_norm(states, (WIDTH,), *norm, eps=1e-5)

    def _block(self, block: TowerBlock) -> dict[str, Any]:
        sides = (block.query, block.key, block.value)
        joined = StoredLinear(*(np.concatenate([getattr(side, part) for side in sides], axis=-1)
                                for part in ("codes", "scale", "bias")))  # fmt: skip
        layers = {"sides": joined, "out": block.out, "fc1": block.fc1, "fc2": block.fc2}
        put = {name: (self._put(layer.weight.T), self._put(layer.bias)) for name, layer in layers.items()}
        return {**put, "ln1": self._norm(block.ln1), "ln2": self._norm(block.ln2)}

    def _norm(self, norm: Norm) -> tuple[Any, Any]:
        return self._put(norm.weight), self._put(norm.bias)

    def _put(self, array: NDArray[Any], dtype: Any = None) -> Any:
        return self._torch.from_numpy(np.array(array, order="C")).to(self._device, dtype or self._dtype)
