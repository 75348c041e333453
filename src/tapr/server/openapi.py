"""Completes the OpenAPI description for client generators: files, tokens and errors."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tapr.server import galleries
from tapr.server.incoming import BatchLine, PutRequest
from tapr.server.questions import FactorizeRequest, RankRequest, SearchRequest, SentReference
from tapr.server.schemas import BatchResult, Problem
from tapr.server.security import COOKIE
from tapr.server.write_api import PUT_FORM

# Every route takes it. It is told where a body is a form or JSON: without an optional parameter beside such a choice,
# openapi-python-client 0.29 writes code that does not import what it uses.
_REQUEST_ID = {
    "name": "X-Request-Id", "in": "header", "required": False, "schema": {"type": "string"},
    "description": "A name for this request; the answer and the server's log carry it.",
}  # fmt: skip
_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of `tapr serve --token`."},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "What a browser gets at /?token=."},
}


def complete(app: FastAPI, token_needed: bool) -> None:
    """Complete FastAPI's cached description in place."""
    described = app.openapi()
    components = described["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = _SCHEMES
    for model in (PutRequest, BatchLine, BatchResult, SearchRequest, RankRequest, FactorizeRequest, SentReference):
        schema = _schema(model)
        components["schemas"] |= {**schema.pop("$defs", {}), model.__name__: schema}
    components["schemas"]["PutForm"] = PUT_FORM
    _add_examples(described["paths"])
    described["paths"] |= galleries.described(described["paths"])
    described["security"] = [{"bearer": []}, {"cookie": []}, *([] if token_needed else [{}])]
    _mark_files(described)
    _join_choices(described)
    _one_form(described, "EditSpecForm", "EditSpec")
    _one_form(described, "WeightsForm", "Weights")


def _add_examples(paths: dict[str, Any]) -> None:
    """What is asked and answered, by docs/examples.json: in OpenAPI's own places, and whole for the page /docs."""
    examples = json.loads(files("tapr.server").joinpath("docs", "examples.json").read_text(encoding="utf-8"))
    for operation in (one for methods in paths.values() for one in methods.values()):
        example = examples.get(operation["operationId"], {})
        if len(operation.get("requestBody", {}).get("content", {})) > 1:
            operation.setdefault("parameters", []).append(_REQUEST_ID)
        operation["x-group"], operation["x-example"] = example.pop("group", "More"), example
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None and "request" in example:
            body["example"] = example["request"]
        answer = operation["responses"].get("200", {}).get("content", {}).get("application/json")
        if answer is not None and "answer" in example:
            answer["example"] = example["answer"]


def _one_form(described: dict[str, Any], form: str, name: str) -> None:
    """Describe a class by its JSON form wherever it stands: answers hold what requests take."""
    schemas = described["components"]["schemas"]
    if form in schemas:
        schemas[name] = {**schemas.pop(form), "title": name}
    _replace_reference(described, f"#/components/schemas/{form}", f"#/components/schemas/{name}")


def _replace_reference(node: Any, old: str, new: str) -> None:
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        if isinstance(value, dict) and value.get("$ref") == old:
            value["$ref"] = new
        _replace_reference(value, old, new)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a model that routes parse themselves. Like FastAPI's own, optional fields have no default null,
    which TypeScript generators would treat as required.
    """
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for one in (schema, *schema.get("$defs", {}).values()):
        for field in one.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]
    return schema


def _mark_files(node: Any) -> None:
    """Mark files with `format: binary`, which generators need; FastAPI only writes the newer form.

    A file that may lack is one that is not sent: no form can hold null.
    """
    if isinstance(node, dict):
        files = [one for one in node.get("anyOf", ()) if "contentMediaType" in one]
        if files:
            del node["anyOf"]
            node |= files[0]
        if node.get("contentMediaType") == "application/octet-stream":
            del node["contentMediaType"]
            node["format"] = "binary"
        for value in node.values():
            _mark_files(value)
    elif isinstance(node, list):
        for value in node:
            _mark_files(value)


def _join_choices(node: Any) -> None:
    """Merge nested enums into one list, because generators cannot handle the nesting."""
    if isinstance(node, dict):
        for value in node.values():
            _join_choices(value)
        choices = node.get("anyOf", ())
        words = [one for one in choices if "enum" in one or "const" in one]
        if len(words) > 1:
            values = [value for one in words for value in one.get("enum", [one.get("const")])]
            others = [one for one in choices if one not in words]
            joined = {"type": "string", "enum": values}
            if others:
                node["anyOf"] = [joined, *others]
            else:
                del node["anyOf"]
                node |= joined
    elif isinstance(node, list):
        for value in node:
            _join_choices(value)
