"""How fast the fused GPU kernels score, beside plain torch, torch.compile and what the machine can do.

    PYTHONPATH=src python benchmarks/match_gpu.py            every table; the last lines are the ratios
    PYTHONPATH=src python benchmarks/match_gpu.py --quick    the large bank alone

Accuracy against float64 is checked before anything is timed. Times are medians, taken with device events; a query's
probes are on the device beforehand for every contestant. The product's own searches are timed by the clock on the wall.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton

from tapr.encoders.base import EncoderCard, Float32
from tapr.gallery.block import Block
from tapr.gallery.codec import rotation
from tapr.match import gpu_kernels, reference, top_k
from tapr.match.base import CODES, VECTORS, Bank, Level, Rows
from tapr.match.gpu import GpuKernel
from tapr.match.gpu_bank import DeviceRows
from tapr.match.gpu_kernels import Tiling
from tapr.match.gpu_pack import groups_of, pack, probes_of
from tapr.match.memory_bank import MemoryBank
from tapr.query import CompiledQuery, Term

FULL = 123_403  # CIRCO's gallery
SAMPLE = 60  # pictures compared with float64
WARM_UP = 0.3  # seconds before each timing
DEVICE = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    copy, matmul = copy_bandwidth(), matmul_rate()
    print(f"limits: copy {copy / 1e12:.2f} TB/s (read + written), fp16 matmul 8192^3 {matmul / 1e12:.0f} TFLOP/s\n")
    check_accuracy()
    ratios = large_bank(matmul) + product_searches()
    if not args.quick:
        by_probes(copy)
        by_shape(copy, matmul)
        by_size()
    print("\n" + "\n".join(ratios))


# -- data


def make_rows(images: int, locals_: int, dim: int) -> DeviceRows:
    """Unit fp16 vectors around 1,000 centres: neighbours exist, as in a real gallery."""
    centres = torch.randn(1000, dim, device=DEVICE)
    local = torch.empty(images, locals_, dim, dtype=torch.float16, device=DEVICE)
    for start in range(0, images, 4096):
        part = local[start : start + 4096]
        picks = torch.randint(0, 1000, part.shape[:2], device=DEVICE)
        part.copy_(unit(centres[picks] + torch.randn(part.shape, device=DEVICE)))
    return DeviceRows(unit(torch.randn(images, dim, device=DEVICE)).half(), local)


def as_int8(rows: DeviceRows) -> DeviceRows:
    """The codec's int8 (gallery/codec.py), computed on the device."""
    codes = torch.empty(rows.local_vectors.shape, dtype=torch.int8, device=DEVICE)
    scales = torch.empty(rows.local_vectors.shape[:2], device=DEVICE)
    for start in range(0, len(rows), 4096):
        exact = rotated(rows.local_vectors[start : start + 4096])
        scale = exact.abs().amax(dim=-1) / 127
        codes[start : start + 4096] = (exact / scale[..., None]).round().clamp(-127, 127).to(torch.int8)
        scales[start : start + 4096] = scale
    return DeviceRows(rows.global_vectors, codes, scales)


