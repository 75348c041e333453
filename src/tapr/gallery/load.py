"""Picture files on their way to the encoder: read and readied ahead of it, in order, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import Encoder, Float32
from tapr.errors import BadInput
from tapr.gallery.catalog import Entry
from tapr.gallery.sources import Candidate
from tapr.images import BadImage, decode_sized, one_line, read_bytes, sha256_of

LOADERS = 2
AHEAD = 64  # pictures that are read and wait for the encoder, at most
CENTRE_SAMPLE = 256  # pictures whose local vectors give the mean of a centred bank


@dataclass(frozen=True)
class Loaded:
    """A file, read and readied for the encoder, or the reason why not."""

    entry: Entry
    pixels: NDArray[np.uint8] | None = None


def load_in_order(candidates: Sequence[Candidate], encoder: Encoder) -> Iterator[Loaded]:
    with ThreadPoolExecutor(LOADERS, thread_name_prefix="tapr-load") as pool:
        waiting: list[Future[Loaded]] = []
        upcoming = iter(candidates)
        while True:
            waiting.extend(pool.submit(_load, item, encoder) for item in islice(upcoming, AHEAD - len(waiting)))
            if not waiting:
                return
            yield waiting.pop(0).result()


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
    except Exception as error:  # whatever one file does to a decoder or an encoder is that file's failure
        return Loaded(replace(entry, failure=f"cannot be prepared ({one_line(error)})"))


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
