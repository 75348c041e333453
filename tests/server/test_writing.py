"""Writing over HTTP: put, delete, batches, keys; seen at once, and only by those who may."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server.settings import Settings
from tapr.store.lock import writer_lock
from tapr.store.write_operations import Content, Delete, Put
from tests.pictures import flag, png
from tests.server.conftest import HOSTILE_IDS, client_of

RED, BLUE = (png(flag(colour, size=(40, 30))) for colour in ("red", "blue"))
WRITE = {"Authorization": "Bearer a write token"}
READ = {"Authorization": "Bearer a read token"}
AS_PICTURE = {"Content-Type": "image/png"}
LINES = {"Content-Type": "application/jsonl"}


def small_gallery(folder: Path) -> Gallery:
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    for name in ("black", "white", "yellow"):
        flag(name, size=(40, 30)).save(pictures / f"{name}.png")
    return Gallery.build(folder / "bank", pictures, FakeEncoder())


@pytest.fixture
def bank(tmp_path: Path) -> Gallery:
    return small_gallery(tmp_path)


@pytest.fixture
def shop(bank: Gallery) -> Iterator[TestClient]:
    with client_of(bank, Settings(allow_write=True, names=("testserver",))) as client:
        yield client


def words(client: TestClient, headers: dict[str, str] | None = None) -> dict[str, Any]:
    reply = client.post("/api/search", data={"text": "a red picture", "k": 1000}, headers=headers)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def found_ids(client: TestClient) -> set[str]:
    return {hit["id"] for hit in words(client)["hits"]}


def test_what_was_put_is_found_by_the_next_search(shop: TestClient) -> None:
    reply = shop.put("/api/images/sku-1", files={"picture": RED}, data={"metadata": '{"price": 40}'})
    assert reply.status_code == 201, reply.text
    said = reply.json()
    assert (said["id"], said["done"], said["width"]) == ("sku-1", "created", 40)
    found = words(shop)
    assert found["snapshot"] == said["snapshot"]
    assert next(hit for hit in found["hits"] if hit["id"] == "sku-1")["metadata"] == {"price": 40}
    assert shop.get("/api/images/sku-1").content == RED
    assert shop.put("/api/images/sku-1", content=BLUE, headers=AS_PICTURE).json()["done"] == "replaced"
    assert shop.get("/api/images/sku-1").content == BLUE
    assert shop.put("/api/images/sku-1", json={"metadata": {"price": 30}}).status_code == 200
    assert shop.get("/api/gallery", params={"where": "price = 30"}).json()["count"] == 1
    reply = shop.delete("/api/images/sku-1")
    assert (reply.status_code, reply.json()["done"]) == (200, "deleted")
    assert "sku-1" not in found_ids(shop)
    assert shop.get("/api/images/sku-1").status_code == 404
    assert shop.delete("/api/images/sku-1").status_code == 404


def test_unusual_ids_can_be_written_and_read(shop: TestClient) -> None:
    for id_ in HOSTILE_IDS:
        assert shop.put("/api/images", params={"id": id_}, files={"picture": RED}).status_code == 201
        assert id_ in found_ids(shop)
        assert shop.get("/api/images", params={"id": id_}).content == RED
        assert shop.delete("/api/images", params={"id": id_}).status_code == 200


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"content": b"no picture", "headers": AS_PICTURE}, 415, "not a picture"),
    ({"content": b"", "headers": AS_PICTURE}, 415, "the picture"),
    ({"content": RED, "headers": {"Content-Type": "text/plain"}}, 400, "multipart/form-data"),
    ({"json": {}}, 400, "nothing to put"),
    ({"json": {"metadata": {"a": 1}}}, 404, "no picture with the id"),
    ({"json": {"metadata": 7}}, 400, "metadata"),
    ({"json": {"url": "http://x/", "path": "s3://b/c"}}, 400, "name the picture once"),
    ({"json": {"surprise": 1}}, 400, "surprise"),
    ({"json": {"url": "https://cdn.example/x.png"}}, 400, "may not fetch from 'cdn.example'"),
    ({"json": {"path": "/etc/passwd"}}, 400, "may not read from that place"),
    ({"files": {"picture": RED}, "data": {"metadata": "["}}, 400, "metadata is not JSON"),
    ({"files": {"picture": RED}, "data": {"metadata": "[]"}}, 400, "JSON object"),
    ({"files": {"other": RED}}, 400, "'other'"),
    ({"content": b"{", "headers": {"Content-Type": "application/json"}}, 400, "json"),
]


def test_what_cannot_be_put_is_one_sentence(shop: TestClient) -> None:
    for arguments, status, sentence in REFUSED:
        reply = shop.put("/api/images/a", **arguments)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json"), reply.text
        assert sentence in reply.json()["detail"]
    assert found_ids(shop) == {"black.png", "white.png", "yellow.png"}


def test_too_large_a_picture_is_refused_while_it_arrives(bank: Gallery) -> None:
    from dataclasses import replace

    settings = Settings(allow_write=True, names=("testserver",))
    settings = replace(settings, limits=replace(settings.limits, bytes=1000))
    with client_of(bank, settings) as client:
        assert client.put("/api/images/a", content=b"x" * 1001, headers=AS_PICTURE).status_code == 413
        pieces = (b"x" * 100 for _ in range(20))
        assert client.put("/api/images/a", content=pieces, headers=AS_PICTURE).status_code == 413


def test_a_key_is_answered_once(shop: TestClient) -> None:
    key = {"Idempotency-Key": "order 1"}
    first = shop.put("/api/images/a", files={"picture": RED}, data={"metadata": '{"n": 1}'}, headers=key)
    shop.put("/api/images/a", files={"picture": BLUE})
    form = {"picture": ("other name", RED)}
    again = shop.put("/api/images/a", files=form, data={"metadata": '{"n":  1}'}, headers=key)
    assert (again.status_code, again.json()) == (201, first.json()) == (first.status_code, first.json())
    assert shop.get("/api/images/a").content == BLUE, "it was not done again"
    other = shop.put("/api/images/a", files={"picture": BLUE}, headers=key)
    assert other.status_code == 409
    assert "another request before" in other.json()["detail"]
    gone = [shop.delete("/api/images/a", headers={"Idempotency-Key": "order 2"}) for _ in range(2)]
    assert gone[0].json() == gone[1].json()
    assert shop.delete("/api/images/a", headers={"Idempotency-Key": "x" * 201}).status_code == 400


def test_a_batch_applies_valid_lines_and_reports_the_others(shop: TestClient) -> None:
    picture = base64.b64encode(RED).decode()
    lines = [
        {"id": "a", "picture": picture, "metadata": {"n": 1}},
        {"op": "put", "id": "b", "picture": "!"},
        {"op": "delete", "id": "black.png"},
        {"op": "delete", "id": "nobody"},
        {"op": "burn", "id": "a"},
        {"op": "put", "id": "a", "metadata": {"n": 2}},
    ]
    body = "\n".join(map(json.dumps, lines)) + "\n\nno json"
    headers = {**LINES, "Idempotency-Key": "batch"}
    reply = shop.post("/api/images:batch", content=body, headers=headers)
    assert reply.status_code == 200, reply.text
    results = [json.loads(line) for line in reply.text.splitlines()]
    assert [(one["line"], one["status"]) for one in results] == [
        (1, 201), (2, 400), (3, 200), (4, 404), (5, 400), (6, 200), (8, 400),
    ]  # fmt: skip
    assert "base64" in results[1]["detail"]
    assert found_ids(shop) == {"a", "white.png", "yellow.png"}
    again = [
        json.loads(line) for line in shop.post("/api/images:batch", content=body, headers=headers).text.splitlines()
    ]
    assert again == results


def test_a_batch_may_hold_many_lines(shop: TestClient) -> None:
    def line(number: int) -> bytes:
        data = png(flag("red", "blue", size=(20 + number, 20)))
        return json.dumps({"id": f"p{number}", "picture": base64.b64encode(data).decode()}).encode() + b"\n"

    reply = shop.post("/api/images:batch", content=(line(number) for number in range(130)), headers=LINES)
    assert [json.loads(one)["status"] for one in reply.text.splitlines()] == [201] * 130
    assert len(found_ids(shop)) == 133


def test_writers_that_come_together_all_succeed_and_searches_go_on(bank: Gallery, shop: TestClient) -> None:
    faults: list[str] = []
    stop = threading.Event()

    def search() -> None:
        while not stop.is_set():
            reply = shop.post("/api/search", data={"text": "red", "k": 1000})
            if reply.status_code != 200 or len(reply.json()["hits"]) != reply.json()["searched"]:
                faults.append(reply.text)

    def write(writer: int) -> None:
        for number in range(6):
            id_, data = f"w{writer}-{number}", png(flag("green", "red", size=(20 + writer, 20 + number)))
            if shop.put(f"/api/images/{id_}", files={"picture": data}).status_code != 201:
                faults.append(id_)
            if id_ not in found_ids(shop):
                faults.append(f"{id_} was not seen at once")
        shop.delete(f"/api/images/w{writer}-0")

    searcher = threading.Thread(target=search)
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in (searcher, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    searcher.join()
    assert not faults
    expected = {f"w{writer}-{number}" for writer in range(4) for number in range(1, 6)}
    assert found_ids(shop) == expected | {"black.png", "white.png", "yellow.png"}
    assert set(Gallery.open(bank.path, encoder=FakeEncoder()).ids()) == found_ids(shop)


def test_a_busy_lock_is_503_with_a_time_to_come_back(bank: Gallery) -> None:
    settings = Settings(allow_write=True, names=("testserver",), write_wait=0.1)
    with client_of(bank, settings) as shop:
        _test_a_busy_lock(bank, shop)


def _test_a_busy_lock(bank: Gallery, shop: TestClient) -> None:
    with writer_lock(bank.path, "a sleeping index run"):
        reply = shop.put("/api/images/a", files={"picture": RED})
        batch = shop.post("/api/images:batch", content='{"op": "delete", "id": "black.png"}', headers=LINES)
        assert shop.get("/api/gallery").status_code == 200
    assert (reply.status_code, "Retry-After" in reply.headers) == (503, True)
    assert f"a sleeping index run (process {os.getpid()}" in reply.json()["detail"]
    assert str(bank.path.parent) not in reply.text + batch.text
    assert json.loads(batch.text)["status"] == 503
    assert shop.put("/api/images/a", files={"picture": RED}).status_code == 201


def test_an_index_run_and_the_server_take_turns(bank: Gallery, shop: TestClient) -> None:
    shop.put("/api/images/a", files={"picture": RED})
    flag("blue", size=(40, 30)).save(bank.path.parent / "pictures" / "blue.png")
    Gallery.open(bank.path, encoder=FakeEncoder()).sync()
    assert found_ids(shop) == {"a", "black.png", "white.png", "yellow.png", "blue.png"}
    shop.put("/api/images/b", files={"picture": BLUE})
    Gallery.open(bank.path, encoder=FakeEncoder()).apply([Delete("a")])
    assert found_ids(shop) == {"b", "black.png", "white.png", "yellow.png", "blue.png"}


def test_writing_is_off_unless_it_was_allowed(bank: Gallery) -> None:
    with client_of(bank) as client:
        for method, path in (
            ("PUT", "/api/images/a"),
            ("DELETE", "/api/images/black.png"),
            ("POST", "/api/images:batch"),
        ):
            reply = client.request(method, path, content=b"x")
            assert (reply.status_code, reply.json()["title"]) == (403, "Refused")
            assert "--allow-write" in reply.json()["detail"]
        assert len(words(client)["hits"]) == 3


def test_a_write_token_writes_and_a_read_token_does_not(bank: Gallery) -> None:
    with client_of(bank, Settings(token="a read token", write_token="a write token")) as client:
        assert client.put("/api/images/a", files={"picture": RED}).status_code == 401
        reply = client.put("/api/images/a", files={"picture": RED}, headers=READ)
        assert (reply.status_code, "write token" in reply.json()["detail"]) == (403, True)
        assert client.put("/api/images/a", files={"picture": RED}, headers=WRITE).status_code == 201
        assert len(words(client, READ)["hits"]) == len(words(client, WRITE)["hits"]) == 4
        client.get("/", params={"token": "a write token"}, follow_redirects=True)
        assert client.get("/api/gallery").status_code == 200
        assert client.delete("/api/images/a").status_code == 403, "a cookie does not write"
    with client_of(bank, Settings(write_token="a write token")) as client:
        assert client.get("/api/gallery").status_code == 401, "where there is a token, reading needs one too"


def test_the_captioner_is_loaded_before_the_first_write(bank: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []
    monkeypatch.setattr("tapr.server.writer.has_captioner", lambda card: True)
    monkeypatch.setattr("tapr.server.writer.describer", loaded.append)
    with client_of(bank, Settings()):
        assert loaded == []  # who only reads needs none
    with client_of(bank, Settings(allow_write=True)):
        assert len(loaded) == 1


def test_pages_of_other_sites_cannot_write(shop: TestClient) -> None:
    reply = shop.put("/api/images/a", files={"picture": RED}, headers={"Origin": "https://evil.example"})
    assert reply.status_code == 403
    assert shop.delete("/api/images/black.png", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_a_cluster_is_not_written_to(bank: Gallery) -> None:
    class RemoteEncoder(Gallery):
        pass

    with pytest.raises(BadInput, match="searched on a cluster cannot be written"):
        client_of(RemoteEncoder(bank.path, FakeEncoder()), Settings(allow_write=True))


def test_a_damaged_upload_is_not_served_as_if_it_were_whole(shop: TestClient, bank: Gallery) -> None:
    assert shop.put("/api/images/sku", content=RED, headers=AS_PICTURE).status_code == 201
    (file,) = [path for path in (bank.path / "uploads").rglob("*") if path.is_file()]
    file.write_bytes(BLUE)
    for place in ("/api/images/sku", "/api/images/sku?size=32"):
        reply = shop.get(place)
        assert (reply.status_code, reply.headers["content-type"]) == (404, "application/problem+json")
    assert shop.post("/api/search", data={"reference_id": "sku", "edit": "make it red"}).status_code == 404
    assert shop.put("/api/images/sku", content=RED, headers=AS_PICTURE).status_code == 200
    assert shop.get("/api/images/sku").content == RED


def test_one_bad_value_does_not_turn_a_column_of_numbers_into_text(shop: TestClient) -> None:
    for number in range(3):
        put = shop.put(f"/api/images/{number}", files={"picture": RED}, data={"metadata": f'{{"price": {number}}}'})
        assert put.status_code == 201
    bad: dict[str, Any] = {"files": {"picture": BLUE}, "data": {"metadata": '{"price": "cheap", "name": "hat"}'}}
    reply = shop.put("/api/images/bad", **bad)
    assert reply.status_code == 400
    assert "price" in reply.json()["detail"]
    assert "bad" not in found_ids(shop)
    assert shop.put("/api/images/bad", params={"mistyped": "null"}, **bad).status_code == 201
    assert shop.get("/api/gallery", params={"where": "price < 2"}).json()["count"] == 2
    assert next(hit for hit in words(shop)["hits"] if hit["id"] == "bad")["metadata"] == {"name": "hat"}
    lines = [
        {"id": "a", "picture": base64.b64encode(RED).decode(), "metadata": {"price": word}} for word in (5, "dear")
    ]
    text = "\n".join(map(json.dumps, lines))
    said = [json.loads(line) for line in shop.post("/api/images:batch", content=text).text.splitlines()]
    assert [line["status"] for line in said] == [201, 400]
    assert shop.put("/api/images/text", files={"picture": RED}, data={"metadata": '{"price": "7"}'}).status_code == 201
    assert shop.get("/api/gallery", params={"where": "price = 7"}).json()["count"] == 1


def test_the_only_picture_of_a_column_may_change_its_type(bank: Gallery) -> None:
    bank.put("a", RED, {"size": 40})
    bank.put("a", metadata={"size": "large"})
    assert bank.select("size = 'large'").ids() == ["a"]


def test_in_one_call_the_first_value_of_a_new_column_decides(bank: Gallery) -> None:
    puts = [Put(str(price), Content.of(RED, bank.encoder), {"cost": price}) for price in (4, "cheap", 5)]
    outcomes = bank.apply(puts)
    assert [isinstance(outcome, BadInput) for outcome in outcomes] == [False, True, False]
    assert set(bank.select("cost > 3").ids()) == {"4", "5"}


def test_a_client_that_goes_away_in_the_middle_is_no_failure_of_the_server(
    shop: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[dict[str, Any]] = []
    for kind in (b"image/png", b"application/json", b"multipart/form-data; boundary=b"):
        messages: list[dict[str, Any]] = [
            {"type": "http.request", "body": b"half", "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive(waiting: list[dict[str, Any]] = messages) -> dict[str, Any]:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "PUT", "path": "/api/images/a", "raw_path": b"/api/images/a", "query_string": b"",
            "headers": [(b"host", b"testserver"), (b"content-type", kind)], "client": ("127.0.0.1", 1),
            "server": ("testserver", 80), "scheme": "http", "http_version": "1.1", "root_path": "",
        }  # fmt: skip
        asyncio.run(shop.app(scope, receive, send))  # type: ignore[arg-type]
    statuses = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert all(status == 400 for status in statuses), statuses
    assert "Traceback" not in caplog.text


def test_what_a_killed_writer_left_goes_with_the_first_write(shop: TestClient, bank: Gallery) -> None:
    left = bank.path / "uploads" / "ab" / ("ab" * 32 + "-0123456789abcdef.png")
    left.parent.mkdir(parents=True)
    left.write_bytes(RED)
    assert shop.put("/api/images/a", content=BLUE, headers=AS_PICTURE).status_code == 201
    assert not left.exists()
    assert shop.get("/api/images/a").content == BLUE


def test_a_batch_of_too_many_lines_does_those_that_fit_and_says_where_it_stopped(tmp_path: Path) -> None:
    """A megabyte of short lines took 16 seconds, and was answered by 49 megabytes from memory."""
    settings = Settings(allow_write=True, names=("testserver",), batch_lines=100)
    with client_of(small_gallery(tmp_path), settings) as client:
        first = b'{"op": "delete", "id": "black.png"}\n'
        for body in (first + b"1\n" * 500_000, first + b"\n1" * 100):
            reply = client.post("/api/images:batch", content=body, headers=LINES)
            results = [json.loads(line) for line in reply.iter_lines()]
            assert reply.status_code == 200
            assert [result["status"] for result in results[1:]] == [400] * 99 + [413]
            assert results[100]["line"] > 100
        assert "black.png" not in found_ids(client)
        fits = client.post("/api/images:batch", content=first + b"1\n" * 99, headers=LINES)
        assert [json.loads(line)["status"] for line in fits.iter_lines()] == [404] + [400] * 99


def test_a_long_answer_to_a_batch_waits_in_a_file(shop: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.server.write_api.MAX_ANSWER_BYTES_IN_MEMORY", 1000)
    results = [json.loads(line) for line in shop.post("/api/images:batch", content=b"1\n" * 300).iter_lines()]
    assert [result["line"] for result in results] == list(range(1, 301))


def test_a_deleted_or_replaced_picture_is_no_reference_any_more(tmp_path: Path) -> None:
    """It could still be read at /api/references/KEY, also by a key that a saved search gave."""
    with client_of(small_gallery(tmp_path), Settings(allow_write=True, names=("testserver",))) as client:
        for change in ("delete", "replace"):
            client.put("/api/images/secret", content=RED, headers=AS_PICTURE)
            asked = {"like": True, "reference_id": "secret", "k": 1}
            assert client.put("/api/searches/kept", json=asked).status_code == 200
            key = client.post("/api/search", json=asked).json()["reference"]["key"]
            assert client.get(f"/api/references/{key}").status_code == 200
            if change == "delete":
                client.delete("/api/images/secret")
            else:
                client.put("/api/images/secret", content=png(flag("blue")), headers=AS_PICTURE)
            assert client.get("/api/searches/kept/results").status_code == 200
            gone = client.get(f"/api/references/{key}")
            assert (gone.status_code, gone.json()["code"]) == (404, "unknown_reference")
            search = client.post("/api/search", json={"like": True, "reference_key": key})
            assert search.json()["code"] == "unknown_reference"


def test_a_sent_reference_stays_when_the_gallery_changes(tmp_path: Path) -> None:
    with client_of(small_gallery(tmp_path), Settings(allow_write=True, names=("testserver",))) as client:
        key = client.post("/api/references", files={"reference": RED}).json()["key"]
        client.delete("/api/images/white.png")
        assert client.get(f"/api/references/{key}").status_code == 200
