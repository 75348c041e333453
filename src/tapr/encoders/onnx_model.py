"""A whole ONNX graph, written from nothing: onnx_graph.py's pieces with inputs, 8-bit constants and a model around it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.onnx_graph import (
    _GRAPH_INITIALISER,
    _GRAPH_NODE,
    _MODEL_GRAPH,
    Attribute,
    GraphPiece,
    _attribute,
    _message,
    _number,
)

ONNX_OPERATORS = 17  # the version of ONNX's own operators: the first with LayerNormalization
_GRAPH_NAME, _GRAPH_INPUT = 2, 11
_MODEL_VERSION, _MODEL_OPERATORS, _IR = 1, 8, 8
_FLOAT, _UINT8, _INT8 = 1, 2, 3  # ONNX's element types
_OWN = "com.microsoft"  # the domain of the operators that only onnxruntime has


class GraphModel(GraphPiece):
    """A graph that stands alone. `own` adds an operator of onnxruntime's own, `add` one of ONNX."""

    def own(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        output = self._new_name(operator)
        named = [*((1, name) for name in inputs), (2, output), (3, output), (4, operator), (7, _OWN)]
        node = b"".join(_message(tag, text.encode()) for tag, text in named)
        node += b"".join(_message(5, _attribute(name, value)) for name, value in attributes.items())
        self._parts.append(_message(_GRAPH_NODE, node))
        return output

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def byte_constant(self, value: NDArray[Any]) -> str:
        """Of int8 or uint8."""
        name = self._new_name("bytes")
        kind = _INT8 if value.dtype == np.int8 else _UINT8
        tensor = b"".join(_number(1, size) for size in value.shape)
        tensor += _number(2, kind) + _message(8, name.encode()) + _message(9, np.ascontiguousarray(value).tobytes())
        self._parts.append(_message(_GRAPH_INITIALISER, tensor))
        return name

    def input_bytes(self, name: str, *shape: int) -> str:
        """An input of uint8, any number of which come at once: (B, *shape)."""
        sizes = [_message(2, b"batch"), *(_number(1, size) for size in shape)]
        kind = _number(1, _UINT8) + _message(2, b"".join(_message(1, size) for size in sizes))
        self._parts.append(_message(_GRAPH_INPUT, _message(1, name.encode()) + _message(2, _message(1, kind))))
        return name

    def model(self) -> bytes:
        operators = [_number(2, ONNX_OPERATORS), _message(1, _OWN.encode()) + _number(2, 1)]
        head = _number(_MODEL_VERSION, _IR) + b"".join(_message(_MODEL_OPERATORS, one) for one in operators)
        return head + _message(_MODEL_GRAPH, _message(_GRAPH_NAME, b"tapr") + b"".join(self._parts))
