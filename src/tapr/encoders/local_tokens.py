"""Local vectors of a CLIP image tower, in NumPy: the definition. extractors.py says how each reads the last block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from math import ceil, floor
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.encoders.extractors import DEFAULT_EXTRACTOR, EXTRACTORS, Extractor, Side, extractor_of
from tapr.errors import BadOption
from tapr.types import Float32

__all__ = ["DEFAULT_EXTRACTOR", "EXTRACTORS", "LastBlock", "local_tokens", "local_vectors"]

ACTIVATIONS = ("quick_gelu", "gelu")

_MAX_CELLS = 8  # a side of the pooled grid has at most this many cells,
_MIN_CELLS = 5  # and fewer than this only where the native grid has

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
            raise BadOption(f"unknown activation {self.activation!r}: choose {' or '.join(ACTIVATIONS)}")


def local_tokens(extractor: str, hidden: Float32, block: LastBlock, native: Grid) -> Float32:
    """Map a picture's last block input (1 + P, D), CLS first, to (P, d) in the joint space, of any length."""
    tokens: Float32 = _normed_patches(extractor_of(extractor), hidden, block, native) @ block.projection
    return tokens


def local_vectors(extractor: str, hidden: Float32, block: LastBlock, native: Grid, grid: Grid) -> Float32:
    """Return local vectors average-pooled from the native grid to (rows, columns): (M, d) unit vectors.

    The projection is linear, so it comes after the pooling, where it has fewer rows to work on.
    """
    patches = _normed_patches(extractor_of(extractor), hidden, block, native)  # (P, D)
    return unit(pooling(native, grid) @ patches @ block.projection)


def pooled_grid(native: Grid) -> Grid:
    """Return the grid that local vectors are pooled to: 7 -> 7, 14 -> 7, 16 -> 8, 24 -> 8 per side.

    A side takes its largest divisor of 5 to 8, so that all cells are equal and disjoint; where there is none
    (27, 37), 8 cells of about the same size. A side of 8 or fewer stays as it is.
    """
    rows, columns = native
    return _pooled_side(rows), _pooled_side(columns)


def _pooled_side(side: int) -> int:
    if side <= _MAX_CELLS:
        return side
    divisors = (cells for cells in range(_MAX_CELLS, _MIN_CELLS - 1, -1) if side % cells == 0)
    return next(divisors, _MAX_CELLS)


@lru_cache(maxsize=8)
def pooling(native: Grid, grid: Grid) -> Float32:
    """Return the matrix (M, P) of average pooling; cells overlap by a patch where the sizes do not divide."""
    return np.kron(_averages(native[0], grid[0]), _averages(native[1], grid[1]))


def _averages(length: int, cells: int) -> Float32:
    matrix = np.zeros((cells, length), np.float32)
    for cell in range(cells):
        start, end = floor(cell * length / cells), ceil((cell + 1) * length / cells)
        matrix[cell, start:end] = 1 / (end - start)
    return matrix


@lru_cache(maxsize=8)
def neighbourhood(native: Grid, deviation: float = 5.0, reads_cls: bool = False) -> Float32:
    """Return (P, P), or (P, 1 + P) with the CLS token: exp(-distance^2 / (2 deviation^2)) between patches.

    It is added to the logits; the CLS token has no place, and nothing is added for it.
    """
    places = np.stack(np.meshgrid(*map(np.arange, native), indexing="ij"), axis=-1).reshape(-1, 2)  # (P, 2)
    squares = ((places[:, None] - places) ** 2).sum(-1)
    near = _float32(np.exp(-squares / (2 * deviation**2)))
    return np.pad(near, ((0, 0), (1, 0))) if reads_cls else near


def _normed_patches(extractor: Extractor, hidden: Float32, block: LastBlock, native: Grid) -> Float32:
    """Map (1 + P, D) to (P, D): the patches after the last block, as the extractor reads it, and the final norm."""
    hidden = np.asarray(hidden, np.float32)
    patches = block.out(_attention(extractor, block.ln1(hidden), block, native))
    if extractor.whole_block:
        patches += hidden[1:]
        patches += block.fc2(_activate(block.activation, block.fc1(block.ln2(patches))))
    return block.ln_post(patches)


def _attention(extractor: Extractor, normed: Float32, block: LastBlock, native: Grid) -> Float32:
    """Map (1 + P, D) to (P, D): what each patch reads from the values, before the output projection."""
    if not extractor.attends:
        return block.value(normed[1:])
    scale = np.float32((block.projection.shape[0] / block.heads) ** -0.25)  # on both sides of a product
    first = int(extractor.reads_cls)  # of the patches among what is read
    tokens = normed if extractor.reads_cls else normed[1:]

    def heads(x: Float32) -> Float32:
        return x.reshape(len(x), block.heads, -1).transpose(1, 0, 2)  # (heads, tokens, D / heads)

    linear: dict[Side, Linear] = {"query": block.query, "key": block.key}
    named = dict.fromkeys(side for pair in extractor.attends for side in pair)
    sides = {side: heads(linear[side](tokens) * scale) for side in named}
    values = heads(block.value(tokens))
    reads = []
    for asking, other in extractor.attends:
        logits = sides[asking][:, first:] @ sides[other].transpose(0, 2, 1)
        if extractor.neighbourhood:
            logits += neighbourhood(native, extractor.neighbourhood, extractor.reads_cls)
        reads.append(_attend(logits, values))
    read = reduce(add, reads)
    return read.transpose(1, 0, 2).reshape(len(normed) - 1, -1)


def _attend(logits: Float32, values: Float32) -> Float32:
    """Compute softmax(logits) @ values, overwriting the logits."""
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
    """Return the error function, which NumPy lacks, to 3e-7: formula 7.1.26 of Abramowitz and Stegun."""
    t = _float32(1 / (1 + np.float32(0.3275911) * np.abs(x)))
    series = np.zeros_like(x)
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(coefficient)) * t
    return _float32(np.copysign(1 - series * np.exp(-x * x), x))


def _float32(x: NDArray[Any]) -> Float32:
    return np.asarray(x, np.float32)
