"""The same question through library, command line, HTTP and client: the same answer, or the same refusal."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tapr
from tapr.errors import CODES, TaprError
from tapr.explain.marks import marked
from tapr.factorize.registry import load_factorizer
from tapr.gallery import Gallery
from tapr.options import PICTURE_LISTS, RankOptions, SearchOptions
from tapr.result import SearchResult
from tapr.server.questions import WAYS, RankRequest, SearchForm, SearchRequest
from tests.cli.terminal import run
from tests.server.conftest import served

httpx = pytest.importorskip("httpx", reason="the extra 'client' is not installed")
from tapr import client as api  # noqa: E402  (after the look for httpx)

SPEC = {"target": "blue", "add": ["blue"], "preserve": ["green"], "remove": ["red"]}
ASKED = {"reference": "red-green.png", "spec": SPEC}
FACTORIZER = "target-only"

QUESTIONS: list[dict[str, Any]] = [
    ASKED,
    {"reference": "red-green.png", "edit": "in blue"},
    {"text": "a blue picture"},
    {"text": "blue", "tau": 0.5, "where": "left = 'blue'", "k": 3},
    {"spec": SPEC, "weights": {"add": 2.0}},
    {"like": "red-green.png"},
    {"like": "red-green.png", "reference_features": "global", "exclude_reference": False},
    {"like": "red-green.png", "crop": [0, 0, 0.5, 1], "more_references": ["blue-black.png"]},
    {**ASKED, "k": 3, "offset": 2},
    {**ASKED, "k": 100, "threshold": 0.2},
    {**ASKED, "sort": "left desc"},
    {**ASKED, "sort": "id", "k": 5, "offset": 2},
    {**ASKED, "threshold": 9.0},
    {**ASKED, "offset": 1000},
    {**ASKED, "explain": False},
    {**ASKED, "weights": {"target": 1.0, "add": 2.0, "preserve": 0.25, "remove": 1.0}},
    {**ASKED, "weights": "1,2,0.25,1"},
    {**ASKED, "tau": 0.3},
    {**ASKED, "score": "paper"},
    {**ASKED, "score": "adaptive", "reference_features": "local"},
    {**ASKED, "reference_weight": 0.0},
    {**ASKED, "reference_weight": 0.8, "reference_features": "global"},
    {**ASKED, "where": "left = 'blue' and id != 'blue-red.png'"},
    {**ASKED, "where": "left = 'mauve'"},
    {**ASKED, "exclude_reference": False},
    {**ASKED, "near_duplicates": 0.98, "k": 30},
    {**ASKED, "crop": [0, 0, 0.5, 1], "more_references": ["yellow-black.png", "black-blue.png"]},
    {**ASKED, "method": "tapr"},
    {**ASKED, "more_like": ["blue-green.png", "blue-black.png"], "not_like": ["blue-red.png"]},
    {**ASKED, "more_like": ["blue-green.png"], "exclude_reference": False, "weights": {"preserve": 0}},
    {"text": "blue", "not_like": ["blue-red.png", "black-blue.png"]},
    {"like": "red-green.png", "more_like": ["blue-black.png"], "reference_features": "global"},
]

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_option", "reference"),
    ({"reference": "red-green.png"}, "missing_option", "edit"),
    ({"reference": "red-green.png", "edit": "  "}, "missing_option", "edit"),
    ({"edit": "in blue"}, "missing_option", "reference"),
    ({"reference": "red-green.png", "edit": "x" * 1001}, "bad_option", "edit"),
    ({**ASKED, "edit": "in blue"}, "conflicting_options", "spec"),
    ({"text": "blue", "reference": "red-green.png"}, "conflicting_options", "reference"),
    ({"text": "blue", "weights": "1,1,1,1"}, "conflicting_options", "weights"),
    ({"text": "blue", "score": "paper"}, "conflicting_options", "score"),
    ({"text": " "}, "bad_option", "text"),
    ({"like": "red-green.png", "edit": "in blue"}, "conflicting_options", "edit"),
    ({"like": "red-green.png", "reference_weight": 0.5}, "conflicting_options", "reference_weight"),
    ({"spec": SPEC, "crop": [0, 0, 1, 0.5]}, "missing_option", "crop"),
    ({"spec": SPEC, "score": "paper"}, "missing_option", "score"),
    ({**ASKED, "score": "paper", "reference_weight": 0.5}, "conflicting_options", "reference_weight"),
    ({**ASKED, "k": 0}, "bad_option", "k"),
    ({**ASKED, "offset": -1}, "bad_option", "offset"),
    ({**ASKED, "sort": "no such column"}, "bad_option", "sort"),
    ({**ASKED, "tau": 0}, "bad_option", "tau"),
    ({**ASKED, "tau": 1e300}, "bad_option", "tau"),
    ({**ASKED, "reference_weight": 1.5}, "bad_option", "reference_weight"),
    ({**ASKED, "near_duplicates": 0}, "bad_option", "near_duplicates"),
    ({**ASKED, "score": "guess"}, "bad_option", "score"),
    ({**ASKED, "reference_features": "eyes"}, "bad_option", "reference_features"),
    ({**ASKED, "crop": "0,0,1"}, "bad_option", "crop"),
    ({**ASKED, "crop": "0.5,0,0.5,1"}, "bad_option", "crop"),
    ({**ASKED, "weights": "1,2"}, "bad_spec", ""),
    ({**ASKED, "weights": "plus=1"}, "bad_spec", ""),
    ({**ASKED, "where": "left ="}, "bad_filter", ""),
    ({**ASKED, "prefilter": "all"}, "bad_option", "prefilter"),
    ({**ASKED, "prefilter": "exact"}, "no_prefilter", ""),
    ({**ASKED, "prefilter": 5, "method": "image"}, "conflicting_options", "prefilter"),
    ({**ASKED, "budget_ms": 0}, "bad_option", "budget_ms"),
    ({**ASKED, "budget_ms": 100.0}, "no_prefilter", ""),
    ({**ASKED, "method": "magic"}, "unknown_name", "method"),
    ({**ASKED, "more_references": ["red-blue.png"] * 3}, "bad_option", "more_references"),
    ({"reference": "nowhere.png", "spec": SPEC}, "unknown_picture", ""),
    ({**ASKED, "more_like": ["nowhere.png"]}, "unknown_picture", ""),
    ({**ASKED, "more_like": ["red-blue.png"] * 5}, "bad_option", "more_like"),
    ({**ASKED, "not_like": ["red-blue.png"], "more_like": ["red-blue.png"]}, "conflicting_options", "not_like"),
    ({**ASKED, "not_like": ["red-blue.png"], "score": "paper"}, "conflicting_options", "not_like"),
    ({**ASKED, "not_like": ["red-blue.png"], "method": "image"}, "conflicting_options", "not_like"),
    ({"more_like": ["red-blue.png"]}, "missing_option", "reference"),
    ({"reference": "red-green.png", "spec": {"target": " "}}, "bad_spec", ""),
]


@pytest.fixture(scope="module")
def address(gallery: Gallery) -> Iterator[str]:
    with served(gallery, load_factorizer(FACTORIZER, encoder=gallery.encoder)) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def summarised(gallery: Gallery, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """The same gallery with a first stage."""
    copy = tmp_path_factory.mktemp("summarised") / "gallery"
    shutil.copytree(gallery.path, copy)
    Gallery.add_first_stage(copy)
    return Gallery.open(copy, encoder=gallery.encoder)


def by_library(gallery: Gallery, asked: dict[str, Any]) -> dict[str, Any]:
    factorizer: dict[str, Any] = {"factorizer": FACTORIZER} if "edit" in asked and "spec" not in asked else {}
    return marked(tapr.search(gallery, **asked, **factorizer)).to_dict()


def on_the_wire(asked: dict[str, Any]) -> dict[str, Any]:
    """As HTTP names pictures: by their ids."""
    out = {name: value for name, value in asked.items() if name not in ("reference", "like", "more_references")}
    if "reference" in asked or "like" in asked:
        out["reference_id"] = asked.get("reference", asked.get("like"))
    if "like" in asked:
        out["like"] = True
    if "more_references" in asked:
        out["more_references"] = [{"reference_id": id_} for id_ in asked["more_references"]]
    return out


def by_http(address: str, asked: dict[str, Any]) -> Any:
    form = {
        name: json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)
        for name, value in on_the_wire(asked).items()
    }
    return httpx.post(f"{address}/api/search", files=[(name, (None, text.encode())) for name, text in form.items()])


def by_command(gallery: Gallery, folder: Path, asked: dict[str, Any]) -> Any:
    words: list[Any] = ["search", "-g", gallery.path, "--json"]
    for name, value in asked.items():
        option = f"--{name.replace('_', '-')}"
        if name == "spec":
            (folder / "spec.json").write_text(json.dumps(value))
            words += ["--spec", folder / "spec.json"]
        elif name in PICTURE_LISTS:
            words += [word for one in value for word in (option.removesuffix("s"), one)]
        elif name in ("explain", "exclude_reference"):
            words += [{"explain": "--no-parts", "exclude_reference": "--keep-reference"}[name]]
        elif name == "weights" and isinstance(value, dict):
            words += ["--weights", ",".join(f"{factor}={weight}" for factor, weight in value.items())]
        elif name == "crop" and isinstance(value, list):
            words += ["--crop", ",".join(map(str, value))]
        elif name == "k":
            words += ["-k", value]
        elif name not in ("reference", "edit"):
            words += [f"{option}={value}"]
    if "edit" in asked and "spec" not in asked:
        words += ["--factorizer", FACTORIZER]
    words += [
        "--",
        *([asked["reference"]] if "reference" in asked else []),
        *([asked["edit"]] if "edit" in asked else []),
    ]
    return run(*words)


def same(answer: dict[str, Any], *, found: bool = True) -> dict[str, Any]:
    """What every face must answer alike: all but the time it took, and the paths that a server does not tell."""
    hits = [
        {
            **hit,
            "path": "",
            "contributions": [{**part, "found": part["found"] if found else None} for part in hit["contributions"]],
        }
        for hit in answer["hits"]
    ]
    return {**answer, "hits": hits, "seconds": None}


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_every_face_gives_the_same_answer(
    gallery: Gallery, address: str, tmp_path: Path, asked: dict[str, Any]
) -> None:
    wanted = by_library(gallery, asked)
    reply = by_http(address, asked)
    assert reply.status_code == 200, reply.text
    assert same(reply.json()) == same(wanted)
    as_json = httpx.post(f"{address}/api/search", json=on_the_wire(asked))
    assert as_json.status_code == 200, as_json.text
    assert same(as_json.json()) == same(wanted)
    done = by_command(gallery, tmp_path, asked)
    assert done.code == 0, done.err
    assert same(json.loads(done.out), found=False) == same(wanted, found=False)
    with api.Client(address) as client:
        told = on_the_wire(asked)
        answers = [client.search(**told)]
        if not {"edit", "text"} & set(asked):
            told.pop("like", None)
            answers.append(client.rank(told.pop("spec", None), **told))
    for answer in answers:
        assert isinstance(answer, SearchResult)
        assert same(answer.to_dict()) == same(wanted)


def test_every_face_answers_by_a_first_stage(summarised: Gallery, tmp_path: Path) -> None:
    """Proofs and all: also of filtered pictures, and of a search that ends before it is proven."""
    questions: list[dict[str, Any]] = [
        {**ASKED, "prefilter": "exact"},
        {**ASKED, "prefilter": 3, "k": 3},
        {"text": "blue", "where": "left = 'blue'", "prefilter": "exact"},
        {"like": "red-green.png", "budget_ms": 60_000.0},
    ]
    factorizer = load_factorizer(FACTORIZER, encoder=summarised.encoder)
    with served(summarised, factorizer) as server:
        for asked in questions:
            wanted = by_library(summarised, asked)
            assert wanted["prefilter"]["proven"] == (asked.get("prefilter") != 3)
            reply = by_http(f"http://127.0.0.1:{server.port}", asked)
            assert reply.status_code == 200, reply.text
            assert same(reply.json()) == same(wanted)
            done = by_command(summarised, tmp_path, asked)
            assert same(json.loads(done.out), found=False) == same(wanted, found=False)
            with api.Client(f"http://127.0.0.1:{server.port}") as client:
                assert same(client.search(**on_the_wire(asked)).to_dict()) == same(wanted)


@pytest.mark.parametrize(("asked", "code", "option"), REFUSED, ids=str)
def test_every_face_refuses_alike(
    gallery: Gallery, address: str, tmp_path: Path, asked: dict[str, Any], code: str, option: str
) -> None:
    assert code in CODES
    with pytest.raises(TaprError) as by_python:
        by_library(gallery, asked)
    assert (by_python.value.code, getattr(by_python.value, "option", "")) == (code, option)
    reply = by_http(address, asked)
    problem = reply.json()
    assert 400 <= reply.status_code < 500
    assert (problem["code"], problem.get("option", "")) == (code, option), problem["detail"]
    as_json = httpx.post(f"{address}/api/search", json=on_the_wire(asked))
    refused = as_json.json()
    assert (as_json.status_code // 100, refused["code"], refused.get("option", "")) == (4, code, option)
    with api.Client(address) as client, pytest.raises(api.ApiError) as by_client:
        client.search(**on_the_wire(asked))
    assert (by_client.value.code, by_client.value.option) == (code, option)
    assert str(by_client.value) == problem["detail"]
    done = by_command(gallery, tmp_path, asked)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_every_face_has_every_option() -> None:
    options = set(SearchOptions.model_fields)
    python = inspect.signature(tapr.search).parameters
    assert set(python) == options | {"gallery", "kernel"}
    assert {python[name].default for name in options} <= {None, 10, 0, True, (), "tapr"}
    for name, one in python.items():
        if one.default not in (None, inspect.Parameter.empty):
            assert one.default == SearchOptions.model_fields[name].default
    from tapr.cli.search import search

    command = {one.name for one in search.params}
    assert options - command == {"spec"}, "it is read from a file: spec_path"
    assert set(SearchForm.model_fields) == set(SearchRequest.model_fields) == options - {"factorizer"} | set(WAYS)
    assert set(RankRequest.model_fields) == set(RankOptions.model_fields) | {*WAYS, *PICTURE_LISTS}
    for name in options - {"reference", "edit", "factorizer"}:
        assert f"{name}: " in str(api.Client.search.__doc__)


def test_the_page_is_told_of_every_option(address: str) -> None:
    told = httpx.get(f"{address}/api/gallery").json()["options"]
    assert set(told) == set(SearchOptions.model_fields)
    assert (told["k"]["default"], told["k"]["minimum"]) == (10, 1)
    weight = next(one for one in told["reference_weight"]["anyOf"] if one["type"] == "number")
    assert (weight["minimum"], weight["maximum"]) == (0, 1)
    assert all(one["description"] for one in told.values())


def test_unknown_options_are_refused_not_passed_over(address: str) -> None:
    with api.Client(address) as client:
        for name in ("kk", "first_stage", "keep_reference"):
            unknown: dict[str, Any] = {name: 1}
            with pytest.raises(api.BadRequest) as caught:
                client.search(text="blue", **unknown)
            assert (caught.value.code, caught.value.option) == ("bad_option", name)


def test_the_weights_of_an_answer_can_be_sent_back_as_they_are(gallery: Gallery, address: str, tmp_path: Path) -> None:
    """One shape everywhere: an object with the four factors; where there is only text, as JSON."""
    first = httpx.post(f"{address}/api/search", json={**on_the_wire(ASKED), "weights": "1,2,0.25,1"}).json()
    assert first["weights"] == {"target": 1.0, "add": 2.0, "preserve": 0.25, "remove": 1.0}
    again = {**ASKED, "weights": first["weights"]}
    assert httpx.get(f"{address}/api/gallery").json()["weights"].keys() == first["weights"].keys()
    answers = [by_http(address, again).json(), json.loads(by_command(gallery, tmp_path, again).out)]
    answers += [httpx.post(f"{address}/api/{way}", json=on_the_wire(again)).json() for way in ("search", "rank")]
    told = {**again, "spec": {**SPEC, "weights": first["weights"]}}
    told.pop("weights")
    answers.append(by_library(gallery, told))
    for answer in answers:
        assert answer["weights"] == first["weights"]
        assert [hit["score"] for hit in answer["hits"]] == [hit["score"] for hit in first["hits"]]
