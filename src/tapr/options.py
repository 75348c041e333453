"""SearchOptions: one question, whoever asks it. Every option has its type, range, default and description here, once.

The library, the command line, the HTTP API, its client, the page and the evaluation take their options from this file:
to add one, add a field, and use it where the search is done. docs/extending.md has an example.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, WithJsonSchema

from tapr.errors import BadOption
from tapr.query.crop import checked_box
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures, Rule, Scoring
from tapr.query.spec import DEFAULT_WEIGHTS, EditSpec, Weights
from tapr.score.compile import TAU, TAU_MAX, TAU_MIN
from tapr.types import Box
from tapr.utils.arguments import shown_value
from tapr.utils.option_model import MAX_WHOLE_NUMBER, OptionModel, option

MAX_EDIT_CHARACTERS = 1000
MAX_REFERENCES = 3
MAX_FEEDBACK = 4  # pictures marked "more like", and as many "not like": each adds the probes of a reference
TAPR = "tapr"  # the method that the options tune; others read some of them
Budget = int | Literal["exact"]  # pictures to read in full, at most; or as many as the proof needs


class _As:
    """The JSON form of a class of ours, for schemas."""

    def __init__(self, form: type[BaseModel]) -> None:
        self._form = form

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self._form.__pydantic_core_schema__)


def _budget(value: object) -> Budget:
    if value == "exact":
        return "exact"
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        what = f"prefilter takes a number of pictures of 1 or more, or 'exact', not {shown_value(value)}"
        raise BadOption(what, "prefilter")
    return number


def _spec(value: object) -> EditSpec:
    if isinstance(value, EditSpec):
        return value
    if isinstance(value, Mapping):
        return EditSpec.from_dict({name: part for name, part in value.items() if part is not None})
    hint = "a sentence is the edit, and EditSpec.from_file reads a file"
    raise BadOption(f"spec must be an EditSpec or a mapping with a target, not {shown_value(value)}: {hint}", "spec")


def _pictures(name: str, most: int, refused: str) -> PlainValidator:
    """A list of up to `most` pictures; `refused` says what a longer one of {} is too much of."""

    def checked(value: object) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise BadOption(f"{name} must be a list, not {shown_value(value)}", name)
        if len(value) > most:
            raise BadOption(refused.format(len(value)), name)
        return tuple(value)

    return PlainValidator(checked)


_IN_JSON: dict[Any, Any] = {
    tuple[str, ...]: (list[str], []),
    tuple[tuple[str, float], ...]: (dict[str, float] | None, None),
}
_OF_A_SPEC = {
    "target": "One sentence that describes the whole picture wanted.",
    "add": "Short phrases for what the picture must show.",
    "preserve": "Short phrases for what it keeps of the reference.",
    "remove": "Short phrases for what it must not show.",
    "atom_weights": "Weight of an atom within its factor, 1 if unsaid.",
    "continuity": "How much of the reference stays, 0 to 1; null: the rule decides.",
    "readings": "Further sentences beside Target, and their weights; Target's own is 1.",
    "kind": "The kind of edit, which decides how much of the reference stays.",
}
_CLOSED = ConfigDict(extra="forbid")
WeightsForm = create_model(
    "WeightsForm",
    __config__=_CLOSED,
    __doc__="theta of the four factors; only their ratios matter. 0 switches a factor off.",
    **{name: (float, default) for name, default in DEFAULT_WEIGHTS.as_dict().items()},
)  # type: ignore[call-overload]
WeightsValue = Annotated[Weights, PlainValidator(Weights.parse), _As(WeightsForm)]


def _spec_form() -> type[BaseModel]:
    """The JSON form of an EditSpec: what is a tuple there is a list or an object here, and what may lack is null."""
    hints, form = get_type_hints(EditSpec), {}
    for one in dataclass_fields(EditSpec):
        type_, default = _IN_JSON.get(hints[one.name], (hints[one.name], ... if one.name == "target" else None))
        type_ = WeightsValue | None if one.name == "weights" else type_
        form[one.name] = (type_, Field(default, description=_OF_A_SPEC.get(one.name)))
    return create_model("EditSpecForm", __config__=_CLOSED, __doc__="One composed query in words.", **form)  # type: ignore


SpecForm = _spec_form()
SpecValue = Annotated[EditSpec, PlainValidator(_spec), _As(SpecForm)]
_FOUR_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4}
CropValue = Annotated[Box, PlainValidator(checked_box), WithJsonSchema(_FOUR_NUMBERS)]
_COUNT = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "enum": ["exact"]}]}


class RankOptions(OptionModel):
    """What a search can be asked beside its pictures, and beside words that are still to be factorized."""

    k: int = option(10, "How many pictures to return, up to the whole gallery.", ge=1, le=MAX_WHOLE_NUMBER)
    offset: int = option(0, "How many of the best to leave out: the next page.", ge=0, le=MAX_WHOLE_NUMBER)
    threshold: float | None = option(None, "Leave out pictures whose score is below this.")
    explain: bool = option(True, "With the parts of every score; off: the scores alone, which is faster.")
    spec: SpecValue | None = option(None, "Target, Add, Preserve and Remove, instead of an edit.")
    crop: CropValue | None = option(
        None, "Only this part of the reference counts: left,top,right,bottom, each from 0 to 1."
    )
    weights: WeightsValue | None = option(None, "T,A,P,R such as 1,0.5,0.5,0.3, or names such as add=0.8,remove=0.")
    tau: float = option(TAU, "Temperature of the soft late interaction.", ge=TAU_MIN, le=TAU_MAX)
    score: Rule = option(
        DEFAULT_SCORING.rule, "The rule for how much of the reference stays; paper is the published score."
    )
    reference_weight: float | None = option(
        None,
        "How much of the reference stays: 0 (the words decide) to 1 (the picture does).",
        ge=0,
        le=1,
        label="Follow the words or the picture?",
    )
    reference_features: ReferenceFeatures = option(
        DEFAULT_SCORING.reference_features,
        "Which vectors of the reference count: its parts (local), the whole (global) or both.",
    )
    where: str | None = option(
        None, "A filter on metadata, such as: class = 'dress' and price < 40", label="Filter on metadata"
    )
    exclude_reference: bool = option(True, "Leave the reference itself out of the ranking.")
    near_duplicates: float | None = option(
        None,
        "Mark hits whose file is equal to a better hit's, or whose cosine with it is at least this, as 0.97.",
        gt=0,
        le=1,
        label="Group near-duplicates",
    )
    method: str = option(
        TAPR, "How pictures are ranked: tapr, or a method of `tapr eval methods` that needs no records."
    )
    prefilter: Annotated[Budget, PlainValidator(_budget), WithJsonSchema(_COUNT)] | None = option(
        None, "With a first stage: read at most N pictures exactly, or 'exact': as many as the proof needs."
    )
    budget_ms: float | None = option(
        None,
        "With a first stage: milliseconds to find the best in; the answer says whether it is proven.",
        gt=0,
        le=3_600_000,
        label="Time limit (ms)",
    )

    @property
    def given(self) -> dict[str, Any]:
        """The options that were named by whoever asked, whatever their value."""
        named = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        unsaid = [name for name, value in named.items() if value is None or (name, value) in _UNSAID]
        return {name: value for name, value in named.items() if name not in unsaid}

    @property
    def _chosen(self) -> dict[str, Any]:
        """Those whose value is not the default: programs made from the schema send every default."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return {name: value for name, value in self.given.items() if defaults[name] is None or value != defaults[name]}

    @property
    def filter(self) -> str | None:
        """What narrows the gallery, as one filter: `where`, and every option that leaves out pictures by a column."""
        parts = [self.where]
        given = [one for one in parts if one]
        return given[0] if len(given) == 1 else " and ".join(f"({one})" for one in given) or None

    @property
    def scoring(self) -> Scoring:
        return Scoring(self.score, self.reference_weight, self.reference_features)

    @model_validator(mode="after")
    def _refuse_what_does_not_go_together(self) -> Self:
        _refuse_conflicts(self._chosen)
        return self