def rotated(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.float() @ torch.from_numpy(rotation(vectors.shape[-1]).T).float().to(DEVICE)


def make_queries(rows: DeviceRows, count: int, probes: int) -> list[CompiledQuery]:
    """Probes near local vectors of the bank, as a reference's are, with weights of both signs."""
    queries = []
    for _ in range(count):
        dim = rows.global_vectors.shape[1]
        seen = rows.local_vectors.reshape(-1, dim)[torch.randint(0, len(rows), (probes,), device=DEVICE)]
        near = unit(seen.float() + torch.randn(probes, dim, device=DEVICE) / dim**0.5)
        weights = np.full(probes, 0.5 / max(1, probes), np.float32)
        weights[-max(1, probes // 8) :] *= -1
        target = unit(torch.randn(1, dim, device=DEVICE)).cpu().numpy()
        terms = (Term("target", "", "global", 0, 1), Term("preserve", "", "local", 0, probes))
        queries.append(CompiledQuery(target, np.array([0.5], np.float32), near.cpu().numpy(), weights, terms))
    return queries


def three_components(probes: Float32) -> Float32:
    """All but the three largest components at 0: rounding such probes to fp16 shows, as it does in no real ones."""
    kept = np.where(np.abs(probes) >= np.sort(np.abs(probes), axis=1)[:, -3:-2], probes, 0)
    return np.asarray(kept / np.linalg.norm(kept, axis=1, keepdims=True), np.float32)


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


# -- contestants: each returns a function to be timed


def ours(rows: DeviceRows, queries: list[CompiledQuery], tiling: Tiling | None = None) -> Callable[[], Any]:
    probes = [probes_of(query, rows.level) for query in queries]
    packed = [pack([probes[q] for q in group], rows.global_vectors.shape[1], DEVICE) for group in groups_of(probes)]
    bank = rows.local_vectors, rows.scales, rows.global_vectors
    return lambda: [gpu_kernels.score_rows(*bank, group, tiling) for group in packed]


def plain_torch(rows: DeviceRows, query: CompiledQuery) -> Callable[[], Any]:
    arguments = torch_arguments(rows, query)
    return lambda: straightforward(*arguments)


def compiled_torch(rows: DeviceRows, query: CompiledQuery) -> Callable[[], Any]:
    torch._dynamo.reset()
    arguments, compiled = torch_arguments(rows, query), torch.compile(straightforward)
    return lambda: compiled(*arguments)


def torch_arguments(rows: DeviceRows, query: CompiledQuery) -> tuple[Any, ...]:
    target = torch.from_numpy(query.target * query.target_weight).half().to(DEVICE)
    probes = torch.from_numpy(query.probes).half().to(DEVICE)
    weights = torch.from_numpy(query.weights).to(DEVICE)
    return rows.global_vectors, rows.local_vectors, target, probes, weights, query.tau


def straightforward(v0: Any, local: Any, target: Any, probes: Any, weights: Any, tau: float) -> Any:
    """The formula as one writes it: fp16 products, float32 softmax."""
    s = (local @ probes.T).float()  # (N, M, n)
    p = torch.softmax(s / tau, dim=1)
    return (p * s).sum(dim=1) @ weights + (v0 @ target).float()


# -- measuring


def milliseconds(work: Callable[[], Any], repeat: int = 9, calls: int = 10) -> float:
    """Device time of one call, the median over runs of calls queued back to back: the host is ahead of the device."""
    until = time.perf_counter() + WARM_UP
    while time.perf_counter() < until:  # an idle GPU runs at a fraction of its clock
        work()
        torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return float(statistics.median(times))


def milliseconds_alone(work: Callable[[], Any], repeat: int = 15) -> float:
    """Device time of a call on its own, after a pause: what one query meets, where a queue of them meets the power cap.

    A short wait is queued first, so that the device does not wait for the host within the time taken.
    """
    work()
    times = []
    for _ in range(repeat):
        torch.cuda.synchronize()
        time.sleep(0.02)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(4_000_000)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))


def copy_bandwidth() -> float:
    source = torch.randn(1 << 30, device=DEVICE)
    there = torch.empty_like(source)
    return float(2e3 * source.nbytes) / milliseconds(lambda: there.copy_(source))


def matmul_rate() -> float:
    size = 8192
    a, b = (torch.randn(size, size, device=DEVICE).half() for _ in range(2))
    return 2 * size**3 / milliseconds(lambda: a @ b) * 1e3


def useful_operations(rows: DeviceRows, queries: list[CompiledQuery]) -> int:
    dim = rows.global_vectors.shape[1]
    return 2 * int(dim) * sum(len(rows) * (int(rows.local_vectors.shape[1]) * len(q.probes) + 1) for q in queries)


def exact_error(rows: DeviceRows, queries: list[CompiledQuery]) -> float:
    """The largest difference from match/reference.py over a sample of the pictures."""
    got = GpuKernel().score_rows(queries, rows).double().cpu().numpy()
    picked = torch.linspace(0, len(rows) - 1, min(SAMPLE, len(rows)), device=DEVICE).long()
    v0, local = (tensor[picked].double().cpu().numpy() for tensor in rows.tensors[:2])
    if rows.scales is not None:
        local = local * rows.scales[picked].double().cpu().numpy()[..., None] @ rotation(local.shape[-1])
    at = picked.cpu().numpy()
    return max(float(np.abs(got[i, at] - reference.score(q, v0, local)).max()) for i, q in enumerate(queries))


# -- tables


def head(*cells: str) -> None:
    print("\n| " + " | ".join(cells) + " |\n" + "|---" * len(cells) + "|")


def row(*cells: object) -> None:
    print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in cells) + " |")


def check_accuracy() -> None:
    head("accuracy: bank", "queries x probes", "fp16 error", "int8 error (same codes)")
    for images, locals_, dim, counts in (
        (1001, 49, 512, (1, 57)),
        (1003, 64, 768, (1, 72)),
        (1000, 64, 768, (16, 72)),
        (999, 49, 512, (16, 57)),
        (501, 64, 1280, (3, 72)),
        (77, 9, 32, (5, 13)),
        (300, 196, 512, (1, 8)),
    ):
        rows = make_rows(images, locals_, dim)
        queries = make_queries(rows, *counts)
        errors = exact_error(rows, queries), exact_error(as_int8(rows), queries)
        assert max(errors) < 1e-4, errors
        row(f"{images} x {locals_} x {dim}", f"{counts[0]} x {counts[1]}", *(f"{error:.1e}" for error in errors))


