"""What two parts of the GPU kernel save a search: the recorded CUDA graph, and the kernel for Hopper GPUs.

    PYTHONPATH=src python benchmarks/gpu_parts.py

The k best of one query, by the clock on the wall, with both parts, without either, and without both; the four run
alternately. The last column of each table is how many times faster a part makes the search.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton

from tapr.encoders.base import EncoderCard
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels import gpu_kernels
from tapr.search.kernels.gpu import GpuKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import top_k
from tapr.store.block import Block, Precision

K, QUERIES, ROUNDS = 50, 8, 12
SHAPES = ((49, 512, 57), (64, 768, 72), (49, 512, 8))  # local vectors, dimension, probes
PICTURES = (5_000, 20_000, 123_403)


class NoGraph(GpuKernel):
    """A kernel that launches every step of a search by itself."""

    def search_one(self, *arguments: Any) -> None:
        return None


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


def bank_of(pictures: int, count: int, dim: int, precision: Precision) -> MemoryBank:
    """Random unit vectors; codes are drawn at random too, since time does not depend on them."""
    globals_ = unit(torch.randn(pictures, dim, device="cuda")).half().cpu().numpy()
    card = EncoderCard("made up", "", dim, (1, count), "tokens", 0, "crop")
    if precision == "int8":
        codes = torch.randint(-127, 128, (pictures, count, dim), dtype=torch.int8, device="cuda").cpu().numpy()
        scales = np.full((pictures, count), 0.01, np.float32)
        block = Block(0, globals_, None, codes, scales, np.full((pictures, count), 0.01, np.float32))
        return MemoryBank(card, precision, block, np.arange(pictures))
    local = torch.empty(pictures, count, dim, dtype=torch.float16)
    for start in range(0, pictures, 4096):
        part = local[start : start + 4096]
        part.copy_(unit(torch.randn(part.shape, device="cuda")))
    return MemoryBank(card, precision, Block(0, globals_, local.numpy()), np.arange(pictures))


def queries_of(dim: int, probes: int) -> list[CompiledQuery]:
    rng, found = np.random.default_rng(1), []
    for _ in range(QUERIES):
        vectors = rng.standard_normal((probes + 1, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        terms = (Term("target", "", "global", 0, 1), Term("preserve", "", "local", 0, probes))
        weights = np.full(probes, 0.5 / probes, np.float32)
        found.append(CompiledQuery(vectors[:1], np.array([0.5], np.float32), vectors[1:], weights, terms))
    return found


def medians(calls: dict[str, Callable[[int], object]]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS):
        for name, call in calls.items():
            for number in range(QUERIES):
                start = time.perf_counter()
                call(number)
                if turn > 1:  # the first ones compile, record and upload
                    times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(several) for name, several in times.items()}


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    has_gluon, with_graph, without = gpu_kernels.has_gluon(), GpuKernel(), NoGraph()
    print(f"the kernel for Hopper can be used: {has_gluon}")
    print("| bank | pictures | both, ms | no graph | no Hopper kernel | neither | graph saves | Hopper kernel saves |")
    print("|---|---|---|---|---|---|---|---|")
    for count, dim, probes in SHAPES:
        for precision in ("fp16", "int8"):
            for pictures in PICTURES:
                bank, queries = bank_of(pictures, count, dim, precision), queries_of(dim, probes)  # type: ignore[arg-type]

                def call(kernel: GpuKernel, hopper: bool, bank: Any = bank, queries: Any = queries) -> Any:
                    def searched(number: int) -> None:
                        gpu_kernels.has_gluon = lambda: hopper  # type: ignore[assignment]
                        # a new object, as every request brings: nothing that was packed for the last one is used again
                        query = queries[number]
                        fresh = CompiledQuery(
                            query.global_probes, query.global_weights, query.probes, query.weights, query.terms
                        )
                        top_k(fresh, bank, K, kernel)

                    return searched

                plain = GpuKernel()  # its recording is made without the Hopper kernel
                found = medians(
                    {
                        "both": call(with_graph, has_gluon),
                        "no graph": call(without, has_gluon),
                        "no Hopper": call(plain, False),
                        "neither": call(without, False),
                    }
                )
                name = f"M={count} d={dim}, {probes} probes, {precision}"
                cells = [f"{found[key]:.3f}" for key in found]
                saves = found["no graph"] / found["both"], found["no Hopper"] / found["both"]
                print("|", " | ".join([name, f"{pictures:,}", *cells, *(f"{one:.2f}x" for one in saves)]), "|", flush=True)
                del bank


if __name__ == "__main__":
    main()