PICTURE_LISTS = ("more_references", "more_like", "not_like")
_UNSAID = (("method", TAPR), *((name, ()) for name in PICTURE_LISTS))  # as if it were not given
_MARKED = f"a search takes up to {MAX_FEEDBACK} pictures that are marked so, not {{}}"


class SearchOptions(RankOptions):
    """A whole question: "like this picture, but ...", words alone, or a picture alone."""

    reference: Any = option(None, "The picture to start from: a file, or a gallery id.")
    edit: str | None = option(None, "What should be different, in words.", max_length=MAX_EDIT_CHARACTERS)
    text: str | None = option(None, "Search by words alone: what the picture shows.", max_length=MAX_EDIT_CHARACTERS)
    like: Any = option(None, "Search by a picture alone: a file, or a gallery id.")
    more_references: Annotated[
        tuple[Any, ...],
        _pictures(
            "more_references", MAX_REFERENCES - 1, f"a search takes up to {MAX_REFERENCES - 1} of them, not {{}}"
        ),
    ] = option((), "A further reference, up to two; pictures count equally.")
    more_like: Annotated[tuple[Any, ...], _pictures("more_like", MAX_FEEDBACK, _MARKED)] = option(
        (),
        "More like this picture, up to four: a file, or a gallery id; it counts as Preserve.",
        label="More like this",
    )
    not_like: Annotated[tuple[Any, ...], _pictures("not_like", MAX_FEEDBACK, _MARKED)] = option(
        (), "Not like this picture, up to four: a file, or a gallery id; it counts as Remove.", label="Not like this"
    )
    factorizer: Any = option(None, "What turns picture and edit into Target, Add, Preserve and Remove.")

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Check the options; a spec may stand in the edit's place."""
        if isinstance(given.get("edit"), (EditSpec, Mapping)) and given.get("spec") is None:
            given |= {"edit": None, "spec": given["edit"]}
        return super().of(**given)

    @model_validator(mode="after")
    def _refuse_what_cannot_be_searched_by(self) -> Self:
        given = self._chosen
        if "text" in given and not self.text.strip():  # type: ignore[union-attr]
            raise BadOption("text must be words that describe the picture, such as 'a dog on a beach'", "text")
        if "text" in given or "like" in given:
            return self
        if "edit" in given and "reference" not in given:
            what = "name a reference picture for the edit; to search by words alone, give them as text"
            raise BadOption(what, "reference", "missing_option")
        if "spec" not in given and not (self.edit or "").strip():
            what = "say what should be different: give an edit such as 'at night', or a spec"
            if "reference" not in given:
                what = "there is nothing to search by: give a reference picture and an edit, words as text, or a spec"
            raise BadOption(what, "edit" if "reference" in given else "reference", "missing_option")
        for name in _OF_A_PICTURE if "reference" not in given else ():
            if name in given:
                what = f"{name} goes with a reference picture: name one, or leave {name} out"
                raise BadOption(what, name, "missing_option")
        return self


