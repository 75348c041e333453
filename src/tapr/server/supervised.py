"""What the child of a supervisor (supervisor.py) knows of it."""

from __future__ import annotations

import os
import signal
import socket

LISTEN, READY = "TAPR_LISTEN_FD", "TAPR_READY_FD"  # environment of the child: the port, and where it says "ready"


def is_supervised() -> bool:
    return LISTEN in os.environ


def inherited_socket() -> socket.socket | None:
    """The port of the supervisor."""
    number = os.environ.get(LISTEN)
    return socket.socket(fileno=int(number)) if number else None


def say_ready() -> None:
    number = os.environ.pop(READY, None)
    if number:
        os.write(int(number), b"1")
        os.close(int(number))


def end() -> None:
    """Let the supervisor start a new process; a server without one goes on."""
    if is_supervised():
        os.kill(os.getpid(), signal.SIGTERM)
