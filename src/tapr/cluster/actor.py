"""The Ray actor that holds one group of rows and searches it. After a crash Ray restarts it, and it opens its rows
again.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Condition
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tapr import __version__
from tapr.cluster.chunked_calls import cut, join
from tapr.cluster.group import GroupAssignment, GroupBank
from tapr.cluster.merge import GroupResult, SparseHistogram
from tapr.errors import TaprError
from tapr.options import Budget
from tapr.score.compile import CompiledQuery
from tapr.search.batching import Batcher
from tapr.search.kernels.base import Bank, Kernel
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import candidates_of, top_k_by_summaries
from tapr.search.prune import Known, Scored
from tapr.search.reference_weight import histograms
from tapr.search.topk import TopK, top_k_many
from tapr.server.metrics import resident_bytes
from tapr.types import Float32
from tapr.utils import threads
from tapr.utils.lru import LRU

T = TypeVar("T")

CONCURRENCY = 32  # concurrent calls per actor; searches that run at the same time share a sweep
EXPLAINED = 32  # hits per group that come with their score breakdown, so that most searches need one call per group
_VIEWS = 32  # cached filtered views
_TIMES = 1000  # calls in the latency statistics


class ActorRetiring(TaprError):
    """The actor accepts no more calls because another one has replaced it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A group's answer to several queries."""

    kernel: str
    exact: bool  # by fp16 vectors
    found: list[GroupResult]  # one per query; positions count from the group's first picture in the view


@dataclass(frozen=True, eq=False)
class Candidates:
    """A group's answer in the first round of a search by stages."""

    kernel: str
    found: list[Scored] | None  # one per query; None: with this kernel a full search is faster


@dataclass(frozen=True)
class State:
    """The status of an actor."""

    name: str
    node: str  # Ray's id
    host: str
    pid: int
    kernel: str
    rows: int
    pictures: int
    first_stage: bool  # whether it has the records of one
    bank_bytes: int  # vectors and records in memory or mapped
    memory_bytes: int  # of the process, including mapped pages in memory
    calls: int
    p50_ms: float | None
    p99_ms: float | None
    since: float  # seconds since the last (re)start
    problem: str | None
    version: str


