"""Captions in a gallery: what each picture shows, in words, made while it is indexed or added later.

The caption of a picture is the captioner's greedy one. A picture whose caption is not sure enough for a title has the
empty caption: it was looked at, and no wrong words stand beside it. One that was never described has none (NULL).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.captions.description import has_captioner
from tapr.encoders.base import Encoder, EncoderCard, Evidence
from tapr.encoders.prepare import decode_for
from tapr.encoders.registry import DEFAULT_ENCODER, load_encoder
from tapr.images.decode import read_bytes
from tapr.store.catalog import Catalog
from tapr.store.layout import GLOBAL, Manifest
from tapr.store.shards import ShardReader
from tapr.types import Float32
from tapr.utils.amounts import counted
from tapr.utils.progress import Progress
from tapr.utils.threads import thread_count

# one text per picture, in order; "" if the captioner is not sure
Describe = Callable[[Evidence], Sequence[str]]

_BATCH = 64  # pictures per commit and progress report
TOGETHER = 64  # pictures whose captions are made together: greedy decoding takes two thirds of the time of 16


def describes_new(card: EncoderCard, wished: bool | None) -> bool:
    """Return whether new pictures are described while they are encoded."""
    return has_captioner(card) and wished is not False


def describer(encoder: Encoder) -> Describe:
    from tapr.captions.captioner import Captioner

    captioner = Captioner(encoder)

    def describe(evidence: Evidence) -> list[str]:
        return [one.text if one.is_title else "" for one in captioner.describe_vectors(evidence.global_vectors)]

    return describe


class CaptionThread:
    """Captions pictures in its own threads while the next ones are encoded, so many together as it pays."""

    def __init__(self, describe: Describe | None, catalog: Catalog) -> None:
        self._describe, self._catalog = describe, catalog
        self._rows: list[int] = []  # of pictures whose captions are not begun
        self._batches: list[Evidence] = []
        self._threads = max(1, thread_count() // 4)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tapr-describe")
        self._waiting: deque[tuple[list[int], Future[Sequence[str]]]] = deque()

    def __enter__(self) -> CaptionThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, rows: range, evidence: Evidence) -> None:
        """Caption the pictures of these physical rows, whose entries are in the catalogue."""
        if self._describe is None:
            return
        self._rows += rows
        self._batches.append(evidence)
        if len(self._rows) >= TOGETHER:
            self._wait(leaving=2 * self._threads)
            self._begin(self._describe)

    def finish(self) -> None:
        """Wait until every added picture has its caption in the catalogue."""
        if self._rows and self._describe is not None:
            self._begin(self._describe)
        self._wait(leaving=0)

    def _begin(self, describe: Describe) -> None:
        self._waiting.append((self._rows, self._pool.submit(_described, describe, self._batches)))
        self._rows, self._batches = [], []

    def _wait(self, *, leaving: int) -> None:
        while len(self._waiting) > leaving:
            rows, captions = self._waiting.popleft()
            self._catalog.caption(zip(rows, captions.result(), strict=True))


def _described(describe: Describe, batches: Sequence[Evidence]) -> list[str]:
    if all(type(one) is Evidence for one in batches):  # what was encoded elsewhere brings its captions along
        vectors = np.concatenate([one.global_vectors for one in batches])
        batches = [Evidence(vectors, np.zeros((len(vectors), 0, vectors.shape[1]), np.float32))]
    return [text for one in batches for text in describe(one)]


def add_missing(
    folder: Path, manifest: Manifest, catalog: Catalog, encoder: Callable[[], Encoder], progress: Progress
) -> float:
    """Caption all pictures without a caption: from their stored vectors, or from their files if the encoder has no
    captioner. Returns seconds. Unreadable files stay without a caption.
    """
    begin = time.perf_counter()
    rows = catalog.undescribed()
    if not rows:
        return 0.0
    if has_captioner(manifest.card):
        progress.say(f"describing {counted(len(rows), 'picture')} by stored vectors")
        own = encoder()
        vectors = _stored(np.array(list(rows), np.int64), folder, manifest, catalog)
    else:
        progress.say(
            f"describing {counted(len(rows), 'picture')} with {DEFAULT_ENCODER}, because {manifest.card.name} has no "
            f"captioner: that looks at each once more, and takes as long as indexing them with {DEFAULT_ENCODER}"
        )
        own = load_encoder(DEFAULT_ENCODER, say=progress.say)
        vectors = _looked_at(rows, own)
    describe = describer(own)
    progress.start(len(rows), "describing")
    for lot, found in vectors:
        none = np.zeros((len(found), 0, own.card.dim), np.float32)
        catalog.caption(zip(lot.tolist(), describe(Evidence(found, none)), strict=True))
        catalog.commit()
        progress.advance(len(lot))
    return time.perf_counter() - begin


def _stored(
    rows: NDArray[np.int64], folder: Path, manifest: Manifest, catalog: Catalog
) -> Iterator[tuple[NDArray[np.int64], Float32]]:
    """Batches of rows with their global vectors (B, d)."""
    shards = ShardReader(folder, manifest, catalog)
    for start, stop in shards.spans():
        here = rows[(rows >= start) & (rows < stop)]
        stored = shards.parts(start, stop)[GLOBAL]
        for first in range(0, len(here), _BATCH):
            lot = here[first : first + _BATCH]
            yield lot, stored[lot - start].astype(np.float32)


def _looked_at(rows: dict[int, str], encoder: Encoder) -> Iterator[tuple[NDArray[np.int64], Float32]]:
    """The same from the picture files."""
    items = list(rows.items())
    for first in range(0, len(items), _BATCH):
        lot = items[first : first + _BATCH]
        seen = {row: pixels for row, path in lot if (pixels := _prepared(path, encoder)) is not None}
        if seen:
            evidence = encoder.encode_images(list(seen.values()))
            yield np.array(list(seen), np.int64), evidence.global_vectors


def _prepared(path: str, encoder: Encoder) -> NDArray[np.uint8] | None:
    """Decode and prepare one picture at a time, to save memory."""
    try:
        return decode_for(encoder, read_bytes(path)).views[0]
    except Exception:  # any error of this file: it stays without a caption
        return None
