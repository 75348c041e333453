"""Encoding: pictures in, rows in the shards and entries in the catalogue out."""

from __future__ import annotations

import time
from collections import deque
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
    """Encode a batch while the one before it is described and written and the next ones are decoded."""
    lanes = encoder.lanes if isinstance(encoder, ConcurrentEncoder) else 0
    # two threads for each: the next batch is encoded while the vectors of the last are looked at
    threads = 2 * max(1, lanes) if bulk_of(encoder) or lanes else 1
    with CaptionThread(describe, catalog) as captions, ThreadPoolExecutor(threads, "tapr-encode") as pool:
        encoding = _Encoding(encoder, shards, catalog, report, progress, captions, pool, max(1, lanes))
        for item in items:
            encoding.take(item)
        encoding.finish()
    shards.commit()


class _Encoding:
    """Pictures on their way from the loader to the shards."""

    def __init__(
        self,
        encoder: Encoder,
        shards: ShardWriter,
        catalog: Catalog,
        report: Report,
        progress: Progress,
        captions: CaptionThread,
        pool: ThreadPoolExecutor,
        lanes: int,
    ) -> None:
        self._encoder, self._shards, self._catalog = encoder, shards, catalog
        self._report, self._progress, self._captions, self._pool = report, progress, captions, pool
        self._size, self._most_under_way = bulk_of(encoder) or BATCH, UNDER_WAY * lanes
        self._batch: list[Loaded] = []
        self._repeats: dict[str, list[Entry]] = {}  # content that is not in the catalogue yet -> more files of it
        self._under_way: deque[tuple[list[Loaded], Future[Encoded]]] = deque()
        self._last_commit = time.perf_counter()

    def take(self, item: Loaded) -> None:
        """Take the next file; a full batch goes to the encoder."""
        if not self._is_new(item):
            self._progress.advance(1)  # nothing to encode: what is encoded counts when it is done
            return
        self._repeats[item.entry.sha256] = []
        self._batch.append(item)
        if len(self._batch) == self._size:
            self._start()
            if len(self._under_way) > self._most_under_way:
                self._write()
            if time.perf_counter() - self._last_commit > COMMIT_SECONDS:
                self._captions.finish()
                self._shards.commit()
                self._last_commit = time.perf_counter()

    def finish(self) -> None:
        """Encode and write what is left."""
        if self._batch:
            self._start()
        while self._under_way:
            self._write()
        self._captions.finish()

    def _is_new(self, item: Loaded) -> bool:
        """Return whether the file has to be encoded; if not, it is put into the catalogue, or waits for its equal."""
        entry = item.entry
        if item.pixels is None:
            self._catalog.put(entry)
        elif entry.sha256 in self._repeats:
            self._repeats[entry.sha256].append(entry)
        elif equal := self._catalog.by_sha256(entry.sha256):
            self._catalog.put(replace(entry, row=equal[0].row, caption=equal[0].caption))
            self._report.shared += 1
        else:
            return True
        return False

    def _start(self) -> None:
        batch, self._batch = self._batch, []
        self._under_way.append((batch, self._pool.submit(encode_checked, self._encoder, batch)))

    def _write(self) -> None:
        """Write the vectors of the first batch under way, and its entries."""
        batch, job = self._under_way.popleft()
        encoded = job.result()
        self._report.encoder_seconds += encoded.seconds
        first = self._shards.append(encoded.evidence)
        rows = (first + np.cumsum(encoded.good) - 1).tolist()
        for item, row, good in zip(batch, rows, encoded.good, strict=True):
            repeats = self._repeats.pop(item.entry.sha256)
            for entry in (item.entry, *repeats):
                self._catalog.put(replace(entry, row=row) if good else replace(entry, failure=NOT_NUMBERS))
            self._report.shared += len(repeats) if good else 0
        self._captions.add(range(first, first + len(encoded.evidence)), encoded.evidence)
        self._report.encoded += len(encoded.evidence)
        self._progress.advance(len(batch))


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
