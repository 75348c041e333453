"""The default arithmetic: nodes of the graph against its definition in NumPy, and the definition against float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.clip_weights import StoredLinear
from tapr.encoders.onnx_graph import WholeGraph
from tapr.encoders.onnx_session import session
from tapr.encoders.row_product import GELU_PARTS, Columns, RowProducts, row_product, row_product_after_gelu
from tapr.types import Float32

INNER, OUTER = 64, 24
COLUMNS = (3, 40)


def layer(seed: int, inner: int = INNER, outer: int = OUTER) -> StoredLinear:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (inner, outer), np.int8)
    codes[:, 0], codes[:, 1] = 127, -127  # the largest sums
    return StoredLinear(
        codes, rng.uniform(1e-4, 1e-2, outer).astype(np.float32), rng.normal(size=outer).astype(np.float32)
    )


def activations(kind: str) -> Float32:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(9, INNER)).astype(np.float32)
    if kind == "large columns":
        x[:, COLUMNS] *= 100
    elif kind == "zeros":
        x[::2] = 0
    elif kind == "unlike rows":
        x *= np.logspace(-6, 6, len(x), dtype=np.float32)[:, None]
    elif kind == "all at the limit":
        x = np.where(rng.random(x.shape) < 0.5, -1, 1).astype(np.float32)
    return x


def run(x: Float32, linear: StoredLinear, columns: Columns = ()) -> Float32:
    """The layer as a graph. Its input comes as bytes, so the numbers are a constant that these bytes choose from."""
    graph = WholeGraph()
    graph.input_bytes("unused", 1)
    products = RowProducts(graph)
    rows = products.rows(graph.constant(x), columns, width=x.shape[1])
    return done(graph, products.linear(rows, linear))


def done(graph: WholeGraph, name: str) -> Float32:
    output = graph.output(name)
    (found,) = session(graph.model(), finished=True).run([output], {"unused": np.zeros((1, 1), np.uint8)})
    return np.asarray(found, np.float32)


@pytest.mark.parametrize("kind", ["plain", "large columns", "zeros", "unlike rows", "all at the limit"])
@pytest.mark.parametrize("columns", [(), COLUMNS])
def test_the_graph_is_the_definition(kind: str, columns: Columns) -> None:
    x, linear = activations(kind), layer(1)
    expected = row_product(x, linear, columns)
    scale = np.abs(expected).max(1, keepdims=True)
    # a number that lies between two steps may be rounded to either: one step of one product at most
    np.testing.assert_allclose(run(x, linear, columns) / scale, expected / scale, atol=2e-4)


def test_large_columns_cost_the_others_nothing() -> None:
    x, linear = activations("large columns"), layer(2)
    exact = x.astype(np.float64) @ linear.weight + linear.bias

    def error(columns: Columns) -> float:
        return float(np.abs(row_product(x, linear, columns) - exact).max())

    assert error(COLUMNS) < error(()) / 10


def test_a_row_knows_no_other() -> None:
    x, linear = activations("unlike rows"), layer(3)
    together = run(x, linear, COLUMNS)
    for at in range(len(x)):
        np.testing.assert_array_equal(run(x[at : at + 1], linear, COLUMNS)[0], together[at])


@pytest.mark.parametrize("size", [0.0, 0.1, 3.0, 40.0])
def test_after_a_gelu(size: float) -> None:
    rng = np.random.default_rng(4)
    wide = (size * rng.normal(size=(5, INNER))).astype(np.float32)
    gelu: NDArray[np.float32] = wide * (1 + np.tanh(np.float32(0.851) * wide)) / 2  # cannot overflow
    linear = layer(5)
    graph = WholeGraph()
    graph.input_bytes("unused", 1)
    parts = [graph.constant(part) for part in np.split(gelu, GELU_PARTS, 1)]
    found = done(graph, RowProducts(graph).linear_after_gelu(parts, linear))
    expected = row_product_after_gelu(gelu, linear)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-4)
    exact = gelu.astype(np.float64) @ linear.weight + linear.bias
    steps = (gelu.max() + 0.17) / 255 * np.abs(linear.weight).sum(0).max()  # half a step per number, at most
    assert np.abs(expected - exact).max() <= steps


def test_parts_of_a_layer_are_the_layer() -> None:
    x, linear = activations("plain"), layer(6)
    parts = [row_product(x, part) for part in linear.parts(4)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), row_product(x, linear))
