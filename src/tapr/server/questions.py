"""A question as it comes over HTTP, as a form or as JSON: the options of tapr/options.py, and how a picture is named.

In both a picture is named by its gallery id, by the key of an earlier reply, or by its address; or it is sent, in a
form as a file and in JSON as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field, create_model

from tapr.errors import BadOption
from tapr.explain.collage import Format
from tapr.options import MAX_REFERENCES, PICTURE_LISTS, CropValue, RankOptions, SearchOptions
from tapr.query.crop import cropped
from tapr.query.factors import Factor
from tapr.query.reference import Reference
from tapr.server.engine import Engine

_ONE = "name one reference: a picture as reference, a gallery id as reference_id, a reference_key, or a reference_url"
_BYTES, _URL = "The picture's bytes in base64.", "The address of a picture, on a host that the server may fetch from."
_ID, _KEY = "The id of a gallery picture.", "The reference.key of an earlier reply."
_CROP = RankOptions.model_fields["crop"].description


WAYS = ("reference", "reference_url", "reference_id", "reference_key")  # to name a picture


class SentReference(BaseModel, extra="forbid"):
    """A picture that is sent, or where it is."""

    reference: str | None = Field(None, description=_BYTES)
    reference_url: str | None = Field(None, description=_URL)


class NamedReference(SentReference):
    """A reference, in one of four ways."""

    reference_id: str | None = Field(None, description=_ID)
    reference_key: str | None = Field(None, description=_KEY)
    crop: CropValue | None = Field(None, description=_CROP)


class FactorizeRequest(NamedReference):
    """A picture and an edit."""

    edit: str = Field(description=SearchOptions.model_fields["edit"].description)


class RankRequest(RankOptions):
    """A spec and a reference. Without a reference the words decide alone; without a spec, the reference."""

    reference: str | None = Field(None, description=_BYTES)
    reference_url: str | None = Field(None, description=_URL)
    reference_id: str | None = Field(None, description=_ID)
    reference_key: str | None = Field(None, description=_KEY)
    more_references: list[NamedReference] = Field(
        [], description="Up to two further references; pictures count equally."
    )
    more_like: list[NamedReference | str] = Field(
        [], description="More like these, up to four: gallery ids, or as in more_references. They count as Preserve."
    )
    not_like: list[NamedReference | str] = Field(
        [], description="Not like these, up to four: gallery ids, or as in more_references. They count as Remove."
    )

    @property
    def _chosen(self) -> dict[str, Any]:
        """Here `reference` only says which picture: `question` refuses what does not go with it."""
        return {name: value for name, value in super()._chosen.items() if name not in WAYS}


@dataclass(frozen=True)
class Picture:
    """What a request names a reference by; the engine opens it once the whole question is known to be right."""

    upload: UploadFile | str | None = None  # a file, or base64
    id: str | None = None
    key: str | None = None
    crop: Any = None
    url: str | None = None

    def __post_init__(self) -> None:
        names = sum(one is not None for one in (self.upload, self.id, self.key, self.url))
        if names != 1:
            raise BadOption(_ONE, "reference", "conflicting_options" if names else "missing_option")

    @classmethod
    def of(cls, one: Any) -> Picture:
        """What a form or an object in JSON names; text is a gallery id."""
        if isinstance(one, str):
            return cls(id=one)
        return cls(one.reference, one.reference_id, one.reference_key, one.crop, one.reference_url)

    def opened(self, engine: Engine) -> Reference:
        if self.upload is not None:
            found = engine.open_upload(_bytes_of(self.upload))
        elif self.url is not None:
            found = engine.open_upload(engine.fetcher.fetch(self.url))
        else:
            found = engine.open_picture(self.id) if self.id is not None else engine.references.get(self.key or "")
        return cropped(found, self.crop)


def _bytes_of(sent: UploadFile | str) -> bytes:
    if not isinstance(sent, str):
        return sent.file.read()
    try:
        return base64.b64decode(sent, validate=True)
    except (binascii.Error, ValueError):
        what = "reference is not base64: send the picture's bytes so, or as a file in multipart/form-data"
        raise BadOption(what, "reference") from None


def _as_text(model: type[BaseModel], *names: str) -> dict[str, Any]:
    """The same fields as a form or an address says them: plain values as they are, all others as text."""
    fields: dict[str, Any] = {}
    for name in names or model.model_fields:
        field = model.model_fields[name]
        kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
        is_plain = get_origin(field.annotation) is Literal or all(kind in (str, int, float, bool) for kind in kinds)
        fields[name] = (
            (field.annotation, copy(field)) if is_plain else (str | None, Field(None, description=field.description))
        )
    return fields


_FILE: Any = (UploadFile | None, Field(None, description="A picture. Or name one in another way."))
_LIKE: Any = (bool, Field(False, description="Search by the reference alone, without words."))
_LAX = ConfigDict(extra="forbid", allow_inf_nan=False)
SearchForm: Any = create_model(
    "SearchForm",
    __config__=_LAX,
    __doc__="A question as a form; objects and lists are JSON text.",
    **{"reference": _FILE, "like": _LIKE, **_as_text(SearchOptions, "edit", "text")},
    **{name: field for name, field in _as_text(RankRequest).items() if name != "reference"},
)
SearchRequest: Any = create_model(
    "SearchRequest",
    __base__=RankRequest,
    __doc__="A question as JSON.",
    **_as_text(SearchOptions, "edit", "text"),
    like=_LIKE,
)
FactorizeForm: Any = create_model(
    "FactorizeForm",
    __config__=ConfigDict(extra="forbid", json_schema_extra={"required": ["edit"]}),
    __doc__="A picture and an edit, as a form.",
    **{**_as_text(NamedReference), "reference": _FILE, **_as_text(SearchOptions, "edit")},
)
CollageForm: Any = create_model(
    "CollageForm",
    __base__=SearchForm,
    format=(Format, Field("jpg", description="The kind of picture.")),
    words=(str | None, Field(None, description="What to write above them; without it, the edit or the text.")),
)
HeatmapQuery: Any = create_model(
    "HeatmapQuery",
    __config__=_LAX,
    id=(str | None, Field(None, description="A gallery picture; without it, the reference itself.")),
    atom=(str, Field("", description="An atom, or empty for all together.")),
    factor=(Factor | None, Field(None, description="Whose atom it is; continuity: the parts of the reference.")),
    size=(int, Field(256, ge=16, le=1024, description="Pixels of the longer side.")),
    overlay=(bool, Field(False, description="The map alone, see-through.")),
    number=(int, Field(1, ge=1, le=MAX_REFERENCES, description="Which of several references to show.")),
    **_as_text(
        RankRequest, "spec", "weights", "tau", "reference_weight", "reference_features",
        "reference_id", "reference_key", "crop", *PICTURE_LISTS,
    ),
)  # fmt: skip


def parsed(form: BaseModel) -> RankRequest:
    """The options of a form or an address."""
    given: dict[str, Any] = {
        name: getattr(form, name)
        for name in form.model_fields_set
        if name in RankRequest.model_fields and name != "reference"  # a file, which `question` takes by itself
    }
    for name in ("spec", "weights", "crop", *PICTURE_LISTS):
        text = given.get(name)
        if text is not None and (name in ("spec", *PICTURE_LISTS) or text.lstrip()[:1] in ("{", "[")):
            try:
                given[name] = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadOption(f"the {name} is not valid JSON: {str(error)[:80]}", name) from None
    return RankRequest.of(**given)


def question(
    asked: RankOptions, upload: UploadFile | None = None, like: bool = False, **words: str | None
) -> SearchOptions:
    """The whole question, checked before any picture is opened."""
    given: dict[str, Any] = {name: getattr(asked, name) for name in asked.model_fields_set} | words
    given.pop("like", None)
    sent, url, id_, key = (given.pop(name, None) for name in WAYS)
    sent = upload if upload is not None else sent
    if like or any(one is not None for one in (sent, url, id_, key)):
        given["like" if like else "reference"] = Picture(sent, id_, key, url=url)
    for name in PICTURE_LISTS:
        if given.get(name):
            given[name] = [Picture.of(one) for one in given[name]]
    return SearchOptions.of(**given)
