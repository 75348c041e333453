"""A search that scores few pictures exactly, and knows whether the answer is exact.

Every picture gets an upper bound of its score from its global vector and its summary. The engine's candidates are
scored exactly; the k-th best of them is the threshold. Then pictures are scored in the order of their bounds until no
remaining bound reaches the threshold (the answer is proven), or until the budget is used up.
"""

from __future__ import annotations

import numpy as np

from tapr.errors import BadInput
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Bank, Kernel, RankingKernel, Rows
from tapr.search.kernels.bounds import error_bound, radius
from tapr.search.kernels.row_blocks import parts_of
from tapr.search.kernels.top_scores import best_of, refuse_odd_scores
from tapr.search.prefilter.engine import Engine
from tapr.search.prefilter.summary import Summary
from tapr.search.sweep import check, score_rows
from tapr.search.topk import RemoteBank, TopK, row_errors
from tapr.store.codec import LONGEST
from tapr.types import Float32

_ULP = 2.0**-24
_CANDIDATES = 512  # candidates from the engine if the budget is unlimited
_BATCH = 256  # least number of pictures scored at a time


def refuse_elsewhere(bank: object) -> None:
    if isinstance(bank, RemoteBank):
        raise BadInput("a first stage searches on one machine: leave out prefilter, or open the gallery without Ray")


def top_k_by_stages(
    query: CompiledQuery, bank: Bank, k: int, summary: Summary, engine: Engine, kernel: Kernel, budget: Budget
) -> TopK:
    """The k best: those of top_k if `proof.proven`, otherwise the best of the pictures that were scored."""
    if k < 1:
        raise BadInput(f"k must be at least 1, not {k}")
    check([query], bank)
    refuse_elsewhere(bank)
    rows, places = np.unique(bank.rows, return_inverse=True)  # identical pictures share a row
    hunt = _PrefilteredSearch(query, bank, k, kernel, rows, places)
    most = len(rows) if budget == "exact" else min(budget, len(rows))
    highest = hunt.highest(summary)
    wanted = min(_CANDIDATES, most) if budget == "exact" else most
    hunt.read(_known_rows(engine.candidates(query, wanted), rows)[:most])
    while (left := hunt.open(highest)).size and hunt.count < most:
        lot = min(max(_BATCH, hunt.count // 4), most - hunt.count)
        hunt.read(left[np.argsort(-highest[left], kind="stable")[:lot]])
    return hunt.result(Proof(hunt.count, len(left), len(rows)))


class _PrefilteredSearch:
    """The rows of one query: which were scored, and their scores."""

    def __init__(self, query: CompiledQuery, bank: Bank, k: int, kernel: Kernel, rows: Rows, places: Rows) -> None:
        self._query, self._bank, self._k, self._kernel, self._rows, self._places = query, bank, k, kernel, rows, places
        self._level = kernel.levels(bank)[-1]
        self._scores = np.full(len(rows), -np.inf, np.float32)
        self._read = np.zeros(len(rows), bool)

    @property
    def count(self) -> int:
        return int(self._read.sum())

    def highest(self, summary: Summary) -> Float32:
        """(R,): the highest score that the kernel can give each row."""
        if len(summary) != self._bank.row_count:
            raise BadInput("the first stage has not as many pictures as the gallery: run tapr first-stage again")
        query, level = self._query, self._level
        target = np.asarray(query.target, np.float32) * np.float32(query.target_weight)
        global_probes = [
            (block.global_vectors if inside is None else block.global_vectors[inside]).astype(np.float32)
            for block, inside in parts_of(self._bank, self._rows)
        ]
        found = np.concatenate([part @ target for part in global_probes]) if global_probes else np.zeros(0, np.float32)
        found = found + summary.highest(query, self._rows)
        # how far the kernel's score can exceed the definition's: local terms, then the target on both sides
        own = error_bound(query, self._kernel, level, level if level.codes else None, self._bank.card.locals_count)
        rounding = float(own.of(np.zeros(1, np.float32), np)[0])
        length = float(np.linalg.norm(target.astype(np.float64)))
        rounding += 4 * (query.dim + 16) * _ULP * length * LONGEST + 32 * _ULP
        return np.asarray(np.nextafter(found + np.float32(rounding), np.float32(np.inf)))

    def read(self, chosen: Rows) -> None:
        rows = self._rows[chosen]
        if not len(rows):
            return
        if isinstance(self._kernel, RankingKernel):
            (scores,) = self._kernel.read([self._query], self._bank, self._level, [rows])
            refuse_odd_scores(scores)
        else:
            scores = score_rows([self._query], self._bank, self._kernel, self._level, rows)[0]
        self._scores[chosen], self._read[chosen] = scores, True

    def open(self, highest: Float32) -> Rows:
        """Rows that are not scored yet and can still be among the k best, ties included."""
        scores = self._scores[self._places]  # per picture: some share a row
        floor = np.partition(scores, -self._k)[-self._k] if self._k <= len(scores) else np.float32(-np.inf)
        return np.flatnonzero(~self._read & (highest >= floor))

    def result(self, proof: Proof) -> TopK:
        positions = np.flatnonzero(self._read[self._places])
        scores = self._scores[self._places[positions]]
        best = best_of(scores, self._k)
        positions, scores = positions[best], scores[best]
        exact = not self._level.codes
        errors = None if exact else row_errors(self._bank)[self._bank.rows[positions]]
        count = self._bank.card.locals_count
        radii = None if errors is None else radius(self._query, self._kernel, self._level, None, errors, count)
        return TopK(positions, scores, self._kernel.name, exact and proof.proven, None, radii, proof=proof)


def _known_rows(found: Rows, rows: Rows) -> Rows:
    """Indices of the engine's rows among the searched rows, without unknown rows and repeats."""
    found = np.asarray(list(dict.fromkeys(found.tolist())), np.int64)
    places = np.searchsorted(rows, found)
    inside = places < len(rows)
    inside[inside] = rows[places[inside]] == found[inside]
    return np.asarray(places[inside], np.int64)
