"""Picture files on their way to the encoder: read and readied ahead of it, in order, a few at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import Encoder
from tapr.errors import BadInput
from tapr.images.decode import BadImage, decode_sized, one_line, read_bytes, sha256_of
from tapr.images.frame import Frame
from tapr.index.bulk import bulk_of
from tapr.index.decoders import BATCH, decoded_in_order
from tapr.index.sources import Candidate
from tapr.store.catalog import Entry
from tapr.types import Float32
from tapr.utils.threads import thread_count

LOADERS = 2  # threads, or one for every four processors
AHEAD = 64  # pictures that are read and wait for the encoder, at most
WORTH_PROCESSES = 256  # pictures: fewer are decoded before the processes have started
CENTRE_SAMPLE = 256  # pictures whose local vectors give the mean of a centred bank


@dataclass(frozen=True)
class Loaded:
    """A file, read and readied for the encoder, or the reason why not."""

    entry: Entry
    pixels: NDArray[np.uint8] | None = None


def load_in_order(candidates: Sequence[Candidate], encoder: Encoder) -> Iterator[Loaded]:
    """By a few threads; for an encoder that takes bulks, by a process for each processor."""
    bulk, frame = bulk_of(encoder), getattr(encoder, "frame", None)
    if frame is not None and bulk and len(candidates) >= WORTH_PROCESSES and os.name == "posix":
        processes = min(thread_count(), -(-len(candidates) // BATCH))
        for entry, pixels in decoded_in_order(candidates, frame, load_by_frame, processes, 3 * bulk):
            yield Loaded(entry, pixels)
        return
    with ThreadPoolExecutor(max(LOADERS, thread_count() // 4), thread_name_prefix="tapr-load") as pool:
        waiting: list[Future[Loaded]] = []
        upcoming = iter(candidates)
        while True:
            waiting.extend(pool.submit(_load, item, encoder) for item in islice(upcoming, AHEAD - len(waiting)))
            if not waiting:
                return
            yield waiting.pop(0).result()


def _load(candidate: Candidate, encoder: Encoder) -> Loaded:
    return Loaded(*_read(candidate, encoder.card.image_size, encoder.prepare))


def load_by_frame(candidate: Candidate, frame: Frame) -> tuple[Entry, NDArray[np.uint8] | None]:
    """For a process that has no encoder."""
    return _read(candidate, frame.size, frame.apply)


def _read(
    candidate: Candidate, side: int, prepare: Callable[[Image.Image], NDArray[np.uint8]]
) -> tuple[Entry, NDArray[np.uint8] | None]:
    entry = Entry(candidate.id, candidate.path, -1, -1, "", metadata=candidate.metadata, source=candidate.source)
    try:
        status = Path(candidate.path).stat()
        entry = replace(entry, size=status.st_size, mtime_ns=status.st_mtime_ns)
        data = read_bytes(candidate.path)
        entry = replace(entry, sha256=sha256_of(data))
        image, (width, height) = decode_sized(data, side=side)
        return replace(entry, width=width, height=height), prepare(image)
    except BadImage as error:
        return replace(entry, failure=str(error)), None
    except OSError as error:
        return replace(entry, failure=f"cannot be read: {(error.strerror or str(error)).lower()}"), None
    except Exception as error:  # whatever one file does to a decoder or an encoder is that file's failure
        return replace(entry, failure=f"cannot be prepared ({one_line(error)})"), None


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
