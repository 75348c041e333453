"""Uploads that mean harm get an answer of the 4xx kind, quickly, and the server goes on."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.server.hostile import bomb_in_limits, hostile_uploads

UPLOADS = hostile_uploads()


def test_there_are_fifty_kinds() -> None:
    assert len(UPLOADS) >= 50


@pytest.mark.parametrize("kind", UPLOADS)
def test_a_hostile_upload_is_refused(client: TestClient, kind: str) -> None:
    reply = client.post(
        "/api/search", data={"edit": "blue"}, files={"reference": ("x.png", UPLOADS[kind], "image/png")}
    )
    assert reply.status_code in (413, 415), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["detail"].startswith("the reference ")


def test_a_decompression_bomb_is_refused_by_its_pixels(client: TestClient) -> None:
    data = bomb_in_limits()
    assert len(data) < 100_000
    reply = client.post("/api/references", files={"reference": ("x.png", data)})
    assert reply.status_code == 413
    assert "120,000,000" in reply.json()["detail"]
    assert "pixels" in reply.json()["detail"]


@pytest.mark.parametrize("name", ["../../x.png", "a\0b.png", "x" * 200, '"; rm -rf', "日本.png", "a\r\nX: y.png"])
def test_the_name_of_an_upload_means_nothing(client: TestClient, name: str, red_file: bytes) -> None:
    reply = client.post("/api/references", files={"reference": (name, red_file)})
    assert reply.status_code == 200
    assert reply.json()["width"] == 60


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "multipart/form-data"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--", "multipart/form-data; boundary=x"),
        (b"\xff\xfe{", "application/json"),
        (b'{"spec": ' * 5000, "application/json"),
        (b"[" * 50_000, "application/json"),
        (b'{"spec": {"target": "\\ud800"}, "reference_id": "\\udfff"}', "application/json"),
        (b'{"spec": {"target": "x"}, "k": 1e400, "reference_id": "x"}', "application/json"),
        (b'{"spec": {"target": "x"}, "tau": NaN, "reference_id": "red-blue.png"}', "application/json"),
        (b'{"spec": {"target": "x"}, "reference_id": "\\udfff"}', "application/json"),
        (b"spec=x", "application/x-www-form-urlencoded"),
        (b"reference_id=red-blue.png&spec=" + b"[" * 50_000, "application/x-www-form-urlencoded"),
        (b'{"spec": {"target": "x"}, "k": ' + b"9" * 5000 + b"}", "application/json"),
        (b'{"spec": {"target": "x", "weights": {"add": 1' + b"0" * 400 + b"}}}", "application/json"),
        (
            b'reference_id=red-blue.png&spec={"target": "x", "weights": {"add": 1' + b"0" * 400 + b"}}",
            "application/x-www-form-urlencoded",
        ),
    ],
)
def test_a_malformed_body_is_refused(client: TestClient, content: bytes, kind: str) -> None:
    for path in ("/api/rank", "/api/search", "/api/factorize"):
        reply = client.post(path, content=content, headers={"Content-Type": kind})
        assert 400 <= reply.status_code < 500, reply.text
        assert reply.headers["content-type"] == "application/problem+json"
