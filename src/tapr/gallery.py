"""Gallery: a set of pictures with their vectors and metadata, which can be opened, filtered and read in blocks.

What changes a gallery is in tapr.index, which is loaded when it is needed: a search does not load it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.registry import encoder_of, refuse_other
from tapr.errors import BadInput, TaprError
from tapr.store import layout
from tapr.store.block import Block, Precision
from tapr.store.catalog import Catalog, Entry
from tapr.store.columns import Column
from tapr.store.facets import Facet
from tapr.store.layout import Manifest
from tapr.store.own_encoder import load_own_encoder
from tapr.store.quota import Usage
from tapr.store.shards import lacks_first_stage, summariser_in
from tapr.store.snapshot import Snapshot
from tapr.store.summary import Subspaces
from tapr.store.write_operations import Operation, Outcome, WriteResult, earlier_result
from tapr.utils.amounts import counted
from tapr.utils.arguments import folder_of
from tapr.utils.progress import Progress
from tapr.utils.weak_cache import cached_for

if TYPE_CHECKING:  # whoever only searches does not load what writes
    from tapr.index.captions import Describe
    from tapr.index.options import IndexOptions
    from tapr.index.repair import Repair
    from tapr.index.report import Report
    from tapr.index.writer import Writer


class Gallery:
    """An open, read-only snapshot of a set of pictures. `Gallery.build(...)` creates or updates one.

    It does not change when another process indexes: open it again to see the new state. What this object itself writes
    (`sync`, `put`, `delete`, `apply`), it shows afterwards.
    """

    rows: NDArray[np.int64]  # (N,) the physical row of each picture, in gallery order
    condition: str | None = None  # the condition of `select`
    report: Report | None = None  # report of the index run of `build`
    kernel_name: str | None = None  # the kernel's name, if it runs in another process
    _usage: Usage | None = None  # counted when asked for

    def __init__(self, path: str | Path, encoder: Encoder | None = None) -> None:
        self.path = folder_of(path)
        self._open_snapshot()
        self._use(encoder)

    @classmethod
    def open(cls, path: str | Path, *, encoder: Encoder | None = None) -> Gallery:
        return cls(path, encoder)

    # writing: tapr.index.writer does it

    @classmethod
    def build(
        cls,
        path: str | Path,
        images: str | Path | Iterable[str | Path] = (),
        encoder: str | Encoder | None = None,
        precision: Precision | None = None,
        *,
        progress: Progress | None = None,
        **options: Any,
    ) -> Gallery:
        """Index pictures into the folder `path`, or bring it up to date with them; `report` says what was done.

        `options` are the other fields of tapr.index.options.IndexOptions.
        """
        from tapr.index.options import IndexOptions
        from tapr.index.writer import Writer

        asked = IndexOptions.of(images=images, encoder=encoder, precision=precision, **options)
        return cls.built(Writer(path, progress=progress), asked)

    @classmethod
    def built(cls, writer: Writer, options: IndexOptions) -> Gallery:
        """Let a writer build the gallery, and open it."""
        report = writer.build(options)
        gallery = cls(writer.folder, writer.encoder)
        gallery.report = report
        return gallery

    def sync(
        self,
        images: str | Path | Iterable[str | Path] = (),
        *,
        progress: Progress | None = None,
        describe: Describe | None = None,
        **options: Any,
    ) -> Report:
        """Follow the files: add new ones, drop deleted ones, keep renamed ones; resumes an interrupted run.

        `images` are further sources. `options` and `describe` as for `build`.
        """
        from tapr.index.options import IndexOptions

        report = self.writer(progress=progress, describe=describe).sync(IndexOptions.of(images=images, **options))
        self._open_snapshot()
        return report

    def put(self, id_: str, picture: bytes | None = None, metadata: Mapping[str, Any] | None = None) -> WriteResult:
        """Add or replace one picture without scanning the sources. None keeps the current value.

        The gallery stores the picture's bytes itself; index runs keep it.
        """
        result = self._own_writer.put(id_, picture, metadata)
        self._open_snapshot()
        return result

    def delete(self, id_: str) -> WriteResult:
        """Remove one picture. If it came from a source, its file stays, and index runs ignore it."""
        result = self._own_writer.delete(id_)
        self._open_snapshot()
        return result

    def apply(self, operations: Sequence[Operation], *, wait: float | None = None) -> list[Outcome]:
        """Apply all operations as one new snapshot. An invalid operation does not stop the others."""
        outcomes = self._own_writer.apply(operations, wait=wait)
        self._open_snapshot()
        return outcomes

    @classmethod
    def repair(
        cls,
        path: str | Path,
        *,
        encoder: Encoder | None = None,
        progress: Progress | None = None,
        wait: float | None = None,
    ) -> tuple[Gallery, Repair]:
        """Encode again what is damaged in the files of the gallery at `path`, and open it; see tapr.store.verify.

        Pictures whose files are gone or changed cannot be: they leave the gallery as failures, and are named.
        """
        from tapr.index.writer import Writer

        given = None if encoder is None else lambda: encoder
        report = Writer(path, given, progress=progress).repair(wait=wait)
        return cls(path, encoder), report

    @classmethod
    def add_first_stage(cls, path: str | Path, *, progress: Progress | None = None, wait: float | None = None) -> bool:
        """Summarise the pictures of the gallery at `path`, so that searches read few of them: docs/scaling.md.

        From then on every write keeps the summaries true. False where the gallery has them already.
        """
        from tapr.index.writer import Writer

        return Writer(path, progress=progress).add_first_stage(wait=wait)

    def writer(self, *, progress: Progress | None = None, describe: Describe | None = None) -> Writer:
        """Return what changes this gallery; to see its snapshots, open the gallery again."""
        from tapr.index.writer import Writer

        return Writer(self.path, lambda: self.encoder, progress=progress, describe=describe)

    @cached_property
    def _own_writer(self) -> Writer:
        return self.writer()

    # which snapshot it is

    def usage(self) -> Usage:
        """Pictures and bytes that count for a quota."""
        if self._usage is None:
            self._usage = Usage.of(self._catalog, self.manifest)
        return self._usage.with_searches(self.path)

    def earlier_result(self, key: str | None, request: str) -> Outcome | None:
        """The result of an earlier request with the same idempotency key; None if there was none."""
        return earlier_result(self._catalog, key, request)

    def lacks_first_stage(self) -> bool:
        """Return whether the next index run would add one; one that is only written to over HTTP has no such run."""
        return lacks_first_stage(self.manifest, self._catalog)

    def reopen(self, encoder: Encoder | None = None) -> Gallery:
        """The newest snapshot of the gallery."""
        return type(self).open(self.path, encoder=encoder)

    def published(self) -> tuple[object, ...]:
        """A value that changes with every published snapshot."""
        try:
            status = (self.path / layout.MANIFEST).stat()
            return status.st_mtime_ns, status.st_ino
        except OSError:
            raise TaprError("the gallery's manifest cannot be read: restore it, or index the pictures again") from None

    # what is in it

    @property
    def card(self) -> EncoderCard:
        return self.manifest.card

    @property
    def precision(self) -> Precision:
        return self.manifest.precision

    @cached_property
    def encoder(self) -> Encoder:
        """The gallery's encoder, loaded on first use. Refused if its weights differ."""
        return load_own_encoder(self.manifest)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<Gallery {str(self.path)!r}: {counted(len(self), 'picture')}, {self.card.name}, {self.precision}>"

    def ids(self) -> list[str]:
        return [entry.id for entry in self.entries(np.arange(len(self)))]

    def entries(self, positions: Sequence[int] | NDArray[np.int64]) -> list[Entry]:
        """Catalogue entries of the pictures at these gallery positions."""
        return self._catalog.by_keys(self._keys[np.asarray(positions, np.int64)].tolist())

    def find(self, id_: str) -> Entry | None:
        """The picture with this id, even if `select` excluded it."""
        if any("\ud800" <= character <= "\udfff" for character in id_):
            return None  # a lone surrogate cannot be in a catalogue
        entry = self._catalog.by_id(id_)
        return entry if entry is not None and entry.row is not None else None

    def position_of(self, id_: str) -> int:
        entry = self.find(id_)
        if entry is None:
            raise BadInput(f"the gallery has no picture with the id {id_!r}")
        positions = np.flatnonzero(self._keys == entry.key)
        if not len(positions):
            raise BadInput(f"the picture {id_!r} is not among those for which {self.condition}")
        return int(positions[0])

    def holds(self, sha256: str) -> bool:
        """Return whether a picture has this content, whatever the filter."""
        return bool(self._catalog.by_sha256(sha256))

    def positions_of(self, sha256: str) -> NDArray[np.int64]:
        """Positions of the pictures with this content."""
        keys = [entry.key for entry in self._catalog.by_sha256(sha256) if entry.key is not None]
        return np.flatnonzero(np.isin(self._keys, keys))

    def failures(self) -> list[Entry]:
        return self._catalog.failures()

    def sources(self) -> list[str]:
        return self._catalog.sources()

    def columns(self) -> list[Column]:
        """The columns of the metadata and their types; filters also know built-in ones (docs/where.md)."""
        return self._catalog.columns()

    def facets(self) -> list[Facet]:
        """The values and ranges of the columns, for choosing filters; computed once."""
        return self._catalog.facets

    def metadata_keys(self) -> list[str]:
        return [column.name for column in self.columns()]

    def pictures_by_source(self) -> dict[str, int]:
        return self._catalog.counts_by_source()

    def folders_of(self, source: str) -> set[str]:
        """The folders of the files of a source; a table's files may be anywhere."""
        return self._catalog.folders_of(source)

    def select(self, condition: str) -> Gallery:
        """A view of the gallery with only the pictures that meet a `where` condition."""
        view = copy.copy(self)
        view._keys, view.rows = self._catalog.select(condition)
        view.condition = condition
        return view

    def hide_columns(self, names: Collection[str]) -> None:
        """Leave columns out of entries, facets and filters. Call it before anything is read."""
        self._catalog.hidden = names

    # the evidence

    @property
    def row_count(self) -> int:
        return self._shards.rows

    @property
    def stored(self) -> object:
        """An object that is the same for all views of the same stored rows."""
        return self._shards

    @property
    def subspaces(self) -> Subspaces | None:
        """Return those of the rows' summaries; None where the gallery has no first stage."""
        if not self.manifest.first_stage:
            return None
        return cached_for(self.stored, "subspaces", lambda: summariser_in(self._catalog).subspaces)

    def blocks(self) -> Iterator[Block]:
        """Every physical row once, in order, as views of the mapped files."""
        for start, stop in self._shards.spans():
            yield layout.block_of(self._shards.parts(start, stop), start)

    def gather(self, rows: NDArray[np.int64]) -> Block:
        """Copies of these physical rows, in this order."""
        return layout.block_of(self._shards.gather_parts(rows))

    def _open_snapshot(self) -> None:
        snapshot = Snapshot.open(self.path)
        self._shards = snapshot.shards
        self._show(snapshot.manifest, snapshot.catalog, snapshot.keys, snapshot.rows)

    def _show(self, manifest: Manifest, catalog: Catalog, keys: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self.manifest, self._catalog, self._keys, self.rows = manifest, catalog, keys, rows
        self._usage = None

    def _use(self, encoder: Encoder | None) -> None:
        """Take an encoder that is loaded already."""
        if encoder is None:
            return
        if isinstance(encoder_of(encoder), str):
            raise BadInput("a gallery names its own encoder: leave it out, or give the loaded encoder itself")
        refuse_other(self.manifest.card, encoder.card)
        self.__dict__["encoder"] = encoder  # fills the cached property
