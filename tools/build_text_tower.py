"""Builds the shipped text tower of `clip-b16` from its fp16 weights: int8 weights, float32 arithmetic.

    python tools/build_text_tower.py text_tower_fp16.safetensors text_tower.onnx

Every weight matrix is stored as int8 codes with one scale per output channel (embeddings: per row), so that the file
stays small; onnxruntime multiplies them out once, at load. Activations are never quantised: a dynamic scale would span
the tensor and cost more than the weights' rounding does (docs/models.md has the figures). The graph reads one text at
a time, without padding or mask, so that a text's vector cannot depend on its batch. Needs `onnx` and `safetensors`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

LAYERS, HEADS, WIDTH, MAX_TOKENS, DIM = 6, 12, 384, 48, 512
LAYER_NORM_EPSILON = 1e-12  # as MiniLM was trained
OPSET = 17


class TextTower:
    """Collects nodes and initialisers; each method adds one part of the network and returns its output's name."""

    def __init__(self, weights: dict[str, NDArray[Any]]) -> None:
        self._weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}
        self._nodes: list[onnx.NodeProto] = []
        self._initialisers: dict[str, onnx.TensorProto] = {}

    def build(self) -> onnx.ModelProto:
        hidden = self._embed()
        for layer in range(LAYERS):
            hidden = self._block(hidden, f"b.encoder.layer.{layer}.")
        mean = self._node("ReduceMean", hidden, axes=[1], keepdims=0)  # (1, WIDTH)
        sentence = self._unit(mean)
        deep = self._linear(self._gelu(self._linear(sentence, "f.0")), "f.3")
        vector = self._node("Add", self._linear(sentence, "a"), deep)
        self._unit(vector, output="text_embeds")
        graph = helper.make_graph(
            self._nodes,
            "clip_b16_text",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info("text_embeds", TensorProto.FLOAT, [1, DIM])],
            list(self._initialisers.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        return model

    def _embed(self) -> str:
        codes, scales = quantise(self._weights["b.embeddings.word_embeddings.weight"], axis=1)
        rows = self._node("Gather", self._constant("words.codes", codes), "input_ids")
        row_scales = self._node("Gather", self._constant("words.scales", scales), "input_ids")
        words = self._node("Mul", self._node("Cast", rows, to=TensorProto.FLOAT), row_scales)
        # every token is of type 0: its vector is part of the position's
        positions = (
            self._weights["b.embeddings.position_embeddings.weight"][:MAX_TOKENS]
            + self._weights["b.embeddings.token_type_embeddings.weight"][0]
        )
        length = self._node("Slice", self._node("Shape", "input_ids"), *self._ints([1], [2]))
        start, axis = self._ints([0], [0])
        read = self._node("Slice", self._constant("positions", positions), start, length, axis)
        return self._layer_norm(self._node("Add", words, read), "b.embeddings.LayerNorm")

    def _block(self, hidden: str, prefix: str) -> str:
        attention = f"{prefix}attention."
        query = self._heads(self._linear(hidden, f"{attention}self.query"), [0, 2, 1, 3])
        key = self._heads(self._linear(hidden, f"{attention}self.key"), [0, 2, 3, 1])
        value = self._heads(self._linear(hidden, f"{attention}self.value"), [0, 2, 1, 3])
        scale = self._constant("attention.scale", np.float32((WIDTH / HEADS) ** -0.5))
        weights = self._node("Softmax", self._node("Mul", self._node("MatMul", query, key), scale), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = self._node("Reshape", mixed, *self._ints([0, 0, WIDTH]))
        attended = self._node("Add", self._linear(joined, f"{attention}output.dense"), hidden)
        hidden = self._layer_norm(attended, f"{attention}output.LayerNorm")
        wide = self._gelu(self._linear(hidden, f"{prefix}intermediate.dense"))
        out = self._node("Add", self._linear(wide, f"{prefix}output.dense"), hidden)
        return self._layer_norm(out, f"{prefix}output.LayerNorm")

    def _heads(self, hidden: str, order: list[int]) -> str:
        split = self._node("Reshape", hidden, *self._ints([0, 0, HEADS, WIDTH // HEADS]))
        return self._node("Transpose", split, perm=order)

    def _linear(self, hidden: str, name: str) -> str:
        codes, scales = quantise(self._weights[f"{name}.weight"].T, axis=0)  # (in, out)
        floats = self._node("Cast", self._constant(f"{name}.codes", codes), to=TensorProto.FLOAT)
        matrix = self._node("Mul", floats, self._constant(f"{name}.scales", scales))
        product = self._node("MatMul", hidden, matrix)
        return self._node("Add", product, self._constant(f"{name}.bias", self._weights[f"{name}.bias"]))

    def _layer_norm(self, hidden: str, name: str) -> str:
        parts = [self._constant(f"{name}.{part}", self._weights[f"{name}.{part}"]) for part in ("weight", "bias")]
        return self._node("LayerNormalization", hidden, *parts, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def _gelu(self, hidden: str) -> str:
        scaled = self._node("Mul", hidden, self._constant("sqrt_half", np.float32(0.5**0.5)))
        share = self._node("Add", self._node("Erf", scaled), self._constant("one", np.float32(1)))
        return self._node("Mul", self._node("Mul", hidden, share), self._constant("half", np.float32(0.5)))

    def _unit(self, vector: str, output: str | None = None) -> str:
        return self._node("Div", vector, self._node("ReduceL2", vector, axes=[-1], keepdims=1), output=output)

    def _ints(self, *values: list[int]) -> list[str]:
        return [self._constant(f"ints.{value}", np.array(value, np.int64)) for value in values]

    def _constant(self, name: str, value: Any) -> str:
        self._initialisers.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind.lower()}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name


def quantise(matrix: NDArray[Any], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Codes and scales with matrix ~ scales * codes; the largest magnitude along `axis` maps to 127."""
    scales = np.abs(matrix).max(axis=axis, keepdims=True) / 127
    scales = np.where(scales > 0, scales, 1).astype(np.float32)
    return np.clip(np.rint(matrix / scales), -127, 127).astype(np.int8), scales


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("weights", type=Path, help="text_tower_fp16.safetensors")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    onnx.save(TextTower(load_file(arguments.weights)).build(), arguments.output)


if __name__ == "__main__":
    main()
