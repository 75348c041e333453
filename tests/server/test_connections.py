"""Connections on a real socket: answered without delay, closed when they are held for nothing."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from tapr.gallery import Gallery
from tapr.server.security import JSON_BYTES
from tapr.server.settings import UPLOAD_LIMITS, Settings
from tests.server.conftest import ColourFactorizer, served

# a server in a process that may open few files
FEW_FILES = """
import resource, sys
from tapr.cli.serve import run_server
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.server.security import JSON_BYTES
from tapr.server.settings import UPLOAD_LIMITS, Settings
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
run_server(Gallery.open(sys.argv[1], encoder=FakeEncoder()), Settings(port=0), "target-only", as_json=True)
"""
HELLO = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def patient(gallery: Gallery) -> Iterator[Any]:
    with served(gallery, ColourFactorizer()) as server:
        yield server


@pytest.fixture(scope="module")
def hasty(gallery: Gallery) -> Iterator[Any]:
    with served(gallery, ColourFactorizer(), Settings(port=0, idle_seconds=0.3, connections=3)) as server:
        yield server


@contextmanager
def connected(server: Any) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Reads until the server closes; a server that does not makes the read time out."""
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def test_answers_on_a_kept_connection_do_not_wait_for_an_acknowledgement(patient: Any) -> None:
    """With Nagle's algorithm on, every one but the first took 44 ms."""
    with connected(patient) as connection:
        connection.sendall(HELLO)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        accepted = [held.transport.get_extra_info("socket") for held in patient.server_state.connections]
        assert accepted
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in accepted)


def test_a_silent_connection_is_closed(hasty: Any) -> None:
    with connected(hasty) as connection:
        assert is_closed(connection)


def test_a_connection_that_is_silent_after_a_request_is_closed(hasty: Any) -> None:
    with connected(hasty) as connection:
        connection.sendall(HELLO)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert is_closed(connection)


@pytest.mark.parametrize("first", [b"", HELLO])
def test_a_connection_that_sends_its_head_byte_by_byte_is_closed(hasty: Any, first: bytes) -> None:
    """A byte now and then kept a connection open for good, also after an answer."""
    with connected(hasty) as connection:
        connection.sendall(first)
        if first:
            connection.recv(4096)
        for _ in range(300):
            try:
                connection.sendall(b"G")
            except ConnectionError:
                return
            time.sleep(0.02)
        pytest.fail("6 seconds of single bytes, and the connection is still open")


def test_a_connection_that_does_not_read_its_answer_is_closed(hasty: Any) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", hasty.port))
        request = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        deaf.settimeout(0.2)
        with suppress(TimeoutError, ConnectionError):
            while True:  # until the buffers of both ends are full, and the server reads no more requests
                deaf.sendall(request * 50)
        until = time.monotonic() + 30
        while hasty.server_state.connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not hasty.server_state.connections


