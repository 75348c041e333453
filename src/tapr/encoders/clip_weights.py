"""The weights of clip-b16's image tower: codes of 8 bits with one scale per output channel, read from the fetched file.

tools/build_image_tower.py made the table that says where each of them lies, and the graphs that take them by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.local_tokens import Grid, Norm
from tapr.types import Float32

LAYERS, HEADS, WIDTH, SIDE, PATCH = 12, 12, 768, 14, 16  # the tower's shape: 14 x 14 patches of 16 x 16 pixels
DIM = 512  # d
NATIVE: Grid = (SIDE, SIDE)
GRID: Grid = (7, 7)  # after pooling
PIXEL_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)  # CLIP's own
PIXEL_STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)

Columns = tuple[int, ...]
INPUT = "pixels"  # of the graphs: (B, 224, 224, 3) bytes
GRAPHS = Path(__file__).parent / "data" / "clip_b16_image"
WEIGHT_TABLE = GRAPHS / "weights.json"
# of the states after each norm, two per block: the columns that are largest; tools/find_large_columns.py made it
COLUMNS = GRAPHS.with_name("clip_b16_columns.json")
GELU_LEAST, GELU_PARTS = 0.17, 4  # x * sigmoid(1.702 x) is nowhere below minus this; graphs multiply it in parts


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
        """Split the layer into so many, each with a part of the outputs."""
        arrays = (np.split(array, count, axis=-1) for array in (self.codes, self.scale, self.bias))
        return [StoredLinear(*map(np.ascontiguousarray, each)) for each in zip(*arrays, strict=True)]


@dataclass(frozen=True)
class TowerBlock:
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
    blocks: tuple[TowerBlock, ...]
    ln_post: Norm
    projection: Float32  # (D, d)

    @classmethod
    def read(cls, file: Path) -> TowerWeights:
        """Read them from the fetched file, whose hash has been checked."""
        data, table = file.read_bytes(), json.loads(WEIGHT_TABLE.read_bytes())

        def array(name: str) -> NDArray[Any]:
            dtype, shape, offset = table[name]
            return np.frombuffer(data, dtype, int(np.prod(shape)), offset).reshape(shape)

        def norm(name: str) -> Norm:
            return Norm(array(f"{name}.weight"), array(f"{name}.bias"))

        def linear(name: str) -> StoredLinear:
            return StoredLinear(*(array(f"{name}.{part}") for part in ("codes", "scale", "bias")))

        def block(number: int) -> TowerBlock:
            layers = {name: linear(f"{number}.{name}") for name in ("query", "key", "value", "out", "fc1", "fc2")}
            return TowerBlock(ln1=norm(f"{number}.ln1"), ln2=norm(f"{number}.ln2"), **layers)

        raw = array("patch").transpose(2, 3, 1, 0) / PIXEL_STD[:, None]  # (D, 3, 16, 16) -> (16, 16, 3, D)
        bias = -(raw * PIXEL_MEAN[:, None]).sum((0, 1, 2), dtype=np.float64)
        places = np.array(array("places"))
        places[0] += array("cls").reshape(-1)
        places[1:] += bias.astype(np.float32)
        return cls(
            patches=np.ascontiguousarray(raw.reshape(-1, WIDTH) / np.float32(255)),
            places=places,
            ln_pre=norm("ln_pre"),
            blocks=tuple(map(block, range(LAYERS))),
            ln_post=norm("ln_post"),
            projection=array("projection.codes").astype(np.float32) * array("projection.scale"),
        )

    def by_name(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a graph takes, by the names that it has for them."""
        arrays: dict[str, NDArray[Any]] = {
            "patches": self.patches,
            "places": self.places,
            "projection": self.projection,
            **_norm_arrays("ln_pre", self.ln_pre),
            **_norm_arrays("ln_post", self.ln_post),
        }
        for number, block in enumerate(self.blocks):
            after_ln1, after_ln2 = large_columns()[2 * number : 2 * number + 2]
            arrays |= _norm_arrays(f"{number}.ln1", block.ln1) | _norm_arrays(f"{number}.ln2", block.ln2)
            for name in ("query", "key", "value"):
                arrays |= _layer_arrays(f"{number}.{name}", getattr(block, name), after_ln1)
            for part, layer in enumerate(block.fc1.parts(GELU_PARTS)):
                arrays |= _layer_arrays(f"{number}.fc1.{part}", layer, after_ln2)
            arrays |= _layer_arrays(f"{number}.out", block.out)
            fc2, name = block.fc2, f"{number}.fc2"
            shifted_bias = fc2.bias - GELU_LEAST * fc2.weight.sum(0, dtype=np.float64)
            arrays |= {f"{name}.scale": fc2.scale, f"{name}.shifted_bias": shifted_bias.astype(np.float32)}
            arrays |= {f"{name}.{part}.codes": codes for part, codes in enumerate(np.split(fc2.codes, GELU_PARTS))}
        return arrays


@cache
def large_columns() -> tuple[Columns, ...]:
    """Return the columns after each norm that graphs multiply in float32."""
    return tuple(map(tuple, json.loads(COLUMNS.read_bytes())))


def _norm_arrays(name: str, norm: Norm) -> dict[str, NDArray[Any]]:
    return {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}


def _layer_arrays(name: str, layer: StoredLinear, columns: Columns = ()) -> dict[str, NDArray[Any]]:
    """Return a layer's codes and scale, and its bias: below the float32 weights of some columns, if there are any."""
    arrays: dict[str, NDArray[Any]] = {f"{name}.codes": layer.codes, f"{name}.scale": layer.scale}
    if columns:
        return arrays | {f"{name}.apart": np.concatenate([layer.weight[list(columns)], layer.bias[None]])}
    return arrays | {f"{name}.bias": layer.bias}
