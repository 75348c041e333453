"""Searches by words alone and by a picture alone: in Python, on the command line, over HTTP; captions of hits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import tapr
from tapr import EditSpec, Gallery
from tapr.encoders.base import Evidence
from tapr.encoders.fake import FakeEncoder
from tapr.explain.report import Panel, write_report
from tapr.server.app import create_app
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, write_flags
from tests.refusals import refused


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    """Its first picture has a caption, the others were not surely described."""
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p" / "red.png", FakeEncoder())

    def describe(evidence: Evidence) -> list[str]:
        return [f"a flag, number {i}" if i % 2 == 0 else "" for i in range(len(evidence))]

    gallery.sync([tmp_path / "p"], describe=describe)
    return gallery


def test_words_alone_are_ranked_by_the_target_alone(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, text="a green picture", k=3)
    assert ranking.hits[0].id == "green.png"
    assert ranking.reference is None
    assert ranking.searched == len(gallery)
    assert (ranking.spec, ranking.factorizer, ranking.reference_weight) == (
        EditSpec("a green picture"),
        "words alone",
        None,
    )
    block = gallery.gather(gallery.rows)
    cosines = block.global_vectors.astype(np.float64) @ gallery.encoder.encode_texts(["a green picture"])[0]
    best = [gallery.ids()[i] for i in np.argsort(-cosines, kind="stable")[:3]]
    assert [hit.id for hit in ranking.hits] == best
    assert [part.factor for part in ranking.hits[0].contributions] == ["target"]
    assert json.dumps(ranking.to_dict())


def test_a_spec_may_go_without_a_reference(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, spec=EditSpec("a red picture", ["red"], remove=["blue", "white"]), k=2)
    assert ranking.hits[0].id == "red.png"
    assert {part.factor for part in ranking.hits[0].contributions} == {"target", "add", "remove"}


def test_a_search_by_a_picture_alone_uses_only_its_vectors(gallery: Gallery) -> None:
    ranking = tapr.search(gallery, like="red-white-blue.png", k=3)
    assert "red-white-blue.png" not in [hit.id for hit in ranking.hits]
    assert (ranking.factorizer, ranking.reference_weight) == ("a picture alone", 1.0)
    for hit in ranking.hits:
        words = sum(part.value for part in hit.contributions if part.factor != "continuity")
        assert words == 0
    kept = tapr.search(gallery, like="red-white-blue.png", k=1, exclude_reference=False)
    assert kept.hits[0].id == "red-white-blue.png"
    whole = tapr.search(gallery, like="red-white-blue.png", reference_features="global", k=3)
    assert {part.text for part in whole.hits[0].contributions if part.value} == {"overall look"}


@pytest.mark.parametrize(
    ("asked", "code", "option"),
    [
        ({"text": "red", "like": "red.png"}, "conflicting_options", "like"),
        ({"text": "red", "reference": "red.png"}, "conflicting_options", "reference"),
        ({"text": "red", "edit": "x"}, "conflicting_options", "edit"),
        ({"text": "red", "reference_weight": 0.5}, "conflicting_options", "reference_weight"),
        ({"text": " "}, "bad_option", "text"),
        ({"text": 3}, "bad_option", "text"),
        ({"like": "red.png", "edit": "at night"}, "conflicting_options", "edit"),
        ({"like": "red.png", "weights": "1,1,1,1"}, "conflicting_options", "weights"),
        ({"like": "red.png", "method": "image"}, "conflicting_options", "method"),
        ({"like": "none.png"}, "unknown_picture", None),
        ({"edit": "at night"}, "missing_option", "reference"),
        ({}, "missing_option", "reference"),
        ({"spec": EditSpec("red"), "reference_weight": 0.5}, "missing_option", "reference_weight"),
        ({"spec": EditSpec("red"), "method": "image"}, "missing_option", "method"),
    ],
)
def test_what_does_not_go_together_is_said(
    gallery: Gallery, asked: dict[str, Any], code: str, option: str | None
) -> None:
    with refused(code, option=option):
        tapr.search(gallery, **asked)


def test_hits_carry_their_captions(gallery: Gallery) -> None:
    captions = {entry.id: entry.caption for entry in gallery.entries(range(len(gallery)))}
    assert {None, ""} < set(captions.values())
    ranking = tapr.search(gallery, text="red", k=100)
    for hit, row in zip(ranking.hits, ranking.to_dict()["hits"], strict=True):
        assert hit.caption == (captions[hit.id] or None) == row["caption"]
        assert hit.name == (hit.caption or hit.id)
    by_method = tapr.search(gallery, "red.png", "blue", method="image", k=100)
    assert {hit.id: hit.caption for hit in by_method.hits}.items() <= {
        hit.id: hit.caption for hit in ranking.hits
    }.items()


def test_the_command_line_searches_by_one_modality(gallery: Gallery, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    done = run("search", "-g", gallery.path, "--text", "a green picture", "-k", "3", "--explain", page)
    assert done.code == 0
    assert "words alone" in done.err
    assert "a green picture" in page.read_text()
    done = run(
        "search", "-g", gallery.path, "--like", "red-white-blue.png", "--where", "caption contains 'FLAG'", "--json"
    )
    assert done.code == 0
    hits = json.loads(done.out)["hits"]
    assert hits
    assert all(hit["caption"].startswith("a flag") for hit in hits)
    done = run("search", "-g", gallery.path, "--like", "red-white-blue.png", "-k", "20")
    assert "a flag, number 0" in done.out
    done = run("search", "-g", gallery.path, "red.png", "--text", "x")
    assert (done.code, len(done.err.splitlines())) == (2, 1)


def test_reports_name_pictures_by_their_captions(gallery: Gallery, tmp_path: Path) -> None:
    ranking = tapr.search(gallery, text="red", k=100)
    page = write_report(tmp_path / "out.html", [Panel(ranking, "red")])
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    panel = json.loads(found.group(1))["panels"][0]
    assert panel["reference"] is None
    assert [term["key"] for term in panel["terms"]] == [None]  # words alone have no place in a picture
    assert {hit["id"]: hit["name"] for hit in panel["hits"]} == {hit.id: hit.name for hit in ranking.hits}
    assert all(hit["heat"] == {} for hit in panel["hits"])


def test_the_server_searches_by_one_modality_and_names_by_captions(gallery: Gallery) -> None:
    app = create_app(gallery, factorizer="target-only")
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        words = client.post("/api/search", data={"text": "a green picture", "k": 3}).json()
        assert words["hits"][0]["id"] == "green.png"
        assert words["reference"] is None
        alike = client.post("/api/search", data={"like": "true", "reference_id": "red-white-blue.png", "k": 3}).json()
        direct = tapr.search(gallery, like="red-white-blue.png", k=3)
        assert [hit["id"] for hit in alike["hits"]] == [hit.id for hit in direct.hits]
        assert alike["reference_weight"] == 1
        for hit in [*words["hits"], *client.get("/api/gallery?limit=50").json()["pictures"]]:
            assert hit["name"] == (hit["caption"] or hit["id"])
        bad = client.post("/api/search", data={"text": "red", "reference_id": "red.png"})
        assert (bad.status_code, bad.json()["code"], bad.json()["option"]) == (400, "conflicting_options", "reference")
        bad = client.post("/api/search", data={"like": "true", "reference_id": "red.png", "edit": "blue"})
        assert (bad.status_code, bad.json()["code"], bad.json()["option"]) == (400, "conflicting_options", "edit")
        assert client.post("/api/search", data={"like": "true"}).status_code == 400
