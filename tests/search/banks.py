"""Banks and queries that the tests of matching share."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.types import Float32


def every_kernel() -> list[Kernel]:
    kernels: list[Kernel] = [NumpyKernel(threads=2)]
    with suppress(ImportError):
        from tapr.search.kernels.cpu import CpuKernel, isas

        kernels += [CpuKernel(name, threads=2) for name in isas()]
    with suppress(ImportError):
        import torch

        from tapr.search.kernels.gpu import TorchKernel

        torch.set_num_threads(1)  # where the machine is busy, more of them wait for each other

        kernels.append(TorchKernel("cpu"))
    return kernels


KERNELS = every_kernel()


def make_query(
    rng: np.random.Generator, probes: int, dim: int, tau: float = 0.02, near: Float32 | None = None
) -> CompiledQuery:
    """A query of random directions, or of directions near some vectors (.., d); signs mixed, magnitudes sum to 1."""
    vectors = rng.standard_normal((probes, dim))
    if near is not None and probes:
        vectors = 0.02 * vectors + near.reshape(-1, dim)[rng.integers(0, near.size // dim, probes)]
    weights = rng.uniform(-0.3, 1, probes)
    weights = 0.6 * weights / max(np.abs(weights).sum(), 1e-9)
    terms = (Term("target", "target", "global", 0, 1), Term("preserve", "probes", "local", 0, probes))
    global_probes = unit(rng.standard_normal((1, dim)))
    return CompiledQuery(
        global_probes,
        np.array([0.4], np.float32),
        unit(vectors).reshape(probes, dim),
        weights.astype(np.float32),
        terms,
        tau,
    )


def random_bank(rng: np.random.Generator, rows: int, count: int, dim: int) -> tuple[Float32, Float32]:
    return unit(rng.standard_normal((rows, dim))), unit(rng.standard_normal((rows, count, dim)))


def clustered_bank(rng: np.random.Generator, rows: int, count: int, dim: int) -> tuple[Float32, Float32]:
    """Pictures near a few centres: scores lie close together, as in a gallery of look-alikes."""
    centres = rng.standard_normal((4, dim))
    which: NDArray[np.int64] = rng.integers(0, 4, (rows, count))
    return (
        unit(centres[which[:, 0]] + 0.05 * rng.standard_normal((rows, dim))),
        unit(centres[which] + 0.05 * rng.standard_normal((rows, count, dim))),
    )


def spiked_bank(rng: np.random.Generator, rows: int, count: int, dim: int) -> tuple[Float32, Float32]:
    """One component holds a third of every vector's square, as CLIP's do."""
    globals_, locals_ = random_bank(rng, rows, count, dim)
    globals_[..., dim // 3] += 0.7
    locals_[..., dim // 3] += 0.7
    return unit(globals_), unit(locals_)


def picture(rng: np.random.Generator, count: int, dim: int, spread: float = 0.3) -> Float32:
    """(count, d): local vectors that are much alike, as one picture's are."""
    few = rng.standard_normal((4, dim))
    mixed = few[0] + 0.7 * rng.standard_normal((count, 3)) @ few[1:] / 3
    return np.asarray(unit(mixed + spread * rng.standard_normal((count, dim)) * 0.1), np.float32)


def like_this(
    rng: np.random.Generator, dim: int, words: int = 3, places: tuple[int, ...] = (49,), tau: float = 0.02
) -> CompiledQuery:
    """Phrases, wanted and unwanted, and the places of some pictures."""
    blocks = [unit(rng.standard_normal((words, dim))), *(picture(rng, count, dim) for count in places)]
    weights = [0.3 * rng.uniform(-1, 1, words) / max(words, 1), *(np.full(count, 0.4 / count) for count in places)]
    terms = [Term("target", "target", "global", 0, 1)]
    terms += [Term("add", f"word {i}", "local", i, i + 1) for i in range(words)]
    ends = np.cumsum([words, *places])
    terms += [Term("continuity", "its parts", "local", int(a), int(b)) for a, b in pairwise(ends)]
    return CompiledQuery(
        unit(rng.standard_normal((1, dim))),
        np.array([0.3], np.float32),
        np.concatenate(blocks).astype(np.float32),
        np.concatenate(weights).astype(np.float32),
        tuple(terms),
        tau,
    )


def near_bank(rng: np.random.Generator, rows: int, count: int, dim: int, query: CompiledQuery) -> MemoryBank:
    """Some pictures like the query's own, in part or in whole, so that bounds are nearly reached."""
    global_probes, locals_ = random_bank(rng, rows, count, dim)
    own = query.probes[rng.integers(0, len(query.probes), (rows, count))]
    mix = rng.uniform(0, 1, (rows, 1, 1)) ** 2
    mix[::7] = 0
    return MemoryBank.of(global_probes, unit((1 - mix) * own + mix * locals_), "both")
