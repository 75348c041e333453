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
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton

from tapr.encoders.base import EncoderCard
from tapr.score import definition as reference
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels import gpu_kernels
from tapr.search.kernels.base import COARSE_CODES, Bank, Level
from tapr.search.kernels.gpu import GpuKernel
from tapr.search.kernels.gpu_bank import DeviceRows
from tapr.search.kernels.gpu_kernels import Tiling
from tapr.search.kernels.gpu_packer import QueryPacker
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import TopK, top_k_many
from tapr.store.block import Block
from tapr.store.codec import rotation
from tapr.types import Float32

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
    """The codec's int8 (store/codec.py), computed on the device."""
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


def ours(
    rows: DeviceRows, queries: list[CompiledQuery], tiling: Tiling | None = None, level: Level | None = None
) -> Callable[[], Any]:
    packer = QueryPacker(DEVICE)
    while True:
        packed = packer.pack_together(queries, level or rows.level, rows.global_vectors.shape[1])
        if not packer.read_errors():
            break
    bank = rows.local_vectors, rows.scales, rows.global_vectors
    return lambda: [gpu_kernels.score_rows(*bank, group, tiling) for _, group in packed]


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


def int8_matmul_rate() -> float:
    """Of int8 products of this bank's shape, by torch's own routine: the limit of int8 with probes of one digit."""
    a = torch.randint(-127, 128, (131_072, 768), dtype=torch.int8, device=DEVICE)
    b = torch.randint(-127, 128, (1152, 768), dtype=torch.int8, device=DEVICE).T
    return 2 * 131_072 * 768 * 1152 / milliseconds(lambda: torch._int_mm(a, b)) * 1e3


def useful_operations(rows: DeviceRows, queries: list[CompiledQuery]) -> int:
    dim = rows.global_vectors.shape[1]
    return 2 * int(dim) * sum(len(rows) * (int(rows.local_vectors.shape[1]) * len(q.probes) + 1) for q in queries)


def exact_error(rows: DeviceRows, queries: list[CompiledQuery]) -> float:
    """The largest difference from score/definition.py over a sample of the pictures."""
    got = GpuKernel().score_rows(queries, rows, rows.level).double().cpu().numpy()
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

    operations = useful_operations(rows, many)
    batch = milliseconds(ours(rows, many))
    rate = operations / batch * 1e3
    batch8, digit = milliseconds(ours(codes, many)), milliseconds(ours(codes, many, level=COARSE_CODES))
    int8 = int8_matmul_rate()
    head("the same bank, 16 queries of 72 probes", "ms", "useful Tops/s", "products of this kind, Tops/s", "matmul ms")
    for name, ms, factor, limit in (
        ("ours fp16", batch, 1, matmul),
        ("ours int8, probes of two digits", batch8, 2, int8),
        ("ours int8, one digit (goes first in a search)", digit, 1, int8),
    ):
        row(name, ms, operations / ms / 1e9, factor * operations / ms / 1e9, factor * operations / limit * 1e3)
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
        f"16 queries, scan by fp16 / by one digit of int8: {batch / digit:.2f}; by two digits: {batch / batch8:.2f}",
    ]


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
        "fp16, as where it fits": GpuKernel(),
        "int8 on the device, exact by fp16 on the host, as where fp16 does not fit": GpuKernel(memory=8 << 30),
    }
    alone = {name: [search([query], bank, kernel) for query in queries] for name, kernel in kernels.items()}
    head("top 50 by the product, 20 queries one by one (clock on the wall)", "ms", "re-scored", "the first search, ms")
    medians = []
    for name, found in alone.items():
        medians.append(float(np.median([ms for ms, _ in found[1:]])))
        row(name, medians[-1], float(np.median([answers[0].rescored or 0 for _, answers in found])), found[0][0])
    for (_, (right,)), *others in zip(*alone.values(), strict=True):
        for _, (other,) in others:
            assert (other.positions == right.positions).all(), "int8 with re-scoring gave another answer"
            assert (other.scores == right.scores).all()
    ratios = [
        f"product, one query: fp16 {medians[0]:.2f} ms (at most 3.6), "
        f"int8 with fp16 on the host {medians[1]:.1f} ms (at most 25)"
    ]
    together = {
        "fp16": (bank, kernels["fp16, as where it fits"]),
        "int8 alone (one digit first, then two)": (MemoryBank(card, "int8", block, np.arange(FULL)), GpuKernel()),
        "int8 by two digits at once": (MemoryBank(card, "int8", block, np.arange(FULL)), PlainKernel()),
    }
    del kernels
    head("top 50 by the product, 16 queries at once (clock on the wall)", "ms")
    times = []
    for name, (searched, kernel) in together.items():
        found = [search(queries[:16], searched, kernel) for _ in range(8)]
        times.append(float(np.median([ms for ms, _ in found[1:]])))
        row(name, times[-1])
    first, plain = (search(queries[:16], *together[name])[1] for name in list(together)[1:])
    for right, other in zip(first, plain, strict=True):
        assert (other.positions == right.positions).all(), "one digit first gave another answer"
        assert (other.scores == right.scores).all()
    return [
        *ratios,
        f"product, 16 queries: fp16 {times[0]:.1f} ms, int8 {times[1]:.1f} ms: {times[0] / times[1]:.2f} x (at least "
        "1.5); int8's answers are those of a scan by two digits, bit for bit",
    ]


class PlainKernel(GpuKernel):
    """No level before those of the bank."""

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        return super().levels(bank)


def search(queries: list[CompiledQuery], bank: Bank, kernel: GpuKernel) -> tuple[float, list[TopK]]:
    """ms, and the answers."""
    fresh = [replace(query) for query in queries]  # as they come from a user: nothing of them is prepared
    begin = time.perf_counter()
    found = top_k_many(fresh, bank, 50, kernel)
    return (time.perf_counter() - begin) * 1e3, found


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
