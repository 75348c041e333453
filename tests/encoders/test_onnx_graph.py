"""onnx_graph: small graphs, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tapr.encoders.onnx_graph import WholeGraph
from tapr.encoders.onnx_session import session
from tapr.types import Float32

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture
def graph() -> WholeGraph:
    graph = WholeGraph()
    graph.input_bytes("bytes", 3)
    return graph


def floats(graph: WholeGraph) -> str:
    return graph.add("Cast", "bytes", to=1)


def run(graph: WholeGraph, *names: str) -> list[Float32]:
    return list(session(graph.model()).run(list(names), {"bytes": X.astype(np.uint8)}))


def test_nodes_read_the_input_and_one_another(graph: WholeGraph) -> None:
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    product = graph.add("MatMul", floats(graph), graph.constant(weight))
    shaped = graph.add("Reshape", product, graph.ints(-1, 1, 2))
    turned = graph.output(graph.add("Transpose", shaped, perm=(2, 1, 0)))
    np.testing.assert_allclose(run(graph, turned)[0], (X @ weight).reshape(-1, 1, 2).T)


def test_every_kind_of_attribute(graph: WholeGraph) -> None:
    x = floats(graph)
    soft = graph.output(graph.add("Softmax", x, axis=0))
    leaky = graph.output(graph.add("LeakyRelu", graph.add("Neg", x), alpha=0.25))
    mean = graph.output(graph.add("ReduceMean", x, axes=(-1,), keepdims=0))
    soft_, leaky_, mean_ = run(graph, soft, leaky, mean)
    np.testing.assert_allclose(soft_, np.exp(X) / np.exp(X).sum(0), rtol=1e-6)
    np.testing.assert_allclose(leaky_, -X / 4)
    np.testing.assert_allclose(mean_, X.mean(-1), rtol=1e-6)


def test_constants_of_no_dimension_and_large_whole_numbers(graph: WholeGraph) -> None:
    half = graph.add("Mul", floats(graph), graph.number(0.5))
    rest = graph.add("Slice", half, graph.ints(1), graph.ints(np.iinfo(np.int64).max), graph.ints(0))
    np.testing.assert_array_equal(run(graph, graph.output(rest))[0], X[1:] / 2)
