"""The linear layers of the default arithmetic: activations in 8 bits with one scale per row, weights as stored.

A row is one token of one picture. Its numbers are divided by a scale s, so that the largest becomes 127, and rounded:

    x @ weight = s (codes @ stored codes) * stored scale

CLIP keeps a few columns of its normed states ten times larger than the rest. A scale that covers them leaves few steps
to the others, so those columns are kept out of the codes, and multiplied in float32. What comes out of a quick GELU
has no such columns, but is never below -0.17: it is shifted by that to have all 255 steps, and has a scale for every
quarter of its columns.

Sums of products of bytes are exact, so all processors give the same vectors up to the rounding of float32. No row knows
another, so a picture's vectors are the same in any batch. `row_product` is the definition; `RowProducts` writes it as
nodes of a graph, and `FloatProducts` the same layers in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.clip_weights import StoredLinear
from tapr.encoders.onnx_graph import WholeGraph
from tapr.types import Float32

Columns = tuple[int, ...]

STEPS = 127  # on either side of zero
GELU_LEAST, GELU_PARTS = 0.17, 4  # x * sigmoid(1.702 x) is nowhere below minus this
_TINY = np.float32(1e-10)  # by which a row of zeros is divided


def row_product(x: Float32, linear: StoredLinear, columns: Columns = ()) -> Float32:
    """(rows, in) -> (rows, out)"""
    apart, inner = list(columns), np.array(x)
    inner[:, apart] = 0
    scale = _scale(np.abs(inner).max(1, keepdims=True), STEPS)
    product = _whole_product(np.rint(inner / scale), linear.codes) * scale * linear.scale
    return _float32(product + x[:, apart].astype(np.float64) @ linear.weight[apart] + linear.bias)


def row_product_after_gelu(x: Float32, linear: StoredLinear) -> Float32:
    """(rows, in) -> (rows, out)"""
    shifted = np.maximum(x + np.float32(GELU_LEAST), 0)
    product = linear.bias - GELU_LEAST * linear.weight.sum(0, dtype=np.float64)
    for part, codes in zip(np.split(shifted, GELU_PARTS, 1), np.split(linear.codes, GELU_PARTS), strict=True):
        scale = _scale(part.max(1, keepdims=True), 2 * STEPS + 1)
        product = product + _whole_product(np.rint(part / scale), codes) * scale * linear.scale
    return _float32(product)


def _scale(most: Float32, steps: int) -> Float32:
    return np.maximum(most, _TINY) * np.float32(1 / steps)


def _whole_product(left: Any, right: Any) -> Any:
    return (left.astype(np.int64) @ right.astype(np.int64)).astype(np.float64)


def _float32(x: Any) -> Float32:
    return np.asarray(x, np.float32)


class Products(Protocol):
    """Writes linear layers into a graph. Rows that are readied once can be multiplied by several weights."""

    def rows(self, tensor: str, columns: Columns = ()) -> Any:
        """(rows, in)"""

    def linear(self, rows: Any, layer: StoredLinear) -> str:
        """-> (rows, out)"""

    def gelu(self, rows: Any, layer: StoredLinear) -> Any:
        """A linear layer and the quick GELU of what comes out."""

    def linear_after_gelu(self, wide: Any, layer: StoredLinear) -> str:
        """-> (rows, out)"""


@dataclass(frozen=True)
class _Codes:
    codes: str  # (rows, in) uint8
    scale: str  # (rows, 1)


@dataclass(frozen=True)
class _Rows:
    part: _Codes
    columns: Columns  # those apart
    apart: str  # (rows, columns + 1): their numbers, and 1 to be multiplied with the bias


class RowProducts:
    def __init__(self, graph: WholeGraph) -> None:
        self._graph = graph
        self._zeros = {code: graph.bytes_constant(np.array(code, np.uint8)) for code in (0, STEPS + 1)}
        self._tiny, self._one, self._flat = graph.number(float(_TINY)), graph.number(1), graph.ints(-1)

    def rows(self, tensor: str, columns: Columns = (), width: int = 768) -> _Rows:
        graph, apart = self._graph, ""
        inner = tensor
        if columns:
            kept = np.ones(width, np.float32)
            kept[list(columns)] = 0
            inner = graph.add("Mul", tensor, graph.constant(kept))
        codes = self._codes(inner, graph.add("Abs", inner), STEPS, STEPS + 1)
        if columns:
            ones = graph.add("Div", codes.scale, codes.scale)  # as many as there are rows
            apart = graph.add("Concat", graph.add("Gather", tensor, graph.ints(*columns), axis=1), ones, axis=1)
        return _Rows(codes, columns, apart)

    def linear(self, rows: _Rows, layer: StoredLinear) -> str:
        total = self._product(rows.part, layer.codes, layer.scale, STEPS + 1)
        if not rows.columns:
            return self._graph.add("Add", total, self._graph.constant(layer.bias))
        beside = np.concatenate([layer.weight[list(rows.columns)], layer.bias[None]])
        return self._graph.add("Gemm", rows.apart, self._graph.constant(beside), total)

    def gelu(self, rows: _Rows, layer: StoredLinear) -> list[str]:
        """In parts: what one of them needs stays in the processor's cache."""
        return [self._graph.gelu(self.linear(rows, part)) for part in layer.parts(GELU_PARTS)]

    def linear_after_gelu(self, wide: list[str], layer: StoredLinear) -> str:
        graph, total = self._graph, ""
        for part, codes in zip(wide, np.split(layer.codes, GELU_PARTS), strict=True):
            shifted = graph.add("Add", part, graph.number(GELU_LEAST))
            product = self._product(self._codes(shifted, shifted, 2 * STEPS + 1, 0), codes, layer.scale, 0)
            total = graph.add("Add", total, product) if total else product
        bias = layer.bias - GELU_LEAST * layer.weight.sum(0, dtype=np.float64)
        return graph.add("Add", total, graph.constant(_float32(bias)))

    def _product(self, rows: _Codes, stored: NDArray[np.int8], scale: Float32, zero: int) -> str:
        graph = self._graph
        factors = rows.codes, graph.bytes_constant(stored), self._one, graph.constant(scale), self._zeros[zero]
        return graph.add("Mul", graph.own("MatMulIntegerToFloat", *factors), rows.scale)

    def _codes(self, tensor: str, sizes: str, steps: int, zero: int) -> _Codes:
        graph = self._graph
        most = graph.add("Max", graph.add("ReduceMax", sizes, axes=(-1,)), self._tiny)
        scale = graph.add("Mul", most, graph.number(1 / steps))
        flat = graph.add("Reshape", scale, self._flat)
        zeros = graph.add("Expand", self._zeros[zero], graph.add("Shape", flat))
        return _Codes(graph.add("QuantizeLinear", tensor, flat, zeros, axis=0), scale)


class FloatProducts:
    def __init__(self, graph: WholeGraph) -> None:
        self._graph = graph

    def rows(self, tensor: str, columns: Columns = ()) -> str:
        return tensor

    def linear(self, rows: str, layer: StoredLinear) -> str:
        product = self._graph.add("MatMul", rows, self._graph.constant(layer.weight))
        return self._graph.add("Add", product, self._graph.constant(layer.bias))

    def gelu(self, rows: str, layer: StoredLinear) -> str:
        return self._graph.gelu(self.linear(rows, layer))

    def linear_after_gelu(self, wide: str, layer: StoredLinear) -> str:
        return self.linear(wide, layer)
