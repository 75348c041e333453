"""Quotas: what a gallery may hold, refused before anything is stored, and told to whoever may read it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tapr.cli.serve import _quotas
from tapr.gallery import Gallery
from tapr.server.app import create_app
from tapr.server.settings import Settings
from tapr.store.quota import Quota, Usage
from tests.pictures import flag, png
from tests.refusals import refused
from tests.server.conftest import client_of
from tests.server.test_writing import AS_PICTURE, BLUE, RED, small_gallery

GREEN = png(flag("green", size=(40, 30)))


@pytest.fixture
def bank(tmp_path: Path) -> Gallery:
    return small_gallery(tmp_path)  # three pictures


def with_quota(bank: Gallery, text: str) -> TestClient:
    return client_of(bank, Settings(allow_write=True, quotas={"": Quota.parse(text)}, names=("testserver",)))


@pytest.fixture
def four(bank: Gallery) -> Iterator[TestClient]:
    """Room for one more picture."""
    with with_quota(bank, "4") as client:
        yield client


def listed(client: TestClient) -> dict[str, Any]:
    (only,) = client.get("/api/galleries").json()["galleries"]
    assert isinstance(only, dict)
    return only


def files_of(bank: Gallery) -> list[Path]:
    return [path for path in (bank.path / "uploads").rglob("*") if path.is_file()]


def test_saved_searches_count(bank: Gallery) -> None:
    used = bank.usage().bytes
    question = {"text": "red", "threshold": 0.9}
    with with_quota(bank, "1kB") as client:
        reply = client.put("/api/searches/reds", json=question)
        assert (reply.status_code, reply.json()["code"]) == (413, "quota_exceeded")
        assert client.get("/api/searches").json() == {"searches": []}
        assert bank.usage().bytes - used <= 4096  # of the empty file, at most
    with with_quota(bank, "1GB") as client:
        assert client.put("/api/searches/reds", json=question).status_code == 200
        assert listed(client)["used_bytes"] > used
    assert bank.usage().bytes > used


def test_a_full_gallery_refuses_new_pictures_and_stores_nothing(bank: Gallery, four: TestClient) -> None:
    assert four.put("/api/images/red", content=RED, headers=AS_PICTURE).status_code == 201
    sizes = {path.name: path.stat().st_size for path in bank.path.iterdir() if path.is_file()}
    reply = four.put("/api/images/blue", content=BLUE, headers=AS_PICTURE)
    assert (reply.status_code, reply.json()["code"]) == (413, "quota_exceeded")
    assert "4 pictures" in reply.json()["detail"]
    assert len(files_of(bank)) == 1
    assert sizes == {path.name: path.stat().st_size for path in bank.path.iterdir() if path.is_file()}
    assert (listed(four)["count"], listed(four)["quota_pictures"]) == (4, 4)
    # what makes it no larger still goes
    assert four.put("/api/images/red", content=GREEN, headers=AS_PICTURE).json()["done"] == "replaced"
    assert four.put("/api/images/red", json={"metadata": {"price": 3}}).status_code == 200
    assert four.delete("/api/images/red").status_code == 200
    assert four.put("/api/images/blue", content=BLUE, headers=AS_PICTURE).status_code == 201


def test_lines_of_a_batch_are_counted_one_after_the_other(bank: Gallery, four: TestClient) -> None:
    red, blue = (base64.b64encode(data).decode() for data in (RED, BLUE))
    lines = [
        {"id": "red", "picture": red},
        {"id": "blue", "picture": blue},
        {"id": "red", "metadata": {"price": 5}},
        {"op": "delete", "id": "black.png"},
        {"id": "blue", "picture": blue},
        {"id": "third", "picture": blue},
    ]
    reply = four.post("/api/images:batch", content="\n".join(map(json.dumps, lines)))
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert [one["status"] for one in answers] == [201, 413, 200, 200, 201, 413]
    assert listed(four)["count"] == 4
    assert len(files_of(bank)) == 2


def test_bytes_are_those_of_uploads_vectors_and_metadata(bank: Gallery) -> None:
    before, row = bank.usage(), bank.manifest.row_bytes()
    assert before == Usage(3, 3 * row + 3 * len("{}")), "files of sources do not count"
    room = before.bytes + row + len(RED) + len('{"price": 12}')
    with with_quota(bank, f"{room // 1000 + 1}kB") as client:
        limit = (room // 1000 + 1) * 1000
        metadata = {"price": 12}
        reply = client.put("/api/images/red", files={"picture": RED}, data={"metadata": json.dumps(metadata)})
        assert reply.status_code == 201, reply.text
        assert (listed(client)["used_bytes"], listed(client)["quota_bytes"]) == (room, limit)
        reply = client.put("/api/images/red", json={"metadata": {"text": "x" * 1000}})
        assert (reply.status_code, reply.json()["code"]) == (413, "quota_exceeded")
        reply = client.put("/api/images/black.png", json={"metadata": {"text": "x" * 900}})
        assert reply.status_code == 413, "a source's file becomes an upload"
        lines = client.get("/metrics").text.splitlines()
        assert f'tapr_used_bytes{{gallery="bank"}} {room}' in lines
        assert f'tapr_quota_bytes{{gallery="bank"}} {limit}' in lines
        assert not any(line.startswith("tapr_quota_pictures{") for line in lines)


def test_each_gallery_has_its_own(tmp_path: Path) -> None:
    galleries = {name: small_gallery(tmp_path / name) for name in ("shop", "outlet")}
    quotas = _quotas(("4", "outlet=3,1GB"), ["shop", "outlet"])
    assert quotas == {"": Quota(4), "outlet": Quota(3, 10**9)}
    app = create_app(galleries, Settings(allow_write=True, quotas=quotas, names=("testserver",)))
    with TestClient(app) as client:
        for name, status in (("outlet", 413), ("shop", 201)):
            path = f"/api/galleries/{name}/images/red"
            assert client.put(path, content=RED, headers=AS_PICTURE).status_code == status
        assert client.put("/api/images/blue", content=BLUE, headers=AS_PICTURE).status_code == 413


def test_quotas_that_cannot_be(bank: Gallery) -> None:
    for text in ("", "0", "-1", "2 gigabytes", "1,2", "1GB,2GB", "5000;1GB"):
        with refused("bad_input", "5000,2GB"):
            Quota.parse(text)
    with refused("bad_input", "other=5", "shop"):
        _quotas(("other=5",), ["shop"])
    with refused("bad_input", "shop"):
        _quotas(("shop=5", "shop=1GB"), ["shop"])
    with refused("bad_input", "--write-token"):
        create_app(bank, Settings(quotas={"": Quota(5)}))
