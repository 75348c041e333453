"""Put and delete pictures one by one, without a look at the gallery's sources.

All operations of a call become one new snapshot, published as an index run publishes its own: at once and atomically. A
kill before that leaves the old state, and nobody was told otherwise; after it, all of it stands. Pictures of the
gallery's sources can be replaced and deleted too: their files are left alone and noted as hidden, so that the next
index run does not bring them back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tapr.encoders.base import Encoder
from tapr.errors import BadInput, Unavailable
from tapr.images.decode import BadImage, read_bytes, sha256_of
from tapr.index.captions import Describe, describer, describes_new
from tapr.index.encode import BATCH, NOT_NUMBERS, encode_checked
from tapr.index.load import Loaded
from tapr.store import uploads
from tapr.store.catalog import CAPTIONS, Catalog, Entry
from tapr.store.column_statistics import GalleryStatistics, LatestStatistics
from tapr.store.columns import Column, NotOfType, as_declared, type_of
from tapr.store.compact import compact
from tapr.store.layout import Manifest
from tapr.store.quota import Quota
from tapr.store.shards import ShardWriter
from tapr.store.snapshot import Draft, open_catalog
from tapr.store.write_log import Answer
from tapr.store.write_operations import (
    Content,
    Delete,
    Mistyped,
    Operation,
    Outcome,
    Put,
    UnknownId,
    What,
    WriteResult,
    earlier_result,
)


class StoppedRun(Unavailable):
    """An index run was stopped before it published; a write would lose its work."""


def apply_operations(
    folder: Path,
    manifest: Manifest,
    operations: Sequence[Operation],
    encoder: Callable[[], Encoder],
    describe: Describe | None,
    statistics: LatestStatistics,
    quota: Quota | None = None,
) -> list[Outcome]:
    """Publish a snapshot with all of them applied. The caller holds the writer's lock.

    `describe` takes the place of the encoder's captioner; `statistics` are those of the writer's last snapshot.
    """
    published = open_catalog(folder, manifest, wait=True)
    try:
        outcomes = [earlier_result(published, operation.key, operation.request) for operation in operations]
        open_ones = [i for i, outcome in enumerate(outcomes) if outcome is None]
        if open_ones:
            if quota is not None:  # before anything is encoded or stored
                refused = quota.refusals([operations[i] for i in open_ones], published, manifest)
                for i, refusal in refused.items():
                    outcomes[open_ones[i]] = refusal
                open_ones = [i for i in open_ones if outcomes[i] is None]
            work = _Work(folder, manifest, published, statistics)
            done = work.run([operations[i] for i in open_ones], encoder, describe) if open_ones else []
            for i, outcome in zip(open_ones, done, strict=True):
                outcomes[i] = outcome
    finally:
        published.close()
    assert all(outcome is not None for outcome in outcomes)
    return [outcome for outcome in outcomes if outcome is not None]


class _Work:
    def __init__(self, folder: Path, manifest: Manifest, published: Catalog, statistics: LatestStatistics) -> None:
        self._folder, self._manifest, self._published = folder, manifest, published
        self._statistics = statistics
        self._snapshot = manifest.snapshot + 1
        self._rows: dict[str, tuple[int, str | None]] = {}  # content -> row, caption
        self._unusable: set[str] = set()  # content hashes whose vectors are not finite
        self._replaced: list[str] = []  # upload files that no picture uses any more
        self._new: set[str] = set()  # ids that were put
        self._given: set[str] = set()  # names of columns of which they have a value
        self._columns = {column.name: column for column in published.columns()}

    def run(
        self, operations: Sequence[Operation], encoder: Callable[[], Encoder], describe: Describe | None
    ) -> list[Outcome]:
        refuse_stopped_run(self._folder, self._manifest, self._published)
        if all(self._is_idle(operation) for operation in operations):
            return [self._idle(operation) for operation in operations]
        draft = Draft(self._folder, self._manifest, self._published, alone=True)
        try:
            catalog = draft.begin()
            with ShardWriter(self._folder, self._manifest, catalog) as shards:
                self._encode(operations, catalog, shards, encoder, describe)
                outcomes = [self._apply(operation, catalog) for operation in operations]
                if all(isinstance(outcome, BadInput) for outcome in outcomes):
                    draft.discard()
                    return outcomes
                shards.commit()
            compact(self._folder, self._manifest, catalog)
            declared = {column.name: column.type for column in catalog.columns() if column.declared}
            statistics = catalog.retype(declared, self._new, self._counted(operations, catalog))
            catalog.commit()
            draft.publish()
            self._statistics.keep(self._manifest, self._snapshot, statistics)
        finally:
            draft.close()
        for path in self._replaced:
            uploads.delete(path)
        return outcomes

    def _counted(self, operations: Sequence[Operation], catalog: Catalog) -> GalleryStatistics | None:
        """The updated column statistics; None if the old ones are unknown."""
        statistics = self._statistics.take(self._manifest)
        if statistics is None:
            return None
        touched = {operation.id for operation in operations}
        known = set()
        for before in filter(None, map(self._published.by_id, touched)):
            statistics.remove(before.metadata)
            known.add(before.key)
        for after in sorted(filter(None, map(catalog.by_id, touched)), key=lambda entry: entry.key or 0):
            statistics.add(after.metadata, last=after.key not in known)  # a new key is larger than all others
        return statistics

    def _encode(
        self,
        operations: Sequence[Operation],
        catalog: Catalog,
        shards: ShardWriter,
        encoder: Callable[[], Encoder],
        describe: Describe | None,
    ) -> None:
        """Encode new content, each once."""
        new: dict[str, Content] = {}
        for operation in operations:
            content = operation.content if isinstance(operation, Put) else None
            if content is None or content.sha256 in self._rows:
                continue
            if same := catalog.by_sha256(content.sha256):
                assert same[0].row is not None
                self._rows[content.sha256] = same[0].row, same[0].caption
            else:
                new[content.sha256] = content
        contents = list(new.values())
        described = describes_new(self._manifest.card, catalog.get_state(CAPTIONS))
        for start in range(0, len(contents), BATCH):
            lot, used = contents[start : start + BATCH], encoder()
            describe = (describe or describer(used)) if described else None
            done = encode_checked(used, [Loaded(_entry(self._folder, "", one), one.pixels) for one in lot])
            row = shards.append(done.evidence)
            captions = list(describe(done.evidence)) if describe else [None] * len(done.evidence)
            for content, good in zip(lot, done.good, strict=True):
                if good:
                    self._rows[content.sha256] = row, captions.pop(0)
                    row += 1
                else:
                    self._unusable.add(content.sha256)

    def _apply(self, operation: Operation, catalog: Catalog) -> Outcome:
        # two requests with the same key may arrive together
        again = earlier_result(catalog, operation.key, operation.request)
        if again is not None:
            return again
        try:
            done = self._delete(operation, catalog) if isinstance(operation, Delete) else self._put(operation, catalog)
        except BadInput as error:
            return error
        if operation.key:
            catalog.written.keep_answer(operation.key, Answer(operation.request, done.to_json()))
        return done

    def _delete(self, operation: Delete, catalog: Catalog) -> WriteResult:
        before = _known(catalog, operation.id)
        self._take_out(before, catalog)
        return WriteResult(operation.id, "deleted", self._snapshot)

    def _put(self, operation: Put, catalog: Catalog) -> WriteResult:
        before = catalog.by_id(operation.id)
        known = before is not None and before.row is not None
        kept = before.metadata if before is not None and known else {}
        metadata = dict(kept if operation.metadata is None else operation.metadata)
        self._check_types(metadata, catalog, before, operation.mistyped)
        entry = self._entry_of(operation, before if known else None)
        entry = replace(entry, metadata=metadata)
        if known and before is not None and _same(before, entry):
            return _done(entry, "unchanged", self._snapshot)
        if before is not None and before.path != entry.path:
            self._take_out(before, catalog)
        catalog.put(entry)
        self._new.add(entry.id)
        self._given.update(metadata)
        if entry.path in self._replaced:  # removed by an earlier operation of this call
            self._replaced.remove(entry.path)
        return _done(entry, "replaced" if known else "created", self._snapshot)

    def _entry_of(self, operation: Put, before: Entry | None) -> Entry:
        content = operation.content
        if content is None:
            if before is None:
                raise UnknownId(
                    f"the gallery has no picture with the id {operation.id[:200]!r}: send one with the metadata"
                )
            if before.source == uploads.SOURCE:
                return before
            data = _file_of(before)
            path = uploads.path_of(self._folder, operation.id, before.sha256, data)
            entry = replace(before, path=str(path), key=None)
        else:
            if content.sha256 in self._unusable:
                raise BadInput(f"the picture cannot be used: {NOT_NUMBERS}")
            data, entry = content.data, _entry(self._folder, operation.id, content)
            row, caption = self._rows[content.sha256]
            entry = replace(entry, row=row, caption=caption)
            if before is not None and before.path == entry.path and uploads.damage_of(entry.path) is None:
                return before
        uploads.keep(entry.path, data)
        status = Path(entry.path).stat()
        return replace(entry, size=status.st_size, mtime_ns=status.st_mtime_ns, source=uploads.SOURCE, failure=None)

    def _check_types(
        self, metadata: dict[str, object], catalog: Catalog, before: Entry | None, mistyped: Mistyped
    ) -> None:
        """A column keeps the type that it has: one value must not turn a column of numbers into text."""
        for name, value in metadata.items():
            column = self._columns.get(name)
            if column is None:
                self._columns[name] = Column(name, type_of(value))  # for the other operations of this call
                continue
            if column.type == "text" and not column.declared:
                continue
            if not column.declared and not self._is_held_by_others(name, catalog, before):
                self._columns[name] = Column(name, type_of(value))
                continue
            try:
                metadata[name] = as_declared(value, column.type)
            except NotOfType as error:
                if mistyped == "null":
                    metadata[name] = None
                    continue
                how = "is declared a" if column.declared else "is a column of type"
                raise BadInput(f"{name!r} {how} {column.type}, and {error}: correct it, or leave it out") from None
        for name in [name for name, value in metadata.items() if value is None]:
            del metadata[name]

    def _is_held_by_others(self, name: str, catalog: Catalog, before: Entry | None) -> bool:
        own = None if before is None else before.key
        return name in self._given or catalog.is_column_held(name, besides=own)

    def _take_out(self, entry: Entry, catalog: Catalog) -> None:
        catalog.remove([entry.path])
        if entry.source == uploads.SOURCE:
            self._replaced.append(entry.path)
        else:
            catalog.written.hide([entry.path])

    # operations that change nothing

    def _is_idle(self, operation: Operation) -> bool:
        """Return whether the operation changes nothing and has no result to store."""
        before = self._published.by_id(operation.id)
        known = before is not None and before.row is not None
        if isinstance(operation, Delete):
            return not known
        if operation.content is None and not known:
            return True
        if operation.key or before is None or not known or before.source != uploads.SOURCE:
            return False
        same_picture = operation.content is None or operation.content.sha256 == before.sha256
        if operation.content is not None:  # what is damaged is written again
            same_picture = same_picture and uploads.damage_of(before.path) is None
        return same_picture and (operation.metadata is None or dict(operation.metadata) == before.metadata)

    def _idle(self, operation: Operation) -> Outcome:
        try:
            before = _known(self._published, operation.id)
        except UnknownId as error:
            return error
        return _done(before, "unchanged", self._snapshot - 1)


def refuse_stopped_run(folder: Path, manifest: Manifest, published: Catalog) -> None:
    """Refuse to write while a stopped index run has unpublished rows, because a write starts a new draft."""
    draft = Draft(folder, manifest, published)
    try:
        more = draft.begun and (
            draft.catalog.rows_committed() > published.rows_committed()
            or draft.catalog.generation() != published.generation()
        )
    finally:
        draft.close()
    if more:
        raise StoppedRun(
            f"an index run of {folder} was stopped half way, and a write would undo what it did: run tapr index again"
        )


def _known(catalog: Catalog, id_: str) -> Entry:
    entry = catalog.by_id(id_)
    if entry is None or entry.row is None:
        raise UnknownId(f"the gallery has no picture with the id {id_[:200]!r}")
    return entry


def _entry(folder: Path, id_: str, content: Content) -> Entry:
    path = uploads.path_of(folder, id_, content.sha256, content.data)
    return Entry(id_, str(path), len(content.data), -1, content.sha256, content.width, content.height)


def _file_of(entry: Entry) -> bytes:
    """The bytes of a source picture that becomes an upload."""
    try:
        data = read_bytes(entry.path)
    except BadImage as error:
        raise UnknownId(f"the file of {entry.id!r} {error}: send the picture with the metadata") from None
    if sha256_of(data) != entry.sha256:
        raise BadInput(f"the file of {entry.id!r} has changed since the last index run: send the picture too")
    return data


def _same(before: Entry, entry: Entry) -> bool:
    return before.path == entry.path and before.metadata == entry.metadata


def _done(entry: Entry, what: What, snapshot: int) -> WriteResult:
    return WriteResult(entry.id, what, snapshot, entry.width, entry.height, entry.sha256, entry.caption or None)
