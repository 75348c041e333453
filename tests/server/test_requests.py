"""Around a request: its name, its line in the log, pages of other sites, and what no answer tells."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server.logs import JsonFormatter, TextFormatter
from tapr.server.settings import Settings
from tests.pictures import flag
from tests.server.conftest import client_of

SHOP = "https://shop.example"
TOKEN = "long enough"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def test_every_answer_has_the_name_of_its_request(client: TestClient) -> None:
    names = {client.get(path).headers["x-request-id"] for path in ("/healthz", "/api/nothing", "/api/gallery")}
    assert len(names) == 3
    assert client.get("/healthz", headers={"X-Request-Id": "order-7.b_1"}).headers["x-request-id"] == "order-7.b_1"
    for odd in ("a b", "x" * 65, "\x1b[31m", "<b>", ""):
        assert re.fullmatch(
            "[0-9a-f]{16}", client.get("/healthz", headers={"X-Request-Id": odd}).headers["x-request-id"]
        )


def test_the_log_as_json(client: TestClient) -> None:
    lines = _logged(JsonFormatter(), lambda: client.get("/api/gallery?secret=1", headers={"X-Request-Id": "seven"}))
    (line,) = (json.loads(line) for line in lines)
    assert line["request_id"] == "seven"
    assert (line["method"], line["path"], line["route"], line["status"]) == ("GET", "/api/gallery", "/api/gallery", 200)
    assert line["ms"] >= 0
    assert line["level"] == "info"
    assert "secret" not in str(line)


def test_the_log_for_people(client: TestClient) -> None:
    (line,) = _logged(TextFormatter("%(message)s"), lambda: client.get("/healthz", headers={"X-Request-Id": "eight"}))
    assert re.fullmatch(r"GET /healthz 200 \d+ ms \[eight\]", line)


def _logged(formatter: logging.Formatter, act: Any) -> list[str]:
    lines: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, log = Kept(), logging.getLogger("tapr.server")
    handler.setFormatter(formatter)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        act()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return lines


# pages of other sites


@pytest.fixture(scope="module")
def open_to_shop(gallery: Gallery) -> Iterator[TestClient]:
    with client_of(gallery, Settings(token=TOKEN, origins=(SHOP,))) as client:
        yield client


def test_a_site_that_was_named_may_ask(open_to_shop: TestClient) -> None:
    asked = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    first = open_to_shop.options("/api/rank", headers={**asked, "Access-Control-Request-Method": "POST"})
    assert first.status_code == 200
    assert first.headers["access-control-allow-origin"] == SHOP
    assert "Authorization" in first.headers["access-control-allow-headers"]
    reply = open_to_shop.get("/api/gallery", headers={**asked, **BEARER})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == SHOP
    assert reply.headers["vary"] == "Origin"
    assert reply.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "access-control-allow-credentials" not in reply.headers


def test_it_needs_the_token_itself_and_reads_why(open_to_shop: TestClient) -> None:
    asked = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    signed_in = open_to_shop.get(f"/?token={TOKEN}", follow_redirects=False)
    cookie = signed_in.headers["set-cookie"].split(";")[0]
    refused = open_to_shop.get("/api/gallery", headers={**asked, "Cookie": cookie})
    open_to_shop.cookies.clear()
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == SHOP


@pytest.mark.parametrize("origin", ["https://evil.example", "http://shop.example", f"{SHOP}.evil.example", "null"])
def test_others_may_not(open_to_shop: TestClient, origin: str) -> None:
    for ask, status in ((open_to_shop.get, 403), (open_to_shop.options, 400)):
        reply = ask("/api/gallery", headers={"Origin": origin, **BEARER, "Access-Control-Request-Method": "GET"})
        assert reply.status_code == status
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("origin", ["shop.example", "https://shop.example/", "*", "ftp://shop.example", "https://"])
def test_an_origin_is_written_as_browsers_write_it(origin: str) -> None:
    with pytest.raises(BadInput, match=r"written like https://shop.example"):
        Settings(origins=(origin,))


# what no answer tells


@pytest.fixture
def own(tmp_path: Path) -> Gallery:
    pictures = tmp_path / "a secret place"
    pictures.mkdir()
    for colour in ("red", "blue"):
        flag(colour).save(pictures / f"{colour}.png")
    return Gallery.build(tmp_path / "bank", pictures, FakeEncoder())


def test_no_answer_tells_where_files_are(own: Gallery, tmp_path: Path) -> None:
    with client_of(own) as client:
        (tmp_path / "a secret place" / "red.png").unlink()
        body = {"spec": {"target": "blue"}, "reference_id": "blue.png"}
        replies = [
            client.get("/api/gallery?limit=10"),
            client.post("/api/rank", json=body),
            client.get("/api/images/red.png"),
            client.get("/api/gallery?where=nothing=1"),
            client.get("/metrics"),
        ]
        manifest = own.path / "manifest.json"
        text = manifest.read_text()
        manifest.write_text(text.replace('"fp16"', '"fp17"').replace('"snapshot"', '"snap"'))
        replies += [client.get("/readyz"), client.post("/api/rank", json=body)]
        assert [reply.status_code for reply in replies[-2:]] == [503, 503]
        manifest.write_text(text)
        for shard in own.path.glob("*.npy"):
            shard.rename(shard.with_suffix(".gone"))
        manifest.write_text(text + " ")
        replies += [client.get("/readyz"), client.post("/api/rank", json=body)]
        assert [reply.status_code for reply in replies[-2:]] == [503, 503]
    for reply in replies:
        assert str(tmp_path) not in reply.text, reply.text
        assert "secret place" not in reply.text


def test_a_gallery_that_is_gone_is_answered_503_until_it_is_back(own: Gallery, tmp_path: Path) -> None:
    body = {"spec": {"target": "blue"}, "reference_id": "blue.png"}
    with client_of(own) as client:
        shutil.move(own.path, tmp_path / "away")
        for path, reply in (("/readyz", client.get("/readyz")), ("/api/rank", client.post("/api/rank", json=body))):
            assert reply.status_code == 503, path
            assert "restore it" in reply.json()["detail"]
            assert reply.headers["retry-after"]
        assert client.get("/healthz").status_code == 200
        shutil.move(tmp_path / "away", own.path)
        assert client.get("/readyz").status_code == 200
        assert client.post("/api/rank", json=body).status_code == 200
