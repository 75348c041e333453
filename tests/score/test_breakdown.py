"""Shares of a score: the same bits in any company of pictures, and whatever number of threads BLAS may use."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import tapr
from tapr.score.breakdown import Breakdown, breakdown_of
from tapr.score.compile import CompiledQuery, Term
from tapr.score.definition import products
from tapr.store.block import Block


def example(pictures: int = 7, places: int = 49, dim: int = 512) -> tuple[CompiledQuery, Block]:
    rng = np.random.default_rng(2)
    terms = (
        Term("target", "t", "global", 0, 1), Term("add", "a", "local", 0, 1),
        Term("continuity", "", "local", 1, 53), Term("remove", "r", "local", 53, 54),
    )  # fmt: skip
    query = CompiledQuery(
        rng.normal(size=(1, dim)).astype(np.float32), np.array([0.4], np.float32),
        rng.normal(size=(54, dim)).astype(np.float32), np.full(54, 0.01, np.float32), terms,
    )  # fmt: skip
    unit = dim**-0.5
    local = (rng.normal(size=(pictures, places, dim)) * unit).astype(np.float16)
    return query, Block(0, (rng.normal(size=(pictures, dim)) * unit).astype(np.float16), local)


def digest() -> str:
    query, block = example()
    breakdown = breakdown_of(query, block)
    return hashlib.sha256(breakdown.values.tobytes() + breakdown.peaks.tobytes()).hexdigest()


def test_the_breakdown_of_a_picture_does_not_depend_on_other_pictures() -> None:
    query, block = example()
    whole = breakdown_of(query, block)
    for some in ([3], [6, 0], [1, 2, 3, 4, 5]):
        few, wanted = breakdown_of(query, block.take(np.array(some))), whole.take(some)
        assert few.values.tobytes() == wanted.values.tobytes()
        assert few.peaks.tobytes() == wanted.peaks.tobytes()
    again = Breakdown.join([breakdown_of(query, block.take(slice(i, i + 1))) for i in range(7)])
    assert again.values.tobytes() == whole.values.tobytes()


def test_only_phrases_with_a_place_have_a_peak() -> None:
    query, block = example()
    peaks = breakdown_of(query, block).peaks
    assert np.isnan(peaks).tolist() == [[True, False, True, False]] * 7
    cosines = np.asarray(block.local_vectors, np.float64) @ query.probes[53].astype(np.float64)
    assert np.allclose(peaks[:, 3], cosines.max(axis=1))


def test_the_number_of_threads_changes_no_bit() -> None:
    """A cluster's actors have another number than the one who asks."""
    source, here = str(Path(tapr.__file__).parents[1]), str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import test_breakdown; print(test_breakdown.digest())"
    for threads in ("1", "3"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads), "PYTHONPATH": source}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == digest()


def test_products_of_no_probe_of_one_place_and_of_large_vectors() -> None:
    rng = np.random.default_rng(3)
    assert products(np.zeros((0, 4)), np.zeros((3, 5, 4))).shape == (3, 0, 5)
    for probes, places, dim in ((3, 1, 8), (11, 64, 1280)):
        left, right = rng.normal(size=(probes, dim)), rng.normal(size=(2, places, dim))
        assert np.allclose(products(left, right), np.einsum("nd,kmd->knm", left, right))
