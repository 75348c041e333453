"""Sends queries to a device, alone or together, and caches what the device reports about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from tapr.score.compile import CompiledQuery
from tapr.search.kernels.base import Level
from tapr.search.kernels.gpu_bank import padded_dim
from tapr.search.kernels.gpu_pack import (
    PackedQueries,
    ProbeErrors,
    Probes,
    Vectors,
    groups_of,
    lost_of,
    needs_second_part,
    pack,
    probes_of,
)


class QueryPacker:
    """Packs queries for one device. Results are cached as long as the query object lives.

    Probe errors are read only when they are needed, so that a scan can start before they arrive.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._probes: WeakKeyDictionary[CompiledQuery, dict[Level, Probes]] = WeakKeyDictionary()
        self._losses: WeakKeyDictionary[CompiledQuery, dict[Level, NDArray[np.float64]]] = WeakKeyDictionary()
        self._alone: WeakKeyDictionary[CompiledQuery, dict[tuple[Level, int], PackedQueries]] = WeakKeyDictionary()
        self._unread: list[tuple[list[Probes], Level, ProbeErrors]] = []
        self._last_batch = QueryBatch([])  # the last batch that was packed

    def rounding_loss(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """See Kernel.rounding_loss."""
        self.read_errors()
        while level not in self._losses.get(query, {}):
            self.pack_alone([query], level, padded_dim(query.dim))
            self.read_errors()
        return self._losses[query][level]

    def pack_together(
        self, queries: Sequence[CompiledQuery], level: Level, dim: int
    ) -> list[tuple[list[int], PackedQueries]]:
        """Groups of queries that share a sweep, packed, for a bank with this (padded) dim.

        Valid only if `read_errors` then returns False.
        """
        if len(queries) == 1:
            return [([0], self.pack_alone(queries, level, dim)[0])]
        if not self._last_batch.is_same(queries):
            self._last_batch = QueryBatch(queries)
        batch = self._last_batch
        if (level, dim) not in batch.packs:
            probes = [self.probes_of(query, level) for query in queries]
            groups = list(groups_of(probes))
            packed = self._pack([[probes[q] for q in group] for group in groups], level, dim, batch.vectors)
            batch.packs[level, dim] = list(zip(groups, packed, strict=True))
        return batch.packs[level, dim]

    def pack_alone(self, queries: Sequence[CompiledQuery], level: Level, dim: int) -> list[PackedQueries]:
        """Each query packed for its own sweep."""
        new = [query for query in queries if (level, dim) not in self._alone.get(query, {})]
        if new:
            packed = self._pack([[self.probes_of(query, level)] for query in new], level, dim)
            for query, one in zip(new, packed, strict=True):
                self._alone.setdefault(query, {})[level, dim] = one
        return [self._alone[query][level, dim] for query in queries]

    def read_errors(self) -> bool:
        """Read the probe errors that have arrived. Returns whether a query must be packed again with second parts."""
        again, unread, self._unread = False, self._unread, []
        for every, level, facts in unread:
            start, found = 0, facts.read()
            for probes in every:
                stop = start + len(probes)
                again |= self._learn(probes, level, found[:, start:stop].astype(np.float64))
                start = stop
        return again

    def _learn(self, probes: Probes, level: Level, facts: NDArray[np.float64]) -> bool:
        query, (left, lengths, shown) = probes.query, facts
        if needs_second_part(probes, shown):
            self._probes[query][level] = replace(probes, pieces=2)
            self._alone.pop(query, None)
            self._last_batch = QueryBatch([])
            return True
        self.set_rounding_loss(query, level, lost_of(probes, left, lengths))
        return False

    def set_rounding_loss(self, query: CompiledQuery, level: Level, rounding_loss: NDArray[np.float64]) -> None:
        self._losses.setdefault(query, {})[level] = rounding_loss

    def probes_of(self, query: CompiledQuery, level: Level) -> Probes:
        known = self._probes.setdefault(query, {})
        if level not in known:
            known[level] = probes_of(query, level)
        return known[level]

    def _pack(
        self, groups: Sequence[Sequence[Probes]], level: Level, dim: int, known: Vectors | None = None
    ) -> list[PackedQueries]:
        packed, facts = pack(groups, level, dim, self._device, known)
        self._unread.append(([probes for group in groups for probes in group], level, facts))
        return packed


class QueryBatch:
    """Queries that are packed together, perhaps at several levels; their vectors are sent once. Does not keep queries
    alive.
    """

    def __init__(self, queries: Sequence[CompiledQuery]) -> None:
        self._queries = [ref(query) for query in queries]
        self.packs: dict[tuple[Level, int], list[tuple[list[int], PackedQueries]]] = {}
        self.vectors: Vectors = {}

    def is_same(self, queries: Sequence[CompiledQuery]) -> bool:
        return len(queries) == len(self._queries) and all(
            known() is query for known, query in zip(self._queries, queries, strict=True)
        )