def large_bank(matmul: float) -> list[str]:
    """The bank of the issue's figures, fp16 and int8, one query and sixteen -> the ratios."""
    rows = make_rows(FULL, 64, 768)
    codes = as_int8(rows)
    (query,), many = make_queries(rows, 1, 72), make_queries(rows, 16, 72)
    sparse = replace(query, probes=three_components(query.probes))
    source, there = (torch.randn(1 << 30, device=DEVICE) for _ in range(2))
    works = {
        "copy": lambda: there.copy_(source),
        "ours fp16": ours(rows, [query]),
        "ours fp16, probes in two parts": ours(rows, [sparse]),
        "ours int8": ours(codes, [query]),
        "plain torch": plain_torch(rows, query),
        "torch.compile": compiled_torch(rows, query),
    }
    queued = {name: milliseconds(work) for name, work in works.items()}
    alone = {name: milliseconds_alone(work) for name, work in works.items()}
    a_byte = [measured.pop("copy") / (2 * int(source.nbytes)) for measured in (alone, queued)]
    head(f"{FULL} x (1 + 64) x 768, one query of 72 probes", "alone, ms", "/ limit", "back to back, ms", "/ limit")
    for bank, name in ((rows, "limit: the fp16 bank read once"), (codes, "limit: the int8 bank read once")):
        row(name, bank.bytes * a_byte[0], 1, bank.bytes * a_byte[1], 1)
    for name, ms in queued.items():
        limits = [(codes if name == "ours int8" else rows).bytes * cost for cost in a_byte]
        row(name, alone[name], alone[name] / limits[0], ms, ms / limits[1])

    batch, batch8 = milliseconds(ours(rows, many)), milliseconds(ours(codes, many))
    rate = useful_operations(rows, many) / batch * 1e3
    head("the same bank, 16 queries of 72 probes", "ms", "useful TFLOP/s")
    row("ours fp16", batch, rate / 1e12)
    row("ours int8", batch8, rate / 1e12 * batch / batch8)
    checked = ((rows, [query]), (codes, [query]), (rows, many), (rows, [sparse]))
    print("\nlargest errors, fp16, int8, 16 queries, two parts:", *(f"{exact_error(*work):.1e}" for work in checked))

    def ratio(above: str, below: str) -> str:
        return f"{alone[above] / alone[below]:.2f} alone, {queued[above] / queued[below]:.2f} back to back"

    times = [
        measured["ours fp16"] / (rows.bytes * cost) for measured, cost in zip((alone, queued), a_byte, strict=True)
    ]
    return [
        f"one query, ours fp16 / bandwidth limit: {times[0]:.2f} alone, {times[1]:.2f} back to back (at most 1.15)",
        f"one query, plain torch / ours fp16: {ratio('plain torch', 'ours fp16')} (at least 3.5)",
        f"one query, torch.compile / ours fp16: {ratio('torch.compile', 'ours fp16')}",
        f"one query, ours fp16 / ours int8: {ratio('ours fp16', 'ours int8')} (at least 1.6)",
        f"16 queries, useful rate / matmul rate: {rate / matmul:.2f} (at least 0.70)",
    ]


class TimedKernel(GpuKernel):
    """Adds up the time that a search spends at each level."""

    def __init__(self, *levels: Level, memory: int | None = None) -> None:
        super().__init__(memory=memory)
        self._levels, self.spent = levels, {CODES: 0.0, VECTORS: 0.0}

    def levels(self, bank: Bank) -> tuple[Level, ...]:
        return self._levels or super().levels(bank)

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        begin = time.perf_counter()
        scores = super().score(queries, bank, level, rows)  # on the host: the device is done
        self.spent[level] += (time.perf_counter() - begin) * 1e3
        return scores


