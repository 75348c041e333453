"""Decode untrusted pictures in worker processes with hard limits of memory and time.

A worker (worker.py) is reused for many pictures. One that exceeds a limit or crashes is replaced, and takes nothing but
its picture along. Each picture is first tried with ORDINARY_MEMORY. Whatever fails is tried once more on another worker
with all the memory that its limits allow, one picture at a time: so all workers together are bounded too.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar

import numpy as np

from tapr.images.decode import (
    DEFAULT_LIMITS,
    BadImage,
    Decoded,
    Limits,
    NoRoomToDecode,
    PictureTooLarge,
    View,
    decode_views,
)
from tapr.images.photo_facts import checked_facts, read_facts
from tapr.utils.amounts import file_size
from tapr.utils.threads import thread_count
from tapr.utils.worker_process import memory_file, start_worker

ORDINARY_MEMORY = 256 * 2**20  # bytes; nearly all pictures need much less
WAIT_SECONDS = 60.0  # for a free worker
FACTS_SECONDS = 10.0  # of processor time, to read a photograph's metadata
MAX_ANSWER_BYTES = 64 * 2**10
MAX_PIXEL_BYTES = 512 * 2**20
# Where the system does not limit memory (macOS), this process looks at what a worker holds, and kills it.
MEMORY_LIMIT_HOLDS = sys.platform == "linux"
WATCH_SECONDS = 0.1
BYTES_AT_REST = 96 * 2**20  # of a worker, about
KEPT_BYTES = 32 * 2**20  # that a worker keeps for its next picture, and as much in the shared file
_ENVIRONMENT = {  # one thread and one heap: the limit is then used for the picture
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(KEPT_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(KEPT_BYTES),
}

Result = TypeVar("Result")
Decode = Callable[[bytes, Sequence[View], Limits], Decoded]  # decode_views or decode_apart


class _TooMuchMemory(PictureTooLarge):
    """A picture that exceeds the limit of memory; a higher limit may do."""

    @classmethod
    def than(cls, limits: Limits) -> _TooMuchMemory:
        return cls(f"takes more than the {file_size(limits.memory)} of memory allowed to decode")


class _Worker:
    """A worker process and the file in memory that it shares with this one. One thread may use it at a time."""

    def __init__(self) -> None:
        self._file = memory_file()
        try:
            self._process = start_worker("tapr.images.worker", self._file, _ENVIRONMENT, quiet=True)
        except OSError:
            self._file.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        self.pid = self._process.pid
        self.is_spent = False  # true while it works, and once it has ended or said that it ends

    def decode(self, data: bytes, views: Sequence[View], limits: Limits) -> Decoded:
        """Decode a picture, or raise what the worker says of it."""
        wanted = [
            (view.side, view.longest, view.frame and (view.frame.size, view.frame.fit), view.png) for view in views
        ]
        return self._ask(data, {"bytes": len(data), "views": wanted}, limits, self._decoded)

    def facts(self, data: bytes, sidecars: Sequence[bytes], limits: Limits) -> dict[str, Any]:
        """Read the facts of a photograph."""
        request = {"bytes": len(data), "sidecars": [len(sidecar) for sidecar in sidecars]}
        return self._ask(b"".join((data, *sidecars)), request, limits, lambda answer: checked_facts(answer["facts"]))

    def _ask(
        self, data: bytes, request: dict[str, Any], limits: Limits, read: Callable[[dict[str, Any]], Result]
    ) -> Result:
        """Send a request and read its answer."""
        self.is_spent = True
        try:
            self._write(data)
            with suppress(OSError):  # the worker has ended: _answer says how
                self._requests.write(json.dumps({**request, "limits": asdict(limits)}).encode() + b"\n")
                self._requests.flush()
            answer = self._answer(limits)
            result = None if "failed" in answer else read(answer)
            self.is_spent = bool(answer["last"])
        except (LookupError, TypeError, ValueError) as error:
            raise NoRoomToDecode(f"a process that decodes pictures gave a wrong answer ({error})") from None
        except (OSError, MemoryError):
            raise _no_memory() from None
        finally:
            with suppress(OSError):
                if os.fstat(self._file.fileno()).st_size > KEPT_BYTES:
                    os.ftruncate(self._file.fileno(), 0)
        if result is None:
            raise _refusal(str(answer["failed"]), str(answer.get("reason")), limits)
        return result

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process, whatever it does."""
        self.kill()
        with suppress(OSError):
            self._requests.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._file.close()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.pwrite(self._file.fileno(), rest, len(data) - len(rest)) :]

    def _answer(self, limits: Limits) -> dict[str, Any]:
        """Wait for one line."""
        line, deadline = b"", time.monotonic() + 10 + 4 * limits.seconds
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise NoRoomToDecode("it was not decoded in time: the machine is busy")
            if self._poll.poll(1000 * (left if MEMORY_LIMIT_HOLDS else min(left, WATCH_SECONDS))):
                piece = os.read(self._answers, MAX_ANSWER_BYTES)
                if not piece:
                    raise _error_of_end(self._process.wait(), limits)
                line += piece
                if len(line) > MAX_ANSWER_BYTES:
                    raise ValueError("a long one")
            elif not MEMORY_LIMIT_HOLDS and resident_bytes(self.pid) > BYTES_AT_REST + limits.memory:
                raise _TooMuchMemory.than(limits)
        answer = json.loads(line)
        if not isinstance(answer, dict):
            raise TypeError("no object")
        return answer

    def _decoded(self, answer: dict[str, Any]) -> Decoded:
        """Read the pixels. Nothing that the worker says is believed without a check."""
        width, height = (int(number) for number in answer["size"])
        place, arrays = 0, []
        for shape in answer["shapes"]:
            size = math.prod(shape)
            if not (isinstance(size, int) and 0 < size <= MAX_PIXEL_BYTES and min(shape) > 0):
                raise ValueError("a shape that no picture has")
            pixels = np.empty(size, np.uint8)
            filled = 0
            while filled < size:
                count = os.preadv(self._file.fileno(), [pixels.data[filled:]], place + filled)
                if not count:
                    raise ValueError("fewer pixels than were announced")
                filled += count
            arrays.append(pixels.reshape(shape))
            place += size
        return Decoded((width, height), arrays)


