"""A server in a process that may die, and one beside it that keeps the port and starts it again.

Ray ends a process that has lost the head of its cluster, whatever the process is doing. If another head is there
sooner, the process lives on and can never join it. `tapr serve --ray` therefore runs the server in a child process.
When that ends unasked, this process answers 503 on the same port and starts the child again and again until it is
ready.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tapr.server.connections import by_hand
from tapr.server.logs import REQUEST_HEADER, begin_request
from tapr.server.problems import problem
from tapr.server.supervised import LISTEN, READY

RETRY_SECONDS = 5.0  # between two tries to start the child again
_HEAD_SECONDS, _HEAD_BYTES = 5.0, 64 * 2**10
_TOLD = "the Ray cluster that this gallery is searched on cannot be reached: ask again in a moment"


class Supervisor:
    def __init__(self, command: Sequence[str], listening: socket.socket, say: Callable[[str], None]) -> None:
        self._command, self._listening, self._say = list(command), listening, say
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    def run(self) -> int:
        """-> the exit code, once it was told to stop, or where the child could not be started the first time."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        begun = False
        while True:
            ready = self._started(answer_meanwhile=begun)
            assert self._child is not None
            code = self._child.wait()
            if self._stopping.is_set() or (not ready and not begun):
                return code
            if ready:
                begun = True
                self._say(f"the server process ended ({code}): answering 503 until the Ray cluster is back")
            self._answer(self._stopping, RETRY_SECONDS)
            if self._stopping.is_set():
                return 0

    def _started(self, *, answer_meanwhile: bool) -> bool:
        """Starts the child -> whether it became ready; until then this process answers, except the first time."""
        reading, writing = os.pipe()
        port = self._listening.fileno()
        environment = {**os.environ, LISTEN: str(port), READY: str(writing)}
        self._child = subprocess.Popen(self._command, pass_fds=(port, writing), env=environment)
        os.close(writing)
        done, ready = threading.Event(), False
        answering = threading.Thread(target=self._answer, args=(done, None), daemon=True)
        if answer_meanwhile:
            answering.start()
        try:
            ready = os.read(reading, 1) == b"1"  # nothing: the child has ended
        finally:
            os.close(reading)
            done.set()
            if answer_meanwhile:
                answering.join()
        return ready

    def _answer(self, done: threading.Event, seconds: float | None) -> None:
        """503 for everybody, for so long or until `done`."""
        end = math.inf if seconds is None else time.monotonic() + seconds
        while not done.is_set() and time.monotonic() < end:
            if not select.select([self._listening], [], [], 0.1)[0]:
                continue
            try:
                self._listening.setblocking(False)
                connection, _ = self._listening.accept()
            except OSError:  # the child was quicker, or the client has gone
                continue
            threading.Thread(target=_refuse, args=(connection,), daemon=True).start()

    def _stop(self, number: int, _: Any) -> None:
        self._stopping.set()
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)


def _refuse(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(_HEAD_SECONDS)
        head = b""
        try:
            while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES and (more := connection.recv(65536)):
                head += more
            headers = {"Connection": "close", REQUEST_HEADER: begin_request(None)}
            connection.sendall(by_hand(problem(503, _TOLD, headers)))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):  # what is unread when a connection is closed would reset it
                pass
        except OSError:
            return
