"""How fast matching is on this machine's processors, beside other ways to do it and beside the machine's limits.

    python benchmarks/match.py --quick      under a minute: 20,000 pictures, 57 probes
    python benchmarks/match.py              also other sizes, up to 123,403 pictures, torch.compile and qdrant

The vectors are random, a picture's own ones around a common direction; the bank is mapped from a file, as a gallery's
is. "top 50" is what a search does; "all" is a score for every picture, which is what torch computes. What is compared
runs alternately, and medians are reported. The last line has the ratios.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import EncoderCard, unit
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels.base import Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.sweep import score, score_many
from tapr.search.topk import top_k
from tapr.store.block import Block, Precision
from tapr.store.codec import quantise
from tapr.utils.threads import thread_count

M, D, K = 49, 512, 50
BASE = 1000  # pictures that are made; the others are these with some axes mirrored
FULL = 123_403
Calls = dict[str, Callable[[], object]]


class Mapped:
    """Banks of up to `rows` pictures in both precisions, mapped from files."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.block = Block(
            0,
            self._file("globals", (rows, D), np.float16),
            self._file("locals", (rows, M, D), np.float16),
            self._file("codes", (rows, M, D), np.int8),
            self._file("scales", (rows, M), np.float32),
            self._file("errors", (rows, M), np.float32),
        )

    def _file(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
        path = self.folder / name
        return np.asarray(np.memmap(path, dtype, "r+" if path.exists() else "w+", shape=shape))

    def fill(self) -> None:
        rng = np.random.default_rng(0)
        centres = unit(rng.standard_normal((BASE, 1, D), np.float32))
        locals_ = unit(0.5 * centres + unit(rng.standard_normal((BASE, M, D), np.float32))).astype(np.float16)
        globals_ = unit(centres[:, 0] + 0.5 * unit(rng.standard_normal((BASE, D), np.float32))).astype(np.float16)
        block = self.block
        assert block.local_vectors is not None
        for start in range(0, self.rows, BASE):
            signs = rng.choice(np.array([0, 0x8000], np.uint16), D)  # to be flipped: fp16 products are slow
            part = slice(start, min(start + BASE, self.rows))
            count = part.stop - start
            block.global_vectors[part] = (globals_[:count].view(np.uint16) ^ signs).view(np.float16)
            block.local_vectors[part] = (locals_[:count].view(np.uint16) ^ signs).view(np.float16)
            with ThreadPoolExecutor(thread_count()) as pool:
                list(pool.map(self._code, range(start, part.stop, 4)))

    def _code(self, start: int) -> None:
        """Codes of 4 pictures: the work stays in the cache."""
        block, part = self.block, slice(start, min(start + 4, self.rows))
        assert block.local_vectors is not None
        assert block.local_codes is not None
        assert block.local_scales is not None
        assert block.local_errors is not None
        block.local_codes[part], block.local_scales[part], block.local_errors[part] = quantise(
            block.local_vectors[part]
        )

    def bank(self, rows: int, precision: Precision) -> MemoryBank:
        whole, part = self.block, slice(0, rows)
        assert whole.local_vectors is not None
        assert whole.local_codes is not None
        assert whole.local_scales is not None
        assert whole.local_errors is not None
        coded = precision != "fp16"
        block = Block(
            0,
            whole.global_vectors[part],
            whole.local_vectors[part] if precision != "int8" else None,
            whole.local_codes[part] if coded else None,
            whole.local_scales[part] if coded else None,
            whole.local_errors[part] if coded else None,
        )
        card = EncoderCard("benchmark", "", D, (7, 7), "tokens", 0, "crop")
        return MemoryBank(card, precision, block, np.arange(rows), block_rows=5350)  # as in the shards of a gallery

    def query(self, probes: int, seed: int = 1) -> CompiledQuery:
        """Up to 8 atoms and, past them, the local vectors of a picture like one of the bank; METHOD's weights."""
        rng = np.random.default_rng(seed)
        assert self.block.local_vectors is not None
        atoms = min(probes, 8)
        seen = np.concatenate([self.block.local_vectors[seed], self.block.local_vectors[seed + 1]]).astype(np.float32)
        vectors = np.concatenate([rng.standard_normal((atoms, D)) / D**0.5, seen[: probes - atoms]])
        weights = np.where(np.arange(probes) < atoms, 0.4 / atoms, 0.2 / max(probes - atoms, 1))
        weights[: atoms // 4] *= -1
        noisy = unit(vectors + 0.5 * unit(rng.standard_normal((probes, D))))
        terms = (Term("target", "target", "global", 0, 1), Term("preserve", "probes", "local", 0, probes))
        global_probes = unit(rng.standard_normal((1, D)))
        return CompiledQuery(global_probes, np.array([0.4], np.float32), noisy, weights.astype(np.float32), terms)


@dataclass(frozen=True)
class Taken:
    """Medians, in milliseconds. On a machine with other work to do, processor time is the steadier of the two."""

    wall: float
    processor: float  # of all threads together


def interleaved(calls: Calls, rounds: int) -> dict[str, Taken]:
    """How long each takes, in turn with the others."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            wall, processor = time.perf_counter(), time.process_time()
            call()
            if turn:  # the first warms up
                times[name].append((time.perf_counter() - wall, time.process_time() - processor))
    return {
        name: Taken(*(1e3 * statistics.median(column) for column in zip(*found, strict=True)))
        for name, found in times.items()
    }


def torch_calls(torch: Any, bank: MemoryBank, query: CompiledQuery) -> Callable[[], Any]:
    """The straightforward way: everything in float32, ready in memory, one einsum and one softmax."""
    assert bank.block.local_vectors is not None
    local_vectors = torch.from_numpy(np.asarray(bank.block.local_vectors)).float()  # (N, M, d)
    global_vectors = torch.from_numpy(np.asarray(bank.block.global_vectors)).float()
    probes, weights, target = (torch.from_numpy(a) for a in (query.probes, query.weights, query.target))

    def plain() -> Any:
        s = torch.einsum("nd,bmd->bnm", probes, local_vectors)
        p = torch.softmax(s / query.tau, dim=-1)
        return (p * s).sum(-1) @ weights + query.target_weight * (global_vectors @ target)

    return plain


SIDE = 2048  # of the matrices that measure the limits
COPIED = 256 << 20  # bytes


def limit_calls(torch: Any) -> Calls:
    """What the machine can do: a copy, sgemm, and torch's own int8 product. They take turns with the rest."""
    source, target = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    x, y = torch.ones(SIDE, SIDE, dtype=torch.int8), torch.ones(SIDE, SIDE, dtype=torch.int8)
    return {"copy": lambda: target.copy_(source), "sgemm": lambda: a @ b, "int8 gemm": lambda: torch._int_mm(x, y)}


def peak() -> str:
    """What the multipliers do with numbers that lie in registers, by as many threads: peak.cpp, where there is g++."""
    if not shutil.which("g++"):
        return "no g++: the multipliers' own limit was not measured"
    with tempfile.TemporaryDirectory() as folder:
        program, source = str(Path(folder, "peak")), str(Path(__file__).with_name("peak.cpp"))
        if subprocess.run(["g++", "-O2", "-pthread", source, "-o", program], check=False).returncode:
            return "the multipliers' own limit was not measured: peak.cpp was not compiled here"
        found = subprocess.run([program, str(thread_count())], capture_output=True, text=True, check=False).stdout
    names, rates = found.split()[::2], found.split()[1::2]
    parts = ", ".join(f"{name} {2 * float(rate):.0f}" for name, rate in zip(names, rates, strict=True) if float(rate))
    return f"limits of numbers in registers: {parts} GOP/s (words: 16 bits; two bytes of a probe are two products)"


def qdrant_call(bank: MemoryBank, query: CompiledQuery, folder: Path) -> Callable[[], object]:
    """MaxSim of an existing engine, exact; a simpler score (the best match, no softmax, no signs)."""
    import qdrant_edge as qdrant

    params = qdrant.EdgeVectorParams(
        size=D,
        distance=qdrant.Distance.Dot,
        multivector_config=qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim),
    )
    (folder / "qdrant").mkdir()
    shard = qdrant.EdgeShard.create(str(folder / "qdrant"), qdrant.EdgeConfig(vectors={"local": params}))
    assert bank.block.local_vectors is not None
    for start in range(0, len(bank), 100):
        part = bank.block.local_vectors[start : start + 100].astype(np.float32)
        points = [qdrant.Point(start + i, {"local": rows.tolist()}) for i, rows in enumerate(part)]
        shard.update(qdrant.UpdateOperation.upsert_points(points))
    request = qdrant.SearchRequest(
        query=qdrant.Query.Nearest(query.probes.tolist(), using="local"),
        limit=K,
        params=qdrant.SearchParams(exact=True),
    )
    return lambda: shard.search(request)


def roomy_memory(rows: int) -> str | None:
    """The system's file store in memory, where it has room: no writing to disk then goes on beside the measuring."""
    needed = 3 * rows * M * D
    store = Path("/dev/shm")
    return str(store) if store.is_dir() and shutil.disk_usage(store).free > 2 * needed else None


def peak_memory(mapped: Mapped, rows: int, precision: Precision) -> float:
    """MB of memory, mapped files left out, that a process which only searches takes for it at most."""
    command = [sys.executable, __file__, "--peak", str(mapped.folder), str(mapped.rows), str(rows), precision]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(folder: str, stored: str, rows: str, precision: Precision) -> None:
    mapped = Mapped(Path(folder), int(stored))
    bank, query, kernel = mapped.bank(int(rows), precision), mapped.query(57), choose_kernel()
    before, peak, done = anonymous(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    top_k(query, bank, K, kernel)
    done.set()
    watcher.join()
    print(peak)


def anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def ours(mapped: Mapped, kernel: Kernel, rows: int, query: CompiledQuery) -> Calls:
    fp16, both = mapped.bank(rows, "fp16"), mapped.bank(rows, "both")
    return {
        "ours fp16, top 50": lambda: top_k(query, fp16, K, kernel),
        "ours int8 exact, top 50": lambda: top_k(query, both, K, kernel),
    }


def headline(mapped: Mapped, kernel: Kernel, torch: Any, rounds: int, full: bool) -> str:
    rows, probes = 20_000, 57
    query = mapped.query(probes)
    fp16, both, int8 = (mapped.bank(rows, name) for name in ("fp16", "both", "int8"))
    plain = torch_calls(torch, fp16, query)
    calls = ours(mapped, kernel, rows, query) | {
        "ours fp16, all": lambda: score(query, fp16, kernel),
        "ours int8, all": lambda: score(query, int8, kernel),
        "torch, plain fp32, all": plain,
    }
    worst = float(np.abs(score(query, fp16, kernel) - plain().numpy()).max())
    exact, coded = top_k(query, fp16, K, kernel), top_k(query, both, K, kernel)
    assert (exact.positions == coded.positions).all()
    assert (exact.scores == coded.scores).all()
    if full:
        compiled = torch.compile(plain)
        try:
            compiled()
            calls["torch.compile fp32, all"] = compiled
        except Exception as error:  # whatever is missing here, the rest is still worth printing
            print(f"torch.compile: skipped, {type(error).__name__}")
    found = interleaved(calls | limit_calls(torch), rounds)
    limit = {name: found.pop(name) for name in ("copy", "sgemm", "int8 gemm")}
    wall, processor = time.perf_counter(), time.process_time()
    score(query, fp16, NumpyKernel())
    found["ours numpy, all, once"] = Taken(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor))
    work, product = 2 * rows * probes * M * D / 1e6, 2 * SIDE**3 / 1e6
    plainly = found["torch, plain fp32, all"]
    print(f"\n{rows:,} x {M} x {D}, {probes} probes, {kernel.name}, {thread_count()} threads, top {K}, {rounds} rounds")
    print("                             wall ms   GFLOP/s   x torch    processor ms   x torch")
    for name, taken in found.items():
        print(
            f"  {name:24} {taken.wall:9.1f} {work / taken.wall:9.0f} {plainly.wall / taken.wall:9.2f}"
            f" {taken.processor:15.1f} {plainly.processor / taken.processor:9.2f}"
        )
    print(
        f"  limits by wall time: copy {2 * COPIED / 1e6 / limit['copy'].wall:.1f} GB/s read and written, sgemm "
        f"{product / limit['sgemm'].wall:.0f} GFLOP/s, torch._int_mm {product / limit['int8 gemm'].wall:.0f} GOP/s"
    )
    print(
        f"  read exactly: {exact.rescored or rows:,} (fp16) and {coded.rescored or rows:,} (int8) of {rows:,}; "
        f"fp16 scores differ from torch's by at most {worst:.1e}"
    )
    print(f"  {peak()}")
    batch = [mapped.query(probes, seed) for seed in range(8)]
    many = interleaved(
        {"fp16": lambda: score_many(batch, fp16, kernel), "int8": lambda: score_many(batch, int8, kernel)}, rounds
    )
    print(
        f"  8 queries in one sweep: fp16 {many['fp16'].wall / 8:.1f} ms per query, "
        f"int8 {many['int8'].wall / 8:.1f} ms per query, all scores"
    )

    def ratios(which: str) -> str:
        half, exactly, every, base, sgemm = (
            getattr(taken, which)
            for taken in (
                found["ours fp16, top 50"],
                found["ours int8 exact, top 50"],
                found["ours fp16, all"],
                plainly,
                limit["sgemm"],
            )
        )
        share = (work / every) / (product / sgemm)
        return (
            f"top 50 from fp16 {base / half:.2f} x torch, int8 exact {base / exactly:.2f} x torch, "
            f"all scores from fp16 {base / every:.2f} x torch, {share:.0%} of sgemm"
        )

    return f"wall time: {ratios('wall')}; processor time: {ratios('processor')}; load {os.getloadavg()[0]:.1f}"


def growth(mapped: Mapped, kernel: Kernel, sizes: list[int]) -> None:
    print(
        "\n  pictures  probes   fp16 ms  int8 exact ms  re-scored   peak MB beside the mapped files: fp16, int8 exact"
    )
    for rows in sizes:
        for probes in (8, 24, 57, 72) if rows <= 20_000 else (57,):
            query = mapped.query(probes)
            calls = ours(mapped, kernel, rows, query)
            found = interleaved(calls, 3)
            peaks = [peak_memory(mapped, rows, "fp16"), peak_memory(mapped, rows, "both")] if probes == 57 else []
            rescored = top_k(query, mapped.bank(rows, "both"), K, kernel).rescored
            half, exactly = found["ours fp16, top 50"].wall, found["ours int8 exact, top 50"].wall
            print(
                f"{rows:10,} {probes:7} {half:9.1f} {exactly:14.1f} {rescored:10,}   "
                + ", ".join(f"{peak:.0f}" for peak in peaks),
                flush=True,
            )


def other_engine(mapped: Mapped, kernel: Kernel) -> None:
    rows, query = 1000, mapped.query(57)
    try:
        call = qdrant_call(mapped.bank(rows, "fp16"), query, mapped.folder)
    except ImportError:
        print("\nqdrant-edge-py: skipped, it is not installed")
        return
    found = interleaved({"qdrant MaxSim": call} | ours(mapped, kernel, rows, query), 5)
    print(
        f"\n{rows:,} pictures, 57 probes: " + ", ".join(f"{name} {taken.wall:.1f} ms" for name, taken in found.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peak", nargs=4, metavar=("FOLDER", "STORED", "ROWS", "PRECISION"), help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, default=FULL, help="the largest bank of the full run")
    options = parser.parse_args()
    if options.peak:
        print_peak(*options.peak)
        return
    import torch

    torch.set_num_threads(thread_count())
    kernel = choose_kernel()
    rows = 20_000 if options.quick else max(options.rows, 20_000)
    with tempfile.TemporaryDirectory(prefix="tapr-match-", dir=roomy_memory(rows)) as folder:
        mapped = Mapped(Path(folder), rows)
        mapped.fill()
        with torch.no_grad():
            ratios = headline(mapped, kernel, torch, rounds=3 if options.quick else 9, full=not options.quick)
        if not options.quick:
            growth(mapped, kernel, [1000, 5000, 20_000, *([options.rows] if options.rows > 20_000 else [])])
            other_engine(mapped, kernel)
        print(ratios)


if __name__ == "__main__":
    main()
