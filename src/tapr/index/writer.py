"""Writer: all that changes a gallery. Each method holds the writer's lock and publishes one snapshot."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.encoders.registry import refuse_other
from tapr.errors import BadInput, TaprError
from tapr.index.apply_writes import apply_operations
from tapr.index.captions import Describe
from tapr.index.create import NewGallery
from tapr.index.devices import Devices
from tapr.index.first_stage import add_first_stage
from tapr.index.options import IndexOptions
from tapr.index.remote_encoder import RemoteEncoder
from tapr.index.repair import Repair, run_repair
from tapr.index.report import Report
from tapr.index.run import IndexRun
from tapr.store import layout, uploads
from tapr.store.column_statistics import LatestStatistics
from tapr.store.layout import Manifest, no_gallery
from tapr.store.lock import writer_lock
from tapr.store.own_encoder import load_own_encoder
from tapr.store.quota import Quota
from tapr.store.snapshot import Snapshot
from tapr.store.verify import uploaded
from tapr.store.write_operations import Content, Delete, Operation, Outcome, Put, WriteResult
from tapr.utils.arguments import folder_of
from tapr.utils.files import make_folder
from tapr.utils.progress import NoProgress, Progress


class Writer:
    """All that changes the gallery in one folder.

    The encoder is loaded when it is first needed, and only then. Two writers of one gallery wait for each other.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: Callable[[], Encoder] | None = None,
        *,
        progress: Progress | None = None,
        describe: Describe | None = None,
        remote_encoder: RemoteEncoder | None = None,
    ) -> None:
        """`encoder` gives the gallery's own; None loads it. `describe` takes the captioner's place. `remote_encoder`
        encodes on other machines: cluster/index.py.
        """
        self.folder = folder_of(folder)
        self.encoder: Encoder | None = None  # once it is loaded
        self._given, self._progress = encoder, progress or NoProgress()
        self._describe, self._remote_encoder = describe, remote_encoder
        self._statistics = LatestStatistics()  # of the columns: a writer that writes again need not read all metadata

    def build(self, options: IndexOptions) -> Report:
        """Make the gallery where there is none, and bring it up to date with its sources."""
        remote, new = self._remote(options), None
        if not self._exists():
            with self._readable_errors("tapr index"):
                new = NewGallery.prepare(self.folder, options, self._progress)
                make_folder(self.folder)
        with self.writing("tapr index", options.wait, "tapr index", is_new=new is not None):
            if new is None or self._exists():  # the latter: another run has made it meanwhile
                return self._run(options, remote, Snapshot.open(self.folder, wait=True))
            manifest = new.write()
            self.encoder = new.encoder
            run = self._index_run(options, remote, Snapshot.of(self.folder, manifest, wait=True))
            return run.run(new.found)

    def sync(self, options: IndexOptions) -> Report:
        """Follow the files: add new ones, drop deleted ones, keep renamed ones; resumes an interrupted run."""
        remote = self._remote(options)
        with self.writing("tapr index", options.wait, "tapr index"):
            return self._run(options, remote, Snapshot.open(self.folder, wait=True))

    def put(self, id_: str, picture: bytes | None = None, metadata: Mapping[str, Any] | None = None) -> WriteResult:
        """Add or replace one picture without scanning the sources. None keeps the current value.

        The gallery stores the picture's bytes itself; index runs keep it.
        """
        content = None if picture is None else Content.of(picture, self._own_encoder(Manifest.read(self.folder)))
        return self._apply_one(Put(id_, content, metadata))

    def delete(self, id_: str) -> WriteResult:
        """Remove one picture. If it came from a source, its file stays, and index runs ignore it."""
        return self._apply_one(Delete(id_))

    def apply(self, operations: Sequence[Operation], *, wait: float | None = None) -> list[Outcome]:
        """Apply all operations as one new snapshot. An invalid operation does not stop the others."""
        with self.writing(wait=wait):
            return self.apply_within(operations)

    def apply_within(self, operations: Sequence[Operation], quota: Quota | None = None) -> list[Outcome]:
        """Do as `apply`, for a caller that is `writing`; operations that exceed the quota are refused."""
        manifest = Manifest.read(self.folder)
        encoder = cache(lambda: self._own_encoder(manifest))
        return apply_operations(self.folder, manifest, operations, encoder, self._describe, self._statistics, quota)

    def sweep_uploads(self) -> None:
        """Delete files of uploads that no picture names, left by a process that was killed; within `writing`."""
        published = Snapshot.open(self.folder).catalog
        uploads.sweep(self.folder, {entry.path for entry in uploaded(published)})

    def repair(self, *, wait: float | None = None) -> Repair:
        """Encode again what is damaged in the files of the gallery; see tapr.store.verify.

        Pictures whose files are gone or changed cannot be: they leave the gallery as failures, and are named.
        """
        with self.writing("tapr repair", wait, "tapr repair"):
            manifest = Manifest.read(self.folder)
            return run_repair(self.folder, manifest, cache(lambda: self._own_encoder(manifest)), self._progress)

    def add_first_stage(self, *, wait: float | None = None) -> bool:
        """Summarise the pictures, so that searches read few of them: docs/scaling.md. False where that was done before.

        From then on every write keeps the summaries true.
        """
        with self.writing("tapr first-stage", wait, "tapr first-stage"):
            return add_first_stage(self.folder, Manifest.read(self.folder), self._progress)

    @contextlib.contextmanager
    def writing(
        self,
        who: str = "a Python program",
        wait: float | None = None,
        command: str = "it",
        *,
        is_new: bool = False,
    ) -> Iterator[None]:
        """Hold the writer's lock. `wait`: seconds for another writer to end, `who` is what that one is told, `command`
        is to be run again where this fails.
        """
        if not is_new and not self._exists():
            raise no_gallery(self.folder)
        with writer_lock(self.folder, who, wait, self._progress.say), self._readable_errors(command):
            yield

    def _run(self, options: IndexOptions, remote: RemoteEncoder | None, published: Snapshot) -> Report:
        options.check_against(self.folder, published.manifest)
        if isinstance(options.encoder, Encoder):
            self.encoder = options.encoder
        return self._index_run(options, remote, published).run()

    def _index_run(self, options: IndexOptions, remote: RemoteEncoder | None, published: Snapshot) -> IndexRun:
        return IndexRun(
            self.folder,
            published,
            options,
            lambda: self._own_encoder(published.manifest),
            self._progress,
            describe=self._describe,
            remote_encoder=remote,
        )

    def _remote(self, options: IndexOptions) -> RemoteEncoder | None:
        return Devices.parse(options.device) if options.device is not None else self._remote_encoder

    def _own_encoder(self, manifest: Manifest) -> Encoder:
        if self.encoder is None:
            encoder = self._given() if self._given is not None else load_own_encoder(manifest)
            refuse_other(manifest.card, encoder.card)
            self.encoder = encoder
        return self.encoder

    def _apply_one(self, operation: Operation) -> WriteResult:
        (outcome,) = self.apply([operation])
        if isinstance(outcome, BadInput):
            raise outcome
        return outcome

    def _exists(self) -> bool:
        return os.path.exists(self.folder / layout.MANIFEST)  # that of pathlib raises for a name that is too long

    @contextlib.contextmanager
    def _readable_errors(self, command: str) -> Iterator[None]:
        """Turn system errors, such as a full disk, into one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise TaprError(self._failed(command, "the catalogue: " + str(error))) from error
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            raise TaprError(self._failed(command, f"{what}{(error.strerror or str(error)).lower()}")) from error

    def _failed(self, command: str, reason: str) -> str:
        return (
            f"writing to {str(self.folder)!r} failed ({reason}): mend that and run {command} again; what was published "
            "before stands, and what was finished is kept"
        )