# Which options exclude each other: beside the first, the others mean nothing.
_OF_A_PICTURE = ("method", "score", "reference_weight", "reference_features", "crop", "more_references")
_WEIGH_BOTH = ("reference", "edit", "spec", "factorizer", "weights", "score", "reference_weight", "method")
_EXCLUDES: dict[str, tuple[str, ...]] = {
    "text": (*_WEIGH_BOTH, "like", "reference_features", "crop", "more_references"),
    "like": _WEIGH_BOTH,
    "edit": ("spec",),
    "method": ("crop", *PICTURE_LISTS, "prefilter", "budget_ms"),
}
_SAID = {
    "text": "text is a search by words alone",
    "like": "like is a search by a picture alone",
    "edit": "give an edit or a spec, not both",
    "method": "it goes with the method tapr only",
}


def _refuse_conflicts(given: Mapping[str, Any]) -> None:
    for first, others in _EXCLUDES.items():
        for name in others if first in given else ():
            if name in given:
                what = f"{_SAID[first]}: leave out {name}, or leave out {first}"
                raise BadOption(what, name, "conflicting_options")
    if given.get("score") == "paper" and "reference_weight" in given:
        what = "the paper's score has no weight for how much of the picture stays: leave out reference_weight, or paper"
        raise BadOption(what, "reference_weight", "conflicting_options")
    for name in ("more_like", "not_like"):
        if given.get("score") == "paper" and name in given:
            what = f"the paper's score knows no marked pictures: leave out {name}, or paper"
            raise BadOption(what, name, "conflicting_options")


DEFAULT_OPTIONS = RankOptions()
