"""Several devices of one machine: a process for each encodes, the run that asked writes the gallery, once.

Pictures are handed out in the batches that one device would get, in order, and written in that order: the gallery is
byte for byte that of one device, as far as the devices round alike. What is indexed is kept as with one.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.encoders.base import BulkEncoder, Encoder, EncoderCard, Evidence, Float32
from tapr.encoders.frame import Frame
from tapr.errors import BadInput, TaprError
from tapr.gallery.bulk import bulk_of, encode
from tapr.gallery.captions import Describe, describer
from tapr.gallery.layout import Manifest
from tapr.gallery.load import Loaded, load_in_order
from tapr.gallery.options import load_own_encoder
from tapr.gallery.sources import Candidate

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


class OnDevices:
    """An encoder whose pictures are encoded by processes, one for each device. For several threads at a time."""

    def __init__(self, names: Sequence[str], manifest: Manifest, encoder: Encoder) -> None:
        """`encoder`: the same in this process, for all but pictures."""
        self._encoder, self.lanes = encoder, len(names)
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._processes = [_Process(name, manifest, encoder) for name in names]
        try:
            for process in self._processes:  # all load their weights at the same time
                process.answer()
                self._idle.put(process)
        except BaseException:
            self.close()
            raise

    @property
    def card(self) -> EncoderCard:
        return self._encoder.card

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return self._encoder.prepare(image)

    def encode_images(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        process = self._idle.get()
        try:
            return process.encode(prepared)
        finally:
            self._idle.put(process)

    def encode_texts(self, texts: Sequence[str]) -> Float32:
        return self._encoder.encode_texts(texts)

    def encode_atoms(self, texts: Sequence[str]) -> Float32:
        return self._encoder.encode_atoms(texts)

    def unread(self, text: str) -> str:
        return self._encoder.unread(text)

    def close(self) -> None:
        for process in self._processes:
            process.close()


class _InBulks(OnDevices):
    """Of an encoder that takes bulks."""

    _encoder: BulkEncoder

    @property
    def bulk(self) -> int:
        return self._encoder.bulk

    @property
    def frame(self) -> Frame:
        return self._encoder.frame

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


class _Process:
    """One device's. Not for two threads at a time."""

    def __init__(self, device: str, manifest: Manifest, encoder: Encoder) -> None:
        self._device, card = device, encoder.card
        self._room = _Room(bulk_of(encoder) or _ROOM, card.image_size, card.dim * (1 + card.locals_count))
        self._file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self._file.truncate(self._room.bytes)
        self._memory = np.memmap(self._file, np.uint8, "r+")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tapr.gallery.devices import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=[self._file.fileno()],  # it has no name: nothing is left behind, whatever ends first
        )
        self._send((self._file.fileno(), manifest.model_dump_json(), device))

    def encode(self, prepared: Sequence[NDArray[np.uint8]]) -> Evidence:
        pictures = np.stack(prepared)
        self._memory[: pictures.size] = pictures.reshape(-1)
        self._send(pictures.shape)
        shapes, dtype = self.answer()
        found = []
        start = 0
        for shape in shapes:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            found.append(np.array(self._memory[start : start + size]).view(dtype).reshape(shape))
            start += size
        return Evidence(*found)

    def answer(self) -> tuple[list[tuple[int, ...]], str]:
        assert self._process.stdout is not None
        try:
            found = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._process.wait()
            raise TaprError(
                f"the process that encodes on {self._device} ended (code {code}), maybe for lack of memory: run it "
                "again, what is indexed is kept"
            ) from None
        if isinstance(found, BaseException):
            raise found
        shapes: tuple[list[tuple[int, ...]], str] = found
        return shapes

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # the end of its input is the end of it
        self._process.stdout.close()
        self._process.wait()
        self._file.close()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended: the reader of its answer says so
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()


def main() -> None:
    """The process: the shape of a batch of pictures in, the shapes of their vectors out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted is the run, and it closes the input
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # nothing but answers goes there

    def say(answer: object) -> None:
        pickle.dump(answer, answers)
        answers.flush()

    number, manifest, device = pickle.load(source)
    with os.fdopen(number, "r+b") as file:
        memory = np.memmap(file, np.uint8, "r+")
    try:
        encoder = load_own_encoder(Manifest.model_validate_json(manifest), device=device)
    except Exception as error:
        say(error)
        return
    say(([], "uint8"))
    while True:
        try:
            shape = pickle.load(source)
        except EOFError:
            return
        try:
            pictures = np.array(memory[: int(np.prod(shape))]).reshape(shape)
            found = encode(encoder, list(pictures))
            vectors = [np.ascontiguousarray(found.global_vectors), np.ascontiguousarray(found.local_vectors)]
            start = 0
            for one in vectors:
                memory[start : start + one.nbytes] = one.view(np.uint8).reshape(-1)
                start += one.nbytes
            say(([one.shape for one in vectors], vectors[0].dtype.str))
        except Exception as error:
            say(error)
