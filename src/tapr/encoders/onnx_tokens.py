"""The extractors of local_tokens.py as nodes of an ONNX graph, so that onnxruntime computes them with the tower.

NumPy's matrix products bring threads of their own, which wait for one another as soon as several pictures are encoded
side by side; within the graph a picture stays on its one thread. local_tokens.py is the definition; tests compare.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from tapr.encoders.extractors import Extractor, Side, extractor_of
from tapr.encoders.local_tokens import Grid, LastBlock, Linear, Norm, neighbourhood, pooling
from tapr.encoders.onnx_graph import GraphPiece
from tapr.errors import BadInput

_END = np.iinfo(np.int64).max  # of a slice that goes to the last


class OnnxTokens:
    """Adds to `piece` what turns a hidden state (1, 1 + P, D), CLS first, into local vectors (M, d) of any length."""

    def __init__(self, piece: GraphPiece, block: LastBlock, native: Grid, grid: Grid) -> None:
        if block.activation != "quick_gelu":
            raise BadInput(f"the ONNX extractors know the activation quick_gelu, not {block.activation!r}")
        self._piece = piece
        self._block = block
        self._native = native
        self._grid = grid
        self._width = len(block.projection)  # D

    def from_block_input(self, extractor: str, hidden: str) -> str:
        row = extractor_of(extractor)
        hidden = self._rows(hidden)
        tokens = self._linear(self._attention(row, self._norm(hidden, self._block.ln1)), self._block.out)
        if row.whole_block:
            tokens = self._piece.add("Add", tokens, self._patches(hidden))
            wide = self._linear(self._norm(tokens, self._block.ln2), self._block.fc1)
            gate = self._piece.add("Sigmoid", self._scaled(wide, 1.702))
            narrow = self._linear(self._piece.add("Mul", wide, gate), self._block.fc2)
            tokens = self._piece.add("Add", tokens, narrow)
        return self._finish(tokens)

    def from_block_output(self, hidden: str) -> str:
        """The block as trained, where the graph has computed it already."""
        return self._finish(self._patches(self._rows(hidden)))

    def _finish(self, patches: str) -> str:
        """(P, D) -> (M, d): pooled before the projection, which is linear and so has fewer rows to work on."""
        pooled = self._piece.constant(pooling(self._native, self._grid))
        pooled = self._piece.add("MatMul", pooled, self._norm(patches, self._block.ln_post))
        return self._piece.add("MatMul", pooled, self._piece.constant(self._block.projection))

    def _attention(self, extractor: Extractor, normed: str) -> str:
        """(1 + P, D) -> (P, D): what each patch reads from the values."""
        patches = self._patches(normed)
        if not extractor.attends:
            return self._linear(patches, self._block.value)
        tokens = normed if extractor.reads_cls else patches
        linear: dict[Side, Linear] = {"query": self._block.query, "key": self._block.key}
        named = dict.fromkeys(asked for _, asked in extractor.attends)
        asked = {side: self._heads(tokens, self._scaling(linear[side])) for side in named}
        values = self._heads(tokens, self._block.value)
        reads = []
        for asking, other in extractor.attends:
            same = asking in asked and not extractor.reads_cls  # of the same rows: computed once
            left = asked[asking] if same else self._heads(patches, self._scaling(linear[asking]))
            logits = self._products(left, asked[other])
            if extractor.neighbourhood:
                near = neighbourhood(self._native, extractor.neighbourhood, extractor.reads_cls)
                logits = self._piece.add("Add", logits, self._piece.constant(near))
            reads.append(self._attend(logits, values))
        return self._joined(reduce(lambda one, two: self._piece.add("Add", one, two), reads))

    def _scaling(self, part: Linear) -> Linear:
        """Logits are divided by sqrt(head width): half of it on either side of the product."""
        scale = np.float32((self._width / self._block.heads) ** -0.25)
        return Linear(part.weight * scale, part.bias * scale)

    def _heads(self, rows: str, part: Linear) -> str:
        """(rows, D) -> (heads, rows, D / heads)"""
        split = self._piece.ints(-1, self._block.heads, self._width // self._block.heads)
        split = self._piece.add("Reshape", self._linear(rows, part), split)
        return self._piece.add("Transpose", split, perm=(1, 0, 2))

    def _joined(self, heads: str) -> str:
        rows = self._piece.add("Transpose", heads, perm=(1, 0, 2))
        return self._piece.add("Reshape", rows, self._piece.ints(-1, self._width))

    def _products(self, left: str, right: str) -> str:
        return self._piece.add("MatMul", left, self._piece.add("Transpose", right, perm=(0, 2, 1)))

    def _attend(self, logits: str, values: str) -> str:
        return self._piece.add("MatMul", self._piece.add("Softmax", logits, axis=-1), values)

    def _rows(self, hidden: str) -> str:
        """(1, 1 + P, D) -> (1 + P, D)"""
        return self._piece.add("Reshape", hidden, self._piece.ints(-1, self._width))

    def _patches(self, rows: str) -> str:
        return self._piece.add("Slice", rows, *(self._piece.ints(value) for value in (1, _END, 0)))

    def _linear(self, rows: str, part: Linear) -> str:
        product = self._piece.add("MatMul", rows, self._piece.constant(part.weight))
        return self._piece.add("Add", product, self._piece.constant(part.bias))

    def _norm(self, rows: str, norm: Norm) -> str:
        """Layer norm spelled out: the operator itself is younger than the graphs this is joined to."""
        centred = self._piece.add("Sub", rows, self._piece.add("ReduceMean", rows, axes=(-1,)))
        square = self._piece.add("Mul", centred, centred)
        variance = self._piece.add("ReduceMean", square, axes=(-1,))
        safe = self._piece.add("Add", variance, self._piece.constant(np.array(norm.eps, np.float32)))
        scaled = self._piece.add("Div", centred, self._piece.add("Sqrt", safe))
        weighted = self._piece.add("Mul", scaled, self._piece.constant(norm.weight))
        return self._piece.add("Add", weighted, self._piece.constant(norm.bias))

    def _scaled(self, rows: str, factor: float) -> str:
        return self._piece.add("Mul", rows, self._piece.constant(np.array(factor, np.float32)))
