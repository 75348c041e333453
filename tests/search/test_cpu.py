"""The compiled kernel's own manners: what it reads, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tapr.errors import BadInput

cpu = pytest.importorskip("tapr.search.kernels.cpu", reason="the compiled kernel was not built", exc_type=ImportError)

# A bank whose arrays end where the memory that may be read ends, scored at every level.
AT_THE_EDGE = """
import ctypes, mmap, sys
import numpy as np
from tapr.store.block import Block
from tapr.search.kernels.cpu import CpuKernel
from tapr.search.memory_bank import MemoryBank
from tapr.encoders.base import unit
from tapr.score.compile import CompiledQuery

libc, kept = ctypes.CDLL(None, use_errno=True), []

def at_the_edge(array):
    room = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(start + room), mmap.PAGESIZE, 0) == 0, "no forbidden page"
    kept.append(memory)
    moved = np.frombuffer(memory, array.dtype, array.size, room - array.nbytes).reshape(array.shape)
    moved[...] = array
    return moved

rng = np.random.default_rng(0)
for pictures, count, dim in ((64, 49, 128), (21, 49, 64), (5, 3, 100), (1, 1, 32), (33, 16, 512)):
    vectors = unit(rng.standard_normal((pictures, count, dim)))
    bank = MemoryBank.of(vectors[:, 0], vectors, "both")
    block = bank.block
    parts = (block.global_vectors, block.local_vectors, block.local_codes, block.local_scales, block.local_errors)
    edge = MemoryBank(bank.card, "both", Block(0, *map(at_the_edge, parts)), bank.rows)
    probes = unit(rng.standard_normal((57, dim)))
    kernel = CpuKernel(sys.argv[1], threads=2)
    query = CompiledQuery(probes[:2], probes[:2, 1], probes, probes[:, 0], ())
    for precision in ("fp16", "int8", "both"):
        for level in kernel.levels(MemoryBank(bank.card, precision, block, bank.rows)):
            for rows in (None, np.arange(pictures // 2, pictures), np.array([pictures - 1])):
                found = kernel.score([query], edge, level, rows)
                assert (found == kernel.score([query], bank, level, rows)).all()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forbids a page of memory as Linux does")
@pytest.mark.parametrize("isa", cpu.isas())
def test_nothing_past_the_end_of_a_bank_is_read(isa: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_EDGE, isa],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", f"status {done.returncode}: {done.stderr}"


def test_an_instruction_set_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="'sse9' does not run here"):
        cpu.CpuKernel("sse9")


def test_arrays_that_do_not_agree_are_refused() -> None:
    one = np.zeros((1, 4), np.float32)
    good: list[Any] = [np.zeros((2, 4), np.float16), np.zeros((2, 3, 4), np.float16), None, None]
    tail = (3, one, np.ones(1, np.float32), 1, one, np.ones(1, np.float32), np.ones(1, np.float32))
    owner = np.zeros(1, np.int32)

    def score(
        part: list[Any],
        scores: np.ndarray,
        owner: np.ndarray = owner,
        places: tuple[int, ...] = (),
        numbers: int = 0,
    ) -> None:
        sketches = np.array(places, np.int64).reshape(-1, 4), np.zeros(numbers, np.float32)
        cpu._kernel.score("portable", 1, [tuple(part)], *tail, owner, scores, *sketches)

    score(good, np.empty((1, 2), np.float32))
    with pytest.raises(ValueError, match="do not agree"):
        score(good, np.empty((1, 3), np.float32))
    with pytest.raises(ValueError, match="do not agree"):
        score([good[0], np.zeros((2, 2, 4), np.float16), None, None], np.empty((1, 2), np.float32))
    with pytest.raises(ValueError, match="there is no row 2"):
        score([*good[:3], np.array([0, 2])], np.empty((1, 2), np.float32))
    with pytest.raises(ValueError, match="belongs to no query"):
        score(good, np.empty((1, 2), np.float32), np.ones(1, np.int32))
    score(good, np.empty((1, 2), np.float32), owner, (0, 0, 1, 16), 1 + 3 * 16)
    for places, numbers in (
        ((1, 0, 1, 16), 49),  # no such query
        ((0, 1, 1, 16), 49),  # no such probe
        ((0, -1, 1, 16), 49),
        ((0, 0, 2, 16), 65),  # more directions than probes
        ((0, 0, 1, 15), 46),  # not whole vectors of lanes
        ((0, 0, 1, -16), 49),
        ((0, 0, 1, 16), 48),  # too few numbers
        ((0, 0, 1, 16), 50),  # too many
    ):
        with pytest.raises(ValueError, match="a sketch does not fit"):
            score(good, np.empty((1, 2), np.float32), owner, places, numbers)
