"""Pictures, thumbnails and heat maps, also of pictures with names that break careless programs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import tapr
from tapr.encoders.fake import FakeEncoder
from tapr.explain.heatmap import combined, heat_of, render_signed
from tapr.gallery import Gallery
from tests.pictures import flag, png
from tests.server.conftest import HOSTILE_IDS, client_of

SPEC = json.dumps({"target": "blue", "add": ["blue"], "remove": ["red"]})


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("number", range(len(HOSTILE_IDS)))
def test_every_id_is_served_as_its_own_picture(client: TestClient, number: int) -> None:
    id_ = HOSTILE_IDS[number]
    reply = client.get("/api/images", params={"id": id_})
    assert reply.status_code == 200
    assert opened(reply.content).size == (40 + number, 40)
    assert "set-cookie" not in reply.headers
    # no client sends ".." as a path, and this one decodes percent signs twice: test_page.py asks over a socket
    if id_ != ".." and "%" not in id_:
        assert client.get("/api/images/" + quote(id_, safe="")).content == reply.content


def test_hostile_names_are_ranked_like_others(client: TestClient) -> None:
    for id_ in HOSTILE_IDS:
        body = {"spec": {"target": "purple"}, "reference_id": id_, "k": 200}
        ids = [hit["id"] for hit in client.post("/api/rank", json=body).json()["hits"]]
        assert set(HOSTILE_IDS) - {id_} <= set(ids)
        assert id_ not in ids


def test_a_thumbnail_is_small_and_kept_by_the_browser(client: TestClient) -> None:
    first = client.get("/api/images/red-blue.png", params={"size": 16})
    assert max(opened(first.content).size) == 16
    assert "max-age" in first.headers["cache-control"]
    again = client.get(
        "/api/images/red-blue.png", params={"size": 16}, headers={"If-None-Match": first.headers["etag"]}
    )
    assert again.status_code == 304
    assert again.content == b""
    other = client.get("/api/images/red-blue.png", params={"size": 32})
    assert other.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../bank/catalog.sqlite", "bank/manifest.json", "", "%2e%2e/x", "a\0b"]
)
def test_only_ids_of_the_catalogue_are_read(client: TestClient, path: str) -> None:
    for reply in (client.get("/api/images", params={"id": path}), client.get("/web/" + quote(path, safe=""))):
        assert reply.status_code == 404
        assert reply.headers["content-type"] == "application/problem+json"


def test_what_browsers_cannot_read_is_sent_as_png_and_what_is_no_picture_not_at_all(tmp_path: Path) -> None:
    flag("red", "blue").save(tmp_path / "a.tiff")
    flag("red", "green").save(tmp_path / "b.png")
    flag("blue", "green").save(tmp_path / "c.png")
    with client_of(Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder())) as client:
        (tmp_path / "b.png").write_text("<script>alert(1)</script>")
        (tmp_path / "c.png").unlink()
        tiff = client.get("/api/images/a.tiff")
        assert tiff.headers["content-type"] == "image/png"
        assert opened(tiff.content).size == (48, 48)
        swapped = client.get("/api/images/b.png")
        assert swapped.status_code == 404
        assert "not a picture" in swapped.json()["detail"]
        gone = client.get("/api/images/c.png", params={"size": 64})
        assert gone.status_code == 404
        assert "no such file" in gone.json()["detail"]
        assert str(tmp_path) not in gone.text


ASKED: dict[str, Any] = {"spec": json.loads(SPEC), "reference_id": "red-green.png"}


def heat(
    client: TestClient, question: dict[str, Any] | None = None, **parameters: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    whole = json.dumps({**ASKED, **(question or {})})
    reply = client.get("/api/heatmap", params={"question": whole, "size": "48", **parameters})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "image/png"
    return np.asarray(opened(reply.content))


def test_heat_lies_where_the_atom_is(client: TestClient) -> None:
    alpha = heat(client, id="blue-black.png", term="add:0", overlay="true")[..., 3]  # (height, width)
    assert alpha.shape == (32, 48)
    assert alpha[:, 8:16].mean() > 10 * alpha[:, 32:40].mean()


def test_heat_is_also_laid_over_the_picture_and_over_the_reference(client: TestClient) -> None:
    assert heat(client, id="blue-black.png").shape == (32, 48, 3)
    over_reference = heat(client, term="remove:0", overlay="true")[..., 3]
    assert over_reference[:, 8:16].mean() > over_reference[:, 32:40].mean()
    sharp = heat(client, id="blue-black.png", overlay="true", size="96")
    assert sharp.shape == (64, 96, 4)  # larger than the picture


def test_the_reference_has_no_outline_of_what_it_is_to_get(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapr.server.heat.words_of", lambda *_: [["found"]])  # even where its words seem to fit

    def outlined(factor: str, **parameters: str) -> bool:
        question = {"spec": {"target": "a flag", factor: ["red"]}}
        pixels = heat(client, question, term=f"{factor}:0", overlay="true", size="256", **parameters)
        return bool((pixels == 255).all(axis=2).any())  # of a line that is white

    assert outlined("add", id="red-black.png")
    assert outlined("preserve")
    assert not outlined("add")


def colours(overlay: Any) -> set[tuple[int, ...]]:
    """Those of the middle, where the encoder looks and no line is drawn."""
    middle = overlay[:, overlay.shape[1] // 2 - 3 : overlay.shape[1] // 2 + 3].reshape(-1, 4)
    return {tuple(pixel[:3].tolist()) for pixel in middle if 40 < pixel[3] < 255}


def test_what_stays_of_the_reference_has_a_map_whatever_an_atom_is_called(client: TestClient) -> None:
    shown = {"id": "red-black.png", "overlay": "true"}
    parts = heat(client, {"reference_weight": 0.5}, term="reference:0:local", **shown)
    assert parts[..., 3].any()
    question = {"spec": {"target": "blue", "add": ["details"]}, "reference_weight": 0.5}
    np.testing.assert_array_equal(heat(client, question, term="reference:0:local", **shown), parts)
    atom = heat(client, question, term="add:0", **shown)
    assert colours(parts)
    assert not colours(atom) & colours(parts), "each in the colour of its factor"


def test_all_together_weighs_the_reference_as_the_ranking_did(client: TestClient) -> None:
    words, both = (
        heat(client, {"reference_weight": reference_weight}, id="red-blue.png", overlay="true")
        for reference_weight in (0, 0.5)
    )
    question = {"reference_weight": 0.5, "reference_features": "local"}
    local = heat(client, question, id="red-blue.png", overlay="true")
    assert not np.array_equal(words, both)
    assert not np.array_equal(both, local)


def test_a_map_has_the_tau_and_the_weights_of_its_ranking(client: TestClient, gallery: Gallery) -> None:
    """The map of all together is that of the query which ranked, whatever its tau."""
    position = gallery.position_of("blue-black.png")
    maps = []
    for tau in (0.02, 0.5):
        weights = {"target": 1.0, "add": 2.0, "preserve": 0.5, "remove": 1.0}
        ranking = tapr.search(gallery, "red-green.png", spec=json.loads(SPEC), tau=tau, weights=weights, score="paper")
        heats = heat_of(ranking.query, gallery, position)
        wanted = np.asarray(render_signed(combined(heats), (48, 32), gallery.card))
        question = {"tau": tau, "weights": weights, "score": "paper"}
        maps.append(heat(client, question, id="blue-black.png", overlay="true"))
        np.testing.assert_array_equal(maps[-1], wanted)
    assert not np.array_equal(maps[0], maps[1])


@pytest.mark.parametrize(
    ("question", "fields", "status", "code", "named"),
    [
        ({}, {"term": "add:7"}, 400, "bad_option", "'add:7'"),
        ({}, {"term": "target"}, 400, "bad_option", "'target'"),
        ({}, {"id": "nowhere"}, 404, "unknown_picture", "nowhere"),
        ({}, {"number": "2"}, 400, "bad_input", "2"),
        ({}, {"size": "100000"}, 422, "bad_option", "size"),
        ({}, {"stay": "0.5"}, 422, "bad_option", "stay"),
        ({}, {"question": "{"}, 400, "bad_input", ""),
        ({"spec": []}, {}, 400, "bad_option", "spec"),
        ({"tau": 0}, {}, 422, "bad_option", "tau"),
        ({"reference_weight": 2}, {}, 422, "bad_option", "reference_weight"),
        ({"spec": None, "edit": "in blue"}, {}, 400, "bad_option", "spec"),
        ({"where": "path = 'x'"}, {}, 400, "bad_filter", "path"),
        (
            {"spec": {"target": "a flag"}, "reference_features": "global"}, {"id": "red-blue.png"},
            400, "bad_option", "no term",
        ),
    ],
)  # fmt: skip
def test_a_heat_map_that_cannot_be(
    client: TestClient, question: dict[str, Any], fields: dict[str, str], status: int, code: str, named: str
) -> None:
    whole = json.dumps({**ASKED, **question})
    reply = client.get("/api/heatmap", params={"question": whole, **fields})
    assert (reply.status_code, reply.json()["code"]) == (status, code), reply.text
    assert named in reply.json()["detail"]


def test_the_question_of_an_answer_explains_it(client: TestClient) -> None:
    """Whatever was asked, every term that reads local vectors has a map, and the others are refused."""
    for question in (
        {"text": "blue"}, {"reference_id": "red-green.png", "like": True},
        {**ASKED, "more_like": ["blue-green.png"], "not_like": [{"reference_id": "blue-red.png"}]},
        {**ASKED, "crop": [0, 0, 0.5, 1], "more_references": [{"reference_id": "blue-black.png"}]},
    ):  # fmt: skip
        answer = client.post("/api/search", json=question).json()
        hit = answer["hits"][0]
        assert len({part["id"] for part in hit["contributions"]}) == len(hit["contributions"])
        for part in hit["contributions"]:
            asked = {"question": json.dumps(question), "term": part["id"], "id": hit["id"], "size": "32"}
            reply = client.get("/api/heatmap", params=asked)
            assert reply.status_code == (200 if part["reads"] == "local" else 400), part


def test_an_uploaded_reference_can_be_seen_again(client: TestClient) -> None:
    key = client.post(
        "/api/references", files={"reference": ("x.png", png(flag("red", "blue", size=(600, 300))))}
    ).json()["key"]
    assert opened(client.get(f"/api/references/{key}", params={"size": 100}).content).size == (100, 50)
    assert client.get("/api/references/unknown").status_code == 404


def test_an_index_run_is_seen_without_a_restart(tmp_path: Path) -> None:
    flag("red", "blue").save(tmp_path / "a.png")
    gallery = Gallery.build(tmp_path / "bank", tmp_path, FakeEncoder())
    with client_of(gallery) as client:
        assert client.get("/api/gallery").json()["count"] == 1
        flag("red", "green").save(tmp_path / "b.png")
        Gallery.open(tmp_path / "bank", encoder=FakeEncoder()).sync()
        assert client.get("/api/gallery").json()["count"] == 2
        body = {"spec": {"target": "green"}, "reference_id": "b.png"}
        assert [hit["id"] for hit in client.post("/api/rank", json=body).json()["hits"]] == ["a.png"]


def test_a_cell_that_is_no_number_does_not_break_the_gallery_s_page(tmp_path: Path) -> None:
    flag("red", "blue").save(tmp_path / "a.png")
    flag("red", "green").save(tmp_path / "b.png")
    (tmp_path / "t.csv").write_text("path,price\na.png,nan\nb.png,12\n")
    gallery = Gallery.build(tmp_path / "bank", tmp_path / "t.csv", FakeEncoder())
    with client_of(gallery) as client:
        page = client.get("/api/gallery", params={"limit": 10})
        assert page.status_code == 200
        assert [picture["metadata"] for picture in page.json()["pictures"]] == [{}, {"price": 12}]
        assert client.get("/api/gallery", params={"where": "price < 80"}).json()["count"] == 1


def test_a_client_that_accepts_bytes_alone_gets_bytes(client: TestClient) -> None:
    plain = client.get("/api/images/red-blue.png")
    asked = client.get("/api/images/red-blue.png", headers={"Accept": "application/octet-stream"})
    assert asked.headers["content-type"] == "application/octet-stream"
    assert plain.headers["content-type"] == "image/png"
    assert asked.content == plain.content
