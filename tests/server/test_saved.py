"""Saved searches over HTTP: rights, the feed, webhooks, the client; and the collage."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import io
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tapr.gallery import Gallery
from tapr.server.settings import Settings
from tapr.store.saved_searches import SavedSearchFile
from tests.pictures import flag, png
from tests.server.conftest import HOSTILE_IDS, ColourFactorizer, client_of, served
from tests.server.test_writing import AS_PICTURE, RED, small_gallery

httpx = pytest.importorskip("httpx", reason="the extra 'client' is not installed")
from tapr import client as api  # noqa: E402  (after the look for httpx)

READ, WRITE = ({"Authorization": f"Bearer a {kind} token"} for kind in ("read", "write"))
ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def bank(tmp_path: Path) -> Gallery:
    return small_gallery(tmp_path)


@pytest.fixture
def receiver() -> Iterator[Any]:
    """A server that refuses the first request for now, then accepts."""
    posted: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
    statuses = [503, 500, 204]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.put((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook?secret=1", posted
    server.shutdown()
    server.server_close()


def feed_of(client: TestClient, name: str) -> ElementTree.Element:
    reply = client.get(f"/api/searches/{name}/feed", headers=READ)
    assert (reply.status_code, reply.headers["content-type"]) == (200, "application/atom+xml"), reply.text
    return ElementTree.fromstring(reply.content)


def test_reading_needs_a_read_token_and_saving_a_write_token(bank: Gallery) -> None:
    settings = Settings(token="a read token", write_token="a write token", names=("testserver",))
    with client_of(bank, settings) as client:
        asked = {"text": "red", "k": 2}
        for headers, status in (({}, 401), (READ, 403), (WRITE, 200)):
            assert client.put("/api/searches/reds", json=asked, headers=headers).status_code == status
        for path in ("/api/searches", "/api/searches/reds/results", "/api/searches/reds/feed"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers=READ).status_code == 200
        (listed,) = client.get("/api/searches", headers=READ).json()["searches"]
        assert (listed["name"], listed["words"], listed["k"], listed["matches"]) == ("reds", "red", 2, 0)
        for headers, status in (({}, 401), (READ, 403), (WRITE, 204), (WRITE, 404)):
            assert client.delete("/api/searches/reds", headers=headers).status_code == status
    with client_of(bank) as client:
        assert client.put("/api/searches/reds", json=asked).status_code == 403, "writing is off"


@pytest.mark.parametrize(
    ("name", "asked", "status", "code"),
    [
        ("x", {}, 400, "missing_option"),
        ("x", {"text": "red", "kk": 1}, 422, "bad_option"),
        ("x", {"text": "red", "offset": 3}, 400, "conflicting_options"),
        ("x", {"text": "red", "webhook": "https://hooks.example/x"}, 400, "bad_option"),
        ("x", {"like": True, "reference_id": "nowhere"}, 404, "unknown_picture"),
        ("%3Cb%3E", {"text": "red"}, 400, "bad_input"),
    ],
)
def test_bad_requests(bank: Gallery, name: str, asked: dict[str, Any], status: int, code: str) -> None:
    with client_of(bank, Settings(allow_write=True, names=("testserver",))) as client:
        reply = client.put(f"/api/searches/{name}", json=asked)
        assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
        assert client.get("/api/searches/nothing/feed").json()["code"] == "unknown_search"


def test_a_new_picture_is_posted_until_it_is_accepted_and_stands_in_the_feed(
    bank: Gallery, receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapr.server.notifier._AGAIN_SECONDS", 0.1)
    url, posted = receiver
    settings = Settings(
        allow_write=True, names=("testserver",), webhook=("127.0.0.1/32",), webhook_secret="shared", check_seconds=0.05
    )
    hostile = HOSTILE_IDS[3]
    with client_of(bank, settings) as client:
        asked = {"edit": "in red", "reference_id": "white.png", "k": 1, "threshold": 0.1, "webhook": url}
        saved = client.put("/api/searches/my reds", json=asked)
        assert saved.status_code == 200, saved.text
        assert saved.json()["webhook"] == "127.0.0.1", "an address may hold a secret: its host is told"
        assert len(feed_of(client, "my reds").findall(f"{ATOM}entry")) == 0
        client.put("/api/images", params={"id": hostile}, content=RED, headers=AS_PICTURE)
        tries = [posted.get(timeout=60) for _ in range(3)]  # 503: again at once; 500: again later; then accepted
        assert len({body for _, body in tries}) == 1
        headers, body = tries[-1]
        told = json.loads(body)
        assert (told["search"], [match["id"] for match in told["matches"]]) == ("my reds", [hostile])
        assert headers["X-Tapr-Signature"] == "sha256=" + hmac.new(b"shared", body, hashlib.sha256).hexdigest()
        feed = feed_of(client, "my reds")
        (entry,) = feed.findall(f"{ATOM}entry")
        assert told["matches"][0]["sha256"] in str(entry.findtext(f"{ATOM}id"))
        link = entry.find(f"{ATOM}link")
        assert link is not None
        assert client.get(link.attrib["href"]).content == RED
        run = client.get("/api/searches/my reds/results").json()
        assert [hit["id"] for hit in run["hits"]] == [hostile]
        client.put("/api/images/blue", content=png(flag("blue")), headers=AS_PICTURE)
        client.put("/api/images/twice", content=RED, headers=AS_PICTURE)
        snapshot = client.get("/api/gallery").json()["snapshot"]
        file = SavedSearchFile(bank.path)
        while file.get("my reds").checked != snapshot:
            time.sleep(0.02)
        assert len(file.matches()) == 1, "equal content is no new picture"
    assert posted.empty()


def test_a_receiver_that_never_answers_holds_up_no_other_and_not_the_end(
    bank: Gallery, receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request to it took 20 seconds, in which no search was checked and the server did not end."""
    monkeypatch.setattr("tapr.server.notifier._AGAIN_SECONDS", 0.1)
    url, posted = receiver
    settings = Settings(allow_write=True, names=("testserver",), webhook=("127.0.0.0/8",), check_seconds=0.05)
    with socket.create_server(("127.0.0.2", 0)) as deaf:
        with client_of(bank, settings) as client:
            notifier = client.app.state.notifier  # type: ignore[attr-defined]
            notifier.receivers = replace(notifier.receivers, seconds=600.0)
            asked = {"text": "red", "threshold": 0.1, "k": 1}
            slow = f"http://127.0.0.2:{deaf.getsockname()[1]}/hook"
            for name, webhook in (("a slow one", slow), ("another slow one", slow), ("quick", url)):
                assert client.put(f"/api/searches/{name}", json={**asked, "webhook": webhook}).status_code == 200
            client.put("/api/images/red", content=RED, headers=AS_PICTURE)
            for _ in range(3):  # refused twice, then accepted
                posted.get(timeout=120)
            client.put("/api/images/rot", content=png(flag("red", size=(50, 20))), headers=AS_PICTURE)
            names = [match["id"] for match in json.loads(posted.get(timeout=120)[1])["matches"]]
            assert names == ["rot"], "searches are checked meanwhile"
            waiting = [
                thread for thread in threading.enumerate() if thread.name == f"tapr-post {urlsplit(slow).netloc}"
            ]
            assert len(waiting) == 1, "one request at a time to an address"
        assert waiting[0].is_alive(), "the end did not wait for it"


