"""Encoding: pictures in, rows in the shards and entries in the catalogue out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from tapr.encoders.base import ConcurrentEncoder, Encoder, Evidence
from tapr.index.bulk import bulk_of, encode
from tapr.index.captions import CaptionThread, Describe
from tapr.index.load import Loaded
from tapr.index.report import Report
from tapr.store.catalog import Catalog, Entry
from tapr.store.codec import as_stored, usable
from tapr.store.shards import ShardWriter
from tapr.utils.progress import Progress

BATCH = 16  # pictures handed to the encoder at once
UNDER_WAY = 2  # bulks that are with the encoder, or wait to be written
COMMIT_SECONDS = 5.0  # at most this much encoding is lost to a kill
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
    """A batch is encoded while the one before it is described and written and the next ones are decoded."""
    batch: list[Loaded] = []
    repeats: dict[str, list[Entry]] = {}  # content that is not in the catalogue yet -> more files of that content
    under_way: list[tuple[list[Loaded], Future[Encoded]]] = []
    last_commit = time.perf_counter()
    bulk, lanes = bulk_of(encoder), encoder.lanes if isinstance(encoder, ConcurrentEncoder) else 0
    size, most = bulk or BATCH, UNDER_WAY * max(1, lanes)

    def start() -> None:
        under_way.append((list(batch), pool.submit(encode_checked, encoder, list(batch))))
        batch.clear()

    def finish() -> None:
        lot, job = under_way.pop(0)
        done = job.result()
        report.encoder_seconds += done.seconds
        first = shards.append(done.evidence)
        for item, row, good in zip(lot, (first + np.cumsum(done.good) - 1).tolist(), done.good, strict=True):
            more = repeats.pop(item.entry.sha256)
            for entry in (item.entry, *more):
                catalog.put(replace(entry, row=row) if good else replace(entry, failure=NOT_NUMBERS))
            report.shared += len(more) if good else 0
        alongside.add(range(first, first + len(done.evidence)), done.evidence)
        report.encoded += len(done.evidence)
        progress.advance(len(lot))

    # two threads for each: the next batch is encoded while the vectors of the last are looked at
    threads = 2 * max(1, lanes) if bulk or lanes else 1
    with CaptionThread(describe, catalog) as alongside, ThreadPoolExecutor(threads, "tapr-encode") as pool:
        for item in items:
            entry, known = item.entry, len(batch)
            if item.pixels is None:
                catalog.put(entry)
            elif entry.sha256 in repeats:
                repeats[entry.sha256].append(entry)
            elif same := catalog.by_sha256(entry.sha256):
                catalog.put(replace(entry, row=same[0].row, caption=same[0].caption))
                report.shared += 1
            else:
                repeats[entry.sha256] = []
                batch.append(item)
            if len(batch) == known:  # nothing to encode: what is encoded counts when it is done
                progress.advance(1)
            if len(batch) == size:
                start()
                if len(under_way) > most:
                    finish()
                if time.perf_counter() - last_commit > COMMIT_SECONDS:
                    alongside.finish()
                    shards.commit()
                    last_commit = time.perf_counter()
        if batch:
            start()
        while under_way:
            finish()
        alongside.finish()
    shards.commit()


@dataclass(frozen=True)
class Encoded:
    evidence: Evidence  # of the pictures whose vectors are numbers
    good: list[bool]  # of each picture: whether it is one of them
    seconds: float  # inside the encoder


def encode_checked(encoder: Encoder, batch: Sequence[Loaded]) -> Encoded:
    begin = time.perf_counter()
    evidence = encode(encoder, [item.pixels for item in batch if item.pixels is not None])
    seconds = time.perf_counter() - begin
    good = usable(as_stored(evidence.global_vectors)) & usable(as_stored(evidence.local_vectors))
    if not good.all():
        evidence = Evidence(evidence.global_vectors[good], evidence.local_vectors[good])
    return Encoded(evidence, good.tolist(), seconds)
