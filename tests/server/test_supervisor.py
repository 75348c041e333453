"""A server whose process dies: 503 meanwhile, on the same port, and back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a port is handed on to a child there")

# a child that answers one request with 200 and dies; before its third life it cannot start
CHILD = """
import http.server, os, pathlib, socket, sys
from tapr.server.supervised import inherited_socket, say_ready
lives = pathlib.Path(sys.argv[1])
lives.write_text(lives.read_text() + "x")
if len(lives.read_text()) == 2:
    sys.exit(1)
listening = inherited_socket()
listening.setblocking(True)
say_ready()
while True:
    connection, _ = listening.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    connection.close()
    if len(lives.read_text()) == 1:
        os._exit(1)
"""
PARENT = """
import socket, sys
from tapr.server import supervisor
supervisor.RETRY_SECONDS = 0.3
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
print(listening.getsockname()[1], flush=True)
sys.exit(supervisor.Supervisor([sys.executable, sys.argv[1], sys.argv[2]], listening, print).run())
"""


def status(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        told = json.loads(error.read())["status"] if error.headers["Retry-After"] else 0
        error.close()
        return int(told)


def test_503_until_it_is_back(tmp_path: Path) -> None:
    child, parent, lives = tmp_path / "child.py", tmp_path / "parent.py", tmp_path / "lives"
    child.write_text(CHILD)
    parent.write_text(PARENT)
    lives.write_text("")
    process = subprocess.Popen(
        [sys.executable, str(parent), str(child), str(lives)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    assert status(port) == 200
    seen = []
    deadline = time.monotonic() + 120  # only for a test that fails
    while 200 not in seen and time.monotonic() < deadline:
        try:
            seen.append(status(port))
        except (TimeoutError, urllib.error.URLError, ConnectionError):
            continue  # the dying child had it
        time.sleep(0.05)
    assert set(seen) == {503, 200}
    assert seen[-1] == 200
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    process.stdout.close()
    assert status_is_refused(port)


def status_is_refused(port: int) -> bool:
    try:
        status(port)
    except (urllib.error.URLError, ConnectionError):
        return True
    return False


def test_a_child_that_cannot_start_ends_it_with_its_code(tmp_path: Path) -> None:
    child, parent = tmp_path / "child.py", tmp_path / "parent.py"
    child.write_text("raise SystemExit(2)")
    parent.write_text(PARENT)
    done = subprocess.run([sys.executable, str(parent), str(child), "x"], capture_output=True, check=False)
    assert done.returncode == 2
