"""Who may ask, and what is refused before it is read."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.images.decode import Limits
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.server.app import create_app
from tapr.server.settings import Settings
from tests.pictures import flag, png
from tests.server.conftest import client_of

TOKEN = "correct horse battery"


@pytest.fixture(scope="module")
def guarded(gallery: Gallery) -> Iterator[TestClient]:
    with client_of(gallery, Settings(host="0.0.0.0", token=TOKEN)) as client:
        yield client


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(BadInput, match="give a secret with --token"):
        Settings(host="0.0.0.0")
    with pytest.raises(BadInput, match="the token is too short, with 5 characters: give it 8 or more"):
        Settings(token="short")
    with pytest.raises(BadInput, match="the write token is too short"):
        Settings(token="long enough", write_token="SECRET")
    assert Settings(host="::1").token is None


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/api/gallery", "/metrics", "/web/main.js", "/nothing"]
)
def test_without_the_token_only_the_health_check_answers(guarded: TestClient, path: str) -> None:
    guarded.cookies.clear()
    assert guarded.get(path).status_code == 401
    for wrong in (f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", "Bearer ÿ"):
        headers = {b"Authorization": wrong.encode("latin-1")}
        assert guarded.get(path, headers=headers).status_code == 401
    assert guarded.get("/healthz").status_code == 200


def test_a_wrong_token_is_told_as_unknown(guarded: TestClient, gallery: Gallery) -> None:
    guarded.cookies.clear()
    none = guarded.get("/api/gallery")
    assert (none.status_code, none.json()["code"]) == (401, "unauthorized")
    wrong = {"Authorization": f"Bearer {TOKEN}x"}
    reply = guarded.get("/api/gallery", headers=wrong)
    assert (reply.status_code, reply.json()["code"]) == (401, "unknown_token")
    assert TOKEN not in reply.text
    with client_of(gallery, Settings(allow_write=False)) as everyone:
        assert everyone.get("/api/gallery", headers=wrong).status_code == 200  # no token is needed to read
        reply = everyone.put("/api/images/a", files={"picture": b"x"}, headers=wrong)
        assert (reply.status_code, reply.json()["code"]) == (401, "unknown_token")


def test_the_token_opens_the_api_and_a_cookie_the_page(guarded: TestClient) -> None:
    guarded.cookies.clear()
    assert guarded.get("/api/gallery", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    reply = guarded.get("/", params={"token": TOKEN}, follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/api/gallery").status_code == 200
    guarded.cookies.clear()
    assert guarded.get("/", params={"token": "wrong"}, follow_redirects=False).status_code == 401


def test_a_foreign_host_name_that_points_to_loopback_is_refused(client: TestClient) -> None:
    for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", ""):
        assert client.get("/api/gallery", headers={"Host": host}).status_code == 421
    for host in ("localhost:1", "127.0.0.1", "[::1]:8765", "LOCALHOST"):
        assert client.get("/api/gallery", headers={"Host": host}).status_code == 200


def test_pages_of_other_sites_cannot_ask(client: TestClient) -> None:
    assert client.get("/api/gallery", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/gallery", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/api/gallery", headers={"Origin": "http://127.0.0.1:8765"}).status_code == 200
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200, "a link to the page works"


@pytest.mark.parametrize("path", ["/", "/api/gallery", "/api/nothing", "/api/images?id=..", "/web/page.css"])
def test_every_answer_says_what_browsers_may_do(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"]


def test_too_much_is_refused_while_it_arrives(gallery: Gallery) -> None:
    settings = Settings(limits=Limits(bytes=50_000, pixels=10_000))
    with client_of(gallery, settings) as client:
        large = {"reference": ("a.png", b"x" * 200_000)}
        assert client.post("/api/search", data={"edit": "blue"}, files=large).status_code == 413
        pixels = {"reference": ("a.png", png(flag("red", "blue", size=(500, 500))))}
        reply = client.post("/api/search", data={"edit": "blue"}, files=pixels)
        assert reply.status_code == 413
        assert reply.json()["detail"] == "the reference has 500 x 500 pixels, more than the 10,000 allowed"

        def endless() -> Iterator[bytes]:
            for _ in range(100):
                yield b" " * 10_000

        reply = client.post("/api/rank", content=endless(), headers={"Content-Type": "application/json"})
        assert reply.status_code == 413
        assert "larger than" in reply.json()["detail"]


class SlowFactorizer:
    name = "slow"

    def __init__(self) -> None:
        self.go = threading.Event()

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        self.go.wait(20)
        raise TaprError("the model at http://llm says: sk-secret-of-the-model is not valid")


def test_an_answer_that_takes_too_long_is_given_up(gallery: Gallery) -> None:
    slow = SlowFactorizer()
    app = create_app(gallery, Settings(seconds=0.05), slow)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        reply = client.post("/api/factorize", data={"edit": "x", "reference_id": "red-blue.png"})
        slow.go.set()
    assert reply.status_code == 503
    assert "no answer within" in reply.json()["detail"]
    assert reply.headers["retry-after"]


def test_keys_are_in_no_answer_and_no_log(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TAPR_LLM_API_KEY", "sk-secret-of-the-model")
    slow = SlowFactorizer()
    slow.go.set()
    with (
        caplog.at_level(logging.INFO, "tapr.server"),
        TestClient(create_app(gallery, Settings(token=TOKEN), slow), base_url="http://127.0.0.1") as client,
    ):
        client.get("/", params={"token": TOKEN})
        reply = client.post("/api/factorize", data={"edit": "x", "reference_id": "red-blue.png"})
    assert reply.status_code == 503
    assert reply.json()["detail"] == "the model at http://llm says: *** is not valid"
    assert "the model at http://llm" in caplog.text
    assert "sk-secret" not in caplog.text
    assert TOKEN.split(maxsplit=1)[0] not in caplog.text


def test_a_failure_inside_is_an_answer_without_its_trace(
    gallery: Gallery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(gallery) as client:
        monkeypatch.setattr(Gallery, "entries", lambda *_: 1 / 0)
        reply = client.get("/api/gallery")
    assert reply.status_code == 500
    assert reply.json()["detail"] == "something failed inside the server; its log tells what"
    assert "nosniff" in reply.headers["x-content-type-options"]
    assert "ZeroDivisionError" in caplog.text


def test_a_full_server_sends_retry_after(gallery: Gallery) -> None:
    slow = SlowFactorizer()
    app = create_app(gallery, Settings(queue=1), slow)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        fields = {"edit": "x", "reference_id": "red-blue.png"}
        first = threading.Thread(target=client.post, args=("/api/factorize",), kwargs={"data": fields})
        first.start()
        while "tapr_requests_inside 1" not in client.get("/metrics").text:
            pass
        body = {"spec": {"target": "x"}, "reference_id": "red-blue.png"}
        busy = client.post("/api/rank", json=body)
        picture = client.get("/api/images/red-blue.png")
        slow.go.set()
        first.join()
    assert busy.status_code == 429
    assert busy.headers["retry-after"] == "1"
    assert json.loads(busy.content)["title"] == "Busy"
    assert picture.status_code == 200, "pictures have a pool of their own"
