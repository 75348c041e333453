"""Build the graphs of clip-b16's image tower that the package ships, and the table of its weights. Needs onnx.

    PYTHONPATH=src python tools/build_image_tower.py

The fetched file holds the tower as it was exported. This writes it anew, one graph per extractor, with products of our
own (`RowProducts`) and without what nobody reads: where only the CLS token goes through the rest of the last block, the
patches stay behind. The graphs hold no weights. encoders/clip_weights.py hands the weights over by name when a graph is
loaded; data/clip_b16_image/weights.json says where each of them lies in the fetched file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tapr.encoders.clip_weights import (
    COLUMNS,
    GELU_LEAST,
    GELU_PARTS,
    GRAPHS,
    GRID,
    HEADS,
    INPUT,
    LAYERS,
    PATCH,
    SIDE,
    WEIGHT_TABLE,
    WIDTH,
    Columns,
    TowerWeights,
    large_columns,
)
from tapr.encoders.extractors import EXTRACTORS, Extractor, extractor_of
from tapr.encoders.local_tokens import neighbourhood, pooling
from tapr.encoders.onnx_session import PROBE, Weights
from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, fetch

STEPS = 127  # 8-bit steps on either side of zero
LEAST_ROW = 1e-10  # a row of zeros is divided by this
_END = np.iinfo(np.int64).max  # of a slice that goes to the last
_OWN = "com.microsoft"  # the domain of the operators that only onnxruntime has
_OPERATORS, _IR_VERSION = 17, 8  # the first operators with LayerNormalization


class Graph:
    """Collects nodes. Each call returns the name of what it computes."""

    def __init__(self, weights: Weights | None = None) -> None:
        """`weights` are stored in the graph; without them it names those that will be handed over."""
        self.weights = weights
        self._nodes: list[Any] = []
        self._initialisers: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name

    def own(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator of onnxruntime's own."""
        return self.add(operator, *inputs, domain=_OWN, **attributes)

    def constant(self, value: NDArray[Any]) -> str:
        """Store an array in the graph; equal ones once."""
        if np.issubdtype(value.dtype, np.floating):
            value = value.astype(np.float32)
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:16]
        name = f"{value.dtype}_{value.shape}_{digest}"
        self._initialisers.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def weight(self, name: str, dtype: int, *shape: int) -> str:
        """Use a weight: a stored one, or one that is handed over when the graph is loaded."""
        if self.weights is not None:
            return self.constant(self.weights[name])
        tensor = TensorProto(name=name, data_type=dtype, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="handed-over")
        self._initialisers.setdefault(name, tensor)
        return name

    def gelu(self, tensor: str) -> str:
        """x * sigmoid(1.702 x)"""
        return self.own("QuickGelu", tensor, alpha=1.702)

    def input_bytes(self, name: str, *shape: int) -> str:
        """Add an input of bytes, any number at once: (B, *shape)."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, ["batch", *shape]))
        return name

    def output(self, tensor: str) -> str:
        self._outputs.append(helper.make_tensor_value_info(tensor, TensorProto.FLOAT, None))
        return tensor

    def model(self) -> bytes:
        graph = helper.make_graph(self._nodes, "tapr", self._inputs, self._outputs, [*self._initialisers.values()])
        operators = [helper.make_opsetid("", _OPERATORS), helper.make_opsetid(_OWN, 1)]
        model = helper.make_model(graph, opset_imports=operators, ir_version=_IR_VERSION)
        return bytes(model.SerializeToString(deterministic=True))


@dataclass(frozen=True)
class Layer:
    """A linear layer: the names of its weights begin with `name`."""

    name: str
    inner: int
    outer: int


class Products(Protocol):
    """Writes linear layers into a graph. Rows that are prepared once can be multiplied by several weights."""

    def rows(self, tensor: str, columns: Columns = ()) -> Any:
        """(rows, in)"""

    def linear(self, rows: Any, layer: Layer) -> str:
        """-> (rows, out)"""

    def gelu(self, rows: Any, layer: Layer) -> Any:
        """A linear layer and the quick GELU of its output."""

    def linear_after_gelu(self, wide: Any, layer: Layer) -> str:
        """-> (rows, out)"""


@dataclass(frozen=True)
class _Codes:
    codes: str  # (rows, in) uint8
    scale: str  # (rows, 1)


@dataclass(frozen=True)
class _Rows:
    codes: _Codes
    columns: Columns  # the columns that are multiplied in float32
    apart: str  # (rows, columns + 1): their numbers, and a 1 to be multiplied by the bias


class RowProducts:
    """The default arithmetic: activations in 8 bits with one scale per row, weights as they are stored.

    A row is one token of one picture. Its numbers are divided by a scale s, so that the largest becomes 127, and
    rounded:

        x @ weight = s (codes @ stored codes) * stored scale

    CLIP keeps a few columns of its normed states ten times larger than the rest. A scale that covers them leaves few
    steps to the others, so those columns are kept out of the codes, and multiplied in float32. The output of a quick
    GELU has no such columns, but is never below -0.17: it is shifted by that to have all 255 steps, and has a scale for
    every quarter of its columns.

    Sums of products of bytes are exact, so all processors give the same vectors up to the rounding of float32. No row
    depends on another, so a picture's vectors are the same in any batch. tests/encoders/test_image_tower.py has the
    definition in NumPy.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._zeros = {code: graph.constant(np.array(code, np.uint8)) for code in (0, STEPS + 1)}

    def rows(self, tensor: str, columns: Columns = (), width: int = WIDTH) -> _Rows:
        graph, apart, inner = self._graph, "", tensor
        if columns:
            kept = np.ones(width, np.float32)
            kept[list(columns)] = 0
            inner = graph.add("Mul", tensor, graph.constant(kept))
        codes = self._codes(inner, graph.add("Abs", inner), STEPS, STEPS + 1)
        if columns:
            ones = graph.add("Div", codes.scale, codes.scale)  # as many as there are rows
            apart = graph.add("Concat", graph.add("Gather", tensor, graph.ints(*columns), axis=1), ones, axis=1)
        return _Rows(codes, columns, apart)

    def linear(self, rows: _Rows, layer: Layer) -> str:
        graph = self._graph
        total = self._product(rows.codes, layer.name, layer, STEPS + 1)
        if not rows.columns:
            return graph.add("Add", total, graph.weight(f"{layer.name}.bias", TensorProto.FLOAT, layer.outer))
        apart = graph.weight(f"{layer.name}.apart", TensorProto.FLOAT, len(rows.columns) + 1, layer.outer)
        return graph.add("Gemm", rows.apart, apart, total)

    def gelu(self, rows: _Rows, layer: Layer) -> list[str]:
        """Compute it in parts: what one of them needs stays in the processor's cache."""
        parts = [Layer(f"{layer.name}.{part}", layer.inner, layer.outer // GELU_PARTS) for part in range(GELU_PARTS)]
        return [self._graph.gelu(self.linear(rows, part)) for part in parts]

    def linear_after_gelu(self, wide: list[str], layer: Layer) -> str:
        graph, total = self._graph, ""
        inner = Layer(layer.name, layer.inner // GELU_PARTS, layer.outer)
        for part, tensor in enumerate(wide):
            shifted = graph.add("Add", tensor, graph.number(GELU_LEAST))
            codes = self._codes(shifted, shifted, 2 * STEPS + 1, 0)
            product = self._product(codes, f"{layer.name}.{part}", inner, 0)
            total = graph.add("Add", total, product) if total else product
        return graph.add("Add", total, graph.weight(f"{layer.name}.shifted_bias", TensorProto.FLOAT, layer.outer))

    def _product(self, rows: _Codes, name: str, layer: Layer, zero: int) -> str:
        graph = self._graph
        codes = graph.weight(f"{name}.codes", TensorProto.INT8, layer.inner, layer.outer)
        scale = graph.weight(f"{layer.name}.scale", TensorProto.FLOAT, layer.outer)
        factors = rows.codes, codes, graph.number(1), scale, self._zeros[zero]
        return graph.add("Mul", graph.own("MatMulIntegerToFloat", *factors), rows.scale)

    def _codes(self, tensor: str, sizes: str, steps: int, zero: int) -> _Codes:
        graph = self._graph
        largest = graph.add("Max", graph.add("ReduceMax", sizes, axes=(-1,)), graph.number(LEAST_ROW))
        scale = graph.add("Mul", largest, graph.number(1 / steps))
        flat = graph.add("Reshape", scale, graph.ints(-1))
        zeros = graph.add("Expand", self._zeros[zero], graph.add("Shape", flat))
        return _Codes(graph.add("QuantizeLinear", tensor, flat, zeros, axis=0), scale)


class FloatProducts:
    """The same layers in float32: what benchmarks/tower.py compares with."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def rows(self, tensor: str, columns: Columns = ()) -> str:
        return tensor

    def linear(self, rows: str, layer: Layer) -> str:
        weight = self._graph.weight(f"{layer.name}.weight", TensorProto.FLOAT, layer.inner, layer.outer)
        bias = self._graph.weight(f"{layer.name}.bias", TensorProto.FLOAT, layer.outer)
        return self._graph.add("Add", self._graph.add("MatMul", rows, weight), bias)

    def gelu(self, rows: str, layer: Layer) -> str:
        return self._graph.gelu(self.linear(rows, layer))

    def linear_after_gelu(self, wide: str, layer: Layer) -> str:
        return self.linear(wide, layer)


class TowerGraph:
    """The whole tower: `vectors` adds all nodes. Shapes: rows (B * tokens, D); tokens (B, tokens, D)."""

    def __init__(
        self, graph: Graph, products: Products, columns: tuple[Columns, ...] | None = None, side: int = SIDE
    ) -> None:
        """`columns`: for the states after each norm, two per block, those that are multiplied in float32."""
        self._graph, self._products, self._columns = graph, products, columns or large_columns()
        self._side, self._token_count = side, 1 + side**2
        self._as_rows = graph.ints(-1, WIDTH)

    def vectors(self, extractor: str, grid: tuple[int, int]) -> tuple[str, str]:
        """-> global vectors (B, d) and local vectors (B, M, d), of any length."""
        row = extractor_of(extractor)
        states = self._embedded(self._graph.input_bytes(INPUT, self._side * PATCH, self._side * PATCH, 3))
        for number in range(LAYERS - 1):
            states = self._block(states, number)
        return self._last(states, row, grid)

    def _embedded(self, pixels: str) -> str:
        """(B, S, S, 3) bytes -> rows"""
        graph, side = self._graph, self._side
        split = graph.ints(-1, side, PATCH, side, PATCH, 3)
        cut = graph.add("Reshape", graph.add("Cast", pixels, to=TensorProto.FLOAT), split)
        cut = graph.add("Transpose", cut, perm=(0, 1, 3, 2, 4, 5))
        cut = graph.add("Reshape", cut, graph.ints(-1, side**2, 3 * PATCH**2))
        weight = graph.weight("patches", TensorProto.FLOAT, 3 * PATCH**2, WIDTH)
        patches = graph.add("Pad", graph.add("MatMul", cut, weight), graph.ints(0, 1, 0, 0, 0, 0))  # room for CLS
        states = graph.add("Add", patches, graph.weight("places", TensorProto.FLOAT, self._token_count, WIDTH))
        return graph.add("Reshape", self._norm(states, "ln_pre"), self._as_rows)

    def _block(self, states: str, number: int) -> str:
        query, key, value = self._sides(states, number)
        read = self._graph.add("Reshape", self._attend(query, key, value), self._as_rows)
        return self._rest(states, read, number)

    def _sides(self, states: str, number: int) -> tuple[str, str, str]:
        """rows -> queries, keys and values, tokens each"""
        rows = self._products.rows(self._norm(states, f"{number}.ln1"), self._columns[2 * number])
        sides = [
            self._products.linear(rows, Layer(f"{number}.{side}", WIDTH, WIDTH)) for side in ("query", "key", "value")
        ]
        query, key, value = (self._tokens(side, self._token_count) for side in sides)
        return query, key, value

    def _rest(self, states: str, read: str, number: int) -> str:
        """The end of a block for these rows: their states and what they read -> the states after the block."""
        states = self._graph.add("Add", states, self._out(read, number))
        rows = self._products.rows(self._norm(states, f"{number}.ln2"), self._columns[2 * number + 1])
        wide = self._products.gelu(rows, Layer(f"{number}.fc1", WIDTH, 4 * WIDTH))
        narrow = self._products.linear_after_gelu(wide, Layer(f"{number}.fc2", 4 * WIDTH, WIDTH))
        return self._graph.add("Add", states, narrow)

    def _last(self, states: str, extractor: Extractor, grid: tuple[int, int]) -> tuple[str, str]:
        number = LAYERS - 1
        query, key, value = self._sides(states, number)
        cls = self._rest(self._cls(states), self._rows(self._attend(self._cut(query, 0, 1), key, value)), number)
        patches = self._reread(extractor, self._patches(query), self._patches(key), query, key, value)
        if extractor.whole_block:
            before = self._rows(self._patches(self._tokens(states, self._token_count)))
            rows = self._rest(before, self._rows(patches), number)
        else:
            rows = self._out(self._rows(patches), number)
        pooled = self._tokens(self._norm(rows, "ln_post"), self._token_count - 1)
        pooled = self._graph.add("MatMul", self._graph.constant(pooling((self._side, self._side), grid)), pooled)
        return self._projected(self._norm(cls, "ln_post")), self._projected(pooled)

    def _reread(self, extractor: Extractor, q: str, k: str, query: str, key: str, value: str) -> str:
        """Tokens of the patches: what each reads from the values, as the extractor says."""
        if not extractor.attends:
            return self._patches(value)
        asking = {"query": q, "key": k}
        answering = {"query": query, "key": key} if extractor.reads_cls else asking
        values = value if extractor.reads_cls else self._patches(value)
        near = None
        if extractor.neighbourhood:
            near = self._graph.constant(
                neighbourhood((self._side, self._side), extractor.neighbourhood, extractor.reads_cls)
            )
        reads = [self._attend(asking[first], answering[second], values, near) for first, second in extractor.attends]
        return reduce(lambda first, second: self._graph.add("Add", first, second), reads)

    def _attend(self, query: str, key: str, value: str, near: str | None = None) -> str:
        """Tokens, tokens, tokens -> tokens: softmax(query key^T / sqrt(head width) + near) value, head by head."""
        q, k, v = map(self._heads, (query, key, value))
        logits = self._graph.own("FusedMatMul", q, k, transB=1, alpha=(WIDTH / HEADS) ** -0.5)
        if near is not None:
            logits = self._graph.add("Add", logits, near)
        read = self._graph.add("MatMul", self._graph.add("Softmax", logits, axis=-1), v)
        read = self._graph.add("Transpose", read, perm=(0, 2, 1, 3))
        return self._graph.add("Reshape", read, self._graph.ints(0, 0, WIDTH))

    def _heads(self, tokens: str) -> str:
        split = self._graph.add("Reshape", tokens, self._graph.ints(0, 0, HEADS, WIDTH // HEADS))
        return self._graph.add("Transpose", split, perm=(0, 2, 1, 3))  # (B, heads, tokens, D / heads)

    def _out(self, rows: str, number: int) -> str:
        return self._products.linear(self._products.rows(rows), Layer(f"{number}.out", WIDTH, WIDTH))

    def _projected(self, tensor: str) -> str:
        return self._graph.add("MatMul", tensor, self._graph.weight("projection", TensorProto.FLOAT, WIDTH, 512))

    def _norm(self, tensor: str, name: str) -> str:
        parts = [self._graph.weight(f"{name}.{part}", TensorProto.FLOAT, WIDTH) for part in ("weight", "bias")]
        return self._graph.add("LayerNormalization", tensor, *parts, axis=-1, epsilon=1e-5)

    def _tokens(self, rows: str, count: int) -> str:
        return self._graph.add("Reshape", rows, self._graph.ints(-1, count, WIDTH))

    def _rows(self, tokens: str) -> str:
        return self._graph.add("Reshape", tokens, self._as_rows)

    def _cls(self, rows: str) -> str:
        return self._rows(self._cut(self._tokens(rows, self._token_count), 0, 1))

    def _patches(self, tokens: str) -> str:
        return self._cut(tokens, 1, _END)

    def _cut(self, tokens: str, start: int, end: int) -> str:
        return self._graph.add("Slice", tokens, *(self._graph.ints(value) for value in (start, end, 1)))


def tower_model(
    extractor: str, products: Callable[[Graph], Products] = RowProducts, weights: Weights | None = None
) -> bytes:
    """Write the tower with an extractor. Without weights they are handed over when it is loaded."""
    graph = Graph(weights)
    for name in TowerGraph(graph, products(graph)).vectors(extractor, GRID):
        graph.output(name)
    return graph.model()


def layer_weights(tower: TowerWeights) -> Weights:
    """Name what `FloatProducts` and its like use: the layers as they are, in codes and in float32."""
    arrays = tower.by_name()
    for number, block in enumerate(tower.blocks):
        for side in ("query", "key", "value", "out", "fc1", "fc2"):
            layer = getattr(block, side)
            parts = {"codes": layer.codes, "scale": layer.scale, "weight": layer.weight, "bias": layer.bias}
            arrays |= {f"{number}.{side}.{name}": array for name, array in parts.items()}
    return arrays


def weight_table(file: Path) -> dict[str, tuple[str, list[int], int]]:
    """Where each weight lies in the exported file: name -> type, shape, first byte."""
    data = file.read_bytes()
    graph = onnx.load_from_string(data).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    nodes = {node.name: node for node in graph.node}

    def place(name: str) -> tuple[str, list[int], int]:
        array = numpy_helper.to_array(stored[name])
        return array.dtype.name, list(array.shape), data.index(array.tobytes())

    def linear(product: str) -> dict[str, str]:
        codes = nodes[f"/{product}/MatMul_quant"].input[1]
        stem = codes.removesuffix("_quantized")
        assert not numpy_helper.to_array(stored[f"{stem}_zero_point"]).any(), product
        return {"codes": codes, "scale": f"{stem}_scale"}

    def norm(name: str, path: str) -> dict[str, str]:
        return {f"{name}.{part}": f"{path}.{part}" for part in ("weight", "bias")}

    sides = {"query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj"}
    layers = {**sides, "out": "self_attn.out_proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
    embeddings = "vision_model.embeddings"
    names = {
        "patch": f"{embeddings}.patch_embedding.weight",
        "places": f"{embeddings}.position_embedding.weight",
        "cls": f"{embeddings}.class_embedding",
        **norm("ln_pre", "vision_model.pre_layrnorm"),
        **norm("ln_post", "vision_model.post_layernorm"),
        **{f"projection.{part}": name for part, name in linear("visual_projection").items()},
    }
    for number in range(LAYERS):
        block = f"vision_model.encoder.layers.{number}"
        names |= norm(f"{number}.ln1", f"{block}.layer_norm1") | norm(f"{number}.ln2", f"{block}.layer_norm2")
        for layer, part in layers.items():
            path = f"vision_model/encoder/layers.{number}/{part.replace('.', '/')}"
            names |= {f"{number}.{layer}.{kind}": name for kind, name in linear(path).items()}
            names[f"{number}.{layer}.bias"] = f"{block}.{part}.bias"
    return {name: place(source) for name, source in names.items()}


def as_json(table: dict[str, tuple[str, list[int], int]]) -> str:
    """Write one weight per line."""
    rows = (f" {json.dumps(name)}: {json.dumps(place)}" for name, place in table.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def probe_model() -> bytes:
    """One product of large bytes, by which onnx_session.py tells how this processor multiplies."""
    graph, inner = Graph(), 64
    graph.input_bytes("x", inner)
    weights = graph.constant(np.full((inner, 16), 127, np.int8))
    graph.output(graph.add("Cast", graph.add("MatMulInteger", "x", weights), to=TensorProto.FLOAT))
    return graph.model()


def main() -> None:
    GRAPHS.mkdir(exist_ok=True)
    PROBE.write_bytes(probe_model())
    table = weight_table(fetch(CLIP_B16_IMAGE_TOWER, print))
    WEIGHT_TABLE.write_text(as_json(table), encoding="utf-8")
    for extractor in EXTRACTORS:
        (GRAPHS / f"{extractor}.onnx").write_bytes(tower_model(extractor))
    print(f"{GRAPHS}: {len(EXTRACTORS)} graphs, {len(table)} weights; the columns are those of {COLUMNS.name}")


if __name__ == "__main__":
    main()
