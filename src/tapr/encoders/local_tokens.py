"""Local vectors of a CLIP image tower, in NumPy: the definition, and what the ONNX encoder runs.

Every extractor starts from the last transformer block's input and differs only in how it reads that block:

- `tokens`: the block as trained, attention over all tokens. The literal reading of "patch tokens".
- `maskclip`: each token attends to itself alone; residual and FFN kept (the last-layer value path of
  MaskCLIP, Zhou et al., ECCV 2022).
- `value`: the same value path by itself, without residual and FFN.
- `sclip`: softmax(q q^T) + softmax(k k^T) over all tokens, residual and FFN kept (SCLIP, Wang et al., ECCV 2024).
- `clearclip`: softmax(q q^T) over the patches, no residual, no FFN (ClearCLIP, Lan et al., ECCV 2024).
- `naclip`: softmax(k k^T + a Gaussian of the distance between patches) over the patches, no residual, no FFN
  (NACLIP, Hajimiri et al., WACV 2025; standard deviation 5 patches, as there).

ClearCLIP's and NACLIP's authors let the patches attend to the CLS token too; here they do not, as in the
measurements by which `clearclip` became the default. All logits are divided by sqrt(head width).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32, unit
from tapr.errors import BadInput

EXTRACTORS = ("tokens", "maskclip", "value", "sclip", "clearclip", "naclip")
DEFAULT_EXTRACTOR = "clearclip"
ACTIVATIONS = ("quick_gelu", "gelu")
WHOLE_BLOCK = ("tokens", "maskclip", "sclip")  # the extractors that keep the residual and the FFN

_MOST_CELLS = 8  # a side of the pooled grid has at most this many cells,
_FEWEST_CELLS = 5  # and fewer than this only where the native grid has
_NEIGHBOURHOOD = 5.0  # patches: the Gaussian's standard deviation in `naclip`

Grid = tuple[int, int]  # rows, columns


@dataclass(frozen=True)
class Norm:
    """Layer norm over the last axis."""

    weight: Float32  # (D,)
    bias: Float32  # (D,)
    eps: float = 1e-5

    def __call__(self, x: Float32) -> Float32:
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
        x *= 1 / np.sqrt(variance + np.float32(self.eps))
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True)
class Linear:
    """x @ weight + bias."""

    weight: Float32  # (in, out)
    bias: Float32  # (out,)

    def __call__(self, x: Float32) -> Float32:
        y: Float32 = x @ self.weight
        y += self.bias
        return y


@dataclass(frozen=True)
class LastBlock:
    """All that follows the last block's input, in float32. A LayerScale is folded into `out` and `fc2`."""

    ln1: Norm
    query: Linear  # (D, D), as are key, value and out
    key: Linear
    value: Linear
    out: Linear
    ln2: Norm
    fc1: Linear  # (D, 4 D)
    fc2: Linear  # (4 D, D)
    ln_post: Norm  # the tower's final norm
    projection: Float32  # (D, d), into the joint space
    heads: int
    activation: str  # one of ACTIVATIONS

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise BadInput(f"unknown activation {self.activation!r}: choose {' or '.join(ACTIVATIONS)}")


def check_extractor(extractor: str) -> str:
    if extractor not in EXTRACTORS:
        raise BadInput(f"unknown extractor {extractor!r}: choose one of {', '.join(EXTRACTORS)}")
    return extractor


def local_tokens(extractor: str, hidden: Float32, block: LastBlock, native: Grid) -> Float32:
    """One picture's last block input (1 + P, D), CLS first -> (P, d) in the joint space, of any length."""
    tokens: Float32 = _normed_patches(extractor, hidden, block, native) @ block.projection
    return tokens


def local_vectors(extractor: str, hidden: Float32, block: LastBlock, native: Grid, grid: Grid) -> Float32:
    """The same, average-pooled from the native grid to (rows, columns): (M, d) unit vectors.

    The projection is linear, so it comes after the pooling, where it has fewer rows to work on.
    """
    patches = _normed_patches(extractor, hidden, block, native)  # (P, D)
    return unit(pooling(native, grid) @ patches @ block.projection)


def pooled_grid(native: Grid) -> Grid:
    """The grid that local vectors are pooled to: 7 -> 7, 14 -> 7, 16 -> 8, 24 -> 8 a side.

    A side takes its largest divisor of 5 to 8, so that all cells are equal and disjoint; where there is none
    (27, 37), 8 cells of about the same size. A side of 8 or fewer stays as it is.
    """
    rows, columns = native
    return _pooled_side(rows), _pooled_side(columns)


