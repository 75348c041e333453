"""An index run: bring a gallery up to date with its sources, and publish the result as one snapshot.

`IndexRun.run` is to be read downward: look at the sources, plan, write a draft, publish it. writer.py takes the lock
and opens the snapshot before, create.py makes the gallery where there is none. plan.py compares, encode.py encodes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tapr.encoders.base import Encoder
from tapr.errors import TaprError
from tapr.images.decode import readers
from tapr.index.bulk import time_of
from tapr.index.captions import Describe, add_missing, describer, describes_new
from tapr.index.devices import OnDevices
from tapr.index.encode import encode_all
from tapr.index.first_stage import add_first_stage
from tapr.index.load import load_in_order
from tapr.index.options import IndexOptions
from tapr.index.photo_facts import STATE, PhotoFacts
from tapr.index.plan import Plan, folders_among, make_plan
from tapr.index.remote_encoder import RemoteEncoder
from tapr.index.report import Report
from tapr.index.settings import Settings, check_sources
from tapr.index.sources import Candidate, Found, find
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog, Entry
from tapr.store.column_statistics import columns_of
from tapr.store.columns import ColumnType
from tapr.store.compact import compact
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter, lacks_first_stage
from tapr.store.snapshot import Draft, Snapshot
from tapr.utils.amounts import counted
from tapr.utils.progress import Progress


@dataclass(frozen=True)
class Work:
    """The work that a look at the sources found."""

    plan: Plan
    settings: Settings  # for later runs
    facts: PhotoFacts
    types: dict[str, ColumnType]  # of columns, as declared by options and by headers of tables
    is_needed: bool  # whether anything is to be written
    report: Report  # what is known before anything is written


class IndexRun:
    """One run. The caller holds the writer's lock; the encoder is loaded only if there is work for it."""

    def __init__(
        self,
        folder: Path,
        published: Snapshot,
        options: IndexOptions,
        encoder: Callable[[], Encoder],
        progress: Progress,
        *,
        describe: Describe | None = None,
        remote_encoder: RemoteEncoder | None = None,
    ) -> None:
        """`describe` takes the captioner's place, `remote_encoder` reads and encodes in place of this process."""
        self._folder, self._published, self._options = folder, published, options
        self._encoder, self._progress = encoder, progress
        self._describe, self._remote = describe, remote_encoder
        self._manifest = published.manifest

    def run(self, found: Found | None = None) -> Report:
        """Publish a snapshot that is up to date with the sources. `found`: they were walked already."""
        begin, manifest = time.perf_counter(), self._manifest
        if self._remote is not None:
            self._remote.check(manifest)
        draft = Draft(self._folder, manifest, self._published.catalog)
        try:
            work = self._look(draft, found)
            catalog, report = draft.catalog, work.report
            if work.is_needed:
                catalog = draft.begin()
                self._write(catalog, work)
            report.tell(catalog)
            wants_first_stage = lacks_first_stage(manifest, catalog)
            if work.is_needed:
                manifest = draft.publish()
            else:
                draft.tidy()
        finally:
            draft.close()
        if self._remote is None:  # left by a run on a cluster that was killed
            shutil.rmtree(self._folder / layout.PARTS, ignore_errors=True)
        if self._options.first_stage is False and manifest.first_stage:
            self._progress.say("the gallery has a first stage already, and keeps it")
        if wants_first_stage and self._add_first_stage(manifest):
            report.summarised = report.pictures
        report.seconds = time.perf_counter() - begin
        return report

    def _look(self, draft: Draft, found: Found | None) -> Work:
        """Walk the sources once, and compare what is there with the catalogue."""
        catalog = draft.catalog
        before, entries = Settings.of(catalog), catalog.entries()
        after = before.changed_by(self._options)
        if found is None:
            found = find(after.sources, after.columns, folders_among(after.sources, entries))
        check_sources(self._options, found, catalog)
        after = replace(after, hidden=found.leave_out(before.hidden))
        _add_uploads(found, entries, self._folder)
        again = catalog.get_state("readers") != readers()
        facts = PhotoFacts.of(after.exif is not False, catalog.get_state(STATE), found.candidates)
        plan = make_plan(found, entries, facts, try_failed_again=again, rehash=self._options.rehash)
        types = {**found.declared, **after.columns}
        as_typed = catalog.columns() == list(columns_of((entry.metadata for entry in entries), types).values())
        undescribed = bool(after.captions and catalog.undescribed())
        is_changed = before != after or facts.before != facts.state
        is_needed = bool(plan) or draft.begun or is_changed or not as_typed or undescribed
        return Work(plan, after, facts, types, is_needed, _report_of(plan, found))

    def _write(self, catalog: Catalog, work: Work) -> None:
        """Fill the draft; encode and describe what is new."""
        work.settings.keep(catalog)
        work.plan.read_facts(work.facts, self._progress)
        work.plan.apply(catalog)
        if work.plan.encode:
            self._encode(catalog, work)
        if work.settings.captions:
            add_missing(self._folder, self._manifest, catalog, self._encoder, self._progress)
        compact(self._folder, self._manifest, catalog)
        catalog.set_state("readers", readers())
        catalog.set_state(STATE, work.facts.state)
        catalog.retype(work.types)
        catalog.commit()

    def _encode(self, catalog: Catalog, work: Work) -> None:
        """Encode new pictures, here or elsewhere."""
        candidates, manifest, encoder, describe = work.plan.encode, self._manifest, self._encoder(), self._describe
        described = describes_new(manifest.card, work.settings.captions)
        size = _megabytes(len(candidates) * manifest.row_bytes())
        devices = 1 if self._remote is None else self._remote.devices
        duration = time_of(encoder, len(candidates), devices)
        self._progress.say(f"Indexing {counted(len(candidates), 'picture')} (up to {size}){duration}")
        self._progress.start(len(candidates), "encoding")
        with ShardWriter(self._folder, manifest, catalog) as shards:
            if self._remote is None:
                items = load_in_order(candidates, encoder)
                captioner = describer(encoder) if described and describe is None else None
            else:
                encoder, items, captioner = self._remote.look(manifest, encoder, candidates, described)
            if described:
                describe = describe or captioner
            with closing(encoder) if isinstance(encoder, OnDevices) else nullcontext():
                encode_all(items, encoder, shards, catalog, work.report, self._progress, describe)

    def _add_first_stage(self, manifest: Manifest) -> bool:
        """Add it; what the run published stands where that fails."""
        try:
            return add_first_stage(self._folder, manifest, self._progress)
        except TaprError as error:
            self._progress.say(f"no first stage was added: {error}")
            return False


def _add_uploads(found: Found, entries: list[Entry], folder: Path) -> None:
    """Keep pictures that were put one by one, though no source names them."""
    put = [entry for entry in entries if entry.source == uploads.SOURCE]
    found.candidates[:0] = [Candidate(entry.id, entry.path, entry.metadata, uploads.SOURCE) for entry in put]
    uploads.sweep(folder, {entry.path for entry in put})


def _report_of(plan: Plan, found: Found) -> Report:
    return Report(
        unchanged=plan.unchanged,
        touched=plan.touched,
        renamed=plan.renamed,
        removed=plan.removed,
        kept=plan.kept,
        skipped=found.skipped,
        left_out=found.left_out,
        away=list(found.empty.items()),
        damaged_uploads=plan.damaged,
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size, 100_000) / 1e6:.1f} MB"
