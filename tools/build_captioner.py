"""Builds the shipped captioner from its fp16 weights: fp16 weights in the file, float32 arithmetic.

    python tools/build_captioner.py captioner_fp16.safetensors vocab.json src/tapr/captions/data

The graph is one step of the decoder, and the first step too. It reads what it has not read yet (the global vector, or
one word for each caption) and the keys and values of what it has read, and gives the logits of the next word and the
keys and values so far. Nothing in it mixes the captions of a batch. Prints the sha256 of both files, which
tapr/encoders/model_files.py records. Needs `onnx` and `safetensors`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

LAYERS, HEADS, WIDTH, DIM, PREFIX = 4, 4, 256, 512, 4
HEAD = WIDTH // HEADS
SCALE_OF_THE_VECTOR = 8.0  # as it was trained
LAYER_NORM_EPSILON = 1e-5
OPSET = 17


class Captioner:
    """Collects nodes and initialisers; each method adds one part of the network and returns its output's name."""

    def __init__(self, weights: dict[str, NDArray[Any]]) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initialisers: dict[str, onnx.TensorProto] = {}

    def build(self) -> onnx.ModelProto:
        """Inputs: vectors (B, p, d), words (B, w), step (1,), past (2 L, B, heads, T, 64), with p + w = 1."""
        hidden = self._node("Concat", self._prefix(), self._words(), axis=1)  # (B, 4 p + w, WIDTH)
        present = [self._kept(layer, part) for layer in range(LAYERS) for part in range(2)]
        for layer in range(LAYERS):
            hidden, *present[2 * layer : 2 * layer + 2] = self._block(
                hidden, layer, *present[2 * layer : 2 * layer + 2]
            )
        self._node("Concat", *(self._unsqueeze(kept) for kept in present), axis=0, output="present")
        last = self._node("Gather", hidden, self._constant("last", np.int64(-1)), axis=1)  # (B, WIDTH)
        vocabulary = self._node("Transpose", self._weight("e.weight"), perm=[1, 0])
        self._node("MatMul", self._layer_norm(last, "n"), vocabulary, output="logits")
        inputs = [
            helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["captions", "vectors", DIM]),
            helper.make_tensor_value_info("words", TensorProto.INT64, ["captions", "words"]),
            helper.make_tensor_value_info("step", TensorProto.INT64, [1]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, [2 * LAYERS, "captions", HEADS, "read", HEAD]),
        ]
        outputs = [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["captions", len(self._weights["e.weight"])]),
            helper.make_tensor_value_info("present", TensorProto.FLOAT, [2 * LAYERS, "captions", HEADS, "now", HEAD]),
        ]
        graph = helper.make_graph(self._nodes, "captioner", inputs, outputs, list(self._initialisers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model)
        return model

    def _prefix(self) -> str:
        """The global vector as 4 things to look at: (B, p, d) -> (B, 4 p, WIDTH)."""
        scaled = self._node("Mul", "vectors", self._constant("scale", np.float32(SCALE_OF_THE_VECTOR)))
        shape = self._node("Shape", "vectors", start=0, end=2)  # B, p
        shape = self._node("Mul", shape, self._ints([1, PREFIX]))
        shape = self._node("Concat", shape, self._ints([WIDTH]), axis=0)
        return self._node("Reshape", self._linear(scaled, "g"), shape, allowzero=1)

    def _words(self) -> str:
        words = self._node("Gather", self._weight("e.weight"), "words")  # (B, w, WIDTH)
        return self._node("Add", words, self._node("Gather", self._weight("pos"), "step"))

    def _kept(self, layer: int, part: int) -> str:
        return self._node("Gather", "past", self._constant(f"kept.{layer}.{part}", np.int64(2 * layer + part)))

    def _block(self, hidden: str, layer: int, keys: str, values: str) -> tuple[str, str, str]:
        """All that is read at once sees itself whole: the prefix is read in one step, and then one word in each."""
        name = f"blocks.{layer}"
        wide = self._linear(self._layer_norm(hidden, f"{name}.n1"), f"{name}.qkv")
        split = self._node("Reshape", wide, self._ints([0, 0, 3 * HEADS, HEAD]))
        heads = self._node("Transpose", split, perm=[0, 2, 1, 3])  # (B, 3 heads, t, 64)
        query, key, value = (self._slice(heads, HEADS * part, HEADS * (part + 1)) for part in range(3))
        keys = self._node("Concat", keys, key, axis=2)
        values = self._node("Concat", values, value, axis=2)
        products = self._node("MatMul", query, self._node("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self._node("Mul", products, self._constant("attention.scale", np.float32(HEAD**-0.5)))
        mixed = self._node("MatMul", self._node("Softmax", scaled, axis=-1), values)
        joined = self._node("Reshape", self._node("Transpose", mixed, perm=[0, 2, 1, 3]), self._ints([0, 0, WIDTH]))
        hidden = self._node("Add", hidden, self._linear(joined, f"{name}.o"))
        deep = self._gelu(self._linear(self._layer_norm(hidden, f"{name}.n2"), f"{name}.a"))
        return self._node("Add", hidden, self._linear(deep, f"{name}.b")), keys, values

    def _slice(self, value: str, start: int, end: int) -> str:
        return self._node("Slice", value, self._ints([start]), self._ints([end]), self._ints([1]))

    def _unsqueeze(self, value: str) -> str:
        return self._node("Unsqueeze", value, self._ints([0]))

    def _linear(self, hidden: str, name: str) -> str:
        matrix = self._node("Transpose", self._weight(f"{name}.weight"), perm=[1, 0])  # (in, out)
        return self._node("Add", self._node("MatMul", hidden, matrix), self._weight(f"{name}.bias"))

    def _layer_norm(self, hidden: str, name: str) -> str:
        parts = [self._weight(f"{name}.{part}") for part in ("weight", "bias")]
        return self._node("LayerNormalization", hidden, *parts, axis=-1, epsilon=LAYER_NORM_EPSILON)

    def _gelu(self, hidden: str) -> str:
        scaled = self._node("Mul", hidden, self._constant("sqrt_half", np.float32(0.5**0.5)))
        share = self._node("Add", self._node("Erf", scaled), self._constant("one", np.float32(1)))
        return self._node("Mul", self._node("Mul", hidden, share), self._constant("half", np.float32(0.5)))

    def _weight(self, name: str) -> str:
        """fp16 in the file; onnxruntime makes it float32 once, at load."""
        return self._node("Cast", self._constant(name, self._weights[name]), to=TensorProto.FLOAT)

    def _ints(self, value: list[int]) -> str:
        return self._constant(f"ints.{value}", np.array(value, np.int64))

    def _constant(self, name: str, value: Any) -> str:
        self._initialisers.setdefault(name, numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def _node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{kind.lower()}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("weights", type=Path, help="captioner_fp16.safetensors")
    parser.add_argument("vocabulary", type=Path, help="vocab.json: the token ids that the captioner may say")
    parser.add_argument("folder", type=Path, help="where captioner.onnx and vocabulary.json go")
    arguments = parser.parse_args()
    graph = Captioner(load_file(arguments.weights)).build().SerializeToString(deterministic=True)
    words = (json.dumps(json.loads(arguments.vocabulary.read_text()), separators=(",", ":")) + "\n").encode()
    for name, data in (("captioner.onnx", graph), ("vocabulary.json", words)):
        (arguments.folder / name).write_bytes(data)
        print(f"{name}: {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
