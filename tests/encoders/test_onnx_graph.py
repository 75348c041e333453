"""onnx_graph: pieces joined to a small graph, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from tapr.encoders.onnx_graph import GraphPiece
from tapr.types import Float32

onnx = pytest.importorskip("onnx", reason="the graph to join to is made with the onnx package")


@pytest.fixture
def model() -> bytes:
    """out = relu(x + x); z = x + x is no output."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["z"]), helper.make_node("Relu", ["z"], ["out"])],
        "small",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("out", kind, ["n", 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return bytes(made.SerializeToString())


X = np.array([[1, -2, 3], [-4, 5, 6]], np.float32)


def run(model: bytes, *names: str) -> list[Float32]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(list(names), {"x": X}))


def test_a_tensor_of_the_graph_becomes_an_output(model: bytes) -> None:
    piece = GraphPiece()
    piece.output("z")
    out, z = run(piece.joined_to(model), "out", "z")
    np.testing.assert_array_equal(z, 2 * X)
    np.testing.assert_array_equal(out, np.maximum(2 * X, 0))


def test_nodes_read_the_graph_and_one_another(model: bytes) -> None:
    piece = GraphPiece()
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    product = piece.add("MatMul", "z", piece.constant(weight))
    shaped = piece.add("Reshape", product, piece.ints(-1, 1, 2))
    turned = piece.output(piece.add("Transpose", shaped, perm=(2, 1, 0)))
    np.testing.assert_allclose(run(piece.joined_to(model), turned)[0], (2 * X @ weight).reshape(-1, 1, 2).T)


def test_every_kind_of_attribute(model: bytes) -> None:
    piece = GraphPiece()
    soft = piece.output(piece.add("Softmax", "x", axis=0))
    leaky = piece.output(piece.add("LeakyRelu", "x", alpha=0.25))
    mean = piece.output(piece.add("ReduceMean", "x", axes=(-1,), keepdims=0))
    soft_, leaky_, mean_ = run(piece.joined_to(model), soft, leaky, mean)
    np.testing.assert_allclose(soft_, np.exp(X) / np.exp(X).sum(0), rtol=1e-6)
    np.testing.assert_allclose(leaky_, np.where(X > 0, X, X / 4))
    np.testing.assert_allclose(mean_, X.mean(-1), rtol=1e-6)


def test_constants_of_no_dimension_and_large_whole_numbers(model: bytes) -> None:
    piece = GraphPiece()
    half = piece.add("Mul", "x", piece.constant(np.array(0.5, np.float32)))
    rest = piece.add("Slice", half, piece.ints(1), piece.ints(np.iinfo(np.int64).max), piece.ints(0))
    piece.output(rest)
    np.testing.assert_array_equal(run(piece.joined_to(model), rest)[0], X[1:] / 2)
