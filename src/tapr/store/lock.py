"""The writer's lock: one index run, repair or creation per gallery at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tapr.errors import BadInput

LOCK = ".lock"


class WriterBusy(BadInput):
    """Another process has the lock."""

    code = "writer_busy"


def writer_lock(folder: Path) -> AbstractContextManager[Any]:
    """The lock is the system's, so a killed run leaves none behind."""
    try:
        return FileLock(folder / LOCK, timeout=0).acquire()
    except Timeout:
        raise WriterBusy(f"another index run is writing to {folder}: wait for it to end") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"cannot write to {folder} ({reason}): choose a folder that you may write to") from None
