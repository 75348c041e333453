"""Queries on a device: packed alone or together, and what the device finds out about them."""

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
    Facts,
    Packed,
    Probes,
    Vectors,
    groups_of,
    lost_of,
    needs_two,
    pack,
    probes_of,
)


class Packer:
    """Brings queries to one device. What it learns of a query there, it knows as long as the query lives.

    The device's facts about probes are read when they are needed, not when they are asked for: a scan can begin before.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._probes: WeakKeyDictionary[CompiledQuery, dict[Level, Probes]] = WeakKeyDictionary()
        self._lost: WeakKeyDictionary[CompiledQuery, dict[Level, NDArray[np.float64]]] = WeakKeyDictionary()
        self._alone: WeakKeyDictionary[CompiledQuery, dict[tuple[Level, int], Packed]] = WeakKeyDictionary()
        self._unread: list[tuple[list[Probes], Level, Facts]] = []
        self._company = Company([])  # that was packed last

    def lost(self, query: CompiledQuery, level: Level) -> NDArray[np.float64]:
        """See Kernel.lost."""
        self.settle()
        while level not in self._lost.get(query, {}):
            self.alone([query], level, padded_dim(query.dim))
            self.settle()
        return self._lost[query][level]

    def together(self, queries: Sequence[CompiledQuery], level: Level, dim: int) -> list[tuple[list[int], Packed]]:
        """Which of the queries share a sweep, and what they share it as; for a bank of this (padded) dim.

        It holds if `settle` then finds nothing to change.
        """
        if len(queries) == 1:
            return [([0], self.alone(queries, level, dim)[0])]
        if not self._company.is_of(queries):
            self._company = Company(queries)
        company = self._company
        if (level, dim) not in company.packs:
            probes = [self.probes_of(query, level) for query in queries]
            groups = list(groups_of(probes))
            packed = self._pack([[probes[q] for q in group] for group in groups], level, dim, company.vectors)
            company.packs[level, dim] = list(zip(groups, packed, strict=True))
        return company.packs[level, dim]

    def alone(self, queries: Sequence[CompiledQuery], level: Level, dim: int) -> list[Packed]:
        """Each query in a sweep of its own."""
        new = [query for query in queries if (level, dim) not in self._alone.get(query, {})]
        if new:
            packed = self._pack([[self.probes_of(query, level)] for query in new], level, dim)
            for query, one in zip(new, packed, strict=True):
                self._alone.setdefault(query, {})[level, dim] = one
        return [self._alone[query][level, dim] for query in queries]

    def settle(self) -> bool:
        """Read the facts that are still on their way; whether a query turns out to need another part."""
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
        if needs_two(probes, shown):
            self._probes[query][level] = replace(probes, pieces=2)
            self._alone.pop(query, None)
            self._company = Company([])
            return True
        self.know(query, level, lost_of(probes, left, lengths))
        return False

    def know(self, query: CompiledQuery, level: Level, lost: NDArray[np.float64]) -> None:
        self._lost.setdefault(query, {})[level] = lost

    def probes_of(self, query: CompiledQuery, level: Level) -> Probes:
        known = self._probes.setdefault(query, {})
        if level not in known:
            known[level] = probes_of(query, level)
        return known[level]

    def _pack(
        self, groups: Sequence[Sequence[Probes]], level: Level, dim: int, known: Vectors | None = None
    ) -> list[Packed]:
        packed, facts = pack(groups, level, dim, self._device, known)
        self._unread.append(([probes for group in groups for probes in group], level, facts))
        return packed


class Company:
    """Queries that are packed together, maybe at several levels: their vectors travel once. It keeps none alive."""

    def __init__(self, queries: Sequence[CompiledQuery]) -> None:
        self._queries = [ref(query) for query in queries]
        self.packs: dict[tuple[Level, int], list[tuple[list[int], Packed]]] = {}
        self.vectors: Vectors = {}

    def is_of(self, queries: Sequence[CompiledQuery]) -> bool:
        return len(queries) == len(self._queries) and all(
            known() is query for known, query in zip(self._queries, queries, strict=True)
        )
