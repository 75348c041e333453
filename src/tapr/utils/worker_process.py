"""A worker process: messages over pipes, arrays in shared memory.

It runs one function. It does not import the user's script again, and it does not inherit a GPU.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from subprocess import Popen
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError


def memory_file() -> BinaryIO:
    """Open a file that lies in memory and has no name: nothing is left behind when its processes are killed."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("tapr"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def start_worker(module: str, file: BinaryIO, environment: Mapping[str, str], *, quiet: bool = False) -> Popen[bytes]:
    """Run a module in a new process that inherits `file`, whose number is its argument, and nothing else.

    Neither the user's script nor what this process has imported is loaded. `quiet` drops what it says on stderr.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    return Popen(
        [sys.executable, "-P", "-m", module, str(file.fileno())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        pass_fds=[file.fileno()],
    )


class WorkerProcess:
    """One worker process, with an array that it shares. Only one thread may use it at a time."""

    def __init__(self, module: str, room: int, does: str, *first: object) -> None:
        """Run a module in a new process with `room` bytes of shared memory. `does` names its task in error messages."""
        self._does = does
        self._file = memory_file()
        self._file.truncate(room)
        self.memory: NDArray[np.uint8] = np.memmap(self._file, np.uint8, "r+")
        self._process = start_worker(module, self._file, {})
        self.send(first)

    def send(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # the worker has ended: `answer` reports that
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the last message. An exception from the worker is raised here."""
        assert self._process.stdout is not None
        try:
            reply = pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            code = self._process.wait()
            raise TaprError(
                f"{self._does} ended (code {code}), maybe for lack of memory: run it again, what is indexed is kept"
            ) from None
        if isinstance(reply, BaseException):
            raise reply
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()  # the worker ends when its input ends
        self._process.stdout.close()
        self._process.wait()
        self._file.close()


def run_worker(prepare: Callable[..., Callable[[Any], object]]) -> None:
    """Run the worker's loop. `prepare` receives the shared memory and the first message, and returns the function that
    answers all others.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which then closes the input
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # as in cli/main.py
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # stdout is reserved for answers
    first = pickle.load(source)
    with os.fdopen(int(sys.argv[1]), "r+b") as file:
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
