"""The same request as a form and as JSON, with a picture by its id, key, bytes or address."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tapr.gallery import Gallery
from tapr.server.security import JSON_BYTES
from tapr.server.settings import Settings
from tests.pictures import flag, png
from tests.server.conftest import client_of

PICTURE = png(flag("red", "green"))
SENT = base64.b64encode(PICTURE).decode()
SPEC = {"target": "blue", "add": ["blue"]}


def ranked(reply: Any) -> list[tuple[str, float]]:
    assert reply.status_code == 200, reply.text
    return [(hit["id"], hit["score"]) for hit in reply.json()["hits"]]


def test_a_picture_is_sent_in_json_as_in_a_form(client: TestClient) -> None:
    form = client.post("/api/search", files={"reference": PICTURE}, data={"edit": "in blue"})
    as_json = client.post("/api/search", json={"reference": SENT, "edit": "in blue"})
    assert ranked(as_json) == ranked(form)
    opened = client.post("/api/references", json={"reference": SENT}).json()
    assert opened == client.post("/api/references", files={"reference": PICTURE}).json()
    key = {"reference_key": opened["key"]}
    assert ranked(client.post("/api/search", json={**key, "edit": "in blue"})) == ranked(form)
    by_rank = [client.post("/api/rank", json={"spec": SPEC, **one}) for one in (key, {"reference": SENT})]
    assert ranked(by_rank[0]) == ranked(by_rank[1])
    made = client.post("/api/factorize", files={"reference": PICTURE}, data={"edit": "in blue"})
    assert client.post("/api/factorize", json={"reference": SENT, "edit": "in blue"}).json() == made.json()
    alone = client.post("/api/search", files={"reference": PICTURE}, data={"like": "true"})
    assert ranked(client.post("/api/search", json={"reference": SENT, "like": True})) == ranked(alone)
    more = {"more_references": [{"reference": SENT, "crop": [0, 0, 1, 0.5]}], "reference_id": "red-green.png"}
    assert "2 references" in client.post("/api/search", json={**more, "edit": "in blue"}).text


@pytest.mark.parametrize(
    ("route", "body", "code", "option"),
    [
        ("search", {"reference": "no base64!", "edit": "x"}, "bad_option", "reference"),
        ("search", {"reference": SENT, "reference_id": "x", "edit": "x"}, "conflicting_options", "reference"),
        ("search", {"reference": base64.b64encode(b"text").decode(), "edit": "x"}, "not_a_picture", ""),
        ("search", {"reference": SENT, "like": True, "edit": "x"}, "conflicting_options", "edit"),
        ("search", {"reference": SENT, "text": "x"}, "conflicting_options", "reference"),
        ("search", {"reference_url": "http://127.0.0.1/x.png", "edit": "x"}, "not_fetched", ""),
        ("search", {"reference": SENT, "edit": "x", "kk": 1}, "bad_option", "kk"),
        ("search", {"text": "blue", "k": "5"}, "bad_option", "k"),
        ("search", [], "bad_option", "the request"),
        ("rank", {"spec": SPEC, "reference": "no base64!"}, "bad_option", "reference"),
        ("factorize", {"reference": SENT}, "missing_option", "edit"),
        ("factorize", {"edit": "x"}, "missing_option", "reference"),
        ("references", {}, "missing_option", "reference"),
    ],
)
def test_what_is_wrong_in_json_is_told(client: TestClient, route: str, body: Any, code: str, option: str) -> None:
    reply = client.post(f"/api/{route}", json=body)
    problem = reply.json()
    assert 400 <= reply.status_code < 500
    assert (problem["code"], problem.get("option", "")) == (code, option), problem["detail"]


def test_a_body_that_is_neither_is_told_what_to_send(client: TestClient) -> None:
    for route in ("search", "factorize", "references"):
        reply = client.post(f"/api/{route}", content=b"edit=x", headers={"Content-Type": "text/plain"})
        assert (reply.status_code, reply.json()["code"]) == (400, "bad_input")
        assert "application/json or multipart/form-data, not 'text/plain'" in reply.json()["detail"]
        broken = client.post(f"/api/{route}", content=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status_code, broken.json()["code"]) == (400, "bad_input")
    assert client.post("/api/rank", files={"reference": PICTURE}).status_code == 400


def test_json_takes_as_large_a_picture_as_a_form_and_no_larger(gallery: Gallery) -> None:
    from dataclasses import replace

    limits = replace(Settings().limits, bytes=2 * JSON_BYTES)
    with client_of(gallery, Settings(names=("testserver",), limits=limits)) as client:
        fits = base64.b64encode(PICTURE + bytes(2 * JSON_BYTES - len(PICTURE))).decode()
        assert client.post("/api/references", json={"reference": fits}).status_code == 200
        large = base64.b64encode(PICTURE + bytes(2 * JSON_BYTES)).decode()
        beside: dict[str, dict[str, Any]] = {"references": {}, "search": {"edit": "x"}, "rank": {"spec": SPEC}}
        for route, more in beside.items():
            assert client.post(f"/api/{route}", json={"reference": large, **more}).status_code == 413
        beyond = client.post("/api/references", json={"reference": "A" * 4 * JSON_BYTES})
        assert (beyond.status_code, beyond.json()["code"]) == (413, "too_large")
        other = client.post("/api/export", json={"ids": ["x" * 2 * JSON_BYTES]})
        assert other.status_code == 413  # where no picture comes, JSON stays small


@pytest.fixture
def shop() -> Iterator[str]:
    class Shop(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(PICTURE)))
            self.end_headers()
            self.wfile.write(PICTURE)

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/red-green.png"
    server.shutdown()
    server.server_close()


def test_a_picture_is_fetched_from_where_the_server_may(gallery: Gallery, shop: str, tmp_path: Path) -> None:
    asked = {"reference_url": shop, "edit": "in blue"}
    with client_of(gallery, Settings(names=("testserver",), fetch=("127.0.0.0/8",))) as client:
        sent = client.post("/api/search", json={"reference": SENT, "edit": "in blue"})
        assert ranked(client.post("/api/search", json=asked)) == ranked(sent)
        form = [(name, (None, value)) for name, value in asked.items()]
        assert ranked(client.post("/api/search", files=form)) == ranked(sent)
        assert client.post("/api/references", json={"reference_url": shop}).status_code == 200
