"""The table of extractors: a row that nobody has heard of is computed by NumPy, ONNX and torch, with equal results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.encoders.clip_weights import GRID, HEADS, INPUT, SIDE, TowerWeights
from tapr.encoders.extractors import DEFAULT_EXTRACTOR, EXTRACTORS, Extractor, extractor_of
from tapr.encoders.local_tokens import Grid, LastBlock, Linear, Norm, local_vectors, neighbourhood, pooling
from tapr.encoders.onnx_session import session
from tests.encoders.test_local_tokens import NATIVE, some_block, some_hidden
from tests.refusals import refused

MADE_UP = (
    Extractor("made-up/cls", (("key", "query"),), reads_cls=True, whole_block=False, neighbourhood=2.0),
    Extractor("made-up/two", (("query", "key"), ("key", "key")), reads_cls=False, whole_block=True, neighbourhood=1.5),
    Extractor("made-up/same", (("query", "key"),), reads_cls=True, whole_block=False),
)
made_up = pytest.mark.parametrize("row", MADE_UP, ids=lambda row: row.name)


def by_hand(row: Extractor, hidden: NDArray[Any], block: LastBlock, native: tuple[int, int]) -> NDArray[Any]:
    """The row, read literally in float64: (1 + P, D) -> (P, D) before the final norm."""

    def norm(x: NDArray[Any], by: Norm) -> Any:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt(x.var(axis=1, keepdims=True) + by.eps) * by.weight + by.bias

    def linear(x: NDArray[Any], by: Linear) -> Any:
        return x @ by.weight.astype(np.float64) + by.bias

    hidden = hidden.astype(np.float64)
    normed = norm(hidden, block.ln1)
    sides = {"query": linear(normed, block.query), "key": linear(normed, block.key)}
    values = linear(normed, block.value)
    first = 0 if row.reads_cls else 1
    width = hidden.shape[1] // block.heads
    read = np.zeros((len(hidden) - 1, hidden.shape[1]))
    for head in range(block.heads):
        part = slice(head * width, (head + 1) * width)
        for asking, asked in row.attends:
            logits = sides[asking][1:, part] @ sides[asked][first:, part].T / np.sqrt(width)
            if row.neighbourhood:
                for one in range(len(logits)):
                    for two in range(len(logits)):
                        steps = np.subtract(divmod(one, native[1]), divmod(two, native[1]))
                        logits[one, two + 1 - first] += np.exp(-(steps @ steps) / (2 * row.neighbourhood**2))
            weights = np.exp(logits)
            read[:, part] += weights / weights.sum(axis=1, keepdims=True) @ values[first:, part]
    tokens = linear(read, block.out)
    if row.whole_block:
        tokens = tokens + hidden[1:]
        wide = linear(norm(tokens, block.ln2), block.fc1)
        tokens = tokens + linear(wide / (1 + np.exp(-1.702 * wide)), block.fc2)
    return np.asarray(norm(tokens, block.ln_post))


@made_up
def test_numpy_takes_up_a_new_row(row: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRACTORS, row.name, row)
    block, hidden = some_block(), some_hidden()
    found = local_vectors(row.name, hidden, block, NATIVE, (2, 3))
    wanted = unit(pooling(NATIVE, (2, 3)) @ by_hand(row, hidden, block, NATIVE) @ block.projection)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("row", [*EXTRACTORS.values(), *MADE_UP], ids=lambda row: row.name)
def test_the_graph_of_the_image_tower_computes_what_the_definition_says(
    row: Extractor, image_tower_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXTRACTORS, row.name, row)
    build = pytest.importorskip("tools.build_image_tower", reason="the graph is built with the onnx package")

    class WatchedTower(build.TowerGraph):  # type: ignore[misc, name-defined]
        """The tower that remembers the input of its last block."""

        hidden = ""

        def _last(self, states: str, extractor: Extractor, grid: Grid) -> tuple[str, str]:
            self.hidden = states
            return super()._last(states, extractor, grid)  # type: ignore[no-any-return]

    weights = TowerWeights.read(image_tower_file)
    graph = build.Graph(build.layer_weights(weights))
    tower = WatchedTower(graph, build.FloatProducts(graph))
    _, local = tower.vectors(row.name, GRID)
    names = [graph.output(tower.hidden), graph.output(local)]
    pixels = np.random.default_rng(4).integers(0, 256, (1, 224, 224, 3), np.uint8)
    hidden, found = session(graph.model(), finished=True).run(names, {INPUT: pixels})
    wanted = local_vectors(row.name, hidden, last_block(weights), (SIDE, SIDE), GRID)
    np.testing.assert_allclose(unit(found[0]), wanted, atol=2e-5)


def last_block(weights: TowerWeights) -> LastBlock:
    block = weights.blocks[-1]
    names = ("query", "key", "value", "out", "fc1", "fc2")
    linear = {name: Linear(getattr(block, name).weight, getattr(block, name).bias) for name in names}
    return LastBlock(
        ln1=block.ln1,
        ln2=block.ln2,
        ln_post=weights.ln_post,
        projection=weights.projection,
        heads=HEADS,
        activation="quick_gelu",
        **linear,
    )


@made_up
def test_torch_takes_up_a_new_row(row: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("huggingface_hub", reason="open_clip is not installed")
    from tapr.encoders.torch_tokens import TorchTokens
    from tests.encoders.test_torch_tokens import last_input, numpy_block, some_pixels, some_tower

    monkeypatch.setitem(EXTRACTORS, row.name, row)
    tower, pixels = some_tower(), some_pixels()
    _, found = TorchTokens(tower, row.name)(pixels)
    block = numpy_block(tower)
    wanted = [local_vectors(row.name, x.numpy(), block, (10, 10), (5, 5)) for x in last_input(tower, pixels)]
    np.testing.assert_allclose(found.numpy(), np.stack(wanted), atol=2e-6)


def test_the_made_up_rows_are_not_one_of_ours() -> None:
    known = {(row.attends, row.reads_cls, row.whole_block, row.neighbourhood) for row in EXTRACTORS.values()}
    assert all((row.attends, row.reads_cls, row.whole_block, row.neighbourhood) not in known for row in MADE_UP)
    assert len(known) == len(EXTRACTORS)


def test_only_the_literal_reading_is_the_block_as_trained() -> None:
    assert [name for name, row in EXTRACTORS.items() if row.as_trained] == ["tokens"]
    assert all(name == row.name for name, row in EXTRACTORS.items())


def test_the_cls_token_has_no_neighbours() -> None:
    near = neighbourhood((2, 3), 2.0, reads_cls=True)
    assert near.shape == (6, 7)
    assert not near[:, 0].any()
    np.testing.assert_array_equal(near[:, 1:], neighbourhood((2, 3), 2.0))


def test_an_unknown_extractor_is_refused_everywhere() -> None:
    assert extractor_of(DEFAULT_EXTRACTOR).name == DEFAULT_EXTRACTOR
    choices = "tokens, maskclip, value, sclip, clearclip, naclip"
    with refused("bad_option", "'patches'", choices, option="extractor"):
        extractor_of("patches")
    with refused("bad_option", "'patches'", choices, option="extractor"):
        ClipOnnxEncoder(extractor="patches")


def test_torch_refuses_an_unknown_extractor() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("huggingface_hub", reason="open_clip is not installed")
    from tapr.encoders.torch_tokens import TorchTokens
    from tests.encoders.test_torch_tokens import some_tower

    with refused("bad_option", "'patches'", option="extractor"):
        TorchTokens(some_tower(), "patches")
