"""Bodies of requests: a question comes as a form or as JSON, and is the same question."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from tapr.errors import BadInput

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
Model = TypeVar("Model", bound=BaseModel)


def described(model: type[BaseModel]) -> dict[str, Any]:
    """For OpenAPI: this route also takes the model as JSON; openapi.py has the model among the components."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def json_body(request: Request, *, form: bool = True) -> bytes | None:
    """The body if it is JSON, None if it is a form and this route takes one; all else is refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind == "" and not form):
        return await request.body()
    if form and (kind in _FORMS or kind == ""):
        return None
    raise BadInput(f"send application/json{' or multipart/form-data' if form else ''}, not {kind[:80]!r}")


def parsed_json(body: bytes, model: type[Model]) -> Model:
    """In a thread: a picture in base64 is megabytes of text."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        what = "the body is no JSON that can be read: it is malformed, nested too deeply, or holds too long a number"
        raise BadInput(what) from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
