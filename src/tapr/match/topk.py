"""The k best pictures. Cheap readings of a bank rule out what cannot be among them, the closest one ranks the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Float32
from tapr.errors import BadInput
from tapr.match.base import VECTORS, Bank, Kernel, Level, RankingKernel
from tapr.match.bounds import radius
from tapr.match.choose import choose_kernel
from tapr.match.remember import recall
from tapr.match.sweep import check, refuse_odd_scores, score_rows
from tapr.score.compile import CompiledQuery

Positions = NDArray[np.int64]

_WORTH = 16  # a cheaper reading pays when the k best are fewer than 1 in this many
_FEW = 512  # so many pictures are read by the last level at once, without one between


@dataclass(frozen=True, eq=False)
class TopK:
    """The best first; equal scores in gallery order. Fewer than k where the bank has fewer pictures."""

    positions: Positions  # (k,) in gallery order
    scores: Float32  # (k,)
    kernel: str
    exact: bool  # the top k by fp16 vectors; False for a bank that has only int8
    rescored: int | None = None  # pictures that were read exactly, where a cheaper reading of all went before
    radii: Float32 | None = None  # (k,) how far each score can be from its fp16 value, where it is not exact
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return self.remarks if self.radii is None else (_caution(self.radii), *self.remarks)

    def first(self, k: int) -> TopK:
        """The k best are the first of any longer list."""
        radii = None if self.radii is None else self.radii[:k]
        return replace(self, positions=self.positions[:k], scores=self.scores[:k], radii=radii)


@runtime_checkable
class SearchedElsewhere(Protocol):
    """A bank whose rows lie on other machines and are searched there: by the same kernels, with the same answers."""

    def top_k_many(self, queries: Sequence[CompiledQuery], k: int) -> list[TopK]: ...

    def histograms(self, targets: Float32) -> list[NDArray[np.int64]]:
        """(Q, d) -> one histogram of similarities per target, as stay.py makes them."""


def top_k(query: CompiledQuery, bank: Bank, k: int, kernel: Kernel | None = None) -> TopK:
    return top_k_many([query], bank, k, kernel)[0]


def top_k_many(queries: Sequence[CompiledQuery], bank: Bank, k: int, kernel: Kernel | None = None) -> list[TopK]:
    """One TopK a query, one sweep over the bank."""
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check(queries, bank)
    if isinstance(bank, SearchedElsewhere):
        return bank.top_k_many(queries, k)
    kernel = kernel or choose_kernel()
    levels = kernel.levels(bank)
    if k * _WORTH > len(bank):
        levels = levels[-1:]
    errors = _code_errors(bank)
    races = [_Race(query, bank, kernel, errors) for query in queries]
    if len(levels) == 1 and isinstance(kernel, RankingKernel):
        positions, scores = kernel.best(queries, bank, levels[0], k)
        found = zip(races, positions, refuse_odd_scores(scores), strict=True)
        return [race.result(levels, *best) for race, *best in found]
    scanned = score_rows(queries, bank, kernel, levels[0], bank.rows)  # (Q, N)
    return [race.run(levels, scores, k) for race, scores in zip(races, scanned, strict=True)]


def best_of(scores: Float32, k: int) -> Positions:
    """Positions of the k largest, descending, ties by lower position."""
    if k < len(scores):
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)  # k and all that tie with the last
    else:
        kept = np.arange(len(scores))
    order = np.argsort(-scores[kept], kind="stable")
    return kept[order[:k]].astype(np.int64)


class _Race:
    """One query's pictures, fewer at each closer reading.

    A reading gives each picture a score and how far the one of the last reading can be from it. The k best of the
    first reading are read by the last one at once: the least of their scores is a floor under the true k-th score.
    Whatever cannot reach the floor is out; what ties with the k-th is not.
    """

    def __init__(self, query: CompiledQuery, bank: Bank, kernel: Kernel, errors: Float32) -> None:
        self._query, self._bank, self._kernel, self._errors = query, bank, kernel, errors

    def run(self, levels: Sequence[Level], scores: Float32, k: int) -> TopK:
        """`scores`: of all pictures, at the first level."""
        last, positions = levels[-1], np.arange(len(scores))
        if len(levels) > 1:
            first = best_of(scores, k)
            leaders = self._read(last, first)
            floor = leaders.min(initial=np.inf)
            rest = np.delete(positions, first)
            scores, level = scores[rest], levels[0]
            for closer in levels[1:]:
                highest = scores + self._radius(level, last, rest)
                kept = np.nextafter(highest, np.float32(np.inf)) >= floor
                rest, scores = rest[kept], scores[kept]
                if closer == last or len(rest) > _FEW:
                    scores, level = self._read(closer, rest), closer
            positions, scores = np.concatenate([first, rest]), np.concatenate([leaders, scores])
            order = np.argsort(positions)
            positions, scores = positions[order], scores[order]
        best = best_of(scores, k)
        rescored = len(positions) if len(levels) > 1 else None
        return self.result(levels, positions[best], scores[best], rescored)

    def result(
        self, levels: Sequence[Level], positions: Positions, scores: Float32, rescored: int | None = None
    ) -> TopK:
        exact = not levels[-1].codes
        radii = None if exact else self._radius(levels[-1], VECTORS, positions)
        return TopK(positions, scores, self._kernel.name, exact, rescored if exact else None, radii)

    def _read(self, level: Level, positions: Positions) -> Float32:
        (scores,) = score_rows([self._query], self._bank, self._kernel, level, self._bank.rows[positions])
        return np.asarray(scores, np.float32)

    def _radius(self, level: Level, last: Level, positions: Positions) -> Float32:
        errors = self._errors[positions]
        return radius(self._query, self._kernel, level, last, errors, self._bank.card.locals_count)


def _caution(radii: Float32) -> str:
    return (
        f"approximate: the bank holds int8 only, and each score is within {float(radii.max(initial=0)):.4f} of its "
        "fp16 value (docs/matching.md has the measured agreement)"
    )


def _code_errors(bank: Bank) -> Float32:
    """(N,) the most that a local vector of each picture lost when it became a code; 0 where there are no codes."""
    if bank.precision == "fp16":
        return np.zeros(len(bank), np.float32)

    def read() -> Float32:
        worst = np.zeros(bank.row_count, np.float32)
        for block in bank.blocks():
            assert block.local_errors is not None
            worst[block.start : block.start + len(block)] = block.local_errors.max(axis=1)
        return worst

    return np.asarray(recall(bank.stored, "code errors", read)[bank.rows], np.float32)
