"""The product of the default arithmetic: activations in 8 bits with one scale per row (token), weights as stored.

    y = s (q @ codes) * scale + x[columns] @ weight[columns] + bias

q are the row's numbers divided by s and rounded, in [-127, 127], where s is the largest of them over 127. CLIP keeps a
few columns of its normalised states ten times larger than the others: one scale that covers them leaves few steps for
the rest. So those columns are left out of q, and multiplied in float32. What follows a quick GELU is never below -0.17:
it is shifted by that, and has all 255 steps.

The integer product is exact on every processor, so that all of them give the same vectors up to float32's rounding, and
a picture's vectors depend on no other row: pictures can share a batch. `row_product` is the definition; `RowProducts`
writes it as nodes of a graph, `FloatProducts` the same products in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tapr.encoders.base import Float32
from tapr.encoders.clip_weights import StoredLinear
from tapr.encoders.onnx_model import GraphModel

Columns = tuple[int, ...]

STEPS = 127  # on either side of zero
GELU_LEAST = 0.17  # x * sigmoid(1.702 x) is nowhere below minus this
_TINY = np.float32(1e-10)  # a row of zeros is divided by this


def row_product(x: Float32, linear: StoredLinear, columns: Columns = (), *, after_gelu: bool = False) -> Float32:
    """(rows, in) -> (rows, out)."""
    apart = list(columns)
    bias = linear.bias.astype(np.float64)
    if after_gelu:
        bias = bias - GELU_LEAST * linear.weight.sum(0, dtype=np.float64)
        x = x + np.float32(GELU_LEAST)
        scale = _scale(x.max(1), 2 * STEPS + 1)
        codes = np.clip(np.rint(x / scale), 0, 2 * STEPS + 1)
    else:
        inner = np.array(x)
        inner[:, apart] = 0
        scale = _scale(np.abs(inner).max(1), STEPS)
        codes = np.rint(inner / scale)
    whole = codes.astype(np.int64) @ linear.codes.astype(np.int64)
    exact = x[:, apart].astype(np.float64) @ linear.weight[apart].astype(np.float64)
    return (whole * linear.scale.astype(np.float64) * scale + exact + bias).astype(np.float32)


def _scale(most: Float32, steps: int) -> Float32:
    return (np.maximum(most, _TINY) * np.float32(1 / steps))[:, None]  # (rows, 1)


class Products(Protocol):
    """Writes the linear layers of a tower into a graph."""

    def rows(self, tensor: str, columns: Columns = (), *, after_gelu: bool = False) -> Any:
        """Ready (rows, in) to be multiplied, by one weight or by several."""

    def linear(self, rows: Any, weight: StoredLinear) -> str:
        """-> (rows, out)"""


@dataclass(frozen=True)
class _Rows:
    codes: str  # (rows, in) uint8
    scale: str  # (rows, 1)
    zero: str  # what stands for 0 among the codes
    apart: str  # (rows, columns + 1): the numbers of the columns apart, and 1 for the bias; "": there are none
    columns: Columns
    shift: float  # was added to every number


class RowProducts:
    def __init__(self, graph: GraphModel) -> None:
        self._graph = graph
        self._zeros = {zero: graph.byte_constant(np.array(zero, np.uint8)) for zero in (0, STEPS + 1)}
        self._tiny = graph.number(float(_TINY))
        self._flat = graph.ints(-1)

    def rows(self, tensor: str, columns: Columns = (), *, after_gelu: bool = False) -> _Rows:
        graph = self._graph
        if after_gelu:
            tensor = inner = graph.add("Add", tensor, graph.number(GELU_LEAST))
            steps, zero = 2 * STEPS + 1, self._zeros[0]
        else:
            inner = graph.add("Abs", self._without(tensor, columns))
            steps, zero = STEPS, self._zeros[STEPS + 1]
        most = graph.add("Max", graph.add("ReduceMax", inner, axes=(-1,)), self._tiny)
        scale = graph.add("Mul", most, graph.number(1 / steps))
        flat = graph.add("Reshape", scale, self._flat)
        zeros = graph.add("Expand", zero, graph.add("Shape", flat))
        codes = graph.add("QuantizeLinear", tensor, flat, zeros, axis=0)
        return _Rows(codes, scale, zero, self._apart(tensor, scale, columns), columns, GELU_LEAST if after_gelu else 0)

    def linear(self, rows: _Rows, weight: StoredLinear) -> str:
        graph, codes, bias = self._graph, weight.codes, weight.bias.astype(np.float64)
        apart = list(rows.columns)
        if rows.shift:
            bias = bias - rows.shift * weight.weight.sum(0, dtype=np.float64)
        if apart:
            codes = codes.copy()
            codes[apart] = 0  # their codes are cut off at the last step: they count for nothing
        one, scale = graph.number(1), graph.constant(weight.scale)
        product = graph.own("MatMulIntegerToFloat", rows.codes, graph.byte_constant(codes), one, scale, rows.zero)
        product = graph.add("Mul", product, rows.scale)
        if not apart:
            return graph.add("Add", product, graph.constant(bias.astype(np.float32)))
        beside = np.concatenate([weight.weight[apart], bias.astype(np.float32)[None]])
        return graph.add("Gemm", rows.apart, graph.constant(beside), product)

    def _without(self, tensor: str, columns: Columns) -> str:
        if not columns:
            return tensor
        kept = np.ones(768, np.float32)
        kept[list(columns)] = 0
        return self._graph.add("Mul", tensor, self._graph.constant(kept))

    def _apart(self, tensor: str, scale: str, columns: Columns) -> str:
        if not columns:
            return ""
        ones = self._graph.add("Div", scale, scale)  # (rows, 1), however many rows there are
        apart = self._graph.add("Gather", tensor, self._graph.ints(*columns), axis=1)
        return self._graph.add("Concat", apart, ones, axis=1)


class FloatProducts:
    def __init__(self, graph: GraphModel) -> None:
        self._graph = graph

    def rows(self, tensor: str, columns: Columns = (), *, after_gelu: bool = False) -> str:
        return tensor

    def linear(self, rows: str, weight: StoredLinear) -> str:
        product = self._graph.add("MatMul", rows, self._graph.constant(weight.weight))
        return self._graph.add("Add", product, self._graph.constant(weight.bias))
