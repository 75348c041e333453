"""Reads nodes and weights out of an ONNX file, without the `onnx` package.

An ONNX file is one protobuf message. Of its many fields only those named here are read; the numbers are the fields'
tags in ONNX's own definition. Arrays are views into the file's bytes wherever they are stored raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError
from tapr.types import Float32

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALISER = 1, 5
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OPERATOR = 1, 2, 3, 4
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_FLOATS, _TENSOR_INTS, _TENSOR_NAME, _TENSOR_RAW = 1, 2, 4, 5, 8, 9
_DTYPES: dict[int, type[np.generic]] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}

Field = tuple[int, int | memoryview]  # tag, value


@dataclass(frozen=True)
class Node:
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where an array begins."""

    file: str  # the name of a file, without its folder
    offset: int  # bytes


class OnnxFile:
    """The graph of one ONNX file. `name` is how error messages call it."""

    def __init__(self, data: bytes, name: str = "the ONNX file") -> None:
        self.data = data
        self.name = name

    @classmethod
    def read(cls, path: Path) -> OnnxFile:
        return cls(path.read_bytes(), str(path))

    def place_of(self, array: NDArray[Any]) -> Place | None:
        """Where the array lies in the file, if it is a view of a whole stretch of it."""
        offset = array.ctypes.data - np.frombuffer(self.data, np.uint8).ctypes.data
        inside = array.flags.c_contiguous and 0 <= offset <= len(self.data) - array.nbytes
        return Place(Path(self.name).name, offset) if inside else None

    def node(self, name: str) -> Node:
        try:
            return self._nodes[name]
        except KeyError:
            raise TaprError(f"{self.name} has no node {name!r}: it is not the ONNX export this encoder reads") from None

    def initialiser(self, name: str) -> NDArray[Any]:
        """A stored array by name; a read-only view of the file where it can be."""
        try:
            message = self._initialisers[name]
        except KeyError:
            raise TaprError(
                f"{self.name} has no initialiser {name!r}: it is not the ONNX export this encoder reads"
            ) from None
        return self._array(name, message)

    def matrix(self, node_name: str) -> Float32:
        """The float32 weight (in, out) that a MatMul, or a quantised MatMulInteger, multiplies by.

        onnxruntime's quantiser names the parts of a weight w: w_quantized, w_scale and w_zero_point.
        """
        node = self.node(node_name)
        weight = node.inputs[1]
        if node.operator != "MatMulInteger":
            return np.asarray(self.initialiser(weight), np.float32)
        stem = weight.removesuffix("_quantized")
        codes, scale = self.initialiser(weight), self.initialiser(f"{stem}_scale")
        zero_point = self.initialiser(node.inputs[3]) if len(node.inputs) > 3 else np.zeros((), np.int8)
        return dequantise(codes, zero_point, scale)

    @cached_property
    def _graph(self) -> list[Field]:
        try:
            graphs = [value for tag, value in _fields(memoryview(self.data)) if tag == _MODEL_GRAPH]
            return [field for graph in graphs for field in _fields(_as_bytes(graph))]
        except (ValueError, IndexError):
            raise TaprError(f"{self.name} is damaged or no ONNX file: fetch it again") from None

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        nodes = [_node(_as_bytes(value)) for tag, value in self._graph if tag == _GRAPH_NODE]
        return {node.name: node for node in nodes}

    @cached_property
    def _initialisers(self) -> dict[str, memoryview]:
        messages = [_as_bytes(value) for tag, value in self._graph if tag == _GRAPH_INITIALISER]
        return {_text(message, _TENSOR_NAME): message for message in messages}

    def _array(self, name: str, message: memoryview) -> NDArray[Any]:
        fields: dict[int, list[int | memoryview]] = {}
        for tag, value in _fields(message):
            fields.setdefault(tag, []).append(value)
        code = fields.get(_TENSOR_TYPE, [0])[0]
        dtype = _DTYPES.get(code) if isinstance(code, int) else None
        if dtype is None:
            raise TaprError(f"{self.name} stores {name!r} in a number format this encoder does not read")
        shape = _integers(fields.get(_TENSOR_DIMS, []))
        if _TENSOR_RAW in fields:
            flat = np.frombuffer(_as_bytes(fields[_TENSOR_RAW][0]), np.dtype(dtype).newbyteorder("<"))
        elif _TENSOR_FLOATS in fields:
            flat = np.frombuffer(_as_bytes(fields[_TENSOR_FLOATS][0]), "<f4")
        else:
            flat = np.array(_integers(fields.get(_TENSOR_INTS, [])), dtype)
        if flat.size != int(np.prod(shape)):
            raise TaprError(f"{self.name} stores {name!r} with {flat.size} numbers for the shape {tuple(shape)}")
        return flat.reshape(shape)


def dequantise(codes: NDArray[Any], zero_point: NDArray[Any], scale: NDArray[Any]) -> Float32:
    """(codes - zero_point) * scale; scales per channel belong to the last axis."""
    centred = codes.astype(np.float32)
    centred -= zero_point.astype(np.float32)
    centred *= scale
    return centred


def _node(message: memoryview) -> Node:
    parts: dict[int, list[str]] = {_NODE_INPUT: [], _NODE_OUTPUT: [], _NODE_NAME: [""], _NODE_OPERATOR: [""]}
    for tag, value in _fields(message):
        if tag in parts:
            parts[tag].append(bytes(_as_bytes(value)).decode())
    return Node(parts[_NODE_NAME][-1], parts[_NODE_OPERATOR][-1], tuple(parts[_NODE_INPUT]), tuple(parts[_NODE_OUTPUT]))


def _text(message: memoryview, wanted: int) -> str:
    return next((bytes(_as_bytes(value)).decode() for tag, value in _fields(message) if tag == wanted), "")


def _fields(data: memoryview) -> Iterator[Field]:
    """The fields of one protobuf message, in order; values of length-delimited fields are views."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        tag, wire = key >> 3, key & 7
        if wire == _VARINT:
            number, at = _varint(data, at)
            yield tag, number
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"protobuf wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field reaches past the end of its message")
        yield tag, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _integers(values: list[int | memoryview]) -> list[int]:
    """A repeated whole number: packed into one field or one field each, negative ones as 64-bit two's complement."""
    numbers: list[int] = []
    for value in values:
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            numbers.append(number)
    return [number - (1 << 64) if number >> 63 else number for number in numbers]


def _as_bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number stands where a message was expected")
    return value
