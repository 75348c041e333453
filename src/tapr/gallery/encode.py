"""Encoding: pictures in, rows in the shards and entries in the catalogue out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from tapr.encoders.base import Encoder, Evidence
from tapr.gallery.captions import Alongside, Describe
from tapr.gallery.catalog import Catalog, Entry
from tapr.gallery.codec import as_stored, usable
from tapr.gallery.load import Loaded
from tapr.gallery.progress import Progress
from tapr.gallery.report import Report
from tapr.gallery.shards import ShardWriter

BATCH = 16  # pictures handed to the encoder at once
COMMIT_SECONDS = 2.0  # at most this much encoding is lost to a kill
NOT_NUMBERS = "the encoder gave vectors for it that are not finite numbers"


def encode_all(
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
        evidence, good = encode_checked(encoder, batch)
        report.encoder_seconds += time.perf_counter() - begin
        first = shards.append(evidence)
        places = (first + np.cumsum(good) - 1).tolist()
        made = {item.entry.sha256: place for item, place, ok in zip(batch, places, good, strict=True) if ok}
        for entry in [*(item.entry for item in batch), *repeats]:
            row = made.get(entry.sha256)
            catalog.put(replace(entry, row=row, failure=NOT_NUMBERS if row is None else None))
        alongside.add(range(first, first + len(evidence)), evidence)
        report.encoded += len(evidence)
        report.shared += sum(entry.sha256 in made for entry in repeats)
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


def encode_checked(encoder: Encoder, batch: Sequence[Loaded]) -> tuple[Evidence, list[bool]]:
    """-> the evidence of the pictures whose vectors are numbers, and for each picture whether it is one of them."""
    evidence = encoder.encode_images([item.pixels for item in batch if item.pixels is not None])
    good = usable(as_stored(evidence.global_vectors)) & usable(as_stored(evidence.local_vectors))
    if good.all():
        return evidence, good.tolist()
    return Evidence(evidence.global_vectors[good], evidence.local_vectors[good]), good.tolist()
