"""A search of one query with candidates and bounds from a GPU. Only what the bounds leave comes to the host."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import numpy as np

from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Rows
from tapr.search.kernels.row_blocks import distinct
from tapr.search.prefilter.device_bank import Bounded, DeviceBank
from tapr.search.prefilter.rounds import Known, Scored
from tapr.search.prefilter.staged_search import PIECE, StagedSearch, candidate_count
from tapr.search.topk import TopK


class DeviceSearch:
    """What is left so far is a search of its own, which reads and counts: `_kept` are its rows among all."""

    def __init__(self, query: CompiledQuery, device: DeviceBank, k: int, budget: Budget, known: Known | None) -> None:
        self._query, self._device, self._k, self._budget = query, device, k, budget
        rows, self._places = distinct(device.bank.rows, device.bank.row_count)
        self._rows = np.arange(device.bank.row_count) if rows is None else rows
        self._found = device.resemblance(query, self._rows)
        if known is None:
            count = min(candidate_count(k), len(self._rows))
            self._kept = device.best(self._found, count if budget == "exact" else min(budget, count))  # indices of rows
        else:
            self._kept = np.searchsorted(self._rows, np.sort(known.candidates.rows))
        self._unseen = len(self._rows) - len(self._kept)
        # of pictures that share a row, one counts up to the result: the floor is never too high
        self._left = self._search_of_kept(None)
        if known is None:
            self._left.read_best()
        else:
            self._left.begin_with(known)

    def go_on_until(self, deadline: float | None) -> None:
        if deadline is None:
            for piece in self._device.pieces(self._found):
                self._take(self._device.bounded(self._query, self._found, piece, self._left.floor()))
            self._unseen = 0
            self._read(None)
            return
        for piece in self._device.by_promise(self._found, self._kept):
            if monotonic() >= deadline:
                return
            self._take(self._device.bounded(self._query, self._found, piece, self._left.floor()))
            self._unseen -= len(piece)
            self._read(deadline)

    def result(self) -> TopK:
        (search, pictures), device = self._with_pictures(), self._device
        found = search.result(pictures)
        assert found.proof is not None
        proof = Proof(found.proof.read, found.proof.open + self._unseen, len(self._rows))
        return replace(
            found, kernel=device.name, remarks=device.remarks, exact=found.exact and proof.proven, proof=proof
        )

    def scored(self) -> Scored:
        return self._with_pictures()[0].scored()

    def _with_pictures(self) -> tuple[StagedSearch, Rows]:
        """The search, of the pictures at these positions of the gallery."""
        if self._places is None:
            return self._left, self._kept
        pictures = np.flatnonzero(np.isin(self._places, self._kept))
        search = self._search_of_kept(np.searchsorted(self._kept, self._places[pictures]))
        search.take(np.arange(len(self._kept)), self._left)
        return search, pictures

    def _search_of_kept(self, places: Rows | None) -> StagedSearch:
        known = self._device.known(self._found, self._kept)
        return StagedSearch(
            self._query, self._device.bank, self._k, self._device.reader, self._rows[self._kept], places, self._budget,
            known.promise[0], known.targets[0],
        )  # fmt: skip

    def _take(self, bounded: Bounded) -> None:
        before, search = self._kept, self._left
        self._kept = np.union1d(before, bounded.left)
        self._left = self._search_of_kept(None)
        self._left.highest[np.searchsorted(self._kept, bounded.left)] = bounded.highest
        self._left.take(np.searchsorted(self._kept, before), search)

    def _read(self, deadline: float | None) -> None:
        left = self._left.open()
        if not self._device.closer:
            for start in range(0, len(left), PIECE):
                if deadline is not None and monotonic() >= deadline:
                    return
                self._left.bound(left[start : start + PIECE])
        self._left.read(left, deadline)
