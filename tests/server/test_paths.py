"""Where files lie on the server is told in no answer: all routes are asked, and every answer is searched."""

import io
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Route

from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery
from tapr.index.ids import hidden_id
from tests.pictures import flag, png, write_flags
from tests.server.conftest import client_of

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from starlette.testclient import TestClient

from tapr.server.settings import Settings

TELLTALE = "tell-tale"
SPEC = json.dumps({"target": "a red flag", "add": ["red"]})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a name that would be seen: with the table, the pictures below it and beside it, and the gallery."""
    root = tmp_path_factory.mktemp("of") / TELLTALE
    below = write_flags(root / "table" / "below", [("red",), ("blue",), ("green",)])
    beside = write_flags(root / "beside", [("yellow",), ("black",), ("white",)])
    rows = [{"path": str(path), "price": 7} for path in below + beside]
    (root / "table" / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Gallery.build(root / "bank", root / "table" / "t.jsonl", FakeEncoder())
    below[2].unlink()  # a picture that went away since
    beside[2].write_bytes(b"no picture any more")
    return root


@pytest.fixture(scope="module")
def asked(place: Path) -> Iterator[TestClient]:
    settings = Settings(names=("testserver",), show_in_folder=True, allow_write=True)  # so that all routes are there
    with client_of(Gallery.open(place / "bank", encoder=FakeEncoder()), settings) as client:
        yield client


def requests(place: Path) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Method, route, address, and what goes with it: every route, right and wrong."""
    ids = ["below/red.png", "below/green.png", hidden_id(str(place / "beside" / "white.png")), "unknown"]
    picture = {"reference": ("r.png", png(flag("red")), "image/png")}
    broken = {"reference": ("r.png", b"broken", "image/png")}
    out: list[tuple[str, str, str, dict[str, Any]]] = [
        ("GET", "/", "/", {}),
        ("GET", "/docs", "/docs", {}),
        ("GET", "/docs/{name}", "/docs/docs.js", {}),
        ("GET", "/docs/{name}", "/docs/examples.json", {}),
        ("GET", "/web/{name}", "/web/main.js", {}),
        ("GET", "/web/{name}", "/web/nothing", {}),
        ("GET", "/openapi.json", "/openapi.json", {}),
        ("GET", "/healthz", "/healthz", {}),
        ("GET", "/readyz", "/readyz", {}),
        ("GET", "/metrics", "/metrics", {}),
        ("GET", "/api/gallery", "/api/gallery?limit=200", {}),
        ("GET", "/api/gallery", f"/api/gallery?limit=9&where={quote('price < 10')}", {}),
        ("GET", "/api/gallery", f"/api/gallery?where={quote('prise < 10')}", {}),
        ("GET", "/api/gallery", f"/api/gallery?where={quote('path like %')}", {}),
        ("GET", "/api/facets", "/api/facets", {}),
        ("GET", "/api/references/{key}", "/api/references/unknown", {}),
        ("POST", "/api/references", "/api/references", {"files": picture}),
        ("POST", "/api/references", "/api/references", {"files": broken}),
        ("POST", "/api/factorize", "/api/factorize", {"data": {"edit": "blue"}, "files": picture}),
        ("POST", "/api/search", "/api/search", {"data": {"edit": "blue"}, "files": picture}),
        ("POST", "/api/search", "/api/search", {"data": {"text": "blue", "threshold": 9}}),
        ("POST", "/api/search", "/api/search", {"data": {"text": "blue", "where": "picture.path contains 'a'"}}),
        ("PUT", "/api/searches/{name}", "/api/searches/blues", {"json": {"text": "blue", "k": 2}}),
        ("PUT", "/api/searches/{name}", "/api/searches/blues", {"json": {"text": "blue", "where": "path like %"}}),
        ("GET", "/api/searches", "/api/searches", {}),
        ("GET", "/api/searches/{name}/results", "/api/searches/blues/results", {}),
        ("GET", "/api/searches/{name}/feed", "/api/searches/blues/feed", {}),
        ("GET", "/api/searches/{name}/feed", "/api/searches/unknown/feed", {}),
        ("DELETE", "/api/searches/{name}", "/api/searches/blues", {}),
    ]
    for id_ in ids:
        spec = {"target": "a flag", "add": ["red"]}
        question = quote(json.dumps({"spec": spec, "reference_id": id_}))
        out += [
            ("GET", "/api/images/{id}", f"/api/images/{quote(id_, safe='')}", {}),
            ("GET", "/api/images/{id}", f"/api/images/{quote(id_)}?size=64", {}),
            ("GET", "/api/images", f"/api/images?id={quote(id_)}", {}),
            ("GET", "/api/heatmap", f"/api/heatmap?question={question}", {}),
            ("POST", "/api/search", "/api/search", {"data": {"reference_id": id_, "edit": "red", "k": 99}}),
            ("POST", "/api/factorize", "/api/factorize", {"data": {"reference_id": id_, "edit": "red"}}),
            ("POST", "/api/collage", "/api/collage", {"data": {"reference_id": id_, "edit": "red"}}),
            ("POST", "/api/export", "/api/export", {"json": {"ids": [id_]}}),
            ("POST", "/api/export", "/api/export", {"json": {"ids": [id_], "format": "csv"}}),
            ("POST", "/api/show", "/api/show", {"json": {"id": id_}}),
            ("POST", "/api/rank", "/api/rank", {"json": {"reference_id": id_, "spec": spec}}),
        ]
    for id_, body in (("new", png(flag("red"))), ("new", b"no picture"), ("below/blue.png", png(flag("white")))):
        out += [
            ("PUT", "/api/images/{id}", f"/api/images/{quote(id_, safe='')}", {"content": body}),
            ("PUT", "/api/images", f"/api/images?id={quote(id_)}", {"content": body}),
        ]
    named = json.dumps({"path": "/elsewhere/x.png"}).encode()
    lines = json.dumps({"op": "delete", "id": "unknown"}).encode() + b"\n{\n"
    out += [
        ("PUT", "/api/images", "/api/images?id=x", {"content": named, "headers": {"content-type": "application/json"}}),
        ("DELETE", "/api/images/{id}", "/api/images/new", {}),
        ("DELETE", "/api/images", "/api/images?id=unknown", {}),
        ("POST", "/api/images:batch", "/api/images:batch", {"content": lines}),
    ]
    own = [  # the same of the gallery by its name
        (
            method,
            route.replace("/api", "/api/galleries/{gallery}"),
            address.replace("/api", "/api/galleries/bank"),
            body,
        )
        for method, route, address, body in out
        if route.startswith("/api/")
    ]
    return [*out, *own, ("GET", "/api/galleries", "/api/galleries", {})]


