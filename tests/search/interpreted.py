"""The Triton kernels without a GPU: in Triton's interpreter, which a process chooses when it starts. Or on a GPU.

The interpreter leaves a product of tiles to NumPy's BLAS, which on some processors rounds a row by its place in the
tile. A tensor core treats all rows alike, and so does the product that takes its place here. It is exact for whole
numbers and for fp16 numbers of unit vectors (multiples of 2^-48 whose sums stay below 2 fit 53 bits). Other numbers are
added term after term.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, BoundingKernel, Level, Rows
from tapr.search.kernels.numpy_kernel import NumpyKernel
from tapr.search.kernels.values import HostValues
from tapr.search.prefilter.device_bank import DeviceBank
from tapr.search.prune import Known, Scored
from tapr.search.topk import TopK
from tapr.types import Float32

INTERPRETER = """
import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle

def dot(builder, a, b, d, input_precision, max_num_imprecise_acc):
    left, right = a.data.astype(np.float64), b.data.astype(np.float64)
    if a.data.dtype in (np.int8, np.float16):
        sums = left @ right
    else:
        sums = np.zeros(d.data.shape)
        for k in range(right.shape[0]):
            sums += left[:, k, None] * right[k]
    return TensorHandle(sums.astype(d.data.dtype) + d.data, d.dtype.scalar)

prepared = set()  # modules; the interpreter prepares the language anew in every call of a function, half of its time

def call(function, *arguments, **named):
    if function.fn.__module__ not in prepared:
        prepared.add(function.fn.__module__)
        interpreter._patch_lang(function.fn)
    return function.rewrite()(*arguments, **named)

InterpreterBuilder.create_dot = dot
InterpretedFunction.__call__ = call
"""
WORKER = """
import pickle, sys
import numpy as np
import torch
from tapr.search.kernels import gpu_graph
from tapr.search.kernels.gpu import GpuKernel

device = sys.argv[1]
gpu_graph.SIZES = (4, 20)  # of a recording: a small bank has enough pictures for them

class Kernel(GpuKernel):
    def played(self, query, bank, level, k):
        kernel = GpuKernel(device, 1 << 30)
        return kernel.bounds([query], bank, level, level, None).play(k)

    def swept(self, queries, bank, level, last, rows):
        found = GpuKernel.bounds(self, queries, bank, level, last, rows)
        return found.reaching(np.full(len(queries), -np.inf, np.float32))

    def limited(self, queries, bank, rows, closer):
        from tapr.search.prefilter.candidates import PooledQuery
        from tapr.search.prefilter.gpu import DeviceProbes, limits_on, resemblance_on
        from tapr.search.prefilter.gpu_records import records_on
        from tapr.search.prefilter.limit import limit_of
        records = records_on(GpuKernel(device, 1 << 30), bank)
        chosen = None if rows is None else torch.from_numpy(rows).to(device)
        found, lost = [], []
        for query in queries:
            limit = limit_of(query, bank.subspaces, bank.card.locals_count)
            probes = DeviceProbes.of(limit, closer, torch.device(device))
            targets = None if closer else resemblance_on(PooledQuery.of(query), records, chosen).targets
            found.append(limits_on(probes, records, chosen, targets).cpu().numpy())
            lost.append(probes.lost)
        return np.stack(found), lost

    def resemblance(self, query, bank, rows):
        from tapr.search.prefilter.candidates import PooledQuery
        from tapr.search.prefilter.gpu import resemblance_on
        from tapr.search.prefilter.gpu_records import records_on
        records = records_on(GpuKernel(device, 1 << 30), bank)
        chosen = None if rows is None else torch.from_numpy(rows).to(device)
        found = resemblance_on(PooledQuery.of(query), records, chosen)
        return found.promise.cpu().numpy(), found.targets.cpu().numpy()

    def candidates(self, queries, bank, k, memory, budget):
        from tapr.search import match, plan
        plan.MIN_LEADERS = 5
        return match.candidates_of(queries, bank, k, GpuKernel(device, memory), budget)

    def staged(self, queries, bank, k, memory, budget, known):
        from tapr.search import match, plan
        plan.MIN_LEADERS = 5
        return match.top_k_by_summaries(queries, bank, k, GpuKernel(device, memory), budget, None, known)

    def matched(self, queries, bank, k, memory, worth, prefilter, budget_ms, at_once):
        from tapr.search import match, plan
        from tapr.search.prefilter import device_bank
        from tapr.search.prune import Pace
        plan.WORTH, plan.MIN_PICTURES_PER_RESULT_BY_SUMMARIES = worth, 1
        plan.MIN_LEADERS, device_bank.MAX_PICTURES_BOUNDED_AT_ONCE, piece = at_once
        plan.DEVICE_PACE = Pace(piece, piece, piece)
        return match.match(queries, bank, k, GpuKernel(device, memory), prefilter, budget_ms)

    def packed(self, groups, level, dim):
        found = []
        for group in groups:
            self._packer.pack_together(group, level, dim)
            self._packer.read_errors()
            for places, one in self._packer.pack_together(group, level, dim):
                names = ("parts", "steps", "sharpnesses", "weights")
                arrays = {name: getattr(one, name).cpu().numpy() for name in names}
                facts = {name: getattr(one, name) for name in ("count", "base", "shifted", "pieces", "first", "rest")}
                lost = [self._packer.rounding_loss(group[place], level) for place in places]
                found.append((places, arrays | facts, lost))
        return found