def _pooled_side(side: int) -> int:
    if side <= _MOST_CELLS:
        return side
    divisors = (cells for cells in range(_MOST_CELLS, _FEWEST_CELLS - 1, -1) if side % cells == 0)
    return next(divisors, _MOST_CELLS)


@lru_cache(maxsize=8)
def pooling(native: Grid, grid: Grid) -> Float32:
    """Matrix (M, P) of average pooling; cells overlap by a patch where the sizes do not divide."""
    return np.kron(_averages(native[0], grid[0]), _averages(native[1], grid[1]))


def _averages(length: int, cells: int) -> Float32:
    matrix = np.zeros((cells, length), np.float32)
    for cell in range(cells):
        start, end = floor(cell * length / cells), ceil((cell + 1) * length / cells)
        matrix[cell, start:end] = 1 / (end - start)
    return matrix


@lru_cache(maxsize=8)
def neighbourhood(native: Grid) -> Float32:
    """Matrix (P, P): exp(-distance^2 / (2 * 5^2)) between patches, what `naclip` adds to the logits."""
    places = np.stack(np.meshgrid(*map(np.arange, native), indexing="ij"), axis=-1).reshape(-1, 2)  # (P, 2)
    squares = ((places[:, None] - places) ** 2).sum(-1)
    return _float32(np.exp(-squares / (2 * _NEIGHBOURHOOD**2)))


def _normed_patches(extractor: str, hidden: Float32, block: LastBlock, native: Grid) -> Float32:
    """(1 + P, D) -> (P, D): the patches after the last block, as the extractor reads it, and the final norm."""
    check_extractor(extractor)
    hidden = np.asarray(hidden, np.float32)
    patches = block.out(_attention(extractor, block.ln1(hidden), block, native))
    if extractor in WHOLE_BLOCK:
        patches += hidden[1:]
        patches += block.fc2(_activate(block.activation, block.fc1(block.ln2(patches))))
    return block.ln_post(patches)


def _attention(extractor: str, normed: Float32, block: LastBlock, native: Grid) -> Float32:
    """(1 + P, D) -> (P, D): what each patch reads from the values, before the output projection."""
    scale = np.float32((block.projection.shape[0] / block.heads) ** -0.25)  # on both sides of a product

    def heads(x: Float32) -> Float32:
        return x.reshape(len(x), block.heads, -1).transpose(1, 0, 2)  # (heads, tokens, D / heads)

    def queries(x: Float32) -> Float32:
        return heads(block.query(x) * scale)

    def keys(x: Float32) -> Float32:
        return heads(block.key(x) * scale)

    patches = normed[1:]
    if extractor in ("maskclip", "value"):
        return block.value(patches)
    if extractor == "clearclip":
        q = queries(patches)
        read = _attend(q @ q.transpose(0, 2, 1), heads(block.value(patches)))
    elif extractor == "naclip":
        k = keys(patches)
        read = _attend(k @ k.transpose(0, 2, 1) + neighbourhood(native), heads(block.value(patches)))
    else:
        q, k, v = queries(normed), keys(normed), heads(block.value(normed))
        if extractor == "sclip":
            read = _attend(q[:, 1:] @ q.transpose(0, 2, 1), v) + _attend(k[:, 1:] @ k.transpose(0, 2, 1), v)
        else:
            read = _attend(q[:, 1:] @ k.transpose(0, 2, 1), v)
    return read.transpose(1, 0, 2).reshape(len(patches), -1)


def _attend(logits: Float32, values: Float32) -> Float32:
    """softmax(logits) @ values, overwriting the logits."""
    logits -= logits.max(axis=-1, keepdims=True)
    weights: Float32 = np.exp(logits, out=logits)
    read: Float32 = weights @ values
    read /= weights.sum(axis=-1, keepdims=True)
    return read


def _activate(activation: str, x: Float32) -> Float32:
    if activation == "quick_gelu":  # x * sigmoid(1.702 x), by tanh because it cannot overflow
        return _float32(x * (1 + np.tanh(np.float32(0.851) * x)) / 2)
    return _float32(x * (1 + _erf(x * np.float32(0.5**0.5))) / 2)


def _erf(x: Float32) -> Float32:
    """The error function, which NumPy lacks, to 3e-7: formula 7.1.26 of Abramowitz and Stegun."""
    t = _float32(1 / (1 + np.float32(0.3275911) * np.abs(x)))
    series = np.zeros_like(x)
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(coefficient)) * t
    return _float32(np.copysign(1 - series * np.exp(-x * x), x))


def _float32(x: NDArray[Any]) -> Float32:
    return np.asarray(x, np.float32)
