"""clip-b16's whole image tower as one graph, with an extractor: pixels in, global and local vectors out, in batches.

The stored file has the tower as it was exported. This writes it anew from the same weights, with products of one's own
choice (row_product.py) and without what nobody reads: where only the CLS token goes through the rest of the last block,
the patches stay behind.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from tapr.encoders.clip_weights import HEADS, PATCH, WIDTH, StoredLinear, TowerWeights
from tapr.encoders.extractors import Extractor, extractor_of
from tapr.encoders.local_tokens import Grid, Norm, neighbourhood, pooling
from tapr.encoders.onnx_graph import WholeGraph
from tapr.encoders.row_product import Columns, Products

INPUT = "pixels"
_END = np.iinfo(np.int64).max  # of a slice that goes to the last


class TowerGraph:
    """`vectors` adds all nodes. Shapes: rows (B * tokens, D); tokens (B, tokens, D)."""

    def __init__(
        self, graph: WholeGraph, weights: TowerWeights, products: Products, columns: tuple[Columns, ...]
    ) -> None:
        """`columns`: of the states after each norm, two per block, those that are multiplied apart."""
        self._graph, self._weights, self._products, self._columns = graph, weights, products, columns
        self._as_rows = graph.ints(-1, WIDTH)
        self._tokens_count = len(weights.places)  # the CLS token first
        self._side = math.isqrt(self._tokens_count - 1)  # of the grid of patches
        self._native: Grid = (self._side, self._side)

    def vectors(self, extractor: str, grid: Grid) -> tuple[str, str]:
        """-> global vectors (B, d) and local vectors (B, M, d), of any length."""
        row = extractor_of(extractor)
        states = self._embedded(self._graph.input_bytes(INPUT, self._side * PATCH, self._side * PATCH, 3))
        for number in range(len(self._weights.blocks) - 1):
            states = self._block(states, number)
        return self._last(states, row, grid)

    def _embedded(self, pixels: str) -> str:
        """(B, S, S, 3) bytes -> rows"""
        graph, weights, side = self._graph, self._weights, self._side
        split = graph.ints(-1, side, PATCH, side, PATCH, 3)
        cut = graph.add("Reshape", graph.add("Cast", pixels, to=1), split)
        cut = graph.add("Transpose", cut, perm=(0, 1, 3, 2, 4, 5))
        cut = graph.add("Reshape", cut, graph.ints(-1, side**2, 3 * PATCH**2))
        patches = graph.add("MatMul", cut, graph.constant(weights.patches))
        patches = graph.add("Pad", patches, graph.ints(0, 1, 0, 0, 0, 0))  # the CLS token is in `places`
        states = graph.add("Add", patches, graph.constant(weights.places))
        return graph.add("Reshape", self._norm(states, weights.ln_pre), self._as_rows)

    def _block(self, states: str, number: int) -> str:
        query, key, value = self._sides(states, number)
        read = self._graph.add("Reshape", self._attend(query, key, value), self._as_rows)
        return self._rest(states, read, number)

    def _sides(self, states: str, number: int) -> tuple[str, str, str]:
        """rows -> queries, keys and values, tokens each"""
        block = self._weights.blocks[number]
        rows = self._products.rows(self._norm(states, block.ln1), self._columns[2 * number])
        made = [self._products.linear(rows, part) for part in (block.query, block.key, block.value)]
        query, key, value = (self._tokens(side, self._tokens_count) for side in made)
        return query, key, value

    def _rest(self, states: str, read: str, number: int) -> str:
        """A block's end for these rows: what they had, what they read -> what comes out."""
        block = self._weights.blocks[number]
        states = self._graph.add("Add", states, self._product(read, block.out))
        rows = self._products.rows(self._norm(states, block.ln2), self._columns[2 * number + 1])
        narrow = self._products.linear_after_gelu(self._products.gelu(rows, block.fc1), block.fc2)
        return self._graph.add("Add", states, narrow)

    def _last(self, states: str, extractor: Extractor, grid: Grid) -> tuple[str, str]:
        number = len(self._weights.blocks) - 1
        query, key, value = self._sides(states, number)
        cls = self._rest(self._cls(states), self._rows(self._attend(self._cut(query, 0, 1), key, value)), number)
        patches = self._reread(extractor, self._patches(query), self._patches(key), query, key, value)
        if extractor.whole_block:
            before = self._rows(self._patches(self._tokens(states, self._tokens_count)))
            rows = self._rest(before, self._rows(patches), number)
        else:
            rows = self._product(self._rows(patches), self._weights.blocks[number].out)
        pooled = self._tokens(self._norm(rows, self._weights.ln_post), self._tokens_count - 1)
        pooled = self._graph.add("MatMul", self._graph.constant(pooling(self._native, grid)), pooled)
        return self._projected(self._norm(cls, self._weights.ln_post)), self._projected(pooled)

    def _reread(self, extractor: Extractor, q: str, k: str, query: str, key: str, value: str) -> str:
        """Tokens of the patches: what each reads from the values, as the extractor says."""
        if not extractor.attends:
            return self._patches(value)
        asking = {"query": q, "key": k}
        asked = {"query": query, "key": key} if extractor.reads_cls else asking
        values = value if extractor.reads_cls else self._patches(value)
        near = None
        if extractor.neighbourhood:
            near = self._graph.constant(neighbourhood(self._native, extractor.neighbourhood, extractor.reads_cls))
        reads = [self._attend(asking[one], asked[two], values, near) for one, two in extractor.attends]
        return reduce(lambda one, two: self._graph.add("Add", one, two), reads)

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

    def _product(self, rows: str, weight: StoredLinear) -> str:
        return self._products.linear(self._products.rows(rows), weight)

    def _projected(self, tensor: str) -> str:
        return self._graph.add("MatMul", tensor, self._graph.constant(self._weights.projection))

    def _norm(self, tensor: str, norm: Norm) -> str:
        weight, bias = self._graph.constant(norm.weight), self._graph.constant(norm.bias)
        return self._graph.add("LayerNormalization", tensor, weight, bias, axis=-1, epsilon=float(norm.eps))

    def _tokens(self, rows: str, count: int) -> str:
        return self._graph.add("Reshape", rows, self._graph.ints(-1, count, WIDTH))

    def _rows(self, tokens: str) -> str:
        return self._graph.add("Reshape", tokens, self._as_rows)

    def _cls(self, rows: str) -> str:
        return self._rows(self._cut(self._tokens(rows, self._tokens_count), 0, 1))

    def _patches(self, tokens: str) -> str:
        return self._cut(tokens, 1, _END)

    def _cut(self, tokens: str, start: int, end: int) -> str:
        return self._graph.add("Slice", tokens, *(self._graph.ints(value) for value in (start, end, 1)))
