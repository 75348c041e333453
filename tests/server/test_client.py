"""tapr.client against a running server, waiting and with asyncio; and what it does when the server is busy."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapr.gallery import Gallery
from tapr.server.settings import Settings
from tests.pictures import flag, png
from tests.refusals import refused
from tests.server.conftest import ColourFactorizer, served
from tests.server.test_writing import small_gallery

httpx = pytest.importorskip("httpx", reason="the extra 'client' is not installed")
from tapr import client as api  # noqa: E402  (after the look for httpx)

RED, BLUE = png(flag("red")), png(flag("blue"))
CALM = api.RetryPolicy(chance=lambda: 0.0)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return small_gallery(tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module")
def url(bank: Gallery) -> Iterator[str]:
    settings = Settings(port=0, token="a read token", write_token="a write token")
    with served(bank, ColourFactorizer(), settings) as server:
        yield f"http://127.0.0.1:{server.port}"


def test_it_reads_and_writes(url: str, tmp_path: Path) -> None:
    with api.Client(url, token="a write token") as client:
        (listed,) = client.galleries()
        assert (listed.name, listed.may_write) == ("bank", True)
        before = client.describe(limit=10)
        assert len(before.pictures) == before.count == 3
        file = tmp_path / "red.png"
        file.write_bytes(RED)
        made = client.put("sku 1/?", file, {"price": 40})
        assert (made.done, made.snapshot) == ("created", before.snapshot + 1)
        assert client.image("sku 1/?") == RED
        assert client.image("sku 1/?", size=16).startswith(b"\x89PNG")
        found = client.search(BLUE, "red", k=2, explain=True, where="price = 40")
        assert (found.hits[0].id, found.hits[0].metadata, found.snapshot) == ("sku 1/?", {"price": 40}, made.snapshot)
        assert found.hits[0].contributions
        assert found.reference is not None
        again = client.rank(found.spec, reference_key=found.reference.key, k=1)
        assert len(again.hits) == 1
        assert client.search(reference_id="black.png", edit="red", k=1).hits
        assert client.search(text="red", k=1).hits
        assert client.open_reference(BLUE).key == found.reference.key
        assert client.put("sku 1/?", metadata={"price": 30}).done == "replaced"
        lines: list[dict[str, Any]] = [
            {"id": "b", "picture": BLUE},
            {"op": "delete", "id": "sku 1/?"},
            {"op": "x", "id": "y"},
        ]
        results = client.batch(lines)
        assert [(one.status, one.ok) for one in results] == [(201, True), (200, True), (400, False)]
        assert client.delete("b").done == "deleted"
    with api.Client(url, token="a write token", gallery="bank") as named:
        assert named.describe().count == 3


def test_it_does_the_same_with_asyncio(url: str) -> None:
    async def work() -> None:
        async with api.AsyncClient(url, token="a write token") as client:
            await asyncio.gather(*(client.put(f"p{n}", RED, {"n": n}) for n in range(4)))
            found = await client.search(RED, "blue", k=10, exclude_reference=False)
            assert {hit.id for hit in found.hits} >= {f"p{n}" for n in range(4)}
            assert await client.image("p1") == RED
            assert (await client.describe()).count == 7
            assert [one.name for one in await client.galleries()] == ["bank"]
            results = await client.batch({"op": "delete", "id": f"p{n}"} for n in range(4))
            assert all(one.ok for one in results)
            with pytest.raises(api.NotFound):
                await client.delete("p1")

    asyncio.run(work())


def test_refusals_are_exceptions_with_the_servers_sentence(url: str) -> None:
    with api.Client(url, token="a read token") as client:
        with pytest.raises(api.Forbidden) as caught:
            client.put("a", RED)
        assert (caught.value.status, bool(caught.value.request_id), caught.value.code) == (403, True, "forbidden")
        with refused("unknown_picture", "nothing"):
            client.image("nothing")
        with refused("bad_option", option="k"):
            client.search(RED, "x", k=0)
        with pytest.raises(api.BadRequest):
            client.search(RED, "x", where="(")
        with pytest.raises(api.NotAPicture):
            client.search(b"no picture", "x")
    with api.Client(url) as client, pytest.raises(api.Unauthorized):
        client.describe()
    with api.Client(url, token="a write token") as client:
        client.put("k", RED, key="one")
        with pytest.raises(api.Conflict):
            client.put("k", BLUE, key="one")
        client.delete("k")
    with (
        api.Client("http://127.0.0.1:9", retry=api.RetryPolicy(attempts=1)) as client,
        pytest.raises(api.Unreachable),
    ):
        client.describe()


def test_it_retries_with_the_same_key_and_honours_retry_after() -> None:
    asked: list[Any] = []
    waits: list[float] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        if len(asked) == 1:
            raise httpx.ConnectError("not yet")
        if len(asked) == 2:
            return httpx.Response(503, headers={"Retry-After": "3"}, json={"detail": "busy"})
        return httpx.Response(201, json={"id": "a", "done": "created", "snapshot": 1, "new field": 1})

    transport = httpx.MockTransport(answer)
    with api.Client("http://x", retry=CALM, sleep=waits.append, transport=transport) as client:
        assert client.put("a", RED).done == "created"
    assert waits == [0.2, 3.0]
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1


@pytest.mark.parametrize(("status", "error"), [(429, api.TooOften), (503, api.Unavailable), (500, api.ApiError)])
def test_retries_end_after_the_last_attempt(status: int, error: type[Exception]) -> None:
    waits: list[float] = []
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=b"<html>"))
    client = api.Client("http://x", retry=CALM, sleep=waits.append, transport=transport)
    with client, pytest.raises(error, match=f"answered {status}"):
        client.describe()
    assert len(waits) == (0 if status == 500 else 3)


def test_too_long_a_wait_is_left_to_the_caller() -> None:
    assert CALM.wait(1, 429, "3600") is None
    assert CALM.wait(1, 503, "x") == 0.2


def test_both_clients_have_the_same_methods_and_say_what_they_answer() -> None:
    for name in ("search", "put", "galleries"):
        waiting, awaited = getattr(api.Client, name), getattr(api.AsyncClient, name)
        assert inspect.signature(waiting) == inspect.signature(awaited)
        assert waiting.__doc__ == awaited.__doc__
        assert inspect.iscoroutinefunction(awaited)
    assert inspect.signature(api.Client.put).return_annotation == "WriteResult"


def test_a_batch_line_is_json(tmp_path: Path) -> None:
    from tapr.client.calls import Calls

    (tmp_path / "x.png").write_bytes(RED)
    call = Calls().batch([{"id": "a", "picture": tmp_path / "x.png"}])
    assert call.body is not None
    assert json.loads(call.body)["picture"].startswith("iVBOR")
