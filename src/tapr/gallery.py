"""Gallery: a set of pictures with their vectors and metadata, which can be built, opened, filtered and read in
blocks.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, EncoderCard
from tapr.encoders.registry import refuse_other
from tapr.errors import BadInput, TaprError
from tapr.index.arguments import encoder_of, folder_of, sources_of
from tapr.index.options import Options, load_own_encoder
from tapr.store import layout, uploads
from tapr.store.block import Block, Precision
from tapr.store.catalog import Entry
from tapr.store.column_statistics import LatestStatistics
from tapr.store.columns import Column
from tapr.store.facets import Facet
from tapr.store.layout import Manifest
from tapr.store.lock import writer_lock
from tapr.store.quota import Quota, Usage
from tapr.store.shards import summariser_in
from tapr.store.snapshot import Snapshot
from tapr.store.summary import Subspaces
from tapr.store.verify import uploaded
from tapr.store.write_operations import Content, Delete, Operation, Put, WriteResult
from tapr.utils.amounts import counted
from tapr.utils.progress import NoProgress, Progress
from tapr.utils.weak_cache import cached_for

if TYPE_CHECKING:  # whoever only searches does not load what writes
    from tapr.index.apply_writes import Outcome
    from tapr.index.captions import Describe
    from tapr.index.remote_encoder import RemoteEncoder
    from tapr.index.repair import Repair
    from tapr.index.report import Report


class Gallery:
    """A set of pictures with their vectors. `Gallery.build(...)` creates or updates one, `Gallery.open(...)` opens one.

    An open gallery is one snapshot: it does not change when another process indexes. Open it again, or call `sync`, to
    see the new state.
    """

    rows: NDArray[np.int64]  # (N,) the physical row of each picture, in gallery order
    condition: str | None = None  # the condition of `select`
    report: Report | None = None  # report of the index run of `build`
    kernel_name: str | None = None  # the kernel's name, if it runs in another process
    _usage: Usage | None = None  # counted when asked for

    def __init__(self, path: str | Path, encoder: Encoder | None = None) -> None:
        self.path = folder_of(path)
        self._statistics = LatestStatistics()  # shared by copies and views
        self._show(Snapshot.open(self.path))
        if encoder is not None:
            if isinstance(encoder_of(encoder), str):
                raise BadInput("a gallery names its own encoder: leave it out, or give the loaded encoder itself")
            refuse_other(self.manifest.card, encoder.card)
            self.__dict__["encoder"] = encoder  # fills the cached property below

    @classmethod
    def open(cls, path: str | Path, *, encoder: Encoder | None = None) -> Gallery:
        return cls(path, encoder)

    @classmethod
    def build(
        cls,
        path: str | Path,
        images: str | Path | Iterable[str | Path],
        encoder: str | Encoder | None = None,
        precision: Precision | None = None,
        *,
        extractor: str | None = None,
        fit: str | None = None,
        template: str | None = None,
        centre: bool | None = None,
        arithmetic: str | None = None,
        columns: Mapping[str, str] | None = None,
        captions: bool | None = None,
        progress: Progress | None = None,
        remote_encoder: RemoteEncoder | None = None,
        wait: float | None = None,
        rehash: bool = False,
        first_stage: bool | None = None,
    ) -> Gallery:
        """Index pictures into the folder `path`, or bring it up to date with them; `report` tells what was done.

        `columns` declares types of metadata columns, {"price": "number"}; others are inferred from their values.
        `captions`, `remote_encoder`, `wait`, `rehash` and `first_stage` as for `sync`.
        """
        from tapr.index.create import create
        from tapr.index.sources import resolve

        folder, progress = folder_of(path), progress or NoProgress()
        sources = [resolve(image) for image in sources_of(images)]
        encoder = encoder_of(encoder)
        options = Options(encoder, precision, extractor, fit, template, centre, arithmetic)
        loaded: Encoder | None = encoder if isinstance(encoder, Encoder) else None
        if not os.path.exists(folder / layout.MANIFEST):  # that of pathlib raises for a name that is too long
            if not sources:
                raise BadInput(
                    f"there is no gallery {str(folder)!r} yet and no pictures were named: say which to index"
                )
            with _said(folder, "tapr index"):
                loaded = create(folder, sources, options, progress) or loaded
        options.check_against(folder, Manifest.read(folder))
        gallery = cls(folder, loaded)
        gallery.report = gallery.sync(
            sources,
            columns=columns,
            captions=captions,
            progress=progress,
            remote_encoder=remote_encoder,
            wait=wait,
            rehash=rehash,
            first_stage=first_stage,
        )
        return gallery

    def sync(
        self,
        images: str | Path | Iterable[str | Path] = (),
        *,
        drop: Iterable[str | Path] = (),
        move: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        columns: Mapping[str, str] | None = None,
        captions: bool | None = None,
        progress: Progress | None = None,
        describe: Describe | None = None,
        remote_encoder: RemoteEncoder | None = None,
        wait: float | None = None,
        rehash: bool = False,
        first_stage: bool | None = None,
    ) -> Report:
        """Follow the files: add new ones, drop deleted ones, keep renamed ones; resumes an interrupted run.

        `images` are further sources, `drop` those to forget with their pictures, `move` those that are elsewhere now
        ({"old": "new"}). `columns` declares types of metadata columns.

        `captions`: True describes all pictures that have no caption, of an encoder without captioner too (that takes
        a second look at each, with clip-b16); False describes no more; None goes on as before, and at first describes
        new pictures where the encoder has a captioner. `describe` takes the captioner's place.
        `remote_encoder` encodes on other machines: cluster/index.py. `wait`: seconds for another writer to end.
        `rehash` reads every file: it finds content that changed while size and time did not.

        `first_stage`: True summarises all pictures, so that searches read few of them (docs/scaling.md); False does
        not; None goes on as before, and at first does it from 10,000 pictures on.
        """
        from tapr.index.build import run_index
        from tapr.index.changes import Changes

        changes = Changes.of(sources_of(images), drop, move, columns)
        with _writing(self.path, "tapr index", "tapr index", wait, (progress or NoProgress()).say):
            report = run_index(
                self.path, Snapshot.open(self.path), changes, lambda: self.encoder, progress or NoProgress(),
                captions=captions, describe=describe, remote_encoder=remote_encoder, rehash=rehash,
                first_stage=first_stage,
            )  # fmt: skip
        self._show(Snapshot.open(self.path))
        return report

    def put(self, id_: str, picture: bytes | None = None, metadata: Mapping[str, Any] | None = None) -> WriteResult:
        """Add or replace one picture without scanning the sources. None keeps the current value.

        The gallery stores the picture's bytes itself; index runs keep it.
        """
        content = None if picture is None else Content.of(picture, self.encoder)
        (outcome,) = self.apply([Put(id_, content, metadata)])
        if isinstance(outcome, BadInput):
            raise outcome
        return outcome

    def delete(self, id_: str) -> WriteResult:
        """Remove one picture. If it came from a source, its file stays, and index runs ignore it."""
        (outcome,) = self.apply([Delete(id_)])
        if isinstance(outcome, BadInput):
            raise outcome
        return outcome

    def apply(
        self, operations: Sequence[Operation], describe: Describe | None = None, *, wait: float | None = None
    ) -> list[Outcome]:
        """Apply all operations as one new snapshot. An invalid operation does not stop the others."""
        with self.writing(wait=wait):
            return self.apply_within(operations, describe)

    @contextlib.contextmanager
    def writing(self, who: str = "a Python program", wait: float | None = None) -> Iterator[None]:
        """Holds the writer's lock; `wait`: seconds for another writer to end, `who` is what that one is told."""
        with _writing(self.path, "it", who, wait):
            yield

    def apply_within(
        self, operations: Sequence[Operation], describe: Describe | None = None, quota: Quota | None = None
    ) -> list[Outcome]:
        """As `apply`, for a caller that is `writing`; operations that exceed the quota are refused."""
        from tapr.index.apply_writes import apply_operations

        outcomes = apply_operations(self.path, operations, lambda: self.encoder, describe, self._statistics, quota)
        self._show(Snapshot.open(self.path))
        return outcomes

    def sweep_uploads(self) -> None:
        """Delete files of uploads that no picture names, left by a process that was killed; within `writing`."""
        published = Snapshot.open(self.path).catalog
        uploads.sweep(self.path, {entry.path for entry in uploaded(published)})

    def usage(self) -> Usage:
        """Pictures and bytes that count for a quota."""
        if self._usage is None:
            self._usage = Usage.of(self._catalog, self.manifest)
        return self._usage

    def earlier_result(self, key: str | None, request: str) -> Outcome | None:
        """The result of an earlier request with the same idempotency key; None if there was none."""
        from tapr.index.apply_writes import earlier_result

        return earlier_result(self._catalog, key, request)

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
        from tapr.index.repair import run_repair

        folder = folder_of(path)
        manifest = Manifest.read(folder)
        if encoder is not None:
            refuse_other(manifest.card, encoder.card)
        own = cache(lambda: encoder or load_own_encoder(manifest))
        with _writing(folder, "tapr repair", "tapr repair", wait, (progress or NoProgress()).say):
            done = run_repair(folder, own, progress or NoProgress())
        return cls(folder, encoder), done

    @classmethod
    def add_first_stage(cls, path: str | Path, *, progress: Progress | None = None, wait: float | None = None) -> bool:
        """Summarise the pictures of the gallery at `path`, so that searches read few of them: docs/scaling.md.

        From then on every write keeps the summaries true. False where the gallery has them already.
        """
        from tapr.index.first_stage import add_first_stage

        folder = folder_of(path)
        with _writing(folder, "tapr first-stage", "tapr first-stage", wait, (progress or NoProgress()).say):
            return add_first_stage(folder, progress or NoProgress())

    def lacks_first_stage(self) -> bool:
        """Whether the next index run would add one; a gallery that is only written to over HTTP has no such run."""
        from tapr.index.first_stage import is_wished

        return is_wished(self.manifest, self._catalog)

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
        """Those of the rows' summaries; None where the gallery has no first stage."""
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

    def _show(self, snapshot: Snapshot) -> None:
        self.manifest, self._catalog, self._shards = snapshot.manifest, snapshot.catalog, snapshot.shards
        self._keys, self.rows = snapshot.keys, snapshot.rows
        self._usage = None


@contextlib.contextmanager
def _writing(
    folder: Path, command: str, who: str, wait: float | None, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the writer's lock."""
    with writer_lock(folder, who, wait, say), _said(folder, command):
        yield


@contextlib.contextmanager
def _said(folder: Path, command: str) -> Iterator[None]:
    """Turn system errors, such as a full disk, into one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        raise TaprError(_failed(folder, command, "the catalogue: " + str(error))) from error
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise TaprError(_failed(folder, command, f"{what}{(error.strerror or str(error)).lower()}")) from error


def _failed(folder: Path, command: str, reason: str) -> str:
    return (
        f"writing to {str(folder)!r} failed ({reason}): mend that and run {command} again; what was published before "
        "stands, and what was finished is kept"
    )
