"""Pictures by address: only from where the server may, whatever names, redirects and servers try."""

from __future__ import annotations

import http.server
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapr.errors import BadInput
from tapr.images.decode import Limits, PictureTooLarge
from tapr.server.fetching import Allowed, Fetcher, NotFetched, is_public
from tests.pictures import flag, png

PICTURE = png(flag("red"))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            try:
                for _ in range(100):
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    time.sleep(0.05)
            except OSError:
                pass
        elif self.path == "/silent":
            time.sleep(3)
        elif self.path == "/huge":
            self.send_response(200)
            self.end_headers()  # no length: it must be stopped by counting
            try:
                for _ in range(1000):
                    self.wfile.write(b"x" * 1000)
            except OSError:
                pass
        elif self.path == "/short":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x")
        elif self.path == "/gone":
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(PICTURE)))
            self.end_headers()
            self.wfile.write(PICTURE)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def fetcher(*allowed: str, limit: int = 100_000, seconds: float = 5.0) -> Fetcher:
    return Fetcher(Allowed.of(allowed), replace(Limits(), bytes=limit), seconds)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names resolve to; and how often they were asked for."""
    known: dict[str, list[str]] = {}

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror("no such host")
        addresses = known[host]
        known[f"{host} asked"] = [*known.get(f"{host} asked", []), "once"]
        return [(socket.AF_INET6 if ":" in one else socket.AF_INET, 1, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr("tapr.server.fetching.socket.getaddrinfo", resolve)
    return known


def test_from_an_allowed_host_and_network(port: int) -> None:
    assert fetcher("127.0.0.1/32").fetch(f"http://127.0.0.1:{port}/x.png") == PICTURE


def test_a_name_is_resolved_once_and_the_checked_address_is_the_one_asked(
    port: int, names: dict[str, list[str]]
) -> None:
    names["cdn.example"] = ["127.0.0.1"]
    assert fetcher(f"cdn.example:{port}", "127.0.0.0/8").fetch(f"http://cdn.example:{port}/x.png") == PICTURE
    assert names["cdn.example asked"] == ["once"]


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "172.16.0.1", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "::1", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::"],
)  # fmt: skip
def test_a_name_that_leads_inside_is_refused(names: dict[str, list[str]], address: str) -> None:
    names["cdn.example"] = [address]
    with pytest.raises(NotFetched, match="not public"):
        fetcher("cdn.example").fetch("http://cdn.example/x.png")
    names["cdn.example"] = ["93.184.216.34", address]
    with pytest.raises(NotFetched, match="not public"):
        fetcher("cdn.example").fetch("http://cdn.example/x.png")


def test_public_addresses_are_public() -> None:
    for text in ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"):
        assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "url",
    ["http://evil.example/", "http://127.0.0.1/", "http://[::1]/", "http://2130706433/", "http://0x7f000001/",
     "http://cdn.example.evil.example/", "http://cdn.example@evil.example/", "http://evil.example#@cdn.example/",
     "http://cdn.example:22/", "ftp://cdn.example/x", "file:///etc/passwd", "gopher://cdn.example/", "//cdn.example/x",
     "http://user:word@cdn.example/", "http://cdn.example/\r\nHost: evil", "http://cdn.example:99999/", "", "http://[/",
     "http://cdn.exämple/"],
)  # fmt: skip
def test_other_addresses_are_refused_before_anything_is_asked(names: dict[str, list[str]], url: str) -> None:
    with pytest.raises(NotFetched):
        fetcher("cdn.example").fetch(url)
    assert not names, "no name was looked up"


def test_redirects_lead_to_the_same_host_only(port: int, names: dict[str, list[str]]) -> None:
    names["cdn.example"] = ["127.0.0.1"]
    here = fetcher(f"cdn.example:{port}", "127.0.0.2", f"other.example:{port}", "127.0.0.1")
    assert here.fetch(f"http://cdn.example:{port}/to?/x.png") == PICTURE
    for target in (f"http://127.0.0.1:{port}/x.png", f"http://other.example:{port}/x.png"):
        with pytest.raises(NotFetched, match="another host"):
            here.fetch(f"http://cdn.example:{port}/to?{target}")
    for target in ("http://127.0.0.3/x", "http://169.254.169.254/latest", "file:///etc/passwd", "http://[::1]/"):
        with pytest.raises(NotFetched):
            here.fetch(f"http://cdn.example:{port}/to?{target}")
    with pytest.raises(NotFetched, match="more than 3 times"):
        here.fetch(f"http://cdn.example:{port}/to?/to?/to?/to?/to?/x.png")


def test_a_redirect_is_resolved_and_checked_anew(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]  # the name is bent between the two

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, 1, 6, "", (one, port)) for one in answers.pop(0)]

    monkeypatch.setattr("tapr.server.fetching.socket.getaddrinfo", resolve)
    with pytest.raises(NotFetched, match="not public"):
        fetcher(f"cdn.example:{port}", "127.0.0.1").fetch(f"http://cdn.example:{port}/to?/x.png")


def test_bytes_and_time_are_bounded(port: int) -> None:
    with pytest.raises(PictureTooLarge, match="50,000 bytes"):
        fetcher("127.0.0.1", limit=50_000).fetch(f"http://127.0.0.1:{port}/huge")
    with pytest.raises(PictureTooLarge, match="the 10 bytes"):
        fetcher("127.0.0.1", limit=10).fetch(f"http://127.0.0.1:{port}/x.png")
    for path in ("slow", "silent"):
        with pytest.raises(NotFetched, match="did not send the picture within"):
            fetcher("127.0.0.1", seconds=0.25).fetch(f"http://127.0.0.1:{port}/{path}")
    with pytest.raises(NotFetched, match="cannot be fetched"):
        fetcher("127.0.0.1").fetch(f"http://127.0.0.1:{port}/short")
    with pytest.raises(NotFetched, match="answered 404"):
        fetcher("127.0.0.1").fetch(f"http://127.0.0.1:{port}/gone")


def test_paths_stay_below_what_is_allowed(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "x.png").write_bytes(PICTURE)
    (tmp_path / "secret.png").write_bytes(PICTURE)
    (tmp_path / "inside2").mkdir()
    (tmp_path / "inside2" / "x.png").write_bytes(PICTURE)
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    (inside / "up").symlink_to("..")
    here = fetcher(str(inside))
    assert here.read(str(inside / "x.png")) == PICTURE
    wrong = [inside / "up/inside/x.png", inside / "../secret.png", inside / "link.png", inside / "nothing.png", inside,
             tmp_path / "secret.png", tmp_path / "inside2/x.png"]  # fmt: skip
    for path in (*map(str, wrong), "x.png", f"file://{inside}/x.png", "s3://bucket/x", f"{inside}/\0", "http://a/b"):
        with pytest.raises(NotFetched):
            here.read(path)
    with pytest.raises(PictureTooLarge):
        fetcher(str(inside), limit=10).read(str(inside / "x.png"))


def test_storage_is_read_with_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    with fsspec.open("memory://shop/x.png", "wb") as file:
        file.write(PICTURE)
    here = fetcher("memory://shop/")
    assert here.read("memory://shop/x.png") == PICTURE
    for path in (
        "memory://shop2/x.png",
        "memory://shop/../x",
        "simplecache::memory://shop/x.png",
        "memory://shop/none",
    ):
        with pytest.raises(NotFetched):
            here.read(path)


@pytest.mark.parametrize("text", ["", "a b/c", "user@host", "http://cdn.example/", "relative/folder"])
def test_what_cannot_be_allowed(text: str) -> None:
    with pytest.raises(BadInput):
        Allowed.of([text])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_holds_no_thread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fetcher = Fetcher(Allowed.of((str(tmp_path),)), Limits())
    with pytest.raises(NotFetched, match="not a regular file"):
        fetcher.read(str(tmp_path / "pipe"))
