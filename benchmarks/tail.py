"""The tail of a search over many groups, simulated from measured times of one group.

A query waits for its slowest group, so a rare slow group becomes a common slow query: at 100 groups the median query
sees the 99.3rd percentile of a group. This measures the times of one group here, scales them to the size of the plan,
draws from them for each group of each query, and says what stragglers, a second copy asked late (hedging) and a lost
node do to the 99th percentile.

    python benchmarks/tail.py --out benchmarks/results/tail_DATE.md
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery, Term
from tapr.search.kernels.choose import choose_kernel
from tapr.search.memory_bank import MemoryBank
from tapr.search.topk import top_k

Float = NDArray[np.float64]

DIM, COUNT, PROBES = 512, 49, 53
CALL_MS = 2.0  # scatter, merge and gather over Ray beside the scan: benchmarks/cluster.py measures it
SLOW, SLOWER = 0.005, 5.0  # stragglers: this share of calls takes so many times as long
DRAWS = 20_000


@dataclass(frozen=True)
class Plan:
    pictures: float
    groups: int
    processors: int  # of one node; a node holds one group

    @property
    def per_group(self) -> float:
        return self.pictures / self.groups


PLANS = (Plan(1e6, 4, 32), Plan(1e7, 16, 64), Plan(1e8, 64, 96), Plan(1e9, 512, 96))


def measured(pictures: int, rounds: int) -> tuple[float, Float]:
    """-> microseconds of one processor per picture (median), and the times of all rounds over their median"""
    rng = np.random.default_rng(1)
    bank = MemoryBank.of(
        unit(rng.standard_normal((pictures, DIM))), unit(rng.standard_normal((pictures, COUNT, DIM))), "both"
    )
    times = []
    for _ in range(rounds + 3):
        weights = rng.uniform(0.2, 1, PROBES)
        query = CompiledQuery(
            unit(rng.standard_normal((1, DIM))), np.array([0.4], np.float32), unit(rng.standard_normal((PROBES, DIM))),
            (0.6 * weights / weights.sum()).astype(np.float32),
            (Term("target", "t", "global", 0, 1), Term("add", "p", "local", 0, PROBES)),
        )  # fmt: skip
        begin, worked = time.perf_counter(), time.process_time()
        top_k(query, bank, 10)
        times.append((time.perf_counter() - begin, time.process_time() - worked))
    wall, processor = np.array(times[3:]).T  # the first ones wake the bank
    return float(np.median(processor)) / pictures * 1e6, wall / np.median(wall)


def group_times(rng: np.random.Generator, shape: tuple[int, ...], base: float, spread: Float, slow: float) -> Float:
    times = base * rng.choice(spread, shape)
    return np.asarray(np.where(rng.random(shape) < slow, times * SLOWER, times) + CALL_MS)


def simulate(plan: Plan, micros: float, spread: Float) -> dict[str, tuple[float, float]]:
    """p50 and p99 in milliseconds of: calm nodes, stragglers, stragglers hedged, a lost node of two copies."""
    rng = np.random.default_rng(3)
    base = plan.per_group * micros / plan.processors / 1e3
    draws = max(500, min(DRAWS, 4_000_000 // plan.groups))
    shape = draws, plan.groups
    calm = group_times(rng, shape, base, spread, 0.0)
    first = group_times(rng, shape, base, spread, SLOW)
    late = float(np.percentile(first, 95))
    second = late + group_times(rng, shape, base, spread, SLOW)
    hedged = np.where(first > late, np.minimum(first, second), first)
    # a lost node: one group in turn has one copy left, which does twice the work and is not hedged
    lost = hedged.copy()
    lost[:, 0] = 2 * group_times(rng, (draws,), base, spread, SLOW)
    cases = {"calm": calm, "stragglers": first, "hedged": hedged, "hedged, a node lost": lost}
    return {name: _percentiles(times.max(axis=1)) for name, times in cases.items()}


def _percentiles(times: Float) -> tuple[float, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return float(p50), float(p99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=5_000, help="of the group that is measured")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--micros", type=float, help="processor microseconds per picture of the nodes, if not of this one"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    here, spread = measured(options.pictures, options.rounds)
    micros = options.micros or here
    lines = [
        "# The tail over many groups, simulated from measured times",
        "",
        f"`python benchmarks/tail.py`: a group of {options.pictures:,} pictures (M = 49, d = 512, `both`), {PROBES} "
        f"probes, kernel {choose_kernel().name}: {here:.1f} microseconds of one processor per picture at the median, "
        f"{micros:.1f} used below; the p99 of a call is {np.percentile(spread, 99):.2f} times its median (load average "
        f"{os.getloadavg()[0]:.1f}). {SLOW:.1%} of calls are {SLOWER:g} times slower; hedged: another copy is asked at "
        "the p95 of a call. p50 / p99 of a query in ms:",
        "",
        "| pictures | groups x processors | per group | calm | stragglers | hedged | hedged, a node lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for plan in PLANS:
        cells = [f"{p50:.0f} / {p99:.0f}" for p50, p99 in simulate(plan, micros, spread).values()]
        size = f"{plan.pictures:,.0f} | {plan.groups} x {plan.processors} | {plan.per_group:,.0f}"
        lines.append(f"| {size} | {' | '.join(cells)} |")
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
