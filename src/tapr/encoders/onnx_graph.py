"""Writes a piece of an ONNX graph, to be joined to a graph in a file: nodes, constants and outputs.

The counterpart of onnx_file.py, again without the `onnx` package. Numbers are tags of ONNX's own definition.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # protobuf's wire types
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALISER, _GRAPH_OUTPUT = 1, 5, 12
_FLOAT, _INT64 = 1, 7  # ONNX's element types
_PREFIX = "tapr/"  # of every name made here, so that none meets one of the file's

Attribute = int | float | Sequence[int]


class GraphPiece:
    """Collects nodes; each call returns the name of what it computes. Inputs may be names of the file's own graph."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        output = self._new_name(operator)
        named = [(1, name) for name in inputs] + [(2, output), (3, output), (4, operator)]
        node = b"".join(_message(tag, text.encode()) for tag, text in named)
        node += b"".join(_message(5, _attribute(name, value)) for name, value in attributes.items())
        self._parts.append(_message(_GRAPH_NODE, node))
        return output

    def constant(self, value: NDArray[Any]) -> str:
        """A float array, or one of whole numbers (shapes, slice bounds)."""
        name = self._new_name("constant")
        whole = np.issubdtype(value.dtype, np.integer)
        raw = np.ascontiguousarray(value, "<i8" if whole else "<f4").tobytes()
        tensor = b"".join(_number(1, size) for size in value.shape)
        tensor += _number(2, _INT64 if whole else _FLOAT) + _message(8, name.encode()) + _message(9, raw)
        self._parts.append(_message(_GRAPH_INITIALISER, tensor))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def output(self, tensor: str) -> str:
        """Make a float tensor, of this piece or of the file's graph, an output of the whole."""
        kind = _message(1, _number(1, _FLOAT))
        self._parts.append(_message(_GRAPH_OUTPUT, _message(1, tensor.encode()) + _message(2, kind)))
        return tensor

    def joined_to(self, model: bytes) -> bytes:
        """The model with this piece. Protobuf merges a message that is stored twice: this is the second graph."""
        return model + _message(_MODEL_GRAPH, b"".join(self._parts))

    def _new_name(self, stem: str) -> str:
        self._count += 1
        return f"{_PREFIX}{stem}_{self._count}"


def _attribute(name: str, value: Attribute) -> bytes:
    named = _message(1, name.encode())
    if isinstance(value, float):
        return named + _varint((2 << 3) | _FIXED32) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return named + _number(3, value) + _number(20, 2)
    return named + b"".join(_number(8, item) for item in value) + _number(20, 7)


def _message(tag: int, content: bytes) -> bytes:
    return _varint((tag << 3) | _BYTES) + _varint(len(content)) + content


def _number(tag: int, number: int) -> bytes:
    return _varint((tag << 3) | _VARINT) + _varint(number % (1 << 64))


def _varint(number: int) -> bytes:
    """Seven bits per byte, lowest first."""
    out = bytearray()
    while number >= 0x80:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
