"""onnx_tokens against local_tokens, the definition, on a small random block: every extractor, no weights needed."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from tapr.encoders.base import unit
from tapr.encoders.local_tokens import EXTRACTORS, LastBlock, Linear, Norm, local_vectors
from tapr.encoders.onnx_graph import GraphPiece
from tapr.encoders.onnx_tokens import OnnxTokens
from tapr.errors import BadInput
from tapr.types import Float32

onnx = pytest.importorskip("onnx", reason="the graph to join to is made with the onnx package")

WIDTH, DIM, HEADS = 24, 10, 3
NATIVE, GRID = (4, 6), (2, 3)


def random_block(activation: str = "quick_gelu") -> LastBlock:
    rng = np.random.default_rng(7)

    def normal(*shape: int, spread: float = 1) -> Float32:
        return (spread * rng.standard_normal(shape)).astype(np.float32)

    def linear(rows: int, columns: int) -> Linear:
        return Linear(normal(rows, columns, spread=rows**-0.5), normal(columns, spread=0.25))

    def norm() -> Norm:
        return Norm(normal(WIDTH), normal(WIDTH, spread=0.25))

    return LastBlock(
        ln1=norm(),
        query=linear(WIDTH, WIDTH),
        key=linear(WIDTH, WIDTH),
        value=linear(WIDTH, WIDTH),
        out=linear(WIDTH, WIDTH),
        ln2=norm(),
        fc1=linear(WIDTH, 4 * WIDTH),
        fc2=linear(4 * WIDTH, WIDTH),
        ln_post=norm(),
        projection=normal(WIDTH, DIM),
        heads=HEADS,
        activation=activation,
    )


def hidden_graph() -> bytes:
    """A graph whose only tensor is its input, the hidden state."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Identity", ["hidden"], ["same"])],
        "hidden",
        [helper.make_tensor_value_info("hidden", kind, [1, "tokens", WIDTH])],
        [helper.make_tensor_value_info("same", kind, [1, "tokens", WIDTH])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return bytes(model.SerializeToString())


def run(piece: GraphPiece, output: str, hidden: Float32) -> Float32:
    piece.output(output)
    session = onnxruntime.InferenceSession(piece.joined_to(hidden_graph()), providers=["CPUExecutionProvider"])
    return unit(session.run([output], {"hidden": hidden[None]})[0])


@pytest.fixture
def hidden() -> Float32:
    return np.random.default_rng(3).standard_normal((1 + NATIVE[0] * NATIVE[1], WIDTH)).astype(np.float32)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_graph_computes_what_the_definition_says(extractor: str, hidden: Float32) -> None:
    piece, block = GraphPiece(), random_block()
    output = OnnxTokens(piece, block, NATIVE, GRID).from_block_input(extractor, "hidden")
    vectors = run(piece, output, hidden)
    np.testing.assert_allclose(vectors, local_vectors(extractor, hidden, block, NATIVE, GRID), atol=2e-6)


def test_the_block_s_output_needs_only_norm_pooling_and_projection(hidden: Float32) -> None:
    piece, block = GraphPiece(), random_block()
    vectors = run(piece, OnnxTokens(piece, block, NATIVE, GRID).from_block_output("hidden"), hidden)
    cells = block.ln_post(hidden[1:]).reshape(2, 2, 3, 2, WIDTH).mean(axis=(1, 3)).reshape(6, WIDTH)
    np.testing.assert_allclose(vectors, unit(cells @ block.projection), atol=2e-6)


def test_what_it_does_not_know_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown extractor 'patches'"):
        OnnxTokens(GraphPiece(), random_block(), NATIVE, GRID).from_block_input("patches", "hidden")
    with pytest.raises(BadInput, match="not 'gelu'"):
        OnnxTokens(GraphPiece(), random_block("gelu"), NATIVE, GRID)