def test_a_request_on_its_way_is_not_cut_off(hasty: Any) -> None:
    """Its body may take `seconds`, which are more than a head has."""
    body = json.dumps({"spec": {"target": "blue"}, "reference_id": "red-blue.png"}).encode()
    head = (
        f"POST /api/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with connected(hasty) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:10])
        time.sleep(1)
        connection.sendall(body[10:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_too_many_connections_are_answered_503(hasty: Any) -> None:
    held = [socket.create_connection(("127.0.0.1", hasty.port), timeout=30) for _ in range(4)]
    try:
        answers = []
        for connection in held:
            try:
                answers.append(connection.recv(4096))
            except ConnectionError:
                answers.append(b"")
        told = [answer for answer in answers if answer]
        assert told
        assert all(answer.startswith(b"HTTP/1.1 503") and b"too many connections" in answer for answer in told)
    finally:
        for connection in held:
            connection.close()
    until = time.monotonic() + 30
    answer = b""
    while b" 200 " not in answer and time.monotonic() < until:  # there is room again once the server has seen them go
        with connected(hasty) as connection:
            connection.sendall(HELLO)
            answer = connection.recv(4096)
    assert b" 200 " in answer


def test_what_is_not_http_is_a_problem_with_a_request_id(patient: Any, caplog: pytest.LogCaptureFixture) -> None:
    with connected(patient) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        reply = b""
        with suppress(ConnectionError):
            while more := connection.recv(65536):
                reply += more
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert b"x-request-id: " in head.lower()
    assert json.loads(body)["status"] == 400


def test_the_log_of_the_http_server_is_ours(patient: Any) -> None:
    """uvicorn's own handlers would write plain lines under --json-log."""
    assert patient.config.log_config is None


def test_content_length_beside_transfer_encoding_closes_the_connection(patient: Any) -> None:
    """RFC 9112, 6.1: a proxy may see the end of such a request elsewhere, so nothing may follow it."""
    head = b"POST /api/rank HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with connected(patient) as connection:
        connection.sendall(head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        reply = b""
        while more := connection.recv(65536):
            reply += more
    assert reply.startswith(b"HTTP/1.1 4")
    assert b"connection: close" in reply.lower()


@pytest.mark.parametrize(("proxies", "statuses"), [((), [200, 429]), (("127.0.0.0/8",), [200, 200])])
def test_a_forged_address_is_believed_from_named_proxies_only(
    gallery: Gallery, proxies: tuple[str, ...], statuses: list[int]
) -> None:
    """From loopback a new X-Forwarded-For per request escaped --rate."""
    with served(gallery, ColourFactorizer(), Settings(port=0, rate="1/h", proxies=proxies)) as server:
        for forged, status in zip(("198.51.100.1", "198.51.100.2"), statuses, strict=True):
            with connected(server) as connection:
                connection.sendall(
                    f"GET /api/gallery HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: {forged}\r\n\r\n".encode()
                )
                assert connection.recv(65536).startswith(f"HTTP/1.1 {status}".encode())


def test_unfinished_bodies_hold_a_limited_amount_of_memory(gallery: Gallery) -> None:
    """Forty unfinished bodies of JSON held 1.2 GB."""
    settings = Settings(port=0, limits=replace(UPLOAD_LIMITS, bytes=3 * JSON_BYTES), held_bytes=10 * JSON_BYTES)
    most = 5 * JSON_BYTES  # of one body
    fields = f"Host: 127.0.0.1\r\nContent-Length: {most}\r\nContent-Type: application/json"
    head = f"POST /api/search HTTP/1.1\r\n{fields}\r\n\r\n".encode()
    unfinished = head + b" " * (most - 1)
    with served(gallery, ColourFactorizer(), settings) as server, ExitStack() as held:
        waiting = [held.enter_context(connected(server)) for _ in range(4)]
        for connection in waiting:
            with suppress(ConnectionError):
                connection.sendall(unfinished)
        for _ in range(2):  # two fit
            answered = select.select(waiting, [], [], 60)[0][0]
            with suppress(ConnectionError):  # it may be reset, since it was still sending
                assert answered.recv(65536).startswith(b"HTTP/1.1 429")
            waiting.remove(answered)
        for connection in (*waiting, held.enter_context(connected(server))):
            connection.sendall(b"1" if connection in waiting else unfinished + b"1")
            assert connection.recv(65536).startswith(b"HTTP/1.1 422"), "those that fit are answered, and leave room"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of open files")
def test_more_idle_connections_than_files_leave_a_server_that_answers_and_a_short_log(gallery: Gallery) -> None:
    """With 256 files and 300 idle connections nothing was answered, and the log grew by megabytes a second."""
    command = [sys.executable, "-c", FEW_FILES, str(gallery.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(300)]
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            with suppress(ConnectionError):
                connection.sendall(HELLO)
            assert connection.recv(4096).startswith(b"HTTP/1.1 503")
        for connection in idle:
            connection.close()
        answer = b""
        until = time.monotonic() + 60
        while b" 200 " not in answer and time.monotonic() < until:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.sendall(HELLO)
                with suppress(ConnectionError):
                    answer = connection.recv(4096)
        process.terminate()
        _, log = process.communicate()
    assert b" 200 " in answer
    assert len(log) < 2000, log[:4000]
    assert "too few open files" in log
