"""The description of the API: complete enough for client generators, and true."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tapr.gallery import Gallery
from tapr.result import ReferenceInfo, SearchResult
from tapr.server import schemas
from tapr.server.export_api import ExportRequest
from tapr.server.facet_api import FacetsModel
from tapr.server.incoming import PutRequest
from tapr.server.questions import FactorizeRequest, RankRequest, SearchRequest, SentReference
from tapr.server.saved_api import SaveRequest
from tapr.server.schemas import FactorizationModel, Galleries, SavedSearch, SavedSearches
from tapr.server.settings import Settings
from tapr.store.write_operations import WriteResult
from tests.server.conftest import client_of
from tests.server.test_writing import small_gallery

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")


@pytest.fixture(scope="session")
def api(client: TestClient) -> Any:
    return _started(client)


def _started(client: TestClient) -> Any:
    async def already_started(scope: Any, receive: Any, send: Any) -> None:
        """Every request of schemathesis would start and stop the application; the fixture has started it."""
        if scope["type"] == "http":
            return await client.app(scope, receive, send)
        for done in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{done}.complete"})
        return None

    return schemathesis.openapi.from_asgi("/openapi.json", already_started)


@pytest.mark.parametrize("modes", ["positive", "negative"])
def test_whatever_is_asked_the_answer_is_as_described(api: Any, modes: str) -> None:
    """No 5xx, and every status, content type and body as the description says."""
    _ask_all(api, modes, lambda path: not path.startswith("/api/galleries/{"))  # those are the same routes


def _ask_all(api: Any, modes: str, wanted: Callable[[str], bool]) -> None:
    mode, count = schemathesis.GenerationMode(modes), 0
    for result in api.get_all_operations():
        asked = result.ok().definition.raw
        if not wanted(result.ok().path):
            continue
        if modes == "negative" and not asked.get("parameters") and not asked.get("requestBody"):
            continue  # nothing can be asked wrongly
        if modes == "negative":  # schemathesis fails on wrong forms with files: "Unsupported type: 'Binary'"
            _leave_out_forms(result.ok())

        @given(case=result.ok().as_strategy(generation_mode=mode))
        @settings(
            max_examples=20, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        def ask(case: Any) -> None:
            case.call_and_validate(excluded_checks=_beside_the_point())
            _name_what_exists(case)
            case.call_and_validate(excluded_checks=_beside_the_point())

        # where every text is an id, nothing can be asked wrongly either
        with suppress(Unsatisfiable) if modes == "negative" else nullcontext():
            ask()
            count += 1
    assert count > 3


def _leave_out_forms(operation: Any) -> None:
    """What is asked as a form can be asked as JSON too."""
    bodies = operation.body.items
    others = [one for one in bodies if one.media_type != "multipart/form-data"]
    bodies[:] = others or bodies


def test_whatever_is_written_the_answer_is_as_described(tmp_path: Path) -> None:
    with client_of(small_gallery(tmp_path), Settings(allow_write=True, names=("testserver",))) as client:
        _ask_all(_started(client), "positive", lambda path: path.startswith("/api/images"))


def _name_what_exists(case: Any) -> None:
    """Made-up ids end at 404: the same again with pictures that the gallery has."""
    for fields in (case.query, case.body):
        if isinstance(fields, dict):
            fields.pop("reference", None)
            fields.pop("reference_key", None)
            fields["reference_id"] = "red-blue.png"
            if "id" in fields:
                fields["id"] = "green-blue.png"
            if isinstance(fields.get("spec"), str):
                fields |= {"spec": '{"target": "red", "add": ["blue"]}', "atom": "blue"}
    if isinstance(case.path_parameters, dict) and "id" in case.path_parameters:
        case.path_parameters["id"] = "green-blue.png"


def _beside_the_point() -> list[Any]:
    """A rule that no schema can say is answered with 400; and a 405 is the framework's own."""
    names = ("positive_data_acceptance", "negative_data_rejection", "unsupported_method")
    return [schemathesis.checks.CHECKS.get_one(name) for name in names]


def test_every_operation_has_a_name_and_its_errors(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    plain = {
        "/api/search", "/api/factorize", "/api/references", "/api/rank", "/api/gallery", "/api/images",
        "/api/images/{id}", "/api/images:batch", "/api/references/{key}", "/api/heatmap", "/api/export", "/api/facets",
        "/api/collage", "/api/searches", "/api/searches/{name}", "/api/searches/{name}/results",
        "/api/searches/{name}/feed",
    }  # fmt: skip
    named = {f"/api/galleries/{{gallery}}{path.removeprefix('/api')}" for path in plain}
    assert set(paths) == {*plain, *named, "/api/galleries"}
    operations = [operation for methods in paths.values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert "application/problem+json" in operation["responses"]["422"]["content"]
        assert operation["description"]


def test_files_and_tokens_are_described_as_generators_expect_them(client: TestClient, gallery: Gallery) -> None:
    described = client.get("/openapi.json").json()
    upload = described["components"]["schemas"]["Body_open_reference"]["properties"]["reference"]
    assert (upload["type"], upload["format"]) == ("string", "binary")
    assert "contentMediaType" not in json.dumps(described)
    assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert {} in described["security"]
    with client_of(gallery, Settings(token="long enough")) as guarded:
        needed = guarded.get("/openapi.json", headers={"Authorization": "Bearer long enough"}).json()["security"]
    assert needed == [{"bearer": []}, {"cookie": []}]


def test_every_route_has_an_example_that_its_own_models_take(client: TestClient, gallery: Gallery) -> None:
    described = client.get("/openapi.json").json()
    operations = {
        operation["operationId"]: operation
        for path, methods in described["paths"].items()
        for operation in methods.values()
        if not path.startswith("/api/galleries/{")
    }
    takes: dict[str, Any] = {
        "search": SearchRequest, "rank": RankRequest, "factorize": FactorizeRequest, "open_reference": SentReference,
        "export": ExportRequest, "put_image": PutRequest, "put_image_by_query": PutRequest,
        "save_search": SaveRequest,
    }  # fmt: skip
    gives: dict[str, Any] = {
        "search": SearchResult, "rank": SearchResult, "factorize": FactorizationModel, "open_reference": ReferenceInfo,
        "gallery": schemas.Gallery, "facets": FacetsModel, "galleries": Galleries, "put_image": WriteResult,
        "put_image_by_query": WriteResult, "delete_image": WriteResult,
        "delete_image_by_query": WriteResult, "save_search": SavedSearch,
        "list_searches": SavedSearches,
    }  # fmt: skip
    asked = {name: one["x-example"]["request"] for name, one in operations.items() if "request" in one["x-example"]}
    answers = {name: one["x-example"]["answer"] for name, one in operations.items() if "answer" in one["x-example"]}
    assert (asked.keys(), answers.keys()) == (takes.keys(), gives.keys())
    for name, operation in operations.items():
        assert operation["x-group"] in ("Search", "Gallery", "Write"), name
        if name in asked:
            takes[name].model_validate(asked[name])
            assert operation["requestBody"]["content"]["application/json"]["example"] == asked[name]
        if name in answers:
            TypeAdapter(gives[name]).validate_python(answers[name])
    for hit in (hit for name in ("search", "rank") for hit in answers[name]["hits"]):
        assert sum(part["value"] for part in hit["contributions"]) == pytest.approx(hit["score"], abs=1e-3)
    known = {**asked["search"], "reference_id": "red-blue.png"}
    assert set(client.post("/api/search", json=known).json()) == set(answers["search"])
