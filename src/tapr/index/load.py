"""Read picture files ahead of the encoder, in order, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder
from tapr.encoders.prepare import decode_for
from tapr.errors import BadInput
from tapr.images.decode import BadImage, NoRoomToDecode, read_bytes, sha256_of
from tapr.index.bulk import bulk_of
from tapr.index.sources import Candidate
from tapr.store.catalog import Entry
from tapr.types import Float32
from tapr.utils.threads import thread_count

LOADERS = 2  # pictures that are decoded at a time, or one for every four processors
AHEAD = 64  # pictures that are read and wait for the encoder, at most
CENTRE_SAMPLE = 256  # pictures whose local vectors give the mean of a centred bank


@dataclass(frozen=True)
class Loaded:
    """A file, read and prepared for the encoder, or the reason why not."""

    entry: Entry
    pixels: NDArray[np.uint8] | None = None


def load_in_order(candidates: Sequence[Candidate], encoder: Encoder) -> Iterator[Loaded]:
    """Read and decode files; for an encoder that takes bulks, with all processors."""
    bulk = bulk_of(encoder)
    loaders = max(LOADERS, thread_count() // (1 if bulk else 4))
    with ThreadPoolExecutor(loaders, thread_name_prefix="tapr-load") as pool:
        waiting: list[Future[Loaded]] = []
        upcoming = iter(candidates)
        try:
            while True:
                room = max(AHEAD, 3 * bulk) - len(waiting)
                waiting.extend(pool.submit(_load, candidate, encoder) for candidate in islice(upcoming, room))
                if not waiting:
                    return
                yield waiting.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)


def _load(candidate: Candidate, encoder: Encoder) -> Loaded:
    """Read one file. A failure that is not the file's leaves size and time unknown, so the next run tries it again."""
    unread = Entry(candidate.id, candidate.path, -1, -1, "", metadata=candidate.metadata, source=candidate.source)
    entry = unread
    try:
        status = Path(candidate.path).stat()
        entry = replace(entry, size=status.st_size, mtime_ns=status.st_mtime_ns)
        data = read_bytes(candidate.path)
        entry = replace(entry, sha256=sha256_of(data))
        decoded = decode_for(encoder, data)
        width, height = decoded.size
        return Loaded(replace(entry, width=width, height=height), decoded.views[0])
    except BadImage as error:
        return Loaded(replace(entry, failure=str(error)))
    except NoRoomToDecode as error:
        return Loaded(replace(unread, failure=f"{error}: the next run tries it again"))
    except OSError as error:
        return Loaded(replace(entry, failure=f"cannot be read: {(error.strerror or str(error)).lower()}"))


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
