"""Decoding in processes: for encoders so fast that threads, which share one interpreter, cannot keep up.

Each process is given a few files at a time over a pipe and leaves their pixels in memory that both sides see. It runs
`main` below and nothing else: no script of the user's is imported a second time, and no GPU is inherited.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.encoders.frame import Frame
from tapr.errors import TaprError

LOT = 16  # files given to a process at once


class Decoder:
    """One process. Not for two threads at a time."""

    def __init__(self, frame: Frame, load: Callable[[Any, Frame], tuple[Any, NDArray[np.uint8] | None]]) -> None:
        self._file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        shape = (LOT, frame.size, frame.size, 3)
        self._file.truncate(int(np.prod(shape)))
        self._pixels = np.memmap(self._file, np.uint8, "r+", shape=shape)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tapr.gallery.decoders import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=[self._file.fileno()],  # it has no name: nothing is left behind, whatever ends first
        )
        self._send((self._file.fileno(), shape, frame, load))

    def load(self, items: Sequence[Any]) -> list[tuple[Any, NDArray[np.uint8] | None]]:
        """What `load` gives for each item, in order."""
        self._send(list(items))
        assert self._process.stdout is not None
        try:
            facts = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._process.wait()
            raise TaprError(
                f"a process that decodes pictures ended (code {code}), maybe for lack of memory: run it again, what is "
                "indexed is kept"
            ) from None
        if isinstance(facts, BaseException):
            raise facts
        pixels = np.array(self._pixels[: len(facts)])  # the place is used again
        return [(fact, pixels[i] if good else None) for i, (fact, good) in enumerate(facts)]

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()  # the end of its input is the end of it
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()
        self._file.close()

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended: the reader of its answer says so
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()


def decoded_in_order(
    items: Sequence[Any],
    frame: Frame,
    load: Callable[[Any, Frame], tuple[Any, NDArray[np.uint8] | None]],
    processes: int,
    ahead: int,
) -> Iterator[tuple[Any, NDArray[np.uint8] | None]]:
    """`load` of every item, in order, by so many processes; no more than about `ahead` are held."""
    idle: SimpleQueue[Decoder] = SimpleQueue()
    decoders = [Decoder(frame, load) for _ in range(processes)]
    for decoder in decoders:
        idle.put(decoder)

    def work(lot: Sequence[Any]) -> list[tuple[Any, NDArray[np.uint8] | None]]:
        decoder = idle.get()
        try:
            return decoder.load(lot)
        finally:
            idle.put(decoder)

    lots = (items[start : start + LOT] for start in range(0, len(items), LOT))
    pool = ThreadPoolExecutor(processes, thread_name_prefix="tapr-decode")
    try:
        waiting: list[Future[list[tuple[Any, NDArray[np.uint8] | None]]]] = []
        while True:
            room = max(processes, -(-ahead // LOT)) - len(waiting)
            waiting.extend(pool.submit(work, lot) for lot in islice(lots, room))
            if not waiting:
                return
            yield from waiting.pop(0).result()
    finally:
        pool.shutdown(cancel_futures=True)
        for decoder in decoders:
            decoder.close()


def main() -> None:
    """The process: lots of items in, (fact, whether there are pixels) of each out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted is the run, and it closes the input
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # nothing but answers goes there
    number, shape, frame, load = pickle.load(source)
    with os.fdopen(number, "r+b") as file:
        pixels = np.memmap(file, np.uint8, "r+", shape=shape)
    while True:
        try:
            items = pickle.load(source)
        except EOFError:
            return
        answer: object
        try:
            found = [load(item, frame) for item in items]
            for i, (_, picture) in enumerate(found):
                if picture is not None:
                    pixels[i] = picture
            answer = [(fact, picture is not None) for fact, picture in found]
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()
