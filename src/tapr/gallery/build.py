"""Index runs: look for the pictures, encode what is new, append it to the shards, publish all of it at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, Float32
from tapr.errors import BadInput
from tapr.gallery.captions import Alongside, Describe, Wish, add_missing, describer
from tapr.gallery.catalog import Catalog, Entry
from tapr.gallery.changes import Changes
from tapr.gallery.columns import Column, columns_of
from tapr.gallery.layout import Manifest
from tapr.gallery.plan import make_plan
from tapr.gallery.shards import ShardReader, ShardWriter
from tapr.gallery.snapshot import Draft, Snapshot
from tapr.gallery.sources import Candidate, find
from tapr.images import BadImage, decode_sized, read_bytes, readers, sha256_of

BATCH = 16  # pictures handed to the encoder at once
COMMIT_SECONDS = 2.0  # at most this much encoding is lost to a kill
LOADERS = 2
CENTRE_SAMPLE = 256  # pictures whose local vectors give the mean of a centred bank


class Progress(Protocol):
    """What an index run tells while it works."""

    def say(self, sentence: str) -> None: ...
    def start(self, total: int) -> None: ...
    def advance(self, done: int) -> None: ...


class Elsewhere(Protocol):
    """Other machines that read and encode the pictures of an index run."""

    def look(
        self, manifest: Manifest, encoder: Encoder, candidates: Sequence[Candidate], describe: bool
    ) -> tuple[Encoder, Iterator[Loaded], Describe]:
        """-> the pictures in their order, what encodes them (they are), and what describes them, if that is wanted."""


class Silent:
    def say(self, sentence: str) -> None: ...
    def start(self, total: int) -> None: ...
    def advance(self, done: int) -> None: ...


@dataclass
class Report:
    """What an index run did."""

    encoded: int = 0
    shared: int = 0  # new files whose content was in the gallery already
    unchanged: int = 0
    touched: int = 0  # same content, new time or metadata
    renamed: int = 0
    removed: int = 0
    kept: int = 0  # known pictures whose source or folder could not be looked into
    pictures: int = 0  # in the gallery now
    described: int = 0  # of them, those with a caption
    unsure: int = 0  # and those that were looked at and have none, because it was not sure
    columns: list[Column] = field(default_factory=list)  # of the metadata
    failures: list[tuple[str, str]] = field(default_factory=list)  # path, reason: all that stand in the catalogue
    skipped: list[str] = field(default_factory=list)  # files beside the pictures that are none
    left_out: list[tuple[str, str]] = field(
        default_factory=list
    )  # path, reason: what may hold pictures, not looked into
    away: list[tuple[str, str]] = field(default_factory=list)  # source, reason: it gave nothing, its pictures are kept
    seconds: float = 0.0
    encoder_seconds: float = 0.0


def writer_lock(folder: Path) -> AbstractContextManager[Any]:
    """One index run per gallery at a time; the lock is the system's, so a killed run leaves none behind."""
    try:
        return FileLock(folder / ".lock", timeout=0).acquire()
    except Timeout:
        raise BadInput(f"another index run is writing to {folder}: wait for it to end") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot write to {folder} ({reason}): choose a folder that you may write to") from None


def run_index(
    folder: Path,
    published: Snapshot,
    changes: Changes,
    encoder: Callable[[], Encoder],
    progress: Progress,
    *,
    captions: bool | None = None,
    describe: Describe | None = None,
    elsewhere: Elsewhere | None = None,
) -> Report:
    """Publish a snapshot that is up to date with the sources. The encoder is loaded only if there is work for it.

    `captions` says whether pictures are described; `describe` does it in place of the encoder's captioner.
    """
    begin = time.perf_counter()
    draft = Draft(folder, published)
    try:
        report = _run(folder, published, draft, changes, encoder, progress, captions, describe, elsewhere)
    finally:
        draft.close()
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
    elsewhere: Elsewhere | None,
) -> Report:
    manifest, before = published.manifest, draft.catalog
    wish = Wish(manifest.card, before, captions)
    sources, declared = changes.sources(before.sources()), changes.declared(before.declared())
    found = find(sources, declared)
    changes.check(found, before)
    entries = before.entries()
    plan = make_plan(found, entries, found.empty, try_failed_again=before.get_state("readers") != readers())
    report = Report(
        unchanged=plan.unchanged,
        touched=plan.touched,
        renamed=plan.renamed,
        removed=plan.removed,
        kept=plan.kept,
        skipped=found.skipped,
        left_out=found.left_out,
        away=list(found.empty.items()),
    )
    types = {**found.declared, **declared}
    same = (before.sources(), before.declared()) == (sources, declared)
    same = same and before.columns() == list(columns_of((entry.metadata for entry in entries), types).values())
    if plan or not same or draft.begun or manifest.snapshot is None or wish.is_new or wish.missing:
        if manifest.snapshot is None:
            progress.say(
                "the gallery was made by an older tapr: it is brought to this one's format, with typed columns"
            )
        catalog = draft.begin()
        catalog.set_state("sources", sources)
        catalog.declare(declared)
        wish.keep(catalog)
        plan.apply(catalog)
        if plan.encode:
            size = len(plan.encode) * manifest.row_bytes()
            progress.say(f"{len(plan.encode):,} pictures to look at, at most {_megabytes(size)} on disk")
            progress.start(len(plan.encode))
            with ShardWriter(folder, manifest, catalog) as shards:
                used = encoder()
                if elsewhere is None:
                    items = load_in_order(plan.encode, used)
                    described = describer(used) if wish.while_encoding and describe is None else None
                else:
                    used, items, described = elsewhere.look(manifest, used, plan.encode, wish.while_encoding)
                describe = describe or (described if wish.while_encoding else None)
                _encode_all(items, used, shards, catalog, report, progress, describe)
        if wish.asked:
            add_missing(folder, manifest, catalog, encoder, progress)
        compact(folder, manifest, catalog)
        catalog.set_state("readers", readers())
        catalog.retype(types)
        catalog.commit()
        _tell(report, catalog)
        draft.publish()
    else:
        _tell(report, before)
    return report