kernel = Kernel(device)
while True:
    try:
        call = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    try:
        answer = call(kernel)
    except Exception as error:
        answer = error
    pickle.dump(answer, sys.stdout.buffer)
    sys.stdout.flush()
"""


class InterpretedKernel:
    """A GpuKernel in a process of its own; every call goes there and back. "cuda": not interpreted."""

    name = "cuda-triton"

    def __init__(self, device: str = "cpu") -> None:
        environment, program = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, WORKER
        if device == "cpu":
            environment, program = environment | {"TRITON_INTERPRET": "1"}, INTERPRETER + WORKER
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> InterpretedKernel:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is the end of it

    def _call(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(methodcaller(name, *arguments), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    gains_by_summaries = False
    sketcher = None
    bounder: BoundingKernel = NumpyKernel()

    def device_bank(self, bank: Bank, *, unasked: bool = False) -> DeviceBank | None:
        """It holds no bank."""
        return None

    def levels(self, bank: Bank, probes: int = 0) -> tuple[Level, ...]:
        levels: tuple[Level, ...] = self._call("levels", bank, probes)
        return levels

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        return np.asarray(self._call("rounding_loss", query, level))

    def score(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Rows | None = None) -> Float32:
        return np.asarray(self._call("score", queries, bank, level, rows))

    def bounds(
        self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, last: Level, rows: Rows | None
    ) -> HostValues:
        found = self._call("swept", queries, bank, level, last, rows)
        return HostValues(np.stack([numbers for _, numbers in found]) if found else np.zeros((0, 0), np.float32))

    def read(self, queries: Sequence[CompiledQuery], bank: Bank, level: Level, rows: Sequence[Rows]) -> list[Float32]:
        found: list[Float32] = self._call("read", queries, bank, level, rows)
        return found

    def played(self, query: CompiledQuery, bank: Bank, level: Level, k: int) -> tuple[Rows, Float32] | None:
        """The k best by a recording of a kernel that holds the bank."""
        picked: tuple[Rows, Float32] | None = self._call("played", query, bank, level, k)
        return picked

    def limited(
        self, queries: Sequence[CompiledQuery], bank: Bank, rows: Rows | None, closer: bool
    ) -> tuple[Float32, list[NDArray[np.float64]]]:
        """prefilter/gpu.py's limits (Q, R) of a bank whose records are held, and what each query's probes lost."""
        found: tuple[Float32, list[NDArray[np.float64]]] = self._call("limited", queries, bank, rows, closer)
        return found

    def resemblance(self, query: CompiledQuery, bank: Bank, rows: Rows | None) -> tuple[Float32, Float32]:
        """prefilter/gpu.py's promise and targets, of these rows."""
        promise, targets = self._call("resemblance", query, bank, rows)
        return promise, targets

    def candidates(
        self, queries: Sequence[CompiledQuery], bank: Bank, k: int, memory: int, budget: Budget
    ) -> list[Scored]:
        """match.candidates_of by a kernel of so much memory; they are few."""
        found: list[Scored] = self._call("candidates", queries, bank, k, memory, budget)
        return found

    def staged(
        self,
        queries: Sequence[CompiledQuery],
        bank: Bank,
        k: int,
        memory: int,
        budget: Budget,
        known: Sequence[Known],
    ) -> list[TopK]:
        """match.top_k_by_summaries by such a kernel."""
        found: list[TopK] = self._call("staged", queries, bank, k, memory, budget, known)
        return found

    def matched(
        self,
        queries: Sequence[CompiledQuery],
        bank: Bank,
        k: int,
        memory: int,
        worth: int = 10_000,
        prefilter: Budget | None = None,
        budget_ms: float | None = None,
        at_once: tuple[int, int, int] = (5, 32, 32),
    ) -> list[TopK]:
        """What match.match answers with a kernel of so much memory; `at_once`: candidates, and pictures per piece."""
        arguments = (queries, bank, k, memory, worth, prefilter, budget_ms, at_once)
        found: list[TopK] = self._call("matched", *arguments)
        return found

    def packed(self, groups: Sequence[Sequence[CompiledQuery]], level: Level, dim: int) -> list[Any]:
        """What gpu_packer.QueryPacker makes of the groups: (group, arrays by name, loss) each."""
        found: list[Any] = self._call("packed", groups, level, dim)
        return found
