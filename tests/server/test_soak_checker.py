"""The soak's checker accepts a right answer and finds every kind of wrong one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from benchmarks.soak import Checker, Shared
from starlette.testclient import TestClient

from tapr.encoders.caching import CachingEncoder
from tapr.encoders.fake import FakeEncoder
from tapr.gallery import Gallery

ASKED = {"kind": "rank", "k": 10, "offset": 3}


@pytest.fixture(scope="module")
def checker(gallery: Gallery) -> Checker:
    shared = Shared(until=0)
    number = gallery.manifest.snapshot or 0
    entry = gallery.find("red-green.png")
    assert entry is not None
    with open(entry.path, "rb") as file:
        shared.versions[entry.sha256] = file.read()
    shared.snapshots[number], shared.newest = gallery, number
    return Checker(shared, CachingEncoder(FakeEncoder(), together=1))


@pytest.fixture
def answer(client: TestClient) -> dict[str, Any]:
    spec = {"target": "blue", "add": ["blue"], "remove": ["red"]}
    body = {"spec": spec, "reference_id": "red-green.png", "k": 10, "offset": 3}
    found: dict[str, Any] = client.post("/api/rank", json=body).json()
    return found


def test_a_right_answer(checker: Checker, answer: dict[str, Any]) -> None:
    checker._check(ASKED, answer)


def _swap(answer: dict[str, Any]) -> None:
    answer["hits"][0]["id"], answer["hits"][9]["id"] = answer["hits"][9]["id"], answer["hits"][0]["id"]


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a score": lambda answer: answer["hits"][4].update(score=answer["hits"][4]["score"] + 0.01),
    "two pictures changed places": _swap,
    "a picture that is not there": lambda answer: answer["hits"][0].update(id="gone.png"),
    "one too few": lambda answer: answer["hits"].pop(),
    "the reference itself": lambda answer: answer["hits"][0].update(id="red-green.png"),
    "a number of pictures": lambda answer: answer.update(searched=28),
    "another snapshot": lambda answer: answer.update(snapshot=-1),
    "other weights": lambda answer: answer["weights"].update(remove=3.0),
    "ranks": lambda answer: answer["hits"][0].update(rank=1),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_one(checker: Checker, answer: dict[str, Any], kind: str) -> None:
    wrong = copy.deepcopy(answer)
    WRONG[kind](wrong)
    with pytest.raises((AssertionError, LookupError)):
        checker._check(ASKED, wrong)
