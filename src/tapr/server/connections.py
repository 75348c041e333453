"""Connections: responses without delay; silent, too slow and unresponsive clients are disconnected."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
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
_MAX_WAITING = 1024  # connections that the system keeps until they are accepted
_MAX_ACCEPTED_AT_ONCE = 16  # each takes a file at once, before the limit of connections is looked at
_RESERVED_FILES = 64  # for shards, databases and pictures, beside connections
_FILES_PER_CONNECTION = 2  # its socket, and the file that holds a large form


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
        listening.listen(_MAX_WAITING)
    except OSError as error:
        listening.close()
        reason = (error.strerror or str(error)).lower()
        raise BadInput(
            f"cannot listen on {settings.host} port {settings.port} ({reason}): choose another with --port"
        ) from None
    return listening


def server_of(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    """Return uvicorn's server with our connections; `run(sockets=[listen(settings)])` serves."""

    class LimitedConnection(Connection):
        idle_seconds, most = settings.idle_seconds, connection_limit(settings.connections)

    if LimitedConnection.most < settings.connections:
        what = f"{LimitedConnection.most} connections may be open, not {settings.connections}"
        log.warning("%s: the system allows too few open files; raise the limit with ulimit -n", what)
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        backlog=_MAX_ACCEPTED_AT_ONCE,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        log_level="warning",
        log_config=None,  # uvicorn's own lines, too, are written as logs.py says
        access_log=False,  # its lines would hold query strings; middleware.RequestLog writes ours
        server_header=False,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    return _Server(config)


def connection_limit(wanted: int) -> int:
    """Return how many connections fit into this process's limit of open files, which is raised as far as it may be."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return wanted
    open_files = 32
    with suppress(OSError):
        open_files = len(os.listdir("/dev/fd"))
    beside = open_files + _RESERVED_FILES + 4 * _MAX_ACCEPTED_AT_ONCE  # refused connections close a moment later
    needed = beside + _FILES_PER_CONNECTION * wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(OSError, ValueError):
            allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            soft = allowed
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, (soft - beside) // _FILES_PER_CONNECTION))


class _Server(uvicorn.Server):
    """A server whose queue of connections is longer than what it accepts at once."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_MAX_WAITING)


class Connection(H11Protocol):
    """A connection that is closed when it is held for nothing. Their number is limited.

    uvicorn closes one that is idle after a response. This class also closes one that never sends anything, one whose
    next request head is not complete in time, and one that stops reading its response.
    """

    idle_seconds: float
    most: int  # connections open at a time
    was_full = False  # of the class: the log says once that no more fit, and once that there is room again
    _timer: asyncio.TimerHandle | None = None
    _unsent = 0  # unsent response bytes at the last check

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_too_many())
            self.transport.close()
            if not self.was_full:
                log.warning("%d connections are open: further ones are answered 503", self.most)
            type(self).was_full = True
        elif self.was_full and len(self.connections) <= self.most // 2:
            log.warning("there is room for connections again")
            type(self).was_full = False
        self._watch()

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.flow.write_paused:
            # the head is complete: from now on the time limits of requests apply
            self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP as every request is: as a problem, with a request id and a line in the log."""
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
        self._timer = self.loop.call_later(self.idle_seconds, self._look)

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
    """Make the answer for a connection on which no request has come yet."""
    headers = {"Connection": "close", REQUEST_HEADER: begin_request(None)}
    return by_hand(problem(503, "too many connections are open: close some, or ask again in a moment", headers))


def by_hand(reply: Response) -> bytes:
    """Write out a whole answer, for where there is no request that uvicorn could answer."""
    head = "".join(f"{name.decode()}: {value.decode()}\r\n" for name, value in reply.raw_headers)
    return f"HTTP/1.1 {reply.status_code} {HTTPStatus(reply.status_code).phrase}\r\n{head}\r\n".encode() + bytes(
        reply.body
    )