def test_no_answer_of_any_route_names_a_folder(place: Path, asked: TestClient) -> None:
    seen, statuses = set(), set()
    for method, route, address, body in requests(place):
        reply = asked.request(method, address, **body)
        assert reply.status_code not in (405, 422, 500), (address, reply.text)
        seen.add((method, route))
        statuses.add(reply.status_code)
        for text in (reply.content, str(reply.headers).encode(), *_inside(reply.content)):
            assert TELLTALE.encode() not in text, (method, address)
    assert {200, 400, 404, 415} <= statuses
    assert seen == _routes(asked), "a new route is to be asked here too"


def test_no_answer_names_a_folder_when_the_bank_is_damaged(place: Path, tmp_path: Path) -> None:
    root = tmp_path / TELLTALE
    shutil.copytree(place, root)
    with client_of(Gallery.open(root / "bank", encoder=FakeEncoder())) as client:
        manifest = root / "bank" / "manifest.json"
        for broken in (b"{", None):
            manifest.unlink()
            if broken is not None:
                manifest.write_bytes(broken)
            for address in ("/api/gallery", "/readyz", "/api/images?id=below/red.png"):
                reply = client.get(address)
                assert reply.status_code == 503
                assert TELLTALE not in reply.text
            manifest.touch()


@pytest.mark.parametrize("where", ["path = 'x'", "price < 9 or PICTURE.path like '%'", '"path" is not null'])
def test_filters_on_path_are_refused(asked: TestClient, where: str) -> None:
    reply = asked.get("/api/gallery", params={"where": where.replace("PICTURE", "picture")})
    assert reply.status_code == 400
    assert "no filter can ask for path" in reply.json()["detail"]


def test_filters_that_only_mention_path_are_allowed(asked: TestClient) -> None:
    reply = asked.get("/api/gallery", params={"where": "id != 'path' and price = 7"})
    assert (reply.status_code, reply.json()["count"]) == (200, 6)


def test_an_option_allows_them(place: Path) -> None:
    settings = Settings(names=("testserver",), show_paths=True)
    with client_of(Gallery.open(place / "bank", encoder=FakeEncoder()), settings) as client:
        assert client.get("/api/gallery", params={"where": f"path contains '{TELLTALE}'"}).json()["count"] == 6


def _routes(client: TestClient) -> set[tuple[str, str]]:
    """Those of the description, and those beside it."""
    described = client.get("/openapi.json").json()["paths"]
    out = {(method.upper(), path) for path, methods in described.items() for method in methods}
    beside = [route for route in client.app.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
    return out | {("GET", route.path) for route in beside}


def _inside(content: bytes) -> Iterator[bytes]:
    """What a ZIP holds, names and all."""
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield archive.read(name)
