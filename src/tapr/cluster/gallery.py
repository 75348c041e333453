"""A Gallery whose vectors are held and searched by actors of a Ray cluster."""

from __future__ import annotations

import copy
import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapr.cluster.actor import Answer
from tapr.cluster.chunked_calls import Call
from tapr.cluster.connect import connect
from tapr.cluster.deployment import OpenedGallery, current, is_held
from tapr.cluster.files import is_url, remote_manifest
from tapr.cluster.group import EXACT, Cut, Span, spans_of
from tapr.cluster.group_calls import Groups, LayoutChanged, RetryPolicy
from tapr.cluster.merge import GroupResult, SparseHistogram, add, merge, shares_of
from tapr.encoders.base import Encoder
from tapr.errors import BadInput, Unavailable
from tapr.gallery import Gallery
from tapr.options import Budget
from tapr.result import Proof
from tapr.score.compile import CompiledQuery
from tapr.search.plan import no_first_stage, pays_for
from tapr.search.prune import Known, Scored, floor_of
from tapr.search.topk import TopK
from tapr.store import layout
from tapr.store.block import Block
from tapr.store.layout import Manifest
from tapr.types import Float32

T = TypeVar("T")

_LOOK_SECONDS = 1.0  # between two checks for a newer snapshot
_ATTEMPTS = 4  # how often a query is repeated because groups were re-partitioned


