"""Searches by words alone or by a picture alone, parts of references, several of them, and alike hits, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import client_of

SPEC = {"target": "blue", "add": ["blue"], "remove": ["red"]}
HALF = [0, 0, 0.5, 1]


def ranked(client: TestClient, status: int = 200, **fields: Any) -> Any:
    reply = client.post("/api/rank", json=fields)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_without_a_reference_the_words_decide_alone(client: TestClient) -> None:
    found = ranked(client, spec=SPEC, k=5)
    assert (found["searched_by"], found["factorizer"]) == ("words alone", "given")
    assert found["reference"] is None
    assert "blue" in found["hits"][0]["id"]
    assert {part["factor"] for part in found["hits"][0]["contributions"]} == {"target", "add", "remove"}
    by_text = client.post("/api/search", data={"text": "blue", "k": "5"}).json()
    assert by_text["searched_by"] == "words alone"
    only_target = ranked(client, spec={"target": "blue"}, k=5)
    assert [hit["id"] for hit in by_text["hits"]] == [hit["id"] for hit in only_target["hits"]]


def test_without_a_spec_the_picture_decides_alone(client: TestClient) -> None:
    found = ranked(client, reference_id="red-green.png", k=3)
    assert found["searched_by"] == found["factorizer"] == "a picture alone"
    assert {"red", "green"} == set(found["hits"][0]["id"].removesuffix(".png").split("-"))
    assert sum(abs(part["value"]) for part in found["hits"][0]["contributions"] if part["factor"] == "target") == 0
    by_like = client.post("/api/search", data={"reference_id": "red-green.png", "like": "true", "k": "3"}).json()
    assert by_like["hits"] == found["hits"]
    both = ranked(client, spec=SPEC, reference_id="red-green.png")
    assert both["searched_by"] == "a picture and words"


@pytest.mark.parametrize(
    ("fields", "code", "option"),
    [
        ({}, "missing_option", "reference"),
        ({"spec": SPEC, "crop": HALF}, "missing_option", "crop"),
        ({"spec": SPEC, "reference_weight": 0.5}, "missing_option", "reference_weight"),
        ({"spec": SPEC, "score": "paper"}, "missing_option", "score"),
        ({"spec": SPEC, "more_references": [{"reference_id": "red-blue.png"}]}, "missing_option", "more_references"),
        ({"reference_id": "red-blue.png", "reference_weight": 0.5}, "conflicting_options", "reference_weight"),
        ({"reference_id": "red-blue.png", "crop": [0, 0, 1]}, "bad_option", "crop"),
        (
            {"reference_id": "red-blue.png", "more_references": [{"reference_id": "red-green.png"}] * 3},
            "bad_option",
            "more_references",
        ),
        ({"reference_id": "red-blue.png", "more_references": [{}]}, "missing_option", "reference"),
    ],
)
def test_what_means_nothing_is_refused(client: TestClient, fields: dict[str, Any], code: str, option: str) -> None:
    problem = ranked(client, 400, **fields)
    assert (problem["code"], problem["option"]) == (code, option)


def test_a_part_of_the_reference_and_a_further_one(client: TestClient) -> None:
    left = ranked(client, reference_id="yellow-red.png", crop=HALF, k=4)
    assert left["reference"]["crop"] == HALF
    assert any("only the chosen part counts" in note for note in left["notes"])
    assert all("yellow" in hit["id"] for hit in left["hits"])
    names = [part["text"] for part in left["hits"][0]["contributions"] if part["factor"] == "continuity"]
    assert names == ["selected area"]
    more_references = [{"reference_id": "blue-black.png", "crop": [0, 0, 0.5, 1]}]
    two = ranked(client, reference_id="yellow-red.png", crop=HALF, more_references=more_references, k=4)
    assert set(two["hits"][0]["id"].removesuffix(".png").split("-")) == {"yellow", "blue"}
    form = {
        "reference_id": "yellow-red.png",
        "crop": "0,0,0.5,1",
        "more_references": json.dumps(more_references),
        "like": "true",
        "k": "4",
    }
    assert client.post("/api/search", data=form).json()["hits"] == two["hits"]


def test_heat_maps_of_single_modality_searches_and_of_each_reference(client: TestClient) -> None:
    question: dict[str, Any] = {"spec": {"target": "blue", "add": ["blue"]}}
    words = {"question": json.dumps(question)}
    shown = client.get("/api/heatmap", params={**words, "id": "red-blue.png", "term": "add:0"})
    assert shown.headers["content-type"] == "image/png"
    assert client.get("/api/heatmap", params=words).status_code == 400  # over which picture?
    question |= {"reference_id": "red-green.png", "more_references": [{"reference_id": "blue-black.png"}]}
    two = {"question": json.dumps({**question, "reference_weight": 0.5})}
    maps: list[dict[str, Any]] = [
        {"term": "reference:0:local", "number": 1},
        {"term": "reference:1:local", "number": 2},
        {"term": "reference:1:local", "id": "red-blue.png"},
    ]
    seen = {client.get("/api/heatmap", params={**two, **which}).content for which in maps}
    assert len(seen) == 3
    assert client.get("/api/heatmap", params={**two, "number": 3}).status_code == 400


def test_alike_hits_are_marked_on_every_page_and_keep_their_ranks(client: TestClient) -> None:
    plain = ranked(client, spec=SPEC, k=100)["hits"]
    whole = ranked(client, spec=SPEC, k=100, near_duplicates=0.999)["hits"]
    assert [{**hit, "near_duplicate_of": None} for hit in whole] == plain
    shown = {hit["id"] for hit in whole if hit["near_duplicate_of"] is None}
    assert len(shown) < len(whole)
    assert {hit["near_duplicate_of"] for hit in whole if hit["near_duplicate_of"]} <= shown
    pages = [
        hit
        for offset in range(0, 30, 7)
        for hit in ranked(client, spec=SPEC, k=7, offset=offset, near_duplicates=0.999)["hits"]
    ]
    assert {hit["id"]: hit["near_duplicate_of"] for hit in pages} == {
        hit["id"]: hit["near_duplicate_of"] for hit in whole
    }


def test_the_gallery_tells_what_its_columns_hold(client: TestClient) -> None:
    (facet,) = client.get("/api/facets").json()["facets"]
    assert (facet["name"], facet["type"]) == ("left", "text")
    assert {one["value"]: one["count"] for one in facet["values"]} == dict.fromkeys(
        ("red", "green", "blue", "yellow", "black"), 4
    )


def test_a_browser_is_asked_for_the_token_in_a_page(gallery: Any) -> None:
    from tapr.server.settings import Settings

    with client_of(gallery, Settings(token="secret-token")) as client:
        page = client.get("/", headers={"Accept": "text/html"})
        assert page.status_code == 401
        assert "This gallery needs a token" in page.text
        assert "not the token" not in page.text
        wrong = client.get("/?token=guess", headers={"Accept": "text/html"})
        assert "That is not the token" in wrong.text
        assert "guess" not in wrong.text
        assert client.get("/web/parts.css").status_code == 200
        assert client.get("/web/main.js").status_code == 401
        assert client.get("/", headers={"Accept": "application/json"}).json()["status"] == 401
        assert client.get("/api/gallery", headers={"Accept": "text/html"}).json()["status"] == 401
        assert client.get("/?token=secret-token", headers={"Accept": "text/html"}).status_code == 200
