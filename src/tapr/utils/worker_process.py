"""A process of our own that works for this one: messages over pipes, arrays in memory that both sides see.

It runs one function and nothing else: no script of the user's is imported a second time, and no GPU is inherited.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError


class WorkerProcess:
    """One process. Not for two threads at a time."""

    def __init__(self, module: str, room: int, does: str, *first: object) -> None:
        """`main` of the module is run; `room` bytes are shared; what it `does` is said when it ends too early."""
        self._does = does
        self._file = tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)  # noqa: SIM115
        self._file.truncate(room)
        self.memory: NDArray[np.uint8] = np.memmap(self._file, np.uint8, "r+")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            pass_fds=[self._file.fileno()],  # it has no name: nothing is left behind, whatever ends first
        )
        self.send((self._file.fileno(), *first))

    def send(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it ended: the reader of its answer says so
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def answer(self) -> Any:
        """What it answers to the last message; raised where that is an exception."""
        assert self._process.stdout is not None
        try:
            found = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._process.wait()
            raise TaprError(
                f"{self._does} ended (code {code}), maybe for lack of memory: run it again, what is indexed is kept"
            ) from None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # the end of its input is the end of it
        self._process.stdout.close()
        self._process.wait()
        self._file.close()


def run_worker(prepare: Callable[..., Callable[[Any], object]]) -> None:
    """The process: `prepare` is given the shared memory and the first message, and gives what answers all others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who is interrupted is the run, and it closes the input
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # as in cli/main.py
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # nothing but answers goes there
    number, *first = pickle.load(source)
    with os.fdopen(number, "r+b") as file:
        memory = np.memmap(file, np.uint8, "r+")
    work = prepare(memory, *first)
    while True:
        try:
            message = pickle.load(source)
        except EOFError:
            return
        answer: object
        try:
            answer = work(message)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()
