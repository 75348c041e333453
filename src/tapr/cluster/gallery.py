"""A Gallery whose vectors are held and searched by actors of a Ray cluster."""

from __future__ import annotations

import copy
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapr.cluster.chunked_calls import Call
from tapr.cluster.connect import connect
from tapr.cluster.deployment import OpenedGallery, current, is_held
from tapr.cluster.files import is_url, remote_manifest
from tapr.cluster.group import EXACT, Span, spans_of
from tapr.cluster.group_calls import Groups, LayoutChanged, RetryPolicy
from tapr.cluster.merge import GroupResult, SparseHistogram, add, merge
from tapr.encoders.base import Encoder
from tapr.encoders.registry import refuse_other
from tapr.errors import BadInput, Unavailable
from tapr.gallery import Gallery
from tapr.index.arguments import encoder_of
from tapr.score.compile import CompiledQuery
from tapr.search.topk import TopK
from tapr.store import layout
from tapr.store.block import Block
from tapr.store.layout import Manifest
from tapr.types import Float32

T = TypeVar("T")

_LOOK_SECONDS = 1.0  # between two checks for a newer snapshot
_ATTEMPTS = 4  # how often a query is repeated because groups were re-partitioned


class ClusterGallery(Gallery):
    """The same interface and the same answers as Gallery. The catalogue is read here; vectors stay with the actors.

    `partial`: while a group is missing, answer from the others and report the missing share in the notes. Otherwise
    such a query fails with the reason.
    """

    def __init__(
        self,
        path: str | Path,
        encoder: Encoder | None = None,
        *,
        address: str = "auto",
        partial: bool = False,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        self._address, self.partial, self.retry_policy = address, partial, retry_policy or RetryPolicy()
        self._ray = connect(address)
        self._opened = OpenedGallery.at(path)
        current(self._ray, self._opened)  # raises if the cluster does not hold it
        self.path, self.manifest, self._catalog = self._opened.folder, self._opened.manifest, self._opened.catalog
        self._keys, self.rows = self._catalog.select()
        self._all_rows = self.rows
        self._groups = Groups(self._ray, self._opened.key, self._opened.snapshot)
        self.kernel_name = f"Ray, {self._groups.count} shard group{'s' if self._groups.count > 1 else ''}"
        self._latest, self._looked = self._opened.snapshot, time.monotonic()
        self._view: str | None = None
        self._sent: dict[tuple[int, int], Any] = {}  # (layout, group) -> the rows of a view, in the object store
        if encoder is not None:
            if isinstance(encoder_of(encoder), str):
                raise BadInput("a gallery names its own encoder: leave it out, or give the loaded encoder itself")
            refuse_other(self.manifest.card, encoder.card)
            self.__dict__["encoder"] = encoder

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        encoder: Encoder | None = None,
        address: str = "auto",
        partial: bool = False,
        retry_policy: RetryPolicy | None = None,
    ) -> ClusterGallery:
        """Open a gallery that `tapr cluster start` has loaded on the Ray cluster at `address`. `path` is a folder or a
        URL.
        """
        return cls(path, encoder, address=address, partial=partial, retry_policy=retry_policy)

    def reopen(self, encoder: Encoder | None = None) -> ClusterGallery:
        return type(self).open(
            self._opened.location,
            encoder=encoder,
            address=self._address,
            partial=self.partial,
            retry_policy=self.retry_policy,
        )

    def published(self) -> tuple[object, ...]:
        """Changes once the cluster holds a newly published snapshot; until then the old one is served."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            latest = self._manifest().snapshot
            if latest != self._opened.snapshot and latest is not None and is_held(self._ray, self._opened.key, latest):
                self._latest = latest
        return (self._latest,)

    def _manifest(self) -> Manifest:
        if not is_url(self._opened.location):
            return Manifest.read(self.path)
        return remote_manifest(self._opened.location)

    def select(self, condition: str) -> ClusterGallery:
        view = copy.copy(self)
        view._keys, view.rows = self._catalog.select(condition)
        view.condition, view._view, view._sent = condition, secrets.token_hex(8), {}
        return view

    def sync(self, *_: Any, **__: Any) -> NoReturn:
        raise BadInput("a gallery on a cluster is not indexed through it: run tapr index -g GALLERY --ray ADDRESS")

    def __repr__(self) -> str:
        return (
            f"<ClusterGallery {self._opened.location!r}: {len(self):,} pictures in {self._groups.count} shard groups>"
        )

    # vectors, which the actors hold

    @property
    def row_count(self) -> int:
        return self._catalog.rows_committed()

    @property
    def stored(self) -> object:
        return self._groups

    def blocks(self) -> Iterator[Block]:
        raise BadInput(
            "this reads every vector of the gallery, and a cluster's stay where they are: "
            "open the gallery itself, without Ray, or choose the method tapr"
        )

    def gather(self, rows: NDArray[np.int64]) -> Block:
        """The vectors of these rows; only fp16 if there are any, since codes are not needed for a few rows."""
        kinds = self.manifest.vector_kinds()
        wanted = EXACT if layout.LOCAL in kinds else tuple(kinds)
        parts = {kind: np.zeros((len(rows), *shape), dtype) for kind, (shape, dtype) in kinds.items() if kind in wanted}
        if len(rows):
            for here, found in self._anew(lambda spans: self._gather(rows, wanted, spans)):
                for kind, array in parts.items():
                    array[here] = found[kind]
        return layout.block_of(parts)

    def top_k_many(self, queries: Sequence[CompiledQuery], k: int) -> list[TopK]:
        if not len(self):
            none = np.zeros(0, np.int64)
            return [TopK(none, none.astype(np.float32), "none: there was nothing to match", True) for _ in queries]
        return self._anew(lambda spans: self._top_k(queries, k, spans))

    def histograms(self, targets: Float32) -> list[NDArray[np.int64]]:
        return self._anew(lambda spans: self._histograms(targets, spans))

    def _gather(
        self, rows: NDArray[np.int64], kinds: Sequence[str], spans: Sequence[Span]
    ) -> list[tuple[NDArray[np.int64], dict[str, Any]]]:
        places = np.searchsorted([span.stop for span in spans], rows, side="right")
        here = {int(group): np.flatnonzero(places == group) for group in np.unique(places)}
        stored = self.manifest.kinds()
        row_bytes = sum(math.prod(stored[kind][0]) * stored[kind][1].itemsize for kind in kinds)
        wanted = {
            group: Call((rows[inside] - spans[group].start, kinds), len(inside) * row_bytes)
            for group, inside in here.items()
        }
        answers, missing = self._groups.ask("gather", wanted, self.retry_policy)
        if missing:
            raise self._unavailable(missing, spans)
        return [(here[group], found) for group, found in answers.items()]

    def _top_k(self, queries: Sequence[CompiledQuery], k: int, spans: Sequence[Span]) -> list[TopK]:
        places, wanted = self._wanted(spans, (list(queries), k))
        answers, missing = self._groups.ask("top_k", wanted, self.retry_policy)
        remarks = self._remarks(missing, places, spans)
        kernels = [answer.kernel for answer in answers.values()]
        exact = all(answer.exact for answer in answers.values())
        merged = []
        for number in range(len(queries)):
            found = []
            for group, answer in answers.items():
                one: GroupResult = answer.found[number]
                found.append(replace(one, positions=one.positions + places[group].first))
            merged.append(merge(found, k, kernels, exact, remarks))
        return merged

    def _histograms(self, targets: Float32, spans: Sequence[Span]) -> list[NDArray[np.int64]]:
        places, wanted = self._wanted(spans, (targets,))
        answers, missing = self._groups.ask("histograms", wanted, self.retry_policy)
        self._remarks(missing, places, spans)  # raises if groups are missing; the note is added by the search itself
        counted: list[list[SparseHistogram]] = list(answers.values())
        return [add([counts[number] for counts in counted]) for number in range(len(targets))]

    def _wanted(self, spans: Sequence[Span], arguments: tuple[Any, ...]) -> tuple[list[Span], dict[int, Call]]:
        """The range of each group's pictures in this view, and the calls. Groups without pictures are not called."""
        if self._view is None:
            return list(spans), {group: Call(arguments) for group, span in enumerate(spans) if span.pictures}
        places = spans_of(self.rows, self.row_count, len(spans))
        wanted, arguments = {}, (*arguments, self._view)
        for group, span in enumerate(places):
            if span.pictures:
                key = self._groups.layout, group
                if key not in self._sent:
                    self._sent[key] = self._ray.put(self.rows[span.first : span.last] - span.start)
                wanted[group] = Call(arguments, shared=self._sent[key])
        return places, wanted

    def _anew(self, work: Callable[[Sequence[Span]], T]) -> T:
        """Repeat the work if the groups were re-partitioned meanwhile."""
        for _ in range(_ATTEMPTS):
            if not self._groups.count:
                self._groups.look()
            if not self._groups.count:
                break
            try:
                return work(spans_of(self._all_rows, self.row_count, self._groups.count))
            except LayoutChanged:
                continue
        raise Unavailable(
            f"the cluster no longer holds snapshot {self._opened.snapshot} of this gallery: open the gallery again, "
            "or run tapr cluster start"
        )

    def _remarks(self, missing: dict[int, str], places: Sequence[Span], spans: Sequence[Span]) -> tuple[str, ...]:
        if not missing:
            return ()
        if not self.partial or len(missing) == sum(place.pictures > 0 for place in places):
            raise self._unavailable(missing, spans)
        lost = sum(places[group].pictures for group in missing)
        return (
            f"incomplete: {_groups(missing, len(spans))} missing, with {lost:,} of {len(self):,} pictures "
            f"({lost / len(self):.1%}), which were not searched",
        )

    def _unavailable(self, missing: dict[int, str], spans: Sequence[Span]) -> Unavailable:
        lost = sum(spans[group].pictures for group in missing)
        reason = next(iter(missing.values()))
        return Unavailable(
            f"{_groups(missing, len(spans))} missing, with {lost:,} of {len(self._all_rows):,} pictures ({reason}): "
            "ask again in a moment"
        )


def _groups(missing: dict[int, str], count: int) -> str:
    numbers = ", ".join(str(group + 1) for group in sorted(missing))
    return f"shard group {numbers} of {count} is" if len(missing) == 1 else f"shard groups {numbers} of {count} are"
