"""The API as a client sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

import tapr
from tapr.gallery import Gallery
from tapr.query.factors import FACTORS

SPEC = {"target": "blue", "add": ["blue"], "preserve": ["green"], "remove": ["red"]}


def rank(client: TestClient, **fields: Any) -> Any:
    return client.post("/api/rank", json={"spec": SPEC, "reference_id": "red-green.png", **fields})


def test_an_upload_and_an_edit_are_answered_with_pictures_and_reasons(client: TestClient, red_file: bytes) -> None:
    reply = client.post(
        "/api/search", data={"edit": "in blue, no yellow", "k": 5}, files={"reference": ("r.png", red_file)}
    )
    body = reply.json()
    assert reply.status_code == 200
    assert [hit["rank"] for hit in body["hits"]] == [1, 2, 3, 4, 5]
    assert "blue" in body["hits"][0]["id"]
    assert body["spec"]["add"] == ["blue"]
    assert body["spec"]["remove"] == ["yellow"]
    assert (body["factorizer"], body["encoder"], body["searched"]) == ("colours", "fake", 30)
    for hit in body["hits"]:
        assert sum(part["value"] for part in hit["contributions"]) == pytest.approx(hit["score"])
        assert hit["path"] == "", "where files lie on the server is not told"


def test_the_key_of_an_upload_ranks_again_without_the_picture(client: TestClient, red_file: bytes) -> None:
    data = {"spec": json.dumps(SPEC)}
    first = client.post("/api/search", data=data, files={"reference": ("r.png", red_file)}).json()
    second = rank(client, reference_id=None, reference_key=first["reference"]["key"]).json()
    assert [hit["id"] for hit in second["hits"]] == [hit["id"] for hit in first["hits"]]
    assert second["factorizer"] == "given"


def test_a_gallery_picture_is_a_reference_and_is_left_out(client: TestClient) -> None:
    ids = [hit["id"] for hit in rank(client, k=200).json()["hits"]]
    assert len(ids) == 29
    assert "red-green.png" not in ids
    kept = [hit["id"] for hit in rank(client, k=200, exclude_reference=False).json()["hits"]]
    assert "red-green.png" in kept


def test_the_server_ranks_as_the_library_does(client: TestClient, gallery: Gallery) -> None:
    body = rank(client, k=10, weights={"target": 1, "add": 2, "preserve": 0.1, "remove": 1}).json()
    spec = tapr.EditSpec.from_dict(SPEC)
    direct = tapr.search(gallery, "red-green.png", spec=spec, k=10, weights=tapr.Weights(1, 2, 0.1, 1))
    assert [hit["id"] for hit in body["hits"]] == [hit.id for hit in direct.hits]
    # the server takes a gallery picture's evidence from the bank, which holds it in fp16
    assert [hit["score"] for hit in body["hits"]] == pytest.approx([hit.score for hit in direct.hits], abs=1e-5)


def test_weights_and_filters_are_obeyed(client: TestClient) -> None:
    only_left_blue = rank(client, where="left = 'blue'").json()
    assert {hit["metadata"]["left"] for hit in only_left_blue["hits"]} == {"blue"}
    assert only_left_blue["searched"] == 4
    none = rank(client, where="left = 'mauve'").json()
    assert none["hits"] == []
    off = rank(client, weights={"target": 0, "add": 0, "preserve": 0, "remove": 1}, reference_weight=0).json()
    assert all(not part["value"] for part in off["hits"][0]["contributions"] if part["factor"] != "remove")


def test_a_ranking_says_how_much_of_the_reference_stayed_and_why(client: TestClient) -> None:
    by_rule = rank(client, score="adaptive").json()
    assert 0 <= by_rule["reference_weight"] <= 1
    (note,) = by_rule["reference_weight_notes"]
    assert "the words fit about" in note
    assert note in by_rule["notes"]
    by_spec = rank(client, spec={**SPEC, "continuity": 0}).json()
    assert (by_spec["reference_weight"], by_spec["reference_weight_notes"]) == (
        0,
        ["nothing of the reference stays: the words decide alone"],
    )
    by_person = rank(client, spec={**SPEC, "continuity": 0}, reference_weight=0.75).json()
    assert (by_person["reference_weight"], by_person["reference_weight_notes"]) == (0.75, [])
    by_paper = rank(client, score="paper").json()
    assert by_paper["reference_weight"] is None
    fields = {"reference_id": "red-green.png", "spec": json.dumps(SPEC), "reference_weight": "0.75"}
    assert client.post("/api/search", data=fields).json()["reference_weight"] == 0.75


def test_every_contribution_says_whether_it_has_a_place(client: TestClient) -> None:
    parts = rank(client).json()["hits"][0]["contributions"]
    reads = {(part["factor"], part["text"]): part["reads"] for part in parts}
    assert reads["target", "blue"] == "global"
    assert reads["add", "blue"] == "local"
    assert reads["continuity", "overall look"] == "global"
    assert reads["continuity", "details"] == "local"


def test_factorize_gives_the_spec_alone(client: TestClient) -> None:
    reply = client.post("/api/factorize", data={"edit": "green", "reference_id": "red-blue.png"}).json()
    assert reply["spec"]["add"] == ["green"]
    assert reply["factorizer"] == "colours"
    assert (reply["caption"], reply["operations"]) == (None, [])
    assert reply["reference"]["id"] == "red-blue.png"


def test_the_gallery_says_what_it_is_and_lists_its_pictures(client: TestClient) -> None:
    facts = client.get("/api/gallery").json()
    assert (facts["count"], facts["encoder"], facts["factorizer"]) == (30, "fake", "colours")
    assert facts["kernel"]
    assert facts["pictures"] == []
    assert [row["name"] for row in facts["factors"]] == [row.name for row in FACTORS]
    continuity = next(row for row in facts["factors"] if not row["from_words"])
    assert (continuity["name"], continuity["sign"], continuity["weight"]) == ("continuity", 1, None)
    assert continuity["colour"] == "#7c4db2"
    page = client.get("/api/gallery", params={"offset": 28, "limit": 10}).json()
    assert len(page["pictures"]) == 2
    assert "left" in page["metadata_keys"]
    assert page["column_types"]["left"] == "text"


WRONG: list[tuple[dict[str, Any], int, str, str]] = [
    ({"spec": {"add": ["blue"]}}, 400, "bad_spec", "target"),
    ({"spec": {"target": " "}}, 400, "bad_spec", "target"),
    ({"spec": {"target": "x", "add": ["blue", "Blue"]}}, 400, "bad_spec", "Blue"),
    ({"spec": {"target": "x", "add": ["blue"], "atom_weights": {"red": 2}}}, 400, "bad_spec", "red"),
    ({"reference_id": None, "spec": None}, 400, "missing_option", "reference"),
    ({"reference_key": "0" * 64}, 400, "conflicting_options", "reference_key"),
    ({"reference_id": None, "reference_key": "0" * 64}, 404, "unknown_reference", "000"),
    ({"reference_id": "nowhere.png"}, 404, "unknown_picture", "'nowhere.png'"),
    ({"k": 0}, 422, "bad_option", "k"),
    ({"offset": -1}, 422, "bad_option", "offset"),
    ({"tau": 1e-39}, 422, "bad_option", "tau"),
    ({"tau": 1e300}, 422, "bad_option", "tau"),
    ({"where": f"width < {'9' * 5000}"}, 400, "bad_filter", "too large"),
    ({"weights": {"target": 0, "add": 0, "preserve": 0, "remove": 0}}, 400, "bad_spec", "weights"),
    ({"weights": {"target": -1}}, 400, "bad_spec", "target"),
    ({"where": "left ="}, 400, "bad_filter", "left ="),
    ({"where": "1; DROP TABLE images"}, 400, "bad_filter", ""),
    ({"where": "lefd = 'red'"}, 400, "bad_filter", "did you mean left?"),
    ({"where": "left = 3"}, 400, "bad_filter", "left"),
    ({"tau": 0}, 422, "bad_option", "tau"),
    ({"reference_weight": 1.5}, 422, "bad_option", "reference_weight"),
    ({"reference_weight": 0.5, "score": "paper"}, 400, "conflicting_options", "reference_weight"),
    ({"score": "guess"}, 422, "bad_option", "score"),
    ({"unknown": 1}, 422, "bad_option", "unknown"),
    ({"prefilter": "exact"}, 400, "no_prefilter", "tapr first-stage"),
    ({"method": "image"}, 400, "unknown_name", "image"),
]


@pytest.mark.parametrize(("fields", "status", "code", "named"), WRONG)
def test_a_mistake_is_answered_with_one_sentence(
    client: TestClient, fields: dict[str, Any], status: int, code: str, named: str
) -> None:
    reply = rank(client, **fields)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert named in problem["detail"]
    assert problem["status"] == status


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"edit": "blue", "spec": json.dumps(SPEC)}, "conflicting_options"),
        ({}, "missing_option"),
        ({"edit": "x" * 1001}, "bad_option"),
        ({"edit": "blue", "method": "cirevl"}, "unknown_name"),
        ({"edit": "blue", "method": "image"}, "unknown_name"),
        ({"edit": "blue", "tau": "-5"}, "bad_option"),
        ({"edit": "blue", "taux": "5"}, "bad_option"),
        ({"spec": "{"}, "bad_option"),
        ({"edit": "blue", "weights": "1,2"}, "bad_spec"),
    ],
)
def test_a_mistake_in_a_form_has_a_code(client: TestClient, fields: dict[str, str], code: str) -> None:
    reply = client.post("/api/search", data={"reference_id": "red-blue.png", **fields})
    assert reply.status_code in (400, 422)
    assert reply.json()["code"] == code


def test_unknown_places_and_methods_are_problems_too(client: TestClient) -> None:
    assert client.get("/api/nothing").json()["detail"] == "there is nothing at /api/nothing"
    assert client.get("/api/rank").status_code == 405


def test_health_readiness_and_metrics(client: TestClient) -> None:
    assert client.get("/healthz").text == "ok\n"
    assert client.get("/readyz").text == "ready\n"
    rank(client)
    text = client.get("/metrics").text
    assert 'tapr_requests_total{method="POST",route="/api/rank",status="200",gallery="bank"}' in text
    assert 'tapr_requests_total{method="GET",route="/readyz",status="200"}' in text
    assert 'tapr_pictures{gallery="bank"} 30' in text
