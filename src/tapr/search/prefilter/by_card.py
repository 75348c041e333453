"""A search by stages with candidates and bounds from a GPU. Only what the bounds leave comes to the host.

What was left so far is a hunt of its own (stage.py), which reads and counts. It knows the pictures by their place among
those that are left.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np

from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Rows
from tapr.search.kernels.row_blocks import distinct
from tapr.search.prefilter.card import Bounded, Card
from tapr.search.prefilter.stage import Hunt, candidates_for
from tapr.search.topk import TopK
from tapr.types import Float32

_PIECE = 1 << 16  # pictures whose summaries the processor reads at a time


def top_k_by_card(
    query: CompiledQuery,
    card: Card,
    k: int,
    budget: Budget = "exact",
    deadline: float | None = None,
    floor: float | None = None,
) -> TopK:
    """As top_k_by_stages, of one query. Where time is limited, the most promising pictures come first."""
    search = _Search(query, card, k, budget)
    if floor is not None:
        search.hunt.given_floor = np.float32(floor)
    search.go_on_until(deadline)
    return search.result()


def best_scores(query: CompiledQuery, card: Card, k: int) -> Float32:
    """As floors_of, of one query."""
    hunt, _ = _Search(query, card, k, "exact").with_pictures()
    return hunt.best_scores()


class _Search:
    def __init__(self, query: CompiledQuery, card: Card, k: int, budget: Budget) -> None:
        self._query, self._card, self._k, self._budget = query, card, k, budget
        rows, self._places = distinct(card.bank.rows, card.bank.row_count)
        self._rows = np.arange(card.bank.row_count) if rows is None else rows
        self._found = card.resemblance(query, self._rows)
        count = min(candidates_for(k), len(self._rows))
        self._kept = card.best(self._found, count if budget == "exact" else min(budget, count))  # indices of rows
        self._unseen = len(self._rows) - len(self._kept)
        # of pictures that share a row, one counts up to the result: the floor is never too high
        self.hunt = self._hunt(None)
        self.hunt.read_best(len(self._kept))

    def go_on_until(self, deadline: float | None) -> None:
        if deadline is None:
            for piece in self._card.pieces(self._found):
                self._take(self._card.bounded(self._query, self._found, piece, self.hunt.floor()))
            self._unseen = 0
            self._read(None)
            return
        for piece in self._card.by_promise(self._found, self._kept):
            if monotonic() >= deadline:
                return
            self._take(self._card.bounded(self._query, self._found, piece, self.hunt.floor()))
            self._unseen -= len(piece)
            self._read(deadline)

    def result(self) -> TopK:
        (hunt, pictures), card = self.with_pictures(), self._card
        found = hunt.result(pictures)
        assert found.proof is not None
        proof = Proof(found.proof.read, found.proof.open + self._unseen, len(self._rows))
        return replace(found, kernel=card.name, remarks=card.remarks, exact=found.exact and proof.proven, proof=proof)

    def with_pictures(self) -> tuple[Hunt, Rows]:
        """The hunt, of the pictures at these positions of the gallery."""
        if self._places is None:
            return self.hunt, self._kept
        at = np.searchsorted(self._kept, self._places)
        pictures = np.flatnonzero(self._kept[np.minimum(at, len(self._kept) - 1)] == self._places)
        hunt = self._hunt(at[pictures])
        hunt.take(np.arange(len(self._kept)), self.hunt)
        return hunt, pictures

    def _hunt(self, places: Rows | None) -> Hunt:
        known = self._card.known(self._found, self._kept)
        return Hunt(
            self._query, self._card.bank, self._k, self._card.reader, self._rows[self._kept], places, self._budget,
            known.promise[0], known.targets[0],
        )  # fmt: skip

    def _take(self, bounded: Bounded) -> None:
        before, hunt = self._kept, self.hunt
        self._kept = np.union1d(before, bounded.left)
        self.hunt = self._hunt(None)
        self.hunt.highest[np.searchsorted(self._kept, bounded.left)] = bounded.highest
        self.hunt.take(np.searchsorted(self._kept, before), hunt)

    def _read(self, deadline: float | None) -> None:
        left = self.hunt.open()
        if not self._card.closer:
            for start in range(0, len(left), _PIECE):
                if deadline is not None and monotonic() >= deadline:
                    return
                self.hunt.bound(left[start : start + _PIECE], closer=True)
        self.hunt.read(left, deadline)
