"""The shipped graphs of clip-b16 are what the tool builds, and the default arithmetic is its definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.clip_weights import (
    GELU_LEAST,
    GELU_PARTS,
    GRAPHS,
    WEIGHT_TABLE,
    Columns,
    StoredLinear,
    TowerWeights,
    _layer_arrays,
)
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.onnx_session import PROBE, session
from tapr.types import Float32

build = pytest.importorskip("tools.build_image_tower", reason="the graphs are built with the onnx package")

INNER, OUTER = 64, 24
COLUMNS = (3, 40)
STEPS, LEAST_ROW = 127, np.float32(1e-10)


# The definition of the default arithmetic: tools/build_image_tower.py says why.


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


def _scale(largest: Float32, steps: int) -> Float32:
    return np.maximum(largest, LEAST_ROW) * np.float32(1 / steps)


def _whole_product(left: Any, right: Any) -> Any:
    return (left.astype(np.int64) @ right.astype(np.int64)).astype(np.float64)


def _float32(x: Any) -> Float32:
    return np.asarray(x, np.float32)


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


def computed(graph: Any, output: str, weights: dict[str, NDArray[Any]]) -> Float32:
    """Run a graph whose numbers are constants; its input is not used."""
    graph.output(output)
    (values,) = session(graph.model(), finished=True, weights=weights).run(None, {"unused": np.zeros((1, 1), np.uint8)})
    return _float32(values)


def linear_by_graph(x: Float32, linear: StoredLinear, columns: Columns = ()) -> Float32:
    graph = build.Graph()
    graph.input_bytes("unused", 1)
    products = build.RowProducts(graph)
    rows = products.rows(graph.constant(x), columns, width=x.shape[1])
    output = products.linear(rows, build.Layer("layer", *linear.codes.shape))
    return computed(graph, output, _layer_arrays("layer", linear, columns))


@pytest.mark.parametrize("kind", ["plain", "large columns", "zeros", "unlike rows", "all at the limit"])
@pytest.mark.parametrize("columns", [(), COLUMNS])
def test_the_graph_is_the_definition(kind: str, columns: Columns) -> None:
    x, linear = activations(kind), layer(1)
    expected = row_product(x, linear, columns)
    scale = np.abs(expected).max(1, keepdims=True)
    # a number that lies between two steps may be rounded to either: one step of one product at most
    np.testing.assert_allclose(linear_by_graph(x, linear, columns) / scale, expected / scale, atol=2e-4)


def test_large_columns_cost_the_others_nothing() -> None:
    x, linear = activations("large columns"), layer(2)
    exact = x.astype(np.float64) @ linear.weight + linear.bias

    def error(columns: Columns) -> float:
        return float(np.abs(row_product(x, linear, columns) - exact).max())

    assert error(COLUMNS) < error(()) / 10


def test_a_row_does_not_depend_on_others() -> None:
    x, linear = activations("unlike rows"), layer(3)
    together = linear_by_graph(x, linear, COLUMNS)
    for at in range(len(x)):
        np.testing.assert_array_equal(linear_by_graph(x[at : at + 1], linear, COLUMNS)[0], together[at])


@pytest.mark.parametrize("size", [0.0, 0.1, 3.0, 40.0])
def test_after_a_gelu(size: float) -> None:
    rng = np.random.default_rng(4)
    wide = (size * rng.normal(size=(5, INNER))).astype(np.float32)
    gelu: NDArray[np.float32] = wide * (1 + np.tanh(np.float32(0.851) * wide)) / 2  # cannot overflow
    linear = layer(5)
    graph = build.Graph()
    graph.input_bytes("unused", 1)
    parts = [graph.constant(part) for part in np.split(gelu, GELU_PARTS, 1)]
    output = build.RowProducts(graph).linear_after_gelu(parts, build.Layer("layer", INNER, OUTER))
    shifted_bias = _float32(linear.bias - GELU_LEAST * linear.weight.sum(0, dtype=np.float64))
    weights: dict[str, NDArray[Any]] = {"layer.scale": linear.scale, "layer.shifted_bias": shifted_bias}
    weights |= {f"layer.{part}.codes": codes for part, codes in enumerate(np.split(linear.codes, GELU_PARTS))}
    result = computed(graph, output, weights)
    expected = row_product_after_gelu(gelu, linear)
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(result / scale, expected / scale, atol=2e-4)
    exact = gelu.astype(np.float64) @ linear.weight + linear.bias
    steps = (gelu.max() + 0.17) / 255 * np.abs(linear.weight).sum(0).max()  # half a step per number, at most
    assert np.abs(expected - exact).max() <= steps


def test_parts_of_a_layer_are_the_layer() -> None:
    x, linear = activations("plain"), layer(6)
    parts = [row_product(x, part) for part in linear.parts(4)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), row_product(x, linear))


def test_the_shipped_files_are_what_the_tool_builds(image_tower_file: Path) -> None:
    assert PROBE.read_bytes() == build.probe_model()
    for extractor in EXTRACTORS:
        assert (GRAPHS / f"{extractor}.onnx").read_bytes() == build.tower_model(extractor)
    assert WEIGHT_TABLE.read_text(encoding="utf-8") == build.as_json(build.weight_table(image_tower_file))


def test_every_weight_of_a_graph_is_handed_over(image_tower_file: Path) -> None:
    onnx = pytest.importorskip("onnx")
    arrays = TowerWeights.read(image_tower_file).by_name()
    for extractor in EXTRACTORS:
        graph = onnx.load_from_string((GRAPHS / f"{extractor}.onnx").read_bytes()).graph
        wanted = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer if tensor.external_data}
        assert wanted == {name: array.shape for name, array in arrays.items()}
