"""Third of an index run's three steps: encode what is new, append it to the shards, publish all of it at once.

create.py makes the gallery where there is none, plan.py says what is to be done, and this does it. The three know each
other in this order only: build knows plan, neither knows create, and gallery.py calls create, then build.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path

from tapr.encoders.base import Encoder
from tapr.images.decode import readers
from tapr.index.bulk import time_of
from tapr.index.captions import CaptionSetting, Describe, add_missing, describer
from tapr.index.changes import Changes
from tapr.index.devices import Devices, OnDevices
from tapr.index.encode import encode_all
from tapr.index.first_stage import SETTING, add_where_wished
from tapr.index.load import load_in_order
from tapr.index.plan import Plan, folders_among, make_plan
from tapr.index.remote_encoder import RemoteEncoder
from tapr.index.report import Report
from tapr.index.sources import Candidate, Found, find
from tapr.store import layout, uploads
from tapr.store.catalog import Catalog, Entry
from tapr.store.column_statistics import columns_of
from tapr.store.compact import compact
from tapr.store.layout import Manifest
from tapr.store.shards import ShardWriter
from tapr.store.snapshot import Draft, Snapshot
from tapr.store.verify import check_catalog
from tapr.utils.amounts import counted
from tapr.utils.progress import Progress


def run_index(
    folder: Path,
    published: Snapshot,
    changes: Changes,
    encoder: Callable[[], Encoder],
    progress: Progress,
    *,
    captions: bool | None = None,
    describe: Describe | None = None,
    remote_encoder: RemoteEncoder | None = None,
    rehash: bool = False,
    first_stage: bool | None = None,
) -> Report:
    """Publish a snapshot that is up to date with the sources. The encoder is loaded only if there is work for it.

    `captions` says whether pictures are described; `describe` does it in place of the encoder's captioner.
    `remote_encoder` reads and encodes in place of this process. `first_stage`: add_where_wished.
    """
    begin = time.perf_counter()
    if isinstance(remote_encoder, Devices):
        remote_encoder.check(published.manifest)
    check_catalog(folder, published.manifest)  # damage in it would be copied into the next one, and sealed there
    draft = Draft(folder, published.manifest, published.catalog)
    try:
        report = _run(
            folder, published, draft, changes, encoder, progress, captions, describe, remote_encoder, rehash,
            first_stage,
        )  # fmt: skip
    finally:
        draft.close()
    if first_stage is False and published.manifest.first_stage:
        progress.say("the gallery has a first stage already, and keeps it")
    if add_where_wished(folder, progress):
        report.summarised = report.pictures
    report.seconds = time.perf_counter() - begin
    return report


def _run(
    folder: Path,
    published: Snapshot,
    draft: Draft,
    changes: Changes,
    encoder: Callable[[], Encoder],
    progress: Progress,
    captions: bool | None,
    describe: Describe | None,
    remote_encoder: RemoteEncoder | None,
    rehash: bool,
    first_stage: bool | None,
) -> Report:
    manifest, before = published.manifest, draft.catalog
    wish = CaptionSetting(manifest.card, before, captions)
    stage = before.get_state(SETTING) if first_stage is None else first_stage
    sources, declared = changes.sources(before.sources()), changes.declared(before.declared())
    entries, hidden = before.entries(), before.written.hidden()
    found = find(sources, declared, folders_among(sources, entries))
    changes.check(found, before)
    hides = _beside_operations(found, entries, hidden, folder)
    plan = make_plan(
        found, entries, found.empty, try_failed_again=before.get_state("readers") != readers(), rehash=rehash
    )
    report = Report(
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
    types = {**found.declared, **declared}
    same = (before.sources(), before.declared(), hidden) == (sources, declared, hides)
    same = same and stage == before.get_state(SETTING)
    same = same and before.columns() == list(columns_of((entry.metadata for entry in entries), types).values())
    if remote_encoder is None and not plan.encode:
        _delete_parts(folder)
    if not (plan or not same or draft.begun or wish.is_new or wish.missing):
        draft.tidy()
        report.tell(before)
        return report
    catalog = draft.begin()
    catalog.set_state("sources", sources)
    catalog.declare(declared)
    wish.keep(catalog)
    catalog.set_state(SETTING, stage)
    if hides != hidden:
        catalog.written.set_hidden(hides)
    plan.apply(catalog)
    if plan.encode:
        _look(folder, manifest, catalog, plan, encoder(), wish, report, progress, describe, remote_encoder)
    if wish.asked:
        add_missing(folder, manifest, catalog, encoder, progress)
    compact(folder, manifest, catalog)
    catalog.set_state("readers", readers())
    catalog.retype(types)
    catalog.commit()
    report.tell(catalog)
    draft.publish()
    if remote_encoder is None:
        _delete_parts(folder)
    return report


def _delete_parts(folder: Path) -> None:
    """What a run on a cluster left that was killed, once a run without the cluster has done the work."""
    shutil.rmtree(folder / layout.PARTS, ignore_errors=True)


def _look(
    folder: Path,
    manifest: Manifest,
    catalog: Catalog,
    plan: Plan,
    used: Encoder,
    wish: CaptionSetting,
    report: Report,
    progress: Progress,
    describe: Describe | None,
    remote_encoder: RemoteEncoder | None,
) -> None:
    """Encode what is new, here or elsewhere, and describe it where that is wished."""
    size = len(plan.encode) * manifest.row_bytes()
    said = f"Indexing {counted(len(plan.encode), 'picture')} (up to {_megabytes(size)})"
    devices = len(remote_encoder.names) if isinstance(remote_encoder, Devices) else 1
    progress.say(said + time_of(used, len(plan.encode), devices))
    progress.start(len(plan.encode), "encoding")
    with ShardWriter(folder, manifest, catalog) as shards:
        if remote_encoder is None:
            items = load_in_order(plan.encode, used)
            if wish.while_encoding:
                describe = describe or describer(used)
        else:
            used, items, described = remote_encoder.look(manifest, used, plan.encode, wish.while_encoding)
            if wish.while_encoding:
                describe = describe or described
        with closing(used) if isinstance(used, OnDevices) else nullcontext():
            encode_all(items, used, shards, catalog, report, progress, describe)


def _beside_operations(found: Found, entries: list[Entry], hidden: set[str], folder: Path) -> set[str]:
    """Pictures that were put one by one stay, though no source names them; files whose pictures were deleted or
    replaced so stay out. -> those files."""
    put = [entry for entry in entries if entry.source == uploads.SOURCE]
    hides = found.leave_out(hidden)
    found.candidates[:0] = [Candidate(entry.id, entry.path, entry.metadata, uploads.SOURCE) for entry in put]
    uploads.sweep(folder, {entry.path for entry in put})
    return hides


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size, 100_000) / 1e6:.1f} MB"
