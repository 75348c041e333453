"""The description of the API, completed for client generators: files, tokens, and what an error looks like."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from tapr.server import galleries
from tapr.server.incoming import BatchLine, PutRequest
from tapr.server.schemas import Problem
from tapr.server.security import COOKIE
from tapr.server.write_api import PUT_FORM, BatchResult

_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of `tapr serve --token`."},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "What a browser gets at /?token=."},
}


def complete(app: FastAPI, token_needed: bool) -> None:
    """FastAPI keeps the description that it makes; this changes it in place."""
    described = app.openapi()
    components = described["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = _SCHEMES
    components["schemas"] |= {model.__name__: _schema(model) for model in (PutRequest, BatchLine, BatchResult)}
    components["schemas"]["PutForm"] = PUT_FORM
    described["paths"] |= galleries.described(described["paths"])
    described["security"] = [{"bearer": []}, {"cookie": []}, *([] if token_needed else [{}])]
    _mark_files(described)
    _join_choices(described)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Of a model that routes read by themselves. As FastAPI's own: a field that may be left out has no default null,
    which generators for TypeScript take for a field that must be there."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for field in schema["properties"].values():
        if field.get("default", ...) is None:
            del field["default"]
    return schema


def _mark_files(node: Any) -> None:
    """Generators know a file by `format: binary`; FastAPI says it in the newer way alone."""
    if isinstance(node, dict):
        if node.get("contentMediaType") == "application/octet-stream":
            del node["contentMediaType"]
            node["format"] = "binary"
        for value in node.values():
            _mark_files(value)
    elif isinstance(node, list):
        for value in node:
            _mark_files(value)


def _join_choices(node: Any) -> None:
    """A choice between lists of words is one list: generators stumble over the nesting."""
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
