"""Several devices of one machine: a process for each encodes, the run that asked writes the gallery, once.

Pictures are handed out in the batches that one device would get, in order, and written in that order: the gallery is
byte for byte that of one device, as far as the devices round alike. What is indexed is kept as with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.base import BulkEncoder, Encoder, Evidence
from tapr.encoders.registry import check_device
from tapr.encoders.wrapper import EncoderWrapper
from tapr.errors import BadInput
from tapr.index.bulk import bulk_of, encode
from tapr.index.captions import Describe, describer
from tapr.index.load import Loaded, load_in_order
from tapr.index.sources import Candidate
from tapr.store.layout import Manifest
from tapr.store.own_encoder import load_own_encoder
from tapr.utils.worker_process import WorkerProcess, run_worker

_ROOM = 16  # pictures that an encoder is handed at once if it takes no bulks (encode.BATCH), at most
ALL = "all"


@dataclass(frozen=True)
class Devices:
    """Elsewhere, on this machine. A device may be named twice: two processes then share it."""

    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Devices:
        """`cuda:0,cuda:1`, or `all`: every GPU that is visible."""
        names = _gpus() if text == ALL else tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise BadInput(f"the devices {text!r} have an empty name: write them as cuda:0,cuda:1, or all")
        return cls(names)

    @property
    def devices(self) -> int:
        return len(self.names)

    def check(self, manifest: Manifest) -> None:
        """Refuse a name that is no device for this encoder."""
        for name in self.names:
            check_device(manifest.card.name, name)

    def look(
        self, manifest: Manifest, encoder: Encoder, candidates: Sequence[Candidate], describe: bool
    ) -> tuple[Encoder, Iterator[Loaded], Describe]:
        kind = _InBulks if bulk_of(encoder) else OnDevices
        words = describer(encoder) if describe else _undescribed
        return kind(self.names, manifest, encoder), load_in_order(candidates, encoder), words


def _undescribed(evidence: Evidence) -> list[str]:
    raise AssertionError("no captions were asked for")


def _gpus() -> tuple[str, ...]:
    try:
        import torch
    except ImportError:
        count = 0
    else:
        count = torch.cuda.device_count()
    if not count:
        raise BadInput("there is no GPU here that torch sees: leave the device out, or name one")
    return tuple(f"cuda:{number}" for number in range(count))


class OnDevices(EncoderWrapper):
    """An encoder whose pictures are encoded by processes, one for each device. For several threads at a time."""

    def __init__(self, names: Sequence[str], manifest: Manifest, encoder: Encoder) -> None:
        """`encoder`: the same in this process, for all but pictures."""
        super().__init__(encoder)
        self.lanes = len(names)
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._processes = [_Process(name, manifest, encoder) for name in names]
        try:
            for process in self._processes:  # all load their weights at the same time
                process.answer()
                self._idle.put(process)
        except BaseException:
            self.close()
            raise

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        process = self._idle.get()
        try:
            return process.encode(prepared)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        for process in self._processes:
            process.close()


class _InBulks(OnDevices):
    """The same for a BulkEncoder."""

    _encoder: BulkEncoder

    @property
    def bulk(self) -> int:
        return self._encoder.bulk

    def encode_bulk(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        return self.encode_images(prepared)


@dataclass(frozen=True)
class _Room:
    """Memory that both sides see: a batch of pictures, or, once they are read, their vectors."""

    pictures: int
    side: int
    numbers: int  # of a picture's vectors

    @property
    def bytes(self) -> int:
        return self.pictures * max(3 * self.side**2, 4 * self.numbers)


class _Process(WorkerProcess):
    """One device's."""

    def __init__(self, device: str, manifest: Manifest, encoder: Encoder) -> None:
        card = encoder.card
        room = _Room(bulk_of(encoder) or _ROOM, card.image_size, card.dim * (1 + card.locals_count))
        does = f"the process that encodes on {device}"
        super().__init__(__name__, room.bytes, does, manifest.model_dump_json(), device)
        self.send(())  # no picture: it loads its weights, and answers when it has

    def encode(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        pictures = np.stack(prepared)
        self.memory[: pictures.size] = pictures.reshape(-1)
        self.send(pictures.shape)
        shapes, dtype = self.answer()
        found = []
        start = 0
        for shape in shapes:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            found.append(np.array(self.memory[start : start + size]).view(dtype).reshape(shape))
            start += size
        return Evidence(*found)


def main() -> None:
    """The process: the shape of a batch of pictures in, the shapes of their vectors and their type out."""
    run_worker(_encoding)


def _encoding(memory: NDArray[np.uint8], manifest: str, device: str) -> Callable[[tuple[int, ...]], object]:
    load = cache(lambda: load_own_encoder(Manifest.model_validate_json(manifest), device=device))

    def work(shape: tuple[int, ...]) -> object:
        encoder = load()
        if not shape:
            return [], "uint8"
        pictures = np.array(memory[: int(np.prod(shape))]).reshape(shape)
        found = encode(encoder, list(pictures))
        vectors = [np.ascontiguousarray(found.global_vectors), np.ascontiguousarray(found.local_vectors)]
        start = 0
        for one in vectors:
            memory[start : start + one.nbytes] = one.view(np.uint8).reshape(-1)
            start += one.nbytes
        return [one.shape for one in vectors], vectors[0].dtype.str

    return work


if __name__ == "__main__":
    main()
