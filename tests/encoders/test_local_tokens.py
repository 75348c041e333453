"""The extractors against a slow, literal float64 reading of their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.local_tokens import (
    DEFAULT_EXTRACTOR,
    EXTRACTORS,
    Grid,
    LastBlock,
    Linear,
    Norm,
    local_tokens,
    local_vectors,
    neighbourhood,
    pooled_grid,
    pooling,
)
from tests.refusals import refused

WIDTH, DIM, HEADS = 24, 10, 3
NATIVE: Grid = (4, 6)


def some_block(activation: str = "quick_gelu") -> LastBlock:
    rng = np.random.default_rng(7)

    def array(*shape: int) -> Any:
        return (0.4 * rng.standard_normal(shape)).astype(np.float32)

    def norm() -> Norm:
        return Norm(1 + array(WIDTH), array(WIDTH))

    def linear(given: int, out: int) -> Linear:
        return Linear(array(given, out), array(out))

    query, key, value, out = (linear(WIDTH, WIDTH) for _ in range(4))
    return LastBlock(
        norm(), query, key, value, out, norm(), linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH),
        norm(), array(WIDTH, DIM), HEADS, activation,
    )  # fmt: skip


def some_hidden(seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal((1 + NATIVE[0] * NATIVE[1], WIDTH)).astype(np.float32)


def by_the_definition(extractor: str, hidden: NDArray[Any], block: LastBlock) -> NDArray[Any]:
    """Token by token and head by head, in float64."""

    def norm(x: Any, by: Norm) -> Any:
        return (x - x.mean()) / math.sqrt(x.var() + by.eps) * by.weight + by.bias

    def act(x: Any) -> Any:
        if block.activation == "quick_gelu":
            return x / (1 + np.exp(-1.702 * x))
        return np.array([y * (1 + math.erf(y / math.sqrt(2))) / 2 for y in x])

    def place(token: int) -> tuple[int, int]:
        return divmod(token - 1, NATIVE[1])

    def softmax(i: int, a: Any, b: Any) -> Any:
        logits = np.array([a[i] @ b[j] / math.sqrt(WIDTH // HEADS) for j in keys])
        if extractor == "naclip":
            logits += [math.exp(-(math.dist(place(i), place(j)) ** 2) / 50) for j in keys]
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    hidden = hidden.astype(np.float64)
    normed = [norm(x, block.ln1) for x in hidden]
    q, k, v = ([x @ by.weight + by.bias for x in normed] for by in (block.query, block.key, block.value))
    keys = range(len(hidden)) if extractor in ("tokens", "sclip") else range(1, len(hidden))
    tokens = []
    for i in range(1, len(hidden)):
        read = np.zeros(WIDTH)
        for head in range(HEADS):
            part = slice(head * WIDTH // HEADS, (head + 1) * WIDTH // HEADS)

            qq, kk, qk = (softmax(i, [x[part] for x in a], [x[part] for x in b]) for a, b in ((q, q), (k, k), (q, k)))
            itself = np.array([float(j == i) for j in keys])
            weights = {
                "tokens": qk, "maskclip": itself, "value": itself, "sclip": qq + kk, "clearclip": qq, "naclip": kk
            }[extractor]  # fmt: skip
            read[part] = sum(weight * v[j][part] for weight, j in zip(weights, keys, strict=True))
        x = read @ block.out.weight + block.out.bias
        if extractor in ("tokens", "maskclip", "sclip"):
            x = hidden[i] + x
            x = x + act(norm(x, block.ln2) @ block.fc1.weight + block.fc1.bias) @ block.fc2.weight + block.fc2.bias
        tokens.append(norm(x, block.ln_post) @ block.projection)
    return np.array(tokens)


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_extractors_follow_their_definition(extractor: str, activation: str) -> None:
    block, hidden = some_block(activation), some_hidden()
    tokens = local_tokens(extractor, hidden, block, NATIVE)
    np.testing.assert_allclose(tokens, by_the_definition(extractor, hidden, block), atol=1e-5)
    assert tokens.dtype == np.float32


def test_extractors_differ() -> None:
    block, hidden = some_block(), some_hidden()
    tokens = [local_tokens(extractor, hidden, block, NATIVE) for extractor in EXTRACTORS]
    gaps = [np.abs(a - b).max() for n, a in enumerate(tokens) for b in tokens[:n]]
    assert min(gaps) > 0.01


def test_only_tokens_and_sclip_read_the_cls_token() -> None:
    block, hidden = some_block(), some_hidden()
    other = hidden.copy()
    other[0] = 5 - other[0]
    moved = {
        extractor
        for extractor in EXTRACTORS
        if not np.array_equal(
            local_tokens(extractor, hidden, block, NATIVE), local_tokens(extractor, other, block, NATIVE)
        )
    }
    assert moved == {"tokens", "sclip"}


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_pooling_before_the_projection_is_pooling_after_it(extractor: str) -> None:
    block, hidden = some_block(), some_hidden()
    vectors = local_vectors(extractor, hidden, block, NATIVE, (2, 3))
    cells = local_tokens(extractor, hidden, block, NATIVE).reshape(2, 2, 3, 2, DIM).mean(axis=(1, 3)).reshape(6, DIM)
    np.testing.assert_allclose(vectors, cells / np.linalg.norm(cells, axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_input_stays_as_it_was(extractor: str) -> None:
    hidden = some_hidden()
    local_vectors(extractor, hidden, some_block(), NATIVE, NATIVE)
    np.testing.assert_array_equal(hidden, some_hidden())


def test_large_activations_neither_overflow_nor_warn() -> None:
    for activation in ("quick_gelu", "gelu"):
        block = some_block(activation)
        wide = Linear(block.fc1.weight * 1e3, block.fc1.bias)
        block = LastBlock(**{**block.__dict__, "fc1": wide})
        assert np.isfinite(local_tokens("tokens", some_hidden() * 100, block, NATIVE)).all()


@pytest.mark.parametrize(
    ("native", "grid"),
    [
        ((7, 7), (7, 7)),  # ViT-B/32 at 224 pixels: M = 49
        ((14, 14), (7, 7)),  # ViT-B/16 at 224
        ((16, 16), (8, 8)),  # ViT-L/14 and ViT-bigG/14 at 224: M = 64
        ((24, 24), (8, 8)),  # ViT-L/14 at 336
        ((15, 20), (5, 5)),
        ((27, 37), (8, 8)),  # nothing suitable divides these
        ((2, 3), (2, 3)),
    ],
)
def test_grids(native: Grid, grid: Grid) -> None:
    assert pooled_grid(native) == grid


def test_pooling_averages_equal_cells_and_shares_patches_where_it_must() -> None:
    picture = np.arange(16 * 16, dtype=np.float32)
    cells = pooling((16, 16), (8, 8)) @ picture
    np.testing.assert_allclose(cells.reshape(8, 8), picture.reshape(8, 2, 8, 2).mean(axis=(1, 3)))
    np.testing.assert_allclose(pooling((5, 1), (2, 1)), [[1 / 3, 1 / 3, 1 / 3, 0, 0], [0, 0, 1 / 3, 1 / 3, 1 / 3]])


def test_the_neighbourhood_falls_off_with_distance_in_both_directions() -> None:
    near = neighbourhood((3, 4))
    assert near[0, 0] == 1
    assert near[0, 1] == near[0, 4] == pytest.approx(math.exp(-1 / 50))
    assert near[0, 11] == pytest.approx(math.exp(-(2**2 + 3**2) / 50))


def test_unknown_names_are_refused() -> None:
    assert DEFAULT_EXTRACTOR in EXTRACTORS
    with refused("bad_option", "'dino'", "tokens, maskclip", option="extractor"):
        local_tokens("dino", some_hidden(), some_block(), NATIVE)
    with refused("bad_option", "'relu'"):
        some_block("relu")
