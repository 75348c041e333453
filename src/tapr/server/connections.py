"""Connections: responses without delay; silent, too slow and unresponsive clients are disconnected."""

from __future__ import annotations

import asyncio
import os
import socket
from http import HTTPStatus

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tapr.errors import BadInput
from tapr.server.logs import REQUEST_HEADER, begin_request
from tapr.server.problems import log, problem
from tapr.server.settings import Settings

_GRACE_SECONDS = 10  # for running requests when the server stops
_HEAD_BYTES = 64 * 2**10  # request line and headers: a heat map's URL holds a whole spec


def listen(settings: Settings) -> socket.socket:
    """Open the listening socket."""
    address = (settings.host, settings.port)
    # IPPROTO_TCP is explicit: asyncio disables Nagle's algorithm only then. Otherwise every response on a kept
    # connection waits about 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(
        socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        if os.name != "nt":  # on Windows this option lets two servers use one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(1024)
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise BadInput(
            f"cannot listen on {settings.host} port {settings.port} ({reason}): choose another with --port"
        ) from None
    return listening


def server_of(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    class LimitedConnection(Connection):
        limits = settings

    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        log_level="warning",
        log_config=None,  # uvicorn's own lines, too, are written as logs.py says
        access_log=False,  # its lines would hold query strings; middleware.RequestLog writes ours
        server_header=False,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """uvicorn closes a connection that is idle after a response.

    This class also closes one that never sends anything, one whose next request head is not complete in time, and one
    that stops reading its response. It limits the number of connections.
    """

    limits: Settings
    _timer: asyncio.TimerHandle | None = None
    _unsent = 0  # unsent response bytes at the last check

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_too_many())
            self.transport.close()
        self._watch()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.flow.write_paused:
            # the head is complete: from now on the time limits of requests apply
            self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is answered and logged as every request is: as a problem, with a request id."""
        name = begin_request(None)
        log.warning("%s from %s", msg, (self.client or ("unknown", 0))[0])
        headers = {"Connection": "close", REQUEST_HEADER: name}
        self.transport.write(by_hand(problem(400, "the request is not HTTP that can be understood", headers)))
        self.transport.close()

    def on_response_complete(self) -> None:
        self._watch()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._watch()  # the client reads more slowly than we write
        super().pause_writing()

    def resume_writing(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        self._stop_watching()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.limits.idle_seconds, self._look)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:
            self._watch()  # slow, but making progress
        else:
            self.transport.abort()


def _too_many() -> bytes:
    """There is no request yet that it could answer."""
    headers = {"Connection": "close", REQUEST_HEADER: begin_request(None)}
    return by_hand(problem(503, "too many connections are open: close some, or ask again in a moment", headers))


def by_hand(reply: Response) -> bytes:
    """A whole answer, for where there is no request that uvicorn could answer."""
    head = "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in reply.raw_headers)
    return f"HTTP/1.1 {reply.status_code} {HTTPStatus(reply.status_code).phrase}\r\n{head}\r\n".encode() + bytes(
        reply.body
    )
