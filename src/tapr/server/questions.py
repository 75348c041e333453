"""A question as it comes over HTTP, as a form or as JSON: the options of tapr/options.py, and how a picture is named.

In both a picture is named by its gallery id, by the key of an earlier reply, or by its address; or it is sent, in a
form as a file and in JSON as base64.
"""

from __future__ import annotations

import json
from copy import copy
from typing import Any, Literal, get_args, get_origin

from fastapi import UploadFile
from pydantic import BaseModel, ConfigDict, Field, create_model

from tapr.errors import BadOption
from tapr.explain.collage import Format
from tapr.options import MAX_REFERENCES, PICTURE_LISTS, CropValue, RankOptions, SearchOptions
from tapr.server.bodies import parsed_json
from tapr.server.pictures import Picture

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


class HeatmapQuery(BaseModel):
    """A term of a question, and a picture to show it in."""

    model_config = _LAX

    question: str = Field(
        description="The question as JSON for POST /api/search, with the spec of the answer in place of an edit."
    )
    term: str = Field("", description="The id of a contribution, such as add:0; without it, all terms together.")
    id: str | None = Field(None, description="A gallery picture; without it, the reference itself.")
    number: int = Field(1, ge=1, le=MAX_REFERENCES, description="Which of several references to show.")
    snapshot: int = Field(0, ge=0, description="That of the answer; it only keeps caches from mixing states.")
    size: int = Field(256, ge=16, le=1024, description="Pixels of the longer side.")
    overlay: bool = Field(False, description="The map alone, see-through.")

    def options(self) -> SearchOptions:
        sent = parsed_json(self.question.encode(), SearchRequest)
        if sent.edit is not None:
            what = "a heat map explains an answer: put the spec of the answer in the question, in place of the edit"
            raise BadOption(what, "question")
        return question(sent, like=sent.like)


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
