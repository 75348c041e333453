"""The first stage on a GPU: how long bounds, candidates and a whole search take there.

    python -m benchmarks.first_stage_gpu                      # 10 million modelled pictures, about 5 minutes
    TRITON_INTERPRET=1 python -m benchmarks.first_stage_gpu --pictures 300 --bases 40 --places 12 --dim 64 --repeats 1
    python -m benchmarks.first_stage_gpu --tiles              # also other tile sizes of the bound's kernel

The records are made on the card in chunks (first_stage_gpu_model.py). Vectors are kept nowhere: those of the pictures
that bounds leave are made again by the processor, which is not counted, and scored by it, which is. A real gallery
would read them from memory or disk. Before anything is timed, the first pictures are compared with NumPy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import triton
from benchmarks.first_stage_gpu_model import CHUNK, Maker, RecipeBank, as_numpy
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery, Term
from tapr.score.definition import score as defined
from tapr.search.kernels.base import VECTORS, Bank, BoundingKernel, Kernel, Level, Rows
from tapr.search.kernels.gpu import GpuKernel, compiled_kernel
from tapr.search.kernels.gpu_bank import DeviceRows
from tapr.search.kernels.gpu_topk import largest
from tapr.search.kernels.host import HostKernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.top_scores import best_of
from tapr.search.match import top_k_by_summaries
from tapr.search.memory_bank import MemoryBank
from tapr.search.prefilter import gpu as on_gpu
from tapr.search.prefilter.bound import allowance
from tapr.search.prefilter.candidates import PooledQuery, resemblance
from tapr.search.prefilter.device_bank import DeviceBank
from tapr.search.prefilter.gpu import DeviceProbes, limits_on, raised, resemblance_on
from tapr.search.prefilter.gpu_records import BankRecords
from tapr.search.prefilter.limit import limit_of, limits_by_records
from tapr.types import Float32

K = 10
SAMPLE = 96  # pictures compared with NumPy
NUMPY = NumpyKernel()
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MakingReader(HostKernel):
    """The processor's kernel, for vectors that are made first. Making them is timed apart."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self.name, self.making = kernel, kernel.name, 0.0

    @property
    def bounder(self) -> BoundingKernel:
        return self._kernel.bounder

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        return self._kernel.levels(bank, probes)

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return self._kernel.rounding_loss(query, level)

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        rows, found = bank.rows if rows is None else rows, []
        for start in range(0, len(rows), 512):
            begun = time.perf_counter()
            block = bank.gather(rows[start : start + 512])
            made = MemoryBank(bank.card, bank.precision, block, np.arange(len(block)))
            self.making += time.perf_counter() - begun
            found.append(self._kernel.score(queries, made, level))
        return np.concatenate(found, axis=1) if found else np.zeros((len(queries), 0), np.float32)


class HeldKernel(GpuKernel):
    """A GPU's kernel whose memory holds the records already."""

    held: DeviceBank | None = None

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        return self.held


def make_queries(bank: RecipeBank, count: int) -> dict[str, list[CompiledQuery]]:
    """`default`: the places of a base picture, and five words; `words`: these alone. Words are near its places."""
    rng, found = np.random.default_rng(1), {"default": list[CompiledQuery](), "words": list[CompiledQuery]()}
    places, dim = bank.card.locals_count, bank.card.dim
    for number in rng.integers(0, len(bank.local_bases), count):
        reference = bank.local_bases[number].astype(np.float32)
        words = unit(reference[rng.integers(0, places, 5)] + 1.5 * rng.standard_normal((5, dim)) / dim**0.5)
        target = unit(bank.global_bases[number] + 0.5 * unit(rng.standard_normal(dim)))[None]
        for kind, probes in (("default", np.concatenate([reference, words])), ("words", words)):
            weights = np.full(len(probes), 0.3 / max(1, len(probes) - 5), np.float32)
            weights[-5:] = (0.1, 0.08, 0.06, 0.04, -0.05)
            terms = (Term("target", "", "global", 0, 1), Term("preserve", "", "local", 0, len(probes)))
            found[kind].append(CompiledQuery(target, np.array([0.4], np.float32), probes, weights, terms))
    return found


def made(maker: Maker, pictures: int, seconds: float) -> tuple[BankRecords, int]:
    """The records of as many pictures as there is time for."""
    room, begun, done = maker.room(pictures), time.perf_counter(), 0
    while done < pictures and time.perf_counter() - begun < seconds:
        maker.fill(room, done, min(pictures, done + CHUNK))
        done = min(pictures, done + CHUNK)
        finish()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()  # what the last chunk was made in
    print(f"records of {done:,} pictures made in {time.perf_counter() - begun:.0f} s", flush=True)
    return room, done