def test_the_client_saves_runs_and_draws(bank: Gallery) -> None:
    settings = Settings(port=0, allow_write=True)
    with served({"shop": bank}, ColourFactorizer(), settings) as server:
        address = f"http://127.0.0.1:{server.port}"
        with api.Client(address, gallery="shop") as client:
            key = client.open_reference(RED).key
            saved = client.save_search("Rot & Weiß".replace(" & ", " "), edit="in white", reference_key=key, k=2)
            assert client.searches() == [saved]
            same = client.search(reference_key=key, edit="in white", k=2)
            assert [hit.score for hit in client.run_search(saved.name).hits] == [hit.score for hit in same.hits]
            assert b"<feed" in client.feed(saved.name)
            image = Image.open(io.BytesIO(client.collage(RED, "in white", k=3)))
            assert (image.format, image.width) == ("JPEG", 1600)
            assert client.collage(text="white", format="png")[1:4] == b"PNG"
            client.delete_search(saved.name)
            with pytest.raises(api.NotFound) as caught:
                client.run_search(saved.name)
            assert caught.value.code == "unknown_search"


def test_a_saved_search_is_asked_under_the_servers_limits(client: TestClient) -> None:
    """Also one that somebody else saved, with a filter that would tell where files are."""
    client.put("/api/searches/where", json={"text": "blue", "where": "path like '/%'"})
    assert client.get("/api/searches/where/results").status_code == 404, "it is not saved"


def test_a_marked_picture_has_a_heat_map(client: TestClient) -> None:
    question = {
        "spec": {"target": "blue"},
        "more_like": ["blue-green.png"],
        "not_like": [{"reference_id": "blue-red.png"}],
    }
    hit = client.post("/api/search", json=question).json()["hits"][0]
    parts = [part["id"] for part in hit["contributions"] if part["factor"] in ("preserve", "remove")]
    assert parts == ["more_like:0:global", "more_like:0:local", "not_like:0:global", "not_like:0:local"]

    def heat(**changed: Any) -> Any:
        asked = {"question": json.dumps({**question, **changed}), "term": "more_like:0:local", "id": hit["id"]}
        return client.get("/api/heatmap", params=asked)

    assert (heat().status_code, heat().headers["content-type"]) == (200, "image/png")
    assert heat(more_like=[]).status_code == 400, "without the mark there is no such term"
    assert heat(more_like=["nowhere"]).status_code == 404
