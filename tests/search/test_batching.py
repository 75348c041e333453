"""Queries that wait together are scored together, and each gets its own answer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.query.spec import EditSpec
from tapr.score.compile import CompiledQuery, compile_query
from tapr.search.batching import MAX_BATCH, Batcher
from tapr.search.kernels.base import Bank, Level, Rows
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.topk import top_k
from tapr.types import Float32
from tests.pictures import write_flags


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    folder = tmp_path_factory.mktemp("batching")
    shades = ("red", "green", "blue", "yellow", "black")
    write_flags(folder / "pictures", list(itertools.permutations(shades, 2)))
    return Gallery.build(folder / "bank", folder / "pictures", FakeEncoder())


class WaitingKernel(NumpyKernel):
    """Holds every sweep until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.began = threading.Event(), threading.Event()

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        self.began.set()
        assert self.go.wait(20)
        return super().score(queries, bank, level, rows)


class BrokenKernel(NumpyKernel):
    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        raise ArithmeticError("no")


def query(gallery: Gallery, *atoms: str) -> CompiledQuery:
    return compile_query(EditSpec("a picture", atoms), None, gallery.encoder)


def test_queries_that_wait_during_a_sweep_share_the_next(gallery: Gallery) -> None:
    kernel, sizes = WaitingKernel(), list[int]()
    batcher = Batcher(kernel, sizes.append)
    narrowed = gallery.select("id like 'red-%'")
    asked = [
        (query(gallery, "red"), gallery, 3),
        (query(gallery, "blue"), gallery, 5),
        (query(gallery, "green", "black"), gallery, 1),
        (query(gallery, "yellow"), narrowed, 2),
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        first = pool.submit(batcher.top_k, *asked[0])
        assert kernel.began.wait(20)
        rest = [pool.submit(batcher.top_k, *one) for one in asked[1:]]
        while batcher._micro_batcher._jobs.qsize() < len(rest):
            pass
        kernel.go.set()
        answers = [first.result(), *(answer.result() for answer in rest)]
    batcher.close()
    assert sizes == [1, 2, 1], "one sweep for those on the same gallery"
    for (compiled, searched, k), answer in zip(asked, answers, strict=True):
        alone = top_k(compiled, searched, k, NumpyKernel())
        assert answer.positions.tolist() == alone.positions.tolist()
        np.testing.assert_allclose(answer.scores, alone.scores, atol=1e-6)


def test_many_more_than_one_sweep_takes_are_all_answered(gallery: Gallery) -> None:
    batcher = Batcher(NumpyKernel())
    wanted = [query(gallery, colour) for colour in ("red", "green", "blue")]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: batcher.top_k(wanted[i % 3], gallery, 2), range(3 * MAX_BATCH)))
    batcher.close()
    for i, answer in enumerate(answers):
        assert answer.positions.tolist() == top_k(wanted[i % 3], gallery, 2, NumpyKernel()).positions.tolist()


def test_a_failure_reaches_those_who_asked_and_no_one_else(gallery: Gallery) -> None:
    batcher = Batcher(BrokenKernel())
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no"):
            batcher.top_k(query(gallery, "red"), gallery, 1)
    batcher.close()
