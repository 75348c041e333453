"""The writer's lock: one index run, repair, write or creation per gallery at a time; the others wait for their turn."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tapr.errors import BadInput, TaprError
from tapr.utils.rooted import Root

LOCK = ".lock"
# Whoever wants the lock takes this one first, and lets go of it with the lock in hand: a writer that comes back at once
# stands behind those who wait.
_QUEUE = ".lock.queue"
_HOLDER = ".lock.holder"  # who has it, for those who wait
NAMES = (LOCK, _QUEUE, _HOLDER)
_HOLDER_BYTES = 4096  # of which no more are read: anyone may have written them
WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.02
_SAID_AFTER = 1.0


class WriterBusy(BadInput):
    """Another process has the lock, and did not let go of it in time."""

    code = "writer_busy"


@contextlib.contextmanager
def writer_lock(
    folder: Path, who: str = "a program", wait: float | None = None, say: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Wait up to `wait` seconds (None: WAIT_SECONDS) for the lock; `say` is told for whom.

    The lock is the operating system's: a killed process leaves none behind.
    """
    wait = WAIT_SECONDS if wait is None else wait
    if not wait >= 0:
        raise BadInput(f"the time to wait for other writers must be 0 seconds or more, not {wait}")
    lock, root = _acquired(folder, wait, say), Root(folder)
    try:
        with contextlib.suppress(OSError, TaprError):  # it is only for people
            holder = {"who": who, "process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            root.delete(_HOLDER)  # of a killed process, or a link
            with root.create(_HOLDER) as file:
                file.write(json.dumps(holder).encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            root.delete(_HOLDER)
        lock.release()


def _acquired(folder: Path, wait: float, say: Callable[[str], None] | None) -> FileLock:
    end = time.monotonic() + wait
    lock, queue = FileLock(folder / LOCK), FileLock(folder / _QUEUE)
    try:
        _wait_for(queue, folder, end, say)
        try:
            _wait_for(lock, folder, end, say)
        finally:
            queue.release()
    except Timeout:
        after = f", and did not end within {wait:g} s" if wait else ""
        raise WriterBusy(f"{holder_of(folder)} is writing to {folder}{after}: wait for it to end") from None
    except OSError as error:
        what = f"cannot write to {folder} ({(error.strerror or str(error)).lower()})"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):  # nobody's bad use
            raise TaprError(f"{what}: make room on that disk, and check that it works") from None
        raise BadInput(f"{what}: choose a folder that you may write to") from None
    return lock


def _wait_for(lock: FileLock, folder: Path, end: float, say: Callable[[str], None] | None) -> None:
    left = max(0.0, end - time.monotonic())
    if say is not None and left > _SAID_AFTER:
        try:
            lock.acquire(timeout=_SAID_AFTER, poll_interval=_POLL_SECONDS)
            return
        except Timeout:
            say(f"{holder_of(folder)} is writing to {folder}: waiting up to {left:.0f} s for it to end")
            left = max(0.0, end - time.monotonic())
    lock.acquire(timeout=left, poll_interval=_POLL_SECONDS)


def holder_of(folder: Path) -> str:
    """Return who has the lock, in words."""
    try:
        with Root(folder).open(_HOLDER) as file:
            holder = json.loads(file.read(_HOLDER_BYTES))
        since = time.strftime("%H:%M:%S", time.gmtime(holder["since"]))
        return f"{holder['who']} (process {holder['process']} on {holder['host']}, since {since} UTC)"
    except (OSError, TaprError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another program"
