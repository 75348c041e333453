"""Joining a cluster: mistakes that Ray itself would ponder for minutes are one sentence, at once."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from tapr.cluster.connect import connect
from tapr.errors import BadInput

pytestmark = pytest.mark.ray


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server for one connection. -> its address"""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                line, _ = server.accept()
                with line:
                    line.settimeout(5)
                    answer(line)

        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_cluster_that_speaks_tls_is_not_joined_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the command openssl, which makes the certificate")
    certificate, key = tmp_path / "node.crt", tmp_path / "node.key"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=node", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with (
        listening(lambda line: context.wrap_socket(line, server_side=True).close()) as address,
        pytest.raises(BadInput, match="speaks TLS: set RAY_USE_TLS=1"),
    ):
        connect(address)


def test_tls_is_not_spoken_to_a_cluster_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with (
        listening(lambda line: line.sendall(b"\0\0\6\4\0\0\0\0\0\0\5\0\0\x40\0")) as address,
        pytest.raises(BadInput, match="does not speak TLS, and RAY_USE_TLS is set"),
    ):
        connect(address)


def test_an_address_without_a_server_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(BadInput, match="cannot join the Ray cluster"):
        connect(f"127.0.0.1:{port}")
    with pytest.raises(BadInput, match="ray:// is not supported"):
        connect("ray://127.0.0.1:10001")
    with pytest.raises(BadInput, match="write HOST:PORT"):
        connect("somewhere")
