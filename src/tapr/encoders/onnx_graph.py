"""Write ONNX graphs, with weights that may stay in the file that holds them.

The counterpart of onnx_file.py, again without the `onnx` package. Numbers are tags of ONNX's own definition.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.onnx_file import OnnxFile

_VARINT, _BYTES, _FIXED32 = 0, 2, 5  # protobuf's wire types
_MODEL_VERSION, _MODEL_GRAPH, _MODEL_OPERATORS = 1, 7, 8
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALISER, _GRAPH_INPUT, _GRAPH_OUTPUT = 1, 2, 5, 11, 12
_TENSOR_NAME, _TENSOR_RAW, _TENSOR_ELSEWHERE, _TENSOR_PLACE = 8, 9, 13, 14
_FLOAT, _UINT8, _INT8, _INT64 = 1, 2, 3, 7  # ONNX's element types
_IR_VERSION, _OPERATORS = 8, 17  # of a whole graph: the first operators with LayerNormalization
_OWN = "com.microsoft"  # the domain of the operators that only onnxruntime has

Attribute = int | float | Sequence[int]


class WholeGraph:
    """A graph that is made node by node; each call returns the name of what the node computes.

    Large arrays of bytes that lie in `file` are read from there when the graph is loaded: the graph has to be stored
    beside that file. Without a file all is within the graph.
    """

    def __init__(self, file: OnnxFile | None = None) -> None:
        self._file = file
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        return self._add(operator, inputs, attributes)

    def _add(self, operator: str, inputs: Sequence[str], attributes: dict[str, Attribute], domain: str = "") -> str:
        output = self._new_name(operator)
        named = [*((1, name) for name in inputs), (2, output), (3, output), (4, operator), (7, domain)]
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
        tensor += _number(2, _INT64 if whole else _FLOAT) + _message(_TENSOR_NAME, name.encode())
        tensor += _message(_TENSOR_RAW, raw)
        self._parts.append(_message(_GRAPH_INITIALISER, tensor))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def output(self, tensor: str) -> str:
        """Make a float tensor an output of the graph."""
        kind = _message(1, _number(1, _FLOAT))
        self._parts.append(_message(_GRAPH_OUTPUT, _message(1, tensor.encode()) + _message(2, kind)))
        return tensor

    def _new_name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def own(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """As `add`, an operator of onnxruntime's own."""
        return self._add(operator, inputs, attributes, _OWN)

    def gelu(self, tensor: str) -> str:
        """x * sigmoid(1.702 x)"""
        return self.own("QuickGelu", tensor, alpha=1.702)

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def bytes_constant(self, value: NDArray[Any]) -> str:
        """Of int8 or uint8."""
        name = self._new_name("bytes")
        tensor = b"".join(_number(1, size) for size in value.shape)
        tensor += _number(2, _INT8 if value.dtype == np.int8 else _UINT8) + _message(_TENSOR_NAME, name.encode())
        place = None if self._file is None else self._file.place_of(value)
        if place is None:
            tensor += _message(_TENSOR_RAW, np.ascontiguousarray(value).tobytes())
        else:
            said = {"location": place.file, "offset": str(place.offset), "length": str(value.nbytes)}
            pairs = (_message(1, key.encode()) + _message(2, text.encode()) for key, text in said.items())
            tensor += b"".join(_message(_TENSOR_ELSEWHERE, pair) for pair in pairs) + _number(_TENSOR_PLACE, 1)
        self._parts.append(_message(_GRAPH_INITIALISER, tensor))
        return name

    def input_bytes(self, name: str, *shape: int) -> str:
        """An input of uint8, any number at once: (B, *shape)."""
        sizes = [_message(2, b"batch"), *(_number(1, size) for size in shape)]
        kind = _number(1, _UINT8) + _message(2, b"".join(_message(1, size) for size in sizes))
        self._parts.append(_message(_GRAPH_INPUT, _message(1, name.encode()) + _message(2, _message(1, kind))))
        return name

    def model(self) -> bytes:
        operators = [_number(2, _OPERATORS), _message(1, _OWN.encode()) + _number(2, 1)]
        head = _number(_MODEL_VERSION, _IR_VERSION) + b"".join(_message(_MODEL_OPERATORS, one) for one in operators)
        return head + _message(_MODEL_GRAPH, _message(_GRAPH_NAME, b"tapr") + b"".join(self._parts))


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