def cut(records: BankRecords, count: int) -> BankRecords:
    """The first so many: views."""

    def of(part: Any) -> Any:
        return replace(part, fields={name: tensor[:count] for name, tensor in part.fields.items()})

    first, second = records.outlined, records.summarised
    assert second is not None
    return BankRecords(
        replace(first, pooled=first.pooled[:count], outlines=of(first.outlines)),
        replace(second, global_vectors=second.global_vectors[:count], summaries=of(second.summaries)),
    )


def check(bank: RecipeBank, records: BankRecords, asked: Sequence[CompiledQuery], reader: Kernel) -> None:
    """Bounds of the first pictures, beside limits_by_records and the exact scores; and a search among them."""
    sample, count = min(SAMPLE, bank.row_count), bank.card.locals_count
    rows = np.arange(sample)
    block = as_numpy(records, bank, rows)
    held = MemoryBank(bank.card, "fp16", block, rows, subspaces=bank.subspaces)
    chosen, slack = torch.from_numpy(rows).to(DEVICE), []
    for query in asked:
        limit, scores = limit_of(query, bank.subspaces, count), defined(query, block.global_vectors, block.decoded())
        there, targets = resemblance_on(PooledQuery.of(query), records, chosen), resemblance([query], held, None, NUMPY)
        assert (there.targets.cpu().numpy() == targets.targets[0]).all(), "not NumPy's products"
        for closer in (False, True):
            probes = DeviceProbes.of(limit, closer, DEVICE)
            found = limits_on(probes, records, chosen, None if closer else there.targets)
            allowed = allowance(limit, reader, VECTORS, count, probes.lost)
            right = limits_by_records([limit], held, None, targets.targets, closer)[0]
            assert (np.abs(found.cpu().numpy() - right) <= allowed).all(), "not the definition's bounds"
            assert (raised(found, allowed).cpu().numpy() >= scores).all(), "a score is above its bound"
            if closer:
                slack.append(float((found.cpu().numpy() - scores).mean()))
    print(f"checked: bounds of {sample} pictures, {np.mean(slack):.3f} above the score with both records", flush=True)


def median_ms(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        finish()
        begun = time.perf_counter()
        work()
        finish()
        times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times[1:] or times)


def finish() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def bandwidth() -> float:
    """Bytes per second, read and written by a copy."""
    size = 4 << 30 if DEVICE.type == "cuda" else 16 << 20
    source = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
    there = torch.empty_like(source)
    return 2 * size / (median_ms(lambda: there.copy_(source), 5) / 1e3)


def passes(bank: RecipeBank, records: BankRecords, query: CompiledQuery, rate: float, repeats: int) -> None:
    """Each pass over all pictures, beside the time that its bytes need."""
    limit, count, dim = limit_of(query, bank.subspaces, bank.card.locals_count), bank.row_count, bank.card.dim
    pooled, outlined = PooledQuery.of(query), records.outlined
    assert records.summarised is not None
    found = resemblance_on(pooled, records, None)
    outlines = count * dim + outlined.outlines.bytes  # of the pooled bytes the half that is the mean
    rows: list[tuple[str, int, Callable[[], Any]]] = [
        (
            "candidates",
            count * 2 * dim,
            lambda: largest(resemblance_on(pooled, records, None).promise[None], min(128, count)),
        )
    ]
    for closer, size in ((False, outlines), (True, outlines + records.summarised.bytes)):
        probes = DeviceProbes.of(limit, closer, DEVICE)
        work = partial(limits_on, probes, records, None, None if closer else found.targets)
        rows.append(("bounds, both records" if closer else "bounds, outlines", size, work))
    for name, size, one in rows:
        took, least = median_ms(one, repeats), 1e3 * size / rate
        print(f"| {name} | {len(limit.used)} | {took:.2f} | {least:.2f} | {took / least:.2f} |", flush=True)


def scan_ms(maker: Maker, kernel: GpuKernel, query: CompiledQuery, pictures: int, repeats: int) -> float:
    """A full scan of fp16 vectors on the card: of so many pictures."""
    parts = [maker.vectors(np.arange(start, min(pictures, start + CHUNK))) for start in range(0, pictures, CHUNK)]
    rows = DeviceRows(*(torch.cat(arrays) for arrays in zip(*parts, strict=True)))
    del parts
    return median_ms(lambda: kernel.score_rows([query], rows, VECTORS), repeats)