class GroupActor:
    def __init__(self, name: str, *assignment: bytes) -> None:
        """`assignment` in chunks (chunked_calls.py): Ray could not restart an actor whose arguments lay in the object
        store of a process that has ended.
        """
        self._name, self._assignment = name, cast(GroupAssignment, join(assignment))
        self._begin = time.time()
        self._views: LRU[str, GroupBank] = LRU(_VIEWS)
        self._times: deque[float] = deque(maxlen=_TIMES)
        self._calls = self._inside = 0
        self._retiring = False
        self._changed = Condition()
        self._problem: str | None = None
        if self._assignment.threads:
            os.environ[threads.VARIABLE] = str(self._assignment.threads)
        try:
            if self._assignment.version != __version__:
                raise TaprError(
                    f"this node has tapr {__version__}, and the cluster was started with {self._assignment.version}"
                )
            self._bank = GroupBank.open(self._assignment)
            self._batcher = Batcher(choose_kernel(self._assignment.kernel))
        except TaprError as error:  # an exception here would make Ray restart the actor forever
            self._problem = f"{error} (on the node {socket.gethostname()})"

    def call(self, method: str, returns: int, shared: Any, *arguments: bytes) -> Any:
        """Entry point of all search calls; chunked_calls.py explains why."""
        given = join(arguments)
        answer = getattr(self, method)(*given) if shared is None else getattr(self, method)(*given, shared)
        pieces = cut(answer, returns)
        return pieces if returns > 1 else pieces[0]

    def top_k(
        self, queries: Sequence[CompiledQuery], k: int, view: str | None = None, rows: NDArray[np.int64] | None = None
    ) -> Answer:
        """`view` names a filtered part of the group, and `rows` are its rows. None: all pictures of the group."""

        def work() -> Answer:
            bank = self._view(view, rows)
            return self._answer(queries, bank, k, self._batcher.run(top_k_many, queries, bank, k))

        return self._timed(work)

    def candidates(
        self,
        queries: Sequence[CompiledQuery],
        k: int,
        most: Budget | None,
        view: str | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> Candidates:
        """The first round of a search by stages, which reads so many pictures at most. None: it was not asked for."""

        def work() -> Candidates:
            kernel = self._batcher.kernel
            if most is None and not kernel.gains_by_summaries:
                return Candidates(kernel.name, None)
            bank, limited = self._view(view, rows), isinstance(most, int)
            search = partial(candidates_of, budget=most) if isinstance(most, int) else candidates_of
            return Candidates(kernel.name, self._batcher.run(search, queries, bank, k, alone=limited))

        return self._call(work)

    def top_k_by_stages(
        self,
        queries: Sequence[CompiledQuery],
        k: int,
        known: Sequence[Known],
        most: Budget,
        budget_ms: float | None,
        view: str | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> Answer:
        """The second round: `known` is what the first one found, one per query."""

        def work() -> Answer:
            bank, limited = self._view(view, rows), isinstance(most, int) or budget_ms is not None
            search = partial(_second_round, most=most, budget_ms=budget_ms) if limited else _second_round
            pairs = list(zip(queries, known, strict=True))
            return self._answer(queries, bank, k, self._batcher.run(search, pairs, bank, k, alone=limited))

        return self._timed(work)

    def histograms(
        self, targets: Float32, view: str | None = None, rows: NDArray[np.int64] | None = None
    ) -> list[SparseHistogram]:
        def work() -> list[SparseHistogram]:
            return [
                SparseHistogram.of(one) for one in histograms(targets, self._view(view, rows), self._batcher.kernel)
            ]

        return self._timed(work)

    def gather(self, rows: NDArray[np.int64], kinds: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
        """Copies of these rows, by kind. Rows count from the group's first."""
        return self._call(lambda: self._bank.parts(rows, kinds))

    def ping(self) -> bool:
        return True

    def assignment(self) -> GroupAssignment:
        return self._assignment

    def state(self) -> State:
        import ray

        times = np.array(self._times) * 1e3
        p50, p99 = np.percentile(times, [50, 99]).tolist() if len(times) else (None, None)
        opened = self._problem is None
        return State(
            name=self._name,
            node=ray.get_runtime_context().get_node_id(),
            host=socket.gethostname(),
            pid=os.getpid(),
            kernel=self._batcher.kernel.name if opened else "",
            rows=self._bank.row_count if opened else 0,
            pictures=len(self._bank) if opened else 0,
            first_stage=opened and self._bank.subspaces is not None,
            bank_bytes=self._bank.bytes if opened else 0,
            memory_bytes=resident_bytes() or 0,
            calls=self._calls,
            p50_ms=p50,
            p99_ms=p99,
            since=time.time() - self._begin,
            problem=self._problem,
            version=__version__,
        )

    def leave(self, seconds: float) -> bool:
        """Accept no more calls and wait for running ones. Returns whether all have ended."""
        with self._changed:
            self._retiring = True
            return self._changed.wait_for(lambda: self._inside == 0, seconds)

    def _answer(self, queries: Sequence[CompiledQuery], bank: GroupBank, k: int, found: Sequence[TopK]) -> Answer:
        """`found` may be longer than k: others shared the sweep."""
        best = [one.first(k) for one in found]
        results = [
            GroupResult(
                one.positions,
                one.scores,
                one.radii,
                one.rescored,
                one.proof,
                bank.breakdown(query, one.positions[:EXPLAINED]),
            )
            for query, one in zip(queries, best, strict=True)
        ]
        return Answer(best[0].kernel, best[0].radii is None, results)

    def _view(self, view: str | None, rows: NDArray[np.int64] | None) -> GroupBank:
        """The same object for the same view, so that its queries can share a sweep."""
        if view is None or rows is None:
            return self._bank
        return self._views.get_or_make(view, lambda: self._bank.narrowed(rows))

    def _timed(self, work: Callable[[], T]) -> T:
        begin = time.perf_counter()
        answer = self._call(work)
        self._times.append(time.perf_counter() - begin)
        self._calls += 1
        return answer

    def _call(self, work: Callable[[], T]) -> T:
        if self._problem is not None:
            raise TaprError(self._problem)
        with self._changed:
            if self._retiring:
                raise ActorRetiring(f"{self._name} leaves")
            self._inside += 1
        try:
            return work()
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


def _second_round(
    asked: Sequence[tuple[CompiledQuery, Known]],
    bank: Bank,
    k: int,
    kernel: Kernel,
    most: Budget = "exact",
    budget_ms: float | None = None,
) -> list[TopK]:
    queries, known = zip(*asked, strict=True)
    return top_k_by_summaries(queries, bank, k, kernel, most, budget_ms, known)