def product_searches() -> list[str]:
    """top_k of one bank by its fp16 vectors, and by its codes with exact re-scoring -> the ratio."""
    rows = make_rows(FULL, 64, 768)
    queries, codes = make_queries(rows, 20, 72), as_int8(rows)
    errors = torch.empty(rows.local_vectors.shape[:2])
    for start in range(0, FULL, 4096):
        piece = slice(start, start + 4096)
        read = codes.local_vectors[piece] * codes.scales[piece][..., None]
        lost = (rotated(rows.local_vectors[piece]) - read).norm(dim=-1)
        errors[piece] = (lost * 1.0001 + 1e-5).cpu()  # a bound, though float32 is not exact
    v0, local, coded, scales = (tensor.cpu().numpy() for tensor in (*rows.tensors, *codes.tensors[1:]))
    block = Block(0, v0, local, coded, scales, errors.numpy())
    del rows, codes
    card = EncoderCard("made up", "", 768, (8, 8), "tokens", 0, "crop")
    bank = MemoryBank(card, "both", block, np.arange(FULL))
    kernels = {
        "fp16, as where it fits": TimedKernel(),
        "int8, exact by fp16, both on the device": TimedKernel(CODES, VECTORS),
        "int8 on the device, exact by fp16 on the host, as where fp16 does not fit": TimedKernel(memory=8 << 30),
    }
    head("top 50 by the product, 20 queries one by one (clock on the wall)", "ms", "re-scored", "scan", "re-scoring")
    medians, answers = [], []
    for name, kernel in kernels.items():
        first = clocked(kernel, bank, queries[0])
        found = [clocked(kernel, bank, query) for query in queries]
        times, counts, scans, again = (float(np.median(numbers)) for numbers in zip(*found, strict=True))
        row(f"{name} (the first search, the bank's journey included: {first[0]:.0f} ms)", times, counts,
            f"{scans / times:.0%}", f"{again / times:.0%}")  # fmt: skip
        medians.append(times)
        answers.append([top_k(query, bank, 50, kernel) for query in queries])
    for right, *others in zip(*answers, strict=True):
        for other in others:
            assert (other.positions == right.positions).all(), "int8 with re-scoring gave another answer"
            assert (other.scores == right.scores).all()
    return [
        f"product, one query: fp16 {medians[0]:.1f} ms, int8 with exact re-scoring {medians[1]:.1f} ms, with fp16 on "
        f"the host {medians[2]:.1f} ms; the same answers"
    ]


def clocked(kernel: TimedKernel, bank: Bank, query: CompiledQuery) -> tuple[float, int, float, float]:
    """ms of a search, pictures re-scored, ms of the scan and of the re-scoring."""
    kernel.spent = dict.fromkeys(kernel.spent, 0.0)
    fresh = replace(query)  # as it comes from a user: nothing of it is prepared
    begin = time.perf_counter()
    found = top_k(fresh, bank, 50, kernel)
    return (time.perf_counter() - begin) * 1e3, found.rescored or 0, kernel.spent[CODES], kernel.spent[VECTORS]


def by_probes(copy: float) -> None:
    head("30,000 x 64 x 768, one query, probes", "limit ms", "fp16 ms", "int8 ms", "torch.compile ms", "plain torch ms")
    rows = make_rows(30_000, 64, 768)
    codes = as_int8(rows)
    for probes in (8, 16, 32, 57, 64, 72, 80, 128):
        (query,) = make_queries(rows, 1, probes)
        works = ours(rows, [query]), ours(codes, [query]), compiled_torch(rows, query), plain_torch(rows, query)
        row(probes, rows.bytes / copy * 1e3, *map(milliseconds, works))


def by_shape(copy: float, matmul: float) -> None:
    head("30,000 pictures", "limit ms", "fp16 ms", "int8 ms", "plain torch ms", "16 queries fp16 ms", "share of matmul")
    for locals_, dim, probes in ((49, 512, 57), (49, 768, 57), (64, 512, 72), (64, 768, 72), (64, 1280, 72)):
        rows = make_rows(30_000, locals_, dim)
        (query,), many = make_queries(rows, 1, probes), make_queries(rows, 16, probes)
        works = ours(rows, [query]), ours(as_int8(rows), [query]), plain_torch(rows, query), ours(rows, many)
        times = [milliseconds(work) for work in works]
        share = useful_operations(rows, many) / times[-1] * 1e3 / matmul
        row(f"M {locals_}, d {dim}, {probes} probes", rows.bytes / copy * 1e3, *times, share)


def by_size() -> None:
    head("N (x 64 x 768, 72 probes)", "bank GB", "fp16 ms", "int8 ms", "plain torch ms",
         "beside the bank, ours MB", "plain torch MB")  # fmt: skip
    for images in (1_000, 3_000, 10_000, 30_000, 60_000, FULL):
        rows = make_rows(images, 64, 768)
        (query,) = make_queries(rows, 1, 72)
        works = ours(rows, [query]), ours(as_int8(rows), [query]), plain_torch(rows, query)
        row(images, rows.bytes / 1e9, *map(milliseconds, works), *map(peak_megabytes, works[::2]))


def peak_megabytes(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before) / 1e6


if __name__ == "__main__":
    main()
