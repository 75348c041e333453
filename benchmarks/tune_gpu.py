"""Which tilings are the fastest, for gpu_kernels.TILINGS.

PYTHONPATH=src:. python -m benchmarks.tune_gpu fp16:72:64:768     precision, probes, M, d; several if you like
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import torch
import triton
from benchmarks.match_gpu import DEVICE, as_int8, make_queries, make_rows, milliseconds, ours

from tapr.search.kernels import gpu_kernels
from tapr.search.kernels.base import COARSE_CODES
from tapr.search.kernels.gpu_kernels import Tiling
from tapr.search.kernels.gpu_pack import PackedQueries
from tapr.search.kernels.gpu_packer import QueryPacker


def main() -> None:
    torch.manual_seed(0)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    for key in sys.argv[1:] or ["fp16:72:64:768", "fp16:1152:64:768", "int8x2:72:64:768", "int8:1152:64:768"]:
        tune(key)


def candidates(packed: PackedQueries, locals_: int, dim: int) -> Iterator[Tiling]:
    """Every tiling worth a try: the kernel that holds its probes where they fit, then the plain one."""
    if held := gpu_kernels.held_tiling(packed, locals_, dim):
        yield held
    size = packed.parts.element_size()
    tile = packed.pieces * (packed.first + packed.rest)
    for rows, warps, programs, flatten, stages in itertools.product(
        (64, 128, 256), (4, 8), (0, 1, 2), (False, True), (2, 3, 4, 5)
    ):
        shared = (rows + tile) * 128 * stages * max(1, programs)
        numbers = rows * tile / (32 * warps)  # of the products, in each thread's registers
        if shared <= gpu_kernels.SHARED_MEMORY and 20 <= numbers <= 160 and (programs or not flatten):
            yield Tiling(rows, 128 // size, warps, stages, programs, flatten)


def tune(key: str) -> None:
    precision, *numbers = key.split(":")
    probes, locals_, dim = map(int, numbers)
    rows = make_rows(40_000, locals_, dim)
    queries = make_queries(rows, -(-probes // 72), min(probes, 72))
    rows = as_int8(rows) if precision.startswith("int8") else rows
    level = COARSE_CODES if precision == "int8" else rows.level
    ((_, packed),) = QueryPacker(DEVICE).pack_together(queries, level, dim)
    timed: list[tuple[float, Tiling]] = []
    for tiling in candidates(packed, locals_, dim):
        try:
            timed.append((milliseconds(ours(rows, queries, tiling, level), repeat=5), tiling))
        except triton.runtime.errors.OutOfResources:
            continue
    print(f"{key} ({packed.precision}, {packed.bucket}): bank {rows.bytes / 1e9:.2f} GB")
    for ms, tiling in sorted(timed, key=lambda pair: pair[0])[:8]:
        print(f"  {ms:.3f} ms  {tiling}")


if __name__ == "__main__":
    main()
