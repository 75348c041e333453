"""Decoding in processes: for encoders so fast that threads, which share one interpreter, cannot keep up.

Each process (process.py) is given a few files at a time and leaves their pixels in memory that both sides see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.images.frame import Frame
from tapr.utils.worker_process import WorkerProcess, run_worker

BATCH = 16  # files given to a process at once


class Decoder(WorkerProcess):
    def __init__(self, frame: Frame, load: Callable[[Any, Frame], tuple[Any, NDArray[np.uint8] | None]]) -> None:
        shape = (BATCH, frame.size, frame.size, 3)
        super().__init__(__name__, int(np.prod(shape)), "a process that decodes pictures", shape, frame, load)
        self._pixels = self.memory.reshape(shape)

    def load(self, items: Sequence[Any]) -> list[tuple[Any, NDArray[np.uint8] | None]]:
        """What `load` gives for each item, in order."""
        self.send(list(items))
        facts = self.answer()
        pixels = np.array(self._pixels[: len(facts)])  # the place is used again
        return [(fact, pixels[i] if good else None) for i, (fact, good) in enumerate(facts)]


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

    lots = (items[start : start + BATCH] for start in range(0, len(items), BATCH))
    pool = ThreadPoolExecutor(processes, thread_name_prefix="tapr-decode")
    try:
        waiting: list[Future[list[tuple[Any, NDArray[np.uint8] | None]]]] = []
        while True:
            room = max(processes, -(-ahead // BATCH)) - len(waiting)
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
    run_worker(_decoding)


def _decoding(
    memory: NDArray[np.uint8],
    shape: tuple[int, ...],
    frame: Frame,
    load: Callable[[Any, Frame], tuple[Any, NDArray[np.uint8] | None]],
) -> Callable[[Sequence[Any]], object]:
    pixels = memory.reshape(shape)

    def work(items: Sequence[Any]) -> object:
        found = [load(item, frame) for item in items]
        for i, (_, picture) in enumerate(found):
            if picture is not None:
                pixels[i] = picture
        return [(fact, picture is not None) for fact, picture in found]

    return work
