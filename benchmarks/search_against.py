"""How fast searches are, beside the same searches of another version of the code.

    git worktree add /tmp/old COMMIT && cp src/tapr/search/kernels/_kernel*.so /tmp/old/src/tapr/search/kernels/
    PYTHONPATH=src python -m benchmarks.search_against /tmp/old/src WORK --pictures 4000

One process for each version; they take turns. WORK is a folder for the vectors, which both map. Ratios are of processor
time, of medians and of the fastest searches; a machine with other work disturbs the second less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tapr.encoders.base import EncoderCard, unit
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels.cpu import CpuKernel
from tapr.search.match import match
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import top_k_many
from tapr.store.block import Block
from tapr.store.summary import Subspaces

M, D = 49, 512
ARRAYS = (
    "global_vectors", "local_vectors", "local_codes", "local_scales", "local_errors", "outlines", "summaries", "pooled"
)  # fmt: skip
Calls = dict[str, Callable[[], object]]


def make(work: Path, pictures: int) -> None:
    """Pictures whose local vectors lie around a common direction, one of 500."""
    rng = np.random.default_rng(0)
    centres = np.asarray(unit(rng.standard_normal((500, 1, D), np.float32)), np.float32)
    whole, local = np.empty((pictures, D), np.float16), np.empty((pictures, M, D), np.float16)
    for start in range(0, pictures, 500):
        count = min(500, pictures - start)
        chosen = centres[rng.permutation(500)[:count]]
        local[start : start + count] = unit(0.8 * chosen + 0.5 * unit(rng.standard_normal((count, M, D), np.float32)))
        whole[start : start + count] = unit(chosen[:, 0] + 0.5 * unit(rng.standard_normal((count, D), np.float32)))
    bank = MemoryBank.of(whole, local, "both").summarised()
    work.mkdir(parents=True, exist_ok=True)
    for name in ARRAYS:
        np.save(work / f"{name}.npy", getattr(bank.block, name))
    assert bank.subspaces is not None
    np.save(work / "basis.npy", bank.subspaces.basis)


def query_of(local: Any, probes: int, seed: int, kind: str = "continuity") -> CompiledQuery:
    """Eight words and, past them, the places of a picture; as `continuity` they get a sketch."""
    rng = np.random.default_rng(seed)
    places = local[seed * 7 + 3].astype(np.float32)[: probes - 8]
    vectors = np.concatenate([unit(rng.standard_normal((8, D))), places]).astype(np.float32)
    weights = np.concatenate([np.full(8, 0.05), np.full(len(places), 0.2 / max(1, len(places)))]).astype(np.float32)
    weights[:2] *= -1
    terms = [Term("target", "", "global", 0, 1), *(Term("add", "", "local", i, i + 1) for i in range(8))]
    if kind == "continuity":
        terms.append(Term("continuity", "", "local", 8, probes))
    target = unit(rng.standard_normal((1, D))).astype(np.float32)
    return CompiledQuery(target, np.array([0.4], np.float32), vectors, weights, tuple(terms))


def calls_of(work: Path) -> Calls:
    arrays = {name: np.load(work / f"{name}.npy", mmap_mode="r") for name in ARRAYS}
    block = Block(0, **{name: np.asarray(array) for name, array in arrays.items()})
    card = EncoderCard("made up", "", D, (7, 7), "tokens", 0, "crop")
    subspaces = Subspaces(np.load(work / "basis.npy"))
    both = MemoryBank(card, "both", block, np.arange(len(block)), block_rows=2350, subspaces=subspaces)
    fp16, int8 = replace(both, precision="fp16"), replace(both, precision="int8")
    half = replace(fp16, rows=np.sort(np.random.default_rng(1).permutation(len(fp16))[: len(fp16) // 2]))
    small, cpu, avx2 = replace(fp16, rows=np.arange(600)), CpuKernel(threads=2), CpuKernel("avx2", threads=2)

    def query(probes: int, seed: int = 1, kind: str = "continuity") -> CompiledQuery:
        return query_of(block.local_vectors, probes, seed, kind)

    return {
        "57 probes, fp16, k 50": lambda: top_k_many([query(57)], fp16, 50, cpu),
        "8 probes, fp16, k 50": lambda: top_k_many([query(8)], fp16, 50, cpu),
        "8 probes, both, k 50": lambda: top_k_many([query(8)], both, 50, cpu),
        "8 probes, int8, k 50": lambda: top_k_many([query(8)], int8, 50, cpu),
        "57 probes without a sketch, both": lambda: top_k_many([query(57, 1, "preserve")], both, 50, cpu),
        "57 probes, fp16, cpu-avx2": lambda: top_k_many([query(57)], fp16, 50, avx2),
        "8 probes, half of the pictures": lambda: top_k_many([query(8)], half, 10, cpu),
        "8 queries": lambda: top_k_many([query(57, seed) for seed in range(8)], fp16, 50, cpu),
        "600 pictures, 8 times": lambda: [top_k_many([query(57)], small, 10, cpu) for _ in range(8)],
        "by summaries": lambda: match([query(57)], fp16, 10, cpu, "exact"),
        "by summaries, 8 probes": lambda: match([query(8)], fp16, 10, cpu, "exact"),
        "by summaries, 4 queries": lambda: match([query(57, seed) for seed in range(4)], fp16, 10, cpu, "exact"),
        "prefilter 1,000": lambda: match([query(57)], fp16, 10, cpu, 1000),
    }


def answer_calls(work: Path) -> None:
    """Run the searches that the other end names, and print the seconds of processor and clock that each took."""
    calls = calls_of(work)
    print(json.dumps(list(calls)), flush=True)
    for line in sys.stdin:
        used, begun = time.process_time(), time.perf_counter()
        calls[line.strip()]()
        print(json.dumps([time.process_time() - used, time.perf_counter() - begun]), flush=True)


def compare(old: Path, work: Path, rounds: int) -> None:
    processes, names = [], list[str]()
    for source in (old, Path(__file__).parents[1] / "src"):
        command = [sys.executable, str(Path(__file__)), str(source), str(work), "--child"]
        environment = {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PATH": ""}
        processes.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        names = json.loads(processes[-1].stdout.readline())  # type: ignore[union-attr]

    def ask(process: Any, name: str) -> list[float]:
        process.stdin.write(name + "\n")
        process.stdin.flush()
        times: list[float] = json.loads(process.stdout.readline())
        return times

    print("| search | before, processor ms | after | before / after, medians | fastest |\n|---|---|---|---|---|")
    for name in names:
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(rounds + 2):
            for side in (0, 1) if turn % 2 else (1, 0):
                used = ask(processes[side], name)[0]
                if turn > 1:  # the first ones warm up
                    times[side].append(used)
        before, after = (1e3 * statistics.median(several) for several in times)
        fastest = min(times[0]) / min(times[1])
        print(f"| {name} | {before:.2f} | {after:.2f} | {before / after:.3f} | {fastest:.3f} |", flush=True)
    for process in processes:
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other version's folder src")
    parser.add_argument("work", type=Path)
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer_calls(options.work)
        return
    if not (options.work / "basis.npy").exists():
        make(options.work, options.pictures)
    compare(options.old.resolve(), options.work, options.rounds)


if __name__ == "__main__":
    main()