def _tell(report: Report, catalog: Catalog) -> None:
    report.pictures = catalog.counts()["pictures"]
    report.described, report.unsure = catalog.captions()
    report.columns = catalog.columns()
    report.failures = [(entry.path, entry.failure or "") for entry in catalog.failures()]


@dataclass(frozen=True)
class Loaded:
    """A file, read and readied for the encoder, or the reason why not."""

    entry: Entry
    pixels: NDArray[np.uint8] | None = None


def _load(candidate: Candidate, encoder: Encoder) -> Loaded:
    entry = Entry(candidate.id, candidate.path, -1, -1, "", metadata=candidate.metadata, source=candidate.source)
    try:
        status = Path(candidate.path).stat()
        entry = replace(entry, size=status.st_size, mtime_ns=status.st_mtime_ns)
        data = read_bytes(candidate.path)
        entry = replace(entry, sha256=sha256_of(data))
        image, (width, height) = decode_sized(data, side=encoder.card.image_size)
        return Loaded(replace(entry, width=width, height=height), encoder.prepare(image))
    except BadImage as error:
        return Loaded(replace(entry, failure=str(error)))
    except OSError as error:
        return Loaded(replace(entry, failure=f"cannot be read: {(error.strerror or str(error)).lower()}"))


def load_in_order(candidates: Sequence[Candidate], encoder: Encoder) -> Iterator[Loaded]:
    """Read and ready a few pictures ahead of the encoder, in order, holding no more than that few."""
    with ThreadPoolExecutor(LOADERS, thread_name_prefix="tapr-load") as pool:
        waiting: list[Future[Loaded]] = []
        upcoming = iter(candidates)
        while True:
            waiting.extend(pool.submit(_load, item, encoder) for item in islice(upcoming, 4 * BATCH - len(waiting)))
            if not waiting:
                return
            yield waiting.pop(0).result()


def _encode_all(
    items: Iterable[Loaded],
    encoder: Encoder,
    shards: ShardWriter,
    catalog: Catalog,
    report: Report,
    progress: Progress,
    describe: Describe | None,
) -> None:
    batch: list[Loaded] = []
    repeats: list[Entry] = []  # files with the content of one that is still in the batch
    last_commit = time.perf_counter()

    def encode_batch(alongside: Alongside) -> None:
        begin = time.perf_counter()
        evidence = encoder.encode_images([item.pixels for item in batch if item.pixels is not None])
        report.encoder_seconds += time.perf_counter() - begin
        first = shards.append(evidence)
        made = {item.entry.sha256: first + i for i, item in enumerate(batch)}
        for entry in [*(item.entry for item in batch), *repeats]:
            catalog.put(replace(entry, row=made[entry.sha256]))
        alongside.add(range(first, first + len(batch)), evidence)
        report.encoded += len(batch)
        report.shared += len(repeats)
        batch.clear()
        repeats.clear()

    with Alongside(describe, catalog) as alongside:
        for item in items:
            entry = item.entry
            if item.pixels is None:
                catalog.put(entry)
            elif any(other.entry.sha256 == entry.sha256 for other in batch):
                repeats.append(entry)
            elif same := catalog.by_sha256(entry.sha256):
                catalog.put(replace(entry, row=same[0].row, caption=same[0].caption))
                report.shared += 1
            else:
                batch.append(item)
            if len(batch) == BATCH:
                encode_batch(alongside)
                if time.perf_counter() - last_commit > COMMIT_SECONDS:
                    alongside.finish()
                    shards.commit()
                    last_commit = time.perf_counter()
            progress.advance(1)
        if batch:
            encode_batch(alongside)
        alongside.finish()
    shards.commit()


def compact(folder: Path, manifest: Manifest, catalog: Catalog) -> bool:
    """When most rows are dead, rewrite the shards without them, under the next generation's names.

    The old files are deleted once the catalogue that no longer needs them is published.
    """
    keys, rows = catalog.select()
    live, new_of = np.unique(rows, return_inverse=True)
    if catalog.rows_committed() - len(live) <= max(len(live), BATCH):
        return False
    old_generation = catalog.generation()
    old = ShardReader(folder, manifest, old_generation, catalog.rows_committed())
    with ShardWriter(folder, manifest, catalog, generation=old_generation + 1) as shards:
        for start in range(0, len(live), 1024):
            shards.append_parts(old.gather_parts(live[start : start + 1024]))
        catalog.renumber(zip(new_of.tolist(), keys.tolist(), strict=True))
        shards.commit()
    return True


def mean_local_vector(candidates: Sequence[Candidate], encoder: Encoder) -> Float32:
    """The mean local vector (d,) of up to CENTRE_SAMPLE pictures, evenly spaced over these."""
    step = max(1, len(candidates) // CENTRE_SAMPLE)
    total, count = np.zeros(encoder.card.dim), 0
    for item in load_in_order(candidates[::step][:CENTRE_SAMPLE], encoder):
        if item.pixels is not None:
            local = encoder.encode_images([item.pixels]).local_vectors
            total += local.sum(axis=(0, 1), dtype=np.float64)
            count += local.shape[0] * local.shape[1]
    if not count:
        raise BadInput("none of the pictures can be read, so there is no mean vector to centre on")
    return np.asarray(total / count, dtype=np.float32)


def _megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size, 100_000) / 1e6:.1f} MB"
