"""More than one page of a ranking: offset, threshold, and k up to the whole gallery."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tapr.gallery import Gallery
from tapr.server.settings import Settings
from tests.server.conftest import client_of

SPEC = {"target": "blue", "add": ["blue"], "remove": ["red"]}


def ranked(client: TestClient, **fields: Any) -> Any:
    reply = client.post("/api/rank", json={"spec": SPEC, "reference_id": "red-green.png", **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_k_reaches_the_whole_gallery(client: TestClient) -> None:
    whole = ranked(client, k=10_000)
    assert len(whole["hits"]) == whole["searched"] == 29
    assert len(ranked(client, k=10_000, exclude_reference=False)["hits"]) == 30


@pytest.mark.parametrize("explain", [True, False])
def test_pages_are_the_ranking_in_pieces(client: TestClient, explain: bool) -> None:
    whole = ranked(client, k=100, explain=explain)["hits"]
    pages = [hit for offset in range(0, 29, 7) for hit in ranked(client, k=7, offset=offset, explain=explain)["hits"]]
    assert [hit["id"] for hit in pages] == [hit["id"] for hit in whole]
    assert [hit["rank"] for hit in pages] == list(range(1, 30))


def test_without_explain_the_scores_are_the_same_and_have_no_parts(client: TestClient) -> None:
    plain, explained = ranked(client, explain=False)["hits"], ranked(client)["hits"]
    assert [hit["score"] for hit in plain] == pytest.approx([hit["score"] for hit in explained], abs=1e-5)
    assert {hit["id"] for hit in plain} == {hit["id"] for hit in explained}
    assert not any(hit["contributions"] for hit in plain)
    assert all(hit["contributions"] for hit in explained)


def test_a_threshold_leaves_out_what_is_below_it(client: TestClient) -> None:
    whole = ranked(client, k=100)["hits"]
    line = whole[9]["score"]
    above = ranked(client, k=100, threshold=line)["hits"]
    assert [hit["id"] for hit in above] == [hit["id"] for hit in whole if hit["score"] >= line]


def test_an_empty_page_says_why(client: TestClient) -> None:
    past = ranked(client, offset=29)
    assert past["hits"] == []
    assert past["notes"][0] == "nothing was found: offset 29 leaves out all of 29 pictures"
    high = ranked(client, threshold=2)
    assert high["hits"] == []
    assert high["notes"][0].startswith("nothing was found: no score here reaches the threshold 2; the best is ")


def test_the_same_by_search(client: TestClient) -> None:
    form = {"reference_id": "red-green.png", "edit": "blue", "k": "5"}
    whole = client.post("/api/search", data={**form, "k": "100"}).json()["hits"]
    page = client.post("/api/search", data={**form, "offset": "5", "explain": "false"}).json()["hits"]
    assert {hit["id"] for hit in page} <= {hit["id"] for hit in whole[4:11]}
    assert [hit["rank"] for hit in page] == [6, 7, 8, 9, 10]
    words = client.post("/api/search", data={"text": "blue", "k": "3", "offset": "3", "threshold": "-1"}).json()
    assert [hit["rank"] for hit in words["hits"]] == [4, 5, 6]


def test_a_threshold_is_a_number(client: TestClient) -> None:
    form = {"reference_id": "red-green.png", "edit": "blue", "threshold": "nan"}
    assert client.post("/api/search", data=form).json()["code"] == "bad_option"


def test_many_hits_with_their_parts_are_asked_for_in_pages(gallery: Gallery) -> None:
    with client_of(gallery, Settings(most_explained=10)) as client:
        ask = {"spec": SPEC, "reference_id": "red-green.png", "k": 11}
        refused = client.post("/api/rank", json=ask)
        assert refused.status_code == 400
        assert (refused.json()["code"], refused.json()["option"]) == ("bad_option", "k")
        assert len(client.post("/api/rank", json={**ask, "explain": False}).json()["hits"]) == 11
        assert len(client.post("/api/rank", json={**ask, "k": 10}).json()["hits"]) == 10


def test_a_reply_names_the_state_it_was_searched_in(client: TestClient, gallery: Gallery) -> None:
    assert ranked(client)["snapshot"] == gallery.manifest.snapshot
    assert client.get("/api/gallery").json()["snapshot"] == gallery.manifest.snapshot
