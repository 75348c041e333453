"""A benchmark: queries, the gallery that each of them ranks, the pictures' files and a protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.submission import Submission
from tapr.evaluate.metrics import AnswerRanks, Outcome
from tapr.evaluate.protocol import Protocol
from tapr.types import Box
from tapr.utils.amounts import counted

if TYPE_CHECKING:
    from tapr.evaluate.cut_outs import CutOut

_SHOWN = 5


@dataclass(frozen=True)
class Query:
    id: str
    reference: str  # names of pictures
    edit: str
    right: tuple[str, ...] = ()  # right answers, the target first; none where they are hidden
    subset: tuple[str, ...] = ()  # CIRR: the members of the query's set
    groups: tuple[str, ...] = ()
    more: tuple[str, ...] = ()  # further references
    crop: Box | None = None  # the part of the first reference that counts
    concept: str = ""  # CIRCO: what the reference and the right answers share, in words

    @property
    def references(self) -> tuple[str, ...]:
        return (self.reference, *self.more)

    @property
    def composed(self) -> bool:
        """Return whether it has anything else than one whole reference."""
        return bool(self.more) or self.crop is not None


@dataclass(frozen=True)
class Part:
    """Queries that rank one gallery."""

    name: str
    gallery: tuple[str, ...]
    queries: tuple[Query, ...]


@dataclass(frozen=True)
class Dataset:
    protocol: Protocol
    parts: tuple[Part, ...]
    pictures: Mapping[str, Path]  # name -> file, of every picture of every gallery and every reference
    annotations: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # name of a picture -> why it does not take part
    # query id -> record kind -> payload, where the benchmark brings records of its own
    records: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    submission: Submission | None = None  # what its server wants; None: it has no server
    cut_outs: Mapping[str, CutOut] = field(default_factory=dict)  # pictures that are parts of files

    @property
    def queries(self) -> tuple[Query, ...]:
        return tuple(query for part in self.parts for query in part.queries)

    @property
    def gallery_size(self) -> int:
        return len({name for part in self.parts for name in part.gallery})

    def outcome(self, ranks: Sequence[tuple[AnswerRanks, ...]]) -> Outcome:
        """The ranks of every query, in order, as an Outcome."""
        ids, groups = zip(*((query.id, query.groups) for query in self.queries), strict=True)
        return Outcome(ids, tuple(ranks), groups, self.protocol.macro)

    def digest(self) -> str:
        """sha256 over the queries and galleries as they are ranked."""
        digest = hashlib.sha256()
        for part in self.parts:
            for query in part.queries:
                fields = [query.id, query.reference, query.edit, *query.right, "|", *query.subset]
                if query.composed:  # digests of other queries stay what they were
                    fields += ["|", *query.more, repr(query.crop)]
                digest.update(json.dumps(fields).encode())
            digest.update(json.dumps([part.name, *part.gallery]).encode())
        return digest.hexdigest()

    def missing(self) -> list[str]:
        """Names of the pictures whose file is not there."""
        return [name for name, path in self.pictures.items() if not path.is_file()]

    def without(self, missing: Mapping[str, str]) -> Dataset:
        """Leave out some pictures (name -> why), and drop queries that can no longer be asked or answered."""
        parts, dropped = [], 0
        for part in self.parts:
            queries = [
                replace(query, right=_kept(query.right, missing), subset=_kept(query.subset, missing))
                for query in part.queries
            ]
            if not self.protocol.hidden:
                queries = [query for query in queries if query.right]
            queries = [query for query in queries if missing.keys().isdisjoint(query.references)]
            dropped += len(part.queries) - len(queries)
            if queries:
                parts.append(Part(part.name, _kept(part.gallery, missing), tuple(queries)))
        named = ", ".join(f"{name}: {missing[name]}" for name in list(missing)[:_SHOWN])
        named += f", and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        if not parts:
            raise BadInput(f"no query is left without {counted(len(missing), 'picture')} left out ({named})")
        note = (
            f"{counted(len(missing), 'picture')} left out ({named}): the gallery that was really ranked has "
            f"{len({name for part in parts for name in part.gallery})} pictures and {dropped} queries were left out, "
            "so these figures are not the official ones"
        )
        pictures = {name: path for name, path in self.pictures.items() if name not in missing}
        left_out = {**self.left_out, **missing}
        return replace(self, parts=tuple(parts), pictures=pictures, notes=(*self.notes, note), left_out=left_out)

    def with_reference(self, keep: bool) -> Dataset:
        """The reference kept in the ranking, or removed, whatever the benchmark does."""
        if keep is self.protocol.keep_reference:
            return self
        official = "removes" if keep else "keeps"
        note = f"the benchmark's own protocol {official} the reference: these figures are not the official ones"
        return replace(self, protocol=replace(self.protocol, keep_reference=keep), notes=(*self.notes, note))

    def with_concepts(self) -> Dataset:
        """Put what reference and answers share into every edit, as many published numbers have it."""
        if not all(query.concept for query in self.queries):
            raise BadInput(f"{self.protocol.dataset} says nothing of what is shared: leave --shared-concept out")
        edits = {query.id: f"Find a picture that also {query.concept}, but {query.edit}" for query in self.queries}
        parts = [
            replace(part, queries=tuple(replace(query, edit=edits[query.id]) for query in part.queries))
            for part in self.parts
        ]
        protocol = replace(self.protocol, edit_text="Find a picture that also [shared_concept], but [relative_caption]")
        note = "every method read the shared concept too, so these figures compare only with published ones that did"
        return replace(self, protocol=protocol, parts=tuple(parts), notes=(*self.notes, note))

    def only(self, ids: Collection[str], origin: str) -> Dataset:
        """Some of the queries, by their ids; galleries stay whole."""
        known = {query.id for query in self.queries}
        lost = next((query_id for query_id in ids if query_id not in known), None)
        if lost is not None:
            raise BadInput(
                f"{origin} names the query {lost!r}, which {self.protocol.dataset} {self.protocol.split} has not"
            )
        parts = [replace(part, queries=tuple(q for q in part.queries if q.id in ids)) for part in self.parts]
        note = f"only {len(set(ids)):,} of {len(known):,} queries were asked, those of {origin}"
        return replace(self, parts=tuple(part for part in parts if part.queries), notes=(*self.notes, note))

    def limited(self, queries: int) -> Dataset:
        """About so many queries, spread evenly over the parts; galleries stay whole."""
        share = -(-queries // len(self.parts))
        parts = tuple(replace(part, queries=_spread(part.queries, share)) for part in self.parts)
        note = f"only {sum(len(part.queries) for part in parts)} of {len(self.queries)} queries were asked"
        return replace(self, parts=parts, notes=(*self.notes, note))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read the annotations {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise BadInput(f"{path} is not valid JSON ({error})") from None


def read_ids(path: Path) -> list[str]:
    """Ids of queries: a JSON list, or one per line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the ids of queries {str(path)!r}: {error}") from None
    if text.lstrip().startswith("["):
        return [str(one) for one in read_json(path)]
    return [line.strip() for line in text.splitlines() if line.strip()]


def find_file(data: Path, *candidates: str) -> Path:
    """The first candidate that exists under the data folder."""
    for name in candidates:
        if (data / name).is_file():
            return data / name
    raise BadInput(f"there is no {candidates[0]} under {str(data)!r}: give --data the benchmark's own folder")


def choose_split(split: str | None, allowed: tuple[str, ...], dataset: str) -> str:
    chosen = split or allowed[0]
    if chosen not in allowed:
        raise BadInput(f"{dataset} has the splits {', '.join(allowed)}, not {chosen!r}")
    return chosen


def each(rows: Any, path: Path, *fields: str) -> Iterator[dict[str, Any]]:
    """The rows of an annotation file, each with the fields that are needed."""
    if not isinstance(rows, list):
        raise BadInput(f"{path} must hold a list of queries")
    for number, row in enumerate(rows):
        for name in fields:
            if not isinstance(row, dict) or name not in row:
                raise BadInput(f"{path}: query {number} has no {name!r}")
        yield row


def _kept(names: tuple[str, ...], missing: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in missing)


def _spread(queries: tuple[Query, ...], count: int) -> tuple[Query, ...]:
    if count >= len(queries):
        return queries
    return tuple(queries[index * len(queries) // count] for index in range(count))