@dataclass(frozen=True)
class Limits:
    """What a search by stages may read and take, all groups and both rounds together."""

    prefilter: Budget | None
    budget_ms: float | None
    begun: float  # time.monotonic()

    @property
    def asked(self) -> bool:
        return self.prefilter is not None or self.budget_ms is not None

    def shares(self, pictures: Mapping[int, int]) -> dict[int, Budget | None]:
        """How many each group may read, by its number of pictures. None: nobody asked."""
        if isinstance(self.prefilter, int):
            return dict(zip(pictures, shares_of(self.prefilter, list(pictures.values())), strict=True))
        return dict.fromkeys(pictures, "exact" if self.asked else None)

    def left_ms(self) -> float | None:
        if self.budget_ms is None:
            return None
        return max(0.0, self.budget_ms - 1000 * (time.monotonic() - self.begun))


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
        self.path = self._opened.folder
        self._show(self._opened.manifest, self._opened.catalog, *self._opened.catalog.select())
        self._all_rows = self.rows
        self._groups = Groups(self._ray, self._opened.key, self._opened.snapshot)
        self.kernel_name = f"Ray, {self._groups.count} shard group{'s' if self._groups.count > 1 else ''}"
        self._latest, self._looked = self._opened.snapshot, time.monotonic()
        self._view: str | None = None
        self._full_searches: set[int] = set()  # layouts whose kernels gain nothing by a first stage
        self._sent: dict[tuple[int, int], Any] = {}  # (layout, group) -> the rows of a view, in the object store
        self._use(encoder)

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

    def writer(self, **_: Any) -> NoReturn:
        raise BadInput("a gallery on a cluster is only read here: index it with tapr index -g GALLERY --ray ADDRESS")

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
            for here, found in self._anew(lambda cut: self._gather(rows, wanted, cut)):
                for kind, array in parts.items():
                    array[here] = found[kind]
        return layout.block_of(parts)

    def top_k_many(
        self,
        queries: Sequence[CompiledQuery],
        k: int,
        prefilter: Budget | None = None,
        budget_ms: float | None = None,
    ) -> list[TopK]:
        asked, begun = prefilter is not None or budget_ms is not None, time.monotonic()
        if asked and not self.manifest.first_stage:
            raise no_first_stage()
        if not len(self):
            none, proof = np.zeros(0, np.int64), Proof(0, 0, 0) if asked else None
            nothing = TopK(none, none.astype(np.float32), "none: there was nothing to match", True, proof=proof)
            return [nothing] * len(queries)
        if asked or (self.manifest.first_stage and pays_for(len(self), k)):
            limits = Limits(prefilter, budget_ms, begun)
            return self._anew(lambda cut: self._by_stages(queries, k, limits, cut) or self._top_k(queries, k, cut))
        return self._anew(lambda cut: self._top_k(queries, k, cut))

    def histograms(self, targets: Float32) -> list[NDArray[np.int64]]:
        return self._anew(lambda cut: self._histograms(targets, cut))

    def _gather(
        self, rows: NDArray[np.int64], kinds: Sequence[str], cut: Cut
    ) -> list[tuple[NDArray[np.int64], dict[str, Any]]]:
        spans = cut.spans
        places = np.searchsorted([span.stop for span in spans], rows, side="right")
        here = {int(group): np.flatnonzero(places == group) for group in np.unique(places)}
        stored = self.manifest.kinds()
        row_bytes = sum(math.prod(stored[kind][0]) * stored[kind][1].itemsize for kind in kinds)
        wanted = {
            group: Call((rows[inside] - spans[group].start, kinds), len(inside) * row_bytes)
            for group, inside in here.items()
        }
        answers, missing = self._groups.ask("gather", wanted, self.retry_policy, cut.layout)
        if missing:
            raise self._unavailable(missing, spans)
        return [(here[group], found) for group, found in answers.items()]

    def _top_k(self, queries: Sequence[CompiledQuery], k: int, cut: Cut) -> list[TopK]:
        same = (list(queries), k)
        answers, missing = self._ask("top_k", cut, dict.fromkeys(self._searched(cut), same))
        return self._merged(answers, missing, k, [answer.kernel for answer in answers.values()], cut)

    def _by_stages(self, queries: Sequence[CompiledQuery], k: int, limits: Limits, cut: Cut) -> list[TopK] | None:
        """In two rounds: prefilter/rounds.py. None where nobody asked for it and a full search is faster."""
        if not limits.asked and cut.layout in self._full_searches:
            return None
        most = limits.shares({group: self._places(cut)[group].pictures for group in self._searched(cut)})
        same = list(queries)
        answers, missing = self._ask("candidates", cut, {group: (same, k, most[group]) for group in most}, limits.begun)
        self._remarks(missing, cut)
        kernels = [answer.kernel for answer in answers.values()]
        candidates: dict[int, list[Scored]] = {}
        for group, answer in answers.items():
            if answer.found is None:
                self._full_searches.add(cut.layout)
                return None
            candidates[group] = answer.found
        while True:
            floors = [floor_of([found[number] for found in candidates.values()], k) for number in range(len(same))]
            second = {
                group: (
                    same,
                    k,
                    list(map(Known, found, floors)),
                    "exact" if most[group] is None else most[group],
                    limits.left_ms(),
                )
                for group, found in candidates.items()
            }
            answers, lost = self._ask("top_k_by_stages", cut, second, limits.begun)
            missing |= lost
            self._remarks(missing, cut)
            if not lost:
                kernels += [answer.kernel for answer in answers.values()]
                return self._merged(answers, missing, k, kernels, cut)
            # their pictures may have made the floors
            candidates = {group: found for group, found in candidates.items() if group not in lost}

    def _merged(
        self, answers: Mapping[int, Answer], missing: Mapping[int, str], k: int, kernels: Sequence[str], cut: Cut
    ) -> list[TopK]:
        remarks, places = self._remarks(missing, cut), self._places(cut)
        exact = all(answer.exact for answer in answers.values())
        lost = [self.rows[places[group].first : places[group].last] for group in missing]
        merged = []
        for several in zip(*(_placed(answer.found, places[group]) for group, answer in answers.items()), strict=True):
            merged.append(merge(several, k, kernels, exact, remarks, sum(len(np.unique(rows)) for rows in lost)))
        return merged

    def _histograms(self, targets: Float32, cut: Cut) -> list[NDArray[np.int64]]:
        same = (targets,)
        answers, missing = self._ask("histograms", cut, dict.fromkeys(self._searched(cut), same))
        self._remarks(missing, cut)  # raises if groups are missing; the note is added by the search itself
        counted: list[list[SparseHistogram]] = list(answers.values())
        return [add([counts[number] for counts in counted]) for number in range(len(targets))]

    def _ask(
        self, method: str, cut: Cut, arguments: Mapping[int, tuple[Any, ...]], begun: float | None = None
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Ask groups about their pictures in this view."""
        places, calls, policy = self._places(cut), {}, self.retry_policy
        for group, given in arguments.items():
            if self._view is None:
                calls[group] = Call(given)
                continue
            key, place = (cut.layout, group), places[group]
            if key not in self._sent:
                self._sent[key] = self._ray.put(self.rows[place.first : place.last] - cut.spans[group].start)
            calls[group] = Call((*given, self._view), shared=self._sent[key])
        if begun is not None:
            policy = replace(policy, seconds=max(0.0, begun + policy.seconds - time.monotonic()))
        return self._groups.ask(method, calls, policy, cut.layout)

    def _places(self, cut: Cut) -> Sequence[Span]:
        """The range of each group's pictures in this view."""
        return cut.spans if self._view is None else spans_of(self.rows, self.row_count, len(cut.spans))

    def _searched(self, cut: Cut) -> list[int]:
        """Groups without pictures in this view are not asked."""
        return [group for group, place in enumerate(self._places(cut)) if place.pictures]

    def _anew(self, work: Callable[[Cut], T]) -> T:
        """Repeat the work if the groups were re-partitioned meanwhile."""
        for _ in range(_ATTEMPTS):
            if not self._groups.count:
                self._groups.look()
            layout_number, count = self._groups.shape()
            if not count:
                break
            try:
                return work(Cut(layout_number, spans_of(self._all_rows, self.row_count, count)))
            except LayoutChanged:
                continue
        raise Unavailable(
            f"the cluster no longer holds snapshot {self._opened.snapshot} of this gallery: open the gallery again, "
            "or run tapr cluster start"
        )

    def _remarks(self, missing: Mapping[int, str], cut: Cut) -> tuple[str, ...]:
        """Raises if groups are missing that must not be."""
        if not missing:
            return ()
        places, spans = self._places(cut), cut.spans
        if not self.partial or len(missing) == len(self._searched(cut)):
            raise self._unavailable(missing, spans)
        lost = sum(places[group].pictures for group in missing)
        return (
            f"incomplete: {_groups(missing, len(spans))} missing, with {lost:,} of {len(self):,} pictures "
            f"({lost / len(self):.1%}), which were not searched",
        )

    def _unavailable(self, missing: Mapping[int, str], spans: Sequence[Span]) -> Unavailable:
        lost = sum(spans[group].pictures for group in missing)
        reason = next(iter(missing.values()))
        return Unavailable(
            f"{_groups(missing, len(spans))} missing, with {lost:,} of {len(self._all_rows):,} pictures ({reason}): "
            "ask again in a moment"
        )


def _placed(found: Sequence[GroupResult], place: Span) -> Iterator[GroupResult]:
    return (replace(one, positions=one.positions + place.first) for one in found)


def _groups(missing: Mapping[int, str], count: int) -> str:
    numbers = ", ".join(str(group + 1) for group in sorted(missing))
    return f"shard group {numbers} of {count} is" if len(missing) == 1 else f"shard groups {numbers} of {count} are"