def searches(
    kernel: HeldKernel, bank: RecipeBank, reader: MakingReader, asked: Sequence[CompiledQuery], most: int
) -> list[float]:
    """Milliseconds of each whole search without the making of vectors; one search is checked."""
    times, read, left = list[float](), [], []
    for number, query in enumerate(asked):
        reader.making, begun = 0.0, time.perf_counter()
        (found,) = top_k_by_summaries([query], bank, K, kernel, most)
        times.append(1e3 * (time.perf_counter() - begun - reader.making))
        assert found.proof is not None
        read.append(found.proof.read)
        left.append(found.proof.open)
        if not number:
            some = np.sort(np.unique(np.concatenate([found.positions, np.arange(min(2000, bank.row_count))])))
            scores = reader.score([query], bank, VECTORS, some)[0]
            best = some[best_of(scores, K)]
            assert not found.proof.proven or best.tolist() == found.positions.tolist(), "a better picture was left out"
    proven = sum(not one for one in left)
    print(f"  read {statistics.median(read):,}, left open {statistics.median(left):,}, {proven} of {len(asked)} proven")
    return times


def tiles(bank: RecipeBank, records: BankRecords, query: CompiledQuery, repeats: int) -> None:
    limit, kept = limit_of(query, bank.subspaces, bank.card.locals_count), (on_gpu._TILE, on_gpu._WARPS)
    found = resemblance_on(PooledQuery.of(query), records, None)
    for tile in (1 << 12, 1 << 13, 1 << 14, 1 << 15):
        for warps in (4, 8):
            on_gpu._TILE, on_gpu._WARPS = tile, warps
            took = []
            for closer in (False, True):
                probes = DeviceProbes.of(limit, closer, DEVICE)
                took.append(
                    median_ms(partial(limits_on, probes, records, None, None if closer else found.targets), repeats)
                )
            print(f"tile {tile}, {warps} warps: outlines {took[0]:.2f} ms, both {took[1]:.2f} ms", flush=True)
    on_gpu._TILE, on_gpu._WARPS = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=10_000_000)
    parser.add_argument("--bases", type=int, default=20_000)
    parser.add_argument("--places", type=int, default=49)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--most-read", type=int, default=20_000, help="pictures that a search may read")
    parser.add_argument("--scan", type=int, default=200_000, help="pictures of the full scan that is scaled")
    parser.add_argument("--make-seconds", type=float, default=270, help="then no further records are made")
    parser.add_argument("--tiles", action="store_true")
    options = parser.parse_args()
    if options.places < 6:
        parser.error("give at least 6 places: pictures with fewer have hardly any summaries to measure")
    name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "NO GPU: the interpreter; times mean nothing"
    print(f"{name}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    kernel = HeldKernel(DEVICE.type, 1 << 30)
    reader = MakingReader(compiled_kernel() or NumpyKernel())
    bank = RecipeBank(options.bases, options.places, options.dim, options.pictures)
    maker = Maker(bank, DEVICE)
    records, bank.row_count = made(maker, options.pictures, options.make_seconds)
    records = cut(records, bank.row_count)
    queries = make_queries(bank, options.queries)
    check(bank, records, [several[0] for several in queries.values()], reader)
    rate, scanned = bandwidth(), min(options.scan, bank.row_count)
    sizes = (records.outlined.bytes, records.outlined.bytes + (records.summarised.bytes if records.summarised else 0))
    each = [f"{size / bank.row_count:,.0f}" for size in sizes]
    print(f"copy {rate / 1e12:.2f} TB/s; bytes per picture on the card: {each[0]}, with summaries {each[1]}")
    print(f"\n| pass over {bank.row_count:,} pictures | probes | ms | its bytes / bandwidth, ms | ratio |")
    print("|---|---|---|---|---|")
    for several in queries.values():
        passes(bank, records, several[0], rate, options.repeats)
    kernel.held = device = DeviceBank(kernel, records, reader)
    for kind, several in queries.items():
        print(f"\nsearches, {kind}, {device.name}; at most {options.most_read:,} read:")
        times = searches(kernel, bank, reader, several, options.most_read)
        scan = scan_ms(maker, kernel, several[0], scanned, options.repeats)
        whole = scan * bank.row_count / scanned
        print(f"  median {statistics.median(times):.1f} ms, without making vectors; longest {max(times):.1f}")
        print(f"  full scan of {scanned:,} on the card {scan:.2f} ms; scaled to all, which do not fit: {whole:.1f} ms")
    if options.tiles:
        tiles(bank, records, queries["default"][0], options.repeats)


if __name__ == "__main__":
    main()