def _refusal(failed: str, reason: str, limits: Limits) -> BadImage | NoRoomToDecode:
    """Return the error that a worker's answer stands for."""
    if failed == "memory":
        return _TooMuchMemory.than(limits)
    if failed == "no_room":
        return _no_memory()
    return PictureTooLarge(reason) if failed == "too_large" else BadImage(reason)


def _no_memory() -> NoRoomToDecode:
    return NoRoomToDecode("there was not enough memory to decode it")


def _error_of_end(code: int, limits: Limits) -> BadImage | NoRoomToDecode:
    """Return the error that the end of a worker is for its picture; `code` as subprocess gives it."""
    if code == -signal.SIGXCPU:
        return PictureTooLarge(f"takes more than the {limits.seconds:g} seconds of processor time allowed to decode")
    if -code in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        return BadImage("is broken: the library that decodes it crashes")
    return NoRoomToDecode(f"the process that decodes pictures ended (code {code}), maybe for lack of memory")


class Workers:
    """A few worker processes, started when they are first needed, for any number of threads."""

    def __init__(self, most: int) -> None:
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._lock, self._places = Lock(), BoundedSemaphore(most)
        self._alone = BoundedSemaphore(1)  # for the one picture at a time that may take more than ORDINARY_MEMORY

    def decode(self, data: bytes, views: Sequence[View], limits: Limits = DEFAULT_LIMITS) -> Decoded:
        """Decode a picture file into each of the views, as decode_views does."""
        if not data or len(data) > limits.bytes:
            return decode_views(data, views, limits)  # refuses it
        ordinary = replace(limits, memory=min(limits.memory, ORDINARY_MEMORY))
        try:
            return self._try(lambda worker: worker.decode(data, views, ordinary))
        except PictureTooLarge as error:
            if not isinstance(error, _TooMuchMemory):
                raise
        except (BadImage, NoRoomToDecode):
            pass  # a library may call a picture broken when it gets no memory
        with _place(self._alone):
            return self._try(lambda worker: worker.decode(data, views, limits))

    def facts(self, data: bytes, sidecars: Sequence[bytes] = ()) -> dict[str, Any]:
        """Read the facts of a photograph; none where reading them takes too much, or breaks a library."""
        limits = replace(DEFAULT_LIMITS, memory=ORDINARY_MEMORY, seconds=FACTS_SECONDS)
        try:
            return self._try(lambda worker: worker.facts(data, sidecars, limits))
        except BadImage:
            return {}

    def pids(self) -> list[int]:
        """Return the ids of the processes that run now."""
        with self._lock:
            return [worker.pid for worker in (*self._idle, *self._busy)]

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            for worker in self._busy:
                worker.kill()  # the thread that uses it closes it
            while self._idle:
                self._idle.pop().close()

    def _try(self, ask: Callable[[_Worker], Result]) -> Result:
        with _place(self._places):
            worker = self._take()
            try:
                return ask(worker)
            finally:
                self._give_back(worker)

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if not worker.has_ended:
                    self._busy.add(worker)
                    return worker
                worker.close()
        try:
            worker = _Worker()
        except (OSError, MemoryError) as error:
            raise NoRoomToDecode(f"no process could be started to decode it ({error})") from None
        with self._lock:
            self._busy.add(worker)
        return worker

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._busy.remove(worker)
            if not worker.is_spent:
                self._idle.append(worker)
                return
        worker.close()


@contextmanager
def _place(places: BoundedSemaphore) -> Iterator[None]:
    if not places.acquire(timeout=WAIT_SECONDS):
        raise NoRoomToDecode("all processes that decode pictures are busy")
    try:
        yield
    finally:
        places.release()


@cache
def shared() -> Workers:
    """Return the workers of this process: as many as it may use threads, and at least two."""
    workers = Workers(max(2, thread_count()))
    atexit.register(workers.close)
    return workers


if os.name == "posix":
    os.register_at_fork(after_in_child=shared.cache_clear)  # a worker has one parent


def decode_apart(data: bytes, views: Sequence[View], limits: Limits = DEFAULT_LIMITS) -> Decoded:
    """Decode a picture file in a worker process; in this one on Windows, which has no such limits."""
    decode = shared().decode if os.name == "posix" else decode_views
    return decode(data, views, limits)


def facts_apart(data: bytes, sidecars: Sequence[bytes] = ()) -> dict[str, Any]:
    """Read the facts of a photograph in a worker process; in this one on Windows."""
    return shared().facts(data, sidecars) if os.name == "posix" else read_facts(data, sidecars)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds, as `ps` says it; 0 where it has ended."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or 0) * 1024
