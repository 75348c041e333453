"""How a request names its references: a picture, a gallery id or a key; a part of it; and further ones beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tapr.errors import BadInput
from tapr.query.crop import box_of_text, cropped
from tapr.query.reference import Reference
from tapr.server.engine import Engine

CROP = "Only this part of it counts: left,top,right,bottom, each from 0 to 1."


class MoreReferenceModel(BaseModel):
    """A further reference that the server knows."""

    model_config = ConfigDict(extra="forbid")
    reference_id: str | None = None
    reference_key: str | None = None
    crop: list[float] | None = Field(None, description=CROP)

    def opened(self, engine: Engine) -> Reference:
        return cropped(named_reference(engine, None, self.reference_id, self.reference_key), self.crop)


def named_reference(engine: Engine, upload: UploadFile | None, id_: str | None, key: str | None) -> Reference:
    """One of the three ways to name a reference."""
    if sum(value is not None for value in (upload, id_, key)) != 1:
        raise BadInput("name one reference: a picture as reference, a gallery id as reference_id, or a reference_key")
    if upload is not None:
        return engine.open_upload(upload.file.read())
    return engine.open_picture(id_) if id_ is not None else engine.references.get(key or "")


def with_others(engine: Engine, first: Reference, crop: str | None, more_references: str | None) -> list[Reference]:
    """The first reference and the further ones, as a form or an address says them: the latter as JSON text."""
    return [
        cropped(first, None if crop is None else box_of_text(crop)),
        *opened(engine, more_references_of(more_references)),
    ]


def opened(engine: Engine, more_references: Sequence[MoreReferenceModel]) -> list[Reference]:
    return [one.opened(engine) for one in more_references]


def more_references_of(text: str | None) -> list[MoreReferenceModel]:
    if text is None:
        return []
    try:
        given = json.loads(text)
        return [MoreReferenceModel.model_validate(one) for one in (given if isinstance(given, list) else [given])]
    except (ValueError, ValidationError, RecursionError):
        raise BadInput(
            'also is a JSON list of further references, such as [{"reference_id": "a.jpg", "crop": [0, 0, 1, 0.5]}]'
        ) from None
