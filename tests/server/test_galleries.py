"""Several galleries in one server, each with its tokens; and how often one may ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tapr.cli.serve import _folders
from tapr.encoders.fake import FakeEncoder
from tapr.errors import BadInput
from tapr.gallery import Gallery
from tapr.server.access import Tokens, read_tokens, tokens_of_environment
from tapr.server.app import create_app
from tapr.server.rate import RateLimit, parse_rate
from tapr.server.settings import Settings
from tests.pictures import flag, png
from tests.server.conftest import ColourFactorizer, client_of

RED = png(flag("red"))


def gallery_of(folder: Path, *colours: str) -> Gallery:
    (folder / "pictures").mkdir(parents=True)
    for colour in colours:
        flag(colour).save(folder / "pictures" / f"{colour}.png")
    return Gallery.build(folder / "bank", folder / "pictures", FakeEncoder())


@pytest.fixture(scope="module")
def galleries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Gallery]:
    root = tmp_path_factory.mktemp("galleries")
    return {"shop": gallery_of(root / "a", "red", "blue"), "outlet": gallery_of(root / "b", "black", "white", "green")}


def client_with(galleries: dict[str, Gallery], settings: Settings) -> TestClient:
    app = create_app(galleries, settings, ColourFactorizer())
    return TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def both(galleries: dict[str, Gallery]) -> Iterator[TestClient]:
    tokens = {
        "shop": Tokens(("shop reads",), ("shop writes",)),
        "outlet": Tokens(("outlet reads",), ("outlet writes",)),
    }
    with client_with(galleries, Settings(host="0.0.0.0", tokens=tokens)) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_every_gallery_has_all_routes_and_plain_routes_belong_to_the_first(both: TestClient) -> None:
    for name, count in (("shop", 2), ("outlet", 3)):
        head = bearer(f"{name} reads")
        assert both.get(f"/api/galleries/{name}", headers=head).json()["count"] == count
        assert both.get(f"/api/galleries/{name}/gallery", headers=head).json()["count"] == count
        found = both.post(f"/api/galleries/{name}/search", data={"text": "red"}, headers=head).json()
        assert len(found["hits"]) == count
    assert both.get("/api/gallery", headers=bearer("shop reads")).json()["count"] == 2
    assert both.get("/api/galleries/outlet/images/black.png", headers=bearer("outlet reads")).status_code == 200
    assert both.get("/api/galleries/outlet/images/red.png", headers=bearer("outlet reads")).status_code == 404


def test_a_token_opens_its_own_gallery_and_no_other(both: TestClient) -> None:
    for path in ("/api/galleries/outlet", "/api/galleries/outlet/images/black.png"):
        reply = both.get(path, headers=bearer("shop writes"))
        assert (reply.status_code, "does not open that gallery" in reply.json()["detail"]) == (403, True)
        assert both.get(path).status_code == 401
        assert both.get(path, headers=bearer("shop readz")).status_code == 401
    assert both.get("/api/gallery", headers=bearer("outlet reads")).status_code == 403
    listed = both.get("/api/galleries", headers=bearer("outlet reads")).json()["galleries"]
    assert [(one["name"], one["count"], one["may_write"]) for one in listed] == [("outlet", 3, False)]
    assert both.get("/api/galleries").status_code == 401


def test_the_page_of_a_visitor_is_that_of_a_gallery_which_the_token_opens(both: TestClient) -> None:
    def led_to(address: str, token: str = "") -> tuple[int, str | None]:
        reply = both.get(address, headers=bearer(token) if token else {}, follow_redirects=False)
        return reply.status_code, reply.headers.get("location")

    assert led_to("/", "shop reads") == (200, None)
    assert led_to("/", "outlet reads") == (303, "/?gallery=outlet")
    assert led_to("/?gallery=outlet", "outlet reads") == (200, None)
    assert led_to("/?token=outlet+reads&gallery=outlet") == (303, "/?gallery=outlet")
    assert led_to("/?token=outlet+reads&gallery=%2F%0D%0Ax") == (303, "/?gallery=%2F%0D%0Ax")
    both.cookies.clear()
    assert led_to("/", "no such token") == (401, None)


def test_each_is_written_with_its_own_token(both: TestClient) -> None:
    path = "/api/galleries/outlet/images/new"
    assert both.put(path, files={"picture": RED}, headers=bearer("shop writes")).status_code == 403
    assert both.put(path, files={"picture": RED}, headers=bearer("outlet reads")).status_code == 403
    assert both.put(path, files={"picture": RED}, headers=bearer("outlet writes")).status_code == 201
    assert both.get("/api/galleries/outlet", headers=bearer("outlet reads")).json()["count"] == 4
    assert both.get("/api/gallery", headers=bearer("shop reads")).json()["count"] == 2
    assert both.delete(path, headers=bearer("outlet writes")).status_code == 200


def test_metrics_are_told_by_gallery_to_whoever_may_read_it(galleries: dict[str, Gallery]) -> None:
    tokens = {"shop": Tokens(("shop reads", "both read")), "outlet": Tokens(("both read",), ("outlet writes",))}
    with client_with(galleries, Settings(host="0.0.0.0", tokens=tokens)) as client:
        writes = bearer("outlet writes")
        for colour in ("red", "green"):
            client.post("/api/galleries/outlet/search", data={"text": colour}, headers=writes)
        client.post("/api/search", data={"text": "red"}, headers=bearer("shop reads"))
        client.post("/api/galleries/shop/search", data={"text": "blue"}, headers=bearer("shop reads"))
        for path in ("one", "two"):
            assert client.put(f"/api/galleries/outlet/images/{path}", files={"picture": RED}, headers=writes).is_success
        lines = b'{"op": "delete", "id": "one"}\n{"op": "delete", "id": "two"}\n{"op": "delete", "id": "none"}\n'
        client.post("/api/galleries/outlet/images:batch", content=lines, headers=writes)
        client.get("/api/galleries/nothing/gallery", headers=writes)
        text = client.get("/metrics", headers=bearer("both read")).text
        for line in (
            'tapr_requests_total{method="POST",route="/api/search",status="200",gallery="outlet"} 2',
            'tapr_requests_total{method="POST",route="/api/search",status="200",gallery="shop"} 2',
            'tapr_requests_total{method="GET",route="other",status="404"} 1',
            'tapr_request_seconds_count{route="/api/search",gallery="shop"} 2',
            'tapr_pictures{gallery="shop"} 2',
            'tapr_pictures{gallery="outlet"} 3',
            'tapr_references{gallery="outlet"} 1',  # what warmed it up
            'tapr_swept_queries_total{gallery="shop"} 3',  # one warmed up
            'tapr_snapshots_total{gallery="outlet"} 3',
            'tapr_write_operations_total{gallery="outlet"} 4',
        ):
            assert line in text.splitlines(), line
        assert 'tapr_snapshots_total{gallery="shop"}' not in text
        assert "outlet" not in client.get("/metrics", headers=bearer("shop reads")).text


def test_what_is_not_there(both: TestClient) -> None:
    head = bearer("shop reads")
    assert "there is no gallery" in both.get("/api/galleries/nothing/gallery", headers=head).json()["detail"]
    assert both.get("/api/galleries/shop/nothing", headers=head).status_code == 404
    assert both.get("/api/galleries/shop/galleries/shop", headers=head).status_code == 404
    assert both.put("/api/galleries/nothing/images/x", headers=head).status_code == 403


def test_errors_of_the_others_are_told_in_the_same_way(both: TestClient) -> None:
    head = bearer("outlet reads")
    reply = both.post("/api/galleries/outlet/rank", json={"spec": {"target": " "}}, headers=head)
    assert (reply.status_code, reply.headers["content-type"]) == (400, "application/problem+json")
    assert both.post("/api/galleries/outlet/rank", json={"k": "many"}, headers=head).status_code == 422


def test_one_gallery_has_a_name_too(gallery: Gallery) -> None:
    with client_of(gallery) as client:
        (only,) = client.get("/api/galleries").json()["galleries"]
        assert (only["name"], only["count"]) == ("bank", 30)
        assert client.get("/api/galleries/bank/images/red-blue.png").status_code == 200


def test_every_gallery_needs_a_token_where_others_reach_the_server(galleries: dict[str, Gallery]) -> None:
    with pytest.raises(BadInput, match="can be reached by others"):
        create_app(galleries, Settings(host="0.0.0.0", tokens={"shop": Tokens(("shop reads",))}))
    with pytest.raises(BadInput, match="letters, digits"):
        create_app({"a/b": galleries["shop"]}, Settings())


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('[shop]\nread = ["token one", "token two"]\nwrite = "token three"\n')
    assert read_tokens(file, ["shop"]) == {"shop": Tokens(("token one", "token two"), ("token three",))}
    for text, sentence in (
        ("[other]\nread='long enough'", "galleries served are shop"),
        ("[shop]\nred='x'", "write tokens as"),
        ("shop", "not TOML"),
        ("[shop]\nread=7", "a token is a text"),
        ("[shop]\nread='short'", r"tokens.toml, \[shop\]: the token is too short, with 5 characters"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=sentence):
            read_tokens(file, ["shop"])
    with pytest.raises(BadInput, match="cannot read the tokens"):
        read_tokens(tmp_path / "none", ["shop"])
    monkeypatch.setenv("TAPR_TOKEN_MY_SHOP", "long enough")
    monkeypatch.setenv("TAPR_WRITE_TOKEN_MY_SHOP", "short")
    with pytest.raises(BadInput, match="TAPR_WRITE_TOKEN_MY_SHOP: the write token is too short"):
        tokens_of_environment(["my-shop"])
    monkeypatch.setenv("TAPR_WRITE_TOKEN_MY_SHOP", "longer still")
    assert tokens_of_environment(["my-shop", "x"]) == {"my-shop": Tokens(("long enough",), ("longer still",))}


def test_who_asks_too_often_is_told_when_to_come_back(gallery: Gallery) -> None:
    with client_of(gallery, Settings(rate="2/h", token="long enough", names=("testserver",))) as client:
        head = bearer("long enough")
        statuses = [client.get("/api/gallery", headers=head).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        reply = client.get("/api/gallery", headers=head)
        assert int(reply.headers["Retry-After"]) > 60
        assert "rate limit exceeded" in reply.json()["detail"]
        assert client.get("/api/images/red-blue.png", headers=head).status_code == 200, "pictures do not count"
        assert client.get("/healthz").status_code == 200
        guesses = [client.get("/api/gallery", headers=bearer(f"a guess {n}")).status_code for n in range(4)]
        assert guesses == [401, 401, 429, 429], "guesses are counted by address"


def test_a_bucket_fills_at_the_rate() -> None:
    now = [0.0]
    limit = RateLimit(*parse_rate("120/m"), clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(120)] == [0.0] * 120
    assert limit.wait("a") == pytest.approx(0.5)
    assert limit.wait("b") == 0.0
    now[0] = 0.6
    assert (limit.wait("a"), limit.wait("a") > 0) == (0.0, True)
    for text in ("", "0", "5/d", "-1/s", "5 per second"):
        with pytest.raises(BadInput, match="a rate is written like"):
            parse_rate(text)


def test_galleries_on_the_command_line() -> None:
    assert _folders("x", ()) == {"": "x"}
    assert _folders(None, ("shop=a", "outlet=b=c")) == {"shop": "a", "outlet": "b=c"}
    for path, given, sentence in (
        (None, (), "say what to serve"),
        ("x", ("a=b",), "say what to serve"),
        (None, ("folder",), "NAME=FOLDER"),
        (None, ("=x",), "NAME=FOLDER"),
        (None, ("a=x", "a=y"), "two galleries are called"),
    ):
        with pytest.raises(BadInput, match=sentence):
            _folders(path, given)
